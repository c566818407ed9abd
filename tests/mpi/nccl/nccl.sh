#!/bin/bash
# nccl.sh LAUNCH [WORKER]: the start of NCCL over MPI. Without a GPU every rank is refused in words that name ranks and
# device, soon and alike; with one it starts. Without a worker (built without CUDA) nothing can be said.
launch=$1 worker=${2:-}
[ -n "$worker" ] || { echo "not run: this build is without CUDA and NCCL"; exit 77; }
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
failures=0
unset NCCL_DEBUG NCCL_DEBUG_FILE NCCL_ALGO NCCL_SOCKET_IFNAME
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
export NCCL_TEST_DEVICES=$gpus

fail() { echo "FAILED: $case: $*"; sed 's/^/    | /' "$output"; failures=$((failures + 1)); }
# run RANKS WORKER-ARGUMENTS...
run() {
  ranks=$1; shift
  case="$ranks ranks, $*"
  local begin=$SECONDS
  timeout -k 1 100 "$launch" "$ranks" "$worker" "$@" >"$output" 2>&1
  code=$?
  [ $((SECONDS - begin)) -lt 60 ] || fail "it took $((SECONDS - begin)) s"
  echo "$case: exit $code"
}
# all TEXT: every rank says it.
all() {
  local said; said=$(grep -c -E "^rank [0-9]+: $1" "$output")
  [ "$said" = "$ranks" ] || fail "$said ranks, not $ranks, say \"$1\""
}

for n in 2 4; do
  for transport in automatic ring; do
    run $n $transport id
    [ $code = 0 ] || fail "exit $code"
    all "id [0-9a-f]{16}"

    run $n $transport start
    if [ "$gpus" = 0 ]; then
      [ $code = 3 ] || fail "exit $code without a GPU"
      all "refused: ranks 0-$((n - 1)): host $(hostname), GPU 0: cudaSetDevice: .*(no CUDA-capable device|driver)"
    else
      [ $code = 0 ] || fail "exit $code with $gpus GPUs"
      all "started NCCL [0-9.]+, ring .* algorithm Ring for 4 MiB"
    fi

    run $n $transport alone
    [ $code = 3 ] || fail "exit $code though a rank has no device"
    all "refused: "
    if [ "$gpus" = 0 ]; then
      [ "$(grep -c "^rank $((n - 1)): host .*, GPU 4096: " "$output")" = "$n" ] || fail "rank $((n - 1)) is not named"
    else
      all "refused: rank $((n - 1)): host $(hostname), GPU 4096: cudaSetDevice: "
    fi

    if [ "$gpus" = 0 ]; then
      run $n $transport init
      [ $code = 3 ] || fail "exit $code without a GPU"
      all "refused: ranks 0-$((n - 1)): ncclCommInitRankConfig: "
    fi
  done
done

run 2 automatic log
[ $code = 0 ] || fail "exit $code"
all "heard"
# A log that is the user's stays theirs.
own=$(mktemp)
NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$own run 2 automatic id
[ $code = 0 ] && grep -q "NCCL INFO" "$own" || fail "the user's log is empty"
NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$own run 2 automatic log
[ $code != 0 ] || fail "somebody listened although the log is the user's"
rm -f "$own"

[ $failures -eq 0 ] || { echo "$failures checks failed"; exit 1; }
