#!/usr/bin/env bash
# A job whose work takes longer than its time: it stops by itself, or where Slurm's signal comes first, by that, as often as
# it must, and arrives at the weights of a run that had the time.
# seconds: 1800
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/validation
cluster_start 3
# As many steps as take about 110 s here today: a minute would have to be twice as fast to be enough.
options=(--data data --hidden 16 --batch 20 --optimizer adam --learning-rate 0.001 --report-every 10 --progress off
  --checkpoint-every -1 --evaluate-every 25)
export LOCKSTEP_LAUNCHER=mpirun
check "how fast it goes here"
train probe -- --steps 1000
finish_job 200
expect_out 'done at step 1000'
seconds=$(sed -n 's/.*done at step 1000 after \([0-9.]*\) s.*/\1/p' out)
steps=$(awk -v s="${seconds:-10}" 'BEGIN { print int(110 / s) * 1000 + 1000 }')

check "a run that has the time"
train whole -- --steps "$steps"
finish_job 400
expect_state COMPLETED; expect_out "done at step $steps"

# Slurm may give its signal a minute early; these jobs ask for one that says nothing to anybody.
check "its own clock stops it"
train clock --time=00:01:00 --signal=B:URG@1 -- --steps "$steps"
finish_job 600
expect_state COMPLETED
expect_out "stopped at step [0-9]+: [0-9.]+ s of the job's time were left, a checkpoint (takes|may take) [0-9.]+ s"
expect_no_out 'DUE TO TIME LIMIT'
expect_out "continuing after step $(stopped_at 1) "
expect_out "done at step $steps"
expect_same_weights clock whole
metric runs/clock validation loss >one.txt
metric runs/whole validation loss >other.txt
expect_same one.txt other.txt

check "Slurm's signal stops it"
train signal --time=00:01:00 --signal=B:USR1@30 -- --steps "$steps"
finish_job 600
expect_state COMPLETED
expect_out 'SIGUSR1: asked the ranks to stop'
expect_out 'stopped at step [0-9]+ on request'
expect_no_out 'DUE TO TIME LIMIT'
expect_out "done at step $steps"
expect_same_weights signal whole

# A rank that stands still keeps the job from ending before its time; Slurm wakes it up when it tells it to end.
check "neither does: Slurm ends it at its time, and it comes back all the same"
options=("${options[@]/#-1/50}") # checkpoints on the way
train late --time=00:01:00 --signal=B:URG@1 -- --steps "$steps" --time-limit none --deadline 300
wait_for 60 says 'step +100/' && on_node n2 pkill -STOP -o -x lockstep
finish_job 600
expect_state COMPLETED
expect_out 'DUE TO TIME LIMIT'
expect_out 'continuing after step [0-9]+ '
expect_out "done at step $steps"
expect_same_weights late whole
