#!/usr/bin/env bash
# Data that change during a run end it alike on every rank; it names the file and writes no checkpoint of weights that
# have seen other data than it began with.
# label: more
# seconds: 600
. "$(dirname "$0")/harness.sh"
pack_small good
train=(train --data data --optimizer sgd --model mlp --hidden 8 --epochs 1000000 --report-every 1 --run runs/r)
under_way() { [ -n "$(newest_checkpoint runs/r)" ] && [ "$(grep -c '"train"' runs/r/metrics.jsonl)" -gt 20 ]; }
# begin RANKS [OPTION...]: epochs of 10 steps and a checkpoint every second one, unless options say otherwise.
begin() {
  rm -rf data runs; cp -r good data
  local ranks=$1
  shift
  [ $# -gt 0 ] || set -- --global-batch 60 --checkpoint-every 20
  start -n "$ranks" "${train[@]}" "$@"
  wait_for 60 under_way
}
overwrite() { dd if=/dev/zero of="$1" bs=13 seek=600 count=1 conv=notrunc status=none; }  # within the samples
# noticed REGEX: judges the end after the change. One checkpoint may have been on its way to the disk then, and one
# behind it.
noticed() {
  touch changed
  finish 60
  expect_error 1 "$1"
  [ "$(find runs/r/checkpoints -name 'step-*.h5' -newer changed | wc -l)" -le 2 ] || failed "checkpoints follow the change"
  succeeds info runs/r
}
for n in 1 3; do
  check "a shard that is overwritten in place, $n ranks"
  begin $n; overwrite data/shard-00001.h5
  noticed 'shard-00001\.h5: has changed since the run opened it: it was written to.*--resume'
  check "a shard that is swapped for another, $n ranks"
  begin $n; cp data/shard-00000.h5 other; mv other data/shard-00002.h5
  noticed 'shard-00002\.h5: has changed since the run opened it: another file has taken its place'
  check "a shard that is cut short, $n ranks"
  begin $n; truncate -s -100 data/shard-00001.h5
  noticed 'shard-00001\.h5'
  check "a shard that is overwritten and given its old time back, $n ranks"
  begin $n; touch -r data/shard-00001.h5 time
  overwrite data/shard-00001.h5; touch -r time data/shard-00001.h5
  noticed 'shard-00001\.h5: (. is damaged|has changed)'
done
check "the next checkpoint notices, in the middle of a long epoch"
begin 2 --global-batch 1 --checkpoint-every 5; overwrite data/shard-00001.h5
noticed 'shard-00001\.h5: has changed'
check "validation data that change are noticed"
rm -rf validation; cp -r good validation
begin 2 --global-batch 60 --checkpoint-every 20 --validation validation; overwrite validation/shard-00000.h5
noticed 'validation/shard-00000\.h5'

check "other permissions and a link more are no change"
begin 2
chmod 600 data/shard-00001.h5; ln data/shard-00000.h5 link
lines=$(grep -c '"train"' runs/r/metrics.jsonl)
more() { [ "$(grep -c '"train"' runs/r/metrics.jsonl)" -gt $((lines + 50)) ]; }
wait_for 60 more
kill -TERM "$(rank 0)"
finish 60
expect_status 75
check "the run goes on from before the change when the data are back"
begin 2; overwrite data/shard-00001.h5
noticed 'shard-00001\.h5'
cp good/shard-00001.h5 data/shard-00001.h5
last=$(newest_checkpoint runs/r)
run -n 2 "${train[@]}" --global-batch 60 --checkpoint-every 20 --resume --time-limit 10
expect_status 75
expect test "$(newest_checkpoint runs/r)" '!=' "$last"
