#!/usr/bin/env bash
# A class beside numbers among the targets of a sample: the losses are those of float64 at any number of ranks, packed or not; resumed,
# evaluated, predicted. Labels outside the classes and losses that do not fit end every rank with one sentence.
# label: more
# seconds: 150
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
def make(name, samples, seed, label=None):
    r = np.random.default_rng(seed)
    x = r.normal(size=(samples, 5)).astype("f4")
    kind = (x[:, 1] > 0).astype("i8") + 2 * (x[:, 2] > 0)
    if label is not None: kind[9] = label
    with h5py.File(name, "w") as f:
        f["x"], f["mass"], f["kind"] = x, (3 * x[:, 0] + 40 + r.normal(size=samples)).astype("f4"), kind
        f["place"] = x[:, 3:] * 5
make("train.h5", 48, 1)
make("test.h5", 21, 2)
make("large.h5", 48, 1, 4)
make("below.h5", 48, 1, -1)
with h5py.File("test.h5") as f, h5py.File("x.h5", "w") as g: g["x"] = f["x"][:]
END
python3 data.py || exit 1
network() { printf '%s\n' "name: $1" 'network:' '- dense: {units: $outputs, init: zeros, name: head}' 'losses:' "${@:2}" >"$1.yaml"; }
network both '- {loss: mean-squared-error, with: mass}' '- {loss: softmax-cross-entropy, with: kind, classes: 4, weight: 0.5}'
plain=(--optimizer sgd --schedule constant --normalize none --normalize-targets none --no-tensorboard --progress off --report-every 1)
cat >expected.py <<'END'
import h5py, numpy as np
with h5py.File("train.h5") as f: x, m, k = f["x"][:].astype(float), f["mass"][:].astype(float), np.eye(4)[f["kind"][:]]
with h5py.File("test.h5") as f: v, n, t = f["x"][:].astype(float), f["mass"][:].astype(float), np.eye(4)[f["kind"][:]]
w, b = np.zeros((5, 5)), np.zeros(5)
def judge(x, m, k):
    z = x @ w + b
    p = np.exp(z[:, 1:] - z[:, 1:].max(1, keepdims=True)); p /= p.sum(1, keepdims=True)
    g = np.concatenate([2 * (z[:, :1] - m[:, None]), 0.5 * (p - k)], 1) / len(x)
    return ((z[:, 0] - m) ** 2).mean(), -np.log((p * k).sum(1)).mean(), g, p, z[:, 0]
for step in range(1, 6):
    number, entropy, g, _, _ = judge(x, m, k)
    print(step, repr(float(number + 0.5 * entropy)), repr(float(entropy)))
    w, b = w - 0.1 * x.T @ g, b - 0.1 * g.sum(0)
number, entropy, _, p, z = judge(v, n, t)
np.savez("judged.npz", right=(p.argmax(1) == t.argmax(1)).mean(), loss=number + 0.5 * entropy, entropy=entropy, p=p, z=z, error=abs(z - n).mean())
END
python3 expected.py >wanted || exit 1
must_run pack --x train.h5 --x-name x --y-name mass,kind --shards 3 --out packed
must_run pack --x test.h5 --x-name x --y-name mass,kind --out packed-test

count=0
for way in "1 train.h5" "3 packed" "2 train.h5 --accumulate 2" "1 packed --reproducible" "3 packed --reproducible"; do
  read -r ranks options <<<"$way"
  check "the losses of float64: $ranks ranks $options"
  count=$((count + 1))
  # shellcheck disable=SC2086
  succeeds -n "$ranks" train $options --x x --y mass,kind --validation test.h5 --model both.yaml "${plain[@]}" --learning-rate 0.1 --global-batch 48 --steps 5 --run runs/$count
  paste <(metric runs/$count train loss) <(metric runs/$count train loss_kind_softmax_cross_entropy) wanted |
    awk '{ a = ($2 - $6) / $6; b = ($4 - $7) / $7; if (a * a > 1e-10 || b * b > 1e-10) bad = 1 } END { exit bad || NR != 5 }' ||
    failed "$(metric runs/$count train loss | tr '\n' ' ') instead of $(tr '\n' ' ' <wanted)"
  [[ "$options" != *--reproducible ]] || metric runs/$count train loss >"same-$ranks"
done
expect_same same-1 same-3

check "eval, predict and report know the class"
for n in 1 2; do
  for data in test.h5 packed-test; do
    rm -f one.json
    succeeds -n $n eval runs/1 --data $data --report --json one.json
    succeeds -n $n predict runs/1 --data $data --out p.h5 --csv p.csv --force
    python3 - <<'END' >out 2>err || failed "what eval and predict say"
import h5py, json, numpy as np
wanted, said = np.load("judged.npz"), json.loads(open("one.json").readline())
assert abs(said["loss"] / wanted["loss"] - 1) < 1e-5 and abs(said["mean_absolute_error"] / wanted["error"] - 1) < 1e-5, said
assert abs(said["class_accuracy"] - wanted["right"]) < 1e-9 and 0.3 < wanted["right"] < 1, said
with h5py.File("p.h5") as p: scores = p["scores"][:]
assert abs(scores[:, 0] - wanted["z"]).max() < 1e-4 and abs(scores[:, 1:] - wanted["p"]).max() < 1e-5
END
  done
done
succeeds predict runs/1 --data x.h5 --out x-p.h5
python3 -c "
import h5py
with h5py.File('p.h5') as p, h5py.File('x-p.h5') as x: assert (p['scores'][:] == x['scores'][:]).all()" || failed "predictions without targets are others"
head -n 1 p.csv | grep -q 'mass.*kind_0.*kind_3' || failed "$(head -n 1 p.csv)"
succeeds report runs/1
succeeds train --resume --run runs/1 --steps 8
expect_out 'continuing after step 5'

check "two losses of one class: what predict writes are its probabilities"
network twice '- {loss: mean-squared-error, with: mass}' '- {loss: softmax-cross-entropy, with: kind, classes: 4}' \
  '- {loss: soft-cross-entropy, with: kind, weight: 0.5}'
must_run train train.h5 --x x --y mass,kind --model twice.yaml "${plain[@]}" --learning-rate 0.3 --global-batch 48 --steps 40 --run runs/twice
rm -f one.json
succeeds eval runs/twice --data test.h5 --json one.json
succeeds predict runs/twice --data test.h5 --out p.h5 --force
python3 - <<'END' >out 2>err || failed "the predictions have another loss"
import h5py, json, numpy as np
said = json.loads(open("one.json").readline())
with h5py.File("p.h5") as p, h5py.File("test.h5") as f: right = p["scores"][:, 1:][np.arange(21), f["kind"][:]]
assert abs(-np.log(right.astype(float)).mean() / said["loss_kind_softmax_cross_entropy"] - 1) < 1e-4, said
END

check "the accuracy of the class chooses the best checkpoint, at any number of ranks"
for n in 1 3 5; do
  succeeds -n $n train packed --validation packed-test --x x --y mass,kind --model both.yaml "${plain[@]}" --learning-rate 0.3 --global-batch 6 --epochs 20 \
    --best-by accuracy --run runs/best$n
  expect_out 'class accuracy [0-9.]* %'; expect_out '^a constant +- +-$'
done
expect_same <(metric runs/best1 validation class_accuracy) <(metric runs/best3 validation class_accuracy)
expect_same <(metric runs/best1 validation class_accuracy) <(metric runs/best5 validation class_accuracy)
[ "$(metric runs/best1 validation class_accuracy | awk '{ print $2 }' | sort -u | wc -l)" -gt 1 ] || failed "one accuracy throughout"
best=$(metric runs/best1 validation class_accuracy | awk '$2 >= best { best = $2; step = $1 } END { print step }')
succeeds eval runs/best1
expect_out "step $best, the best of its run"
succeeds report runs/best1 runs/best3
expect_out '^ +run +class accuracy .*at step'; expect_out "^1[.] +runs/best1 .* $best "
succeeds info runs/best1/checkpoints/best
expect_out 'validation +class_accuracy 0[.]'
fails 2 "--best-by accuracy is no metric of numbers to predict" \
  train train.h5 --x x --y mass --model linear "${plain[@]}" --best-by accuracy --validation 0.2 --run runs/no

check "the exported graph predicts numbers and probabilities"
succeeds export runs/1 --out both.onnx
must_run predict runs/1 --data test.h5 --x x --out exported.h5
if peer=$(peer_python onnx onnxruntime h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "onnxruntime predicts something else"
import h5py, onnx, onnxruntime
onnx.checker.check_model(onnx.load("both.onnx"), full_check=True)
session = onnxruntime.InferenceSession("both.onnx")
with h5py.File("test.h5") as f, h5py.File("exported.h5") as p:
    (got,) = session.run(["predictions"], {"input": f["x"][:]})
    want = p["scores"][:]
    assert got.shape == want.shape and (abs(got - want) < 1e-5 * abs(want).clip(1)).all()
END
fi

check "a label outside of the classes: one sentence"
for n in 1 3; do
  for data in large below; do
    label=$([ $data = large ] && echo 4 || echo -1)
    fails 1 "$data.h5: kind has the label $label, and its classes are 0 to 3" \
      -n $n train $data.h5 --x x --y mass,kind --model both.yaml "${plain[@]}" --steps 2 --run runs/no
    fails 1 "$data.h5: kind has the label $label, and its classes are 0 to 3" -n $n eval runs/1 --data $data.h5
  done
done

check "losses that do not fit"
refused() {  # STATUS WORDS LOSS...
  network no "${@:3}"
  for n in 1 2; do
    fails "$1" "$2" -n $n train train.h5 --x x --y "${targets:-mass,kind}" --model no.yaml "${plain[@]}" --steps 1 --run runs/no
  done
}
mass='- {loss: mean-squared-error, with: mass}'
refused 2 "classes: N. of a loss says how many classes a target beside numbers has" "$mass" '- {loss: softmax-cross-entropy, with: kind}'
refused 2 "losses: classes: a whole number from 2 to 65536" "$mass" '- {loss: softmax-cross-entropy, with: kind, classes: 1}'
refused 2 "losses: classes: a whole number from 2 to 65536" "$mass" '- {loss: dice, with: kind, classes: 4}'
refused 2 "classes: is for a target that stands beside numbers: .with:. names it" "$mass" '- {loss: softmax-cross-entropy, classes: 4}'
refused 2 "classes: is for a target that stands beside numbers: leave it out" '- {loss: softmax-cross-entropy, with: kind, classes: 4}'
refused 2 "no.yaml:.*losses: kind has 4 classes in one loss and 5 in another: give both the same" "$mass" \
  '- {loss: softmax-cross-entropy, with: kind, classes: 4}' '- {loss: softmax-cross-entropy, with: kind, classes: 5}'
targets=mass refused 2 "judges mass and softmax-cross-entropy judges kind, and the data have one target: --y names several" "$mass" \
  '- {loss: softmax-cross-entropy, with: kind, classes: 4}'
refused 2 "the data have no target typo" "$mass" '- {loss: softmax-cross-entropy, with: typo, classes: 4}'
targets=mass,place refused 1 "place holds 2 numbers for each sample: the label of a class is one" "$mass" '- {loss: softmax-cross-entropy, with: place, classes: 4}'
