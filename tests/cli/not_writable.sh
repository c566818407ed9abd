#!/usr/bin/env bash
# Folders without write permission are refused with one sentence. Root may write everywhere, so as root the program runs
# as nobody.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data
mkdir closed; chmod 555 closed
chmod 755 "$work"
script as_nobody 'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
as_user=()
if [ "$(id -u)" = 0 ]; then
  as_user=(-u ./as_nobody)
  setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$lockstep" || skip_all "nobody cannot reach $lockstep"
  chmod 777 "$TMPDIR"
fi

check "pack"
fails 1 'closed' "${as_user[@]}" pack --format synthetic --samples 50 --out closed/data; expect_no_file closed/data
check "the run folder"
fails 1 'closed/run' "${as_user[@]}" train --data data --optimizer sgd --hidden 8 --steps 3 --run closed/run; expect_no_file closed/run
check "the run folder, 2 ranks"
fails 1 'closed/run' "${as_user[@]}" -n 2 train --data data --optimizer sgd --hidden 8 --steps 3 --run closed/run; expect_no_file closed/run
check "data that one may not read"
chmod 000 data/shard-00001.h5
fails 1 'shard-00001\.h5.*[Pp]ermission' "${as_user[@]}" -n 2 train --data data --optimizer sgd --hidden 8 --steps 3 --run closed/run
