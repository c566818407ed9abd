#!/usr/bin/env bash
# A job whose work takes longer than its time: it stops by itself, or where Slurm's signal comes first, by that, comes back,
# and arrives at the weights of a run that had the time.
# seconds: 1200
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/validation
cluster_start 3
options=(--data data --hidden 16 --batch 20 --optimizer adam --learning-rate 0.001 --report-every 10 --progress off
  --checkpoint-every -1 --evaluate-every 25)
export LOCKSTEP_LAUNCHER=mpirun

# stops_in_time NAME [SBATCH OPTIONS]: a job of a minute, with work for longer, which has little left to do when it comes back.
stops_in_time() {
  local run=$1
  shift
  works_until "$run" told
  train "$run" --time=00:01:00 "$@" --
  wait_for 100 grep -q 'stopped at step' "runs/$run/log.txt"
  works_until "$run" $(($(stopped_in_log "$run") + 30))
  finish_job 200
  expect_state COMPLETED
  expect_no_out 'DUE TO TIME LIMIT'
  expect_out "continuing after step $(stopped_at 1) "
  expect_out "done at step $(($(stopped_at 1) + 30))"
}

# Slurm may give its signal a minute early; this job asks for one that says nothing to anybody.
check "its own clock stops it"
stops_in_time clock --signal=B:URG@1
expect_out "stopped at step [0-9]+: [0-9.]+ s of the job's time were left, a checkpoint (takes|may take) [0-9.]+ s"
expect_weights_of_an_unbroken_run clock
metric runs/clock validation loss >one.txt
metric runs/clock-whole validation loss >other.txt
expect_same one.txt other.txt

check "Slurm's signal stops it"
stops_in_time signal --signal=B:USR1@30
expect_out 'SIGUSR1: asked the ranks to stop'
expect_out 'stopped at step [0-9]+ on request'
expect_weights_of_an_unbroken_run signal

# A rank that stands still keeps the job from ending before its time; Slurm wakes it up when it tells it to end.
check "neither does: Slurm ends it at its time, and it comes back all the same"
options=("${options[@]/#-1/50}") # checkpoints on the way
works_until late told
train late --time=00:01:00 --signal=B:URG@1 -- --time-limit none --deadline 300
wait_for 60 says 'step +100/' && on_node n2 pkill -STOP -o -x lockstep
wait_for 150 says 'DUE TO TIME LIMIT'
written=$(basename "$(newest_checkpoint runs/late)" .h5)
works_until late $((10#${written#step-} + 30))
finish_job 200
expect_state COMPLETED
expect_out 'DUE TO TIME LIMIT'
expect_out 'continuing after step [0-9]+ '
expect_out "done at step $((10#${written#step-} + 30))"
expect_weights_of_an_unbroken_run late
