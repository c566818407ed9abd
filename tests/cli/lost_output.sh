#!/usr/bin/env bash
# Standard output goes to a full disk or to nobody: work goes on without its words, a lost result is an error.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
printf 'To be, or not to be, that is the question.%.0s' {1..60} >text
must_run pack --format text --tokenizer char --x text --out letters/train
must_run train --data letters --model lstm --hidden 8 --unroll 8 --batch 4 --steps 2 --run runs/letters
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --report-every 2 --progress off)
must_run "${options[@]}" --steps 4 --run runs/a

# The other end of standard output is closed.
python_script unread <<'END'
import os, signal, sys
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it by default
os.execvp(sys.argv[1], sys.argv[1:])
END
# The other end of standard error is closed, too.
script unheard 'exec ./unread sh -c '\''exec "$@" 2>&1'\'' sh "$@"'
script full 'exec "$@" >/dev/full'
script full_error 'exec "$@" 2>/dev/full'
# The other end is open, but its reader has stopped.
python_script stopped <<'END'
import fcntl, os, sys
reader, writer = os.pipe()
os.set_inheritable(reader, True)
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.dup2(writer, 1)
os.dup2(writer, 2)
os.execvp(sys.argv[1], sys.argv[1:])
END

check "training outlives the reader of its words"
for wrapper in ./unread ./unheard; do
  succeeds -w $wrapper "${options[@]}" --steps 10 --run runs/pipe-$(basename $wrapper)
  expect grep -q '^done at step 10 ' runs/pipe-$(basename $wrapper)/log.txt
done
check "so it does behind | head -1"
"$lockstep" "${options[@]}" --steps 10 --run runs/head 2>err </dev/null | head -n 1 >out
status=${PIPESTATUS[0]}
expect_status 0
expect grep -q '^done at step 10 ' runs/head/log.txt
check "a reader that stops (a pager, Ctrl-S) stops no training, nor its failure"
talkative=(train --data data --hidden 16 --batch 20 --report-every 1 --progress off)
for ranks in 1 2; do
  start -n $ranks -w ./stopped "${talkative[@]}" --steps 200 --run runs/pager-$ranks
  finish 30
  expect_status 0
  expect grep -q '^step 200/200 ' runs/pager-$ranks/log.txt
done
start -n 2 -w ./stopped "${talkative[@]}" --learning-rate 1e30 --steps 200 --run runs/pager-fails
finish 30
expect_status 1
check "what is lost is said once, with the place where it is not"
run -w ./unread "${options[@]}" --steps 10 --run runs/said
expect_err 'nobody reads standard output any more; the run goes on, and runs/said/log.txt has all lines'
[ "$(own_words | grep -c 'standard output')" = 1 ] || failed "said more than once"
succeeds -w ./full "${options[@]}" --steps 10 --run runs/full
expect_err 'standard output cannot be written \(No space left'
[ "$(own_words | grep -c 'standard output')" = 1 ] || failed "said more than once"
expect grep -q '^done at step 10 ' runs/full/log.txt
check "a run that is stopped ends with 75 all the same"
start -w ./unread "${options[@]}" --steps 100000000 --run runs/stopped
wait_for 20 grep -q '^step ' runs/stopped/log.txt && kill -TERM "$job"
finish 20
expect_status 75
check "pack outlives its reader, too"
succeeds -w ./unread pack --format synthetic --samples 100 --features 5 --classes 2 --out packed
expect_err 'nobody reads'; expect_file packed/manifest.json
succeeds -w ./full pack --format synthetic --samples 100 --features 5 --classes 2 --out packed2
expect_err 'standard output cannot be written'; expect_file packed2/manifest.json

# ends_well_unread ARGUMENTS...: ends with 0 and without a word.
ends_well_unread() {
  check "nobody reads what $1 ${2#-} says"
  succeeds -w ./unread "$@"
  expect_silence
}
ends_well_unread eval runs/a --data data --json eval.json
expect_file eval.json
ends_well_unread bench all-reduce --max 4 --repeat 1
ends_well_unread "${options[@]}" --steps 4 --dry-run
# Commands that only print end as Unix tools do.
for words in "info data/train" "generate runs/letters --prompt To --tokens 100000000" "--help" "train --help"; do
  check "lockstep $words ends with its reader"
  # shellcheck disable=SC2086  # words
  run -w ./unread $words
  expect_status 141; expect_silence
done

check "a result that a full disk does not take is an error"
bench=(--hidden 8 --batch 8 --warmup 1 --repeat 1 --device cpu)
while read -r words; do
  # shellcheck disable=SC2086  # words
  fails 1 'standard output cannot be written \(No space left' -w ./full $words
done <<END
eval runs/a --data data
info data/train
info runs/a
generate runs/letters --prompt To --tokens 20
${options[*]} --steps 4 --dry-run
check
bench all-reduce --max 4 --repeat 1
bench input --data data --steps 2 --repeat 1
bench step ${bench[*]}
bench scale ${bench[*]} --rounds 1
--help
--version
END
check "and a message that nobody can read changes no exit code"
run -w ./full_error bogus
expect_status 2
run -w ./full_error info nowhere
expect_status 1
run -n 2 -w ./full_error eval nowhere --data data
expect_status 1

check "no file takes the place of a stream that is closed"
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
  rm -f eval.json
  bash -c "exec \"\$@\" $closed" bash "$lockstep" eval runs/a --data data --json eval.json >out 2>err
  kind=$(python3 -c 'import json; print(type(json.load(open("eval.json"))).__name__)' 2>&1)
  [ "$kind" = dict ] || [ "$kind" = list ] || failed "with $closed, eval.json is no JSON"
  rm -rf runs/closed
  bash -c "exec \"\$@\" $closed" bash "$lockstep" "${options[@]}" --steps 4 --run runs/closed >out 2>err
  "$lockstep" info runs/closed >out 2>err || failed "with $closed, the run folder is damaged"
done
