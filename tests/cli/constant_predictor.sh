#!/usr/bin/env bash
# label: more
# seconds: 240
# Every validation shows the result of a constant prediction beside it, and a network that is worse gets a warning.
. "$(dirname "$0")/harness.sh"
python3 - <<'PYTHON'
import h5py, numpy
random = numpy.random.default_rng(5)
def write(name, x, y, xv, yv):
    for part, a, b in (("train", x, y), ("test", xv, yv)):
        with h5py.File(f"{name}-{part}.h5", "w") as f: f["x"], f["y"] = a, b
x, xv = (random.normal(size=(n, 6)).astype("f4") for n in (300, 90))
classes = random.choice(7, size=300, p=[.1, .1, .3, .2, .1, .1, .1]).astype("i4")
write("classes", x, classes, xv, random.choice(7, size=90).astype("i4"))
write("numbers", x, (x[:, :3] * [1, 40, 3] + [0, 100, -2]).astype("f4"), xv, (xv[:, :3] * [1, 40, 3] + [0, 100, -2]).astype("f4"))
write("one", x, (x[:, 0] * 9 + 50).astype("f4"), xv, (xv[:, 0] * 9 + 50).astype("f4"))
write("skewed", x, numpy.exp(2 * x[:, :2]).astype("f4"), xv, numpy.exp(2 * xv[:, :2]).astype("f4"))
write("labels", x, (random.random((300, 4)) < [.2, .7, .5, .9]).astype("f4"), xv, (random.random((90, 4)) < [.3, .6, .5, .9]).astype("f4"))
write("noise", x, random.normal(size=300).astype("f4"), xv, random.normal(size=90).astype("f4"))
write("sole", x[:20], numpy.zeros(20, "i4"), xv[:9], numpy.zeros(9, "i4"))
PYTHON
train() {
  local name=$1
  shift
  must_run "$@" --data "$name-train.h5" --validation "$name-test.h5" --hidden 8 --epochs 2 --progress off --run "runs/$name-$ranks" --force
}

cat >compare.py <<'PYTHON'
# compare.py NAME RECORD: a constant's results by numpy against the entries of a record (JSON).
import h5py, json, numpy, sys
name, record, *loss = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:]
y, v = (h5py.File(f"{name}-{part}.h5")["y"][:].astype("f8") for part in ("train", "test"))
if name == "classes":
    counts = numpy.bincount(y.astype(int), minlength=7)
    want = {"loss": -numpy.log(counts[v.astype(int)] / len(y)).mean(), "accuracy": (v == counts.argmax()).mean()}
elif name == "labels":
    share = y.mean(0)
    want = {"loss": -numpy.where(v > .5, numpy.log(share), numpy.log(1 - share)).mean(), "label_accuracy": ((share > .5) == (v > .5)).mean()}
    found, said = ((share > .5) & (v > .5)).sum(), (share > .5).sum() * len(v)
    want["f1"] = 2 * found / (said + v.sum())
else:
    y, v = y.reshape(len(y), -1), v.reshape(len(v), -1)
    error, unit = v - (numpy.median(y, 0) if loss else y.mean(0)), y.std(0)
    e = abs(error / unit)
    of_loss = {"mean-absolute-error": e, "huber": numpy.where(e <= 1, e ** 2 / 2, e - .5)}
    want = {"loss": (of_loss[loss[0]] if loss else e ** 2).mean(), "mean_absolute_error": abs(error / (unit if y.shape[1] > 1 else 1)).mean()}
for key, value in want.items():
    told = record["constant_" + key]
    assert abs(told / value - 1) < 1e-5, (key, told, value)
PYTHON

of_constant() { grep -o '"constant_[a-z_1]*":[^,}]*' "$1"; }

for ranks in 1 3; do
  for name in classes numbers one labels; do
    check "$name on $ranks: beside the validations and in the plan stands what numpy finds"
    train $name -n $ranks train
    expect_out '^  to beat: a constant \(.*\) reaches loss [0-9.]+  '
    expect_out '^a constant +[0-9.]+ '
    record=$(grep '"kind":"validation"' "runs/$name-$ranks/metrics.jsonl" | tail -n 1)
    python3 compare.py $name "$record" || failed "the figures"
    check "$name on $ranks: eval says it of the checkpoint"
    succeeds -n $ranks eval "runs/$name-$ranks" --json $name-$ranks.json
    expect_out '^a constant \(.*\) reaches '
    python3 compare.py $name "$(head -n 1 $name-$ranks.json)" || failed "the figures of eval"
  done
done
for loss in mean-absolute-error huber; do
  for ranks in 1 3; do
    check "$loss on $ranks: the constant is the median, and eval says so"
    train skewed -n $ranks train --loss $loss --normalize-targets standard
    expect_out '^  to beat: a constant \(the median of the training targets\) reaches loss [0-9.]+  '
    grep '"kind":"validation"' "runs/skewed-$ranks/metrics.jsonl" | tail -n 1 >record
    python3 compare.py skewed "$(cat record)" $loss || failed "the figures"
    succeeds -n $ranks eval "runs/skewed-$ranks" --report --json skewed-$ranks.json
    expect_out 'R2  MAE of the training median$'
    python3 compare.py skewed "$(head -n 1 skewed-$ranks.json)" $loss || failed "the figures of eval"
  done
  of_constant skewed-1.json >one && of_constant skewed-3.json >three && [ -s one ] && expect_same one three
done

check "the same bits at any number of ranks"
for name in classes numbers one labels; do
  of_constant $name-1.json >one && of_constant $name-3.json >three && [ -s one ] && expect_same one three
done
check "words say what the constant is"
run train --data classes-train.h5 --validation classes-test.h5 --dry-run
expect_out 'a constant \(the most frequent class of the training data, 2\) reaches'
run train --data labels-train.h5 --validation labels-test.h5 --dry-run
expect_out 'a constant \(what most training samples have of each label\) reaches'
run train --data one-train.h5 --validation one-test.h5 --dry-run
expect_out 'a constant \(the mean of the training targets\) reaches'

check "each target has the error of its mean in the report"
succeeds eval runs/numbers-1 --report --json report.json
expect_out 'R2  MAE of the training mean$'
python3 - <<'PYTHON' || failed "the report"
import h5py, json
y, v = (h5py.File(f"numbers-{part}.h5")["y"][:].astype("f8") for part in ("train", "test"))
told = [r for r in map(json.loads, open("report.json")) if r["kind"] == "target"]
for i, r in enumerate(told):
    error = v[:, i] - y[:, i].mean()
    assert abs(r["constant_mean_absolute_error"] / abs(error).mean() - 1) < 1e-5
    assert abs(r["constant_root_mean_squared_error"] / (error ** 2).mean() ** .5 - 1) < 1e-5
PYTHON

check "a network that is no better is warned of, at the end and by eval"
succeeds train --data noise-train.h5 --validation noise-test.h5 --hidden 64 --steps 400 --learning-rate 0.01 --progress off --run runs/noise
expect_err '^warning: validation mean absolute error [0-9.]+ is no better than the [0-9.]+ of a constant \(the mean of the training targets\)'
succeeds eval runs/noise
expect_err 'is no better than the [0-9.]+ of a constant'

check "one that is better is not, nor one that nothing could beat"
must_run train --data one-train.h5 --validation one-test.h5 --hidden 8 --learning-rate 0.02 --epochs 20 --progress off --run runs/good
expect_silence
succeeds eval runs/good
expect_silence
must_run train --data sole-train.h5 --validation sole-test.h5 --steps 3 --progress off --run runs/sole
expect_silence

check "a class that training has not makes no loss of it, but an accuracy"
python3 - <<'PYTHON'
import h5py, numpy
with h5py.File("classes-train.h5") as a, h5py.File("fewer.h5", "w") as b:
    y = a["y"][:]
    b["x"], b["y"] = a["x"][:], numpy.where(y == 3, 2, y)
PYTHON
must_run train --data fewer.h5 --validation classes-test.h5 --hidden 8 --steps 3 --progress off --run runs/fewer
expect_out 'a constant \(.*, 2\) reaches accuracy '
expect_no_out '[^a-z]inf|nan'
! grep -q '"constant_loss"' runs/fewer/metrics.jsonl || failed "an infinite loss is recorded"

check "tokens: their frequencies"
for _ in $(seq 60); do echo "the cat sat on a mat and the dog saw no cat"; done >corpus.txt
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.2
must_run train --data text --model lstm --hidden 4 --layers 1 --unroll 5 --global-batch 3 --steps 4 --progress off --run runs/text
expect_out 'a constant \(the frequencies of the training tokens\) reaches loss 2\.[0-9]+  perplexity '

