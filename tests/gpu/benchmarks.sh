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
# ask_torch MODE REQUEST: step_ms of the current workload at the current precision to the file ms.MODE, the answer to
# torch.json; nothing where it cannot. Who does not answer in time is asked no more: the next answer would be this one.
ask_torch() {
  local answer
  [ -z "$silent" ] || return
  echo "{$2, \"batch\": $batch, \"precision\": \"$precision\", \"mode\": \"$1\", \"warmup\": $((repeat / 10 + 5))," \
    "\"repeat\": $repeat}" >&"${torch[1]}"
  if ! read -r -t 240 answer <&"${torch[0]}"; then
    silent=yes
    echo "torch $1 $name $precision: no answer"
    return
  fi
  sed "s/^{/{\"mode\": \"$1\", /" <<<"$answer" >>torch.json
  grep -q step_ms <<<"$answer" || echo "torch $1 $name $precision: $answer"
  number step_ms <<<"$answer" >>"ms.$1"
}
silent="" broken=""
# --no-roof: the roofline's product is measured once, with the first network.
roof=(--no-roof)
# ask_lockstep OPTIONS...: the same of Lockstep.
ask_lockstep() {
  local at=()
  [ "$subject" != gpu ] || at=(--precision "$precision")
  launch 1 lockstep bench step "$@" --batch "$batch" --learning-rate 0.00001 "${at[@]}" "${roof[@]}" \
    --warmup $((repeat / 10 + 5)) --repeat "$repeat" "${device[@]}" --json step.json >step.out 2>&1 || return
  cat step.json >>lockstep.json
  number step_ms <step.json
}

# measure FIGURE REQUEST OPTIONS...: both take turns for `rounds` rounds; a line of the table and a figure.
measure() {
  local figure=$1 request=$2 mode
  shift 2
  rm -f ms.* lockstep.json torch.json
  for _ in $(seq $rounds); do
    ask_lockstep "$@" >>ms.lockstep || { cat step.out; broken+=" $name $precision,"; return; }
    for mode in $modes; do ask_torch "$mode" "$request"; done
  done
  touch ms.eager ms.compile ms.graph torch.json
  printf '%-20s %-5s %12s %12s %12s %12s\n' "$name" "$precision" "$(median <ms.lockstep)" \
    "$(median <ms.eager)" "$(median <ms.compile)" "$(median <ms.graph)" >>"$table"
  {
    printf '{"figure": "%s", "workload": "%s", "precision": "%s", "batch": %d, "rounds": %d, "lockstep_ms": %s' \
      "$figure" "$name" "$precision" "$batch" "$rounds" "$(median <ms.lockstep)"
    for mode in $modes; do [ ! -s "ms.$mode" ] || printf ', "torch_%s_ms": %s' "$mode" "$(median <"ms.$mode")"; done
    printf ', "lockstep": [%s], "torch": [%s]}\n' "$(paste -sd , lockstep.json)" "$(paste -sd , torch.json)"
  } >>"$figures"
}
# with_torch MODES: sets `modes` to those, or to none where there is no PyTorch.
with_torch() {
  modes=""
  start_torch && modes=$1
  [ -n "$modes" ] || echo "without PyTorch: no python3 here has a torch that sees the device"
}
done_with_torch() {
  [ -z "$broken" ] || failed "bench step failed:${broken%,}"
  echo "medians of $rounds round(s)${modes:+, PyTorch $(cat "$work/torch-version") beside it}"
}

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

# ---- networks: the same, of those that people train, the most valuable first ----

# name, batch, steps per measurement | modes of PyTorch | what it is asked for | options of lockstep bench step
#   GPT-2 of 124 million parameters, whose vocabulary Lockstep pads by itself; ResNet-50; the "large" LSTM of Zaremba et
#   al. with two layers of 1024; a multi-layer perceptron; the LSTM with a product and a pass for each step; the CNN of
#   TensorFlow's CIFAR-10 tutorial
gpt2="\"network\": \"gpt\", \"layers\": 12, \"width\": 768, \"heads\": 12, \"context\": 1024, \"classes\": 50257, \"padded_classes\": 50304"
resnet50="\"network\": \"resnet\", \"depth\": 50, \"image\": [224, 224, 3], \"classes\": 1000"
lstm="\"network\": \"lstm\", \"layers\": 2, \"hidden\": 1024, \"unroll\": 35, \"classes\": 10000"
mlp="\"layers\": [784, 512, 512, 10], \"optimizer\": \"sgd\", \"regression\": false"
networks="gpt2-124m 32 20 | eager | $gpt2 | --model gpt --layers 12 --width 768 --heads 12 --context 1024 --outputs 50257 --optimizer adamw
resnet50 256 20 | eager | $resnet50 | --model resnet --depth 50 --image 224x224x3 --outputs 1000 --optimizer nesterov
lstm-2x1024 64 50 | eager graph | $lstm | --model lstm --layers 2 --hidden 1024 --unroll 35 --outputs 10000 --optimizer sgd
mlp-512-512 128 500 | eager graph | $mlp | --features 784 --outputs 10 --hidden 512,512 --optimizer sgd
lstm-2x1024-by-step 64 50 | | | --model lstm --layers 2 --hidden 1024 --unroll 35 --outputs 10000 --optimizer sgd --no-persistent-lstm
cnn 128 200 | eager graph | \"network\": \"cnn\", \"image\": [32, 32, 3], \"classes\": 10 | --model cnn --image 32x32x3 --outputs 10 --optimizer sgd"
# The same beside what torch.compile makes of them, which takes a minute for each: last, as far as there is time.
compiled="gpt2-124m 32 20 | compile-default | $gpt2, \"residual\": \"bf16\"
resnet50 256 20 | compile-default | $resnet50
lstm-2x1024 64 50 | compile | $lstm
mlp-512-512 128 500 | compile | $mlp
gpt2-124m 32 20 | compile | $gpt2, \"residual\": \"bf16\""
# In the GPU's place: as small as shows that both programs take these.
small_networks="gpt 2 2 | eager | \"network\": \"gpt\", \"layers\": 2, \"width\": 64, \"heads\": 2, \"context\": 32, \"classes\": 65 | --model gpt --layers 2 --width 64 --heads 2 --context 32 --outputs 65 --optimizer adamw
resnet50 1 1 | eager | \"network\": \"resnet\", \"depth\": 50, \"image\": [64, 64, 3], \"classes\": 10 | --model resnet --depth 50 --image 64x64x3 --outputs 10 --optimizer nesterov
lstm 4 2 | eager | \"network\": \"lstm\", \"layers\": 2, \"hidden\": 64, \"unroll\": 5, \"classes\": 100 | --model lstm --layers 2 --hidden 64 --unroll 5 --outputs 100 --optimizer sgd
cnn 8 2 | eager | \"network\": \"cnn\", \"image\": [32, 32, 3], \"classes\": 10 | --model cnn --image 32x32x3 --outputs 10 --optimizer sgd"

networks() {
  local modes precision=bf16 torch_modes first request options enough=200
  rounds=1
  with_torch eager
  local has_torch=$modes
  if [ "$subject" != gpu ]; then networks=$small_networks compiled="" precision=fp32; fi
  { echo; printf '%-20s %-5s %12s %12s %12s %12s\n' "ms per step" "" lockstep "torch eager" compiled graph; } >>"$table"
  roof=()
  while IFS='|' read -r first torch_modes request options; do
    read -r name batch repeat <<<"$first"
    modes=${has_torch:+$torch_modes}
    # shellcheck disable=SC2086  # the options are words
    measure network "$request" $options
    roof=(--no-roof)
  done <<<"$networks"
  if [ -n "$quick" ] || [ -z "$has_torch" ]; then compiled=""; fi
  while IFS='|' read -r first mode request; do
    read -r name batch repeat <<<"$first"
    read -r mode <<<"$mode"
    if [ -z "$name" ] || [ $SECONDS -ge $enough ]; then continue; fi
    rm -f ms.* torch.json
    ask_torch "$mode" "$request"
    [ -s "ms.$mode" ] || continue
    printf '%-20s %-5s torch %s: %.5g ms\n' "$name" "$precision" "$mode" "$(<"ms.$mode")" >>"$table"
    printf '{"figure": "compiled", "workload": "%s", "precision": "%s", "batch": %d, "torch": [%s]}\n' "$name" \
      "$precision" "$batch" "$(<torch.json)" >>"$figures"
  done <<<"$compiled"
  modes=$has_torch
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
