#!/usr/bin/env bash
# --agree quorum and async over several hosts with slow links: the bytes of a gradient, the same bits, deaths.
# seconds: 400
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
nodes 3 --rate 50mbit

# 20 -> 100 -> 5: 2,605 parameters.
train=(train --data data --hidden 100 --global-batch 40 --report-every 10 --device cpu --optimizer adam --learning-rate 0.001
  --progress off --no-tensorboard)
parameters=2605
weights() {
  python3 - "$1" <<'END'
import sys, h5py
def show(name, item):
    if isinstance(item, h5py.Dataset) and item.dtype.kind == "f": print(name, item[()].tobytes().hex())
h5py.File(sys.argv[1]).visititems(show)
END
}

check "over slow links all gradients make the bits of a sum in shared memory"
run -H node1:2 "${train[@]}" --steps 60 --run runs/all
expect_status 0
for mode in "quorum=2 --servers 1" "async --staleness 0" "quorum=2 --servers shared"; do
  hosts_of_mode=node1:1,node2:1,node3:1
  case $mode in *shared*) hosts_of_mode=node1:1,node2:1 ;; esac
  before=$(bytes_sent)
  run -H $hosts_of_mode "${train[@]}" --steps 60 --checkpoint-every -1 --agree $mode --run runs/agree --force
  expect_status 0
  sent=$(($(bytes_sent) - before))
  expect_same <(weights runs/all/checkpoints/step-0000000060.h5) <(weights runs/agree/checkpoints/step-0000000060.h5)
  # Two workers, a gradient there and the weights back, 60 times; of parts beside the worker half stays at home.
  least=$((60 * 2 * 2 * parameters * 4))
  case $mode in *shared*) least=$((least / 2)) ;; esac
  [ $sent -ge $least ] || failed "$mode: $sent bytes crossed the network, not $least"
done

check "every gradient by itself, on a server of its own host"
run -H node1:1,node2:1,node3:1 "${train[@]}" --steps 60 --checkpoint-every 20 --agree async --run runs/async
expect_status 0; expect_out 'rank 2 keeps the parameters, 2 ranks train'; expect_out 'done at step 60'
run -H node1:1,node2:1,node3:1 "${train[@]}" --steps 60 --checkpoint-every 20 --agree async --replay runs/async/arrivals-0 --run runs/again
expect_status 0
expect_same <(weights runs/async/checkpoints/step-0000000060.h5) <(weights runs/again/checkpoints/step-0000000060.h5)

check "a host that serves and dies ends the job, which resumes"
start -H node1:1,node2:1,node3:1 "${train[@]}" --steps 100000000 --checkpoint-every 20 --keep 1 --agree async --deadline 10 --run runs/dies
wait_for 60 grep -q '^checkpoint .*step-' out
pid=$(ranks_on node3)
"$hosts" exec node3 kill -9 "$pid"
finish 60
[ "$status" != 0 ] || failed "it ended with 0"
# Which of the ranks and mpirun is first says who it was; expect_err would leave out what mpirun says.
grep -Eq "rank 2 \(host node3, pid $pid\)|rank 2 with PID $pid on node node3 exited on signal 9" err || failed "nobody names rank 2"
nobody_remains 10 head $(all_nodes)
step=$(newest_checkpoint runs/dies) && step=${step##*step-} && step=$((10#${step%.h5}))
run -H node1:1,node2:1,node3:1 train --agree async --resume --run runs/dies --steps $((step + 20))
expect_status 0; expect_out "done at step $((step + 20)) "

check "a worker that dies beside others on its host is named, and the others go on"
start -H node1:2,node2:2,node3:1 -m "--mca orte_enable_recovery 1" "${train[@]}" --steps 100000000 \
  --evaluate-every -1 --checkpoint-every -1 --agree async --run runs/goes  # in a validation it would end the job
wait_for 60 grep -q '^ *step ' out
pid=$(ranks_on node2 | tail -n 1)
"$hosts" exec node2 kill -9 "$pid"
wait_for 60 grep -q 'go on without it' err
lines=$(wc -l <out)
wait_for 60 eval "tail -n +$((lines + 1)) out | grep -q '^ *step '"
"$hosts" exec node1 kill -USR1 "$(ranks_on node1 | head -n 1)"
wait_for 60 grep -q '^stopped at step [0-9]* on request' out
"$hosts" signal TERM  # an mpirun that has let a rank die waits for it for ever; app/launch knows that
finish 60
expect_err "rank 3 \(host node2, pid $pid\) has died; 3 ranks go on without it"
nobody_remains 10 head $(all_nodes)
