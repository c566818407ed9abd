#!/usr/bin/env bash
# Training goes on while a checkpoint is written, and nothing is lost if writing fails. A library loaded before libc's
# delays or refuses the fsync of chosen checkpoints.
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
# Sanitizers must be loaded first unless told otherwise.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
script preloaded "LD_PRELOAD=$work/slow_disk.so exec \"\$@\""
# slow_disk HELD_UP REFUSED run|start ARGUMENTS...
slow_disk() {
  local held_up=$1 refused=$2 how=$3
  shift 3
  GATE=$work/gate HELD_UP=$held_up REFUSED=$refused "$how" -w ./preloaded "$@"
}

pack_small data/train
pack_small data/test
options=(train --data data --hidden 24,16 --optimizer adam --average-decay 0.99 --global-batch 70 --report-every 1
  --evaluate-every 10 --checkpoint-every 20 --progress off)
# reached RUN STEP: training has come to STEP.
reached() { [ "$(metric "$1" train step 2>/dev/null | tail -n 1 | cut -d ' ' -f 1)" -ge "$2" ]; }

# same_at STEP RUN RUN: their checkpoints have the same tensors.
same_at() { expect_same_tensors "$2/checkpoints/step-00000000$1.h5" "$3/checkpoints/step-00000000$1.h5" 24; }

# stops_after_step_20 NAME: a stop of the started run in runs/NAME waits for its checkpoint of step 20, behind the gate.
stops_after_step_20() {
  wait_for 60 reached "runs/$1" 25
  kill -TERM "$(rank 1)"
  sleep 0.3
  kill -0 "$job" 2>/dev/null || failed "it did not wait for the checkpoint under way"
  touch gate
  finish 60
  expect_status 75
  expect_file "runs/$1/checkpoints/step-0000000020.h5"
}

check "the plan counts the copy"
succeeds -n 2 "${options[@]}" --steps 60 --dry-run
expect_out '^checkpoints: rank 0 keeps a copy of the state, [0-9.]+ [KM]iB'

check "the plan counts what each of several writers copies"
succeeds -n 3 "${options[@]}" --steps 60 --dry-run --checkpoint-writers 2
expect_out '^checkpoints: 2 ranks keep a copy of a part of the state each, [0-9.]+ [KM]iB'
succeeds -n 3 "${options[@]}" --steps 60 --dry-run --shard-optimizer
expect_out '^checkpoints: 3 ranks keep a copy'

succeeds -n 2 "${options[@]}" --steps 60 --run runs/whole

check "training goes on while a checkpoint is written, and the next one waits for it"
rm -f gate
slow_disk .step-0000000020 "" start -n 2 "${options[@]}" --steps 60 --run runs/held
wait_for 60 reached runs/held 40  # the next checkpoint is due there
expect_no_file runs/held/checkpoints/step-0000000020.h5
[ -n "$(find runs/held/checkpoints -name '.step-0000000020*.tmp')" ] || failed "nothing is being written"
sleep 0.3
reached runs/held 41 && failed "training went on with two checkpoints under way"
touch gate
finish 60
expect_status 0
for step in 20 40 60; do expect_file runs/held/checkpoints/step-00000000$step.h5; done
same_at 20 runs/whole runs/held
same_at 60 runs/whole runs/held
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
succeeds -n 2 "${options[@]}" --steps 60 --run runs/killed --resume
expect_out 'continuing after step 20'
same_at 60 runs/whole runs/killed
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
stops_after_step_20 stopped
step=$(sed -n 's/.*stopped at step \([0-9]*\) .*/\1/p' out)
expect_file "$(printf 'runs/stopped/checkpoints/step-%010d.h5' "${step:-0}")"

# Several writers: one part each, and a file that joins the parts.
succeeds -n 3 "${options[@]}" --steps 60 --run runs/whole-3
for way in "2" "3" "3 --shard-optimizer" "2 --shard-optimizer"; do
  read -r writers shared <<<"$way"
  parts=runs/parts-$writers$shared
  check "--checkpoint-writers $way: the same bits, nothing else in the folder"
  succeeds -n 3 "${options[@]}" --keep 2 --keep-best 0 --steps 60 --checkpoint-writers $writers $shared --run $parts
  same_at 40 runs/whole-3 $parts
  same_at 60 runs/whole-3 $parts
  [ "$(ls $parts/checkpoints | sed 's/parts-.*/parts/' | tr '\n' ' ')" = "latest step-0000000040.h5 step-0000000040.parts step-0000000060.h5 step-0000000060.parts " ] ||
    failed "the folder holds: $(ls $parts/checkpoints)"
  [ "$(ls $parts/checkpoints/step-0000000060.parts-* | wc -l)" = "$writers" ] || failed "parts: $(ls -R $parts)"
  check "--checkpoint-writers $way: any number of ranks goes on from it, and in another way"
  for n in 1 3; do
    rm -rf runs/onward
    cp -r $parts runs/onward
    rm runs/onward/checkpoints/step-0000000060.h5
    succeeds -n $n "${options[@]}" --steps 60 --resume --run runs/onward
    expect_out 'continuing after step 40'
    [ $n = 1 ] || same_at 60 runs/whole-3 runs/onward
  done
done

parts=runs/parts-3--shard-optimizer
check "info, eval and damage know both forms"
succeeds info $parts
expect_out 'step-0000000060\.h5 +60 .* ok.*\(latest\)'
succeeds info $parts/checkpoints/step-0000000060.h5
expect_out 'checkpoint, .* all checksums verified'; expect_out '^average +dense_3/weight '
succeeds -n 2 eval $parts --json evaluation.json
run -n 2 eval runs/whole-3 --checkpoint latest --json expected.json
expect cmp <(sed 's/"checkpoint":[^,]*,//' evaluation.json) <(sed 's/"checkpoint":[^,]*,//' expected.json)
truncate -s -100 "$(ls $parts/checkpoints/step-0000000060.parts-*/part-0002-*)"
run info $parts
expect_status 1; expect_err 'part-0002-of-0003.h5'
succeeds -n 2 "${options[@]}" --steps 60 --resume --run $parts
expect_out 'continuing after step 40'; expect grep -q 'part-0002-of-0003.h5' <(cat out err)

shared=("${options[@]}" --shard-optimizer)
for held in "step-0000000040.parts the parts" ".step-0000000040 the file that joins them"; do
  read -r name what <<<"$held"
  check "killed while $what lie half written"
  rm -rf gate runs/killed
  slow_disk $name "" start -n 3 "${shared[@]}" --steps 60 --run runs/killed
  wait_for 60 reached runs/killed 45
  wait_for 60 test -e runs/killed/checkpoints/step-0000000020.h5
  kill -9 $(ranks)
  finish 30
  expect_no_file runs/killed/checkpoints/step-0000000040.h5
  [ -n "$(find runs/killed -name 'step-0000000040.parts-*')" ] || failed "no part was begun"
  succeeds -n 3 "${shared[@]}" --steps 60 --run runs/killed --resume
  expect_out 'continuing after step 20'
  same_at 60 runs/whole-3 runs/killed
  [ "$(find runs/killed -name '*.parts-*' | wc -l)" = 3 ] || failed "left behind: $(ls runs/killed/checkpoints)"
done

check "a part that cannot be written ends all ranks with one sentence"
succeeds -n 3 "${shared[@]}" --steps 20 --run runs/refused-part
slow_disk "" part-0002 run -n 3 "${shared[@]}" --steps 100000000 --run runs/refused-part --resume
expect_error 1 'rank 1: cannot write a part of a checkpoint: .*step-0000000040.parts-.*: Input/output error'
succeeds info runs/refused-part
expect_out 'step-0000000020\.h5 .* ok.*\(latest\)'

check "a stop waits for the parts of others"
rm -f gate
slow_disk part-0003 "" start -n 3 "${shared[@]}" --steps 100000000 --run runs/stopped-parts
stops_after_step_20 stopped-parts
succeeds info "$(newest_checkpoint runs/stopped-parts)"
