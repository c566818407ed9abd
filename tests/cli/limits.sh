#!/usr/bin/env bash
# The program respects its shell's limits: it refuses too large a demand before it allocates.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --steps 4)
limited() { script limited "ulimit $1 && exec \"\$@\""; }

for kib in 64 128 512; do
  check "a stack of $kib KiB"
  limited "-s $kib"
  fails 1 "the stack of a process may have $kib KiB here, and 1024 are needed" -w ./limited "${options[@]}" --run runs/stack
  expect_no_file runs/stack
  run -n 2 -w ./limited info data/train
  expect_status 1; expect_err "may have $kib KiB here"
done
check "a small stack that may grow is let grow"
limited "-S -s 128"
succeeds -w ./limited "${options[@]}" --run runs/soft
expect_silence; expect_out '^done at step 4 '
succeeds -n 2 -w ./limited "${options[@]}" --run runs/soft-2
expect_out '^done at step 4 '

sanitized && exit
check "a network beyond the address space is refused with what it is for"
limited "-v 8000000"
fails 1 'out of memory before the start: one rank wants .* of memory, and may address no more than .*ulimit -v.*: take a smaller network.*for the network, .*for checkpoints' \
  -n 2 -w ./limited train --data data --optimizer sgd --hidden 40000,20000 --steps 4 --run runs/space
expect_no_file runs/space
