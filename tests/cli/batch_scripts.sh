#!/usr/bin/env bash
# The batch scripts find their own folder, whatever its path looks like, and a task of a job array acts for
# itself alone. This test brings its own scontrol, squeue and launcher.
# label: more
. "$(dirname "$0")/harness.sh"
mkdir -p bin spool "a b/slurm" "a/slurm"
own="$work/a b/slurm"
cp "$tree"/slurm/*.sbatch "$tree/slurm/attempts" "$own"
check "a script outside of a job says so"
for script in scale all-reduce; do
  (unset SLURM_JOB_ID; bash "$tree/slurm/$script.sbatch") >refusal 2>&1
  [ $? = 2 ] && grep -q 'is no Slurm job; sbatch makes one' refusal || failed "$script.sbatch: $(cat refusal)"
done
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

# attempt RESTARTS [ARGUMENTS...]: the script once more; what it prints is in ./out and ./err.
attempt() {
  local restarts=$1
  shift
  [ $# -gt 0 ] || set -- --data data --run runs/c
  rm -f asked
  command_line="restart $restarts of $*"
  env -u LOCKSTEP_SLURM PATH="$work/bin:$PATH" SLURM_JOB_ID=7 SLURM_NTASKS=1 SLURM_RESTART_COUNT="$restarts" \
    timeout 60 bash spool/slurm_script "$@" >out 2>err
}
comes_back() { grep -q '^scontrol requeue 7$' asked || failed "it does not come back"; }
is_given_up() {
  ! grep -q requeue asked || failed "it comes back"
  expect_err "no new checkpoint in $1 attempts in a row: given up"
}
# A launcher that gains checkpoint $gains, or nothing, and ends with $ends.
export gains="" ends=205
cat >"$own/launch" <<'END'
#!/bin/sh
[ -z "$gains" ] || { mkdir -p runs/c/checkpoints && ln -sfn "$gains" runs/c/checkpoints/latest; }
exit "$ends"
END
cp "$own/train.sbatch" spool/slurm_script
echo "$own/train.sbatch --data data --run runs/c" >command

check "three attempts in a row without a checkpoint are enough, whatever ended them"
for ends in 205 75; do
  rm -rf runs/c
  attempt 0; comes_back
  attempt 1; comes_back
  attempt 2; is_given_up 3
done

check "attempts that gain a checkpoint are not counted, however many restarts there were"
rm -rf runs/c
for i in 0 1 2 3 4 5 6; do gains=step-$i attempt $i; comes_back; done
attempt 7; comes_back
attempt 8; comes_back
gains=step-9 attempt 9; comes_back
attempt 10; comes_back
attempt 11; comes_back
attempt 12; is_given_up 3

check "another job counts anew"
sed -i 's/^7 /8 /' runs/c/attempts
attempt 0; comes_back

check "a sweep's tasks: three attempts without a new checkpoint or result"
cp "$own/sweep.sbatch" spool/slurm_script
echo "$own/sweep.sbatch settings --halving --data data --run runs/h" >command
cat >"$own/launch" <<'END'
#!/bin/sh
[ "$1" != --program ] || exec echo "$0"
[ -z "$gains" ] || { mkdir -p runs/h/1/checkpoints && ln -sfn "$gains" runs/h/1/checkpoints/latest; }
exit 75
END
task() { attempt "$1" settings --halving --data data --run runs/h; }
for i in 0 1 2 3 4; do gains=step-$i task $i; comes_back; done
task 5; comes_back
task 6; comes_back
task 7; is_given_up 3
cp "$own/train.sbatch" spool/slurm_script

check "a signal before the ranks begin: the job comes back, and they do not begin"
rm -rf runs; rm -f called
say_where >"$own/launch"
mkdir slow
# told_in COMMAND SCRIPT ARGUMENTS...: USR1 while the script runs that command.
told_in() {
  local slow=$1 script=$2
  shift 2
  rm -f asked waits slow/*
  script "slow/$slow" ": >$work/waits; sleep 2; exec $(command -v "$slow") \"\$@\""
  cp "$own/$script.sbatch" spool/slurm_script
  echo "$own/$script.sbatch $*" >command
  command_line="$script.sbatch $*, told to stop in $slow"
  env -u LOCKSTEP_SLURM PATH="$work/slow:$work/bin:$PATH" SLURM_JOB_ID=7 SLURM_NTASKS=1 bash spool/slurm_script "$@" >out 2>err &
  job=$!
  wait_for 20 test -e waits
  kill -USR1 "$job"
  finish 20
  expect_status 75; comes_back; expect_no_file called
}
told_in readlink train --data data --run runs/early
told_in hostname train --data data --run runs/early
mkdir -p runs/early
told_in find sweep settings --halving --data data --run runs/early
cp "$own/train.sbatch" spool/slurm_script
echo "$own/train.sbatch --data data --run runs/c" >command

check "a controller that is too busy to answer is asked again"
printf '#!/bin/sh\nexit 75\n' >"$own/launch"
mv bin/scontrol bin/scontrol_at_rest
script bin/scontrol "echo \"busy \$1\" >>$work/asked
[ \$(grep -c \"^busy \$1\" $work/asked) != 1 ] || { echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1; }
exec $work/bin/scontrol_at_rest \"\$@\""
rm -rf runs
attempt 0; comes_back
mv bin/scontrol_at_rest bin/scontrol

check "what others have put in the place of the count is neither written through nor run"
echo mine >precious
ln -sf ../../precious runs/c/attempts
attempt 0; comes_back
[ "$(cat precious)" = mine ] || failed "written through a link"
# shellcheck disable=SC2016  # no command
echo '7 a[$(touch$IFS./run)] none' >runs/c/attempts
attempt 1; comes_back
expect_no_file run
rm runs/c/attempts; mkfifo runs/c/attempts
attempt 1; comes_back

check "a run folder that cannot be written has no next attempt"
rm -rf runs/c; echo "no folder" >runs/c
attempt 0; is_given_up 3; expect_err 'cannot be written'
