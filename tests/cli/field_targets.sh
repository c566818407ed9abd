#!/usr/bin/env bash
# Fields to predict: numbers at each position of a sample. Packed, read in place, trained on several ranks, evaluated, predicted, exported.
# Losses, scale and report equal float64 NumPy; each channel has a scale of its own, whatever the positions.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(11)
def smooth(n, *extents):
    x = r.normal(size=(n, *extents))
    for axis in range(1, 1 + len(extents)):
        x = (x + np.roll(x, 1, axis) + np.roll(x, -1, axis)) / 3
    return x
def fields(n, h=6, w=5):
    x = np.stack([smooth(n, h, w), 280 + 9 * smooth(n, h, w)], -1)
    a = x[..., 0] + 0.5 * np.roll(x[..., 0], 1, 2)
    b = (x[..., 1] - 280) / 9
    return x.astype("f4"), np.stack([1e-3 * a, 90000 + 700 * b * a], -1).astype("f4")  # channels of very different size
def write(name, **arrays):
    with h5py.File(name, "w") as f:
        for key, values in arrays.items(): f[key] = values
x, y = fields(24)
tx, ty = fields(11)
write("train.h5", state=x, after=y), write("test.h5", state=tx, after=ty)
np.save("x.npy", x), np.save("y.npy", y)
np.savez("both.npz", x=x, y=y)
write("first.h5", state=np.moveaxis(x, 3, 1), after=np.moveaxis(y, 3, 1))          # channels first
write("apart.h5", state=x, small=y[..., 0], large=y[..., 1])                      # a data set for each channel
write("one.h5", state=x, after=y[..., 0] * 1000)                                  # no extent for the only channel
write("last.h5", state=x, after=y[..., :1] * 1000)
write("whole.h5", state=x, after=np.round(50 * y[..., 0] * 1000).astype("i2"))    # whole numbers
write("rows.h5", state=x, after=y.mean((1, 2)))
write("times.h5", state=x, after=np.stack([1.7e9 + x[..., 0].astype(float), x[..., 1]], -1))  # float64
write("emulator.h5", x=x.mean((1, 2)), y=y)
write("bytes.h5", image=r.integers(0, 256, (24, 6, 5, 2)).astype("u1"))
write("scalar.h5", state=x, small=y[..., 0], mean=y[..., 1].mean((1, 2)))
fine = np.stack([smooth(30, 8, 12) for _ in range(2)], -1).astype("f4")
write("fine.h5", low=fine.reshape(30, 4, 2, 6, 2, 2).mean((2, 4)), high=fine)
series = smooth(40, 30)[..., None].repeat(3, -1) + 0.1 * r.normal(size=(40, 30, 3))
write("series.h5", signal=series.astype("f4"), clean=series[..., :2].astype("f4"), first=series[..., 0].astype("f4"))
volume = smooth(10, 4, 6, 5)[..., None].astype("f4")
write("plane.h5", signal=series[:10].astype("f4"), clean=np.moveaxis(series[:10, :, :2], 2, 1).astype("f4"))
write("volumes.h5", x=volume, y=2 * volume[..., 0] + 1)
write("two.h5", x=np.concatenate([volume, 500 + 30 * volume], -1), y=volume[..., 0])
bad = y.copy(); bad[3, 2, 1, 0] = np.nan
write("bad.h5", state=x, after=bad)
END
python3 data.py || exit 1
names=(--x state --y after)
pack_names=(--x-name state --y-name after)
cat >net.yaml <<'END'
name: net
inputs: {state: [any, any, any]}
network:
  - conv: {channels: 7, kernel: 3, activation: tanh, name: hidden}
  - conv: {channels: $outputs, kernel: 3, name: head}
END
plain=(--optimizer sgd --learning-rate 0.1 --schedule constant --no-tensorboard --progress off --report-every 1)

check "packed from HDF5, NPY and NPZ; the shards hold the numbers, channels last"
succeeds pack --x train.h5 "${pack_names[@]}" --shards 3 --out packed
expect_silence; expect_out 'y float32 \[6, 5, 2\] \(numbers to predict\)'
succeeds pack --x x.npy --y y.npy --out arrays
succeeds pack --x both.npz --out both
succeeds pack --x first.h5 "${pack_names[@]}" --layout nchw --out turned
succeeds pack --x apart.h5 --x-name state --y-name small,large --out apart
succeeds pack --x whole.h5 "${pack_names[@]}" --regression --out whole
expect_out 'y float32 \[6, 5\] \(numbers to predict\)'
python3 - <<'END' || failed "packed fields"
import h5py, glob, numpy as np
want = np.load("y.npy")
for folder in "packed", "arrays", "both", "turned":
    y = np.concatenate([h5py.File(f)["y"][:] for f in sorted(glob.glob(folder + "/shard-*.h5"))])
    assert y.dtype == np.float32 and np.array_equal(y, want), folder
END
succeeds info packed
expect_out 'y +float32 \[6, 5, 2\], fields of 6 x 5 with 2 channels'
succeeds info train.h5 "${names[@]}"
expect_out 'predicts fields of 6 x 5 with 2 channels by squared error'

# The expected losses: gradient descent on all samples in float64, from the weights of a checkpoint.
cat >expected.py <<'END'
import h5py, json, numpy as np, sys
run, scaled, loss, first, last = sys.argv[1], sys.argv[2] == "standard", sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
with h5py.File(f"{run}/checkpoints/step-{first:010d}.h5") as f:
    found = {}
    f.visititems(lambda name, item: found.__setitem__(name.split("parameters/")[-1], item[...]) if isinstance(item, h5py.Dataset) else None)
w1, b1, w2, b2 = (found[k].astype(float) for k in ("hidden/weight", "hidden/bias", "head/weight", "head/bias"))
x, y = np.load("x.npy").astype(float), np.load("y.npy").astype(float)
x = (x - x.mean((0, 1, 2))) / x.std((0, 1, 2))
scale = y.std((0, 1, 2))
if scaled: y = (y - y.mean((0, 1, 2))) / scale
def patches(v):
    p = np.pad(v, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate([p[:, i:i + v.shape[1], j:j + v.shape[2]] for i in range(3) for j in range(3)], -1)
def back(d, channels):
    n, h, w, _ = d.shape
    p = np.zeros((n, h + 2, w + 2, channels))
    for k in range(9): p[:, k // 3:k // 3 + h, k % 3:k % 3 + w] += d[..., k * channels:(k + 1) * channels]
    return p[:, 1:-1, 1:-1]
w1, w2 = w1.reshape(-1, w1.shape[-1]), w2.reshape(-1, w2.shape[-1])
for step in range(first + 1, last + 1):
    p1 = patches(x)
    a = np.tanh(p1 @ w1 + b1)
    p2 = patches(a)
    e = p2 @ w2 + b2 - y
    if loss == "mean-squared-error": value, g = (e * e).mean(), 2 * e / e.size
    elif loss == "mean-absolute-error": value, g = np.abs(e).mean(), np.sign(e) / e.size
    else: value, g = np.where(abs(e) <= 1, e * e / 2, abs(e) - 0.5).mean(), np.clip(e, -1, 1) / e.size
    print(step, repr(float(value)), repr(float(np.abs(e).mean())))
    d = back(g @ w2.T, a.shape[-1]) * (1 - a * a)
    w2, b2 = w2 - 0.1 * np.einsum("nhwp,nhwc->pc", p2, g), b2 - 0.1 * g.sum((0, 1, 2))
    w1, b1 = w1 - 0.1 * np.einsum("nhwp,nhwc->pc", p1, d), b1 - 0.1 * d.sum((0, 1, 2))
END
count=0
for loss in mean-squared-error mean-absolute-error huber; do
  for way in "1 --data train.h5 ${names[*]}" "3 --data packed" "1 --data first.h5 ${names[*]} --layout nchw" "2 --data apart --accumulate 3" \
    "3 --data turned --reproducible"; do
    read -r ranks options <<<"$way"
    [ "$loss" = mean-squared-error ] || [ "$ranks" != 1 ] || [[ "$options" != *first* ]] || continue
    check "a step's loss is the mean over positions and channels, each with its scale: $loss, $ranks ranks $options"
    count=$((count + 1))
    # shellcheck disable=SC2086
    succeeds -n "$ranks" train $options --model net.yaml "${plain[@]}" --loss "$loss" --normalize per-feature --normalize-targets standard \
      --global-batch 24 --steps 6 --checkpoint-every 1 --keep 9 --run "runs/$count"
    expect_out 'data: 24 samples in .*, fields of 6 x 5 with 2 channels'
    "$python" expected.py "runs/$count" standard "$loss" 1 6 >wanted
    paste <(metric "runs/$count" train loss | tail -n 5) <(metric "runs/$count" train mean_absolute_error | tail -n 5) wanted |
      awk '{ a = ($2 - $6) / $6; b = ($4 - $7) / $7; if (a * a > 1e-9 || b * b > 1e-9) bad = 1 } END { exit bad || NR != 5 }' ||
      failed "$(metric "runs/$count" train loss | tr '\n' ' ') and $(metric "runs/$count" train mean_absolute_error | tr '\n' ' ') instead of $(tr '\n' ' ' <wanted)"
  done
done

check "one mean and one deviation for each channel are stored, those of all positions, with the constant"
succeeds info runs/1/checkpoints/latest
expect_out 'targets +fields of 6 x 5 with 2 channels'
"$python" - <<'END' || failed "what the checkpoint stores"
import glob, h5py, json, numpy as np
y = np.load("y.npy").astype(float)
def description(run):
    with h5py.File(sorted(glob.glob(run + "/checkpoints/step-*.h5"))[-1]) as f:
        state = f["state"]
        return json.loads(state.attrs["data_description"] if "data_description" in state.attrs else state["data_description"][...].tobytes())
d = description("runs/1")
assert d["field"] == [6, 5] and d["target_shape"] == [6, 5, 2], (d["field"], d["target_shape"])
assert np.allclose(d["target_scale"]["mean"], y.mean((0, 1, 2)), rtol=1e-6), d["target_scale"]
assert np.allclose(d["target_scale"]["deviation"], y.std((0, 1, 2)), rtol=1e-5), d["target_scale"]
assert np.allclose(d["target_means"], 0, atol=1e-4) and len(d["target_means"]) == 2, d["target_means"]
d = description("runs/4")
assert d["target_names"] == ["small", "large"] and d["field"] == [6, 5], d
END

check "validations, eval, its report and predictions are the same at one to five ranks, as NumPy says"
for n in 1 2 3 5; do
  succeeds -n $n train --data packed --validation test.h5 "${names[@]}" --model net.yaml --optimizer adam --learning-rate 0.01 --no-tensorboard \
    --progress off --global-batch 8 --reproducible --epochs 6 --checkpoint-every 3 --evaluation-batch 4 --run "runs/net-$n"
  for key in loss mean_absolute_error; do metric "runs/net-$n" validation $key; done >"curves-$n"
  expect_same curves-1 "curves-$n"
  rm -f report.json
  succeeds -n $n eval runs/net-1 --report --json report.json
  mv report.json "report-$n"; expect_same report-1 "report-$n"
  succeeds -n $n predict runs/net-1 --data test.h5 "${names[@]}" --out "fields-$n.h5"
  expect_silence; expect cmp fields-1.h5 "fields-$n.h5"
done
expect_out 'fields-|11 predictions'
run train --data packed --validation test.h5 "${names[@]}" --model net.yaml --dry-run
expect_out 'to beat: a constant \(the mean of each channel of the training fields\) reaches .* \(standard deviations\)'
run eval runs/net-1 --report
expect_out '^target +positions +MAE +RMSE +R2 +MAE of the training mean$'; expect_out '^channel_0 +330 '; expect_out '^channel_1 +330 '
succeeds export runs/net-1 --format onnx --out net.onnx
python3 - <<'END' || failed "what the report says"
import h5py, json, numpy as np
with h5py.File("fields-1.h5") as f, h5py.File("test.h5") as d, h5py.File("train.h5") as t:
    said, target, truth, mean = f["scores"][:].astype(float), f["target"][:], d["after"][:], t["after"][:].astype(float).mean((0, 1, 2))
assert said.shape == (11, 6, 5, 2) and np.array_equal(target, truth)
records = [json.loads(line) for line in open("report-1")]
channels = [r for r in records if r["kind"] == "target"]
error = said - truth
assert len(channels) == 2 and [r["samples"] for r in channels] == [330, 330]
assert np.allclose([r["mean_absolute_error"] for r in channels], np.abs(error).mean((0, 1, 2)), rtol=1e-5)
assert np.allclose([r["root_mean_squared_error"] for r in channels], np.sqrt((error ** 2).mean((0, 1, 2))), rtol=1e-5)
assert np.allclose([r["r_squared"] for r in channels], 1 - (error ** 2).sum((0, 1, 2)) / ((truth - truth.mean((0, 1, 2), dtype=float)) ** 2).sum((0, 1, 2)), rtol=1e-4)
assert np.allclose([r["constant_mean_absolute_error"] for r in channels], np.abs(mean - truth).mean((0, 1, 2)), rtol=1e-4)
END
if onnx=$(peer_python onnxruntime h5py) || onnx=$(peer_python onnxruntime); then
  check "onnxruntime gives the predictions"
  python3 -c "
import h5py, numpy as np
np.savez('peer.npz', x=h5py.File('test.h5')['state'][:], want=h5py.File('fields-1.h5')['scores'][:])"
  "$onnx" - <<'END' || failed "onnxruntime"
import numpy as np, onnxruntime
d, s = np.load("peer.npz"), onnxruntime.InferenceSession("net.onnx")
got = s.run(None, {s.get_inputs()[0].name: d["x"].reshape([-1] + s.get_inputs()[0].shape[1:])})[0]
assert got.shape == d["want"].shape, got.shape
assert (np.abs(got - d["want"]).max((0, 1, 2)) < 1e-4 * d["want"].std((0, 1, 2)) + 1e-6 * np.abs(d["want"]).max((0, 1, 2))).all()
END
fi

check "samples without targets are predicted, a field of one channel as its data had it"
for file in one last; do
  succeeds -n 2 train --data $file.h5 "${names[@]}" --model net.yaml "${plain[@]}" --steps 3 --run runs/$file
  expect_silence; expect_out 'fields of 6 x 5 with 1 channel'
  python3 -c "
import h5py
with h5py.File('test.h5') as f, h5py.File('new.h5', 'w') as g: g['state'] = f['state'][:]"
  succeeds -n 2 predict runs/$file --data new.h5 --x state --out $file-new.h5
done
python3 - <<'END' || failed "shapes of predictions"
import h5py
for name, shape in ("one", (11, 6, 5)), ("last", (11, 6, 5, 1)):
    with h5py.File(name + "-new.h5") as f: assert f["scores"].shape == shape and "target" not in f, f["scores"].shape
END
succeeds -n 2 train --data whole --model net.yaml "${plain[@]}" --steps 3 --run runs/whole
expect_out 'fields of 6 x 5 with 1 channel'

check "a field may be larger than its sample; series and volumes"
cat >fine.yaml <<'END'
name: fine
inputs: {low: [any, any, any]}
network:
  - conv: {channels: 8, kernel: 3, activation: relu}
  - upsample: {factor: 2, mode: linear}
  - conv: {channels: $outputs, kernel: 3}
END
succeeds -n 2 train --data fine.h5 --x low --y high --model fine.yaml --validation 0.2 --learning-rate 0.01 --epochs 15 --batch 4 --progress off --run runs/fine
expect_silence; expect_out 'fields of 8 x 12 with 2 channels'
succeeds predict runs/fine --out fine-out.h5
python3 -c "import h5py; assert h5py.File('fine-out.h5')['scores'].shape == (6, 8, 12, 2)" || failed "shape of enlarged fields"
printf '%s\n' 'name: net' 'inputs: {signal: [any, any]}' 'network:' '- conv: {channels: 6, kernel: 3, activation: relu}' \
  '- conv: {channels: $outputs, kernel: 1}' >series.yaml
succeeds -n 2 train --data series.h5 --x signal --y clean --model series.yaml "${plain[@]}" --steps 3 --run runs/series
expect_silence; expect_out 'fields of 30 with 2 channels'
succeeds -n 2 train --data series.h5 --x signal --y first --layout first=nl --model series.yaml "${plain[@]}" --steps 3 --run runs/first
expect_out 'fields of 30 with 1 channel'
python3 -c "
import h5py
with h5py.File('series.h5') as f, h5py.File('signal.h5', 'w') as g: g['signal'] = f['signal'][:7]"
succeeds predict runs/first --data signal.h5 --x signal --out series-out.h5
python3 -c "import h5py; assert h5py.File('series-out.h5')['scores'].shape == (7, 30)" || failed "shape of predicted series"
printf '%s\n' 'name: net' 'inputs: {x: [any, any, any, any]}' 'network:' '- conv: {channels: 3, kernel: 3, activation: relu}' \
  '- conv: {channels: $outputs, kernel: 1}' >volumes.yaml
succeeds -n 2 train --data volumes.h5 --model volumes.yaml "${plain[@]}" --steps 3 --run runs/volumes
expect_silence; expect_out 'fields of 4 x 6 x 5 with 1 channel'

succeeds train --data two.h5 --model volumes.yaml --dry-run
expect_out '\(2 channels to mean 0, deviation 1\)'

check "the order that is given holds for packed data, too"
succeeds train --data one.h5 "${names[@]}" --model net.yaml --dry-run
expect_out 'fields of 6 x 5 with 1 channel \(--layout y=nlc: of 6 with 5 channels\)'
succeeds pack --x plane.h5 --x-name signal --y-name clean --layout clean=ncl --out plane
python3 -c "
import h5py, glob
with h5py.File('plane.h5') as f, h5py.File(glob.glob('plane/shard-*.h5')[0]) as g: assert (f['clean'][:].transpose(0, 2, 1) == g['y'][:]).all()" ||
  failed "channels first, packed"
succeeds -n 2 train --data plane.h5 --x signal --y clean --layout clean=ncl --model series.yaml "${plain[@]}" --steps 3 --run runs/plane
expect_out 'fields of 30 with 2 channels'
succeeds eval runs/plane --data plane --report
expect_out '^channel_1 +300 '

check "a loss for each target, and numbers that float32 does not tell apart"
printf 'losses: [%s]\n' '{loss: huber, with: small}, {loss: mean-squared-error, with: large, weight: 0.5}' | cat net.yaml - >losses.yaml
succeeds -n 2 train --data apart --model losses.yaml "${plain[@]}" --normalize per-feature --normalize-targets standard --global-batch 24 \
  --steps 2 --checkpoint-every 1 --keep 9 --run runs/losses
"$python" - <<'END' || failed "the losses are $(cat runs/losses/metrics.jsonl)"
import h5py, json, numpy as np
with h5py.File("runs/losses/checkpoints/step-0000000001.h5") as f:
    found = {}
    f.visititems(lambda name, item: found.__setitem__(name.split("parameters/")[-1], item[...]) if isinstance(item, h5py.Dataset) else None)
x, y = np.load("x.npy").astype(float), np.load("y.npy").astype(float)
x, y = ((v - v.mean((0, 1, 2))) / v.std((0, 1, 2)) for v in (x, y))
def conv(v, layer):
    p = np.pad(v, ((0, 0), (1, 1), (1, 1), (0, 0)))
    p = np.concatenate([p[:, i:i + 6, j:j + 5] for i in range(3) for j in range(3)], -1)
    return p @ found[layer + "/weight"].reshape(p.shape[-1], -1).astype(float) + found[layer + "/bias"]
e = conv(np.tanh(conv(x, "hidden")), "head") - y
huber, squares = np.where(abs(e) <= 1, e * e / 2, abs(e) - 0.5)[..., 0].mean(), (e[..., 1] ** 2).mean()
step = [r for r in map(json.loads, open("runs/losses/metrics.jsonl")) if r["kind"] == "train"][-1]
assert step["step"] == 2 and abs(step["loss"] / (huber + 0.5 * squares) - 1) < 1e-5, (step, huber, squares)
END
succeeds -n 2 train --data times.h5 "${names[@]}" --validation times.h5 --model net.yaml --optimizer adam --learning-rate 0.01 --epochs 2 \
  --no-tensorboard --progress off --run runs/times
succeeds eval runs/times --report
awk '$1 == "channel_0" { lines += 1; if ($3 > 2) lines = 9 } END { exit lines != 1 }' out || failed "errors of times"

check "fields from rows of numbers, whose order is given"
printf '%s\n' 'name: net' 'network:' '- dense: 90' '- reshape: [6, 5, 3]' '- conv: {channels: $outputs, kernel: 3}' >emulator.yaml
succeeds -n 2 train --data emulator.h5 --layout y=nhwc --model emulator.yaml "${plain[@]}" --validation 0.25 --steps 3 --run runs/emulator
expect_out 'fields of 6 x 5 with 2 channels'
succeeds predict runs/emulator --out emulator-out.h5
python3 -c "import h5py; assert h5py.File('emulator-out.h5')['scores'].shape == (6, 6, 5, 2)" || failed "shape of fields from rows"

check "the output may be one row of all numbers"
printf '%s\n' 'name: net' 'network:' '- flatten' '- {dense: {units: 60, name: last}}' >row.yaml
{ cat row.yaml; echo '- reshape: [6, 5, 2]'; } >reshaped.yaml
for file in row reshaped; do
  succeeds -n 2 train --data packed --validation test.h5 "${names[@]}" --model $file.yaml "${plain[@]}" --steps 3 --run runs/$file
  metric runs/$file train loss >$file.curve
  succeeds predict runs/$file --out $file.h5
done
expect_same row.curve reshaped.curve
python3 -c "
import h5py
a, b = (h5py.File(f)['scores'][:] for f in ('row.h5', 'reshaped.h5'))
assert a.shape == (11, 6, 5, 2) and (a == b).all()" || failed "predictions of a row"
succeeds export runs/row --format onnx --out row.onnx

check "a run resumes bit for bit"
succeeds -n 2 train --data packed --model net.yaml "${plain[@]}" --global-batch 8 --steps 6 --checkpoint-every 3 --keep 9 --run runs/whole-run
succeeds -n 2 train --data packed --model net.yaml "${plain[@]}" --global-batch 8 --steps 3 --run runs/half
succeeds -n 2 train --resume runs/half --data packed --model net.yaml "${plain[@]}" --global-batch 8 --steps 6 --run runs/half
expect python3 "$tree/tests/cli/checkpoint_tensors.py" runs/whole-run/checkpoints/step-0000000006.h5 runs/half/checkpoints/step-0000000006.h5 4

check "what is refused, in one sentence"
refused() { fails "$1" "$2" -n 2 train "${plain[@]}" --steps 2 --run runs/none "${@:3}"; }
refused 2 "the network's output is 4 x 6 x 2 of each sample, and fields of 8 x 12 with 2 channels ask for 8 x 12 x 2: give it as many positions as the fields" \
  --data fine.h5 --x low --y high --model net.yaml
printf '%s\n' 'name: net' 'network:' '- conv: {channels: 3, kernel: 3}' >three.yaml
sed 's/state:/image:/' net.yaml >image.yaml
refused 2 'fields of 6 x 5 with 2 channels ask for 6 x 5 x 2: end with `conv: \{channels: \$outputs, kernel: 1\}`' --data packed --model three.yaml
printf '%s\n' 'name: net' 'network:' '- conv: {channels: 2, kernel: 3}' '- reshape: [30, 2]' >flat.yaml
refused 2 'ask for 6 x 5 x 2: end with `reshape: \[6, 5, 2\]`' --data packed --model flat.yaml
printf '%s\n' 'name: net' 'network:' '- flatten' '- dense: 59' >short.yaml
refused 2 "the network's output is 59 of each sample, and fields of 6 x 5 with 2 channels ask for" --data packed --model short.yaml
refused 2 '--augment moves the pixels of samples, and not the numbers at the positions of their fields' --data packed --augment flip --model net.yaml
refused 2 '--loss soft-cross-entropy needs probabilities of the classes of a sample, and the data hold fields' \
  --data packed --loss soft-cross-entropy --model net.yaml
printf 'losses: [%s]\n' '{loss: huber, with: small}, {loss: binary-cross-entropy, with: large}' | cat net.yaml - >labels.yaml
refused 2 'labels.yaml:[0-9]+: losses: binary-cross-entropy judges labels or classes, and the data hold fields' --data apart --model labels.yaml
printf 'losses: [%s]\n' '{loss: huber, with: small}, {loss: softmax-cross-entropy, with: large, classes: 3}' | cat net.yaml - >classes.yaml
refused 2 'classes.yaml:[0-9]+: losses: softmax-cross-entropy judges labels or classes, and the data hold fields' --data apart --model classes.yaml
refused 1 'small has numbers of \[6, 5\] for each sample and mean of \[\]: several targets have the same positions' \
  --data scalar.h5 --x state --y small,mean --layout small=nhw --model net.yaml
refused 2 'masks of 6 x 5 x 2 with [0-9]+ classes ask for .*; --loss mean-squared-error takes y as numbers, not classes' \
  --data bytes.h5 --x image --y image --model three.yaml
succeeds train --data bytes.h5 --x image --y image --loss mean-squared-error --model image.yaml "${plain[@]}" --steps 2 --run runs/bytes
expect_out 'fields of 6 x 5 with 2 channels'
refused 1 'bad.h5: sample 3 holds NaN or infinity in y' --data bad.h5 "${names[@]}" --model net.yaml
refused 2 'rows.h5 does not fit packed: .* 2 regression targets against .* fields of 6 x 5 with 2 channels' \
  --data packed --validation rows.h5 "${names[@]}" --model net.yaml
refused 1 "--layout what=nhwc: the inputs are state" --data train.h5 "${names[@]}" --layout what=nhwc --model net.yaml
refused 1 "--layout nhw names 2 extents, and the samples of y have 3" --data train.h5 "${names[@]}" --layout state=nhwc,after=nhw --model net.yaml
fails 2 'rows.h5 does not fit the network: ' eval runs/net-1 --data rows.h5 "${names[@]}"
fails 2 '--csv writes a line for each sample, and predictions are fields here' predict runs/net-1 --out none.h5 --csv none.csv
