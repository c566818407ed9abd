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
# ask_torch MODE: step_ms of the current workload at the current precision; nothing where it cannot.
ask_torch() {
  local answer regression=false
  [ "$kind" = classify ] || regression=true
  echo "{\"layers\": [$inputs,$hidden,$outputs], \"batch\": $batch, \"optimizer\": \"$optimizer\", \"regression\": $regression," \
    "\"precision\": \"$precision\", \"mode\": \"$1\", \"warmup\": $((repeat / 10 + 5)), \"repeat\": $repeat}" >&"${torch[1]}" || return
  read -r -t 120 answer <&"${torch[0]}" || return
  grep -q step_ms <<<"$answer" || echo "torch $1 $name $precision: $answer" >&2
  number step_ms <<<"$answer"
}
ask_lockstep() {
  local task=()
  [ "$kind" = classify ] || task=(--regression)
  [ "$subject" != gpu ] || task+=(--precision "$precision")
  launch 1 lockstep bench step --features "$inputs" --outputs "$outputs" --hidden "$hidden" --batch "$batch" \
    --optimizer "$optimizer" --learning-rate 0.00001 "${task[@]}" --warmup $((repeat / 10 + 5)) --repeat "$repeat" "${device[@]}" --json step.json \
    >step.out 2>&1 || return
  cat step.json >>lockstep.json
  number step_ms <step.json
}

steps() {
  local modes="" mode
  start_torch && modes="eager compile graph"
  [ -n "$modes" ] || echo "without PyTorch: no python3 here has a torch that sees the device"
  printf '%-20s %-5s %12s %12s %12s %12s\n' "ms per step" "" lockstep "torch eager" compiled graph >>"$table"
  while read -r name inputs hidden outputs batch optimizer kind repeat; do
    for precision in $precisions; do
      rm -f ms.* lockstep.json
      for _ in $(seq $rounds); do
        ask_lockstep >>ms.lockstep || { cat step.out; failed "bench step $name $precision failed"; }
        for mode in $modes; do ask_torch "$mode" >>"ms.$mode"; done
      done
      touch ms.eager ms.compile ms.graph
      printf '%-20s %-5s %12s %12s %12s %12s\n' "$name" "$precision" "$(median <ms.lockstep)" \
        "$(median <ms.eager)" "$(median <ms.compile)" "$(median <ms.graph)" >>"$table"
      {
        printf '{"figure": "step", "workload": "%s", "precision": "%s", "batch": %d, "rounds": %d, "lockstep_ms": %s' \
          "$name" "$precision" "$batch" "$rounds" "$(median <ms.lockstep)"
        for mode in $modes; do [ ! -s "ms.$mode" ] || printf ', "torch_%s_ms": %s' "$mode" "$(median <"ms.$mode")"; done
        printf ', "lockstep": [%s]}\n' "$(paste -sd , lockstep.json)"
      } >>"$figures"
    done
  done <<<"$workloads"
  echo "medians of $rounds rounds${modes:+, PyTorch $(cat "$work/torch-version") beside it}"
}

# ---- all-reduce: over all GPUs, or two ranks on one ----

all_reduce() {
  local ranks=2 sharing=()
  if [ "$subject" = gpu ]; then
    ranks=$(launch 1 gpu_tests --survey | grep -c '^device ')
    [ "$ranks" -gt 1 ] || ranks=2 sharing=(--share-gpu)
  fi
  launch "$ranks" lockstep bench all-reduce "${device[@]}" "${sharing[@]}" --json all_reduce.json >all_reduce.out 2>&1 ||
    { cat all_reduce.out; failed "bench all-reduce failed"; }
  { echo; cat all_reduce.out; } >>"$table"
  printf '{"figure": "all_reduce", "ranks": %d, "shared_gpu": %s, "lockstep": [%s]}\n' "$ranks" \
    "$([ ${#sharing[@]} = 0 ] && echo false || echo true)" "$(paste -sd , all_reduce.json)" >>"$figures"
  echo "$ranks ranks${sharing[*]:+ on one GPU: shows that it works, not how fast NCCL is}"
}

"$1"
