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
run pack --format synthetic --samples 100 --features 5 --classes 2 --out packed
expect_status 0; expect_silence
run info packed
expect_status 0; expect_silence
check "a world of one does without MPI"
run "${train[@]}" --steps 4 --run runs/a
expect_status 0; expect_silence
run eval runs/a --data data
expect_status 0; expect_silence
run export runs/a --out a.safetensors
expect_status 0; expect_silence
run import a.safetensors --out a.h5
expect_status 0; expect_silence
run check --seconds 0.01
expect_status 0
run report runs/a --out a.html
expect_status 0; expect_silence
run plot runs/a --svg a.svg
expect_status 0; expect_silence
echo "--hidden 4" >settings.txt
run sweep settings.txt --data data --batch 20 --steps 4 --run runs/sweep
expect_status 0; expect_silence
for bench in "all-reduce --max 4 --repeat 1 --algorithms ring,mpi" "scale --hidden 8 --batch 8 --warmup 1 --repeat 1 --rounds 1"; do
  # shellcheck disable=SC2086  # words
  run bench $bench --device cpu
  expect_status 0
done
unset OMPI_MCA_orte_tmpdir_base

check "pack and info under a launcher of one process"
run -n 1 info packed
expect_status 0
run -n 1 pack --format synthetic --samples 100 --features 5 --classes 2 --out packed_so
expect_status 0; expect diff -r packed packed_so
for words in "info packed" "export runs/a --out more" "generate runs/a --prompt x"; do
  check "${words%% *} refuses several processes in one sentence"
  # shellcheck disable=SC2086  # words
  run -n 3 $words
  expect_error 2 "${words%% *} runs as one process, and 3 were started"
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
