#!/usr/bin/env bash
# A rank, a link or a whole host fails in the middle of training: the job ends within the deadline, one line of ours
# names the rank, its host and the operation, and nothing remains on any host.
# seconds: 600
. "$(dirname "$0")/harness.sh"
pack_small data/train
nodes 3

# mpirun probes its daemons (slurm/README.md).
export OMPI_MCA_oob_tcp_keepalive_time=6 OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3
train=(train --data data --optimizer sgd --hidden 64 --batch 20 --steps 100000000 --report-every 20 --checkpoint-every 1000000 --device cpu)
deadline=5
slots=node1:1,node2:1,node3:1

# train_until_it_runs RUN: sets $pid to its rank on node2.
train_until_it_runs() {
  rm -f out err  # left by the case before
  start -H $slots "${train[@]}" --deadline $deadline --run "runs/$1"
  wait_for 60 grep -q '^ *step ' out || { "$hosts" signal KILL; finish 10; return 1; }
  wait_for 20 eval '[ -n "$(ranks_on node2)" ]' || return 1
  pid=$(ranks_on node2 | tail -n 1)
}
# ends_within SECONDS REGEX: without success, with one line of ours.
ends_within() {
  local began=$SECONDS
  finish $(($1 + 30))
  [ $((SECONDS - began)) -le "$1" ] || failed "$((SECONDS - began)) s until the end"
  expect_error "${3:-1}" "$2"
}
during="step [0-9]+: "

# Several rounds, because MPI's state at the time differs.
for round in 1 2 3; do
check "a rank is killed, $round"
if train_until_it_runs killed-$round; then
  "$hosts" exec node2 kill -KILL "$pid"
  began=$SECONDS
  finish 30
  [ $((SECONDS - began)) -le 8 ] || failed "$((SECONDS - began)) s until the end"
  [ "$status" != 0 ] || failed "exit 0 though a rank was killed"
  expect_err "rank 1 \\(host node2, pid $pid\\) has died; its peers are in $during"
  [ "$(grep -c 'Ending the job' err)" = 1 ] || failed "not one line of ours"
  nobody_remains 10 head $(all_nodes)
fi
done

check "a rank is stopped"
if train_until_it_runs stopped; then
  "$hosts" exec node2 kill -STOP "$pid"
  ends_within 15 "rank 1 \(host node2, pid $pid\) has not arrived at an all-reduce for .* $during"
  nobody_remains 10 head $(all_nodes)
fi

check "the first rank is stopped"
if train_until_it_runs stopped-first; then
  pid=$(ranks_on node1)
  "$hosts" exec node1 kill -STOP "$pid"
  ends_within 15 "rank 0 \(host node1, pid $pid\) has not arrived at an all-reduce for .* $during"
  nobody_remains 10 head $(all_nodes)
fi

check "the data network's cable of a host is cut"
if train_until_it_runs cut; then
  "$hosts" cut node2 data
  ends_within 15 "rank 1 \(host node2, pid $pid\) has not arrived at an all-reduce for .* $during"
  nobody_remains 10 head $(all_nodes)
  "$hosts" heal node2 data
fi

check "packets between two of three hosts are lost"
if train_until_it_runs parted; then
  "$hosts" part node2 node3
  ends_within 15 "rank [12] \(host node[23], pid"
  nobody_remains 10 head $(all_nodes)
  "$hosts" join node2 node3
fi

# mpirun, too, has to give up an unreachable host before the deadline: if it is told to end a job while it still waits
# for such a host it waits for ever. It ends the job as soon as it gives up (205); our warning names the host.
given_up() {
  finish 40
  if [ "$(mpi_of "$lockstep")" = mpich ]; then  # Hydra does not probe: the deadline ends the job
    expect_status 1
    expect_err "rank 1 \\(host node2, pid $pid\\) has not arrived at an all-reduce for 30 s"
    return
  fi
  expect_status 205
  expect_err "^warning: rank 0 \\(host node1, .* no sign of life from the host of rank 1 \\(host node2, pid $pid\\)"
  expect grep -q "Remote daemon: .* on node node2" err
}
deadline=30

check "a host is cut off altogether"
if train_until_it_runs off; then
  "$hosts" cut node2 all
  given_up
  nobody_remains 10 head node1 node3
  nobody_remains 60 node2
  "$hosts" heal node2 all
fi

check "after all that, a job runs to its end"
run -H $slots train --data data --optimizer sgd --hidden 64 --batch 20 --steps 30 --device cpu --run runs/after
expect_status 0

check "a host loses its power"
if train_until_it_runs power; then
  "$hosts" crash node2
  given_up
  nobody_remains 10 head node1 node3
fi
