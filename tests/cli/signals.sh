#!/usr/bin/env bash
# On a signal all ranks stop at one step, leave a checkpoint and end with 75; the run goes on from there.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --report-every 50 --progress off)
endless=("${options[@]}" --steps 100000000)

# stopped_well EXIT: judges the stop of the run in runs/$run, then goes on from there.
stopped_well() {
  finish 20
  expect_status "$1"; expect_out 'stopped at step [0-9]+ on request'
  local step
  step=$(sed -n 's/.*stopped at step \([0-9]*\) .*/\1/p' out)
  expect_file "$(printf 'runs/%s/checkpoints/step-%010d.h5' "$run" "$step")"
  succeeds info "$(newest_checkpoint runs/$run)"
  succeeds "${options[@]}" --steps $((step + 10)) --run runs/$run --resume
  expect_out "continuing after step"
}

for signal in TERM INT USR1 HUP; do
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

for signal in TERM HUP; do  # a shell's background jobs ignore INT; the terminal's case is below
  run=launcher-$signal
  check "$signal to app/launch: the ranks stop in their own time, and the exit code is theirs"
  start -n 2 "${endless[@]}" --run runs/$run
  wait_for 20 grep -q '^ *step ' out && kill -$signal "$job"
  stopped_well 75
done

run=terminal
check "Ctrl-C in a terminal, which every process there gets"
command_for -n 2 "${endless[@]}" --run runs/$run
command_line="in a terminal: $command_line"
python3 - "${command[@]}" >out 2>err <<'END'
import os, pty, re, signal, sys
process, terminal = pty.fork()
if process == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background shell ignores it
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
pressed = False
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    said += part
    if not pressed and re.search(rb"^ *step ", said, re.M):
        os.write(terminal, b"\x03")
        pressed = True
sys.stdout.buffer.write(said.replace(b"\r\n", b"\n"))
sys.stdout.flush()
status = os.waitpid(process, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) & 255)
END
status=$?
expect_status 75; expect_out 'stopped at step [0-9]+ on request'

run=gone
check "a terminal that is gone: its jobs leave a checkpoint, and what nohup has started goes on"
for nohup in "" nohup; do
  command_for "${endless[@]}" --run runs/gone$nohup
  python3 - $nohup "${command[@]}" >out 2>err <<'END'
import os, pty, re, signal, sys, time
words = sys.argv[1:]
process, terminal = pty.fork()
if process == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(words[0], words)
log = words[-1] + "/log.txt"
while not (os.path.exists(log) and re.search(r"^ *step ", open(log).read(), re.M)):
    time.sleep(0.02)
os.close(terminal)
if words[0] == "nohup":
    time.sleep(1)
    if os.waitpid(process, os.WNOHANG)[0] != 0:
        sys.exit("it has ended")
    os.kill(process, signal.SIGTERM)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) & 255)
END
  status=$?
  expect_status 75
  expect grep -q "stopped at step [0-9]* on request ($([ $nohup ] && echo SIGTERM || echo SIGHUP))" runs/gone$nohup/log.txt
  expect_file "$(newest_checkpoint runs/gone$nohup)"
done

check "the second TERM to app/launch ends ranks that do not stop"
start -n 2 "${endless[@]}" --run runs/stuck
if wait_for 20 grep -q '^ *step ' out; then
  mapfile -t pids < <(ranks)
  kill -STOP "${pids[@]}"
  kill -TERM "$job"
  sleep 0.5
  kill -TERM "$job"
fi
finish 20
[ "$status" != 0 ] || failed "exit 0"
for pid in "${pids[@]}"; do wait_for 10 eval "! kill -0 $pid" || kill -9 "$pid"; done

check "a launcher that is killed takes the ranks with it"
start -n 2 "${endless[@]}" --run runs/orphans
if wait_for 20 grep -q '^ *step ' out; then
  mapfile -t pids < <(ranks)
  kill -9 "$job"
  for pid in "${pids[@]}"; do wait_for 10 eval "! kill -0 $pid" || kill -9 "$pid"; done
fi
finish 5

# Open MPI's mpirun, on a signal of its own, gives its ranks two seconds and ends with 1, whatever their exit codes.
run=mpirun
check "TERM to mpirun leaves a checkpoint"
start -n 2 "${endless[@]}" --run runs/$run
wait_for 20 grep -q '^ *step ' out && kill -TERM "$(pgrep -P "$job" -x mpirun)"
finish 20
[ "$status" != 0 ] || failed "exit 0"
succeeds info "$(newest_checkpoint runs/$run)"

check "a second INT ends at once"
start "${endless[@]}" --run runs/twice
if wait_for 20 grep -q '^ *step ' out; then kill -STOP "$job"; kill -INT "$job"; kill -CONT "$job"; kill -INT "$job"; fi
finish 10
[ "$status" != 0 ] || failed "exit 0"

# storm SIGNAL: sends one every few milliseconds, until the job is gone.
storm() {
  while kill -"$1" "$job"; do sleep 0.005; done 2>/dev/null &
}
check "a storm of signals changes nothing of the end"
for signal in TERM USR1; do
  run=storm-$signal
  start "${endless[@]}" --run runs/$run
  wait_for 20 grep -q '^ *step ' out && storm $signal
  stopped_well 75
done
run=storm-of-ranks
start -n 2 "${endless[@]}" --run runs/$run
if wait_for 20 grep -q '^ *step ' out; then
  members=$(ranks)
  # shellcheck disable=SC2086  # both of them
  while kill -TERM $members; do sleep 0.005; done 2>/dev/null &
fi
stopped_well 75
check "a run that is done stays done, whatever is sent then"
for signal in TERM USR1; do  # a second INT ends even a run that is writing its last checkpoint
  start "${options[@]}" --steps 40 --run runs/done-$signal
  # One INT only: a second one ends a run at once while it writes its last checkpoint.
  wait_for 20 grep -q '^time in steps' out && if [ $signal = INT ]; then kill -INT "$job" 2>/dev/null; else storm $signal; fi
  finish 20
  expect_status 0; expect_out '^done at step 40 '
done

# ThreadSanitizer delays signals until read(2) returns.
signals_end_reads() { ! grep -q -a __tsan_init "$lockstep"; }

# A signal before the first line of a program waits, blocked, until the program takes it.
python_script signalled <<'END'
import os, signal, sys
if os.environ.get("OMPI_COMM_WORLD_RANK", "1") == "1":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)
os.execvp(sys.argv[1], sys.argv[1:])
END
# stopped_at_once: judges the stop of the run in runs/$run before its first step.
stopped_at_once() {
  expect_status 75; expect_out 'stopped on request.* before the first step'; expect_no_file runs/$run
}
run=early
check "a signal before the first line of the program"
run -w ./signalled "${endless[@]}" --run runs/$run
stopped_at_once
check "a signal to one rank of three before its first line"
for try in 1 2 3; do # on a busy machine the start may take longer than the 2 s after which the rank ends alone, with 75
  run -n 3 -w ./signalled "${endless[@]}" --run runs/$run
  ! grep -q 'stopped on request' out || break
done
stopped_at_once
check "a signal while the options are read"
mkfifo options.ini
start "${endless[@]}" --run runs/$run --config options.ini
exec 5>options.ini  # returns once the program has opened it, too
kill -TERM "$job"
sleep 0.2  # so that the signal comes before the words
echo "seed = 5" >&5; exec 5>&-
finish 20
stopped_at_once
for signal in TERM USR1; do
  check "$signal while options are waited for that never come"
  start "${endless[@]}" --run runs/$run --config options.ini
  exec 5>options.ini
  kill -$signal "$job"
  finish 6
  exec 5>&-
  expect_status 75; expect_err "stopped on request \\(SIG$signal\\) before the first step"; expect_no_file runs/$run
done
if signals_end_reads; then
  check "or to all ranks, whose launcher answers so"
  start -n 2 "${endless[@]}" --run runs/$run --config options.ini
  exec 5>options.ini
  wait_for 20 eval '[ "$(ranks | wc -l)" = 2 ]'
  sleep 1
  kill -TERM "$job"
  finish 10
  exec 5>&-
  expect_status 75; expect_no_file runs/$run
  [ "$(grep -c 'before the first step' err)" = 1 ] || failed "said $(grep -c 'before the first step' err) times"
fi
check "a resume that is stopped before its first step keeps what there is"
must_run "${options[@]}" --steps 10 --run runs/kept
picture runs/kept >before
run -w ./signalled "${options[@]}" --steps 20 --run runs/kept --resume
expect_status 75; expect_out 'before the first step'
picture runs/kept >after; expect_same before after
check "a command that leaves nothing behind ends by the signal"
run -w ./signalled info data/train
expect_status 143
run -w ./signalled pack --format synthetic --samples 600 --features 20 --classes 5 --out packed
expect_status 143; expect_no_file packed
if signals_end_reads; then
  check "two INT end a start at once"
  start "${endless[@]}" --run runs/$run --config options.ini
  exec 5>options.ini
  kill -INT "$job"; sleep 0.2; kill -INT "$job"
  finish 10
  exec 5>&-
  expect_status 130
fi
