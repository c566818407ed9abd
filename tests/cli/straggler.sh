#!/usr/bin/env bash
# One of four ranks at a fifth of the speed (stopped four fifths of the time): what --agree quorum and async are for.
# label: slow
# seconds: 1200
# alone: it judges how long something takes
. "$(dirname "$0")/harness.sh"
rounds=${ROUNDS:-3}
pack() { must_run pack --format synthetic --samples 6000 --features 50 --classes 10 --noise 6 --out "$@"; }
pack data/train
pack data/test --first 6000
train=(train --data data --hidden 256,128 --batch 32 --optimizer adam --progress off --no-tensorboard --epochs 200)
train+=(--evaluate-every 40 --target-metric 0.93 --checkpoint-every -1)

# timed NAME STOPPED OPTIONS...: a line "NAME STOPPED SECONDS" in ./times: until the target, by the run's own clock.
timed() {
  local name=$1 stopped=$2 pid bursts=""
  shift 2
  rm -rf runs
  start -n 4 "${train[@]}" --run runs/a "$@"
  if [ "$stopped" = stopped ]; then
    wait_for 60 grep -q '^work: ' out
    pid=$(rank 3)
    (while kill -STOP "$pid" 2>/dev/null; do sleep 0.08; kill -CONT "$pid" 2>/dev/null; sleep 0.02; done) &
    bursts=$!
  fi
  finish 300
  [ -z "$bursts" ] || kill "$bursts" 2>/dev/null
  expect_status 0; expect_out '^target reached'
  echo "$name $stopped $(sed -nE 's/^target reached at step ([0-9]+) after ([0-9.]+) s.*/\2 \1/p' out)" >>times
}
median() { awk -v n="$1" -v s="$2" '$1 == n && $2 == s { print $3 }' times | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

check "the target is reached, with a slow rank and without"
for ((round = 0; round < rounds; ++round)); do
  for stopped in no stopped; do
    timed all $stopped --learning-rate 0.001
    timed quorum=3 $stopped --learning-rate 0.001 --agree quorum=3
    timed async $stopped --learning-rate 0.0005 --agree async --servers shared
  done
done
cp times "${TIMES:-/dev/null}"

check "without the gradients of a rank that is late the target comes in less than half of the time"
for mode in quorum=3 async; do
  awk -v all="$(median all stopped)" -v its="$(median $mode stopped)" 'BEGIN { exit !(its > 0 && its < 0.5 * all) }' ||
    failed "$mode: $(median $mode stopped) s, all: $(median all stopped) s"
done
