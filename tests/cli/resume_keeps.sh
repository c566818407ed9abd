#!/usr/bin/env bash
# A resume keeps the checkpoint's settings: every choice that a run made by itself at its start stays, however the
# command line is written.
# label: more
# seconds: 200
. "$(dirname "$0")/harness.sh"
"$python" - <<'PYTHON' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
x = r.normal(size=(400, 3)) * [300, 1, 1e5] + [1000, 0, 5e5]
y = x @ [3, 100, 0.001] + r.normal(size=400) * 10
with h5py.File("floats.h5", "w") as f:
    f["x"], f["y"] = x.astype("f4"), y.astype("f4")
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = r.integers(0, 256, (300, 12, 12, 3)).astype("u1"), r.integers(0, 4, 300).astype("i4")
with h5py.File("tokens.h5", "w") as f:
    f["tokens"] = r.integers(0, 20, 3000).astype("i4")
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
text = " ".join(words[i] for i in r.integers(0, 10, 1400))
open("corpus.txt", "w").write("\n".join(text[i:i + 60] for i in range(0, len(text), 60)) + "\n")
PYTHON
pack_house house
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.1
quiet="--progress off --no-tensorboard"

# in_parts RANKS STEP OPTION...: a run that is left alone, and one stopped at STEP and started again with the same
# command line, make the same bytes. Both use runs/here: its path is part of a checkpoint.
in_parts() {
  local n=$1 step=$2 last
  shift 2
  rm -rf runs/here
  succeeds -n "$n" train "$@" $quiet --run runs/here --resume
  expect_no_out 'continuing'
  last=$(newest_checkpoint runs/here)
  cp "$last" whole.h5
  metric runs/here validation loss >whole
  rm -rf runs/here
  run -n "$n" train "$@" $quiet --run runs/here --resume --stop-at "$step"
  expect_status 75
  succeeds -n "$n" train "$@" $quiet --run runs/here --resume
  expect_silence_but_ranks; expect_out "continuing after step $step \(epoch [0-9]+, sample [0-9]+\)$"
  cp runs/here/checkpoints/"$(basename "$last")" parts.h5
  same_state "$last"
  grep -v "^$step " whole >a; metric runs/here validation loss | grep -v "^$step " >b; expect_same a b
}
expect_silence_but_ranks() { [ -z "$(own_words | grep -v -e 'fewer ranks per host' -e 'no better than the .* of a constant')" ] || failed "stderr is not empty"; }
# Only one history has the stop's validation: all else is equal to the bit.
cat >same_state.py <<'PYTHON'
import h5py, sys
def state(file):
    found = {}
    def add(name, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f": found[name] = item[...].tobytes()
    with h5py.File(file, "r") as f:
        f.visititems(add)
        found.update({name: str(f["state"].attrs[name]) for name in f["state"].attrs if name in ("configuration", "data_description", "step", "epoch", "position")})
        for name in ("configuration", "data_description"):
            if name in f["state"]: found[name] = f["state"][name][...].tobytes()
    return found
a, b = map(state, sys.argv[1:])
assert a.keys() == b.keys(), a.keys() ^ b.keys()
assert "configuration" in a and "data_description" in a, sorted(a)
different = [name for name in a if a[name] != b[name]]
assert not different, different
PYTHON
newest_step() { basename "$(newest_checkpoint "$1")" .h5 | sed 's/step-0*//'; }
same_state() { python3 same_state.py whole.h5 parts.h5 >said 2>&1 || failed "another state: $(tail -n 1 said)"; }

check "a table, the command line repeated"
in_parts 1 100 --data house --epochs 10
expect grep -q '^normalize = per-feature$' runs/here/config.ini
expect grep -q '^normalize-targets = standard$' runs/here/config.ini
for n in $(some 1 2 3); do
  check "a table on $n ranks, epochs and batch by themselves"
  in_parts "$n" 70 --data house --validation house/validation
done
check "a table with a share for validation, auto said aloud"
in_parts 2 50 --data house/train --validation 0.25 --normalize auto --normalize-targets auto --epochs auto --hidden auto --loss auto
check "a table, a network of its own and a schedule that knows the end"
in_parts 2 60 --data house --hidden 24,8 --schedule cosine --epochs 12 --batch 20
check "numbers in HDF5"
in_parts 2 40 --data floats.h5 --validation 0.2 --epochs 6
check "images"
in_parts 2 20 --data images.h5 --validation 0.2 --model cnn --augment crop=8,flip --epochs 4 --batch 16 --learning-rate 0.01
check "text"
in_parts 2 8 --data text --model gpt --layers 1 --width 16 --heads 2 --context 12 --batch 8 --steps 20
check "tokens in a file made by others, whose dataset nobody has named"
in_parts 2 8 --data tokens.h5 --model gpt --layers 1 --width 16 --heads 2 --context 12 --batch 8 --steps 20
succeeds eval runs/here --data tokens.h5
check "text, whose state goes on from batch to batch"
in_parts 2 8 --data text --model lstm --layers 1 --hidden 8 --unroll 6 --batch 4 --epochs 2

check "local steps"
in_parts 4 40 --data house --agree local=5 --islands 2 --epochs 6 --batch 10
check "local steps, islands by themselves"
in_parts 2 40 --data house --agree local=5 --epochs 6 --batch 10
check "servers whose updates are sums of all"
in_parts 3 40 --data house --agree async --staleness 0 --epochs 6 --batch 10
for mode in quorum=2 async; do
  check "servers: $mode"
  rm -rf runs/here
  common=(--data house --agree $mode --epochs 6 --batch 10 --learning-rate 0.0005)
  run -n 3 train "${common[@]}" $quiet --run runs/here --stop-at 0.5
  expect_status 75
  succeeds -n 3 train "${common[@]}" $quiet --run runs/here --resume
  expect_out 'continuing after step [0-9]+ \(epoch [0-9]+, sample [0-9]+\)$'
  expect grep -q '^normalize-targets = standard$' runs/here/config.ini
  metric runs/here validation loss | awk '$2 > 0.5 { exit 1 }' || failed "the loss leaps: $(metric runs/here validation loss | tr '\n' ' ')"
done
check "reproducible, on fewer ranks than before"
reproducible=(--data house --reproducible --global-batch 20 --epochs 6)
rm -rf runs/here
must_run train "${reproducible[@]}" $quiet --run runs/here --checkpoint-every 50
cp "$(newest_checkpoint runs/here)" whole.h5
last=$(newest_checkpoint runs/here)
find runs/here/checkpoints -name 'step-*' ! -name step-0000000050.h5 -delete
succeeds -n 3 train "${reproducible[@]}" $quiet --run runs/here --checkpoint-every 50 --resume
expect_out 'continuing after step 50'
expect cmp whole.h5 "$last"

# The first global batch is for 2 ranks; a run of other ranks keeps its own, which the same command line derives from
# --batch.
cat >curve.py <<'PYTHON'
import json, sys
def records(run, kind):
    return [r for r in map(json.loads, open(run + "/metrics.jsonl")) if r["kind"] == kind]
whole, changed = ([(r["epoch"], r["learning_rate"]) for r in records(run, "train")] for run in sys.argv[1:3])
assert changed[-1][0] == 8, changed[-1]
validated = [r["epoch"] for r in records(sys.argv[2], "validation")]  # launches validate where they stop, too
assert {1, 2, 3, 4, 5, 6, 7, 8} <= set(validated), validated
# A step's rate is the one at its beginning: between those of the unbroken run's neighbouring steps.
whole.append((8.1, 0))
for epoch, rate in changed:
    near = [r for e, r in whole if abs(e - epoch) < 0.31]
    assert min(near) <= rate * (1 + 1e-9) and rate * (1 - 1e-9) <= max(near), (epoch, rate, near)
PYTHON
counted=(--data house --batch 20 --epochs 8 --schedule cosine --warmup-steps 15 --report-every 1 --checkpoint-every 10)
must_run -n 2 train "${counted[@]}" $quiet --run runs/two
for others in 1 4 "4 1" "1 3 2"; do
  check "epochs and schedule count samples: 2 ranks, then $others"
  rm -rf runs/others
  # shellcheck disable=SC2086  # words
  set -- $others
  run -n 2 train "${counted[@]}" $quiet --run runs/others --stop-at 20
  expect_status 75
  while [ $# -gt 1 ]; do
    run -n "$1" train "${counted[@]}" $quiet --run runs/others --resume --stop-at "$(($(newest_step runs/others) + 5))"
    expect_status 75; shift
  done
  succeeds -n "$1" train "${counted[@]}" $quiet --run runs/others --resume
  expect_out 'continuing after step [0-9]+ .*options that differ now: global-batch = [0-9]+$'
  python3 curve.py runs/two runs/others >said 2>&1 || failed "$(tail -n 1 said)"
  succeeds -n "$1" train "${counted[@]}" $quiet --run runs/others --resume
  expect_out 'nothing is left to do'
done

# Tries every way to write the second command line.
must_run train --data house --epochs 10 $quiet --run runs/whole
metric runs/whole validation loss | tail -n 1 >whole
rest_is_the_same() {
  expect_status 0; expect_out "continuing after step 100 \(epoch [0-9]+, sample [0-9]+\)$1$"
  metric "$2" validation loss | tail -n 1 >parts; expect_same whole parts
}
begin() { rm -rf "$1"; must_stop train --data house --epochs 10 --stop-at 100 $quiet --run "$1"; }
must_stop() { run "$@"; [ "$status" = 75 ] || failed "exit $status instead of 75"; }
check "the data by another name"
begin runs/r
run train --data "$PWD/house/train" --epochs 10 $quiet --resume --run runs/r
rest_is_the_same '' runs/r
check "without any option"
begin runs/r
run train --resume --run runs/r
rest_is_the_same '' runs/r
check "the data alone"
begin runs/r
run train house --resume --run runs/r
rest_is_the_same '' runs/r
check "from a file of options, which knows of no decision"
printf 'data = house\nepochs = 10\nnormalize = auto\nresume = auto\nrun = runs/r\nprogress = off\n' >own.ini
begin runs/r
run train --config own.ini
rest_is_the_same '' runs/r
check "from the run's own file"
begin runs/r
run train --config runs/r/config.ini --resume --run runs/r
rest_is_the_same '' runs/r
check "where the run's own file is lost"
begin runs/r
rm runs/r/config.ini
run train --data house --resume --run runs/r $quiet
rest_is_the_same '' runs/r
check "into a new run, with and without data and options"
begin runs/r
for more in "" "--data house" "--data house --epochs 10 --normalize auto"; do
  rm -rf runs/branch
  # shellcheck disable=SC2086  # words
  run train --resume runs/r/checkpoints/step-0000000100.h5 --run runs/branch $more $quiet
  rest_is_the_same '' runs/branch
done
check "data that have moved, of which a share is for validation"
must_stop train --data house/train --validation 0.25 --epochs 4 --stop-at 20 $quiet --run runs/share
cp -r house/train moved
succeeds train --data moved --resume --run runs/share
expect_out '^validation at step'; expect_no_out 'normalize|epochs ='

check "what is given now wins, and is said"
begin runs/r
succeeds train --data house --resume --run runs/r --normalize none --learning-rate 0.0001 --epochs 8 $quiet
expect_out 'options that differ now: epochs = 8, learning-rate = 0\.0001, normalize = affine\(1,0\)$'
expect_out '^done at step 128 '
check "what was given once stays"
rm -rf runs/r
must_stop train --data house --hidden 24 --optimizer momentum --learning-rate 0.01 --epochs 4 --stop-at 20 $quiet --run runs/r
succeeds train --data house --resume --run runs/r
expect_out 'continuing after step 20 \(epoch [0-9]+, sample [0-9]+\)$'
run info runs/r
expect_out '24'
check "a run that has no checkpoint yet is described anew"
mkdir -p runs/new && printf 'data = house\nhidden = 8\nepochs = 3\n' >runs/new/config.ini
succeeds train --data house --resume --run runs/new --steps 5 $quiet
expect_out 'done at step 5 '
! grep -q '^hidden = 8$' runs/new/config.ini || failed "the network is that of the attempt before"
