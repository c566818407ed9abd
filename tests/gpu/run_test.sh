#!/usr/bin/env bash
# run_test.sh BUILD [fires]: tests/gpu/run from its first line to its last without a GPU. The programs of BUILD pretend
# to have two GPUs: they remove the GPU options and compute on the CPU. All phases must pass then, results must be
# written as soon as they exist, and PyTorch, pretended too, must stand beside the right steps. With `fires` the
# pretended GPUs compute something else and refuse nothing, and every phase must notice.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-pretended.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/pretended/tests" "$work/cuda/bin" "$work/bin" "$work/tmp"
PYTHON=$(command -v python3) || { echo "needs python3"; exit 77; }
export PYTHON TMPDIR=$work/tmp PATH=$work/bin:$PATH CUDA_HOME=$work/cuda REAL=$build

cat >"$work/pretended/lockstep" <<'PRETENDED'
#!/usr/bin/env bash
gpu="" shared="" ring="" precision=fp32 batch="" json="" command=$1 words=()
while [ $# -gt 0 ]; do
  case $1 in
    --device) if [ "$2" = gpu ]; then gpu=yes; words+=(--device cpu); else words+=("$1" "$2"); fi; shift 2 ;;
    --precision) precision=$2; shift 2 ;;
    --json) json=$2; words+=("$1" "$2"); shift 2 ;;
    --share-gpu) shared=yes; shift ;;
    --ring) ring=yes; shift ;;
    --no-graph|--no-cudnn-attention|--tune) shift ;;
    --repeat|--warmup) words+=("$1" 2); shift 2 ;;
    --batch) batch=$2 words+=("$1" "$(($2 > 64 ? 4 : $2))"); shift 2 ;;
    --hidden)
      if [ "$2" = 65536 ] && [ -z "$LIE" ]; then echo "lockstep: error: out of GPU memory before the start: 977 GiB. --batch 9 would fit"; exit 1; fi
      words+=("$1" "${2//4096/64}"); [ "$2" != 1024 ] || words[-1]=64; shift 2 ;;
    --layers|--heads) words+=("$1" 2); shift 2 ;;  # for networks made for GPUs: small enough for a CPU within a second
    --width|--context) words+=("$1" "$([ "$command" = bench ] && [ "$2" -gt 64 ] && echo 64 || echo "$2")"); shift 2 ;;
    --unroll) words+=("$1" 5); shift 2 ;;
    --image)
      words+=("$1" "$2") small=${2//224/64} small=${small//128x128/16x16} small=${small//32x32x32x1/8x8x8x1}
      [ "$command" != bench ] || words[-1]=${small//64x64x64/32x32x32}
      shift 2 ;;
    --outputs) words+=("$1" "$(($2 > 100 ? 100 : $2))"); shift 2 ;;
    *) words+=("$1"); shift ;;
  esac
done
visible=${CUDA_VISIBLE_DEVICES-0,1}
if [ -n "$gpu" ] && [ -z "$LIE" ]; then
  [ -n "$visible" ] || { echo "lockstep: error: CUDA_VISIBLE_DEVICES is empty"; exit 1; }
  if [ "${OMPI_COMM_WORLD_SIZE:-1}" -gt "$(tr ',' '\n' <<<"$visible" | wc -l)" ] && [ -z "$shared" ]; then
    echo "lockstep: error: ranks 0 and 1 would share one GPU; --share-gpu lets ranks share"; exit 1
  fi
  [ -z "$ring" ] || echo "NCCL 2.28.9, ring 0 -> 1 -> 0, algorithm Ring for 1 MiB (Simple)"
fi
[ -z "${KERNEL_TIMES:-}" ] || [ -n "$LIE" ] || printf 'us together\n  1.0 1 1.0 pretended\nus of the beginning\n' >"$KERNEL_TIMES"
if [ -n "$gpu" ] && [ -n "$LIE" ]; then
  logs=(*.out)  # grows each time: another seed, the same on all ranks; and nothing is learnt
  [ "$command" != train ] || words=("${words[@]/#0.001/1e-9}" --seed $((${#logs[@]} + 10)))
  [ "$command" != eval ] || words+=(--data "$LIE/train")
  [ "$command" != bench ] || exit 3
fi
[[ "${words[*]}" != "bench all-reduce"* ]] || words+=(--max 65536 --factor 16 --algorithms ring,shared-memory)
[ -n "$gpu$batch" ] && [ "$command" = bench ] && [ -n "$json" ] || exec "$REAL/lockstep" "${words[@]}"
"$REAL/lockstep" "${words[@]}" || exit  # and the record has the original words
sed -i 's/"precision":"[^"]*"/"precision":"'"$precision"'"/; s/"global_batch":[0-9]*/"global_batch":'"${batch:-1}"'/' "$json"
PRETENDED
cat >"$work/pretended/tests/gpu_tests" <<'PRETENDED'
#!/usr/bin/env bash
if [ "$1" = --survey ]; then printf 'device 0: pretended\ndevice 1: pretended\n'; exit; fi
[ -z "${STALL:-}" ] || exec sleep 1000
[ -z "$LIE" ] || { echo "[  FAILED  ] Gpu/Operations.Pretended/fp32, where GetParam() = fp32"; exit 1; }
case $* in *--backend*) ;; *) set -- "$@" --backend cuda ;; esac
exec "$REAL/tests/gpu_tests" "${@/#cuda/cpu}"
PRETENDED
cat >"$work/cuda/bin/compute-sanitizer" <<'PRETENDED'
#!/usr/bin/env bash
[ "$1" != --help ] || { echo "  --kernel-name arg"; exit; }
[ -z "$LIE" ] || { echo "ERROR SUMMARY: 3 errors"; exit 9; }
while [[ $1 == --* ]]; do shift 2; done
exec "$@"
PRETENDED
touch "$work/pretended/tests/kernel_times.so"
# PyTorch: a step takes 1 ms in graphs, 2 ms otherwise.
cat >"$work/bin/python3" <<'PRETENDED'
#!/usr/bin/env bash
case $* in
  *"import torch"*) exit 0 ;;
  *torch_gpu_step.py*)
    echo '{"torch": "9.9", "device": "pretended"}'
    while read -r request; do
      answer='"step_ms": 2.0'
      [[ $request != *'"mode": "graph"'* ]] || answer='"step_ms": 1.0'
      [ -z "$LIE" ] || answer='"error": "pretended"'
      echo "${request%\}}, $answer}"
    done ;;
  *) exec "$PYTHON" "$@" ;;
esac
PRETENDED
chmod +x "$work"/pretended/lockstep "$work"/pretended/tests/gpu_tests "$work"/cuda/bin/* "$work/bin/python3"

# expect STATUS VERDICT NAME...: checks the exit status of the run that wrote $work/out, and the verdict of each name.
failures=0
expect() {
  local wanted=$1 verdict=$2 name
  shift 2
  [ "$status" = "$wanted" ] || { failures=$((failures + 1)); echo "FAILED: exit $status instead of $wanted"; }
  for name in "$@"; do
    grep -Eq "^$name +$verdict " "$work/out" && continue
    failures=$((failures + 1))
    echo "FAILED: $name should have $verdict: $(grep "^$name " "$work/out")"
  done
  [ "$failures" = 0 ] || cat "$work/out"
}
failed() { failures=$((failures + 1)); echo "FAILED: $*"; }
mapfile -t names < <("$here/run" correct figures profile --only list --build "$work/pretended")
# The examples make their data with h5py, and the figure that reads files with numpy.
"$PYTHON" -c 'import h5py, numpy' 2>/dev/null || mapfile -t names < <(printf '%s\n' "${names[@]}" | grep -v '^example\.\|^masks\.\|\.files$')
# all_but NAME...: the other phases.
all_but() { printf '%s\n' "${names[@]}" | grep -Fvx -f <(printf '%s\n' "$@"); }

if [ "${2:-}" != fires ]; then
  export LIE=""
  sanitizers=(memcheck racecheck)
  "$here/run" correct figures profile --build "$work/pretended" --quick --json "$work/out.json" --out "$work/kept" \
    >"$work/out" 2>&1
  status=$?
  mapfile -t quick < <(all_but "${sanitizers[@]}")
  expect 0 passed "${quick[@]}"
  [ "$(find "$work/kept" -type f | wc -l)" = 8 ] || failed "not the eight files: $(ls "$work/kept")"
  "$PYTHON" - "$work/kept" "$work/out.json" <<'END' || failed "not the figures"
import json, pathlib, sys, tarfile
folder, other = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
result = json.loads((folder / "result.json").read_text())
assert result == json.loads(other.read_text())
assert result["torch"] == "9.9" and len(result["devices"].split("device")) == 3, result
made = [one for one in result["checks"] if one["result"] != "not run" or
        not (one["name"].startswith(("example.", "masks.")) or one["name"].endswith(".files"))]  # without h5py, without numpy
assert all(one["result"] == "passed" for one in made) and len(made) > 50
rows = {(one["workload"], one["variant"], one["precision"], one["batch"]): one for one in result["steps"]}
assert len(rows) == len(result["steps"]) == 27 + any(key[1] == "files" for key in rows), rows.keys()
for key, one in rows.items():  # PyTorch's quickest way, at the same batch
    graph, beside = one["precision"] == "bf16" or key[0].startswith("mlp"), key[:4:3] not in {("gpt2", 64), ("gpt2", 16)}
    assert ("ratio" in one) == beside, one
    if beside:
        assert (one["torch_ms"], one["torch_mode"]) == ((1.0, "graph") if graph else (2.0, "eager")), one
        assert abs(one["ratio"] * one["lockstep_ms"] / one["torch_ms"] - 1) < 1e-9, one
assert {one["figure"] for one in result["figures"]} == {"step", "all_reduce"}
names = tarfile.open(folder / "more.tar.gz").getnames()
assert {"more/torch.requests", "more/kernels.gpt2.txt"} <= set(names), names
END
  # Two results beside each other: the steps that both have.
  "$PYTHON" - "$work/out.json" "$work/other.json" <<'END'
import json, sys
result = json.load(open(sys.argv[1]))
result["steps"] = [{**row, "lockstep_ms": 2500.0} for row in result["steps"] if row["workload"] == "mlp"]
json.dump(result, open(sys.argv[2], "w"))
END
  "$PYTHON" -B "$here/result.py" beside "$work/out.json" "$work/other.json" >"$work/beside"
  grep -Eq '^\| mlp, bf16, 128 \| [0-9.]+ \| [0-9.]+ \| 2500 \| ' "$work/beside" || failed "not beside each other: $(cat "$work/beside")"
  ! grep -q gpt2 "$work/beside" || failed "a step of one result alone: $(cat "$work/beside")"
  # Each test of gpu_tests is in exactly one phase.
  mkdir "$work/kept/train"
  for name in "${names[@]}"; do
    case $name in *.bf16|*.fp32|gpt2_size|rest) ;; *) continue ;; esac
    [[ $name != mlp* ]] || continue
    filter=$(work=$work data=$work/kept subject=cpu quick="" here=$here python=$PYTHON LAUNCHER=none bash "$here/checks.sh" filter "$name")
    "$build/tests/gpu_tests" --backend cpu --gtest_list_tests --gtest_filter="$filter" | grep '^ '
  done | wc -l >"$work/in_phases"
  [ "$(<"$work/in_phases")" = "$("$build/tests/gpu_tests" --backend cpu --gtest_list_tests | grep -c '^ ')" ] ||
    failed "$(<"$work/in_phases") tests are in phases"
  "$here/run" --build "$work/pretended" --only memcheck,racecheck >"$work/out" 2>&1
  status=$?
  expect 0 passed memcheck racecheck
  "$here/run" --build "$work/pretended" --only curve --within 3 >"$work/out" 2>&1
  status=$?
  expect 1 "no time" curve
  # A short call ends in time even if something hangs, and PyTorch compiled beside the checks.
  began=$SECONDS
  STALL=yes "$here/run" --build "$work/pretended" --within 20 --out "$work/short" >"$work/out" 2>&1
  status=$?
  expect 1 "no time" linear.bf16 three_ranks torch
  [ $((SECONDS - began)) -le 60 ] || failed "20 s took $((SECONDS - began))"
  grep -q '^==== warm_torch' "$work/short/logs.txt" || failed "nothing was compiled before"
  tar -xOf "$work/short/more.tar.gz" more/warm.jsonl | grep -c '"repeat": 1,.*step_ms' | grep -qx 4 || failed "not the compiled networks"
  "$here/run" --build "$work/pretended" --only nonsense >"$work/out" 2>&1
  [ $? = 2 ] || failed "a phase that does not exist"
  # A killed run leaves its results so far.
  "$here/run" --build "$work/pretended" --only curve,killed_rank,mlp --out "$work/killed" >"$work/out" 2>&1 &
  for _ in $(seq 600); do grep -q curve "$work/killed/results.jsonl" 2>/dev/null && break; sleep 0.1; done
  sleep 0.5
  kill -9 $!
  wait $! 2>/dev/null
  cat "$TMPDIR"/lockstep-gpu.*/pids/* | xargs -r kill 2>/dev/null
  "$PYTHON" -c 'import json, sys; sys.exit([one["name"] for one in json.load(open(sys.argv[1]))["checks"]][0] != "curve")' \
    "$work/killed/result.json" || failed "the killed run left nothing"
  echo "$failures failures"
  [ "$failures" = 0 ]
  exit
fi

# Phases that the lie does not affect: dying ranks, the CPU as the automatic choice, and the comparisons' own test.
export LIE=$work/data
"$build/lockstep" pack --format synthetic --samples 600 --noise 3 --out "$LIE/train" >/dev/null || exit 1
mapfile -t reached < <(all_but automatic killed_rank comparison_fires)
"$here/run" --build "$work/pretended" --only "$(IFS=,; echo "${reached[*]}")" >"$work/out" 2>&1
status=$?
expect 1 failed "${reached[@]}" linear.bf16.again linear.bf16.memcheck
echo "$failures failures"
[ "$failures" = 0 ]
