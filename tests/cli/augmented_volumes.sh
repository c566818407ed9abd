#!/usr/bin/env bash
# --augment on volumes and on images beyond flips: a mask moves with its sample, ranks and resumes change no draw, evaluation, predictions
# and exported graphs see the centre.
# label: more
# seconds: 300
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(7)
def make(name, samples, extents):
    x = r.normal(size=(samples, *extents, 2)).astype("f4")
    with h5py.File(name, "w") as f:
        f["x"], f["mask"] = x, (x[..., 0] > x[..., 1]).astype("u1")  # each place alone tells
make("cubes.h5", 24, (6, 6, 6))
make("boxes.h5", 24, (6, 4, 6))
make("images.h5", 24, (8, 8))
make("planes.h5", 24, (1, 6, 6))
make("cubes-test.h5", 24, (6, 6, 6))
make("boxes-test.h5", 24, (6, 4, 6))
make("images-test.h5", 24, (8, 8))
with h5py.File("boxes.h5") as f, h5py.File("wrong.h5", "w") as g:
    g["x"], g["mask"] = f["x"][:], f["mask"][:, :4]
END
python3 data.py || exit 1
printf '%s\n' 'name: pixels' 'network:' '- conv: {channels: $outputs, kernel: 1, init: zeros, name: head}' >pixels.yaml
printf '%s\n' 'name: seen' 'network:' '- conv: {channels: 4, kernel: 3, activation: tanh, name: first}' '- conv: {channels: $outputs, kernel: 1, name: head}' >seen.yaml
common=(--x x --y mask --loss softmax-cross-entropy --no-tensorboard --progress off --report-every 1 --seed 3)

check "a mask moves with its volume: what a place tells of its class is learnt under all augmentations"
for case in "cubes symmetries" "cubes pad=2,crop=5,symmetries" "boxes flip=dhw,pad=1" "boxes crop=5x3x5,symmetries" "images symmetries,pad=1" "images flip=h"; do
  read -r data how <<<"$case"
  succeeds -n 2 train --data $data.h5 --validation $data-test.h5 --model pixels.yaml "${common[@]}" --optimizer adam --learning-rate 0.1 --global-batch 8 --epochs 12 \
    --augment "$how" --run runs/pixels
  expect_silence; rm -rf runs/kept; mv runs/pixels runs/kept
  metric runs/kept validation accuracy | tail -n 1 | awk '{ exit !($2 > 0.93) }' || failed "$case: accuracy $(metric runs/kept validation accuracy | tail -n 1)"
done

check "the same bits at any number of ranks, and through a resume"
again=(--data cubes.h5 --model seen.yaml "${common[@]}" --global-batch 6 --steps 8 --checkpoint-every 4 --reproducible
  --augment pad=1,crop=5,symmetries,brightness=0.1)
train_to one.h5 1 "${again[@]}"
train_to many.h5 3 "${again[@]}"
expect cmp one.h5 many.h5
train_to many.h5 2 "${again[@]}"
expect cmp one.h5 many.h5
rm runs/here/checkpoints/step-0000000008.h5
succeeds -n 3 train "${again[@]}" --resume --run runs/here
expect_out 'continuing after step 4'
expect cmp one.h5 runs/here/checkpoints/step-0000000008.h5
train_to other.h5 1 "${again[@]/symmetries/flip=dhw}"
! cmp -s one.h5 other.h5 || failed "turns change nothing"
succeeds info one.h5
expect_out 'pad=1,crop=5,symmetries,brightness=0.1'

check "predictions and the exported graph see the central crop"
succeeds predict one.h5 --data cubes.h5 --x x --out classes.h5
expect_silence
python3 -c "
import h5py
with h5py.File('classes.h5') as f: assert f['class'].shape == (24, 5, 5, 5), f['class'].shape" || failed "shape of the predictions"
succeeds export one.h5 --out x.onnx
expect_file x.onnx
if runtime=$(peer_python onnxruntime h5py numpy); then
  "$runtime" -c "
import h5py, onnxruntime
with h5py.File('cubes.h5') as f: x = f['x'][:]
with h5py.File('classes.h5') as f: want = f['class'][:]
(got,) = onnxruntime.InferenceSession('x.onnx').run(['logits'], {'input': x})
assert got.shape == (*want.shape, 2) and (got.argmax(-1) != want).sum() <= 2, (got.shape, (got.argmax(-1) != want).sum())" ||
    failed "what onnxruntime computes"
fi

check "what is refused, in one sentence and by all ranks"
refused() { fails 2 "$1" -n 2 train "${common[@]}" --model pixels.yaml --steps 2 --run runs/none "${@:2}"; }
refused 'volumes of 6 x 4 x 6: give crop=DEPTHxHEIGHTxWIDTH' --data boxes.h5 --augment crop=4x5
refused 'images of 8 x 8: give crop=HEIGHTxWIDTH' --data images.h5 --augment crop=4x4x4
refused 'one plane is no volume: a crop has a depth of 2 or more' --data boxes.h5 --augment crop=1x4x4
refused 'a crop of 5 x 5 x 5 does not fit volumes of 6 x 4 x 6' --data boxes.h5 --augment crop=5
refused 'images of 8 x 8, which have no depth d' --data images.h5 --augment flip=d
refused 'area scales images, and the samples are volumes of 6 x 6 x 6' --data cubes.h5 --augment area=0.5
refused 'planes.h5: samples of 1 x 6 x 6 x 2 are volumes of one plane, .*store them as 6 x 6 x 2' --data planes.h5
refused '^lockstep train: --augment: flip= takes letters of d, h and w' --data cubes.h5 --augment flip=
refused '^lockstep train: --augment: pad=1,flip= has flip=, which takes letters' --data cubes.h5 --augment pad=1,flip=
refused 'symmetries contains all flips' --data cubes.h5 --augment flip,symmetries
refused 'masks of \[4, 4, 6\] have other extents than samples of 6 x 4 x 6' --data wrong.h5 --augment symmetries
