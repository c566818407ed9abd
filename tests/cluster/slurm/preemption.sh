#!/usr/bin/env bash
# A job that is preempted by a more urgent one: it leaves a checkpoint in the time that its partition grants, comes back
# when the other is done, and arrives at the weights of an undisturbed run.
# seconds: 600
. "$(dirname "$0")/harness.sh"
pack_small data/train
partition="Nodes=ALL MaxTime=INFINITE State=UP"
cluster_start 3 "PreemptType=preempt/partition_prio" "PreemptMode=REQUEUE" \
  "PartitionName=patient $partition PriorityTier=1 GraceTime=30" "PartitionName=urgent $partition PriorityTier=10"
options=(--data data --hidden 16 --batch 20 --optimizer adam --learning-rate 0.001 --report-every 10 --progress off
  --checkpoint-every -1)

for launcher in mpirun srun; do
  check "a run that makes room, under $launcher"
  export LOCKSTEP_LAUNCHER=$launcher
  run=makes-room-$launcher
  works_until "$run" told
  train "$run" --partition=patient --
  patient=$job_number
  wait_for 120 says 'step +20/'
  submit "urgent-$launcher" --partition=urgent --nodes=3 --ntasks-per-node=2 --time=2 --wrap 'echo here; sleep 3'
  ends_soon_after_stop 60 "$run"
  finish_job 120
  expect_state COMPLETED; expect_out here
  name=$run job_number=$patient
  finish_job 300
  expect_state COMPLETED
  expect_out 'stopped at step [0-9]+ on request'
  expect_out "continuing after step $(stopped_at 1) "
  expect_out "done at step $(($(stopped_at 1) + 20))"
  expect_weights_of_an_unbroken_run "$run"
done
