#!/usr/bin/env bash
# A fresh clone works on a bare system (debootstrap), Debian of this machine's release and Ubuntu 24.04: app/quickstart
# builds without a warning and trains, and cmake --install works straight after it.
# label: slow
# seconds: 5400
# alone
. "$(dirname "$0")/harness.sh"
. "$tree/tests/support/bare_debian.sh"
[ "$(id -u)" = 0 ] || skip_all "a chroot needs root"
for tool in debootstrap git; do command -v $tool >/dev/null || skip_all "$tool is not here"; done
[ -e "$tree/.git" ] || skip_all "this tree is no clone"
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

trap 'code=$?; umount -l "$work"/*/{dev,proc} 2>/dev/null; (exit $code); end_of_script' EXIT
for system in ${release:+"bare_debian $release"} "bare_ubuntu noble"; do
  root=$work/${system#* }
  if ! $system "$root"; then
    echo "not run: $system: $(tail -n 1 err)"
    continue
  fi
  check "${system#bare_}"
  mount --bind /dev "$root/dev" && mount -t proc proc "$root/proc" || skip_all "nothing can be mounted here"
  git -c safe.directory='*' clone -q "$tree" "$root/root/lockstep"
  command_line="tests/support/first_hour"
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" bash /root/lockstep/tests/support/first_hour >out 2>err </dev/null
  status=$?
  expect_status 0
  expect_out "^compiler: GCC "; expect_out "^commit: $(git -C "$root/root/lockstep" rev-parse HEAD)$|^commit: not known"
  umount -l "$root/dev" "$root/proc"
done
[ $cases -gt 0 ] || skip_all "no mirror is in reach"
