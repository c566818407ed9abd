#!/usr/bin/env bash
# A rank dies or stops: the others notice, name it, and leave no process behind.
# label: mpich
# more: 300
. "$(dirname "$0")/harness.sh"
pack_small data/train

# everybody_is_gone PID...: none of the ranks lives on (after a moment: the launcher kills them after the message).
everybody_is_gone() {
  local pid
  for pid in "$@"; do wait_for 10 eval "! kill -0 $pid" || kill -9 "$pid"; done
}

for transport in $(share 1 2 shared-memory ring mpi); do
  train=(-n 3 train --data data --optimizer sgd --hidden 16 --batch 20 --steps 100000000 --report-every 50 --checkpoint-every 100 --transport $transport)

  check "kill -9 of one rank, $transport"
  start "${train[@]}" --run runs/killed-$transport
  if wait_for 20 test -e runs/killed-$transport/checkpoints/latest; then
    mapfile -t pids < <(ranks)
    kill -9 "${pids[1]}"
    began=$SECONDS
    finish 20
    [ "$status" != 0 ] || failed "exit 0 though a rank was killed"
    [ $((SECONDS - began)) -le 10 ] || failed "$((SECONDS - began)) s until the end"
    expect grep -Eq "rank 1 .*(${pids[1]}|signal 9)" err
    everybody_is_gone "${pids[@]}"
  fi
  check "the checkpoints of the killed run are whole, $transport"
  succeeds info "$(newest_checkpoint runs/killed-$transport)"

  check "SIGSTOP of one rank, $transport"
  start "${train[@]}" --run runs/stopped-$transport --deadline 3
  if wait_for 20 grep -q '^ *step ' out; then
    mapfile -t pids < <(ranks)
    kill -STOP "${pids[1]}"
    began=$SECONDS
    finish 30
    [ $((SECONDS - began)) -le 12 ] || failed "$((SECONDS - began)) s until the end"
    expect_error 1 "rank 1.*${pids[1]}"
    everybody_is_gone "${pids[@]}"
  fi
done
