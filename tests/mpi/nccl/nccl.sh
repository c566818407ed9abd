#!/bin/bash
# nccl.sh LAUNCH [WORKER PRETENDER]: NCCL starts over MPI. Without a GPU every rank refuses soon, with the same message,
# which names ranks and device; with one it starts. Without a worker (built without CUDA) the test shows nothing.
launch=$1 worker=${2:-} reduction_worker=${3:-}
[ -n "$worker" ] || { echo "not run: this build is without CUDA and NCCL"; exit 77; }
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
failures=0
unset NCCL_DEBUG NCCL_DEBUG_FILE NCCL_ALGO NCCL_SOCKET_IFNAME NCCL_NVLS_ENABLE
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
export NCCL_TEST_DEVICES=$gpus

fail() { echo "FAILED: $case: $*"; sed 's/^/    | /' "$output"; failures=$((failures + 1)); }
# run RANKS WORKER-ARGUMENTS...
run() {
  ranks=$1; shift
  case="$ranks ranks, $*"
  local begin=$SECONDS patience=0  # an mpirun's, before it ends ranks: they have ended, unless one dies on purpose
  case " $* " in *" dies "*) patience=1 ;; esac
  OMPI_MCA_odls_base_sigkill_timeout=$patience timeout -k 1 100 "$launch" "$ranks" "$worker" "$@" >"$output" 2>&1
  code=$?
  [ $((SECONDS - begin)) -lt 60 ] || fail "it took $((SECONDS - begin)) s"
  ! grep -q 'found on the stand-ins' "$output" || [ "$2" = records-too-early ] || fail "a fault"
  echo "$case: exit $code"
}
# all TEXT: every rank prints it.
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
# A log of the user's own stays the user's.
own=$(mktemp)
NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$own run 2 automatic id
[ $code = 0 ] && grep -q "NCCL INFO" "$own" || fail "the user's log is empty"
NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$own run 2 automatic log
[ $code != 0 ] || fail "somebody listened although the log is the user's"
rm -f "$own"

# The rest runs on the stand-ins for CUDA and NCCL, which can be made to fail.
worker=$reduction_worker
for transport in automatic ring; do
  for n in 2 3; do
    for conduct in sums tree graph steps shards bf16; do
      run $n $transport $conduct
      [ $code = 0 ] || fail "exit $code"
    done
    all "NCCL 2.28.9, ring 0 -> 1 .*-> 0, 4 channels, over NET/IB, P2P/CUMEM, algorithm Ring for 4 MiB"
  done

  run 3 $transport init-fails
  [ $code = 3 ] || fail "exit $code"
  all "refused: rank 1: host .*, Pretender 1: NCCL: an error of NCCL on the CPU: with details; NCCL's last warnings: Call to ibv_create_qp failed; init_on_cpu\.cc:34 -> 3$"
  run 3 $transport first-sum-wrong
  [ $code = 3 ] || fail "exit $code"
  all "refused: ranks 0-2: host .*, Pretender 1: NCCL's first sum is 6001 instead of 6000"

  # ends: one line, from a rank that has aborted NCCL before it asked its peers.
  ends() {
    run 3 $transport "$1"
    [ $code = 1 ] || fail "exit $code"
    local said; said=$(grep -c -E "^error on rank [0-9] \(aborts: 1\): rank [0-9] \(host .*, Pretender 1\) $2" "$output")
    [ "$said" = 1 ] || fail "$said lines, not 1, say \"$2\""
  }
  ends does-not-come "has waited for 3(\.[0-9])? s in step 7: backward for sums over NCCL\. Failure report: rank 1 \(host .*, pid [0-9]+\) has not arrived at a barrier for 1(\.[0-9])? s;"
  ends stands-still "has waited for 3(\.[0-9])? s .*NCCL's last warnings: .*Got completion with error 12; .* Failure report: All ranks are alive, but their sums do not get done \(ranks 0-2: step 7: backward\)"
  case $(mpirun --version 2>/dev/null) in
    HYDRA*) ;; # ends the other ranks before they can report
    *) ends dies "waits in step 7: backward for sums over NCCL\. rank 1 \(host .*, pid [0-9]+\) has died;" ;;
  esac
  ends nccl-fails "fails in step 7: backward: NCCL: an error of NCCL on the CPU: with details; NCCL's last warnings: Got completion with error 12; init_on_cpu\.cc:34 -> 3\. Ending the job\."
  ends device-fails "fails in step 7: backward: an operation on the device failed: .* \(cudaErrorIllegalAddress\)"

  run 3 $transport is-busy  # longer than the deadline, but it has reported so
  [ $code = 0 ] || fail "exit $code"
done

# A rank without peers waits for no sum, but for a device.
run 1 automatic device-stands-still
[ $code = 1 ] && grep -q "Pretender 1 has not ended step 7: backward for 4 s: it stands still" "$output" || fail "exit $code"

run 2 automatic chatter
[ $code = 0 ] || fail "exit $code"
run 2 automatic records-too-early
[ $code = 99 ] && grep -q "found on the stand-ins: an event is on a stream that a library's thread still enqueues to" "$output" || fail "exit $code"

[ $failures -eq 0 ] || { echo "$failures checks failed"; exit 1; }
