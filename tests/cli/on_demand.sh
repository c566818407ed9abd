#!/usr/bin/env bash
# A run writes checkpoints on request and by the clock, and training goes on.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data/train
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --report-every 50 --progress off)
endless=("${options[@]}" --checkpoint-every -1 --steps 100000000)
written() { grep -c '^checkpoint ' out; }
# goes_on STEPS: the job makes more steps than before.
goes_on() { wait_for 20 eval '[ "$(grep -c "^ *step " out)" -gt '"$1"' ]'; }
# ends: the job stops on request.
ends() {
  kill -TERM "$(rank 0)"
  finish 20
  expect_status 75
}

for victim in 0 1; do
  check "SIGUSR2 to rank $victim of two: one checkpoint, and training goes on"
  start -n 2 "${endless[@]}" --run runs/told-$victim
  wait_for 20 grep -q '^ *step ' out && kill -USR2 "$(rank $victim)"
  wait_for 20 grep -q '^checkpoint ' out
  goes_on "$(grep -c '^ *step ' out)"
  [ "$(written)" = 1 ] || failed "$(written) checkpoints"
  ends
done

check "SIGUSR2 to the launcher, which tells all ranks: one checkpoint"
start -n 2 "${endless[@]}" --run runs/launcher
wait_for 20 grep -q '^ *step ' out && kill -USR2 "$job"
wait_for 20 grep -q '^checkpoint ' out
goes_on "$(grep -c '^ *step ' out)"
[ "$(written)" = 1 ] || failed "$(written) checkpoints"
ends

check "a file named checkpoint-now in the run folder: one checkpoint, and the file is gone"
start -n 2 "${endless[@]}" --run runs/file
wait_for 20 grep -q '^ *step ' out && touch runs/file/checkpoint-now
wait_for 20 grep -q '^checkpoint ' out
expect_no_file runs/file/checkpoint-now
ends

check "a SIGUSR2 right after an answered one: another checkpoint"
start -n 2 "${endless[@]}" --run runs/twice
wait_for 20 grep -q '^ *step ' out && kill -USR2 "$(rank 0)"
wait_for 20 grep -q '^checkpoint ' out && kill -USR2 "$(rank 0)"
wait_for 20 eval '[ "$(grep -c "^checkpoint " out)" = 2 ]'
ends

check "a checkpoint every second"
start -n 2 "${options[@]}" --steps 100000000 --checkpoint-every 1s --keep 100 --run runs/clock
wait_for 20 eval '[ "$(grep -c "^checkpoint " out)" -ge 3 ]'
ends
python3 - <<'END' || failed "the time between checkpoints"
import os
times = sorted(os.lstat(f"runs/clock/checkpoints/{f}").st_mtime for f in os.listdir("runs/clock/checkpoints") if f.startswith("step"))
assert len(times) >= 4, times
assert all(b - a > 0.5 for a, b in zip(times, times[1:-1])), times
END
check "the plan says what checkpoints do to what the wire has kept back"
succeeds -n 2 "${options[@]}" --steps 10 --transport ring --wire bf16-feedback --checkpoint-every 10m --dry-run
expect_out "^  one every 10:00$"
expect_out "bf16-feedback has kept back is forgotten: .* but a second run, which saves in other steps, differs in the last bits$"
run -n 2 "${options[@]}" --steps 10 --transport ring --wire bf16-feedback --all-reduce 100,20000 --dry-run
expect_out "^ *sums between hosts: by doubling up to 100 bytes, by halving up to 20000 bytes, then by the ring \(--all-reduce 100,20000\)"
expect_status 0; expect_no_out "^  one every"; expect_out "unless a checkpoint is asked for \(SIGUSR2, checkpoint-now\)"
succeeds -n 2 "${options[@]}" --steps 10 --dry-run
expect_no_out "bf16-feedback"

check "a run that counts by the clock goes on with it"
run train --config runs/clock/config.ini --time-limit 3 --resume --run runs/clock
expect_status 75

check "what is neither steps nor a time"
for every in 10x m 0s -2 1.5 -1m; do
  fails 2 "checkpoint-every.* is neither a number of steps .* nor a time such as 90s, 10m or 2h" \
    "${options[@]}" --checkpoint-every=$every --run runs/none
done
