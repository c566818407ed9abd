#!/usr/bin/env bash
# Weights of classes and samples, and the losses of numbers, equal numpy's in float64: a linear network makes the same
# steps at any number of ranks. Bad weights are refused.
# label: more
# seconds: 120
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(5)
n = 240
x = r.normal(size=(n, 6)).astype(np.float32)
y = np.minimum(r.integers(0, 12, n), 2).astype(np.int32)  # ten in twelve have class 2
x[np.arange(n), y] += 1
weight = r.choice([0, 0.5, 1, 4], n).astype(np.float32)
with h5py.File("classes.h5", "w") as f:
    f["x"], f["y"], f["w"] = x, y, weight
with h5py.File("labels.h5", "w") as f:
    f["x"], f["y"], f["w"] = x, np.stack([x[:, 0] > 1, x[:, 1] > 0], 1).astype(np.float32), weight.reshape(n, 1)
with h5py.File("numbers.h5", "w") as f:
    f["x"], f["w"] = x, weight.astype(np.float64)
    f["y"] = (3 * np.stack([x @ r.normal(size=6), r.standard_cauchy(n)], 1)).astype(np.float32)
for name, bad in ("negative", -1), ("nan", np.nan):
    spoilt = weight.copy()
    spoilt[17] = bad
    with h5py.File(f"{name}.h5", "w") as f:
        f["x"], f["y"], f["w"] = x, y, spoilt
with h5py.File("zero.h5", "w") as f:
    f["x"], f["y"], f["w"], f["wide"], f["short"] = x, y, 0 * weight, np.ones((n, 2)), np.ones(n - 1)
END
python3 data.py || exit 1

# compare.py FILE LOSS STEPS RATE CHECKPOINT [classes LIST|balanced] [samples]: whole-batch gradient descent from zeros.
cat >compare.py <<'END'
import h5py, numpy as np, sys
file, loss, steps, rate, checkpoint, *weights = sys.argv[1:]
with h5py.File(file) as f:
    x, y, own = f["x"][:].astype(float), f["y"][:], f["w"][:].astype(float).reshape(-1)
n = len(x)
w = own if "samples" in weights else np.ones(n)
if "classes" in weights:
    how = weights[weights.index("classes") + 1]
    counts = np.bincount(y)
    w = w * (n / (len(counts) * counts) if how == "balanced" else np.array([float(v) for v in how.split(",")]))[y]
w = (w / w.mean())[:, None]
outputs = 3 if loss == "softmax" else y.shape[1]
kernel, bias = np.zeros((x.shape[1], outputs)), np.zeros(outputs)
for _ in range(int(steps)):
    z = x @ kernel + bias
    if loss == "softmax":
        p = np.exp(z - z.max(1, keepdims=True))
        d = p / p.sum(1, keepdims=True) - np.eye(3)[y]
    elif loss == "binary":
        d = (1 / (1 + np.exp(-z)) - y) / outputs
    else:
        e = z - y
        d = {"squared": 2 * e, "absolute": np.sign(e), "huber": np.clip(e, -1, 1)}[loss] / outputs
    d = d * w / n
    kernel, bias = kernel - float(rate) * x.T @ d, bias - float(rate) * d.sum(0)
found = {}
h5py.File(checkpoint).visititems(lambda name, item: found.__setitem__(name, item[...]) if isinstance(item, h5py.Dataset) else None)
weight = next(v for k, v in found.items() if k.startswith("parameters/") and k.endswith("weight"))
shift = next(v for k, v in found.items() if k.startswith("parameters/") and k.endswith("bias"))
worst = max(np.abs(weight.reshape(kernel.shape) - kernel).max(), np.abs(shift.reshape(-1) - bias).max())
assert np.abs(kernel).max() > 0.05, "nothing was learnt"
assert worst < 2e-5, worst
END

network=(--model linear --weight-init "constant(0)" --bias-init "constant(0)" --schedule constant --normalize none --normalize-targets none
  --no-tensorboard --progress off)
options=("${network[@]}" --optimizer sgd --global-batch 240)
steps=(--steps 8 --learning-rate 0.5)
# made RANKS FILE OPTION...: leaves the last checkpoint in last.h5.
made() { train_to last.h5 "$1" --data "${@:2}"; }
trained() { made "$@" "${options[@]}" "${steps[@]}"; }

for n in 1 3; do
  check "classes, $n ranks: balanced, a list, samples, both"
  trained $n classes.h5
  expect python3 compare.py classes.h5 softmax 8 0.5 last.h5
  ! python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples 2>/dev/null || failed "the comparison sees no difference"
  trained $n classes.h5 --class-weight balanced
  expect_out '^weights of the loss \(mean 1 over the training samples; validation has none\): of classes 0 [0-9.]+, 1 [0-9.]+, 2 0\.[34]'
  expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 classes balanced
  trained $n classes.h5 --class-weight 3,0,0.5
  expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 classes 3,0,0.5
  trained $n classes.h5 --sample-weight w
  expect_out '^weights of the loss .*: of samples 0 to [0-9.]+$'
  expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples
  trained $n classes.h5 --sample-weight w --class-weight balanced
  expect_out '^weights of the loss .*: of samples 0 to [0-9.]+; times of classes 0 '
  expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced
  check "labels and numbers, $n ranks"
  trained $n labels.h5 --loss binary-cross-entropy --sample-weight w
  expect python3 compare.py labels.h5 binary 8 0.5 last.h5 samples
  for loss in "squared mean-squared-error 0.05" "absolute mean-absolute-error 0.5" "huber huber 0.5"; do
    read -r short name rate <<<"$loss"
    steps=(--steps 8 --learning-rate $rate)
    trained $n numbers.h5 --loss $name
    expect python3 compare.py numbers.h5 $short 8 $rate last.h5
    expect_out "^loss: $name$"
    trained $n numbers.h5 --loss $name --sample-weight w
    expect python3 compare.py numbers.h5 $short 8 $rate last.h5 samples
  done
  steps=(--steps 8 --learning-rate 0.5)
done

check "micro-steps, a quorum of all, servers of sums, a shared optimiser"
trained 2 classes.h5 --sample-weight w --class-weight balanced --accumulate 4
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced
trained 2 classes.h5 --sample-weight w --class-weight balanced --shard-optimizer --checkpoint-writers 1
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced
trained 2 classes.h5 --sample-weight w --class-weight balanced --agree quorum=2
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced
trained 3 classes.h5 --sample-weight w --class-weight balanced --agree async --staleness 0
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced

check "the same bytes at any number of ranks, and after a resume"
small=("${network[@]}" --global-batch 48 --steps 30 --checkpoint-every 10 --validation 0.2 --evaluate-every 10 --reproducible --sample-weight w
  --class-weight balanced --optimizer adam --learning-rate 0.01)
made 1 classes.h5 "${small[@]}"
cp last.h5 one.h5
for n in 2 3; do
  made $n classes.h5 "${small[@]}"
  cmp one.h5 last.h5 || failed "$n ranks"
done
rm runs/here/checkpoints/step-0000000030.h5 runs/here/checkpoints/step-0000000020.h5
succeeds -n 2 train --resume --run runs/here
expect_out 'weights of the loss .*: of samples .*; times of classes'
cmp one.h5 runs/here/checkpoints/step-0000000030.h5 || failed "the resumed run"
check "weights belong to their samples where a part is put aside: those of weight 0 teach nothing"
python3 - <<'END'
import h5py, numpy as np
x = np.linspace(-1, 1, 200, dtype=np.float32).reshape(-1, 1)
bad = np.random.default_rng(1).random(200) < 0.4
with h5py.File("line.h5", "w") as f:
    f["x"], f["y"], f["w"] = x, np.where(bad[:, None], 50 - 9 * x, 2 * x), np.where(bad, 0.0, 1.0)
END
succeeds -n 2 train --data line.h5 "${network[@]}" --optimizer sgd --learning-rate 0.5 --validation 0.3 --steps 400 --global-batch 200 --sample-weight w --run runs/line
python3 - "$(newest_checkpoint runs/line)" <<'END' || failed "other samples taught"
import h5py, sys
found = []
h5py.File(sys.argv[1]).visititems(lambda name, item: found.append(item[...]) if name.startswith("parameters/") and name.endswith("weight") else None)
assert abs(found[0].item() - 2) < 1e-3, found
END

check "a table: the column of weights is no input, and goes with its lines through the shards"
"$python" - <<'END'
import h5py
with h5py.File("classes.h5") as f, open("table.csv", "w") as t:
    t.write("a,b,c,w,d,e,g,label\n")
    for x, y, w in zip(f["x"], f["y"], f["w"]):
        cells = [repr(float(v)) for v in x]
        t.write(",".join(cells[:3] + [repr(float(w))] + cells[3:] + [str(y)]) + "\n")
END
must_run pack --x table.csv --label-column label --sample-weight w --shards 3 --out table
must_run -n 3 pack --x table.csv --label-column label --sample-weight w --shards 3 --out again
expect diff -r table again
trained 2 table --sample-weight weight --class-weight balanced
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5 samples classes balanced
trained 2 table
expect_out "table holds a weight for each sample, which is not used: --sample-weight weight does"
expect python3 compare.py classes.h5 softmax 8 0.5 last.h5
must_run pack --x table.csv --label-column label --sample-weight w --validation 0.2 --out parts
succeeds -n 2 train --data parts "${network[@]}" --global-batch 64 --sample-weight weight --run runs/parts
expect_out '^weights of the loss .*: of samples 0 to '
check "weights that are damaged are noticed, and nonsense in the column is"
cp -r table damaged
python3 - <<'END'
import glob, h5py
name = sorted(glob.glob("damaged/*.h5"))[1]
with h5py.File(name) as f: offset = f["weight"].id.get_offset()
with open(name, "r+b") as f:
    f.seek(offset + 9)
    byte = f.read(1)
    f.seek(offset + 9)
    f.write(bytes([byte[0] ^ 1]))
END
fails 1 "damaged/.*[.]h5: .*weight" -n 2 train --data damaged "${options[@]}" "${steps[@]}" --sample-weight weight --run runs/none
sed '5s/^\([^,]*,[^,]*,[^,]*,\)[^,]*/\1-3/' table.csv >bad.csv
fails 1 'bad.csv:5: the weight in column 3 \(w\) is "-3": a weight is a number of 0 or more' \
  pack --x bad.csv --label-column label --sample-weight w --out none
fails 2 "sample-weight.*label-column" pack --x table.csv --sample-weight w --out none
fails 2 "table.csv: has no weight column v; it has 8 columns" pack --x table.csv --label-column label --sample-weight v --out none

check "what does not go together is refused"
ranks=2
refused() {
  fails "$1" "$2" -n $ranks train "${options[@]}" "${steps[@]}" --run runs/none "${@:3}"
  ranks=1  # the first on two
  expect_no_file runs/none
}
refused 2 "--loss huber needs numbers to predict, and the data holds class labels" --data table --loss huber
refused 2 "--class-weight names 2 weights, and the data have 3 classes: give one for each class" --data classes.h5 --class-weight 1,2
refused 2 "--class-weight needs samples of which each has one class, and the data hold numbers to predict" --data numbers.h5 --class-weight balanced
refused 2 "--class-weight needs samples of which each has one class, and the data hold labels" --data labels.h5 --class-weight balanced
refused 2 "--class-weight: every training sample has the weight 0" --data classes.h5 --class-weight 0,0,0
refused 2 "--sample-weight: every training sample has the weight 0" --data zero.h5 --sample-weight w
ranks=2
refused 2 "classes.h5: has no data set v with the weights of its samples: --sample-weight names it" --data classes.h5 --sample-weight v
refused 1 "zero.h5: wide holds 2 numbers for each sample: a weight is one" --data zero.h5 --sample-weight wide
refused 1 "zero.h5: short holds 239 weights, and there are 240 samples" --data zero.h5 --sample-weight short
refused 1 "negative.h5: sample 17 has the weight -1: a weight is a number of 0 or more" --data negative.h5 --sample-weight w
refused 1 "nan.h5: sample 17 has the weight nan" --data nan.h5 --sample-weight w
