#!/usr/bin/env bash
# Labels at each position of a sample (masks): packed, trained on several ranks, evaluated, predicted; the loss of a step
# is the mean over the positions that have a class, by their weights, whatever the ranks, micro-steps and virtual ranks.
# label: more
# seconds: 300
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(5)
def images(name, samples, extents, channels, ignored=0.2):
    x = r.normal(size=(samples, *extents, channels)).astype("f4")
    y = (x.sum(-1) > 0).astype("u1") + (x[..., 0] > 1)
    y[0] = 0  # samples differ in their classes, and in how many positions have one
    hidden = r.random(y.shape) < ignored * r.random((samples,) + (1,) * len(extents)) * 2
    y[hidden] = 255
    with h5py.File(name, "w") as f:
        f["image"], f["mask"] = x, y
    return x, y
x, y = images("images.h5", 24, (6, 5), 2)
np.save("x.npy", x), np.save("y.npy", y)
images("test.h5", 11, (6, 5), 2)
images("volumes.h5", 12, (4, 6, 4), 2)
images("series.h5", 20, (30,), 2)
def made(name, mask):
    with h5py.File(name, "w") as f:
        f["image"], f["mask"] = x, mask
made("wrong.h5", np.where(y == 255, 1, y)[:, :3, :3])
made("numbers.h5", y / 7.5)
made("floats.h5", y.astype("f4")[..., None])
made("negative.h5", np.where(y == 255, -1, y).astype("i2"))
made("classes.h5", y[:, 0, 0] % 255)
y[:12] = 255
made("blank.h5", y)
END
python3 data.py || exit 1
printf '%s\n' 'name: pixels' 'network:' '- conv: {channels: $outputs, kernel: 1, init: zeros, name: head}' >pixels.yaml
names=(--x image --y mask)
foreign=("${names[@]}" --ignore-label 255)
pack_names=(--x-name image --y-name mask)
plain=(--optimizer sgd --learning-rate 0.5 --normalize none --no-tensorboard --progress off --report-every 1)

check "packed from HDF5 and from NumPy files, with the ignored label in the manifest"
succeeds pack --x images.h5 "${pack_names[@]}" --ignore-label 255 --shards 3 --out packed
expect_silence
expect_out 'y uint8 \[6, 5\] \(masks: a class for each position\)'; expect_out '^classes  3$'
succeeds pack --x x.npy --y y.npy --ignore-label 255 --out arrays
expect_out 'masks: a class'; expect_out '^classes  3$'
expect grep -q '"ignored_label": 255' arrays/manifest.json
succeeds pack --x floats.h5 "${pack_names[@]}" --ignore-label 255 --out floats
expect_out '^classes  3$'
succeeds pack --x negative.h5 "${pack_names[@]}" --ignore-label -1 --out negative
expect_out '^classes  3$'
python3 - <<'END' || failed "packed masks"
import h5py, glob, numpy as np
want = np.load("y.npy")
for folder in "packed", "arrays", "floats", "negative":
    y = np.concatenate([h5py.File(f)["y"][:] for f in sorted(glob.glob(folder + "/shard-*.h5"))])
    assert y.dtype == np.uint8 and np.array_equal(y, want), folder
END
succeeds info packed
expect_out 'y +uint8 \[6, 5\], masks of 3 classes, 255 belongs to none'
expect_out "classes of the masks' positions"
succeeds pack --x images.h5 "${pack_names[@]}" --ignore-label 255 --validation 6 --out split
expect grep -q '"ignored_label": 255' split/validation/manifest.json

# The expected losses: gradient descent on all samples in float64.
cat >expected.py <<'END'
import h5py, numpy as np, sys
with h5py.File("images.h5") as f:
    x, y = f["image"][:].astype(float).reshape(-1, 2), f["mask"][:].reshape(-1)
x, y = x[y != 255], y[y != 255]
weights = len(y) / (3 * np.bincount(y)) if sys.argv[1] == "balanced" else np.array([float(w) for w in sys.argv[1].split(",")])
w, b, of = np.zeros((2, 3)), np.zeros(3), weights[y] / weights[y].sum()
for step in range(1, 6):
    z = x @ w + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    print(step, repr(float(-(of * np.log(p[np.arange(len(y)), y])).sum())), repr(float((z.argmax(1) == y).mean())))
    p[np.arange(len(y)), y] -= 1
    g = p * of[:, None]
    w, b = w - 0.5 * x.T @ g, b - 0.5 * g.sum(0)
END
# as_expected RUN WEIGHTS: losses and accuracies of the steps.
as_expected() {
  "$python" expected.py "$2" >wanted
  paste <(metric "$1" train loss) <(metric "$1" train accuracy) wanted |
    awk '{ a = $2 - $6; b = $4 - $7; if (a * a > 1e-11 || b * b > 1e-12) bad = 1 } END { exit bad || NR != 5 }' ||
    failed "$1: $(metric "$1" train loss | tr '\n' ' ') and accuracy $(metric "$1" train accuracy | tr '\n' ' ') instead of $(tr '\n' ' ' <wanted)"
}
count=0
for weights in 1,1,1 1,2.5,7 balanced; do
  for way in "1 --data images.h5 ${foreign[*]}" "3 --data packed" "5 --data arrays" "2 --data packed --accumulate 3" \
    "1 --data packed --reproducible" "3 --data packed --reproducible" "2 --data packed --reproducible --virtual-ranks 5"; do
    read -r ranks options <<<"$way"
    check "the loss of a step is the weighted mean over its positions: weights $weights, $ranks ranks $options"
    count=$((count + 1))
    [ "$weights" = 1,1,1 ] || options="$options --class-weight $weights"
    # shellcheck disable=SC2086
    succeeds -n "$ranks" train $options --model pixels.yaml "${plain[@]}" --global-batch 24 --steps 5 --run "runs/$count"
    as_expected "runs/$count" "$weights"
    [[ "$way" != *--reproducible ]] || metric "runs/$count" train loss >"$ranks-$weights"
  done
  expect_same "1-$weights" "3-$weights"
done

check "weights have the same bits at any number of ranks with --reproducible, with augmentation, too"
for n in 1 2 3; do
  succeeds -n $n train --data packed --model pixels.yaml "${plain[@]}" --augment pad=1,crop=6x5,flip --class-weight balanced --global-batch 7 \
    --reproducible --virtual-ranks 7 --epochs 3 --run "runs/same-$n"
  must_run export "runs/same-$n" --checkpoint latest --out "same-$n.safetensors"
done
expect cmp same-1.safetensors same-2.safetensors; expect cmp same-1.safetensors same-3.safetensors

check "validations, eval and its report count the same at one to five ranks, as predictions say"
printf '%s\n' 'name: net' 'network:' '- conv: {channels: 6, kernel: 3, activation: relu}' '- conv: {channels: $outputs, kernel: 1}' >net.yaml
for n in 1 2 3 5; do
  succeeds -n $n train --data packed --validation test.h5 "${foreign[@]}" "${plain[@]}" --model net.yaml --global-batch 8 --reproducible \
    --epochs 6 --checkpoint-every 3 --keep 9 --evaluation-batch 4 --run "runs/net-$n"
  for key in loss accuracy mean_iou; do metric "runs/net-$n" validation $key; done >"curves-$n"
  expect_same curves-1 "curves-$n"
  rm -f report.json
  succeeds -n $n eval runs/net-1 --report --json report.json
  mv report.json "report-$n"; expect_same report-1 "report-$n"
  succeeds -n $n predict runs/net-1 --data test.h5 "${names[@]}" --out "masks-$n.h5"
  expect_silence; expect cmp masks-1.h5 "masks-$n.h5"
done
expect grep -qx 'best-by = mean-iou' runs/net-1/config.ini
run eval runs/net-1 --report
expect_out '^class +positions +precision +recall +F1 +IoU$'
expect_out 'accuracy [0-9.]+ %  mean IoU 0\.[0-9]+  \(11 samples\)'
python3 - <<'END' || failed "what the report says"
import h5py, json, numpy as np
with h5py.File("masks-1.h5") as f, h5py.File("test.h5") as d:
    said, target, truth = f["class"][:], f["target"][:], d["mask"][:].astype(int)
    assert "scores" not in f and said.shape == target.shape == (11, 6, 5) and said.dtype == np.int32
truth[truth == 255] = -1
assert np.array_equal(target, truth)
said, truth = said[truth >= 0], truth[truth >= 0]
records = [json.loads(line) for line in open("report-1")]
ious = [((said == c) & (truth == c)).sum() / ((said == c) | (truth == c)).sum() for c in range(3)]
f1 = [2 * ((said == c) & (truth == c)).sum() / ((said == c).sum() + (truth == c).sum()) for c in range(3)]
assert abs(records[0]["mean_iou"] - np.mean(ious)) < 1e-12 and abs(records[0]["accuracy"] - (said == truth).mean()) < 1e-12
of_class = [r for r in records if r["kind"] == "class"]
assert np.allclose([r["iou"] for r in of_class], ious) and np.allclose([r["f1"] for r in of_class], f1)
assert [r["samples"] for r in of_class] == [(truth == c).sum() for c in range(3)]
END
best=$(metric runs/net-1 validation mean_iou | sort -s -k2,2gr | head -n 1 | cut -d ' ' -f 1)
expect test "$(readlink runs/net-1/checkpoints/best)" = "$(printf 'step-%010d.h5' "$best")"

check "a resumed run continues bit for bit"
succeeds -n 2 train --data packed "${plain[@]}" --model net.yaml --class-weight balanced --global-batch 7 --accumulate 2 --steps 12 \
  --checkpoint-every 5 --keep 9 --run runs/whole
succeeds -n 2 train --resume=runs/whole/checkpoints/step-0000000005.h5 --run runs/rest
metric runs/whole train loss | tail -n 7 >whole; metric runs/rest train loss >rest; expect_same whole rest

check "predictions need no masks; report and info know the run"
python3 -c "
import h5py
with h5py.File('test.h5') as f, h5py.File('images-only.h5', 'w') as g: g['image'] = f['image'][:]"
succeeds -n 2 predict runs/net-1 --data images-only.h5 --x image --out only.h5
expect_silence
python3 -c "
import h5py, numpy as np
a, b = h5py.File('only.h5'), h5py.File('masks-1.h5')
assert np.array_equal(a['class'][:], b['class'][:]) and 'target' not in a" || failed "predictions without masks"
fails 2 "--csv writes a line for each sample, and predictions are masks here" predict runs/net-1 --data test.h5 "${names[@]}" --out x.h5 --csv x.csv
succeeds info runs/net-1
expect_silence; expect_out 'mean_iou'
succeeds report runs/net-1 --out page.html
expect_silence

check "the ignored label of packed training data holds for files that are read where they are"
succeeds -n 2 train --data packed --validation test.h5 "${names[@]}" "${plain[@]}" --model net.yaml --global-batch 8 --steps 4 --run runs/knows
succeeds -n 2 eval runs/knows --data test.h5 "${names[@]}"
cp out foreign
must_run pack --x test.h5 "${pack_names[@]}" --ignore-label 255 --out packed-test
succeeds eval runs/knows --data packed-test
expect_same <(tail -n 1 foreign) <(tail -n 1 out)
succeeds predict runs/knows --data test.h5 "${names[@]}" --out knows.h5

check "volumes, and series that are called masks"
succeeds -n 2 train --data volumes.h5 "${foreign[@]}" "${plain[@]}" --model net.yaml --batch 3 --epochs 2 --run runs/volumes
expect_silence
sed 's/^network:/inputs: {signal: [any, any]}\n&/' net.yaml >series.yaml
succeeds -n 2 train --data series.h5 "${foreign[@]}" "${plain[@]}" --model series.yaml --loss softmax-cross-entropy --batch 3 --epochs 2 --run runs/series
expect_silence
succeeds pack --x series.h5 "${pack_names[@]}" --mask --ignore-label 255 --out series
expect_out 'masks: a class'
succeeds -n 2 train --data series --validation series "${plain[@]}" --model series.yaml --batch 3 --epochs 2 --run runs/packed-series
expect_err 'the validation data are the training data'; [ "$(own_words | wc -l)" = 1 ] || failed "more than one warning"

check "what is refused, in one sentence"
printf '%s\n' 'name: net' 'network:' '- conv: {channels: 6, kernel: 3}' >six.yaml
refused() { fails "$1" "$2" -n 2 train "${plain[@]}" --steps 4 --run runs/none "${@:3}"; }
refused 2 "the network's output is 6 x 5 x 3 of each sample, and masks of 3 x 3 with 3 classes ask for 3 x 3 x 3" \
  --data wrong.h5 "${names[@]}" --model net.yaml
refused 2 'masks of 6 x 5 with 3 classes ask for 6 x 5 x 3: end with `conv: \{channels: \$outputs, kernel: 1\}`' --data packed --model six.yaml
refused 1 'negative.h5: sample [0-9]+ at \[[0-9], [0-9]\] has label -1, which is no class number \(--ignore-label' \
  --data negative.h5 "${names[@]}" --model net.yaml
succeeds train --data numbers.h5 "${names[@]}" --model net.yaml "${plain[@]}" --steps 2 --run runs/numbers
expect_out 'fields of 6 x 5 with 1 channel'
refused 1 'was packed with --ignore-label 255, and 7 is given' --data packed --ignore-label 7 --model net.yaml
refused 1 '--ignore-label is for masks, and each sample has one class here' --data classes.h5 "${names[@]}" --ignore-label 7 --model net.yaml
refused 2 '--ignore-label: x is not a whole number' --data packed --ignore-label x --model net.yaml
refused 2 '--sampling balanced draws samples by their class, and the data hold masks' --data packed --sampling balanced --model net.yaml
refused 2 '--class-weight names 2 weights, and the data have 3 classes' --data packed --class-weight 1,2 --model net.yaml
refused 2 'wrong.h5 does not fit packed: .* against .* masks of \[6, 5\]' --data packed --validation wrong.h5 "${names[@]}" --model net.yaml
refused 2 '--best-by roc-auc is no metric of masks: give auto, loss, accuracy, balanced-accuracy, f1-macro, mean-iou' \
  --data packed --validation packed --best-by roc-auc --model net.yaml
refused 2 '--agree quorum does not go with a mean over some positions of masks' --data packed --agree quorum=1 --model net.yaml
refused 1 'blank.h5: a step of 2 samples has no position whose class counts' --data blank.h5 "${foreign[@]}" --no-shuffle --global-batch 2 \
  --model net.yaml
python3 -c "
import h5py, numpy
with h5py.File('wrong.h5') as f, h5py.File('nothing.h5', 'w') as g:
    for name in f: g[name] = f[name][()] if f[name].dtype.kind == 'f' else numpy.full(f[name].shape, 255, 'u1')"
refused 1 'nothing.h5: all positions of [a-z]+ have the ignored label 255: there is nothing to learn or to judge' \
  --data nothing.h5 "${names[@]}" --ignore-label 255 --model net.yaml
fails '1|2' "classes.h5" eval runs/net-1 --data classes.h5 "${names[@]}"
fails 2 "--mask and --regression" pack --x images.h5 "${pack_names[@]}" --mask --regression --out none
succeeds pack --x images.h5 "${pack_names[@]}" --out none
expect_out '^classes  256$'
