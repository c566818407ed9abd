#!/usr/bin/env bash
# The launchers end an mpirun that misses the end of its ranks, and avoid names in TMPDIR that another user may have
# taken.
# label: more
. "$(dirname "$0")/harness.sh"

# stopped_after FILE COMMAND...: SIGTERM once FILE exists ends the command, with 75.
stopped_after() {
  command_line="${*:2}"
  "${@:2}" >out 2>err &
  job=$!
  wait_for 20 test -e "$1"
  kill -TERM "$job"
  finish 30
  expect_status 75
}
check "a launcher whose ranks have all ended does not wait for ever"
make_stuck_launcher stuck
command_line="slurm/stop_in_time ./stuck"
timeout 60 "$tree/slurm/stop_in_time" ./stuck >out 2>err
status=$?
[ "$status" != 124 ] || failed "it waits"
[ "$status" != 0 ] || failed "exit 0"
expect_err 'all ranks have ended'
check "one whose ranks work is left alone"
python_script busy <<END
import os, time
if os.fork() == 0:
    time.sleep(14)
    os._exit(0)
os.wait()
END
"$tree/slurm/stop_in_time" ./busy >out 2>err
status=$?
expect_status 0
expect_silence

check "one that heeds no SIGTERM ends with its shell, however that ends"
python_script deaf <<END
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("deaf.pid", "w").write(str(os.getpid()))
time.sleep(300)
END
"$tree/slurm/stop_in_time" ./deaf >out 2>err &
job=$!
wait_for 20 test -s deaf.pid
kill -9 "$job"
wait "$job" 2>/dev/null
job=""
wait_for 40 eval '! kill -0 "$(cat deaf.pid)"' || kill -9 "$(cat deaf.pid)"

check "a signal to the process and its group, as timeout sends it, asks once, and the exit code is the ranks'"
script asks <<'END'
stop=""
trap "stop=yes" USR1
trap "exit 9" TERM
: >up
while [ -z "$stop" ]; do sleep 0.1; done
sleep 0.5
exit 75
END
command_line="slurm/stop_in_time ./asks"
setsid "$tree/slurm/stop_in_time" ./asks >out 2>err &
job=$!
wait_for 20 test -e up
kill -TERM "$job"; kill -TERM -- "-$job"
finish 20
expect_status 75
check "a launcher whose ranks have ended is spared the second signal, which would make mpirun crash"
python_script ends <<END
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: os._exit(139))
signal.signal(signal.SIGUSR1, lambda *_: asked.append("yes"))
open("begun", "w").close()
while not asked: time.sleep(0.05)
open("ending", "w").close()
time.sleep(1)
sys.exit(75)
END
"$tree/slurm/stop_in_time" ./ends >out 2>err &
job=$!
wait_for 20 test -e begun && kill -TERM "$job"
wait_for 20 test -e ending && sleep 0.3 && kill -TERM "$job"
finish 20
expect_status 75
check "a signal before the launcher has begun, or before it handles signals, is a stop, too"
rm up
mkdir slow
script slow/mktemp ": >$work/waits; sleep 2; exec $(command -v mktemp) \"\$@\""
PATH=$work/slow:$PATH stopped_after waits "$tree/slurm/stop_in_time" ./asks
expect_silence; expect_no_file up
[ -z "$(ls "$TMPDIR")" ] || failed "left behind: $(ls "$TMPDIR")"
script starts ': >up; exec sleep 30'
stopped_after up "$tree/slurm/stop_in_time" ./starts

check "the same where ranks go on without one that has died"
rm up
make_forwarding_launcher forwards
stopped_after up "$tree/slurm/stop_in_time" ./forwards -- ./starts --agree async
expect_silence
check "a signal to app/launch, which looks for the script beside it"
rm up
script slow/realpath ": >$work/looks; sleep 1; exec $(command -v realpath) \"\$@\""
script slow/mpirun 'echo "mpirun (Open MPI) 4.1.4"; [ "$1" = --version ] || { : >up; sleep 30; }'
PATH=$work/slow:$PATH stopped_after looks "$tree/app/launch" 2 ./asks
expect_silence; expect_no_file up
: >up

check "a signal that comes while the ranks are started reaches them"
rm up
script drops 'trap : USR1; : >up; sleep 3; exec ./asks'
stopped_after up "$tree/slurm/stop_in_time" ./drops

mpirun --version 2>/dev/null | grep -q "Open MPI" || { echo "not run: this is not Open MPI"; exit; }
[ "$(id -u)" = 0 ] || { echo "not run: only root can plant another user's folder"; exit; }
as_user=(setpriv --reuid 65533 --regid 65533 --clear-groups)
chmod 755 "$work"
"${as_user[@]}" test -x "$lockstep" || { echo "not run: the other user cannot reach $lockstep"; exit; }
mkdir shared
chmod 1777 shared
taken=shared/ompi.$(hostname | cut -d. -f1).65533
mkdir "$taken"
chown 65534:65534 "$taken"
chmod 700 "$taken"

# launch WORDS...: two ranks, as that user
launch() {
  command_line="$*"
  (cd shared && TMPDIR=$work/shared HOME=$work/shared timeout 60 "${as_user[@]}" "$@" "$lockstep" bench all-reduce --max 4 --repeat 1) >out 2>err
  status=$?
}

check "Open MPI by itself does not start where somebody has taken its folder"
launch mpirun --oversubscribe -np 2
[ "$status" != 0 ] || { echo "not run: this Open MPI has another name for its folder"; exit; }
check "app/launch does, and leaves nothing behind"
launch "$tree/app/launch" 2
expect_status 0
[ "$(ls shared)" = "$(basename "$taken")" ] || failed "left behind: $(ls shared)"
