#!/usr/bin/env bash
# bench agree: trains the same under several modes of agreement and compares them.
# label: more
# alone
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
base="--data data --hidden 32 --batch 10 --optimizer sgd --seeds 1,2 --evaluate-every 20"

check "every mode trains on the same ranks, with the best of the same rates, for every seed"
run -n 4 bench agree $base --steps 60 --rates 0.0001,0.1 --modes "all; quorum=2 --servers 1; async; local=5; local=5 --islands 2 --agree-after 20" \
  --csv rows.csv --json rows.json --svg curves.svg
expect_status 0; expect_silence
expect_out '^mlp.*; 3 ranks that train, 30 samples per step$'
for mode in 'all' 'quorum=2 --servers 1' 'async' 'local=5' 'local=5 --islands 2 --agree-after 20'; do expect_out "^$mode +0\.1 +[0-9.]+ \([0-9.]+ to [0-9.]+\) "; done
expect grep -q 'local=5 --islands 2' curves.svg
expect python3 -c "import xml.dom.minidom; xml.dom.minidom.parse('curves.svg')"
python3 - <<'END' || failed "the rows are not as they should be"
import csv, json
rows = list(csv.DictReader(open("rows.csv")))
assert [json.loads(line)["loss"] for line in open("rows.json")] == [float(row["loss"]) for row in rows]
assert {row["learning_rate"] for row in rows} == {"0.0001", "0.1"}
for mode in {row["mode"] for row in rows}:
    chosen = [row for row in rows if row["mode"] == mode and row["chosen"] == "1"]
    assert {row["learning_rate"] for row in chosen} == {"0.1"}, mode
    assert {row["seed"] for row in chosen} == {"1", "2"}, mode
    for row in chosen:
        assert float(row["samples"]) == 30 * int(row["step"]) and float(row["seconds"]) > 0, row
    ends = [int(row["step"]) for row in chosen if row["seed"] == "1"]
    assert ends == sorted(ends) and ends[-1] == 60, ends
END

check "its trainings are those of train"
run -n 3 train --data data --hidden 32 --batch 10 --optimizer sgd --seed 2 --evaluate-every 20 --steps 60 --learning-rate 0.1 --run runs/all
expect_status 0
expect_same <(metric runs/all validation loss) \
  <(python3 -c "
import json
for line in open('rows.json'):
    row = json.loads(line)
    if row['mode'] == 'all' and row['seed'] == 2: print(row['step'], repr(row['loss']))")

check "nothing of the trainings stays behind"
[ -z "$(ls -d lockstep-bench-agree-* 2>/dev/null)" ] || failed "a folder is left"

check "a target: how long each mode takes to it, and never where it is not reached"
run -n 3 bench agree $base --steps 100 --target-metric 0.3 --modes "all; local=10" --rates 0.1
expect_status 0; expect_out 's to accuracy 0.3'; expect_out '^local=10 +0.1 +[0-9.]+ \('
run -n 2 bench agree $base --steps 20 --target-metric 1.0 --modes all --rates 0.001
expect_status 0; expect_out '^all +0.001 +never \(never to never\) +never'

check "a slow rank makes a step of all ranks as slow, and those of the others with servers not"
run -n 4 bench agree --data data --hidden 400,400 --batch 20 --optimizer sgd --seeds 1 --steps 60 --evaluate-every -1 --rates 0.01 \
  --modes "all; async" --slow-rank 1=0.1 --json slow.json
expect_status 0; expect_out 'rank 1 at 0.1 of its speed'
python3 - <<'END' || failed "async is no faster than all beside a slow rank"
import json
seconds = {row["mode"]: row["seconds"] for row in map(json.loads, open("slow.json"))}
assert seconds["async"] < 0.7 * seconds["all"], seconds
END

check "a rate at which a mode comes apart is not chosen"
run -n 2 bench agree $base --steps 40 --modes all --rates 1e30,0.1
expect_status 0; expect_out '^all +0\.1 '

check "contradictions are one sentence before anything starts"
refused() { run -n 2 bench agree --data data "${@:2}"; expect_error 2 "$1"; }
refused 'name the ways to agree in --modes' --agree async
refused 'name the seeds in --seeds' --seed 3
refused 'the benchmark decides --run itself' --run runs/x
refused '"sometimes" does not|is neither all nor local' --modes "all; sometimes"
refused '--modes names all twice' --modes "all; all"
refused '--modes has an empty one' --modes "all;; async"
refused 'the benchmark decides --seed' --modes "all --seed 3"
refused 'unknown option --islnds; did you mean --islands' --modes "local=5 --islnds 2"
refused 'is not RANK=SPEED' --slow-rank 1
refused 'is not RANK=SPEED' --slow-rank 1=2
refused '--slow-rank 1: 1 rank train|--slow-rank 1: ' --slow-rank 1=0.5 --modes "all; async"
refused 'has no number above 0' --rates 0.1,x
refused '--seeds' --seeds 0
refused 'give them files of their own' --csv a --json a
run -n 2 bench agree --modes all
expect_error 2 '--data'

check "a signal ends it in order, and nothing stays behind"
start -n 2 bench agree $base --steps 100000000 --modes "all" --rates 0.1
wait_for 30 eval 'ls lockstep-bench-agree-*/training-1/metrics.jsonl 2>/dev/null'
sleep 1
kill -TERM "$(rank 0)"
finish 30
expect_error 1 'asked to stop before everything was measured'
[ -z "$(ls -d lockstep-bench-agree-* 2>/dev/null)" ] || failed "a folder is left"

check "without validation data there is nothing to compare"
rm -rf data/test
run -n 2 bench agree $base --steps 20 --modes all --rates 0.1
expect_error 1 'nothing to compare'
