# Sourced by tests/cli/*.sh, which are called as: bash tests/cli/NAME.sh LOCKSTEP TREE [more|long]
# A script works in an empty folder of its own; `check` opens a case; run, start and finish call the program; the expect_
# functions judge what the last call did. All cases run; the script ends with 1 when one failed, with 77 when skipped.
set -u
lockstep=$(realpath "$1")
tree=$(realpath "$2")
form=${3:-short}
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-cli.XXXXXX") || exit 1
export TMPDIR=$work/.launcher  # what a killed mpirun leaves behind goes with it
export NO_COLOR=1  # words of a terminal are compared, too
mkdir "$TMPDIR"
cd "$work" || exit 1
# The python that has h5py: a newer one may stand before the distribution's in PATH.
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
  # The status is said aloud: in a trap, a bare `exit` ends with the status from before the trap.
  [ "$failures" = 0 ] && [ "$cases" -gt 0 ] || exit 1
  exit 0
}
trap end_of_script EXIT
trap 'exit 1' INT TERM HUP PIPE

# Whether the program is built with a sanitizer, which maps more memory than any limit lets it (ulimit -v).
sanitized() { grep -q -a -E '__(asan|tsan)_init' "$lockstep"; }
# Such programs take several times as long for everything.
patience=$(sanitized && echo 5 || echo 1)
# Scripts that say "# more: SECONDS" have a second entry, with the label more, for what the short form leaves out; those
# that say "# long: SECONDS" have one with the label slow, for everything.
in_short_form() { [ "$form" = short ]; }
in_long_form() { [ "$form" = long ]; }
# some COUNT WORD...: a line each: the first COUNT of them; in the long form all.
some() {
  local count=$1
  shift
  in_long_form && count=$#
  printf '%s\n' "${@:1:count}"
}
# share COUNT MORE WORD...: a line each: in the short form the first COUNT of them, with `more` the next MORE, in the long
# form all.
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
# process_tree PID: it and what it has started: what they do, for how long, how much of a processor they had.
process_tree() {
  local child
  ps -o pid=,ppid=,stat=,etimes=,time=,wchan:20=,args= -p "$1"
  for child in $(pgrep -P "$1"); do process_tree "$child"; done
}

skip_all() { echo "SKIPPED: $1"; exit 77; }

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

# start ...: in the background; its process id in $job, its output in ./out and ./err.
start() {
  command_for "$@"
  : >out 2>err  # here, not only in the background: a wait must not find words of the case before
  "${command[@]}" >out 2>err </dev/null &
  job=$!
}
# Waits are counted in turns of 20 ms of this script's own: where the machine stands still or is loaded, the script waits
# as the program does. Three times as long by the clock is the end in any case.
exec {never}<> <(:)  # nothing comes from there: to wait without a process for each turn
begin_wait() { turns=$((50 * patience * $1)) last_second=$((SECONDS + 3 * patience * $1)); }
take_turn() { [ $((turns--)) -gt 0 ] && [ $SECONDS -le "$last_second" ] && ! read -r -t 0.02 -u "$never"; }
# finish SECONDS: waits for the started job; a job still there by then is a failure and is killed.
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
# The started job, its launcher, which has a session of its own, and its ranks.
kill_job() { kill -9 "$job" $(pgrep -P "$job") $(ranks) 2>/dev/null; }
# The process ids of the started job's ranks, in order. Hydra's ranks are the children of what it has started.
ranks() {
  local launcher proxy pid
  launcher=$(pgrep -P "$job" -x mpirun || echo "$job")
  proxy=$(pgrep -P "$launcher" -x hydra_pmi_proxy) || { pgrep -P "$launcher" -f "$lockstep" | sort -n; return; }
  for pid in $(pgrep -P "$proxy" -f "$lockstep"); do
    echo "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^PMI_RANK=//p') $(pgrep -P "$pid" -f "$lockstep")"
  done | sort -n | cut -d' ' -f2
}
rank() { ranks | sed -n "$(($1 + 1))p"; }
# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
  local turns last_second
  begin_wait "$1"
  shift
  until "$@" >/dev/null 2>&1; do
    take_turn || { failed "waited in vain for: $*"; return 1; }
  done
}
# For jobs that end by themselves: Open MPI's mpirun does not sleep before it ends, as it does after every exit code but 0
# to let ranks that it has told to end do so in peace.
run() {
  OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-0} start "$@"
  finish 60
}
# A step towards the case: its failure ends the script.
must_run() {
  run "$@"
  [ "$status" = 0 ] || { failed "exit $status where the rest of the script needs 0"; exit 1; }
}

expect_status() { [[ "$status" =~ ^($1)$ ]] || failed "exit $status instead of $1"; }
expect_out() { grep -Eq -- "$1" out || failed "stdout lacks /$1/"; }
expect_err() { own_words | grep -Eq -- "$1" || failed "stderr lacks /$1/"; }
expect_no_out() { ! grep -Eq -- "$1" out || failed "stdout has /$1/"; }
expect_silence() { [ -z "$(own_words)" ] || failed "stderr is not empty"; }
expect_file() { [ -s "$1" ] || failed "$1 is missing or empty"; }
expect_no_file() { [ ! -e "$1" ] || failed "$1 exists"; }
expect_same() { cmp -s "$1" "$2" || failed "$1 and $2 differ: $(diff "$1" "$2" | head -n 4)"; }
expect() { "$@" >/dev/null 2>&1 || failed "not so: $*"; }

# stderr without what the launcher says of its own: dashed paragraphs, lines that start with [host:pid] or [host][[, and what its
# libevent says of files that went with a rank.
own_words() {
  awk '/^-----------+$/ { inside = !inside; next } !inside && !/^\[[^]]*(:[0-9]+\]|\]\[\[)/ && !/^\[warn\] Epoll / && !/^Abort\(/ && !/^[ \t]*$/' err
}
# One message and nothing else, whatever the number of ranks: expect_error EXIT REGEX
expect_error() {
  expect_status "$1"
  local messages
  messages=$(own_words | grep -v -e '` explains the options\.$' -e '^warning: ')
  [ "$(printf '%s\n' "$messages" | grep -c .)" = 1 ] || failed "not one line of error but: ${messages:-none}"
  printf '%s\n' "$messages" | grep -Eq "^lockstep( [a-z -]+)?: " || failed "the message does not start with who speaks"
  expect_err "$2"
}

# pack_small FOLDER [OPTION...]: 600 samples of 20 numbers in 5 classes, in 3 shards.
pack_small() {
  local folder=$1
  shift
  must_run pack --format synthetic --samples 600 --features 20 --classes 5 --shards 3 --out "$folder" "$@"
}
# pack_house FOLDER: a table of 400 rows, and 100 for validation, whose columns and targets are not near 0 and 1.
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
# metric RUN KIND KEY: "STEP VALUE" lines from a run's metrics.jsonl.
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
newest_checkpoint() { find "$1/checkpoints" -name 'step-*.h5' | sort | tail -n 1; }
# What a folder holds, name by name and byte by byte: to show that nothing was overwritten.
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

# resumes_with_its_bytes RANKS STEP LAST: runs/here, with its checkpoint of step STEP alone, goes on from there and makes
# the bytes of the one of step LAST, where it ended, again.
resumes_with_its_bytes() {
  local ranks=$1 step=$2 kept last
  kept=step-$(printf %010d "$2").h5 last=runs/here/checkpoints/step-$(printf %010d "$3").h5
  mv "$last" whole.h5 || failed "no checkpoint of step $3"
  find runs/here/checkpoints -name 'step-*' ! -name "$kept" -delete
  run -n "$ranks" train --resume --run runs/here
  expect_status 0; expect_out "continuing after step $step"
  expect cmp whole.h5 "$last"
}
