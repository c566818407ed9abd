#!/usr/bin/env bash
# --reproducible gives the same bytes at any number of ranks, over any transport, through a resume.
# label: more
# long: 900
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
make_images_and_text

mlp="--data data --hidden 64,24 --optimizer adam --learning-rate 0.003 --average-decay 0.99 --clip-norm 1 --l2 0.001 --global-batch 70
  --steps 200 --evaluate-every 50"

check "without it three ranks differ from one"
train_to plain-1.h5 1 $mlp
train_to plain-3.h5 3 $mlp
! cmp -s plain-1.h5 plain-3.h5 || failed "nothing to show: the bytes are the same anyway"

check "the same file on 1, 3, 8 and other numbers of ranks"
train_to one.h5 1 $mlp --reproducible
expect_out '1 rank x 3 in 24 virtual ranks'
for n in $(some 2 3 8 2 4 5 6); do
  train_to many.h5 $n $mlp --reproducible
  cmp one.h5 many.h5 || failed "$n ranks"
done
check "the same file over a ring and on two levels"
train_to one.h5 1 $mlp --reproducible --bucket-size 500
for transport in ring two-level; do
  train_to many.h5 3 $mlp --reproducible --transport $transport --bucket-size 500
  cmp one.h5 many.h5 || failed "$transport"
done

check "the same file where four ranks stop and three go on"
train_to one.h5 1 $mlp --reproducible --checkpoint-every 50
train_to many.h5 4 $mlp --reproducible --checkpoint-every 50
rm runs/here/checkpoints/step-0000000200.h5 runs/here/checkpoints/step-0000000150.h5
succeeds -n 3 train $mlp --reproducible --checkpoint-every 50 --resume --run runs/here
expect_out 'continuing after step 100'
expect cmp one.h5 runs/here/checkpoints/step-0000000200.h5
succeeds info one.h5
expect_out 'on any number of ranks'

cnn="--model cnn --data images.h5 --augment crop=16,flip --learning-rate 0.01"
resnet="--model resnet --depth 20 --data images.h5 --augment pad=2,crop=16,flip --learning-rate 0.02"
lstm="--model lstm --data text --layers 2 --hidden 16 --unroll 6 --dropout 0.2 --learning-rate 0.5"
gpt="--model gpt --data text --layers 2 --width 16 --heads 2 --context 12 --dropout 0.1"
for network in cnn resnet lstm gpt; do
  options="${!network} --reproducible --global-batch 14 --evaluation-batch 8 --steps 6 --checkpoint-every 3 --seed 3"
  check "$network: the same file on other numbers of ranks"
  train_to one.h5 1 $options
  for n in $(some 1 4 2 3); do
    train_to many.h5 $n $options
    cmp one.h5 many.h5 || failed "$n ranks"
  done
  check "$network: the same file where four ranks stop and three go on"
  rm runs/here/checkpoints/step-0000000006.h5
  succeeds -n 3 train $options --resume --run runs/here
  expect_out 'continuing after step 3'
  expect cmp one.h5 runs/here/checkpoints/step-0000000006.h5
done

check "the parts of a run stay what they were, on more ranks, too"
train_to one.h5 1 $mlp --reproducible --virtual-ranks 6 --checkpoint-every 100
rm runs/here/checkpoints/step-0000000200.h5
succeeds -n 4 train $mlp --reproducible --checkpoint-every 100 --resume --run runs/here
expect_out 'in 6 virtual ranks'
fails 2 '--reproducible: a step of 70 samples in 6 parts on 8 ranks' -n 8 train $mlp --reproducible --checkpoint-every 100 --resume --run runs/here

check "the parts of a small step are as many on any number of ranks; more ranks than those are refused"
small="--data data --hidden 8 --reproducible --global-batch 10 --steps 20"
train_to one.h5 1 $small
expect_out 'in 6 virtual ranks'
train_to many.h5 5 $small
expect cmp one.h5 many.h5
fails 2 '--reproducible: a step of 10 samples in 6 parts on 8 ranks: every rank needs a part: give fewer ranks, or --virtual-ranks 10 ' \
  -n 8 train $small --run runs/refused
train_to one.h5 1 $small --virtual-ranks 10
train_to many.h5 8 $small --virtual-ranks 10
expect cmp one.h5 many.h5
fails 2 'in 3 parts on 8 ranks: .*give a larger --global-batch or fewer ranks' \
  -n 8 train --data data --reproducible --global-batch 4 --steps 5 --run runs/refused

check "a number that is not finite is found in its virtual rank"
run -n 3 train --data data --optimizer sgd --learning-rate 1e30 --reproducible --global-batch 70 --steps 5 --run runs/spoilt
expect_status 1; expect_err 'is not finite: .* in micro-step 1 of 8'

check "what would depend on the number of ranks is refused"
fails 2 '--reproducible needs --global-batch' -n 2 train --data data --reproducible --run runs/refused
refused() { fails 2 "$1" train --data data --run runs/refused "${@:2}"; }
refused '--reproducible does not go with --shard-optimizer' --reproducible --global-batch 70 --shard-optimizer --optimizer adam
refused '--reproducible does not go with --wire bf16' --reproducible --global-batch 70 --wire bf16
refused '--accumulate has no meaning with --reproducible' --reproducible --global-batch 70 --accumulate 2
refused 'in 100 parts on 1 rank' --reproducible --global-batch 70 --virtual-ranks 100
fails 2 '--reproducible does not go with --sync-batch-norm' train $resnet --sync-batch-norm --global-batch 14 --reproducible --run runs/refused
