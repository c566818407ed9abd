#!/usr/bin/env bash
# Targets that are probabilities of classes: the losses of the steps are those of float64 at any number of ranks and
# micro-steps; validation, predictions and the constant agree with them; targets that are no probabilities are refused.
# label: more
# seconds: 120
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(3)
w = 2 * r.normal(size=(6, 4))
def made(name, samples, change=None):
    x = r.normal(size=(samples, 6)).astype("f4")
    p = np.exp(x @ w)
    p /= p.sum(1, keepdims=True)
    p[::7] = np.eye(4)[p[::7].argmax(1)]  # some are certain
    y = p.astype("f4")
    if change: change(y)
    with h5py.File(name, "w") as f:
        f["x"], f["y"] = x, y
made("train.h5", 60)
made("test.h5", 37)
def more(y): y[41] *= 1.7
def negative(y): y[17] = [1.25, -0.25, 0, 0]
made("more.h5", 60, more)
made("negative.h5", 60, negative)
made("rounded.h5", 60, lambda y: np.round(y, 4, out=y))
with h5py.File("train.h5") as f, h5py.File("classes.h5", "w") as c, h5py.File("one.h5", "w") as o:
    c["x"], c["y"] = f["x"][:], f["y"][:].argmax(1)
    o["x"], o["y"] = f["x"][:], f["y"][:, :1]
END
python3 data.py || exit 1
printf '%s\n' 'name: plain' 'network:' '- dense: {units: $outputs, init: zeros, name: head}' >plain.yaml
must_run pack --x train.h5 --regression --shards 3 --out packed
must_run pack --x classes.h5 --out packed-classes
plain=(--loss soft-cross-entropy --optimizer sgd --learning-rate 0.5 --schedule constant --normalize none --no-tensorboard --progress off
  --report-every 1 --model plain.yaml --global-batch 60)

cat >expected.py <<'END'
import h5py, numpy as np, sys
smoothing = float(sys.argv[1])
with h5py.File("train.h5") as f: x, y = f["x"][:].astype(float), f["y"][:].astype(float)
with h5py.File("test.h5") as f: v, t = f["x"][:].astype(float), f["y"][:].astype(float)
def softmax(z):
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)
w, b = np.zeros((6, 4)), np.zeros(4)
for step in range(1, 6):
    p, wanted = softmax(x @ w + b), (1 - smoothing) * y + smoothing / 4
    print(step, repr(float(-(wanted * np.log(p)).sum(1).mean())), repr(float((p.argmax(1) == y.argmax(1)).mean())))
    g = (p * wanted.sum(1, keepdims=True) - wanted) / len(x)
    w, b = w - 0.5 * x.T @ g, b - 0.5 * g.sum(0)
p = softmax(v @ w + b)
print(repr(float(-(t * np.log(p)).sum(1).mean())), repr(float((p.argmax(1) == t.argmax(1)).mean())),
      repr(float(-(t * np.log(y.mean(0))).sum(1).mean())), repr(float((t.argmax(1) == y.mean(0).argmax()).mean())), file=open("judged", "w"))
END
# as_expected RUN SMOOTHING
as_expected() {
  python3 expected.py "$2" >wanted
  paste <(metric "$1" train loss) <(metric "$1" train accuracy) wanted |
    awk '{ a = $2 - $6; b = $4 - $7; if (a * a > 1e-11 || b * b > 1e-12) bad = 1 } END { exit bad || NR != 5 }' ||
    failed "$1: $(metric "$1" train loss | tr '\n' ' ') instead of $(tr '\n' ' ' <wanted)"
}
count=0
for way in "1 0 --data train.h5" "3 0 --data packed" "5 0 --data train.h5 --accumulate 2" "1 0 --data packed --reproducible" \
  "3 0 --data packed --reproducible" "2 0.1 --data packed --label-smoothing 0.1"; do
  read -r ranks smoothing options <<<"$way"
  check "the losses of float64: $ranks ranks $options"
  count=$((count + 1))
  # shellcheck disable=SC2086
  succeeds -n "$ranks" train $options --validation test.h5 "${plain[@]}" --steps 5 --run runs/$count
  expect_out 'loss: soft-cross-entropy'
  as_expected runs/$count "$smoothing"
  [[ "$options" != *--reproducible ]] || metric runs/$count train loss >"same-$ranks"
done
expect_same same-1 same-3

check "validation, eval, predictions and the constant"
python3 expected.py 0 >wanted
for n in 1 2; do
  rm -f one.json p.h5
  succeeds -n $n eval runs/1 --report --json one.json
  expect_out '^class +samples +precision'
  succeeds -n $n predict runs/1 --data test.h5 --out p.h5
  python3 - <<'END' || failed "what eval and predict say"
import h5py, json, numpy as np
loss, accuracy, constant_loss, constant_accuracy = map(float, open("judged").read().split())
said = json.loads(open("one.json").readline())
assert abs(said["loss"] - loss) < 1e-5 and abs(said["accuracy"] - accuracy) < 1e-9, said
assert abs(said["constant_loss"] - constant_loss) < 1e-5 and abs(said["constant_accuracy"] - constant_accuracy) < 1e-9, said
validation = [json.loads(line) for line in open("runs/1/metrics.jsonl") if '"validation"' in line][-1]
assert validation["loss"] == said["loss"] and validation["accuracy"] == said["accuracy"]
with h5py.File("p.h5") as f, h5py.File("test.h5") as t:
    assert np.array_equal(f["target"][:], t["y"][:].argmax(1)) and np.allclose(f["scores"][:].sum(1), 1, atol=1e-5)
    assert np.array_equal(f["class"][:], f["scores"][:].argmax(1)) and (f["class"][:] == f["target"][:]).mean() == accuracy
END
done
succeeds train --data train.h5 --validation test.h5 "${plain[@]}" --best-by f1-macro --steps 2 --run runs/f1
expect_out 'F1 \(macro\)'

check "a network of probabilities goes to ONNX with them, and resumes"
succeeds export runs/1 --format onnx --out p.onnx
succeeds train --resume --run runs/1 --steps 7
expect_out 'continuing after step 5'

check "a run does not go on with a loss of another metric"
for n in 1 3; do
  fails 2 "the checkpoint's outputs mean something else: it learnt by soft-cross-entropy, and --loss mean-squared-error has another metric" \
    -n $n train --resume --run runs/1 --steps 9 --loss mean-squared-error
done

check "probabilities with few digits are accepted"
succeeds train --data rounded.h5 "${plain[@]}" --steps 1 --run runs/rounded

# refused TEXT OPTION...: at one and three ranks.
refused() {
  local n
  for n in 1 3; do
    check "$1, $n ranks"
    fails 2 "$1" -n $n train "${plain[@]}" --steps 1 --run runs/refused "${@:2}"
  done
}
refused 'more.h5: the targets of sample 41 sum to 1\.7, and soft-cross-entropy needs probabilities' --data more.h5
refused 'negative.h5: the targets of sample 17 go down to -0\.25, and soft-cross-entropy' --data negative.h5
refused 'more.h5: the targets of sample 41 sum to 1\.7' --data train.h5 --validation more.h5
refused 'needs a probability for each of two classes or more, and the data hold class labels: --loss softmax-cross-entropy' --data packed-classes
refused 'needs a probability for each of two classes or more, and the data hold one number' --data one.h5
fails 2 'more.h5: the targets of sample 41 sum to 1\.7' eval runs/1 --data more.h5
