#!/usr/bin/env bash
# --agree local over several hosts: an island for each, the bytes of a round between them, the same end after a resume.
# seconds: 300
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
nodes 2

# 20 -> 300 -> 300 -> 5: 98,105 parameters.
train=(train --data data --hidden 300,300 --global-batch 40 --steps 40 --report-every 10 --device cpu --optimizer adam
  --learning-rate 0.001)
local_steps=("${train[@]}" --agree local=10)
parameters=98105

check "the ranks of a host are an island, and one sum in ten steps crosses the network"
before=$(bytes_sent)
run -H node1:2,node2:2 "${local_steps[@]}" --checkpoint-every -1 --run runs/local
expect_status 0; expect_silence; expect_out 'agreement: 2 islands make 10 steps by themselves'
# 4 rounds of 2(p-1)/p of the weights from each of 2 hosts; the last checkpoint's broadcast of an island's 2 moments.
sent=$(($(bytes_sent) - before)) least=$((4 * 2 * parameters * 4))
[ $sent -ge $least ] && [ $sent -le $(((least + 2 * 2 * parameters * 4) * 13 / 10)) ] || failed "$sent bytes crossed the network, not $least and a checkpoint"

check "every step in comparison"
before=$(bytes_sent)
run -H node1:2,node2:2 "${train[@]}" --checkpoint-every -1 --run runs/all
expect_status 0; expect_silence
[ $(($(bytes_sent) - before)) -ge $((40 * 2 * parameters * 4)) ] || failed "the comparison shows nothing"

check "a run over hosts resumes to the same bytes"
run -H node1:2,node2:2 "${local_steps[@]}" --checkpoint-every 20 --run runs/resumed
expect_status 0
cp runs/resumed/checkpoints/step-0000000040.h5 whole.h5
rm runs/resumed/checkpoints/step-0000000040.h5
run -H node1:2,node2:2 train --resume --run runs/resumed
expect_status 0
expect cmp whole.h5 runs/resumed/checkpoints/step-0000000040.h5

check "a host that dies is named by the other island"
start -H node1:2,node2:2 train --data data --optimizer sgd --hidden 300,300 --global-batch 40 --steps 100000000 --report-every 50 --progress off \
  --device cpu --agree local=50 --run runs/dies
wait_for 30 grep -q '^ *step ' out
pid=$(ranks_on node2 | tail -n 1)
"$hosts" exec node2 kill -9 "$pid"
finish 60
expect_err "rank 3 \(host node2, pid $pid\)|signal 9"
nobody_remains 10 head $(all_nodes)
