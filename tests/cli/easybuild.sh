#!/usr/bin/env bash
# The EasyBuild files pass EasyBuild's check of style, and all their dependencies exist.
# label: slow
# seconds: 900
. "$(dirname "$0")/harness.sh"
easybuild=$(peer_python easybuild.framework pycodestyle) || skip_all "no Python here has easybuild and pycodestyle (PEER_PYTHONS: others to try)"
easybuild=$(dirname "$(dirname "$easybuild")")
[ "$(id -u)" = 0 ] && root=--allow-use-as-root-and-accept-consequences || root=""
modules=$(ls /usr/lib/*/modulecmd.tcl 2>/dev/null | head -n 1)
[ -n "$modules" ] || skip_all "environment-modules is not here"
export EASYBUILD_PREFIX=$work/easybuild EASYBUILD_MODULES_TOOL=EnvironmentModules EASYBUILD_MODULE_SYNTAX=Tcl
eb() {
  command_line="eb $*"
  bash -c '. /etc/profile.d/modules.sh; PATH=$1:$PATH; shift; exec eb "$@"' bash "$easybuild/bin" $root "$@" >out 2>err
  status=$?
}
check "style"
eb --check-style "$tree"/slurm/easybuild/*.eb
expect_status 0
check "every dependency has a file, in EasyBuild's collection or beside it"
eb --robot="$tree/slurm/easybuild:$easybuild/easybuild/easyconfigs" --dry-run "$tree"/slurm/easybuild/lockstep-*.eb
expect_status 0; expect_out 'module: lockstep/0.1.0-foss-2024a'; expect_out 'module: oneDNN'
check "a dependency that is nowhere is noticed"
sed "s/('xxHash', '0.8.3')/('xxHash', '99')/" "$tree"/slurm/easybuild/lockstep-*.eb >lockstep-0.1.0-foss-2024a.eb
eb --robot="$tree/slurm/easybuild:$easybuild/easybuild/easyconfigs" --dry-run lockstep-0.1.0-foss-2024a.eb
[ "$status" != 0 ] || failed "it went on"
check "the versions of the recipes are the program's"
version=$("$lockstep" --version | sed -n 's/^lockstep //p')
expect grep -q "^version = '$version'" "$tree"/slurm/easybuild/lockstep-"$version"-*.eb
expect grep -q "version(\"$version\")" "$tree/slurm/spack/packages/lockstep/package.py"
