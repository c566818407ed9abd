#!/usr/bin/env bash
# The network says what the extents of a sample mean. Each channel of series, images and volumes has a scale of its own, augmentation keeps
# the channels, and exported graphs read samples as the network does.
# seconds: 120
. "$(dirname "$0")/harness.sh"
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(0)
n = 1000
def write(name, y, **fields):
    with h5py.File(f"{name}.h5", "w") as f:
        f["y"] = y.astype("f4")
        for key, value in fields.items(): f[key] = value.astype("f4")
# A pressure in Pa, which says nothing, beside an anomaly around 0, whose mean is the target.
def two(*shape):
    a, b = r.normal(size=(2, n, *shape))
    y = b.reshape(n, -1).mean(1) * np.sqrt(np.prod(shape)) * 2
    return y, np.stack([a, b], -1), np.stack([101325 + 1000 * a, b], -1)
y, z, series = two(20)
write("series", y, x=series); write("scaled", y, x=z)
y, _, volumes = two(4, 4, 3)
write("volumes", y, x=volumes)
y, _, signal = two(20)
write("both", y, signal=signal, table=r.normal(size=(n, 2)))
write("slices", y, x=r.normal(size=(n, 6, 6, 4)) + [0, 5, 10, 15])
write("row", y, x=r.normal(size=(n, 40)) * 3 + 20)
with h5py.File("row.h5") as f: write("column", f["y"][:], x=f["x"][:][..., None])
END
net() { printf '%s\n' "name: $1" "inputs: {x: [$2]}" 'network:' '- conv: {channels: 8, kernel: 1}' '- global-average' '- dense: $outputs' >$1.yaml; }
net series 'any, any'; net image 'any, any, any'; net volume 'any, any, any, any'
cat >both.yaml <<'END'
name: both
inputs: {signal: [any, any], table: [any]}
network:
- conv: {from: signal, channels: 8, kernel: 1}
- global-average: {name: g}
- dense: {from: table, units: 4, name: t}
- concatenate: [g]
- dense: $outputs
END
plan() { succeeds train --data $1.h5 --x ${3:-x} --model $2.yaml --dry-run; }
train() { must_run train --data $1.h5 --x ${3:-x} --model $2.yaml --validation 0.2 --epochs 8 --learning-rate 0.01 --progress off --run runs/$1; }

check "each channel of a series, a volume and one of several inputs has its mean and deviation"
plan series series; expect_out 'per-feature \(2 channels to mean 0'
plan volumes volume; expect_out 'per-feature \(2 channels to mean 0'
plan both both signal,table; expect_out 'per-feature \(4 features of 2 inputs'
check "a volume of one channel has one scale, stored with its channel or without"
plan slices volume; expect_out 'per-feature \(1 channel to mean 0'
plan slices image; expect_out 'per-feature \(4 channels to mean 0'
check "a series of one channel has one scale, stored with its channel or without"
for data in row column; do plan $data series; expect_out 'per-feature \(1 channel to mean 0'; done

check "the size of a channel does not matter"
for data in "series series" "scaled series" "volumes volume" "both both signal,table"; do
  train $data
  set -- $data
  metric runs/$1 validation mean_absolute_error | tail -n 1 >error
  awk '{ exit !($2 < 0.5) }' error || failed "$1: error $(cat error)"  # a constant has 1.6
done

check "augmentation does not mix the channels of a series"
for augment in flip flip=hw pad=2,crop=20x2 crop=16x1 symmetries contrast=0.5:2 area=0.5,crop=20x2; do
  fails 2 "the network reads series of 20 steps with 2 channels, which it would mix: flip=h mirrors the steps, crop=15x2 cuts" \
    train --data series.h5 --model series.yaml --augment $augment --dry-run
done
succeeds train --data series.h5 --model series.yaml --augment flip=h,crop=15x2 --dry-run
succeeds train --data series.h5 --model image.yaml --augment flip --dry-run
succeeds train --data column.h5 --model series.yaml --augment flip --dry-run  # a single channel has nothing to mix
check "a volume of one channel is augmented in all its directions"
succeeds train --data slices.h5 --model volume.yaml --augment flip=dhw,crop=5x5x4 --dry-run
expect_out 'augmentation crop=5x5x4,flip=dhw'

check "weights come back with the scales of their channels"
succeeds export runs/series --out series.safetensors
succeeds import series.safetensors --out imported.h5
succeeds predict runs/series --data series.h5 --out before.h5
succeeds predict imported.h5 --data series.h5 --x x --out after.h5
python3 -c 'import h5py; a, b = (h5py.File(f)["scores"][:] for f in ("before.h5", "after.h5")); assert (a == b).all()' 2>python.log || failed "$(tail -n 1 python.log)"

if runtime=$(peer_python onnxruntime h5py numpy); then
  check "exported graphs read series and volumes as the network does"
  for name in series volumes both; do
    succeeds export runs/$name --out $name.onnx
    succeeds predict runs/$name --data $name.h5 --out $name-scores.h5
    "$runtime" - $name <<'END' 2>python.log || failed "$(tail -n 1 python.log)"
import h5py, onnxruntime, sys
name = sys.argv[1]
session = onnxruntime.InferenceSession(f"{name}.onnx")
with h5py.File(f"{name}.h5") as f: x = {i.name: f[{"input": "x"}.get(i.name, i.name)][:] for i in session.get_inputs()}
for i in session.get_inputs(): assert tuple(i.shape[1:]) == x[i.name].shape[1:], (i.shape, x[i.name].shape)
with h5py.File(f"{name}-scores.h5") as f: want = f["scores"][:]
(got,) = session.run(["predictions"], x)
assert abs(got - want).max() < 1e-4 * abs(want).max(), abs(got - want).max()
END
  done
fi
