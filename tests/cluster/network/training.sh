#!/usr/bin/env bash
# Training over several hosts computes the same as one host with as many ranks, and its gradients cross the network.
# seconds: 300
. "$(dirname "$0")/harness.sh"
pack_small data/train
nodes 4

# 20 -> 300 -> 300 -> 5: 98,105 parameters.
train=(train --data data --optimizer sgd --hidden 300,300 --global-batch 40 --epochs 1 --report-every 1 --checkpoint-every 0 --device cpu)
parameters=98105
losses() { metric "$1" train loss; }
# close FILE FILE: the same steps, and losses that differ only by rounding.
close() {
  python3 - "$1" "$2" <<'END'
import sys
a, b = ([line.split() for line in open(name)] for name in sys.argv[1:])
same = len(a) == len(b) > 0 and all(s == t and abs(float(x) - float(y)) <= 1e-4 * abs(float(y)) for (s, x), (t, y) in zip(a, b))
sys.exit(0 if same else 1)
END
}
# crossed LEAST MOST: checks the bytes sent since $before; 15 % above for headers, acknowledgements and the votes of
# each step.
crossed() {
  local sent=$(($(bytes_sent) - before))
  [ $sent -ge "$1" ] && [ $sent -le $(($2 * 115 / 100)) ] || failed "$sent bytes crossed the network, not $1 to $2 + 15 %"
}

check "one host, four ranks"
before=$(bytes_sent)
run -H node1:4 "${train[@]}" --run runs/one
expect_status 0
losses runs/one >one.txt
steps=$(grep -c . one.txt)
[ "$steps" -ge 10 ] || failed "only $steps steps reported"
[ $(($(bytes_sent) - before)) -lt 10000 ] || failed "one host used the network"

check "the same by the ring"
run -H node1:4 "${train[@]}" --run runs/ring --transport ring
expect_status 0
losses runs/ring >ring.txt
expect close ring.txt one.txt

check "four hosts with a rank each: the losses of one host's ring, bit for bit; 2(p-1)/p of the gradients sent by each"
before=$(bytes_sent)
run -H node1:1,node2:1,node3:1,node4:1 "${train[@]}" --run runs/four --transport ring
expect_status 0
expect_silence
crossed $((2 * 3 * parameters * 4 * steps)) $((2 * 3 * parameters * 4 * steps))
losses runs/four >four.txt
expect_same four.txt ring.txt

check "what is chosen there without being told"
run -H node1:1,node2:1,node3:1,node4:1 "${train[@]}" --run runs/four-auto
expect_status 0
losses runs/four-auto >four-auto.txt
expect close four-auto.txt one.txt

check "two hosts with two ranks each"
before=$(bytes_sent)
run -H node1:2,node2:2 "${train[@]}" --run runs/pairs
expect_status 0
losses runs/pairs >pairs.txt
expect close pairs.txt one.txt
# A ring over four ranks crosses twice, with 2*3/4 of the gradients each; a ring over two hosts, with half of them per
# rank, less.
crossed $((2 * parameters * 4 * steps)) $((2 * 2 * 3 * parameters * 4 * steps / 4))

check "uneven hosts: one rank and three"
before=$(bytes_sent)
run -H node1:1,node2:3 "${train[@]}" --run runs/uneven
expect_status 0
losses runs/uneven >uneven.txt
expect close uneven.txt one.txt
crossed $((2 * parameters * 4 * steps)) $((2 * 2 * 3 * parameters * 4 * steps / 4))

check "three hosts, ranks dealt out by node"
run -H node1:2,node2:1,node3:1 -m "--map-by node" "${train[@]}" --run runs/dealt
expect_status 0
losses runs/dealt >dealt.txt
expect close dealt.txt one.txt

check "more ranks than samples in a batch: some have none, and all take part"
run -H node1:1,node2:3 train --data data --optimizer sgd --hidden 16 --global-batch 2 --steps 5 --report-every 1 --device cpu --run runs/few
expect_status 0
expect [ "$(losses runs/few | grep -c .)" = 5 ]

check "nobody and nothing remains"
nobody_remains 5 head $(all_nodes)
