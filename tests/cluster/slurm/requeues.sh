#!/usr/bin/env bash
# Jobs that come back several times: attempts are counted by what they gain, and a task of an array comes back alone.
# seconds: 900
. "$(dirname "$0")/harness.sh"
pack_house house
cluster_start 2
options=(--data house --batch 20 --report-every 10 --progress off --checkpoint-every -1)
export LOCKSTEP_LAUNCHER=mpirun

# A program whose attempts do what ./plan says, a line each: end as where a node is lost, with a checkpoint gained or without
# one, or work.
cat >unlucky <<'END'
#!/bin/sh
[ "$1" = train ] || exec "$REAL" "$@"
attempt=$(head -n 1 plan)
sed -i 1d plan
case $attempt in
  work) exec "$REAL" "$@" ;;
  gain*) mkdir -p "$RUN/checkpoints" && ln -sfn "$attempt" "$RUN/checkpoints/latest" ;;
esac
exit 205
END
chmod +x unlucky
export REAL=$lockstep LOCKSTEP=$work/unlucky

# attempts NAME SECONDS PLAN...: a job of one rank.
attempts() {
  local run=$1 seconds=$2
  shift 2
  printf '%s\n' "$@" >plan
  export RUN=runs/$run
  submit "$run" --nodes=1 --ntasks-per-node=1 --time=5 "$tree/slurm/train.sbatch" --run "$RUN" "${options[@]}" --steps 20
  finish_job "$seconds"
  [ ! -s plan ] || failed "no attempt for: $(tr '\n' ' ' <plan)"
  [ "$(grep -c '^== job' out)" = $# ] || failed "$(grep -c '^== job' out) attempts instead of $#"
}

check "five requeues, of which no three in a row gained nothing"
attempts lucky 300 gain1 gain2 gain3 nothing nothing work
expect_state COMPLETED; expect_out 'done at step 20'; expect_out ', attempt 6, '

check "three attempts in a row without a checkpoint are the last"
attempts unlucky 200 gain1 nothing nothing nothing
expect_state FAILED; expect_out 'no new checkpoint in 3 attempts in a row: given up'
export LOCKSTEP=$lockstep
unset REAL RUN

check "a job array over a table: the last task comes back alone, and so does every other"
printf -- '--hidden 4\n--hidden 8\n--hidden 16\n' >settings.txt
works_until array told
submit array --array=1-3 --output=array-%a.log --nodes=1 --ntasks-per-node=1 --time=10 "$tree/slurm/sweep.sbatch" settings.txt \
  "${options[@]}" --config array.ini --run runs/array
: >array.log
# tasks FORMAT: of the array, a line each: its number in the array, its state, how often it came back.
tasks() { on_login squeue -h -r -j "$job_number" -O 'ArrayTaskID:8,State:14,RestartCnt:6' 2>/dev/null | tr -s ' ' | sort; }
works() { grep -q '"kind":"train"' "runs/array/$1/metrics.jsonl"; }
stopped() { grep -q 'stopped at step' "runs/array/$1/log.txt"; }
is_back() { tasks | grep -Eq "^$1 (PENDING|RUNNING) 1"; }
for task in 1 2 3; do wait_for 120 works $task; done
on_login scancel --signal=USR1 --batch "${job_number}_3"
wait_for 60 stopped 3
wait_for 60 is_back 3
sleep 3
for task in 1 2; do tasks | grep -q "^$task RUNNING 0" || failed "task $task does not go on: $(tasks)"; done
for task in 1 2; do
  on_login scancel --signal=USR1 --batch "${job_number}_$task"
  wait_for 60 stopped $task
done
last=$(for task in 1 2 3; do stopped_in_log array/$task; done | sort -n | tail -n 1)
works_until array $((last + 20))
is_over() { release_requeued; [ -z "$(tasks)" ]; }
wait_for 200 is_over
for task in 1 2 3; do
  cp array-$task.log out
  [ "$(grep -c '^== job' out)" = 2 ] || failed "task $task: $(grep -c '^== job' out) attempts"
  expect_out "^== job ${job_number}_$task, attempt 2"
  expect_out '^continuing after step '
  sed -i ':again; s/\([0-9]\),\([0-9][0-9][0-9]\)/\1\2/; t again' out
  expect_out "done at step $((last + 20))"
  ! grep -Eq 'options that differ now: .*normalize' out || failed "another normalisation"
done
