#!/usr/bin/env bash
# A job with little time left stops by itself, early enough for a checkpoint, with 75, and the resumed run ends with the
# same weights.
# label: more
. "$(dirname "$0")/harness.sh"
unset SLURM_JOB_ID SLURM_JOB_END_TIME SLURM_RESTART_COUNT
pack_small data/train
pack_small data/validation
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --report-every 50 --progress off --evaluate-every 1 --checkpoint-every -1)
endless=("${options[@]}" --steps 100000000)
tensors() { "$lockstep" info "$(newest_checkpoint "$1")" | grep -E '^(parameters|momentum|optimizer)'; }

# stopped_in_time STEP...: judges the run in runs/$run.
stopped_in_time() {
  expect_status 75
  expect_out "stopped at step [0-9]+: [0-9.]+ s of the job's time were left, a checkpoint (takes|may take) [0-9.]+ s"
  step=$(sed -n 's/.*stopped at step \([0-9]*\):.*/\1/p' out)
  expect_file "$(printf 'runs/%s/checkpoints/step-%010d.h5' "$run" "$step")"
}

run=seconds
check "--time-limit in seconds, three ranks"
begin=$SECONDS
run -n 3 "${endless[@]}" --run runs/$run --time-limit 9
[ $((SECONDS - begin)) -lt 30 ] || failed "took $((SECONDS - begin)) s"
stopped_in_time
expect_out 'this run may take 0:0[0-9] \(--time-limit\)'
expect_no_out "validation at step $step:"

check "the validation that was due there is made when the run goes on"
goal=$((step + 5))
succeeds -n 3 "${options[@]}" --steps $goal --run runs/$run --resume
expect_out "validation at step $step:"
succeeds -n 3 "${options[@]}" --steps $goal --run runs/whole
metric runs/$run validation loss >stopped.txt
metric runs/whole validation loss >whole.txt
expect_same stopped.txt whole.txt
tensors runs/$run >stopped.txt
tensors runs/whole >whole.txt
expect_file whole.txt
expect_same stopped.txt whole.txt

check "it is not made twice"
succeeds -n 3 "${options[@]}" --steps $((goal + 1)) --run runs/$run --resume
expect_no_out "validation at step $goal:"

check "the limit belongs to one launch: neither the run's configuration nor its checkpoints have it"
expect grep -q 'time-limit = auto' runs/$run/config.ini

run=slurm
check "Slurm's end of the job, one rank"
export SLURM_JOB_ID=17 SLURM_RESTART_COUNT=3 SLURM_JOB_END_TIME=$(($(date +%s) + 10))
run "${endless[@]}" --run runs/$run
stopped_in_time
expect_out 'Slurm job 17, restart 3: it may take 0:[01][0-9] \(SLURM_JOB_END_TIME\)'
expect grep -q 'Slurm job 17, restart 3' runs/$run/log.txt

check "--time-limit none takes no notice of it"
succeeds "${options[@]}" --steps 20 --run runs/none --time-limit none
expect_out 'done at step 20'

check "a job without time makes one step, and leaves it"
run "${endless[@]}" --run runs/none-left --time-limit 0.001
run=none-left stopped_in_time
[ "$step" = 1 ] || failed "made $step steps"

check "Slurm's variables without Slurm"
unset SLURM_JOB_END_TIME
mkdir empty
for tool in sleep env; do ln -s "$(command -v $tool)" empty/; done
PATH=$work/empty run "${options[@]}" --steps 20 --run runs/stray
expect_status 0; expect_err 'this is Slurm job 17, but squeue gives no answer here.*--time-limit'
SLURM_JOB_END_TIME=1000 run "${options[@]}" --steps 20 --run runs/past
expect_status 0; expect_err 'SLURM_JOB_END_TIME=1000 is in the past'
unset SLURM_JOB_ID SLURM_RESTART_COUNT

check "a time that is none"
for time in 5m 0 1:75 yesterday; do
  fails 2 "--time-limit.*$time" "${options[@]}" --time-limit $time
done

check "several processes that each think they are alone write nothing"
SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 run "${options[@]}" --steps 20 --run runs/alone
expect_error 2 'SLURM_STEP_NUM_TASKS=4: 4 processes each think they are alone.*srun --mpi=pmix.*mpirun'
expect_no_file runs/alone
SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 run "${options[@]}" --steps 20 --run runs/alone
expect_status 2; expect_silence
expect_no_file runs/alone

check "one process started by hand where there could be several is warned"
SLURM_NTASKS=4 run "${options[@]}" --steps 20 --run runs/one-of-four
expect_status 0; expect_err 'warning: .*SLURM_NTASKS=4: only this one process was started'
