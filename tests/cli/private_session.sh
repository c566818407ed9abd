#!/usr/bin/env bash
# The launchers do without names in TMPDIR that another user may have taken.
. "$(dirname "$0")/harness.sh"
mpirun --version 2>/dev/null | grep -q "Open MPI" || skip_all "this is not Open MPI"
[ "$(id -u)" = 0 ] || skip_all "only root can plant another user's folder"
as_user=(setpriv --reuid 65533 --regid 65533 --clear-groups)
chmod 755 "$work"
"${as_user[@]}" test -x "$lockstep" || skip_all "the other user cannot reach $lockstep"
mkdir shared
chmod 1777 shared
taken=shared/ompi.$(hostname | cut -d. -f1).65533
mkdir "$taken"
chown 65534:65534 "$taken"
chmod 700 "$taken"

# launch WORDS...: by that user, two ranks
launch() {
  command_line="$*"
  (cd shared && TMPDIR=$work/shared HOME=$work/shared timeout 60 "${as_user[@]}" "$@" "$lockstep" bench all-reduce --max 4 --repeat 1) >out 2>err
  status=$?
}

check "Open MPI by itself does not start where somebody has taken its folder"
launch mpirun --oversubscribe -np 2
[ "$status" != 0 ] || skip_all "this Open MPI has another name for its folder"
check "app/launch does, and leaves nothing behind"
launch "$tree/app/launch" 2
expect_status 0
[ "$(ls shared)" = "$(basename "$taken")" ] || failed "left behind: $(ls shared)"
