#!/usr/bin/env bash
# Each operation of networks from files moves weights as it does in PyTorch: convolutions in one to three directions,
# transposed ones, pools, norms, recurrent layers in both directions, attention, functions of elements.
# label: slow
# seconds: 300
. "$(dirname "$0")/harness.sh"
torch=$(peer_python torch numpy) || skip_all "no Python here has torch and numpy (PEER_PYTHONS: others to try)"
rate=0.01

mkdir cases
"$torch" -B "$tree/tests/peers/torch_operations.py" make cases || exit 1
for folder in cases/*; do
  check "$(basename "$folder") trains"
  must_run pack --x "$folder/x.npy" --y "$folder/y.npy" --regression --out "$folder/data"
  must_run train --data "$folder/data" --model "$folder/net.yaml" --loss mean-squared-error --optimizer sgd \
    --schedule constant --learning-rate $rate --normalize none --normalize-targets none --batch 24 --steps 8 \
    --checkpoint-every 4 --keep 3 --no-tensorboard --progress off --run "$folder/run"
  must_run export "$folder/run/checkpoints/step-0000000004.h5" --format safetensors --out "$folder/first.safetensors"
  must_run export "$folder/run/checkpoints/step-0000000008.h5" --format safetensors --out "$folder/last.safetensors"
done
check "PyTorch's steps end at the same weights"
"$torch" -B "$tree/tests/peers/torch_operations.py" compare cases 4 $rate >differ || failed "$(cat differ)"
