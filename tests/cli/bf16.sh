#!/usr/bin/env bash
# Training on CPUs in bf16: emulated on any machine, refused where it is slower, resumed to the same bytes.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
make_images_and_text

mlp="--device cpu --data data --hidden 48,32 --optimizer adam --learning-rate 0.003 --global-batch 70 --steps 60 --evaluate-every 30
  --checkpoint-every 30 --report-every 10 --seed 4"
emulated="--precision bf16 --bf16-unit emulated-avx512"

check "an emulation trains anywhere, and says what multiplies"
train_to fp32.h5 1 $mlp
train_to bf16.h5 1 $mlp $emulated
expect_out '^precision: bf16 by an emulation of AVX512-BF16$'
expect_out 'own products in bf16 by an emulation of AVX512-BF16'
! cmp -s fp32.h5 bf16.h5 || failed "the bytes are those of fp32"
cp -r runs/here runs/bf16
check "its loss is close to that of fp32"
train_to fp32.h5 1 $mlp
metric runs/here train loss >fp32
metric runs/bf16 train loss >bf16
expect_near fp32 bf16 0.02

check "the same bytes again, with two threads, and after a resume"
train_to again.h5 1 $mlp $emulated
cmp bf16.h5 again.h5 || failed "a second run"
rm runs/here/checkpoints/step-0000000060.h5
succeeds train --resume --run runs/here
expect_out 'continuing after step 30'; expect_out '^precision: bf16 by an emulation of AVX512-BF16$'
expect cmp bf16.h5 runs/here/checkpoints/step-0000000060.h5
succeeds train $mlp $emulated --threads 2 --run runs/threads
metric runs/threads train loss | cmp -s - bf16 || failed "two threads"
check "the same bytes at any number of ranks, where they are asked for"
train_to one.h5 1 $mlp $emulated --reproducible
train_to three.h5 3 $mlp $emulated --reproducible
cmp one.h5 three.h5 || failed "three ranks"
check "fp32 goes on with a checkpoint of bf16"
rm runs/here/checkpoints/step-0000000060.h5
succeeds -n 3 train --resume --run runs/here --precision fp32
expect_no_out '^precision: bf16'

for network in "--model cnn --data images.h5 --augment crop=16,flip --learning-rate 0.01" \
  "--model resnet --depth 20 --data images.h5 --learning-rate 0.02" \
  "--model lstm --data text --layers 2 --hidden 16 --unroll 6 --dropout 0.2 --learning-rate 0.5" \
  "--model gpt --data text --layers 2 --width 16 --heads 2 --context 12 --dropout 0.1"; do
  check "the other emulation, $network"
  options="$network --device cpu --precision bf16 --bf16-unit emulated-amx --batch 7 --steps 4 --seed 3"
  train_to one.h5 2 $options
  expect_out '^precision: bf16 by an emulation of AMX$'
  train_to two.h5 2 $options
  cmp one.h5 two.h5 || failed "a second run has other bytes"
done
check "eval in bf16"
succeeds eval runs/here --data text --precision bf16 --bf16-unit emulated-amx --device cpu
expect_out '^precision: bf16 by an emulation of AMX$'

has() { grep -qw "$1" /proc/cpuinfo; }
check "instructions that are not there are refused by every rank, with what to do"
for pair in avx512:avx512_bf16 amx:amx_bf16; do
  has "${pair#*:}" && continue
  fails 2 "--precision bf16 --bf16-unit ${pair%:*}: this processor has no .*; give --precision fp32, or --bf16-unit emulated-avx512" \
    -n 2 train $mlp --precision bf16 --bf16-unit "${pair%:*}" --run runs/none
  expect_no_file runs/none
done
check "the fastest instructions, or a refusal with a reason"
run -n 2 train $mlp --precision bf16 --run runs/own
if [ "$status" = 0 ]; then
  expect_out '^precision: bf16 by (AVX512-BF16|AMX), measured: [0-9.]+ times as fast as fp32$'
else
  expect_error 2 '--precision bf16: (this processor has neither|AVX512-BF16 multiplies at|the system does not grant).*emulated-avx512'
  expect_no_file runs/own
fi
if has avx512_bf16; then
  check "the instructions have the bits of their emulation in a product"
  # 48 and 32 columns in every layer but the last, which is thin and stays fp32; no convolution.
  train_to own.h5 1 $mlp --precision bf16 --bf16-unit avx512
  expect_out '^precision: bf16 by AVX512-BF16$'
  expect_same_tensors bf16.h5 own.h5 6
fi
check "usage"
fails 2 "--bf16-unit has an effect only with --precision bf16" train $mlp --bf16-unit avx512
fails 2 "--bf16-unit: avx is not one of" train $mlp --precision bf16 --bf16-unit avx
fails 2 "--precision tf32 needs a GPU" train $mlp --precision tf32
