#!/usr/bin/env bash
# Sweeps in containers of equal host names and equal process ids: who has died, and who works.
# label: slow
# seconds: 300
. "$(dirname "$0")/harness.sh"
[ "$(id -u)" = 0 ] && unshare --pid --fork --mount-proc true || skip_all "no PID namespaces here (root)"
pack_small data/train --noise 4
pack_small data/test --first 600 --noise 4
printf -- '--hidden 4\n--hidden 5\n--hidden 6\n' >settings.txt

# container PID NAME SWEEP_ARGUMENTS...: a sweep in the background, whose process id is PID in its container; its words in
# NAME.out and NAME.err. Killing $container ends the whole container.
container() {
  local pid=$1 name=$2
  shift 2
  # shellcheck disable=SC2016  # for the shell in the container
  unshare --pid --fork --mount-proc --kill-child bash -c '
    echo $(($0 - 1)) >/proc/sys/kernel/ns_last_pid
    "$@" &
    wait $!' "$pid" "$lockstep" sweep settings.txt --data data --batch 20 "$@" >"$name.out" 2>"$name.err" </dev/null &
  container=$!
}
ends() { ! kill -0 "$1" 2>/dev/null; }

check "a container that starts again does not wait for its own claim"
container 2 first --epochs 4000 --run runs/again
wait_for 30 grep -q '"kind":"train"' runs/again/1/metrics.jsonl
kill -9 "$container" && wait "$container" 2>/dev/null
expect_file runs/again/sweep/rung-1-setting-1.claim
SECONDS=0
container 2 second --epochs 4 --run runs/again
wait_for 60 ends "$container"
cp second.out out; cp second.err err
wait "$container"; status=$?
expect_status 0; expect_out '^1\. +runs/again/'
[ $SECONDS -lt 45 ] || failed "it took $SECONDS s"

check "containers of one host name do not take each other's trainings"
container 2 one --epochs 300 --run runs/both; one=$container
container 9 two --epochs 300 --run runs/both; two=$container
wait_for 120 ends "$one"; wait_for 120 ends "$two"
wait "$one"; status=$?; expect_status 0
wait "$two"; status=$?; expect_status 0
cat one.out two.out >out; cat one.err two.err >err
expect_silence
[ "$(grep -c ' in [0-9.]* s$' out)" = 3 ] || failed "not every training was done once"
for n in 1 2 3; do [ "$(metric "runs/both/$n" start step | grep -c .)" = 1 ] || failed "training $n began twice"; done
[ -z "$(find runs/both/sweep -name '*.claim*')" ] || failed "claims stay"

check "a sweep that was frozen for long does not judge what others did meanwhile"
start sweep settings.txt --data data --batch 20 --epochs 4000 --run runs/frozen
wait_for 30 grep -q '"kind":"train"' runs/frozen/1/metrics.jsonl
frozen=$job
kill -STOP "$frozen"
touch -d '3 minutes ago' runs/frozen/sweep/rung-1-setting-1.claim
container 2 thaw --epochs 4000 --run runs/frozen
wait_for 30 test -s runs/frozen/sweep/rung-1-setting-1.claim.2
wait_for 30 grep -q 'belongs to another process' runs/frozen/sweep/setting-1.txt
kill -CONT "$frozen"
wait_for 30 grep -q 'runs/frozen/1: another process has taken it over' out
expect_no_file runs/frozen/sweep/rung-1-setting-1.json
kill -TERM "$frozen"; finish 30
expect_status 75
kill -9 "$container"; wait "$container" 2>/dev/null || true
