#!/usr/bin/env bash
# Asked to stop: all ranks agree on a step, leave a checkpoint and end with 75; the run goes on from there.
# alone: mpirun gives its ranks a second
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --hidden 16 --batch 20 --report-every 50 --progress off)
endless=("${options[@]}" --steps 100000000)

# stopped_well EXIT: the run in runs/$run was told to stop; judges how it did, then goes on from there.
stopped_well() {
  finish 20
  expect_status "$1"; expect_out 'stopped at step [0-9]+ on request'
  local step
  step=$(sed -n 's/.*stopped at step \([0-9]*\) .*/\1/p' out)
  expect_file "$(printf 'runs/%s/checkpoints/step-%010d.h5' "$run" "$step")"
  run info "$(newest_checkpoint runs/$run)"
  expect_status 0
  run "${options[@]}" --steps $((step + 10)) --run runs/$run --resume
  expect_status 0; expect_out "continuing after step"
}

for signal in TERM INT USR1 USR2; do
  run=alone-$signal
  check "$signal to a world of one"
  start "${endless[@]}" --run runs/$run
  wait_for 20 grep -q '^ *step ' out && kill -$signal "$job"
  stopped_well 75

  run=one-$signal
  check "$signal to one rank of three"
  start -n 3 "${endless[@]}" --run runs/$run
  wait_for 20 grep -q '^ *step ' out && kill -$signal "$(rank 1)"
  stopped_well 75
done

run=forwarded
check "USR1 to mpirun reaches the ranks"
start -n 2 "${endless[@]}" --run runs/$run
wait_for 20 grep -q '^ *step ' out && kill -USR1 "$job"
stopped_well 75

# Open MPI's mpirun, itself told to end, gives its ranks a second and ends with 1 whatever they say.
run=launcher
check "TERM to mpirun leaves a checkpoint"
start -n 2 "${endless[@]}" --run runs/$run
wait_for 20 grep -q '^ *step ' out && kill -TERM "$job"
finish 20
[ "$status" != 0 ] || failed "exit 0"
run info "$(newest_checkpoint runs/$run)"
expect_status 0

check "a second INT ends at once"
start "${endless[@]}" --run runs/twice
if wait_for 20 grep -q '^ *step ' out; then kill -STOP "$job"; kill -INT "$job"; kill -CONT "$job"; kill -INT "$job"; fi
finish 10
[ "$status" != 0 ] || failed "exit 0"
