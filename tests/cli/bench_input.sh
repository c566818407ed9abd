#!/usr/bin/env bash
# The benchmark of input prints its table, writes its files and reads what training reads.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data
options=(--data data --batch 32 --steps 30 --repeat 2)

for n in 1 2 3; do
  check "$n ranks"
  succeeds -n $n bench input "${options[@]}" --compute-ms 0.1 --csv rows.$n.csv --json rows.$n.json
  expect_silence
  expect_out "600 samples in 3 files.*$n ranks?, global batches of $((32 * n)); 2 parts of 30 steps"
  expect_out '^page cache on '
  expect_out '^raw reads +[0-9,]+ +[0-9.]+ '; expect_out '^training order +[0-9,]+ '
  expect_out '^training order \+ 0\.1 ms a batch +[0-9,]+ '
  expect_out 'of raw reads.*what limits it is'; expect_out 'A job waits for input that computes less than [0-9.e+-]+ ms a batch'
  expect_out 'ranks wait [0-9.]+ % of the time'
  [ "$(wc -l <rows.$n.csv)" = 4 ] || failed "rows of the CSV"
  python3 - rows.$n.json $n <<'PYTHON' || failed "the JSON"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
ranks = int(sys.argv[2])
assert len(rows) == 3
# 600 samples: 30 steps make some whole epochs and a part of a last one.
batch = 32 * ranks
per_epoch = -(-600 // batch)
samples = 600 * (30 // per_epoch) + batch * (30 % per_epoch)
for row in rows:
    assert row["bench"] == "input" and row["world"] == ranks and row["samples"] == samples, row
    assert 0 < row["seconds_min"] <= row["seconds"] <= row["seconds_max"], row
    assert row["stall_share"] is None if row["way"] == "raw reads" else 0 <= row["stall_share"] <= 1, row
PYTHON
done

check "cold"
succeeds -n 2 bench input --data data --batch 32 --repeat 1 --cold
expect_out '2 ranks, global batches of 64; 1 part of 10 steps'  # an epoch rather than 256 MiB
expect_out 'page cache on .*when asked to forget|what the page cache holds is not known'

check "tokens, in streams"
seq 1 3000 >text
must_run pack --x text --format text --out corpus
succeeds -n 2 bench input --data corpus --model lstm --unroll 5 --batch 4 --steps 20 --repeat 1
expect_out '^training order +[0-9,]+ '

check "usage"
fails 2 "--data is missing" bench input
run bench input --data data --model gpt
expect_status 1; expect_err 'token'
check "data that is not there, and data that goes away"
fails 1 "nowhere" -n 2 bench input --data nowhere
start -n 2 bench input --data data --batch 32 --steps 100000 --repeat 1000
wait_for 30 grep -q 'page cache' out
sleep 0.2
truncate -s 4000 data/shard-00001.h5
finish 60
expect_status 1; expect_err "data/shard-00001.h5.*has become shorter"  # a line for each rank that saw it
check "a file that cannot be written"
fails 1 "nowhere/rows.csv" -n 2 bench input "${options[@]}" --csv nowhere/rows.csv
expect_no_out 'page cache'
