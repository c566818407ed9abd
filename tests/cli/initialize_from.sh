#!/usr/bin/env bash
# A run begins with the weights of another one.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
must_run pack --format synthetic --samples 200 --features 20 --classes 3 --out three
train=(train --data data --optimizer sgd --validation data/validation --batch 20 --progress off --no-tensorboard)
must_run "${train[@]}" --hidden 16,8 --steps 60 --evaluate-every 20 --checkpoint-every 20 --run runs/a

check "all weights are taken: the first validation is that of the other run's best"
succeeds -n 2 "${train[@]}" --hidden 16,8 --learning-rate 1e-30 --steps 1 --initialize-from runs/a --run runs/b
expect_silence
expect_out "^weights of runs/a/checkpoints/step-[0-9]+.h5 \(step [0-9]+\)$"
expect_out "^  dense_3/bias +5  the checkpoint's values$"
run eval runs/a --json a.json
run eval runs/b --json b.json
python3 - <<'END' || failed "the two evaluations"
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert a["loss"] == b["loss"] and a["accuracy"] == b["accuracy"], (a, b)
END

check "the averaged weights, where the other run validated with them"
must_run "${train[@]}" --hidden 16 --steps 40 --average-decay 0.9 --evaluate-average --run runs/average
succeeds -n 2 "${train[@]}" --hidden 16 --average-decay 0.9 --evaluate-average --learning-rate 1e-30 --steps 1 \
  --initialize-from runs/average --run runs/of-average
expect_out "^averaged weights of runs/average/checkpoints/step-0000000040.h5 \(step 40\)$"
expect_out "^  dense_2/bias +5  the checkpoint's averaged values$"
run eval runs/average --json a.json
for weights in --average --no-average; do
  run eval runs/of-average $weights --json b.json
  python3 - <<'END' || failed "the two evaluations, $weights"
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert abs(a["loss"] - b["loss"]) < 1e-6 and a["accuracy"] == b["accuracy"], (a, b)
END
done

check "a new last layer for other classes"
succeeds -n 2 train --data three --optimizer sgd --hidden 16,8 --batch 20 --steps 5 --progress off --initialize-from runs/a --reinitialize 'dense_3/*' --run runs/c
expect_out "^  dense_2/weight +16 x 8  the checkpoint's values$"
expect_out "^  dense_3/weight +8 x 3  new values, as asked for$"
check "a shape that differs"
fails 1 "dense_3/weight has shape \[8, 5\], this network wants \[8, 3\]; dense_3/bias .*: --reinitialize 'dense_3/\*' leaves that layer new" \
  -n 2 train --data three --optimizer sgd --hidden 16,8 --batch 20 --steps 5 --initialize-from runs/a --run runs/d
proposed=$(own_words | sed -n "s/.*--reinitialize '\([^']*\)'.*/\1/p")
succeeds -n 2 train --data three --optimizer sgd --hidden 16,8 --batch 20 --steps 5 --progress off --initialize-from runs/a --reinitialize "$proposed" --run runs/d

check "the network's options are the source's, unless they are given"
for more in "" "--hidden auto"; do
  # shellcheck disable=SC2086  # words
  succeeds -n 2 "${train[@]}" $more --steps 1 --initialize-from runs/a --run runs/own
  expect_silence
  expect_out "^  dense_2/weight +16 x 8  the checkpoint's values$"
  rm -rf runs/own
done
succeeds train --data three --steps 1 --batch 20 --progress off --initialize-from runs/a --reinitialize 'dense_3/*' --run runs/own
expect_out "^  dense_1/weight +20 x 16  the checkpoint's values$"; expect_out "^optimiser: adam"

check "--dry-run and check look at the weights"
looked=(--data data --validation data/validation --run runs/looked --initialize-from)
for how in "train --dry-run" check; do
  # shellcheck disable=SC2086  # words
  run -n 2 $how "${looked[@]}" nowhere
  expect_status 1; expect grep -q "nowhere: no such checkpoint" <(cat out err)
  # shellcheck disable=SC2086
  run -n 2 $how "${looked[@]}" runs/a --hidden 12,8
  expect_status 1; expect grep -q "dense_1/weight has shape \[20, 16\], this network wants \[20, 12\]" <(cat out err)
  # shellcheck disable=SC2086
  run -n 2 $how "${looked[@]}" runs/a --reinitialize 'dense_9/*'
  expect grep -q "no tensor is called dense_9/\*" <(cat out err)
  [ "$status" != 0 ] || failed "exit 0"
done
succeeds -n 2 train --dry-run "${looked[@]}" runs/a
expect_out "^  dense_2/weight +16 x 8  the checkpoint's values$"
expect_no_file runs/looked

check "inputs and targets are to mean what they did"
"$python" - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
def table(name, n, scale):
    x = r.normal(size=(n, 3)) * np.array([300, 1, 1e5]) * scale + [1000, 0, 5e5]
    y = x @ [3, 100, 0.001] + r.normal(size=n) * 10
    with h5py.File(name, "w") as f: f["x"], f["y"] = x.astype("f4"), y.astype("f4")
    with h5py.File("two-" + name, "w") as f: f["x"], f["y"] = x.astype("f4"), np.column_stack([y, 100 * y]).astype("f4")
table("house.h5", 500, 1)
table("narrow.h5", 300, 0.1)
images = r.integers(0, 256, (64, 8, 8)).astype("u1")
labels = r.integers(0, 3, 64).astype("i4")
for name, x in (("bytes.h5", images), ("ones.h5", (images / 255).astype("f4"))):
    with h5py.File(name, "w") as f: f["x"], f["y"] = x, labels
END
must_run train --data house.h5 --epochs 4 --progress off --run runs/house
run eval runs/house --data narrow.h5 --json a.json
succeeds train --data narrow.h5 --validation narrow.h5 --steps 1 --learning-rate 1e-30 --progress off --initialize-from runs/house --run runs/narrow
expect_out "^targets: 1 target to mean 0, deviation 1"
run eval runs/narrow --json b.json
python3 - <<'END' || failed "the two evaluations"
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert a["loss"] == b["loss"] and a["mean_absolute_error"] == b["mean_absolute_error"], (a, b)
END
check "but where others are asked for, or the last layer is new"
succeeds train --data narrow.h5 --steps 1 --normalize per-feature --progress off --initialize-from runs/house --run runs/others
succeeds train --data two-narrow.h5 --steps 1 --progress off --initialize-from runs/house --reinitialize 'dense_3/*' --run runs/two
expect_out "^targets: 2 targets to mean 0, deviation 1"
cat >means.py <<'END'
import h5py, json, sys
def description(file):
    with h5py.File(file) as f:
        state = f["state"]
        text = state.attrs["data_description"] if "data_description" in state.attrs else state["data_description"][...].tobytes()
    found = json.loads(text)
    return found["feature_scale"], found["target_scale"]
house, narrow, others, two = map(description, sys.argv[1:])
assert house == narrow, (house, narrow)
assert others[0] != house[0] and others[1] == house[1], others
assert two[0] == house[0] and two[1] != house[1], two
END
python3 means.py $(for run in house narrow others two; do newest_checkpoint runs/$run; done) >said 2>&1 || failed "$(tail -n 1 said)"
check "images whose bytes are numbers from 0 to 1 elsewhere"
must_run train --data ones.h5 --steps 2 --progress off --run runs/ones
fails 2 "bytes.h5 holds uint8 from 0 to 255, and the network was trained on float32 from 0 to 1" \
  -n 2 train --data bytes.h5 --steps 2 --progress off --initialize-from runs/ones --run runs/bytes
succeeds -n 2 train --data bytes.h5 --steps 2 --progress off --initialize-from runs/ones --normalize range --run runs/bytes
check "tensors that only one of the two has"
succeeds "${train[@]}" --hidden 16 --steps 1 --initialize-from runs/a --reinitialize 'dense_2/*' --run runs/e
expect_out "^  dense_3/bias +5  unused: this network has no such tensor$"
succeeds "${train[@]}" --hidden 16,8,8 --steps 1 --initialize-from runs/a --reinitialize 'dense_3/*' --run runs/f
expect_out "^  dense_4/bias +5  new values: the checkpoint has none$"
check "nothing fits"
fails 1 "has no tensor that this network wants" "${train[@]}" --hidden 16,8 --steps 1 --initialize-from runs/a --reinitialize '*' --run runs/g
check "a pattern that means nothing"
fails 2 "--reinitialize: no tensor is called dense_9/\*; there are dense_1/bias, dense_1/weight" \
  -n 2 "${train[@]}" --hidden 16,8 --steps 1 --initialize-from runs/a --reinitialize 'dense_9/*' --run runs/g
check "what is not there"
fails 1 "nowhere: no such checkpoint" -n 2 "${train[@]}" --steps 1 --initialize-from nowhere --run runs/g
fails 2 "reinitialize" "${train[@]}" --steps 1 --reinitialize 'dense_1/*' --run runs/g

check "a run that goes on does so with its own weights, with the same command line"
succeeds "${train[@]}" --hidden 16,8 --steps 10 --initialize-from runs/a --resume --run runs/h
expect_out "^weights of runs/a/"
succeeds "${train[@]}" --hidden 16,8 --steps 20 --initialize-from runs/a --resume --run runs/h
expect_no_out "^weights of"; expect_out "continuing after step 10"
