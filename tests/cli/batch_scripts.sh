#!/usr/bin/env bash
# The batch scripts find their own folder, whatever its path looks like, and a task of a job array acts for
# itself alone. This test brings its own scontrol, squeue and launcher.
# label: more
. "$(dirname "$0")/harness.sh"
mkdir -p bin spool "a b/slurm" "a/slurm"
own="$work/a b/slurm"
cp "$tree"/slurm/*.sbatch "$own"
say_where() { printf '#!/bin/sh\necho "$0" >>%s/called\ncase $1 in --program) echo true ;; esac\n' "$work"; }
say_where >"$own/launch"
# The file that a path cut at a blank would lead to.
say_where >launch
cp launch a/slurm/launch
chmod +x launch "a b/slurm/launch" a/slurm/launch
cp a/slurm/launch "$work/a b/launch"
cat >bin/scontrol <<END
#!/bin/sh
echo "scontrol \$*" >>"$work/asked"
[ "\$1" = show ] || exit 1
echo "JobId=7 JobName=lockstep"
echo "   Command=\$(cat "$work/command")"
echo "   JobState=RUNNING"
echo "   WorkDir=$work"
END
printf '#!/bin/sh\necho "squeue $*" >>%s/asked\n' "$work" >bin/squeue
chmod +x bin/scontrol bin/squeue

# calls_own NAME ARGUMENTS...: runs the script as Slurm does, as a copy elsewhere; scontrol reports its Command.
calls_own() {
  local script=$1
  shift
  rm -f called
  cp "$own/$script.sbatch" spool/slurm_script
  echo "$own/$script.sbatch${*:+ $*}" >command
  command_line="$script.sbatch $*"
  env -u LOCKSTEP_SLURM PATH="$work/bin:$PATH" SLURM_JOB_ID=7 SLURM_NTASKS=1 timeout 60 bash spool/slurm_script "$@" >out 2>err
  [ "$(sort -u called 2>/dev/null)" = "$own/launch" ] || failed "it called $(sort -u called 2>/dev/null | tr '\n' ' ')"
}

check "scripts in a folder with a blank in its path find the launcher beside them"
calls_own all-reduce
calls_own scale --rounds 2
calls_own check --data "$work/a/slurm/launch"
calls_own train --data data --run runs/a
calls_own train --data "../a/slurm/launch x" --run "runs/a b"
echo "--epochs 1" >settings
calls_own sweep settings --halving 2 --run runs/s

check "a task of a job array asks for itself and requeues itself"
printf '#!/bin/sh\n[ "$1" != --program ] || exec echo "$0"\nexit 75\n' >"$own/launch"
for script in train sweep; do
  arguments=(--data data --run runs/a)
  [ "$script" = train ] || arguments=(settings --halving 2 --run runs/s)
  rm -f asked
  cp "$own/$script.sbatch" spool/slurm_script
  echo "$own/$script.sbatch ${arguments[*]}" >command
  env -u LOCKSTEP_SLURM PATH="$work/bin:$PATH" SLURM_JOB_ID=40 SLURM_ARRAY_JOB_ID=40 SLURM_ARRAY_TASK_ID=3 \
    timeout 60 bash spool/slurm_script "${arguments[@]}" >out 2>err
  expect grep -q '^scontrol requeue 40_3$' asked
  ! grep -v '40_3' asked || failed "$script.sbatch asked for another job"
done
