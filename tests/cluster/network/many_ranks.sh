#!/usr/bin/env bash
# 64 ranks, 16 on each of four hosts that share the cores of this machine: they start in time, train, end when one of
# them is killed, and resume.
# seconds: 300
# openmpi: MPI_Finalize of MPICH 4.0 stops over TCP, and Hydra calls 64 ranks that end by themselves a failure
. "$(dirname "$0")/harness.sh"
must_run pack --format synthetic --samples 6400 --features 20 --classes 5 --shards 16 --out data
nodes 4
slots=node1:16,node2:16,node3:16,node4:16
train=(train --data data --optimizer adam --hidden 64 --global-batch 640 --report-every 1 --checkpoint-every 4 --device cpu
  --deadline 30 --run runs/many)

check "64 ranks start, sum and end"
began=$SECONDS
run -H $slots bench all-reduce --device cpu --algorithms two-level --max 64 --repeat 1 --warmup 0
expect_status 0
[ $((SECONDS - began)) -le 20 ] || failed "$((SECONDS - began)) s"
echo "64 ranks: $((SECONDS - began)) s from start to end"

check "one of them is killed"
start -H $slots "${train[@]}" --steps 100000
wait_for 90 eval '[ -n "$(newest_checkpoint runs/many)" ]'
pid=$(ranks_on node3 | sed -n 5p)
"$hosts" exec node3 kill -KILL "$pid"
began=$SECONDS
finish 60
[ "$status" != 0 ] || failed "exit 0 though a rank was killed"
[ $((SECONDS - began)) -le 20 ] || failed "$((SECONDS - began)) s until the end"
expect_err "rank [0-9]+ \(host node3, pid $pid\) has died; "
[ "$(grep -c 'Ending the job' err)" = 1 ] || failed "not one line of ours"
nobody_remains 20 head $(all_nodes)

check "the job resumes from its last checkpoint"
step=$(basename "$(newest_checkpoint runs/many)" .h5)
step=$((10#${step#step-}))
run -H $slots "${train[@]}" --steps $((step + 6)) --resume
expect_status 0
expect_out "done at step $((step + 6))"
metric runs/many train loss >losses
[ "$(awk 'NR == 1 { first = $2 } { last = $2 } END { print (last < first) }' losses)" = 1 ] || failed "nothing was learnt"
