#!/usr/bin/env bash
# run_test.sh BUILD [fires]: tests/gpu/run from its first line to its last without a GPU. The programs of BUILD pretend to
# have two: they take the options of GPUs off and compute on the CPU. All checks must pass then. With `fires` the
# pretended GPUs compute something else and refuse nothing, and every check must notice.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-pretended.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/pretended/tests" "$work/cuda/bin"
export CUDA_HOME=$work/cuda REAL=$build

cat >"$work/pretended/lockstep" <<'PRETENDED'
#!/usr/bin/env bash
gpu="" shared="" ring="" command=$1 words=()
while [ $# -gt 0 ]; do
  case $1 in
    --device) if [ "$2" = gpu ]; then gpu=yes; words+=(--device cpu); else words+=("$1" "$2"); fi; shift 2 ;;
    --precision) shift 2 ;;
    --share-gpu) shared=yes; shift ;;
    --ring) ring=yes; shift ;;
    --no-graph|--no-persistent-lstm|--no-cudnn-attention) shift ;;
    --repeat|--warmup) words+=("$1" 2); shift 2 ;;
    --batch) words+=("$1" "$(($2 > 64 ? 4 : $2))"); shift 2 ;;
    --hidden)
      if [ "$2" = 65536 ] && [ -z "$LIE" ]; then echo "lockstep: error: out of GPU memory before the start: 977 GiB. --batch 9 would fit"; exit 1; fi
      words+=("$1" "${2//4096/64}"); [ "$2" != 1024 ] || words[-1]=64; shift 2 ;;
    --layers|--heads) words+=("$1" 2); shift 2 ;;  # of networks made for GPUs, as much as a CPU can show in a second
    --width|--context) words+=("$1" 64); shift 2 ;;
    --unroll) words+=("$1" 5); shift 2 ;;
    --image) words+=("$1" "${2//224/64}"); shift 2 ;;
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
if [ -n "$gpu" ] && [ -n "$LIE" ]; then
  logs=(*.out)  # one more each time: another seed, and the same on all ranks; and nothing is learnt
  [ "$command" != train ] || words=("${words[@]/#0.001/1e-9}" --seed $((${#logs[@]} + 10)))
  [ "$command" != eval ] || words+=(--data "$LIE/train")
  [ "$command" != bench ] || exit 3
fi
[[ "${words[*]}" != "bench all-reduce"* ]] || words+=(--max 65536 --factor 16 --algorithms ring,shared-memory)
exec "$REAL/lockstep" "${words[@]}"
PRETENDED
cat >"$work/pretended/tests/gpu_tests" <<'PRETENDED'
#!/usr/bin/env bash
if [ "$1" = --survey ]; then printf 'device 0: pretended\ndevice 1: pretended\n'; exit; fi
[ -z "$LIE" ] || exit 1
case $* in *--backend*) ;; *) set -- "$@" --backend cuda ;; esac
exec "$REAL/tests/gpu_tests" "${@/#cuda/cpu}"
PRETENDED
cat >"$work/cuda/bin/compute-sanitizer" <<'PRETENDED'
#!/usr/bin/env bash
[ -z "$LIE" ] || { echo "ERROR SUMMARY: 3 errors"; exit 9; }
shift 6
exec "$@"
PRETENDED
chmod +x "$work/pretended/lockstep" "$work/pretended/tests/gpu_tests" "$work/cuda/bin/compute-sanitizer"

# expect STATUS VERDICT NAME...: how the run that wrote $work/out ended, and that each of these has this verdict.
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
all=$("$here/run" --only list --build "$work/pretended" | tr '\n' ' ')
read -ra names <<<"$all"

if [ "${2:-}" != fires ]; then
  export LIE=""
  "$here/run" --build "$work/pretended" --quick --json "$work/out.json" >"$work/out" 2>&1
  status=$?
  sanitizers=(memcheck racecheck initcheck)
  quick=()
  for name in "${names[@]}"; do [[ " ${sanitizers[*]} " == *" $name "* ]] || quick+=("$name"); done
  expect 0 passed "${quick[@]}"
  if command -v python3 >/dev/null && ! python3 -m json.tool "$work/out.json" >/dev/null; then
    failures=$((failures + 1)); echo "FAILED: no JSON"
  fi
  "$here/run" --build "$work/pretended" --only memcheck,initcheck >"$work/out" 2>&1
  status=$?
  expect 0 passed memcheck initcheck
  echo "$failures failures"
  [ "$failures" = 0 ]
  exit
fi

# What a lie does not reach: ranks that die, the CPU as the automatic choice, and the comparisons' own test.
export LIE=$work/data
"$build/lockstep" pack --format synthetic --samples 600 --noise 3 --out "$LIE/train" >/dev/null || exit 1
reached=()
for name in "${names[@]}"; do [[ " automatic killed_rank comparison_fires " == *" $name "* ]] || reached+=("$name"); done
"$here/run" --build "$work/pretended" --only "$(IFS=,; echo "${reached[*]}")" >"$work/out" 2>&1
status=$?
expect 1 failed "${reached[@]}"
echo "$failures failures"
[ "$failures" = 0 ]
