#!/usr/bin/env bash
# figures.sh NAME: one measurement of tests/gpu/run, which sets the variables; NAME is WORKLOAD[.PRECISION][.VARIANT],
# all_reduce, torch (all of PyTorch's), warm_torch or kernels.WORKLOAD. Adds to figures.jsonl, torch.jsonl or more/. Exit: 0
# measured, 77 not run, else failed; the last line of output is the finding.
set -u
: "${work:?tests/gpu/run calls this}" "${out:?}" "${here:?}" "${subject:?}" "${quick?}" "${python?}" "${LAUNCHER:?}"
scratch=$work/$1.files
mkdir -p "$scratch" && cd "$scratch" || exit 1
examples=$here/../../app/examples
export TMPDIR=$scratch TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton  # one cache for all phases
# launch N PROGRAM ARGS...
launch() { eval "$LAUNCHER \"\$@\""; }
failed() { echo "$*"; exit 1; }
not_run() { echo "$*"; exit 77; }

# describe WORKLOAD: sets batch, steps of a measurement and of its warm-up, the options of `lockstep bench step`, and
# the same for PyTorch. GPT-2 of 124 million parameters, whose vocabulary Lockstep pads by itself; ResNet-50; the
# "large" LSTM of Zaremba et al. with two layers of 1024; the CNN of TensorFlow's CIFAR-10 tutorial; multi-layer
# perceptrons.
describe() {
  case $1 in
    gpt2)
      batch=32 warmup=7 repeat=15 torch_warmup=5 torch_repeat=15
      options="--model gpt --layers 12 --width 768 --heads 12 --context 1024 --outputs 50257 --optimizer adamw --clip-norm 1"
      request='"network": "gpt", "layers": 12, "width": 768, "heads": 12, "context": 1024, "classes": 50257, "padded_classes": 50304' ;;
    resnet50)
      batch=256 warmup=7 repeat=15 torch_warmup=10 torch_repeat=15
      options="--model resnet --depth 50 --image 224x224x3 --outputs 1000 --optimizer nesterov"
      request='"network": "resnet", "depth": 50, "image": [224, 224, 3], "classes": 1000' ;;
    lstm)
      batch=64 warmup=7 repeat=50 torch_warmup=5 torch_repeat=30
      options="--model lstm --layers 2 --hidden 1024 --unroll 35 --outputs 10000 --optimizer sgd"
      request='"network": "lstm", "layers": 2, "hidden": 1024, "unroll": 35, "classes": 10000' ;;
    cnn)
      batch=128 warmup=25 repeat=200 torch_warmup=25 torch_repeat=200
      options="--model cnn --image 32x32x3 --outputs 10 --optimizer sgd"
      request='"network": "cnn", "image": [32, 32, 3], "classes": 10' ;;
    unet_2d)
      batch=16 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/unet/unet.yaml --width 32 --image 128x128x1 --outputs 3"
      request='"network": "unet", "image": [128, 128, 1], "width": 32, "levels": 3, "classes": 3' ;;
    unet_3d)
      batch=4 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/unet/unet.yaml --width 32 --image 32x32x32x1 --outputs 3"
      request='"network": "unet", "image": [32, 32, 32, 1], "width": 32, "levels": 3, "classes": 3' ;;
    cosmoflow)
      batch=8 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/cosmoflow/cosmoflow.yaml --filters 32 --levels 5 --image 64x64x64x4 --outputs 4 --regression"
      request='"network": "cosmoflow", "image": [64, 64, 64, 4], "filters": 32, "levels": 5, "targets": 4' ;;
    vit)
      batch=256 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/vit/vit.yaml --width 192 --heads 3 --blocks 12 --image 32x32x3 --outputs 10"
      request='"network": "vit", "image": [32, 32, 3], "patch": 4, "width": 192, "heads": 3, "layers": 12, "classes": 10' ;;
    gru)
      batch=64 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/series/series.yaml --layers 2 --width 128 --image 96x8 --outputs 24 --regression"
      request='"network": "series", "image": [96, 8], "width": 128, "layers": 2, "targets": 24' ;;
    spectra)
      batch=64 warmup=10 repeat=50 torch_warmup=10 torch_repeat=50
      options="--model $examples/spectra/spectra.yaml --image 1000x1 --outputs 2 --regression"
      request='"network": "spectra", "image": [1000, 1], "filters": [16, 32, 64], "targets": 2' ;;
    mlp) perceptron 128 500 sgd 784,512,512,10 ;;
    mlp_100) perceptron 100 500 adam 784,100,10 ;;
    mlp_regression) perceptron 2000 500 sgd 600,512,128,128,1 ;;
    mlp_4096) perceptron 8192 10 sgd 784,4096,4096,4096,4096,4096,4096,4096,4096,10 ;;
    *) failed "no such figure: $1" ;;
  esac
  [ "$subject" = gpu ] || make_small "$1"
}
# perceptron BATCH STEPS OPTIMISER WIDTHS: a last width of 1 makes it a regression.
perceptron() {
  local widths=$4 hidden=${4#*,} regression=false
  hidden=${hidden%,*} batch=$1 repeat=$2 warmup=$(($2 / 10 + 5)) torch_warmup=$(($2 / 10 + 5)) torch_repeat=$2
  options="--features ${widths%%,*} --outputs ${widths##*,} --hidden $hidden --optimizer $3"
  if [ "${widths##*,}" = 1 ]; then options+=" --regression" regression=true; fi
  request="\"layers\": [$widths], \"optimizer\": \"$3\", \"regression\": $regression"
}
# make_small WORKLOAD: just enough to show, with the CPU in place of a GPU, that both programs accept it.
make_small() {
  batch=2 warmup=1 repeat=2 torch_warmup=1 torch_repeat=2
  case $1 in
    gpt2)
      options="--model gpt --layers 2 --width 64 --heads 2 --context 32 --outputs 65 --optimizer adamw --clip-norm 1"
      request='"network": "gpt", "layers": 2, "width": 64, "heads": 2, "context": 32, "classes": 65' ;;
    unet_2d|unet_3d|cosmoflow|vit)
      options=${options//128x128/16x16} options=${options//32x32x32x1/8x8x8x1} options=${options//64x64x64/32x32x32}
      options=${options//192/48} options=${options//--blocks 12/--blocks 1}
      request=${request//128, 128/16, 16} request=${request//32, 32, 32, 1/8, 8, 8, 1} request=${request//64, 64, 64/32, 32, 32}
      request=${request//192/48} request=${request//\"layers\": 12/\"layers\": 1} ;;
    resnet50) options=${options//224/64} request=${request//224/64} ;;
    lstm)
      options="--model lstm --layers 2 --hidden 64 --unroll 5 --outputs 100 --optimizer sgd"
      request='"network": "lstm", "layers": 2, "hidden": 64, "unroll": 5, "classes": 100' ;;
  esac
}

# pack_images: shards of random images and labels for $options, some batches of them; small ones with --quick.
pack_images() {
  local image batches=12
  [ -z "$quick" ] || options=${options//224x224/32x32} batches=1
  image=$(sed -n 's/.*--image \([0-9x]*\).*/\1/p' <<<"$options")
  [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null || not_run "no python3 here has numpy"
  "$python" -B - "${image//x/ }" $((batches * batch)) <<'END' || failed "no images"
import sys, numpy
extents, images = [int(word) for word in sys.argv[1].split()], int(sys.argv[2])
random = numpy.random.default_rng(1)
numpy.save("x.npy", random.integers(0, 256, (images, *extents), dtype=numpy.uint8))
numpy.save("y.npy", random.integers(0, 10, images))
END
  launch 1 lockstep pack --x x.npy --y y.npy --out shards --shards 4 >pack.out 2>&1 || failed "$(tail -n 1 pack.out)"
  rm x.npy y.npy
  options=$(sed 's/ --image [0-9x]*//; s/ --outputs [0-9]*//' <<<"$options")
}

# number KEY: its value in the first JSON object on standard input.
number() { sed -n "s/.*\"$1\": *\([^,} ]*\).*/\1/p" | head -n 1; }

# step NAME: a measurement of Lockstep.
step() {
  local name=$1 workload=${1%%.*} precision=bf16 variant=usual more=() at=(--device cpu) word
  describe "$workload"
  [ "$subject" = gpu ] || { [ "$name" = "$workload" ] && [ "$name" != mlp_4096 ]; } || not_run "needs a GPU"
  for word in ${name//./ }; do
    case $word in
      fp32|tf32|bf16) precision=$word ;;
      tuned) variant=$word more+=(--tune) ;;
      plain) variant=$word more+=(--no-graph) ;;
      files) variant=$word more+=(--input data --data shards) && pack_images ;;
      batch_*) batch=${word#batch_} ;;
    esac
  done
  [ "$subject" != gpu ] || at=(--device gpu --precision "$precision")
  [ "$name" = gpt2 ] || more+=(--no-roof)  # the roofline's product is measured once
  # shellcheck disable=SC2086  # the options are words
  launch 1 lockstep bench step $options --batch "$batch" --learning-rate 0.00001 "${at[@]}" "${more[@]}" --warmup "$warmup" \
    --repeat "$repeat" --json step.json || failed "bench step failed"
  sed "s/^{/{\"figure\": \"step\", \"workload\": \"$workload\", \"variant\": \"$variant\", /" step.json >>"$out/figures.jsonl"
  echo "$(number step_ms <step.json) ms, $(number rows_per_second <step.json) rows/s, MFU $(number mfu <step.json)"
}

all_reduce() {  # over all GPUs, or two ranks on one
  local ranks=2 sharing=() sums=(--repeat 11)
  # MPI's is slow with shared cores.
  [ "$subject" = gpu ] || sums=(--repeat 3 --factor 8 --algorithms ring,shared-memory --max 1048576)
  if [ "$subject" = gpu ]; then
    ranks=$(launch 1 gpu_tests --survey | grep -c '^device ')
    [ "$ranks" -gt 1 ] || ranks=2 sharing=(--share-gpu --max 65536)
  fi
  launch "$ranks" lockstep bench all-reduce --device "$subject" "${sharing[@]}" "${sums[@]}" --json all_reduce.json \
    >all_reduce.out 2>&1 || { cat all_reduce.out; failed "bench all-reduce failed"; }
  cat all_reduce.out
  printf '{"figure": "all_reduce", "ranks": %d, "shared_gpu": %s, "lockstep": [%s]}\n' "$ranks" \
    "$([ ${#sharing[@]} = 0 ] && echo false || echo true)" "$(paste -sd , all_reduce.json)" >>"$out/figures.jsonl"
  echo "$ranks ranks${sharing[*]:+ on one GPU: shows that it works, not how fast NCCL is}"
}

# ask WORKLOAD PRECISION MODE [KEYS]: a request to PyTorch.
ask() {
  describe "$1"
  printf '{"workload": "%s", %s%s, "batch": %d, "precision": "%s", "mode": "%s", "warmup": %d, "repeat": %d}\n' \
    "$1" "$request" "${4:-}" "$batch" "$2" "$3" "$torch_warmup" "$torch_repeat"
}
compiled() {  # the large networks
  ask gpt2 bf16 compile-default
  ask resnet50 bf16 compile-default
  ask gpt2 bf16 compile ', "residual": "bf16"'
}
requests() {  # the most valuable first
  local workload precision
  if [ "$subject" != gpu ]; then
    for workload in gpt2 resnet50 lstm cnn mlp mlp_100 mlp_regression unet_2d unet_3d cosmoflow vit gru spectra; do ask $workload fp32 eager; done
    return
  fi
  for workload in gpt2 resnet50 lstm mlp; do ask $workload bf16 eager; done
  ask mlp bf16 graph
  [ -n "$quick" ] || { ask mlp bf16 compile; compiled; }
  for workload in lstm resnet50 gpt2; do ask $workload bf16 graph; done
  for workload in cnn unet_2d unet_3d cosmoflow vit gru spectra; do
    ask $workload bf16 eager
    ask $workload bf16 graph
  done
  for workload in mlp mlp_100 mlp_regression mlp_4096; do
    for precision in bf16 fp32 tf32; do
      [ $workload.$precision = mlp.bf16 ] || { ask $workload $precision eager; ask $workload $precision graph; }
    done
  done
  [ -z "$quick" ] || return
  ask lstm bf16 compile
  for workload in mlp mlp_100 mlp_regression mlp_4096; do
    for precision in bf16 fp32 tf32; do [ $workload.$precision = mlp.bf16 ] || ask $workload $precision compile; done
  done
}
torch() {
  local cpu=() asked answered errors
  [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null || not_run "no python3 here has torch"
  [ "$subject" = gpu ] || cpu=(--cpu)
  requests >"$work/more/torch.requests"
  timeout --foreground $((seconds - 2)) "$python" -B "$here/../peers/torch_gpu_step.py" "${cpu[@]}" \
    <"$work/more/torch.requests" >>"$out/torch.jsonl"
  asked=$(wc -l <"$work/more/torch.requests") answered=$(grep -c '"step_ms"' "$out/torch.jsonl")
  errors=$(grep -c '"error"' "$out/torch.jsonl")
  sed -n 's/.*"error"/error/p' "$out/torch.jsonl"
  [ "$answered" -gt 0 ] || failed "no answer from PyTorch"
  echo "$answered of $asked requests measured, $errors failed"
}
warm_torch() {  # fills the cache of torch.compile
  { compiled; ask mlp bf16 compile; } | sed 's/"warmup": [0-9]*, "repeat": [0-9]*/"warmup": 2, "repeat": 1/' >requests
  exec "$python" -B "$here/../peers/torch_gpu_step.py" <requests >"$work/more/warm.jsonl"
}

kernels_of() {  # kernels of recorded steps, their times and the gaps between them
  local table=$work/more/kernels.$1.txt
  [ "$subject" = gpu ] || not_run "needs a GPU"
  [ -f "$KERNEL_TIMES_LIBRARY" ] || not_run "kernel_times.so was not built: no CUPTI was found"
  describe "$1"
  # shellcheck disable=SC2086  # the options are words
  CUDA_INJECTION64_PATH=$KERNEL_TIMES_LIBRARY KERNEL_TIMES=$table launch 1 lockstep bench step $options --device gpu \
    --batch "$batch" --learning-rate 0.00001 --no-roof --warmup 3 --repeat 3 >kernels.out 2>&1 ||
    failed "bench step failed: $(tail -n 1 kernels.out)"
  [ -s "$table" ] || failed "$(grep -m 1 kernel_times kernels.out || echo "no table")"
  echo "$(sed -n '2,/^us of/p' "$table" | grep -c '^ *[0-9]') kinds of kernels, copies and fills"
}

case $1 in
  all_reduce|torch|warm_torch) "$1" ;;
  kernels.*) kernels_of "${1#kernels.}" ;;
  *) step "$1" ;;
esac
