# Sourced by tests/cluster/slurm/*.sh, which are called as: bash NAME.sh LOCKSTEP TREE
# The cases and checks of tests/cli/harness.sh, on a Slurm cluster of this script's own. The output of a job is
# $name.log; after finish_job the expect_ functions find it in ./out.
. "${2:?the tree is missing}/tests/cli/harness.sh"
. "$tree/tests/cluster/slurm/cluster.sh" || exit 1
trap 'code=$?; cluster_stop; (exit $code); end_of_script' EXIT
: >out
: >err
export LOCKSTEP=$lockstep

# submit NAME [SBATCH OPTIONS] SCRIPT [ARGUMENTS]: sets $job_number.
submit() {
  name=$1
  shift
  command_line="sbatch $*"
  rm -f "$name.log"
  job_number=$(on_login sbatch --parsable --job-name="$name" --output="$name.log" "$@" 2>err) ||
    failed "sbatch refuses: $(cat err)"
}
# works_until NAME STEP|told: writes the run's --config file. Machines differ in speed, so a run that a test must catch
# in the middle has no end until the test sets one.
works_until() { echo "steps = ${2/told/100000000}" >"$1.ini"; }
# train NAME [SBATCH OPTIONS] -- [TRAIN OPTIONS]: two ranks on each of $job_nodes nodes; $NAME.ini, if there is one, is read.
job_nodes=3
train() {
  local run=$1 slurm=()
  shift
  while [ "$1" != -- ]; do slurm+=("$1"); shift; done
  shift
  [ ! -e "$run.ini" ] || set -- --config "$run.ini" "$@"
  submit "$run" --nodes="$job_nodes" --ntasks-per-node=2 --time=10 "${slurm[@]}" "$tree/slurm/train.sbatch" --run "runs/$run" "${options[@]}" "$@"
}
state() { on_login scontrol show job "$job_number" | grep -o 'JobState=[A-Z_]*'; }
# Final states only, for a while: a job that returns to the queue passes through some of them.
is_final() {
  local i
  for i in 1 2 3; do
    [ -z "$(on_login squeue -h -j "$job_number" -o %i 2>/dev/null)" ] || return 1
    case $(state) in *=PENDING | *=RUNNING | *=COMPLETING | *=REQUEUED | '') return 1 ;; esac
    [ $i = 3 ] || sleep 1
  done
}
# finish_job SECONDS: waits until the job has left the queue for good; requeued jobs start without a delay.
finish_job() {
  local deadline=$((SECONDS + $1))
  until is_final; do
    if [ $SECONDS -gt "$deadline" ]; then
      cp "$name.log" out 2>/dev/null
      failed "job $job_number is still there after $1 s: $(on_login squeue -h -j "$job_number" -o '%T %r')"
      on_login scancel "$job_number"
      sleep 15
      break
    fi
    release_requeued
    sleep 0.5
  done
  cp "$name.log" out
  sed -i ':again; s/\([0-9]\),\([0-9][0-9][0-9]\)/\1\2/; t again' out # 1,234 -> 1234
}
# stop_and_end_soon NAME SCANCEL-OPTIONS: tells the run to stop, once it works.
stop_and_end_soon() {
  local run=$1
  shift
  wait_for 120 says 'step +50/' && on_login scancel "$@" "$job_number"
  ends_soon_after_stop 60 "$run"
}
# ends_soon_after_stop SECONDS NAME: waits until it has stopped; when it comes back it has twenty steps left.
ends_soon_after_stop() {
  wait_for "$1" grep -q 'stopped at step' "runs/$2/log.txt"
  works_until "$2" $(($(stopped_in_log "$2") + 20))
}
says() { grep -Eq -- "$1" "$name.log" 2>/dev/null; }
expect_state() { [ "$(state)" = "JobState=$1" ] || failed "$(state) instead of $1"; }
# The step at which attempt number $1 in the log stopped.
stopped_at() { sed -n 's/.*stopped at step \([0-9]*\).*/\1/p' "$name.log" | sed -n "$1p"; }
stopped_in_log() { sed -n 's/.*stopped at step \([0-9]*\).*/\1/p' "runs/$1/log.txt" | tail -n 1; }
# Repeats the run NAME as NAME-whole, to the same step and without a break: the same weights.
expect_weights_of_an_unbroken_run() {
  local run=$1
  cp "$run.ini" "$run-whole.ini"
  train "$run-whole" --time=30 --
  finish_job 900
  expect_state COMPLETED
  expect_same_weights "$run" "$run-whole"
}
# tensors RUN: the checksums of all tensors in its newest checkpoint.
tensors() { "$lockstep" info "$(newest_checkpoint "$1")" | grep -E ' [0-9a-f]{16}$' | awk '{ print $1, $2, $NF }'; }
expect_same_weights() {
  tensors "runs/$1" >one.txt
  tensors "runs/$2" >other.txt
  expect_file other.txt
  expect_same one.txt other.txt
}
