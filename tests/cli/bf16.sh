#!/usr/bin/env bash
# Training on CPUs in bf16: emulated on any machine, refused where it is slower, resumed to the same bytes.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = r.integers(0, 256, (96, 18, 18, 3)).astype(np.uint8), r.integers(0, 4, 96).astype(np.int32)
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
text = " ".join(words[i] for i in r.integers(0, 10, 1400))
open("corpus.txt", "w").write("\n".join(text[i:i + 60] for i in range(0, len(text), 60)) + "\n")
END
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.1

mlp="--device cpu --data data --hidden 48,32 --optimizer adam --learning-rate 0.003 --global-batch 70 --steps 60 --evaluate-every 30
  --checkpoint-every 30 --report-every 10 --seed 4"
emulated="--precision bf16 --bf16-unit emulated-avx512"
# trained NAME RANKS OPTION...: leaves the last checkpoint in NAME.h5. One folder, because a checkpoint keeps its path.
trained() {
  local name=$1 n=$2
  shift 2
  rm -rf runs/here
  run -n "$n" train "$@" --run runs/here
  expect_status 0
  cp "$(newest_checkpoint runs/here)" "$name.h5"
}

check "an emulation trains anywhere, and says what multiplies"
trained fp32 1 $mlp
trained bf16 1 $mlp $emulated
expect_out '^precision: bf16 by an emulation of AVX512-BF16$'
expect_out 'own products in bf16 by an emulation of AVX512-BF16'
! cmp -s fp32.h5 bf16.h5 || failed "the bytes are those of fp32"
cp -r runs/here runs/bf16
check "its loss is close to that of fp32"
trained fp32 1 $mlp
metric runs/here train loss >fp32
metric runs/bf16 train loss >bf16
paste fp32 bf16 | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 0.02 * $2) bad = 1 } END { exit bad || NR == 0 }' ||
  failed "the losses are $(paste -s -d ' ' fp32) and $(paste -s -d ' ' bf16)"

check "the same bytes again, with two threads, and after a resume"
trained again 1 $mlp $emulated
cmp bf16.h5 again.h5 || failed "a second run"
rm runs/here/checkpoints/step-0000000060.h5
run train --resume --run runs/here
expect_status 0; expect_out 'continuing after step 30'; expect_out '^precision: bf16 by an emulation of AVX512-BF16$'
expect cmp bf16.h5 runs/here/checkpoints/step-0000000060.h5
run train $mlp $emulated --threads 2 --run runs/threads
expect_status 0
metric runs/threads train loss | cmp -s - bf16 || failed "two threads"
check "the same bytes at any number of ranks, where they are asked for"
trained one 1 $mlp $emulated --reproducible
trained three 3 $mlp $emulated --reproducible
cmp one.h5 three.h5 || failed "three ranks"
check "fp32 goes on with a checkpoint of bf16"
rm runs/here/checkpoints/step-0000000060.h5
run -n 3 train --resume --run runs/here --precision fp32
expect_status 0; expect_no_out '^precision: bf16'

for network in "--model cnn --data images.h5 --augment crop=16,flip --learning-rate 0.01" \
  "--model resnet --depth 20 --data images.h5 --learning-rate 0.02" \
  "--model lstm --data text --layers 2 --hidden 16 --unroll 6 --dropout 0.2 --learning-rate 0.5" \
  "--model gpt --data text --layers 2 --width 16 --heads 2 --context 12 --dropout 0.1"; do
  check "the other emulation, $network"
  options="$network --device cpu --precision bf16 --bf16-unit emulated-amx --batch 7 --steps 4 --seed 3"
  trained one 2 $options
  expect_out '^precision: bf16 by an emulation of AMX$'
  trained two 2 $options
  cmp one.h5 two.h5 || failed "a second run has other bytes"
done
check "eval in bf16"
run eval runs/here --data text --precision bf16 --bf16-unit emulated-amx --device cpu
expect_status 0; expect_out '^precision: bf16 by an emulation of AMX$'

has() { grep -qw "$1" /proc/cpuinfo; }
check "instructions that are not there are refused by every rank, with what to do"
for pair in avx512:avx512_bf16 amx:amx_bf16; do
  has "${pair#*:}" && continue
  run -n 2 train $mlp --precision bf16 --bf16-unit "${pair%:*}" --run runs/none
  expect_error 2 "--precision bf16 --bf16-unit ${pair%:*}: this processor has no .*; give --precision fp32, or --bf16-unit emulated-avx512"
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
  trained own 1 $mlp --precision bf16 --bf16-unit avx512
  expect_out '^precision: bf16 by AVX512-BF16$'
  python3 - bf16.h5 own.h5 <<'END' || failed "other weights"
import h5py, numpy as np, sys
def arrays(path):
    found = {}
    with h5py.File(path) as f:
        f.visititems(lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) and item.dtype == np.float32 else None)
    return found
a, b = map(arrays, sys.argv[1:])
assert a and a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)
END
fi
check "usage"
run train $mlp --bf16-unit avx512
expect_error 2 "--bf16-unit has an effect only with --precision bf16"
run train $mlp --precision bf16 --bf16-unit avx
expect_error 2 "--bf16-unit: avx is not one of"
run train $mlp --precision tf32
expect_error 2 "--precision tf32 needs a GPU"
