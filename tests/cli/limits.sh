#!/usr/bin/env bash
# The program respects its shell's limits: it refuses too large a demand before it allocates.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --optimizer sgd --hidden 16 --batch 20 --steps 4)
limited() { printf '#!/bin/bash\nulimit %s && exec "$@"\n' "$1" >limited && chmod +x limited; }

for kib in 64 128 512; do
  check "a stack of $kib KiB"
  limited "-s $kib"
  run -w ./limited "${options[@]}" --run runs/stack
  expect_error 1 "the stack of a process may have $kib KiB here, and 1024 are needed"; expect_no_file runs/stack
  run -n 2 -w ./limited info data/train
  expect_status 1; expect_err "may have $kib KiB here"
done
check "a small stack that may grow is let grow"
limited "-S -s 128"
run -w ./limited "${options[@]}" --run runs/soft
expect_status 0; expect_silence; expect_out '^done at step 4 '
run -n 2 -w ./limited "${options[@]}" --run runs/soft-2
expect_status 0; expect_out '^done at step 4 '

sanitized && exit
check "a network beyond the address space is refused with what it is for"
limited "-v 8000000"
run -n 2 -w ./limited train --data data --optimizer sgd --hidden 40000,20000 --steps 4 --run runs/space
expect_error 1 'out of memory before the start: one rank wants .* of memory, and may address no more than .*ulimit -v.*: take a smaller network.*for the network, .*for checkpoints'
expect_no_file runs/space
