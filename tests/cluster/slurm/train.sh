#!/usr/bin/env bash
# slurm/train.sbatch as shipped, on three nodes: trains to the end. Told to stop, it leaves a checkpoint, comes back
# from the queue and arrives at the weights of an undisturbed run. With srun and with mpirun.
# seconds: 1200
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_house house
cluster_start 3
options=(--data data --hidden 16 --batch 20 --optimizer momentum --learning-rate 0.05 --report-every 10 --progress off
  --checkpoint-every -1)

check "left alone"
works_until whole 150
train whole --
finish_job 200
expect_state COMPLETED
expect_out 'slurm/launch: 6 ranks on 3 nodes by (srun --mpi=pmix|mpirun)'
expect_out 'this|Slurm job [0-9]+: it may take (9|10):[0-9]+ \(SLURM_JOB_END_TIME\)'
for node in n1 n2 n3; do expect_out "^ *[0-9] +$node "; done
expect_out 'done at step 150'

# interrupted NAME LAUNCHER SCANCEL-OPTIONS: a run that is told to stop in the middle.
interrupted() {
  local run=$1
  export LOCKSTEP_LAUNCHER=$2
  shift 2
  works_until "$run" told
  train "$run" --
  stop_and_end_soon "$run" "$@"
  finish_job 200
  expect_state COMPLETED
  expect_out 'stopped at step [0-9]+ on request'
  expect_out '^== .*: back into the queue'
  expect_out ", restart 1: it may take"
  expect_out "continuing after step $(stopped_at 1) "
  expect_out "done at step $(($(stopped_at 1) + 20))"
  expect_weights_of_an_unbroken_run "$run"
  unset LOCKSTEP_LAUNCHER
}

check "USR1 to the batch script, mpirun"
interrupted usr1-mpirun mpirun --signal=USR1 --batch
check "TERM to the batch script, mpirun"
interrupted term-mpirun mpirun --signal=TERM --batch
# As in a preemption. mpirun then ends with a code of its own, because its daemons were told, too.
check "TERM to all tasks, mpirun"
interrupted tasks-mpirun mpirun --signal=TERM
check "TERM to the batch script and all below it, mpirun"
interrupted full-mpirun mpirun --signal=TERM --full
check "USR1 to the batch script, srun"
interrupted usr1-srun srun --signal=USR1 --batch
check "TERM to all tasks, srun"
interrupted tasks-srun srun --signal=TERM
check "TERM to the batch script and all below it, srun"
interrupted full-srun srun --signal=TERM --full

check "a table: what was decided at the start stays, though the command line is repeated"
numbers=("${options[@]}")
options=(--data house --batch 20 --report-every 10 --progress off --checkpoint-every -1)
interrupted table mpirun --signal=USR1 --batch
! grep -Eq 'options that differ now: .*normalize' out || failed "another normalisation"
options=("${numbers[@]}")

# The ranks are done, but the launcher ends badly: the run folder's state counts. The others end well: after a bad end
# of one srun ends the step at once, perhaps before the batch script is told.
check "told to end after the last step"
cat >ends-badly <<'END'
#!/bin/sh
"$REAL" "$@" || exit
[ "$SLURM_PROCID" = 0 ] || exit 0
touch "$ENDED"
exec sleep 60 # the batch script's USR1 ends it
END
chmod +x ends-badly
works_until after 30
export LOCKSTEP_LAUNCHER=srun REAL=$lockstep LOCKSTEP=$work/ends-badly ENDED=$work/ended
train after --
wait_for 120 test -e "$ENDED" && on_login scancel --signal=TERM --batch "$job_number"
finish_job 100
expect_state COMPLETED
expect_out 'done at step 30'; expect_out 'after the last step: the run is complete'
export LOCKSTEP=$lockstep
unset LOCKSTEP_LAUNCHER REAL ENDED

check "cancelled is cancelled, with a checkpoint"
works_until cancelled told
train cancelled --
wait_for 120 says 'step +50/' && on_login scancel "$job_number"
finish_job 100
expect_state CANCELLED
expect_out 'asked the ranks to stop'
expect grep -Eq 'stopped at step [0-9]+ on request' runs/cancelled/log.txt # once told to end, mpirun forwards no more lines
expect_file "$(newest_checkpoint runs/cancelled)"
sleep 5
expect_state CANCELLED

check "without --run"
submit no-run --nodes=1 "$tree/slurm/train.sbatch" --data data
finish_job 60
expect_state FAILED; expect_out '--run is needed'

check "a wrong option is final"
train wrong -- --stpes 5
finish_job 100
expect_state FAILED; expect_out 'unknown option --stpes'
[ "$(grep -c '^== job' out)" = 1 ] || failed "came back"

check "srun without PMI: one message, and nothing is written"
submit alone --nodes=3 --ntasks-per-node=2 --time=5 --wrap "srun $lockstep train ${options[*]} --run runs/alone"
finish_job 100
expect_state FAILED
expect_out 'SLURM_STEP_NUM_TASKS=6: 6 processes each think they are alone'
[ "$(grep -c 'think they are alone' out)" = 1 ] || failed "not said once"
expect_no_file runs/alone
