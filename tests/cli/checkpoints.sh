#!/usr/bin/env bash
# Training goes on while a checkpoint is written; nothing is lost however that ends. A library before libc's holds up or
# fails the fsync of chosen checkpoints.
. "$(dirname "$0")/harness.sh"
cat >slow_disk.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int has(const char* path, const char* variable) {
  const char* word = getenv(variable);
  return word && *word && strstr(path, word);
}

/* HELD_UP: a part of the names of files that wait until the file GATE is there; REFUSED: of those that fail. */
int fsync(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  for (int i = 0; i < 6000 && has(path, "HELD_UP") && access(getenv("GATE"), F_OK) != 0; ++i) usleep(10000);
  if (has(path, "REFUSED")) return errno = EIO, -1;
  int (*libc)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return libc(fd);
}
END
cc -shared -fPIC -o slow_disk.so slow_disk.c -ldl 2>cc.err || skip_all "no C compiler: $(head -n 1 cc.err)"
# A sanitizer's runtime wants to come first.
preloaded="$(ldd "$lockstep" | awk '/lib[at]san/ { printf "%s ", $3 }')$work/slow_disk.so"
# slow_disk HELD_UP REFUSED COMMAND...
slow_disk() {
  local held_up=$1 refused=$2
  shift 2
  LD_PRELOAD=$preloaded GATE=$work/gate HELD_UP=$held_up REFUSED=$refused "$@"
}

pack_small data/train
pack_small data/test
options=(train --data data --hidden 24,16 --optimizer adam --average-decay 0.99 --global-batch 70 --report-every 1
  --evaluate-every 10 --checkpoint-every 20 --keep 9 --progress off)
# reached RUN STEP: training has come so far.
reached() { [ "$(metric "$1" train step 2>/dev/null | tail -n 1 | cut -d ' ' -f 1)" -ge "$2" ]; }

# same_tensors FILE FILE: every dataset bit by bit.
cat >same_tensors.py <<'END'
import h5py, sys
def tensors(file):
    found = {}
    h5py.File(file, "r").visititems(lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" else None)
    return found
a, b = map(tensors, sys.argv[1:])
assert a.keys() == b.keys() and len(a) >= 6 * 4, (sorted(a), sorted(b))
different = [name for name in a if a[name].tobytes() != b[name].tobytes()]
assert not different, different
END

check "the plan counts the copy"
run -n 2 "${options[@]}" --steps 60 --dry-run
expect_status 0; expect_out '^checkpoints: rank 0 keeps a copy of the state, [0-9.]+ [KM]iB'

run -n 2 "${options[@]}" --steps 60 --run runs/whole
expect_status 0

check "training goes on while a checkpoint is written, and the next one waits for it"
rm -f gate
slow_disk .step-0000000020 "" start -n 2 "${options[@]}" --steps 60 --run runs/held
wait_for 60 reached runs/held 40  # there the next one is due
expect_no_file runs/held/checkpoints/step-0000000020.h5
[ -n "$(find runs/held/checkpoints -name '.step-0000000020*.tmp')" ] || failed "nothing is being written"
sleep 0.3
reached runs/held 41 && failed "training went on with two checkpoints under way"
touch gate
finish 60
expect_status 0
for step in 20 40 60; do expect_file runs/held/checkpoints/step-00000000$step.h5; done
expect python3 same_tensors.py runs/{whole,held}/checkpoints/step-0000000020.h5
expect python3 same_tensors.py runs/{whole,held}/checkpoints/step-0000000060.h5
check "the log tells how long training stood still"
expect_out '^checkpoint runs/held/checkpoints/step-0000000020.h5  in [0-9.]+ s, [0-9.]+ s of them without training$'
[ "$(metric runs/held checkpoint stall_seconds | wc -l)" = 3 ] || failed "three checkpoints expected in metrics.jsonl"

check "killed while one is written: the one before is there, and the run goes on to the same bits"
rm -f gate
slow_disk .step-0000000040 "" start -n 2 "${options[@]}" --steps 60 --run runs/killed
wait_for 60 reached runs/killed 45
kill -9 $(ranks)
finish 30
[ "$status" != 0 ] || failed "exit 0 though killed"
expect_file runs/killed/checkpoints/step-0000000020.h5
expect_no_file runs/killed/checkpoints/step-0000000040.h5
run -n 2 "${options[@]}" --steps 60 --run runs/killed --resume
expect_status 0; expect_out 'continuing after step 20'
expect python3 same_tensors.py runs/{whole,killed}/checkpoints/step-0000000060.h5
[ -z "$(find runs/killed/checkpoints -name '*.tmp')" ] || failed "left behind: $(ls -A runs/killed/checkpoints)"
metric runs/whole train loss >whole; metric runs/killed train loss >killed; expect_same whole killed

check "a checkpoint that cannot be written ends all ranks with one sentence"
slow_disk "" .step-0000000040 run -n 2 "${options[@]}" --steps 100000000 --run runs/refused
expect_error 1 'cannot write checkpoint runs/refused/checkpoints/step-0000000040.h5: cannot flush .*Input/output error'
expect_file runs/refused/checkpoints/step-0000000020.h5
expect_no_file runs/refused/checkpoints/step-0000000040.h5

check "who asks for a stop gets both: the one under way and the last"
rm -f gate
slow_disk .step-0000000020 "" start -n 2 "${options[@]}" --steps 100000000 --run runs/stopped
wait_for 60 reached runs/stopped 25
kill -TERM "$(rank 1)"
sleep 0.3
kill -0 "$job" 2>/dev/null || failed "it did not wait for the checkpoint under way"
touch gate
finish 60
expect_status 75
expect_file runs/stopped/checkpoints/step-0000000020.h5
step=$(sed -n 's/.*stopped at step \([0-9]*\) .*/\1/p' out)
expect_file "$(printf 'runs/stopped/checkpoints/step-%010d.h5' "${step:-0}")"
