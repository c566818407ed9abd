#!/usr/bin/env bash
# Beside five busy processes for each core: a rank that is stopped or killed is named as soon as on a quiet machine, and
# sums take milliseconds, not a round of turns for each look.
# label: slow
# seconds: 900
# alone
. "$(dirname "$0")/harness.sh"
pack_small data/train

busy=()
end_load() { [ ${#busy[@]} = 0 ] || kill "${busy[@]}" 2>/dev/null; busy=(); }
trap 'end_load; end_of_script' EXIT
# Each in a session of its own, as those of other users: the kernel divides a core among sessions first.
for ((i = 0; i < 5 * $(nproc); i++)); do
  setsid sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &
  busy+=($!)
done

train=(-n 3 train --data data --optimizer sgd --hidden 16 --batch 20 --steps 100000000 --report-every 50 --checkpoint-every 100)
# ends_within PID SIGNAL SECONDS: sends it, and the job is to be over by then, by the clock.
ends_within() {
  local began=$SECONDS
  kill "-$2" "$1"
  finish 60
  [ $((SECONDS - began)) -le "$3" ] || failed "$((SECONDS - began)) s until the end"
}
for transport in shared-memory ring mpi; do
  for round in 1 2; do
    check "SIGSTOP of one rank, $transport, round $round"
    start "${train[@]}" --transport $transport --run runs/stopped-$transport-$round --deadline 3
    if wait_for 60 grep -q '^ *step ' out; then
      victim=$(rank 1)
      # The deadline, 2 s for those who speak later, and what mpirun takes to end its ranks.
      ends_within "$victim" STOP 12
      expect_error 1 "rank 1.*$victim"
    fi
  done
  check "kill -9 of one rank, $transport"
  start "${train[@]}" --transport $transport --run runs/killed-$transport
  if wait_for 60 grep -q '^ *step ' out; then
    victim=$(rank 1)
    ends_within "$victim" KILL 10
    [ "$status" != 0 ] || failed "exit 0 though a rank was killed"
    expect grep -Eq "rank 1 .*($victim|signal 9)" err
  fi
done

# The price of a yield here. Some kernels give away the turn of the whole session, until all others have had theirs. Sums of
# two ranks took one or two of those before waits went to sleep.
turn=$(setsid "$python" - <<'END'
import os, statistics, time
def one():
    start = time.monotonic()
    os.sched_yield()
    return time.monotonic() - start
print(1e6 * statistics.median(one() for i in range(100)))
END
)
check "two ranks sum in less than a round of turns"
succeeds -n 2 bench all-reduce --device cpu --algorithms ring --min 64 --max 64 --json sums.json
python3 - "$turn" <<'END' || failed "sums of two ranks wait for whole rounds of turns"
import json, sys
turn, took = float(sys.argv[1]), json.loads(open("sums.json").readline())["time_us"]
print(f"a yield takes {turn:.0f} us, a sum of two ranks {took:.0f} us")
assert turn < 5000 or took < turn / 2
END
