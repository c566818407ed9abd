#!/usr/bin/env bash
# Fields of samples: types that differ between training and validation, runs that go on with other fields, predictions of data without
# targets, orders of extents by name, fields that are called x, windows without labels, masks beside several inputs.
# label: more
# seconds: 150
. "$(dirname "$0")/harness.sh"

python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
n = 240
image = r.integers(0, 256, size=(n, 8, 8, 1)).astype("u1")
label = (image.reshape(n, -1)[:, :32].mean(1) > 127).astype("i4")
def write(name, **fields):
    with h5py.File(name, "w") as f:
        for key, values in fields.items():
            f[key] = values
write("bytes.h5", x=image, y=label)
write("floats.h5", x=image.astype("f4"), y=label)
write("unit.h5", x=image.astype("f4") / 255, y=label)
a, b = r.normal(size=(n, 5)).astype("f4"), r.normal(size=(n, 3)).astype("f4")
write("two.h5", a=a, b=b, mass=a.sum(1) + 1000, place=a[:, :2] + 500)
write("inputs.h5", a=a, b=b)
write("part.h5", a=a, b=b, mass=a.sum(1))
write("xz.h5", **{"x": a, "z": b, "y": a.sum(1), "w": b.sum(1)})
write("first.h5", image=np.moveaxis(image, 3, 1).repeat(2, 1), y=label)
write("grey.h5", image=image[..., 0], table=a, y=label)
write("grey1.h5", image=image, table=a, y=label)
s = np.sin(np.arange(300)[:, None] / np.array([7, 11])).astype("f4")
write("series.h5", s=s, t=s[:, 1:] * 3)
write("alone.h5", s=s)
write("labelled.h5", x=np.stack([s[i * 20:i * 20 + 60] for i in range(8)]), y=np.arange(8, dtype="f4"))
write("masks.h5", image=image, table=a, mask=(image[..., 0] > 127) + (a[:, :1, None] > 0).astype("i8"))
END
cat >two.yaml <<'END'
name: two
inputs: {a: [5], b: [3]}
network:
  - concatenate: {from: [a, b]}
  - dense: {units: $outputs}
END
common=(--epochs 1 --no-tensorboard --progress off --seed 1)

check "bytes are validated with floats of the same range, and floats with bytes"
must_run pack --x bytes.h5 --out bytes
must_run pack --x floats.h5 --out floats
must_run pack --x unit.h5 --out unit
for n in 1 3; do
  succeeds -n $n train bytes --validation bytes --model mlp "${common[@]}" --run runs/bytes$n
  succeeds -n $n train bytes --validation floats --model mlp "${common[@]}" --run runs/mixed$n
  expect_same <(metric runs/bytes$n validation loss) <(metric runs/mixed$n validation loss)
done
succeeds train floats --validation bytes --model mlp "${common[@]}" --normalize range --run runs/turned
succeeds train bytes --validation floats.h5 --model mlp "${common[@]}" --run runs/files
expect_same <(metric runs/bytes1 validation loss) <(metric runs/files validation loss)

check "floats of another range than the bytes of training: one sentence"
for n in 1 3; do
  fails 2 "unit holds float32 from .* to 1, and the network was trained on uint8 from 0 to 255: .*pack or store both in the same units" \
    -n $n train bytes --validation unit --model mlp "${common[@]}" --run runs/no
  fails 2 "unit.h5 holds float32 from .*: .*in the same units" -n $n train bytes.h5 --validation unit.h5 --model mlp "${common[@]}" --run runs/no
done

check "the range of floats that are not packed is not known: one sentence"
for n in 1 2; do
  fails 2 "--normalize range needs the range of the values, which packed shards have, and bytes" \
    -n $n train floats.h5 --model mlp --normalize range "${common[@]}" --run runs/no
done

check "a run goes on with the fields that it began with, or ends with a sentence"
must_run pack --x two.h5 --x-name a,b --y-name mass,place --out two
must_run train two --model two.yaml "${common[@]}" --run runs/two
must_run train two.h5 --x a,b --y mass,place --model two.yaml "${common[@]}" --run runs/direct
for n in 1 2; do
  fails 2 "two: samples of 8 numbers and 1 target are not those that the run was trained on: give the same --data, --x and --y" \
    -n $n train --resume --run runs/two --y mass --epochs 2
  fails 2 "two.h5: samples of 8 numbers and 1 target are not those" -n $n train --resume --run runs/direct --y mass --epochs 2
  fails 2 "two.h5: has the targets place_0 and place_1 and mass, and the network learns mass and place_0 and place_1: --y names them in its order" \
    -n $n train --resume --run runs/direct --y place,mass --epochs 2
  fails 2 "two: has one input, and the network was made for the inputs a \[5\] and b \[3\]" -n $n train --resume --run runs/two --x a --epochs 2
done
succeeds train --resume --run runs/two --epochs 2
expect_out 'continuing after step'

check "predictions need no targets, however many the network has learnt"
must_run pack --x inputs.h5 --x-name a,b --out inputs
for data in inputs.h5 inputs; do
  for trained in two direct; do
    succeeds -n 2 predict runs/$trained --data $data --out p.h5 --csv p.csv --force
    expect_silence
    head -n 1 p.csv | grep -qx 'index,predicted_mass,predicted_place_0,predicted_place_1' || failed "$(head -n 1 p.csv)"
  done
done
succeeds predict runs/direct --data part.h5 --csv p.csv --out p.h5 --force
head -n 1 p.csv | grep -qx 'index,predicted_mass,predicted_place_0,predicted_place_1' || failed "some of the targets count as none: $(head -n 1 p.csv)"
python3 -c "
import h5py
with h5py.File('two.h5') as f, h5py.File('xy.h5', 'w') as all, h5py.File('xy-alone.h5', 'w') as alone:
    for g in (all, alone): g['x'], g['y'] = f['a'][:], f['b'][:]
    all['lab'] = f['mass'][:]"
sed 's/inputs: .*/inputs: {x: [5], y: [3]}/; s/from: a$/from: x/; s/from: b$/from: y/; s/\[a, b\]/[x, y]/' two.yaml >xy.yaml
must_run pack --x xy.h5 --x-name x,y --y-name lab --out xy
must_run train xy --model xy.yaml "${common[@]}" --run runs/xy
succeeds predict runs/xy --data xy-alone.h5 --out p.h5 --force  # y, which usually names the targets, is an input
fails 2 "inputs.h5: has no dataset mass; it holds a, b" pack --x inputs.h5 --x-name a,b --y-name mass,place --out none

fails 2 "two.h5: has no dataset typo; it holds a, b, mass, place" pack --x two.h5 --x-name a --y-name typo --out none
fails 2 "two.h5: has no dataset typo" info two.h5 --x a --y typo
fails 2 "series.h5: has no dataset typo; it holds s, t" train series.h5 --x s --y typo --window 8 --model linear "${common[@]}" --run runs/no
fails 2 "two.h5: has no dataset typo" predict runs/direct --data two.h5 --y mass,typo,place --out p.h5 --force
expect_no_file none

check "an order of extents names the dataset, also the only one, once"
for name in image x; do
  succeeds train first.h5 --x image --y y --layout $name=nchw --model cnn --dry-run
  expect_out '\(2 channels to mean 0'
done
fails 1 "first.h5: --layout picture=nchw: the inputs are image" train first.h5 --x image --y y --layout picture=nchw --model cnn --dry-run
fails 2 "--layout: image=nchw,image=nhwc gives image twice: each field has one order" \
  train first.h5 --x image --y y --layout image=nchw,image=nhwc --model cnn --dry-run
fails 2 "gives letters without a name twice" train first.h5 --x image --y y --layout nchw,nhwc --model cnn --dry-run
fails 2 "has nchw without a name beside others: NAME=nchw says whose order it is" \
  train first.h5 --x image --y y --layout nchw,image=nhwc --model cnn --dry-run

check "fields that are called x and y are chosen among others"
must_run pack --x xz.h5 --x-name x,z --y-name y,w --out xz
succeeds train xz --x x --y y --model linear "${common[@]}" --run runs/x
expect_silence
succeeds -n 2 eval runs/x --data xz
succeeds train xz --validation xz --x x --y y --model linear "${common[@]}" --run runs/xv
succeeds train --resume --run runs/x --epochs 2
fails 2 "does not fit the network: samples of 3 numbers" eval runs/x --data xz --x z

printf '%s\n' 'name: both' 'inputs: {x: [5], z: [3]}' 'network:' '- concatenate: {from: [x, z]}' '- dense: $outputs' >both.yaml
succeeds train xz --model both.yaml "${common[@]}" --run runs/all
succeeds eval runs/all --data xz
succeeds train --resume --run runs/all --epochs 2

check "a missing channel is no other image, beside other inputs"
cat >grey.yaml <<'END'
name: grey
inputs: {image: [any, any, any], table: [any]}
network:
  - flatten: {from: image, name: flat}
  - concatenate: {from: [flat, table]}
  - dense: {units: $outputs}
END
succeeds train grey.h5 --validation grey1.h5 --x image,table --y y --model grey.yaml "${common[@]}" --run runs/grey
succeeds eval runs/grey --data grey1.h5
cp out with
succeeds eval runs/grey --data grey.h5
expect_same <(grep -o 'loss [^,]*' with) <(grep -o 'loss [^,]*' out)

check "series: no labels, their names, and one input of several"
windows=(--model linear --window 8 --horizon 2 "${common[@]}")
fails 1 'labelled.h5: has a label for each series, .*\(--y ""\)' -n 2 train labelled.h5 "${windows[@]}" --run runs/no
succeeds -n 2 train labelled.h5 --y "" "${windows[@]}" --run runs/labelled
succeeds train --resume --run runs/labelled --epochs 2
succeeds -n 2 predict runs/labelled --data labelled.h5 --out l.h5 --csv l.csv
head -n 1 l.csv | grep -qx 'index,series:step,predicted_x_0+1,predicted_x_1+1,predicted_x_0+2,predicted_x_1+2' || failed "$(head -n 1 l.csv)"
must_run pack --x labelled.h5 --out labelled
succeeds train labelled --y "" "${windows[@]}" --run runs/packed
succeeds eval runs/packed --data labelled
fails 2 '--y "" leaves the labels out, and only forecasts of series \(--window\) are learnt without' \
  train bytes --y "" --model mlp "${common[@]}" --run runs/no
must_run train series.h5 --x s --y t "${windows[@]}" --run runs/past
succeeds predict runs/past --data series.h5 --out s.h5 --csv s.csv
head -n 1 s.csv | grep -qx 'index,step,predicted_y+1,predicted_y+2' || failed "$(head -n 1 s.csv)"
fails 2 "alone.h5: has no targets, and the network sees the past ones beside the other numbers of a step, 3 in all instead of 2: --y names them" \
  -n 2 predict runs/past --data alone.h5 --out s.h5 --force
must_run pack --x series.h5 --x-name s,t --out streams
must_run train streams --x t "${windows[@]}" --run runs/one
succeeds -n 2 eval runs/one --data streams
succeeds predict runs/one --data streams --out t.h5 --csv t.csv
head -n 1 t.csv | grep -qx 'index,step,predicted_t+1,predicted_t+2' || failed "$(head -n 1 t.csv)"

check "a network's file says how it is trained, numbers included"
sed '2a training: {optimizer: momentum, learning-rate: 0.02}' two.yaml >rate.yaml
succeeds train two --model rate.yaml "${common[@]}" --run runs/rate
expect_no_out 'left out of the defaults'
grep -q '^learning-rate = 0.02' runs/rate/config.ini && grep -q '^optimizer = momentum' runs/rate/config.ini ||
  failed "$(grep -E 'rate|optim' runs/rate/config.ini)"

check "masks beside several inputs, from files and packed, at 1 and 3 ranks"
cat >masks.yaml <<'END'
name: masks
inputs: {image: [any, any, 1], table: [any]}
training: {optimizer: adam, learning-rate: 0.02, batch: 24}
network:
  - dense: {from: table, units: 64, name: spread}
  - reshape: {shape: [8, 8, 1], name: plane}
  - concatenate: {from: [image, plane]}
  - conv: {channels: 8, kernel: 1, activation: relu}
  - conv: {channels: $outputs, kernel: 1}
END
must_run pack --x masks.h5 --x-name image,table --y-name mask --validation 0.25 --shards 2 --out masks
succeeds info masks/train
expect_out 'masks of 3 classes'
mask=(--model masks.yaml --epochs 20 --global-batch 24 --report-every 1 --no-tensorboard --progress off --seed 1)
for n in 1 3; do
  succeeds -n $n train masks "${mask[@]}" --run runs/masks$n
done
expect_near <(metric runs/masks1 train loss) <(metric runs/masks3 train loss) 1e-4 20
metric runs/masks1 validation mean_iou | tail -n 1 | awk '{ exit !($2 > 0.6) }' ||
  failed "mean IoU $(metric runs/masks1 validation mean_iou | tail -n 1)"
succeeds -n 2 eval runs/masks1 --report
expect_out 'IoU'
fails 2 "inputs.h5: has no dataset image" -n 2 predict runs/masks1 --data inputs.h5 --x image,table --out m.h5
succeeds -n 2 predict runs/masks1 --data masks.h5 --x image,table --y mask --out m.h5
python3 -c "
import h5py
with h5py.File('m.h5') as f: assert f['class'].shape == f['target'].shape == (240, 8, 8)" || failed "the predicted masks"
succeeds train masks.h5 --x image,table --y mask --ignore-label 2 "${mask[@]}" --run runs/ignored
succeeds pack --x masks.h5 --x-name image,table --y-name mask --ignore-label 2 --out ignored
succeeds train ignored "${mask[@]}" --run runs/ignored2
expect_same <(metric runs/ignored train loss) <(metric runs/ignored2 train loss)
