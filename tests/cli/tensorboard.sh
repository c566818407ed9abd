#!/usr/bin/env bash
# TensorBoard itself (the Python package) reads what a run writes for it.
# label: slow
. "$(dirname "$0")/harness.sh"
reader=$(peer_python tensorboard) || skip_all "no Python here has tensorboard (PEER_PYTHONS: others to try)"
read_back() { "$reader" "$tree/tests/peers/tensorboard_read.py" "$1" >tags 2>reader.log || failed "TensorBoard cannot read $1: $(tail -n 1 reader.log)"; }

check "scalars and histograms of a run"
run pack --format synthetic --samples 600 --features 12 --classes 3 --out data/train
run pack --format synthetic --samples 100 --first 600 --features 12 --classes 3 --out data/test
run -n 2 train --data data --optimizer sgd --hidden 8 --global-batch 50 --steps 20 --report-every 5 --histograms-every 10 --evaluate-every 10 --run runs/a
expect_status 0
read_back runs/a
for step in 5 10 15 20; do
  logged=$(grep '"kind":"train"' runs/a/metrics.jsonl | grep "\"step\":$step," | sed 's/.*"loss":\([^,]*\),.*/\1/')
  awk -v step="$step" -v logged="$logged" '$2 == "train/loss" && $3 == step { d = $4 - logged; ok = (d < 1e-5 && d > -1e-5) } END { exit !ok }' tags ||
    failed "train/loss at step $step is not $logged"
done
grep -q '^scalar validation/accuracy 20 ' tags || failed "no validation accuracy at step 20"
[ "$(grep -c '^histogram weights/' tags)" = 8 ] || failed "not 4 parameters x 2 steps of weight histograms"
grep -q '^histogram gradients/.* 20 .* 96\.0 ' tags || failed "the first layer's gradient does not have 12 x 8 elements"

check "a resumed run continues the curve without saying a step twice"
run -n 2 train --resume --run runs/a --steps 30
expect_status 0
read_back runs/a
[ -z "$(awk '$2 == "train/loss" { print $3 }' tags | sort | uniq -d)" ] || failed "a step stands twice"
grep -q '^scalar train/loss 30 ' tags || failed "no loss at step 30"
