#!/usr/bin/env bash
# app/examples/unet learns, by the commands of model/networks.md ("From volumes with masks to IoU") on two ranks, for volumes
# and for images, and better than a network that sees single pixels.
# label: more
# seconds: 600
. "$(dirname "$0")/harness.sh"
mkdir -p app && ln -s "$tree/app/examples" app/examples

check "the commands of the document, on volumes: mean IoU of 0.7 at least"
awk '/^## / { own = /From volumes with masks to IoU/ } own && /^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } own && inside' \
  "$tree/model/networks.md" >commands
expect_file commands
{
  printf 'python3() { "%s" "$@"; }\nlockstep() { "%s" "$@"; }\nmpirun() { shift; "%s" "$1" "%s" "${@:3}"; }\n' "$python" "$lockstep" \
    "$tree/app/launch" "$lockstep"
  cat commands
} >all.sh
command_line="the commands"
timeout 500 bash -e all.sh >out 2>err </dev/null
status=$?
expect_status 0
expect_out '^class +positions +precision +recall +F1 +IoU$'
# mean_iou RUN: of the best validation.
mean_iou() { metric "$1" validation mean_iou | sort -g -k2,2 | tail -n 1 | cut -d ' ' -f 2; }
iou=$(mean_iou runs/shapes)
awk -v iou="$iou" 'BEGIN { exit !(iou > 0.7) }' || failed "mean IoU $iou"
python3 -c "
import h5py
with h5py.File('masks.h5') as f: assert f['class'].shape == f['target'].shape == (40, 16, 16, 16) and f['target'][:].min() == -1" ||
  failed "predicted masks"

check "images, augmented together with their masks; a network of single pixels cannot tell the shapes"
for part in train test; do
  python3 "$tree/app/examples/unet/make.py" --extents 32,32 --samples $([ $part = train ] && echo 200 || echo 60) --seed ${#part} --out $part-2d.h5
done
images=(--data train-2d.h5 --validation test-2d.h5 --x image --y mask --ignore-label 255 --class-weight balanced --no-tensorboard --progress off)
succeeds -n 2 train "${images[@]}" --model app/examples/unet/unet.yaml --width 8 --levels 2 --epochs 10 --augment flip,brightness=0.1 --run runs/images
expect_silence
printf '%s\n' 'name: pixels' 'network:' '- conv: {channels: 16, kernel: 1, activation: relu}' '- conv: {channels: $outputs, kernel: 1}' >pixels.yaml
succeeds -n 2 train "${images[@]}" --model pixels.yaml --learning-rate 0.01 --batch 4 --evaluation-batch 16 --epochs 10 --run runs/pixels
unet=$(mean_iou runs/images) pixels=$(mean_iou runs/pixels)
awk -v unet="$unet" -v pixels="$pixels" 'BEGIN { exit !(unet > 0.75 && unet > pixels + 0.2) }' || failed "U-Net $unet, single pixels $pixels"

check "its ONNX graph answers as predict does, where a Python has onnxruntime; its weights go out and come back"
succeeds export runs/images --out x.onnx
expect_file x.onnx
succeeds predict runs/images --data test-2d.h5 --out want.h5
if runtime=$(peer_python onnxruntime h5py numpy); then
  "$runtime" -c "
import h5py, numpy, onnxruntime
with h5py.File('test-2d.h5') as f: x = f['image'][:]
with h5py.File('want.h5') as f: want = f['class'][:]
(got,) = onnxruntime.InferenceSession('x.onnx').run(['logits'], {'input': x})
assert got.shape == (*want.shape, 3) and (got.argmax(-1) != want).sum() <= 3, (got.shape, (got.argmax(-1) != want).sum())
assert len(numpy.unique(want)) == 3" || failed "what onnxruntime computes"
fi
succeeds export runs/images --out x.safetensors
succeeds import x.safetensors --out x.h5
must_run pack --x test-2d.h5 --x-name image --y-name mask --ignore-label 255 --out packed-2d
succeeds eval x.h5 --data packed-2d
succeeds bench step --model app/examples/unet/unet.yaml --width 4 --levels 1 --image 8x8x1 --outputs 3 --batch 2 --warmup 1 --repeat 2
