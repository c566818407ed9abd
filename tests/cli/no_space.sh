#!/usr/bin/env bash
# A full disk during packing, logging and checkpointing ends in a clear message. Needs a small file system, so root.
# label: more
. "$(dirname "$0")/harness.sh"
mkdir disk
mount -t tmpfs -o size=2m none disk 2>/dev/null || skip_all "no right to mount a small tmpfs"
trap 'code=$?; umount "$work/disk"; (exit $code); end_of_script' EXIT
# fill_but KILOBYTES
fill_but() {
  rm -f disk/ballast
  local free
  free=$(df --output=avail -k disk | tail -n 1)
  [ "$free" -le "$1" ] || head -c $(((free - $1) * 1024)) /dev/zero >disk/ballast 2>/dev/null
}

check "packing"
fails 1 'disk' pack --format synthetic --samples 5000 --features 784 --out disk/data --shards 4; expect_no_file disk/data
[ -z "$(ls -A disk)" ] || failed "left behind: $(ls -A disk)"

pack_small data
check "no space for the run folder"
fill_but 0
fails 1 'disk/run' -n 2 train --data data --optimizer sgd --hidden 16 --steps 20 --run disk/run
rm -rf disk/run

check "checkpointing"
fill_but 400
succeeds -n 2 train --data data --optimizer sgd --hidden 16 --steps 5 --run disk/run
picture disk/run/checkpoints >before
fails 1 'disk/run2.*(space|full)' -n 2 train --data data --optimizer sgd --hidden 400,400 --steps 5 --run disk/run2
[ -z "$(find disk/run2/checkpoints -type f -size +0)" ] || failed "a partial checkpoint: $(ls disk/run2/checkpoints)"
picture disk/run/checkpoints >after; expect_same before after

check "the checkpoint before the disk was full survives"
rm -rf disk/run2
fill_but 1000
start -n 2 train --data data --optimizer sgd --hidden 64 --steps 100000000 --checkpoint-every 100 --report-every 100 --run disk/run3 --progress off
if wait_for 20 test -e disk/run3/checkpoints/latest; then fill_but 0; fi
finish 30
expect_error 1 'disk/run3'
umount disk; mount -t tmpfs -o size=2m none disk  # a fresh disk for the next case
run --version

check "logging"
start -n 2 train --data data --optimizer sgd --hidden 8 --steps 100000000 --checkpoint-every -1 --report-every 1 --run disk/run4 --progress off
if wait_for 20 grep -q '^ *step ' out; then fill_but 0; fi
finish 60
expect_error 1 'disk/run4'
