#!/usr/bin/env bash
# --agree quorum and async over several hosts with slow links: the bytes of a gradient, the same bits, deaths.
# seconds: 700
# openmpi: under Hydra no rank survives another's death
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
  # Two workers, a gradient there and the weights back, 60 times; half of the parts are on the worker's own host.
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
# A rank or mpirun reports the death first; expect_err would leave out mpirun's message.
grep -Eq "rank 2 \(host node3, pid $pid\)|rank 2 with PID $pid on node node3 exited on signal 9" err || failed "nobody names rank 2"
nobody_remains 10 head $(all_nodes)
step=$(newest_checkpoint runs/dies) && step=${step##*step-} && step=$((10#${step%.h5}))
run -H node1:1,node2:1,node3:1 train --agree async --resume --run runs/dies --steps $((step + 20))
expect_status 0; expect_out "done at step $((step + 20)) "

# survivable SLOTS OPTIONS...: a job that survives dying workers.
survivable() {
  local slots=$1; shift
  rm -rf runs/goes
  start -H "$slots" -m "--mca orte_enable_recovery 1" train --global-batch 40 --steps 100000000 --optimizer adam --learning-rate 0.001 \
    --keep 1 --deadline 20 --device cpu --progress off --no-tensorboard --run runs/goes "$@"
}
# dies NODE N: kills its N-th rank, and sets $pid to that process.
dies() {
  pid=$(ranks_on "$1" | sed -n "$2p")
  "$hosts" exec "$1" kill -9 "$pid"
}
# goes_on RANK NODE LEFT: the job names the rank that was killed last, once, and writes another checkpoint, which is
# sound.
goes_on() {
  wait_for 60 grep -q "rank $1 (.*on without it" err
  local lines; lines=$(wc -l <out)
  wait_for 60 eval "tail -n +$((lines + 1)) out | grep -q '^checkpoint .*step-'"
  expect_err "rank $1 \(host $2, pid $pid\) has died; $3 ranks? go(es)? on without it"
  [ "$(grep -c "rank $1 .*has died" err)" = 1 ] || failed "said $(grep -c "rank $1 .*has died" err) times"
}
ends_on_request() {
  "$hosts" exec node1 kill -USR1 "$(ranks_on node1 | head -n 1)"
  wait_for 60 grep -q '^stopped at step [0-9]* on request' out
  "$hosts" signal TERM  # an mpirun that has let a rank die waits for it for ever; app/launch handles that
  finish 60
  expect "$lockstep" info runs/goes
  nobody_remains 10 head $(all_nodes)
}

check "a worker that dies beside others on its host is named, and the others go on"
survivable node1:2,node2:2,node3:1 --data data --hidden 100 --evaluate-every -1 --checkpoint-every 200 --agree async
wait_for 60 grep -q '^ *step ' out
dies node2 2
goes_on 3 node2 3
ends_on_request

must_run pack --format synthetic --samples 100000 --features 20 --classes 5 --out many/test
cp -r data/train many/train
for transport in auto ring mpi; do
  check "a worker of another host that dies in a validation is named, and the others finish it: $transport"
  survivable node1:1,node2:2,node3:1 --data many --hidden 400,400 --evaluate-every 20 --checkpoint-every 40 --report-every 10 --agree quorum=3 \
    --transport $transport
  wait_for 60 grep -q '^ *step *20/' out
  dies node2 2
  grep -q 'validation at step 20:' out && failed "it was killed too late for this"
  wait_for 60 grep -q 'validation at step 20:' out
  goes_on 2 node2 3
  ends_on_request
  [ "$(metric runs/goes validation samples | cut -d' ' -f2 | sort -u)" = 100000 ] || failed "samples: $(metric runs/goes validation samples)"
done

# Nearly all of the time goes into validations, checkpoints and the decisions before them.
always=(--data data --hidden 100 --evaluate-every 1 --checkpoint-every 1 --report-every 1)
slots=node1:2,node2:2,node3:1
for mode in "quorum=3" "quorum=3 --transport ring" "async --staleness 0"; do
  for wait in 0.1 0.35 0.6; do
    check "a worker of another host that dies in a checkpoint, or where all agree, is named, and the others finish: $mode, $wait s"
    survivable $slots "${always[@]}" --agree $mode
    wait_for 60 grep -q '^checkpoint .*step-' out
    sleep $wait
    dies node2 1
    left=4; case $mode in async*) left=3 ;; esac
    goes_on 2 node2 $left
    ends_on_request
  done
  step=$(newest_checkpoint runs/goes) && step=${step##*step-} && step=$((10#${step%.h5}))
  run -H $slots train --agree $mode --evaluate-every -1 --checkpoint-every -1 --resume --run runs/goes --steps $((step + 5))
  expect_status 0; expect_out "done at step $((step + 5)) "
done

check "all workers of a host die at once, then one of another host: both neighbours of some are dead"
survivable node1:1,node2:3,node3:2 "${always[@]}" --agree quorum=4
wait_for 60 grep -q '^checkpoint .*step-' out
mapfile -t pids < <(ranks_on node2)
"$hosts" exec node2 kill -9 "${pids[@]}"
for rank in 1 2 3; do
  pid=${pids[rank - 1]}
  goes_on $rank node2 "[345]"
done
dies node3 1
goes_on 4 node3 2
ends_on_request

check "a rank of another host that is stopped while a worker dies in a validation has not died"
survivable node1:1,node2:1,node3:2 "${always[@]}" --agree quorum=3 --transport ring
wait_for 60 grep -q '^checkpoint .*step-' out
late=$(ranks_on node3 | head -n 1)
"$hosts" exec node3 kill -STOP "$late"
dies node2 1
sleep 3
"$hosts" exec node3 kill -CONT "$late"
goes_on 1 node2 3
[ "$(ranks_on node3 | head -n 1)" = "$late" ] || failed "the stopped one has gone"
ends_on_request
