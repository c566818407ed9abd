#!/usr/bin/env bash
# Several losses in a network's file, and the Dice loss: each loss and their weighted sum are those of float64 at any
# number of ranks, micro-steps and virtual ranks; each has its own curve; lists that do not fit are refused.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(5)
def images(name, samples):
    x = r.normal(size=(samples, 6, 5, 2)).astype("f4")
    y = (x.sum(-1) > 0).astype("u1") + (x[..., 0] > 1)
    y[0] = 0  # a sample without the other classes
    y[r.random(y.shape) < 0.4 * r.random((samples, 1, 1))] = 255
    with h5py.File(name, "w") as f: f["image"], f["mask"] = x, y
images("masks.h5", 24)
images("masks-test.h5", 11)
def tables(name, samples):
    x = r.normal(size=(samples, 5)).astype("f4")
    mass = (3 * x[:, 0] + 40 + r.normal(size=samples)).astype("f4")
    flags = np.stack([x[:, 1] > 0, x[:, 2] > 0.5], 1).astype("f4")
    with h5py.File(name, "w") as f:
        f["x"], f["mass"], f["flags"], f["halves"] = x, mass, flags, flags / 2
        f["chances"] = np.abs(x[:, :3]) / np.abs(x[:, :3]).sum(1, keepdims=True)
tables("tables.h5", 48)
tables("tables-test.h5", 21)
END
python3 data.py || exit 1
network() { printf '%s\n' "name: $1" 'network:' "$2" "${@:3}" >"$1.yaml"; }
pixel='- conv: {channels: $outputs, kernel: 1, init: zeros, name: head}'
dense='- dense: {units: $outputs, init: zeros, name: head}'
network pixels "$pixel"
network both "$pixel" 'losses:' '- {loss: softmax-cross-entropy, of: head, with: mask, weight: 1, ignore: 255}' '- {loss: dice, of: head, weight: 0.5}'
network table "$dense" 'losses:' '- {loss: mean-squared-error, with: mass}' '- {loss: binary-cross-entropy, with: flags, weight: 0.5}' \
  '- {loss: huber, with: mass, weight: 0.25}'
masks=(--x image --y mask)
rate=(--learning-rate 0.5)
plain=(--optimizer sgd --schedule constant --normalize none --no-tensorboard --progress off --report-every 1)
must_run pack --x masks.h5 --x-name image --y-name mask --ignore-label 255 --shards 3 --out packed

# The losses and the gradient descent of float64. Dice: of each sample the mean over the classes of
# 1 - (2 sum(p t) + 1) / (sum(p) + sum(t) + 1).
cat >expected.py <<'END'
import h5py, numpy as np, sys
of_entropy, of_dice = map(float, sys.argv[1:])
def read(name):
    with h5py.File(name) as f:
        x, y = f["image"][:].astype(float), f["mask"][:].astype(int)
    return x.reshape(len(x), -1, 2), y.reshape(len(y), -1)
def judge(x, y, w, b):
    z = x @ w + b
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    there = y != 255
    t = np.eye(3)[np.where(there, y, 0)] * there[..., None]
    entropy = -(t * np.log(p)).sum() / there.sum()
    d_entropy = (p * there[..., None] - t) / there.sum()
    masked = p * there[..., None]
    common, sizes = (masked * t).sum(1), masked.sum(1) + t.sum(1)
    dice = (1 - (2 * common + 1) / (sizes + 1)).mean()
    slope = -(2 * t * (sizes + 1)[:, None] - (2 * common + 1)[:, None]) / ((sizes + 1) ** 2)[:, None] / 3 / len(x)
    d_dice = masked * (slope - (slope * p).sum(-1, keepdims=True))
    accuracy = (p.argmax(-1) == y)[there].mean()
    answers = np.where(there, p.argmax(-1), -1)
    ious = [((answers == c) & (y == c)).sum() / max(1, ((answers == c) | (y == c)).sum()) for c in range(3)]
    return entropy, dice, accuracy, of_entropy * d_entropy + of_dice * d_dice, ious
x, y = read("masks.h5")
v, t = read("masks-test.h5")
w, b = np.zeros((2, 3)), np.zeros(3)
for step in range(1, 6):
    entropy, dice, accuracy, g, _ = judge(x, y, w, b)
    print(step, *(repr(float(n)) for n in (of_entropy * entropy + of_dice * dice, entropy, dice, accuracy)))
    w, b = w - 0.5 * np.einsum("spi,spc->ic", x, g), b - 0.5 * g.sum((0, 1))
entropy, dice, accuracy, _, ious = judge(v, t, w, b)
print(*(repr(float(n)) for n in (of_entropy * entropy + of_dice * dice, entropy, dice, accuracy, *ious)), file=open("judged", "w"))
END
cat >compare.py <<'END'
import json, sys
run, *keys = sys.argv[1:]
records = [json.loads(line) for line in open(run + "/metrics.jsonl")]
steps = [r for r in records if r["kind"] == "train"]
wanted = [list(map(float, line.split())) for line in open("wanted")]
columns = {"loss": 1, "loss_softmax_cross_entropy": 2, "loss_dice": 3, "accuracy": 4}
assert len(steps) == len(wanted) == 5, len(steps)
for step, want in zip(steps, wanted):
    for key in keys:
        assert abs(step[key] - want[columns[key]]) < 3e-6, (step["step"], key, step[key], want[columns[key]])
judged = list(map(float, open("judged").read().split()))
last = [r for r in records if r["kind"] == "validation"][-1]
for key in keys:
    assert abs(last[key] - judged[columns[key] - 1]) < 3e-6, (key, last[key], judged)
for c in range(3):
    assert abs(last[f"iou_{c}"] - judged[4 + c]) < 1e-9, (c, last, judged)
assert abs(last["mean_iou"] - sum(judged[4:]) / 3) < 1e-9
END
count=0
for net in "dice 0 1" "both 1 0.5"; do
  read -r name entropy dice <<<"$net"
  python3 expected.py "$entropy" "$dice" >wanted
  keys=(loss accuracy) options=(--model both.yaml)
  [ "$name" = both ] && keys+=(loss_softmax_cross_entropy loss_dice) || options=(--model pixels.yaml --loss dice)
  foreign=("${masks[@]}" --ignore-label 255)
  [ "$name" = both ] && foreign=("${masks[@]}")  # its file says which label is ignored
  for way in "1 --data masks.h5" "3 --data packed" "5 --data packed" "2 --data packed --accumulate 3" "1 --data packed --reproducible" \
    "3 --data packed --reproducible" "2 --data packed --reproducible --virtual-ranks 5"; do
    read -r ranks data <<<"$way"
    check "$name: the losses of float64, $ranks ranks $data"
    count=$((count + 1))
    # shellcheck disable=SC2086
    succeeds -n "$ranks" train $data --validation masks-test.h5 "${foreign[@]}" "${options[@]}" "${plain[@]}" "${rate[@]}" --global-batch 24 --steps 5 \
      --evaluate-every 5 --evaluation-batch 4 --run "runs/$count"
    python3 compare.py "runs/$count" "${keys[@]}" 2>why || failed "runs/$count: $(tail -n 1 why)"
    [[ "$data" != *--reproducible ]] || metric "runs/$count" train loss >"$name-$ranks"
  done
  expect_same "$name-1" "$name-3"
done
check "the plan says the losses, eval each of them, predict the classes"
expect grep -q 'loss: softmax-cross-entropy of mask + 0.5 dice' "runs/$count/log.txt"
for n in 1 3 5; do
  rm -f report.json
  succeeds -n $n eval "runs/$count" --data masks-test.h5 "${masks[@]}" --report --json report.json
  expect_out 'softmax-cross-entropy [0-9.]+  dice [0-9.]+'; mv report.json "report-$n"; expect_same report-1 "report-$n"
done
succeeds predict "runs/$count" --data masks-test.h5 "${masks[@]}" --out masks-said.h5
succeeds export "runs/$count" --format onnx --out masks.onnx
check "--loss dice tells what a constant reaches"
succeeds train --data packed --validation masks-test.h5 "${masks[@]}" --ignore-label 255 --model pixels.yaml --loss dice "${plain[@]}" "${rate[@]}" --steps 1 --run runs/constant
python3 - <<'END' || failed "the constant's Dice loss"
import h5py, json, numpy as np
y = h5py.File("masks-test.h5")["mask"][:].reshape(11, -1).astype(int)
train = h5py.File("masks.h5")["mask"][:]
answer = np.bincount(train[train != 255]).argmax()
loss = 0
for own in y:
    own = own[own != 255]
    for c in range(3):
        t = (own == c).sum()
        loss += (1 - ((2 * t if c == answer else 0) + 1) / (t + (len(own) if c == answer else 0) + 1)) / 3 / 11
said = [json.loads(line) for line in open("runs/constant/metrics.jsonl") if '"validation"' in line][-1]["constant_loss"]
assert abs(said - loss) < 1e-9, (said, loss)
END

check "each loss has its curve in the report and in TensorBoard"
succeeds train --data packed --validation masks-test.h5 "${masks[@]}" --model both.yaml --global-batch 8 --epochs 4 --progress off --run runs/curves
succeeds report runs/curves --out page.html
expect grep -q 'loss dice' page.html
cat runs/curves/events.out* | strings >tags
expect grep -q 'train/loss_dice' tags; expect grep -q 'validation/loss_softmax_cross_entropy' tags
must_run train --resume --run runs/curves --epochs 5
check "a run's own configuration trains the same thing anew"
metric runs/curves validation loss | head -n 4 >wanted
succeeds train --config runs/curves/config.ini --epochs 4 --run runs/anew
metric runs/anew validation loss >found; expect_same wanted found
succeeds train --config runs/curves/config.ini --epochs 1 --initialize-from runs/curves --run runs/finer
expect_out 'loss: softmax-cross-entropy of mask \+ 0.5 dice'

check "losses of numbers and of labels, each on its target"
cat >tables.py <<'END'
import h5py, json, numpy as np, sys
scale = sys.argv[1] == "standard"
def read(name):
    with h5py.File(name) as f: return f["x"][:].astype(float), f["mass"][:].astype(float), f["flags"][:].astype(float)
x, mass, flags = read("tables.h5")
mean, deviation = (mass.mean(), mass.std()) if scale else (0, 1)
def judge(x, mass, flags, w, b):
    z = x @ w + b
    error, p = z[:, 0] - (mass - mean) / deviation, 1 / (1 + np.exp(-z[:, 1:]))
    square, entropy = (error ** 2).mean(), -(flags * np.log(p) + (1 - flags) * np.log(1 - p)).mean()
    huber = np.where(np.abs(error) > 1, np.abs(error) - 0.5, error ** 2 / 2).mean()
    g = np.zeros_like(z)
    g[:, 0] = (2 * error + 0.25 * np.clip(error, -1, 1)) / len(x)
    g[:, 1:] = 0.5 * (p - flags) / 2 / len(x)
    return square, entropy, huber, np.abs(error).mean() * deviation, g
w, b = np.zeros((5, 3)), np.zeros(3)
rows = []
for step in range(5):
    *numbers, g = judge(x, mass, flags, w, b)
    rows.append(numbers)
    w, b = w - 0.1 * x.T @ g, b - 0.1 * g.sum(0)
v = read("tables-test.h5")
*last, _ = judge(*v, w, b)
records = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl")]
found = [r for r in records if r["kind"] == "train"] + [r for r in records if r["kind"] == "validation"][-1:]
assert len(found) == 6
for r, (square, entropy, huber, mae) in zip(found, rows + [last]):
    said = [r[k] for k in ("loss", "loss_mass_mean_squared_error", "loss_flags_binary_cross_entropy", "loss_mass_huber", "mean_absolute_error")]
    want = [square + 0.5 * entropy + 0.25 * huber, square, entropy, huber, mae / deviation if scale else mae]
    assert np.allclose(said, want, rtol=2e-5, atol=2e-5), (said, want)
if len(sys.argv) > 3:
    with h5py.File(sys.argv[3]) as f: said = f["scores"][:]
    z = v[0] @ w + b
    assert np.allclose(said[:, 0], z[:, 0] * deviation + mean, rtol=1e-4, atol=1e-4)
    assert np.allclose(said[:, 1:], 1 / (1 + np.exp(-z[:, 1:])), atol=1e-5)
END
tables=(--x x --y mass,flags --model table.yaml --validation tables-test.h5 "${plain[@]}" --learning-rate 0.1 --global-batch 48 --steps 5)
for way in "1 standard" "3 standard --accumulate 2" "2 standard --reproducible" "2 none"; do
  read -r ranks scale options <<<"$way"
  check "numbers beside labels: $ranks ranks, $scale $options"
  # shellcheck disable=SC2086
  succeeds -n "$ranks" train --data tables.h5 "${tables[@]}" --normalize-targets "$scale" $options --run "runs/table-$ranks-$scale"
  rm -f said.h5
  succeeds predict "runs/table-$ranks-$scale" --data tables-test.h5 --out said.h5
  python3 tables.py "$scale" "runs/table-$ranks-$scale" said.h5 2>why || failed "$(tail -n 1 why)"
done
check "a network of numbers beside labels has an ONNX graph"
succeeds export runs/table-1-standard --format onnx --out table.onnx
expect_out 'written to table.onnx'

check "label columns of a table are targets; losses that name none judge all of them"
python3 - <<'END'
import h5py, numpy as np
with h5py.File("tables.h5") as f:
    rows = np.column_stack([f["x"][:], f["mass"][:], f["flags"][:]])
np.savetxt("table.csv", rows, delimiter=",", header="a,b,c,d,e,mass,left,right", comments="")
END
must_run pack --x table.csv --label-column mass,left,right --regression --out packed-table
network columns "$dense" 'losses:' '- {loss: mean-squared-error, with: mass}' '- {loss: binary-cross-entropy, with: left}' \
  '- {loss: mean-absolute-error, with: right, weight: 2}'
succeeds train --data packed-table --model columns.yaml "${plain[@]}" --learning-rate 0.01 --steps 2 --run runs/columns
expect_out 'left binary-cross-entropy'
succeeds predict runs/columns --data packed-table --out columns.h5
cut -d , -f 1-5 table.csv >bare.csv
must_run pack --x bare.csv --columns-from packed-table --out packed-bare
succeeds predict runs/columns --data packed-bare --out bare.h5
python3 -c "
import h5py, numpy
said = h5py.File('columns.h5')['scores'][:]
assert ((0 < said[:, 1]) & (said[:, 1] < 1)).all()
assert numpy.array_equal(said, h5py.File('bare.h5')['scores'][:])" || failed "predictions of the label are probabilities, with targets or without"
network all "$dense" 'losses:' '- {loss: mean-squared-error}' '- {loss: huber, weight: 2}'
succeeds train --data packed-table --model all.yaml "${plain[@]}" --learning-rate 0.01 --steps 2 --run runs/all
expect_out 'mean-squared-error [0-9.]+  huber'

# refused TEXT LOSSES OPTION...: a file with these losses.
refused() {
  local text=$1 losses=$2
  shift 2
  network wrong "$layer" 'losses:' "$losses"
  for n in 1 3; do
    check "$text, $n ranks"
    fails 2 "$text" -n $n train --model wrong.yaml "${plain[@]}" "${rate[@]}" --steps 1 --run runs/refused "$@"
  done
}
layer=$dense tables=(--data tables.h5 --x x)
two='- {loss: huber, with: mass}'
refused 'wrong.yaml:5: losses: boxes is no output of the network' "- {loss: huber, with: mass, of: boxes}" "${tables[@]}" --y mass
refused 'wrong.yaml:5: losses: the data have no target boxes, but mass, flags' '- {loss: huber, with: boxes}' "${tables[@]}" --y mass,flags
refused 'wrong.yaml:5: losses: no loss judges the target flags' "$two" "${tables[@]}" --y mass,flags
refused 'wrong.yaml:5: losses: huber says not which target it judges' '- {loss: huber}'$'\n'"$two" "${tables[@]}" --y mass,flags
refused "losses: huber judges mass and huber judges flags, and the data have one target" \
  "$two"$'\n''- {loss: huber, with: flags}' "${tables[@]}" --y mass
refused 'wrong.yaml:5: losses: head is columns 1 to 3 of 3 of the output, and the target mass columns 1 to 1' \
  '- {loss: huber, with: mass, of: head}' "${tables[@]}" --y mass,flags
refused 'wrong.yaml:5: losses: weight: 0 is no number from 1e-06 to 1e\+06' '- {loss: huber, weight: 0}' "${tables[@]}" --y mass
refused 'wrong.yaml:5: losses: weight: -1 is no number from 1e-06 to 1e\+06' '- {loss: huber, weight: -1}' "${tables[@]}" --y mass
refused 'losses: hubber is no loss; did you mean huber' '- {loss: hubber}' "${tables[@]}" --y mass
refused 'losses: mass huber is there twice' "$two"$'\n'"$two"$'\n''- {loss: huber, with: flags}' "${tables[@]}" --y mass,flags
refused 'losses: dice wants classes and huber numbers' "- {loss: huber}"$'\n''- {loss: dice}' "${tables[@]}" --y mass
refused 'losses: --loss softmax-cross-entropy needs class labels' '- {loss: softmax-cross-entropy}' "${tables[@]}" --y mass
refused 'targets 2 to 3 of sample [0-9]+ hold 0\.5, and binary-cross-entropy needs labels of 0 and 1' \
  "$two"$'\n''- {loss: binary-cross-entropy, with: halves}' "${tables[@]}" --y mass,halves
refused 'binary-cross-entropy and soft-cross-entropy judge targets of two kinds' \
  '- {loss: binary-cross-entropy, with: flags}'$'\n''- {loss: soft-cross-entropy, with: chances}' "${tables[@]}" --y flags,chances
refused 'soft-cross-entropy and binary-cross-entropy judge targets of two kinds|soft-cross-entropy judges the only target' \
  '- {loss: soft-cross-entropy, with: chances}'$'\n''- {loss: binary-cross-entropy, with: flags}' "${tables[@]}" --y chances,flags
refused 'wrong.yaml:5: losses: weight: 1e39 is no number from 1e-06 to 1e\+06' '- {loss: huber, weight: 1e39}' "${tables[@]}" --y mass
refused '--loss huber: wrong.yaml names its losses itself: leave --loss out' '- {loss: huber}' "${tables[@]}" --y mass --loss huber
refused '--loss huber: wrong.yaml names its losses itself: leave --loss out' '- {loss: mean-squared-error}' "${tables[@]}" --y mass --loss huber
refused "a network's file with several losses.*servers know the sum of them alone" "$two"$'\n''- {loss: mean-absolute-error, with: mass}' \
  "${tables[@]}" --y mass --agree quorum=1
layer=$pixel
refused 'wrong.yaml:5: losses: --loss dice needs masks' '- {loss: dice}' --data tables.h5 --x x --y mass
refused 'wrong.yaml:5: losses: dice ignores the label 7, and the data have 255 for that' '- {loss: dice, ignore: 7}' --data packed
refused '--class-weight is for cross-entropy, and --loss dice counts each class of a sample alike' '- {loss: dice}' --data packed \
  --class-weight balanced
check "class weights weigh the cross-entropy beside Dice"
succeeds train --data packed --model both.yaml "${plain[@]}" "${rate[@]}" --class-weight balanced --steps 2 --run runs/weighted
