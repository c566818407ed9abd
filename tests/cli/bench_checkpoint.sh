#!/usr/bin/env bash
# The benchmark of checkpoints prints its table, writes its files and leaves nothing else behind.
# label: more
. "$(dirname "$0")/harness.sh"
mkdir disk
for way in "1 1" "2 1" "3 2" "3 3"; do
  read -r n writers <<<"$way"
  check "$n ranks, $writers of them write"
  succeeds -n $n bench checkpoint --checkpoint-writers $writers --state-mb 2 --optimizer adam --repeat 2 --folder disk --csv rows.csv --json rows.json
  expect_silence
  expect_out "^1\.9 MiB of state \(linear [0-9]+-[0-9]+, adam\) in disk; $n ranks?, $writers writers?; 2 of each, in turn"
  expect_out '^write and fsync( +[0-9.]+){4} +- +-$'
  expect_out '^checkpoint beside steps( +[0-9.]+){6}$'
  expect_out '^A step takes [0-9.]+ ms alone and [0-9.]+ ms beside a checkpoint'
  [ "$(wc -l <rows.csv)" = 3 ] || failed "rows of the CSV"
  python3 - $n <<'PYTHON' || failed "the JSON"
import json, sys
plain, ours = [json.loads(line) for line in open("rows.json")]
assert plain["way"] == "write and fsync" and plain["stall_seconds"] is None, plain
assert 1.9e6 < ours["bytes"] == plain["bytes"] < 2.1e6 and ours["world"] == int(sys.argv[1]), ours
for row in plain, ours:
    assert row["bench"] == "checkpoint" and 0 < row["seconds_min"] <= row["seconds"] <= row["seconds_max"], row
assert 0 < ours["stall_seconds"] <= ours["stall_seconds_max"] <= ours["seconds_max"], ours
PYTHON
  [ -z "$(ls -A disk)" ] || failed "left behind: $(ls disk)"
done

check "the state of a network"
succeeds -n 2 bench checkpoint --state-mb 0 --model gpt --layers 1 --width 16 --heads 2 --context 8 --outputs 20 --optimizer adamw --repeat 1 --folder disk
expect_out ' of state \(gpt .*, adamw\)'

check "a folder that cannot be made"
touch file
fails 1 'cannot create the folder file/' -n 2 bench checkpoint --state-mb 1 --repeat 1 --folder file
