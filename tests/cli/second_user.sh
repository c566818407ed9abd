#!/usr/bin/env bash
# A second user in a shared run folder: what he may not write he does not take, and the job there goes on.
# label: slow
# seconds: 300
. "$(dirname "$0")/harness.sh"
[ "$(id -u)" = 0 ] || skip_all "only root has a second user"
pack_small data
chmod 755 "$work"
chmod 777 "$TMPDIR"
for user in first second; do
  # shellcheck disable=SC2016  # for the shell there
  printf '#!/bin/sh\nexec setpriv --reuid %s --regid 65534 --clear-groups sh -c "umask 0; exec \\"\\$0\\" \\"\\$@\\"" "$@"\n' $((65530 + ${#user})) >$user
  chmod +x $user
done
./second test -x "$lockstep" || skip_all "others cannot reach $lockstep"
mkdir -m 777 runs
options=(train --data data --optimizer sgd --hidden 8 --batch 20 --progress off --run runs/ours)

# A folder in which everybody may write, but for what the case takes away from others; the first user's job works there.
begin() {
  rm -rf runs/ours
  start -u ./first "${options[@]}" --epochs 100000 --checkpoint-every 500
  wait_for 30 test -s runs/ours/checkpoints/step-0000000500.h5
  first=$job
}
# second_is_refused WHAT HOW...: by a sentence that names WHAT; and the first's job ends well when it is told to stop.
second_is_refused() {
  local what=$1
  shift
  cp out first.out; cp err first.err
  "./second" "$lockstep" "${options[@]}" --steps 100 "$@" >out 2>err </dev/null
  status=$?
  expect_error 1 "$what"
  sleep 0.5
  kill -0 "$first" 2>/dev/null || failed "the first user's job has ended: $(cat first.err)"
  kill -USR1 $(pgrep -f -x "$lockstep ${options[*]} --epochs 100000 --checkpoint-every 500")
  job=$first
  finish 30
  expect_status 75
}

for name in log.txt metrics.jsonl; do
  check "$name"
  begin
  chmod 644 runs/ours/$name
  ./second "$lockstep" check --data data --hidden 8 --batch 20 --run runs/ours --resume >check.out 2>&1 </dev/null
  grep -q "cannot write runs/ours/$name: Permission denied" check.out || failed "check does not say it: $(cat check.out)"
  second_is_refused "cannot write runs/ours/$name: Permission denied" --resume
done

check "checkpoints"
begin
chmod 755 runs/ours/checkpoints
second_is_refused "runs/ours/checkpoints is not writable" --resume

for how in --resume --force; do
  check "a sticky folder, $how"
  begin
  chmod +t runs/ours
  second_is_refused "cannot replace runs/ours/[a-z.]*: it belongs to another user" $how
  check "a sticky folder of checkpoints, $how"
  begin
  chmod +t runs/ours/checkpoints
  second_is_refused "cannot replace runs/ours/checkpoints/[a-z0-9.-]*: it belongs to another user" $how
done

check "who may write everything takes over, and the first one notices"
begin
./second "$lockstep" "${options[@]}" --steps 10000000 --resume >second.out 2>second.err </dev/null &
second=$!
finish 30
expect_status 1; expect_err 'runs/ours belongs to another process now'
kill -USR1 "$second"
wait "$second"; status=$?
expect_status 75
