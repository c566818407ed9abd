#!/usr/bin/env bash
# The torture finds planted faults: a program that damages, changes, hangs, crashes, is silent or leaves files behind.
. "$(dirname "$0")/../cli/harness.sh"
real=$lockstep

# finds COLUMN KIND:SEED SHELL-CODE: replaces the real program by one that does this to a training; the torture must
# find it.
finds() {
  check "$1"
  cat >"planted-$1" <<END
#!/bin/bash
real=$real
run=\$(printf '%s\n' "\$@" | grep -A1 -x -e --run | tail -n 1)
[ "\$1" = train ] || exec \$real "\$@"
$3
END
  chmod +x "planted-$1"
  "$tree/tests/torture/run" --trial "$2" --lockstep "planted-$1" --keep "kept-$1" --limit 15 >out 2>err
  status=$?
  expect_status 1
  expect_out "^${1^^} in --trial $2"
}

finds lost kills:7 '$real "$@"; code=$?; newest=$(ls $run/checkpoints/step-*.h5 | tail -n 1); truncate -s -100 $newest; exit $code'
# The option applies from the start on: a run may finish before it is killed, and then a resume has no step left.
finds different kills:7 'case $run in */undisturbed-*) ;; *) set -- "$@" --learning-rate 0.02 ;; esac; exec $real "$@"'
finds hang kills:7 'case " $* " in *" --resume "*) exec sleep 60 ;; esac; exec $real "$@"'
finds crash kills:7 'case " $* " in *" --resume "*) kill -SEGV $$ ;; esac; exec $real "$@"'
finds litter kills:7 '$real "$@"; code=$?; touch $run/.left; exit $code'
if mount -t tmpfs tmpfs "$TMPDIR" 2>/dev/null && umount "$TMPDIR"; then
  # Seed 9 is a disk of 23 KB.
  finds mute disks:9 'exec $real "$@" >/dev/null 2>&1'
fi

check "a torture that is killed takes its jobs with it"
cat >planted-stays <<END
#!/bin/bash
case " \$* " in
  *" train "*/undisturbed-*) ;;
  *" train "*) sleep 1000 ;;
esac
exec $real "\$@"
END
chmod +x planted-stays
"$tree/tests/torture/run" 120 --only storms --lockstep planted-stays --keep "$work/kept-killed" --limit 300 >out 2>err &
job=$!
training() { pgrep -f -- "planted-stays train .*--run $work/kept-killed/storms-"; }
wait_for 90 training
kill -9 "$job"
wait "$job" 2>/dev/null
job=""
wait_for 40 eval '! training' || kill -9 $(training)

check "nothing where nothing is planted"
"$tree/tests/torture/run" --trial kills:7 --lockstep "$real" --keep kept >out 2>err
status=$?
expect_status 0
expect_out '^kills +1 +[0-9]+ +0 +0 +0 +0 +0 +0 +0$'
