#!/usr/bin/env bash
# A node that loses power in the middle: the job comes back from the queue when there are enough nodes, and continues
# from its last checkpoint to the weights of an undisturbed run. A job that fails by itself does not come back.
# seconds: 1200
. "$(dirname "$0")/harness.sh"
pack_small data/train
cluster_start 3
options=(--data data --hidden 16 --batch 20 --optimizer momentum --learning-rate 0.05 --report-every 10 --progress off
  --checkpoint-every 20)

check "left alone"
train whole -- --steps 150
finish_job 200
expect_state COMPLETED

for launcher in mpirun srun; do
  check "node 3 goes, under $launcher"
  export LOCKSTEP_LAUNCHER=$launcher
  train "lost-$launcher" -- --steps 150 --deadline 20
  wait_for 120 says 'step +50/' && power_off n3
  wait_for 150 eval '[ "$(on_login squeue -h -j $job_number -o %T)" = PENDING ]'
  power_on n3
  finish_job 300
  unset LOCKSTEP_LAUNCHER
  expect_state COMPLETED
  expect_out ', restart 1: it may take'
  expect_out 'continuing after step [0-9]+ '
  expect_out 'done at step 150'
  expect_same_weights "lost-$launcher" whole
done

check "a rank that is killed is no lost node"
export LOCKSTEP_LAUNCHER=mpirun
train killed -- --steps 150
wait_for 120 says 'step +20/' && on_node n2 pkill -9 -n -x lockstep
finish_job 200
unset LOCKSTEP_LAUNCHER
expect_state FAILED
expect_out 'all nodes answer, so the same would fail again'
[ "$(grep -c '^== job' out)" = 1 ] || failed "came back"

check "a worker of servers that is killed: the others finish"
train worker -- --agree quorum=4 --steps 1000
wait_for 120 says 'step +20/' && on_node n2 pkill -9 -n -x lockstep
finish_job 200
expect_state COMPLETED
expect_out 'by mpirun .*which lets ranks go on without one that has died'
expect_out 'rank [23] \(host n2, pid [0-9]+\) has died; 5 ranks go on without it'
expect_out 'done at step 1000'
expect_out '^== done'
[ "$(grep -c '^== job' out)" = 1 ] || failed "came back"
