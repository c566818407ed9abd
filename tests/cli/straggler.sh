#!/usr/bin/env bash
# With one of four ranks at a fifth of the speed (stopped four fifths of the time), --agree quorum and async reach the
# target sooner than all.
# label: slow
# seconds: 1200
. "$(dirname "$0")/harness.sh"
rounds=${ROUNDS:-3}
raw=/usr/share/datasets/fashion-mnist
[ -f $raw/train-images-idx3-ubyte.gz ] || skip_all "Fashion-MNIST is not here (Debian's package dataset-fashion-mnist)"
must_run pack --x $raw/train-images-idx3-ubyte.gz --y $raw/train-labels-idx1-ubyte.gz --out data/train
must_run pack --x $raw/t10k-images-idx3-ubyte.gz --y $raw/t10k-labels-idx1-ubyte.gz --out data/test
train=(train --data data --hidden 512,512 --batch 32 --optimizer adam --progress off --no-tensorboard --epochs 20)
train+=(--evaluate-every 100 --target-metric 0.86 --checkpoint-every -1)

# timed NAME RANKS STOPPED OPTIONS...: appends a line "NAME STOPPED SECONDS STEP" to ./times when the run reaches the
# target, by its own clock. A server on a slow rank would delay everybody, so async's has a fifth rank of its own.
timed() {
  local name=$1 ranks=$2 stopped=$3 pid bursts=""
  shift 3
  rm -rf runs
  start -n "$ranks" "${train[@]}" --run runs/a "$@"
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
    timed all 4 $stopped --learning-rate 0.001
    timed quorum=3 4 $stopped --learning-rate 0.001 --agree quorum=3
    timed async 5 $stopped --learning-rate 0.0005 --agree async
  done
done
cp times "${TIMES:-/dev/null}"

check "without the gradients of a rank that is late the target comes in less than half of the time"
for mode in quorum=3 async; do
  awk -v all="$(median all stopped)" -v its="$(median $mode stopped)" 'BEGIN { exit !(its > 0 && its < 0.5 * all) }' ||
    failed "$mode: $(median $mode stopped) s, all: $(median all stopped) s"
done
