#!/usr/bin/env bash
# A network learns Fashion-MNIST, a real data set.
# label: more
. "$(dirname "$0")/harness.sh"
raw=""
for folder in /usr/share/datasets/fashion-mnist "$tree/data/fashion-mnist/raw"; do
  [ -f "$folder/train-images-idx3-ubyte.gz" ] && raw=$folder
done
[ -n "$raw" ] || skip_all "Fashion-MNIST is not here (dataset-fashion-mnist, or app/quickstart downloads it)"

check "pack the training and the test images"
succeeds pack --x "$raw/train-images-idx3-ubyte.gz" --y "$raw/train-labels-idx1-ubyte.gz" --out data/train --shards 4
succeeds pack --x "$raw/t10k-images-idx3-ubyte.gz" --y "$raw/t10k-labels-idx1-ubyte.gz" --out data/test
succeeds info data/train
expect_out '60,?000'

check "two ranks reach 84 % in two epochs"
succeeds -n 2 train --data data --hidden 128 --optimizer adam --learning-rate 0.001 --global-batch 128 --schedule cosine --epochs 2 --run runs/a
expect_silence
metric runs/a validation accuracy | awk 'END { exit !($2 > 0.84) }' || failed "accuracy $(metric runs/a validation accuracy)"
said=$(sed -n 's/.*validation at step 938: \(loss .*samples)\).*/\1/p' out)
check "eval says the same on three ranks"
succeeds -n 3 eval runs/a
expect grep -F -- "$said" out

check "the tutorial's replica program learns, with a server in sums and without"
for mode in "quorum=2 --servers 1" "async"; do
  # shellcheck disable=SC2086  # words
  succeeds -n 3 train --data data --config "$tree/app/examples/mnist_replica.ini" --agree $mode --run "runs/${mode%% *}"
  metric "runs/${mode%% *}" validation loss | awk 'END { exit !($1 == 200 && $2 < 0.8) }' || failed "loss $(metric "runs/${mode%% *}" validation loss)"
done
