#!/usr/bin/env bash
# benchmarks.sh NAME: measurements of tests/gpu/run, which sets the variables. Writes figures.NAME.json (an object per
# line, as far as it came) and adds to the table. Exit: 0 measured, 77 not run, else failed.
set -u
: "${work:?tests/gpu/run calls this}" "${here:?}" "${subject:?}" "${quick?}" "${LAUNCHER:?}"
scratch=$work/$1.files figures=$work/figures.$1.json table=$work/table
mkdir -p "$scratch" && cd "$scratch" || exit 1
export TMPDIR=$scratch
launch() { eval "$LAUNCHER \"\$@\""; }
failed() { echo "$*"; exit 1; }
if [ "$subject" = gpu ]; then device=(--device gpu) precisions="fp32 tf32 bf16"; else device=(--device cpu) precisions=fp32; fi
rounds=3
[ -z "$quick" ] || rounds=1
# number KEY: of the first JSON object on standard input.
number() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1; }
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) printf "%.5g\n", v[int((NR + 1) / 2)] }'; }

# ---- steps: Lockstep and PyTorch take turns ----

# name, inputs, hidden, outputs, batch, optimiser, kind, steps per measurement
workloads="784-100-10 784 100 10 100 adam classify 500
784-512-512-10 784 512,512 10 128 sgd classify 500
784-8x4096-10 784 4096,4096,4096,4096,4096,4096,4096,4096 10 8192 sgd classify 10
600-512-128-128-1 600 512,128,128 1 2000 sgd regress 500"
[ "$subject" = gpu ] || workloads=$(sed '/4096/d; s/500$/20/' <<<"$workloads")

start_torch() {
  local python options=() hello
  [ "$subject" = gpu ] || options=(--cpu)
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import torch' 2>/dev/null || continue
    coproc torch { "$python" "$here/../peers/torch_gpu_step.py" "${options[@]}" 2>torch.err; }
    if read -r -t 60 hello <&"${torch[0]}"; then
      sed -n 's/.*"torch": "\([^"]*\)".*/\1/p' <<<"$hello" >"$work/torch-version"
      return
    fi
    cat torch.err
  done
  return 1
}
# ask_torch MODE REQUEST: step_ms of the current workload at the current precision, as JSON without its braces; nothing
# where it cannot.
ask_torch() {
  local answer
  echo "{$2, \"batch\": $batch, \"precision\": \"$precision\", \"mode\": \"$1\", \"warmup\": $((repeat / 10 + 5))," \
    "\"repeat\": $repeat}" >&"${torch[1]}" || return
  read -r -t 240 answer <&"${torch[0]}" || return
  grep -q step_ms <<<"$answer" || echo "torch $1 $name $precision: $answer" >&2
  number step_ms <<<"$answer"
}
# ask_lockstep OPTIONS...: the same of Lockstep.
ask_lockstep() {
  local at=()
  [ "$subject" != gpu ] || at=(--precision "$precision")
  launch 1 lockstep bench step "$@" --batch "$batch" --learning-rate 0.00001 "${at[@]}" --warmup $((repeat / 10 + 5)) \
    --repeat "$repeat" "${device[@]}" --json step.json >step.out 2>&1 || return
  cat step.json >>lockstep.json
  number step_ms <step.json
}

# measure FIGURE REQUEST OPTIONS...: both take turns for `rounds` rounds; a line of the table and a figure.
measure() {
  local figure=$1 request=$2 mode
  shift 2
  rm -f ms.* lockstep.json
  for _ in $(seq $rounds); do
    ask_lockstep "$@" >>ms.lockstep || { cat step.out; failed "bench step $name $precision failed"; }
    for mode in $modes; do ask_torch "$mode" "$request" >>"ms.$mode"; done
  done
  touch ms.eager ms.compile ms.graph
  printf '%-20s %-5s %12s %12s %12s %12s\n' "$name" "$precision" "$(median <ms.lockstep)" \
    "$(median <ms.eager)" "$(median <ms.compile)" "$(median <ms.graph)" >>"$table"
  {
    printf '{"figure": "%s", "workload": "%s", "precision": "%s", "batch": %d, "rounds": %d, "lockstep_ms": %s' \
      "$figure" "$name" "$precision" "$batch" "$rounds" "$(median <ms.lockstep)"
    for mode in $modes; do [ ! -s "ms.$mode" ] || printf ', "torch_%s_ms": %s' "$mode" "$(median <"ms.$mode")"; done
    printf ', "lockstep": [%s]}\n' "$(paste -sd , lockstep.json)"
  } >>"$figures"
}
# with_torch MODES: sets `modes` to those, or to none where there is no PyTorch.
with_torch() {
  modes=""
  start_torch && modes=$1
  [ -n "$modes" ] || echo "without PyTorch: no python3 here has a torch that sees the device"
}
done_with_torch() { echo "medians of $rounds rounds${modes:+, PyTorch $(cat "$work/torch-version") beside it}"; }

steps() {
  local modes task regression
  with_torch "eager compile graph"
  printf '%-20s %-5s %12s %12s %12s %12s\n' "ms per step" "" lockstep "torch eager" compiled graph >>"$table"
  while read -r name inputs hidden outputs batch optimizer kind repeat; do
    task=() regression=false
    [ "$kind" = classify ] || task=(--regression) regression=true
    for precision in $precisions; do
      measure step "\"layers\": [$inputs,$hidden,$outputs], \"optimizer\": \"$optimizer\", \"regression\": $regression" \
        --features "$inputs" --outputs "$outputs" --hidden "$hidden" --optimizer "$optimizer" "${task[@]}"
    done
  done <<<"$workloads"
  done_with_torch
}

# ---- networks: the same, of those that people train ----

# name, batch, steps per measurement | what PyTorch is asked for | options of lockstep bench step
#   GPT-2 of 124 million parameters; ResNet-50; the "large" LSTM of Zaremba et al. with two layers of 1024, and the same
#   with a product and a pass for each step; the CNN of TensorFlow's CIFAR-10 tutorial
networks="gpt2-124m 16 20 | \"network\": \"gpt\", \"layers\": 12, \"width\": 768, \"heads\": 12, \"context\": 1024, \"classes\": 50257 | --model gpt --layers 12 --width 768 --heads 12 --context 1024 --outputs 50257 --optimizer adamw
resnet50 256 20 | \"network\": \"resnet\", \"depth\": 50, \"image\": [224, 224, 3], \"classes\": 1000 | --model resnet --depth 50 --image 224x224x3 --outputs 1000 --optimizer nesterov
lstm-2x1024 64 50 | \"network\": \"lstm\", \"layers\": 2, \"hidden\": 1024, \"unroll\": 35, \"classes\": 10000 | --model lstm --layers 2 --hidden 1024 --unroll 35 --outputs 10000 --optimizer sgd
lstm-2x1024-by-step 64 50 | \"network\": \"lstm\", \"layers\": 2, \"hidden\": 1024, \"unroll\": 35, \"classes\": 10000 | --model lstm --layers 2 --hidden 1024 --unroll 35 --outputs 10000 --optimizer sgd --no-persistent-lstm
cnn 128 200 | \"network\": \"cnn\", \"image\": [32, 32, 3], \"classes\": 10 | --model cnn --image 32x32x3 --outputs 10 --optimizer sgd"
# In the GPU's place: as small as shows that both programs take these.
small_networks="gpt 2 2 | \"network\": \"gpt\", \"layers\": 2, \"width\": 64, \"heads\": 2, \"context\": 32, \"classes\": 65 | --model gpt --layers 2 --width 64 --heads 2 --context 32 --outputs 65 --optimizer adamw
resnet50 1 1 | \"network\": \"resnet\", \"depth\": 50, \"image\": [64, 64, 3], \"classes\": 10 | --model resnet --depth 50 --image 64x64x3 --outputs 10 --optimizer nesterov
lstm 4 2 | \"network\": \"lstm\", \"layers\": 2, \"hidden\": 64, \"unroll\": 5, \"classes\": 100 | --model lstm --layers 2 --hidden 64 --unroll 5 --outputs 100 --optimizer sgd
cnn 8 2 | \"network\": \"cnn\", \"image\": [32, 32, 3], \"classes\": 10 | --model cnn --image 32x32x3 --outputs 10 --optimizer sgd"

networks() {
  local modes precision=bf16 wanted="eager compile" first request options
  [ -z "$quick" ] || wanted=eager  # compiling takes a minute for each
  with_torch "$wanted"
  if [ "$subject" != gpu ]; then networks=$small_networks precision=fp32; fi
  { echo; printf '%-20s %-5s %12s %12s %12s %12s\n' "ms per step" "" lockstep "torch eager" compiled graph; } >>"$table"
  while IFS='|' read -r first request options; do
    read -r name batch repeat <<<"$first"
    # shellcheck disable=SC2086  # the options are words
    measure network "$request" $options
  done <<<"$networks"
  done_with_torch
}

# ---- all-reduce: over all GPUs, or two ranks on one ----

all_reduce() {
  local ranks=2 sharing=() sums=(--repeat 11)
  # MPI's is slow where cores are shared.
  [ "$subject" = gpu ] || sums=(--repeat 3 --factor 8 --algorithms ring,shared-memory --max 1048576)
  if [ "$subject" = gpu ]; then
    ranks=$(launch 1 gpu_tests --survey | grep -c '^device ')
    [ "$ranks" -gt 1 ] || ranks=2 sharing=(--share-gpu --max 16777216)
  fi
  launch "$ranks" lockstep bench all-reduce "${device[@]}" "${sharing[@]}" "${sums[@]}" --json all_reduce.json \
    >all_reduce.out 2>&1 || { cat all_reduce.out; failed "bench all-reduce failed"; }
  { echo; cat all_reduce.out; } >>"$table"
  printf '{"figure": "all_reduce", "ranks": %d, "shared_gpu": %s, "lockstep": [%s]}\n' "$ranks" \
    "$([ ${#sharing[@]} = 0 ] && echo false || echo true)" "$(paste -sd , all_reduce.json)" >>"$figures"
  echo "$ranks ranks${sharing[*]:+ on one GPU: shows that it works, not how fast NCCL is}"
}

"$1"
