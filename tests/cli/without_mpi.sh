#!/usr/bin/env bash
# Commands that need no peers start no MPI, and neither does a process without a launcher.
# label: more
. "$(dirname "$0")/harness.sh"
launches_one=yes
pack_small data/train
train=(train --data data --optimizer sgd --hidden 8 --batch 20)

# MPI needs a folder for its session at the start: here it finds none.
export OMPI_MCA_orte_tmpdir_base=/dev/null/nowhere
check "the tests' trap catches whoever starts MPI"
run -n 1 "${train[@]}" --steps 2 --dry-run
[ "$status" != 0 ] || failed "exit 0: MPI does without a session folder"

check "pack, info, export and import know nothing of MPI"
succeeds pack --format synthetic --samples 100 --features 5 --classes 2 --out packed
expect_silence
succeeds info packed
expect_silence
check "a world of one does without MPI"
succeeds "${train[@]}" --steps 4 --run runs/a
expect_silence
succeeds eval runs/a --data data
expect_silence
succeeds export runs/a --out a.safetensors
expect_silence
succeeds import a.safetensors --out a.h5
expect_silence
succeeds check --seconds 0.01
succeeds report runs/a --out a.html
expect_silence
succeeds plot runs/a --svg a.svg
expect_silence
echo "--hidden 4" >settings.txt
succeeds sweep settings.txt --data data --batch 20 --steps 4 --run runs/sweep
expect_silence
for bench in "all-reduce --max 4 --repeat 1 --algorithms ring,mpi" "scale --hidden 8 --batch 8 --warmup 1 --repeat 1 --rounds 1"; do
  # shellcheck disable=SC2086  # words
  succeeds bench $bench --device cpu
done
unset OMPI_MCA_orte_tmpdir_base

check "pack and info under a launcher of one process"
succeeds -n 1 info packed
succeeds -n 1 pack --format synthetic --samples 100 --features 5 --classes 2 --out packed_so
expect diff -r packed packed_so
for words in "info packed" "export runs/a --out more" "generate runs/a --prompt x"; do
  check "${words%% *} refuses several processes in one sentence"
  # shellcheck disable=SC2086  # words
  fails 2 "${words%% *} runs as one process, and 3 were started" -n 3 $words
  # shellcheck disable=SC2086  # words
  SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 run $words
  expect_error 2 "${words%% *} runs as one process, and 4 were started"
  # shellcheck disable=SC2086  # words
  SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 run $words
  expect_status 2; expect_silence
done
expect_no_file more

check "many programs that start at the same moment"
many=$((40 / patience))  # a sanitizer takes 700 MB for each
started=()
for i in $(seq $many); do
  "$lockstep" "${train[@]}" --steps 2 --dry-run >out.$i 2>err.$i </dev/null &
  started+=($!)
done
for i in $(seq $many); do
  wait "${started[$((i - 1))]}" || failed "start $i: exit $?: $(head -n 3 err.$i)"
done
