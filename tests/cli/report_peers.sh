#!/usr/bin/env bash
# `eval --report` equals scikit-learn.
# label: slow
# seconds: 600
. "$(dirname "$0")/harness.sh"
peer=$(peer_python sklearn h5py) || skip_all "no Python here has sklearn and h5py (PEER_PYTHONS: others to try)"

cat >compare.py <<'END'
import json, sys, warnings
import h5py
from sklearn import metrics
records = [json.loads(line) for line in open(sys.argv[2])]
of_kind = lambda kind: [r for r in records if r["kind"] == kind]
with h5py.File(sys.argv[1]) as f:
    scores, target, taken = f["scores"][:].astype(float), f["target"][:], f["class"][:] if "class" in f else None
def same(ours, theirs): assert abs((ours or 0) - theirs) <= 1e-9 * max(1, abs(theirs)), (ours, theirs)
if of_kind("label"):
    theirs = metrics.classification_report(target, scores > 0.5, output_dict=True, zero_division=0)
    means = {"labels": theirs["macro avg"], "answers": theirs["micro avg"]}
    for r, its in [(r, theirs[str(r["index"])]) for r in of_kind("label")] + [(r, means[r["over"]]) for r in of_kind("mean")]:
        for mine, name in ("precision", "precision"), ("recall", "recall"), ("f1", "f1-score"), ("samples", "support"):
            same(r[mine], its[name])
    same(of_kind("exact")[0]["right"] / of_kind("exact")[0]["samples"], metrics.accuracy_score(target, scores > 0.5))
    same(of_kind("evaluation")[0]["f1"], metrics.f1_score(target, scores > 0.5, average="micro"))
    assert abs(of_kind("evaluation")[0]["loss"] - sum(metrics.log_loss(target[:, i], scores[:, i]) for i in range(target.shape[1])) / target.shape[1]) < 1e-5
    sys.exit(0)
if taken is None:
    for i, r in enumerate(of_kind("target")):
        same(r["mean_absolute_error"], metrics.mean_absolute_error(target[:, i].astype(float), scores[:, i]))
        same(r["root_mean_squared_error"], metrics.mean_squared_error(target[:, i].astype(float), scores[:, i]) ** 0.5)
        same(r["r_squared"], metrics.r2_score(target[:, i].astype(float), scores[:, i]))
    sys.exit(0 if of_kind("target") else 1)
theirs = metrics.classification_report(target, taken, output_dict=True, zero_division=0)
means = {"classes": theirs["macro avg"], "samples": theirs["weighted avg"]}
compared = [(r, theirs[str(r["index"])]) for r in of_kind("class") if str(r["index"]) in theirs]
compared += [(r, means[r["over"]]) for r in of_kind("mean")]
for ours, its in compared:
    for mine, name in ("precision", "precision"), ("recall", "recall"), ("f1", "f1-score"), ("samples", "support"):
        same(ours[mine], its[name])
counts = metrics.confusion_matrix(target, taken, labels=range(scores.shape[1]))
for r in of_kind("confusion"): counts[r["target"], r["predicted"]] -= r["samples"]
assert (counts == 0).all(), counts
END
judged() {  # NAME DATA
  succeeds eval "runs/$1" --data "$2" --report --json "$1.json"
  succeeds predict "runs/$1" --data "$2" --out "$1.h5"
  "$peer" compare.py "$1.h5" "$1.json" 2>python.log || failed "$(tail -n 1 python.log)"
}
train="train --batch 20 --hidden 16 --progress off --no-tensorboard"

check "classes, most of them confused"
pack_small classes --noise 8
must_run $train --data classes --optimizer sgd --steps 60 --run runs/classes
judged classes classes
check "classes, some of which nothing is taken for"
must_run $train --data classes --optimizer sgd --steps 2 --run runs/begun
judged begun classes
check "numbers"
"$peer" - <<'END'
import numpy
random = numpy.random.default_rng(3)
x = random.normal(size=(500, 6)).astype(numpy.float32)
numpy.save("x.npy", x)
numpy.save("labels.npy", (x[:, :4] + random.normal(size=(500, 4)) > 0.7).astype(numpy.uint8))
numpy.save("y.npy", numpy.stack([x @ random.normal(size=6), 50 + x[:, 0] ** 2], axis=1).astype(numpy.float32))
END
must_run pack --format npy --x x.npy --y y.npy --out numbers
must_run $train --data numbers --optimizer adam --learning-rate 0.01 --steps 100 --run runs/numbers
judged numbers numbers

check "labels"
must_run pack --format npy --x x.npy --y labels.npy --out labels
must_run $train --data labels --optimizer adam --learning-rate 0.01 --steps 100 --run runs/labels
judged labels labels

check "the comparison sees figures that differ"
sed 's/"recall":0\.[0-9]*/"recall":0.5/' classes.json >other.json
if "$peer" compare.py classes.h5 other.json 2>/dev/null; then failed "other figures pass"; fi
