# Sourced by tests/cli/*.sh, which are called as: bash tests/cli/NAME.sh LOCKSTEP TREE [long]
#
# A script runs in its own empty folder. `check` begins a case; run, start and finish call the program; the expect_
# functions check the last call; succeeds and fails do both. All cases run. The script ends with 1 if one failed, with 77
# if it was skipped.
set -u
lockstep=$(realpath "$1")
tree=$(realpath "$2")
form=${3:-short}
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-cli.XXXXXX") || exit 1
export TMPDIR=$work/.launcher  # removed with $work, with the leftovers of a killed mpirun
export NO_COLOR=1  # plain text, to compare with that of a terminal
mkdir "$TMPDIR"
cd "$work" || exit 1
# Finds a Python with h5py: a newer Python may precede the distribution's in PATH.
python=""
for candidate in python3 /usr/bin/python3; do
  "$candidate" -c 'import h5py' 2>/dev/null && python=$(command -v "$candidate") && break
done
[ -n "$python" ] || { echo "no python3 here has h5py (python3-h5py)" >&2; exit 1; }
python3() { "$python" "$@"; }

cases=0 failures=0 case="" job="" status="" failed_case=""

end_of_script() {
  local code=$?
  [ -z "$job" ] || kill_job
  [ "$code" = 77 ] || echo "$cases cases, $failures failures"
  cd / && rm -rf "$work"
  if [ "$code" != 0 ]; then exit "$code"; fi
  # The status is explicit: in a trap, a bare `exit` ends with the status from before the trap.
  [ "$failures" = 0 ] && [ "$cases" -gt 0 ] || exit 1
  exit 0
}
trap end_of_script EXIT
trap 'exit 1' INT TERM HUP PIPE

# True if the program is built with a sanitizer, which maps more memory than any limit (ulimit -v) allows.
sanitized() { grep -q -a -E '__(asan|tsan)_init' "$lockstep"; }
# Sanitizers make everything several times slower.
patience=$(sanitized && echo 5 || echo 1)
# A script with a line "# more: SECONDS" has a second test, with the label more, for cases that the short form leaves
# out. A script with a line "# long: SECONDS" has another test, with the label slow, for all cases.
in_short_form() { [ "$form" = short ]; }
in_long_form() { [ "$form" = long ]; }
# some COUNT WORD...: prints the first COUNT words, one per line; in the long form, all words.
some() {
  local count=$1
  shift
  in_long_form && count=$#
  printf '%s\n' "${@:1:count}"
}
# share COUNT MORE WORD...: prints words, one per line: the first COUNT in the short form, the next MORE in the form
# `more`, all in the long form.
share() {
  local count=$1 more=$2
  shift 2
  case $form in
    short) printf '%s\n' "${@:1:count}" ;;
    more) printf '%s\n' "${@:count + 1:more}" ;;
    long) printf '%s\n' "$@" ;;
  esac
}
check() { case=$1; cases=$((cases + 1)); }

failed() {
  failures=$((failures + 1))
  echo "FAILED: $case: $1"
  [ "$failed_case" = "$cases" ] && return
  failed_case=$cases
  echo "  command: ${command_line:-none}"
  sed 's/^/  stdout: /' out | tail -n 15
  sed 's/^/  stderr: /' err | tail -n 25
  [ -z "$job" ] || process_tree "$job" | cut -c 1-150 | sed 's/^/  alive: /'
}
# process_tree PID: prints the process and its descendants, with command, age and processor time.
process_tree() {
  local child
  ps -o pid=,ppid=,stat=,etimes=,time=,wchan:20=,args= -p "$1"
  for child in $(pgrep -P "$1"); do process_tree "$child"; done
}

skip_all() { echo "SKIPPED: $1"; exit 77; }
# peer_python MODULE...: prints a Python that has these modules, python3 or one of $PEER_PYTHONS. Installs nothing.
peer_python() {
  local candidate modules=$*
  for candidate in ${PEER_PYTHONS:-} "$(command -v python3)"; do
    "$candidate" -c "import ${modules// /, }" 2>/dev/null && echo "$candidate" && return
  done
  return 1
}

# command_for [-u WRAPPER] [-n RANKS] [-w WRAPPER] ARGUMENTS...: sets $command. -u wraps the launcher, -w each rank.
command_for() {
  local ranks="" wrapper=() outer=()
  while :; do
    case ${1:-} in
      -n) ranks=$2; shift 2 ;;
      -w) wrapper=("$2"); shift 2 ;;
      -u) outer=("$2"); shift 2 ;;
      *) break ;;
    esac
  done
  command=("${wrapper[@]}" "$lockstep" "$@")
  [ -z "$ranks" ] || command=("$tree/app/launch" "$ranks" "${command[@]}")
  command=("${outer[@]}" "${command[@]}")
  command_line="${outer[*]} ${ranks:+launch $ranks }${wrapper[*]} lockstep $*"
}

# start ...: starts the program in the background; $job is its process id, ./out and ./err have its output.
start() {
  command_for "$@"
  : >out 2>err  # also here, so that no wait finds output of the previous case
  "${command[@]}" >out 2>err </dev/null &
  job=$!
}
# A wait counts this script's own turns of 20 ms: if the machine stops or is busy, script and program are slowed down
# alike. A wait ends in any case after three times its length by the clock.
exec {never}<> <(:)  # never readable: lets `read` wait without starting a process
begin_wait() { turns=$((50 * patience * $1)) last_second=$((SECONDS + 3 * patience * $1)); }
take_turn() { [ $((turns--)) -gt 0 ] && [ $SECONDS -le "$last_second" ] && ! read -r -t 0.02 -u "$never"; }
# finish SECONDS: waits for the started job. A job that still runs after that is killed and counts as a failure.
finish() {
  local turns last_second
  begin_wait "$1"
  while kill -0 "$job" 2>/dev/null; do
    take_turn && continue
    failed "still running after $((patience * $1)) s"
    kill_job
    break
  done
  wait "$job" 2>/dev/null
  status=$?
  job=""
}
# Kills the started job, its launcher (which has its own session) and its ranks.
kill_job() { kill -9 "$job" $(pgrep -P "$job") $(ranks) 2>/dev/null; }
# Prints the process ids of the started job's ranks, in order. Hydra's ranks are grandchildren.
ranks() {
  local launcher proxy pid
  launcher=$(pgrep -P "$job" -x mpirun || echo "$job")
  proxy=$(pgrep -P "$launcher" -x hydra_pmi_proxy) || {
    for pid in $(pgrep -P "$launcher" -f "$lockstep" | sort -n); do  # a shell may have started rank 0 and run beside it
      if tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q ' beside_rank '; then pgrep -P "$pid"; else echo "$pid"; fi
    done
    return
  }
  for pid in $(pgrep -P "$proxy" -f "$lockstep"); do
    echo "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^PMI_RANK=//p') $(pgrep -P "$pid" -f "$lockstep")"
  done | sort -n | cut -d' ' -f2
}
rank() { ranks | sed -n "$(($1 + 1))p"; }
# wait_for SECONDS COMMAND...: repeats the command until it succeeds.
wait_for() {
  local turns last_second
  begin_wait "$1"
  shift
  until "$@" >/dev/null 2>&1; do
    take_turn || { failed "waited in vain for: $*"; return 1; }
  done
}
# run ...: runs a job until it ends. After an exit code other than 0, Open MPI's mpirun would sleep, so that the ranks
# that it ends have time; here it does not.
run() {
  # A single rank runs without the launcher; scripts that test its launch set launches_one=yes.
  if [ "${1:-} ${2:-}" = "-n 1" ] && [ "${3:-}" != -w ] && [ -z "${launches_one:-}" ]; then shift 2; fi
  OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-0} start "$@"
  finish 60
}
# on_terminal COLUMNS COMMAND...: runs on a pseudo-terminal of that width; ./out gets all that it shows.
on_terminal() {
  command_line="on_terminal $*"
  python3 - "$@" 2>err <<'END'
import fcntl, os, pty, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    os.execvp(command[0], command)
shown = b""
try:
    while piece := os.read(terminal, 65536):
        shown += piece
except OSError:  # Linux: the other end is closed
    pass
open("out", "wb").write(shown.replace(b"\r\n", b"\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
  status=$?
}
# script FILE [LINE...]: writes a shell script with these lines, or with those on standard input.
script() {
  printf '%s\n' '#!/bin/sh' "${@:2}" >"$1"
  [ $# -gt 1 ] || cat >>"$1"
  chmod +x "$1"
}
# python_script FILE: writes a Python program with the lines on standard input.
python_script() { { echo "#!$python"; cat; } >"$1"; chmod +x "$1"; }
# make_forwarding_launcher FILE: writes a launcher that starts rank 0 alone, passes SIGUSR1 on to it, and ends with 0.
make_forwarding_launcher() {
  script "$1" <<'END'
OMPI_COMM_WORLD_RANK=0 setsid "$@" &
trap 'kill -USR1 -$!' USR1
wait $!
wait $!
exit 0
END
}
# make_stuck_launcher FILE: writes a launcher that keeps waiting after all its ranks have ended.
make_stuck_launcher() {
  python_script "$1" <<'END'
import os, time
if os.fork() == 0:
    os._exit(1)
time.sleep(300)
END
}
# must_run ...: runs a preparation; if it fails, the script ends.
must_run() {
  run "$@"
  [ "$status" = 0 ] || { failed "exit $status where the rest of the script needs 0"; exit 1; }
}
# succeeds ARGUMENTS...: runs a job that ends with 0.
succeeds() { run "$@"; expect_status 0; }
# fails EXIT REGEX ARGUMENTS...: runs a job that ends with EXIT and one line of error.
fails() { run "${@:3}"; expect_error "$1" "$2"; }

expect_status() { [[ "$status" =~ ^($1)$ ]] || failed "exit $status instead of $1"; }
expect_out() { grep -Eq -- "$1" out || failed "stdout lacks /$1/"; }
expect_err() { own_words | grep -Eq -- "$1" || failed "stderr lacks /$1/"; }
expect_no_out() { ! grep -Eq -- "$1" out || failed "stdout has /$1/"; }
expect_silence() { [ -z "$(own_words)" ] || failed "stderr is not empty"; }
expect_file() { [ -s "$1" ] || failed "$1 is missing or empty"; }
expect_no_file() { [ ! -e "$1" ] || failed "$1 exists"; }
# expect_near FILE FILE LIMIT [LINES]: LINES or more lines "STEP VALUE": the same steps, and values that differ by LIMIT of
# themselves at most.
expect_near() {
  paste "$1" "$2" | awk -v limit="$3" -v lines="${4:-1}" '
    { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || $2 $4 ~ /[nN]/ || !(d <= limit * $2)) { print; bad = 1 } }  # n: nan, inf
    END { exit bad || NR < lines }' >differences || failed "$1 and $2 differ: $(head -n 3 differences)"
}
expect_same() { cmp -s "$1" "$2" || failed "$1 and $2 differ: $(diff "$1" "$2" | head -n 4)"; }
expect() { "$@" >/dev/null 2>&1 || failed "not so: $*"; }

# Prints stderr without the launcher's messages: dashed paragraphs, lines that start with [host:pid] or [host][[, and
# libevent's warnings about files that disappeared with a rank.
own_words() {
  awk '/^-----------+$/ { inside = !inside; next } !inside && !/^\[[^]]*(:[0-9]+\]|\]\[\[)/ && !/^\[warn\] Epoll / && !/^Abort\(/ && !/^[ \t]*$/' err
}
# expect_error EXIT REGEX: expects this exit code and exactly one message, at any number of ranks.
expect_error() {
  expect_status "$1"
  local messages
  messages=$(own_words | grep -v -e '` explains the options\.$' -e '^warning: ')
  [ "$(printf '%s\n' "$messages" | grep -c .)" = 1 ] || failed "not one line of error but: ${messages:-none}"
  printf '%s\n' "$messages" | grep -Eq "^lockstep( [a-z -]+)?: " || failed "the message does not start with who speaks"
  expect_err "$2"
}

# pack_small FOLDER [OPTION...]: packs 600 samples of 20 numbers in 5 classes, in 3 shards.
pack_small() {
  local folder=$1
  shift
  must_run pack --format synthetic --samples 600 --features 20 --classes 5 --shards 3 --out "$folder" "$@"
}
# pack_house FOLDER: packs a table of 400 rows, and 100 for validation, whose columns and targets are far from 0 and 1.
pack_house() {
  "$python" - "$1.csv" <<'END' || exit 1
import numpy as np, sys
r = np.random.default_rng(1)
x = r.normal(size=(500, 3)) * [300, 1, 1e5] + [1000, 0, 5e5]
y = x @ [3, 100, 0.001] + r.normal(size=500) * 10
np.savetxt(sys.argv[1], np.column_stack([x, y]), delimiter=",", header="a,b,c,y", comments="")
END
  must_run pack --x "$1.csv" --label-column y --regression --validation 0.2 --out "$1"
}
# metric RUN KIND KEY: prints "STEP VALUE" lines from a run's metrics.jsonl.
metric() {
  python3 - "$@" <<'END'
import json, sys
run, kind, key = sys.argv[1:]
for line in open(run + "/metrics.jsonl"):
    record = json.loads(line)
    if record["kind"] == kind:
        print(record["step"], repr(record[key]))
END
}
# make_images_and_text: makes images.h5, 96 images of 18 x 18 x 3 in 4 classes, and text, a corpus of characters.
make_images_and_text() {
  python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = r.integers(0, 256, (96, 18, 18, 3)).astype(np.uint8), r.integers(0, 4, 96).astype(np.int32)
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
text = " ".join(words[i] for i in r.integers(0, 10, 1400))
open("corpus.txt", "w").write("\n".join(text[i:i + 60] for i in range(0, len(text), 60)) + "\n")
END
  must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.1
}
# train_to FILE RANKS OPTION...: trains and copies the last checkpoint to FILE. The run is always runs/here, because
# checkpoints store this path.
train_to() {
  local file=$1 ranks=$2
  shift 2
  rm -rf runs/here
  run -n "$ranks" train "$@" --run runs/here
  expect_status 0
  cp "$(newest_checkpoint runs/here)" "$file"
}
newest_checkpoint() { find "$1/checkpoints" -name 'step-*.h5' | sort | tail -n 1; }
# same_tensors FILE FILE TENSORS [TOLERANCE]: true if two checkpoints have the same tensors, at least TENSORS of them,
# bit by bit or within TOLERANCE. Their records (times, configuration) may differ.
same_tensors() { python3 "$tree/tests/cli/checkpoint_tensors.py" "$@" >differences 2>&1; }
expect_same_tensors() { same_tensors "$@" || failed "$1 and $2: $(tail -n 3 differences)"; }
# picture FOLDER: prints names, sizes and times of a folder's files, to show that nothing was overwritten.
picture() { find "$1" -type f -printf '%P %s %T@\n' 2>/dev/null | sort; }
# flip_byte FILE OFFSET: changes one byte; a negative offset counts from the end.
flip_byte() {
  python3 - "$@" <<'END'
import os, sys
file, offset = sys.argv[1], int(sys.argv[2])
with open(file, "r+b") as f:
    f.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
    byte = f.read(1)
    f.seek(-1, os.SEEK_CUR)
    f.write(bytes([byte[0] ^ 0x10]))
END
}

# resumes_with_its_bytes RANKS STEP LAST: resumes runs/here, which ended at step LAST, from its checkpoint of step STEP
# only. Expects the checkpoint of step LAST to have the same bytes again.
resumes_with_its_bytes() {
  local ranks=$1 step=$2 kept last
  kept=step-$(printf %010d "$2").h5 last=runs/here/checkpoints/step-$(printf %010d "$3").h5
  mv "$last" whole.h5 || failed "no checkpoint of step $3"
  find runs/here/checkpoints -name 'step-*' ! -name "$kept" -delete
  run -n "$ranks" train --resume --run runs/here
  expect_status 0; expect_out "continuing after step $step"
  expect cmp whole.h5 "$last"
}
