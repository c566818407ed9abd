#!/usr/bin/env bash
# A job whose work takes longer than its time: it stops by itself, or at Slurm's signal if that comes first, or Slurm
# ends it; it comes back and arrives at the weights of a run that had enough time. Three jobs of a minute, side by side.
# seconds: 900
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/validation
cluster_start 3
job_nodes=1
options=(--data data --hidden 16 --batch 20 --optimizer adam --learning-rate 0.001 --report-every 10 --progress off
  --checkpoint-every 50 --evaluate-every 25)
export LOCKSTEP_LAUNCHER=mpirun

# Slurm may send its signal a minute early; these jobs ask for a signal without effect.
declare -A number
for run in clock late; do
  works_until $run told
  case $run in late) own=(--time-limit none --deadline 300) ;; *) own=() ;; esac
  train $run --time=00:01:00 --signal=B:URG@1 -- "${own[@]}"
  number[$run]=$job_number
done
works_until signal told
train signal --time=00:01:00 --signal=B:USR1@30 --
number[signal]=$job_number

# finished NAME STEP: it ended there, in a second attempt.
finished() {
  name=$1 job_number=${number[$1]}
  finish_job 300
  expect_state COMPLETED
  expect_out "done at step $2"
  expect_out 'continuing after step [0-9]+ '
  expect_weights_of_an_unbroken_run "$1"
  name=$1
  cp "$name.log" out
}

# A stopped rank keeps the job from ending before its time; Slurm wakes it up when it tells it to end.
check "neither clock nor signal: Slurm ends it at its time, and it comes back all the same"
name=late job_number=${number[late]}
wait_for 60 says 'step +100/' && on_node "$(on_login squeue -h -j "$job_number" -o %N)" pkill -STOP -o -x lockstep
ends_soon_after_stop 100 signal
ends_soon_after_stop 100 clock
wait_for 150 says 'DUE TO TIME LIMIT'
is_pending() { [ "$(on_login squeue -h -j "$job_number" -o %t)" = PD ]; }
wait_for 60 is_pending # until then, once woken up, it may still write a checkpoint
written=$(basename "$(newest_checkpoint runs/late)" .h5)
works_until late $((10#${written#step-} + 20))
finished late $((10#${written#step-} + 20))
expect_out 'DUE TO TIME LIMIT'

check "its own clock stops it"
finished clock $(($(stopped_in_log clock) + 20))
expect_out "stopped at step [0-9]+: [0-9.]+ s of the job's time were left, a checkpoint (takes|may take) [0-9.]+ s"
expect_no_out 'DUE TO TIME LIMIT'
metric runs/clock validation loss >one.txt
metric runs/clock-whole validation loss >other.txt
expect_same one.txt other.txt

check "Slurm's signal stops it"
finished signal $(($(stopped_in_log signal) + 20))
expect_out 'SIGUSR1: asked the ranks to stop'
expect_out 'stopped at step [0-9]+ on request'
expect_no_out 'DUE TO TIME LIMIT'
