#!/usr/bin/env bash
# Weighted losses and the losses of numbers equal PyTorch's, step by step through a network with a hidden layer; the
# metrics of --best-by and the balanced weights equal scikit-learn's.
# label: slow
# seconds: 600
. "$(dirname "$0")/harness.sh"
torch=$(peer_python torch) && sklearn=$(peer_python sklearn) || skip_all "no Python here has torch, or none sklearn (PEER_PYTHONS: others to try)"

python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(9)
n = 400
for name, part in ("", n), ("-test", 203):
    x = r.normal(size=(part, 10)).astype(np.float32)
    y = np.minimum(r.geometric(0.6, part) - 1, 4).astype(np.int32)
    x[np.arange(part), y] += 1.5
    w = r.gamma(1, size=part).astype(np.float32)
    for kind, target in (("classes", y), ("two", (y > 1).astype(np.int32)), ("labels", np.stack([y > 0, y > 2, x[:, 9] > 1.2], 1).astype(np.float32)),
                         ("soft", np.exp(2 * x[:, :4]) / np.exp(2 * x[:, :4]).sum(1, keepdims=True)),
                         ("numbers", (x[:, :2] ** 2 + 3 * r.standard_cauchy((part, 2))).astype(np.float32))):
        with h5py.File(f"{kind}{name}.h5", "w") as f:
            f["x"], f["y"], f["w"] = x, target, w
END

# plain.py FILE OUT: writes its data sets for a Python without h5py.
cat >plain.py <<'END'
import h5py, sys
import numpy as np
found = {}
h5py.File(sys.argv[1]).visititems(lambda name, item: found.__setitem__(name.removeprefix("parameters/"), item[...]) if isinstance(item, h5py.Dataset) and (item.dtype.kind in "fi") else None)
weights = {name: value for name, value in found.items() if name.startswith("dense_")}
np.savez(sys.argv[2], **(weights or found))
END
cat >steps.py <<'END'
import sys
import numpy as np
import torch
file, loss, how, first, last, steps, rate = sys.argv[1:]
begin, end = dict(np.load(first)), dict(np.load(last))
names = sorted(begin)
data = np.load(file)
x, y, own = torch.tensor(data["x"]), torch.tensor(data["y"]), torch.tensor(data["w"]).double()
weight = torch.ones(len(x), dtype=torch.double)
if "classes" in how:
    counts = torch.bincount(y.long()).double()
    weight = weight * (len(y) / (len(counts) * counts))[y.long()]
if "samples" in how:
    weight = weight * own
weight = (weight / weight.mean()).float()
parameters = {name: torch.tensor(begin[name], requires_grad=True) for name in names}
def dense(layer, z):
    return z @ parameters[f"dense_{layer}/weight"].reshape(z.shape[1], -1) + parameters[f"dense_{layer}/bias"].reshape(-1)
def per_sample(z):
    if loss == "soft-cross-entropy": return torch.nn.functional.cross_entropy(z, y, reduction="none")
    if loss == "softmax-cross-entropy": return torch.nn.functional.cross_entropy(z, y.long(), reduction="none")
    if loss == "binary-cross-entropy": return torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none").mean(1)
    if loss == "mean-absolute-error": return torch.nn.functional.l1_loss(z, y, reduction="none").mean(1)
    if loss == "huber": return torch.nn.functional.huber_loss(z, y, reduction="none").mean(1)
    return torch.nn.functional.mse_loss(z, y, reduction="none").mean(1)
optimizer = torch.optim.SGD(parameters.values(), lr=float(rate))
for _ in range(int(steps)):
    optimizer.zero_grad()
    (per_sample(dense(2, torch.relu(dense(1, x)))) * weight).mean().backward()
    optimizer.step()
moved = max(np.abs(end[name] - begin[name]).max() for name in names)
worst = max(np.abs(end[name] - parameters[name].detach().numpy()).max() for name in names)
assert moved > 0.01, moved
assert worst < 2e-3 * moved, (worst, moved)
END

# beside FILE LOSS RATE HOW OPTION...
beside() {
  local file=$1 loss=$2 rate=$3 how=$4
  shift 4
  check "$loss of $file, weights: $how"
  rm -rf runs/here
  run -n 3 train --data $file --loss $loss --model mlp --hidden 16 --optimizer sgd --schedule constant --learning-rate $rate --normalize none \
    --normalize-targets none --global-batch 400 --steps 40 --checkpoint-every 20 --keep 3 --no-tensorboard --progress off --run runs/here "$@"
  expect_status 0
  python3 plain.py $file data.npz
  python3 plain.py runs/here/checkpoints/step-0000000020.h5 first.npz
  python3 plain.py runs/here/checkpoints/step-0000000040.h5 last.npz
  expect "$torch" steps.py data.npz $loss "$how" first.npz last.npz 20 $rate
}
beside classes.h5 softmax-cross-entropy 0.2 none
beside classes.h5 softmax-cross-entropy 0.2 classes --class-weight balanced
beside classes.h5 softmax-cross-entropy 0.2 classes,samples --class-weight balanced --sample-weight w
beside labels.h5 binary-cross-entropy 0.2 samples --sample-weight w
beside soft.h5 soft-cross-entropy 0.2 none
beside soft.h5 soft-cross-entropy 0.2 samples --sample-weight w
beside numbers.h5 mean-squared-error 0.001 samples --sample-weight w
beside numbers.h5 mean-absolute-error 0.05 none
beside numbers.h5 mean-absolute-error 0.05 samples --sample-weight w
beside numbers.h5 huber 0.05 none
beside numbers.h5 huber 0.05 samples --sample-weight w

cat >metrics.py <<'END'
import sys
import numpy as np
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
data = np.load(sys.argv[2])
scores, target = data["scores"].astype(float), data["target"]
labels = target.ndim == 2
taken = (scores > 0.5) * 1 if labels else scores.argmax(1)
if sys.argv[1] == "balanced-accuracy":
    print(repr(float(balanced_accuracy_score(target, taken))))
elif sys.argv[1] == "f1-macro":
    print(repr(float(f1_score(target, taken, average="macro", zero_division=0))))
elif labels:
    print(repr(float(roc_auc_score(target, scores, average="macro"))))
elif scores.shape[1] == 2:
    print(repr(float(roc_auc_score(target, scores[:, 1]))))
else:
    print(repr(float(roc_auc_score(target, scores / scores.sum(1, keepdims=True), multi_class="ovr", average="macro"))))
END
for case in "classes balanced-accuracy" "classes f1-macro" "classes roc-auc" "two roc-auc" "labels f1-macro" "labels roc-auc"; do
  read -r data by <<<"$case"
  check "$by of $data is scikit-learn's"
  run -n 2 train --data $data.h5 --validation $data-test.h5 --model mlp --hidden 16 --epochs 5 --best-by $by --progress off --run runs/$data-$by
  expect_status 0
  rm -f p.h5
  run predict runs/$data-$by --checkpoint latest --data $data-test.h5 --out p.h5
  expect_status 0
  python3 plain.py p.h5 p.npz
  said=$(metric runs/$data-$by validation "$(tr - _ <<<$by)" | tail -n 1 | cut -d ' ' -f 2) expected=$("$sklearn" metrics.py $by p.npz)
  "$sklearn" -c "assert abs($said - $expected) < 1e-6" || failed "$said, and scikit-learn says $expected"
done

check "balanced weights are scikit-learn's"
run train --data classes.h5 --model linear --class-weight balanced --dry-run
expect_status 0
python3 plain.py classes.h5 data.npz
"$sklearn" - <<'END' || failed "other weights: $(grep 'weights of the loss' out)"
import re, numpy as np
from sklearn.utils.class_weight import compute_class_weight
y = np.load("data.npz")["y"]
said = re.search(r"of classes (.*)", open("out").read()).group(1)
for part, expected in zip(said.split(", "), compute_class_weight("balanced", classes=np.unique(y), y=y)):
    assert abs(float(part.split()[1]) - expected) < 1e-3 * expected, (said, expected)
END
