#!/usr/bin/env bash
# When a file system stalls nobody waits for ever, the message names the file, and a stall that ends in time ends
# nothing.
# label: more
# seconds: 600
# long: 900
. "$(dirname "$0")/harness.sh"
pack_small data/train
${CC:-cc} -shared -fPIC -O1 -o stalling_files.so "$tree/tests/support/stalling_files.c" -ldl || exit 1
# Sanitizers must be loaded first unless told otherwise.
export STALLED_FILES=$work/control ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:report_thread_leaks=0"  # a thread stuck in a file cannot be joined
script preloaded "LD_PRELOAD=$work/stalling_files.so exec \"\$@\""

# Deadlines in seconds: a healthy step may take two, beside other tests or with sanitizers.
deadline=6 io_deadline=9
limits="--deadline $deadline --io-deadline $io_deadline"

stall() { echo "$1 $2" >control.new && mv control.new control; }  # RANK (-1: all) TEXT
come_back() { rm -f control; }
# Later options on a command line do not win: every case gives its own deadlines.
train=(-w ./preloaded train --data data --optimizer sgd --hidden 16 --batch 20 --steps 100000000 --report-every 50 --progress off)
# begin NAME ARGUMENTS...: trains until the first line of a step.
begin() {
  come_back
  name=$1
  shift
  start "$@" --run "runs/$name"
  wait_for 30 grep -q '^ *step ' out
}
# stalled_out TEXT [all]: the job ends by its I/O deadline with one message and leaves no process behind. If all files
# stall, a second rank may report just before the launcher ends the job: each of them then reports once.
stalled_out() {
  mapfile -t pids < <(ranks)
  finish 40
  local pid text="$1 has not come back for [0-9]+ s: its file system stalls"
  if [ "${2:-}" = all ]; then
    for pid in 0 1; do own_words | grep "error on rank $pid " >"rank-$pid"; done
    own_words | awk '/error on rank [01] / && heard++ { next } { print }' >heard
    for pid in 0 1; do [ "$(grep -c . "rank-$pid")" -le 1 ] || failed "rank $pid speaks twice"; done
    ! grep -Evq "$text" rank-0 rank-1 || failed "a rank gives another cause"
    cp heard err
  fi
  expect_error 1 "$text"
  for pid in "${pids[@]}"; do wait_for 10 eval "! kill -0 $pid" || kill -9 "$pid"; done
}

# comes_back_in_time: after a stall longer than the peers' deadline the job goes on, until it is told to stop.
comes_back_in_time() {
  sleep $((deadline + 3))
  come_back
  lines=$(wc -l <out)
  wait_for 30 eval "[ \$(wc -l <out) -gt $((lines + 2)) ]"
  kill -USR1 "$(rank 0)"
  finish 30
  expect_status 75
}

for transport in $(some 1 ring shared-memory); do
  ranks=(-n 2 "${train[@]}" --transport $transport)
  check "every rank's data stalls, $transport"
  begin all-$transport "${ranks[@]}" $limits
  stall -1 data/train/
  stalled_out 'error on rank [01] \(.*\): reading [^ ]*data/train/[^ ]*\.h5' all

  check "one rank's data stalls: it says so itself, after its peers' deadline, $transport"
  begin one-$transport "${ranks[@]}" $limits
  stall 1 data/train/
  stalled_out 'error on rank 1 \(.*\): reading [^ ]*data/train/[^ ]*\.h5'

  check "a stall that ends before the I/O deadline ends nothing, and is told, $transport"
  begin back-$transport "${ranks[@]}" --deadline $deadline --io-deadline 50
  stall 1 data/train/
  comes_back_in_time
  expect_err 'warning: rank 1 \(host .*\) is waiting for input \(.*data/train/.*\.h5, [0-9]+ s\); the job ends after 50 s of it'
  expect_err 'rank 1 \(host .*\) goes on, after a wait of [0-9]+ s'
  [ "$(own_words | wc -l)" = 2 ] || failed "more words than these"

  check "rank 0's log stalls and comes back, $transport"
  begin log-$transport "${ranks[@]}" --deadline $deadline --io-deadline 100
  stall 0 log.txt
  comes_back_in_time
  expect_silence
done

for file in $(some 2 metrics.jsonl owner log.txt events.out); do
  check "$file stalls for longer than the I/O deadline"
  begin "write-$file" -n 2 "${train[@]}" $limits
  stall 0 "/$file"
  stalled_out "error on rank 0 \\(.*\\): (reading|writing) [^ ]*/$file[^ ]*"
done

check "a checkpoint that cannot be written, beside the training"
begin checkpoint -n 2 "${train[@]}" $limits --checkpoint-every 20
stall 0 /checkpoints/.step-
stalled_out 'error on rank 0 \(.*\): writing [^ ]*/checkpoints'
come_back

check "a checkpoint that cannot be read: resume"
stall 0 /checkpoints/step-
start -n 2 "${train[@]}" --run runs/back-ring --resume $limits
stalled_out 'error on rank 0 \(.*\): reading [^ ]*runs/back-ring'

check "a checkpoint that cannot be read: eval"
come_back
newest=$(newest_checkpoint runs/back-ring)
stall 0 /checkpoints/step-
start -n 2 -w ./preloaded eval "$newest" --data data $limits
stalled_out 'error on rank 0 \(.*\): reading [^ ]*step-[^ ]*'

check "data that stall at the start"
stall -1 data/train/
start -n 2 "${train[@]}" --run runs/start $limits
stalled_out 'reading [^ ]*data/train[^ ]*' all

check "the list of checkpoints: resume"
come_back
stall 0 runs/back-ring/checkpoints
start -n 2 "${train[@]}" --run runs/back-ring --resume $limits
stalled_out 'error on rank 0 \(.*\): reading [^ ]*runs/back-ring/checkpoints'

# stalls_out TEXT ARGUMENTS...: runs a command that does not train, while TEXT stalls on rank 1, or on rank 0 if that
# writes.
stalls_out() {
  local text=$1
  shift
  check "$1 ${2#-}: a file that stalls"
  start -n 2 -w ./preloaded "$@" --deadline $deadline --io-deadline $io_deadline
  stalled_out "error on rank [01] \\(.*\\): (reading|writing) [^ ]*$text[^ ]*"
}
come_back
stall 1 data/train/
stalls_out data/train check --data data --hidden 16 --batch 20
if in_long_form; then
  stalls_out data/train bench input --data data --hidden 16 --batch 20
  stalls_out data/train bench step --input data --data data --hidden 16 --batch 20
fi
come_back
stall 0 lockstep-bench-checkpoint
stalls_out lockstep-bench-checkpoint bench checkpoint --state-mb 1 --folder scratch
come_back
stall 0 table.csv
stalls_out table.csv bench all-reduce --max 4 --repeat 1 --csv table.csv

# Reading a file opens it twice: once by HDF5, and once for its values. At the start a rank opens a third of the shards,
# then a third to count labels (three of them are the same), then the shards that it reads. Each opening makes three of
# the system's: the format, the library, the descriptor of the values.
check "each shard is opened by one rank at the start, and by the others when they read it"
come_back
must_run pack --format synthetic --samples 600 --features 20 --classes 5 --shards 30 --out data/many
OPENED_FILES=$work/opened run -n 3 -w ./preloaded train --data data/many --optimizer sgd --hidden 16 --batch 20 \
  --normalize none --dry-run
expect_status 0
for rank in 1 2; do
  opens=$(grep -c "^$rank .*data/many/shard" opened)
  [ "$opens" = 51 ] || failed "rank $rank opened shards $opens times, not three times each of 17"
done
rm opened
OPENED_FILES=$work/opened run -n 3 -w ./preloaded train --data data/many --optimizer sgd --hidden 16 --batch 2 --steps 1 \
  --normalize none --no-shuffle --run runs/many
expect_status 0
[ "$(grep "^2 .*data/many/shard" opened | sort -u | wc -l)" -le 18 ] || failed "rank 2 opened what it does not read"

check "the network of a run that goes on is read under a deadline, before the ranks are connected"
come_back
printf '%s\n' 'name: own' 'network: [dense: 8, dense: $outputs]' >own.yaml
must_run train --data data --model own.yaml --steps 2 --progress off --no-tensorboard --run runs/own
stall 1 runs/own/checkpoints/
start -n 2 -w ./preloaded train --resume --run runs/own --steps 4 $limits
stalled_out 'error on rank 1 \(.*\): reading [^ ]*checkpoints/step-[0-9]*\.h5'
come_back

check "a world of one"
come_back
begin alone "${train[@]}" --io-deadline $io_deadline
stall -1 data/train/
finish 40
expect_error 1 'reading [^ ]*data/train/[^ ]*\.h5 has not come back for [0-9]+ s: its file system stalls'
come_back
