#!/usr/bin/env bash
# The package that cpack makes names all its dependencies: it installs and runs in a bare Debian of the same release
# (debootstrap).
# label: slow
# seconds: 1200
# alone
. "$(dirname "$0")/harness.sh"
. "$tree/tests/support/bare_debian.sh"
build=$(dirname "$lockstep")
[ "$(id -u)" = 0 ] || skip_all "a chroot needs root"
command -v debootstrap >/dev/null || skip_all "debootstrap is not here"
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || skip_all "this is no release of Debian"

check "cpack makes a package"
command_line="cpack -G DEB"
(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/packages") >out 2>err
status=$?
expect_status 0
package=$(ls packages/*.deb)
expect_file "$package"
[ -f "$package" ] || exit 1
dpkg-deb --field "$package" Depends >out
for needed in openmpi-bin libopenmpi3 libhdf5-103 libopenblas0 libdnnl libboost-program-options libfmt9 libxxhash0 libyaml-cpp zlib1g libc6; do
  expect_out "$needed"
done
dpkg-deb --contents "$package" >out
for part in usr/bin/lockstep man/man1/lockstep-train.1.gz bash-completion/completions/lockstep zsh/vendor-completions/_lockstep \
  fish/vendor_completions.d/lockstep.fish doc/lockstep/copyright lockstep/slurm/launch lockstep/modulefiles/lockstep; do
  expect_out "$part"
done
if command -v lintian >/dev/null; then
  check "lintian finds no error but what a package for oneself has: no mail address, no report that wishes for it"
  lintian --allow-root --fail-on none --suppress-tags initial-upload-closes-no-bugs,no-changelog,bogus-mail-host "$package" >out 2>err
  expect_no_out '^E: '
fi

check "a bare system installs it with what it needs, and nothing else"
root=$work/root
bare_debian "$release" "$root" || skip_all "debootstrap could not make a system (no mirror in reach?)"
cp "$package" "$root/tmp/lockstep.deb"
umount_all() { umount -l "$root/dev" "$root/proc" 2>/dev/null; }
trap 'code=$?; umount_all; (exit $code); end_of_script' EXIT
mount --bind /dev "$root/dev" && mount -t proc proc "$root/proc" || skip_all "nothing can be mounted here"
inside() {
  command_line="in the bare system: $*"
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none bash -c "$*" >out 2>err </dev/null
  status=$?
}
inside "apt-get update -q && apt-get install -q -y --no-install-recommends /tmp/lockstep.deb"
expect_status 0
inside "cd /root && lockstep --version && lockstep pack --format synthetic --samples 300 --features 20 --classes 3 --out shards"
expect_status 0
expect_out '^lockstep [0-9.]+$'

check "it trains there, alone and on two ranks"
inside "cd /root && lockstep train shards --steps 5 --run one && mpirun -np 2 lockstep train shards --steps 5 --run two && lockstep info two"
expect_status 0
expect_out 'done at step 5'

check "it goes without leaving anything"
inside "dpkg --purge lockstep && ! ls -d /usr/share/lockstep /usr/share/doc/lockstep /usr/bin/lockstep"
expect_status 0
