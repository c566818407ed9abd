#!/usr/bin/env bash
# The container's recipe works: buildah builds it from a bare Debian of its release (debootstrap), without
# Apptainer, from a Containerfile made of the recipe's sections.
# label: slow
# seconds: 3000
# alone
. "$(dirname "$0")/harness.sh"
. "$tree/tests/support/bare_debian.sh"
[ "$(id -u)" = 0 ] || skip_all "debootstrap needs root"
for tool in buildah debootstrap; do command -v $tool >/dev/null || skip_all "$tool is not here"; done
recipe=$tree/slurm/lockstep.def
section() { sed -n "/^%$1\$/,/^%/{/^%/!p}" "$recipe"; }
builder() {
  command_line="buildah $*"
  buildah --storage-driver vfs --root "$work/storage" --runroot "$work/runroot" "$@" >out 2>err
  status=$?
}
inside() { builder run --isolation chroot box -- sh -ec "$1"; }

check "the recipe builds"
bare_debian "$(sed -n 's/^From: debian:\([a-z]*\).*/\1/p' "$recipe")" root || skip_all "debootstrap could not make a system"
tar -C root -cf root.tar . && rm -rf root
section post >post.sh
printf 'FROM scratch\nADD root.tar /\n' >Containerfile
for part in $(section files | awk '$2 == "/src/" { print $1 }'); do
  cp -r "$tree/$part" .
  echo "COPY $part /src/$part" >>Containerfile
done
printf 'COPY post.sh /tmp/\nRUN sh /tmp/post.sh\n' >>Containerfile
builder bud --isolation chroot --network host -t lockstep -f Containerfile .
expect_status 0
[ "$status" = 0 ] || exit 1

check "its own test passes"
builder from --name box lockstep
expect_status 0
inside "$(section test)"
expect_status 0
expect_out '^lockstep [0-9.]+$'

check "the program trains in it, alone and on two ranks"
inside "cd /tmp && lockstep pack --format synthetic --samples 300 --features 20 --classes 3 --out shards && lockstep train shards --steps 5 --run one"
expect_status 0
expect_out 'done at step 5'
inside "cd /tmp && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 &&
  mpirun --oversubscribe --bind-to none -np 2 lockstep train shards --steps 5 --run two"
expect_status 0
expect_out 'done at step 5'

check "manual pages and batch scripts are there"
inside "ls /usr/local/share/man/man1/lockstep-train.1 /usr/local/share/lockstep/slurm/train.sbatch"
expect_status 0
