#!/usr/bin/env bash
# bundle_test.sh BUILD: the bundle of this build runs from another folder with an empty environment, packed, too. Its
# libraries come along, and the compiler's are used if they are the newer ones. The GPU tests in it, with the CPU in
# place of a GPU, pass, fail and are skipped as expected.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-bundle.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
# expect STATUS COMMAND...: its output is in $work/out.
expect() {
  local wanted=$1 status
  shift
  "$@" >"$work/out" 2>&1 </dev/null
  status=$?
  [ $status = "$wanted" ] && return
  failures=$((failures + 1))
  echo "FAILED: exit $status instead of $wanted: $*"
  sed 's/^/  /' "$work/out" | tail -n 40
}

# says PATTERN [FILE]: the output of the last expect, or the file, contains it.
says() {
  grep -Eq -- "$1" "$work/${2:-out}" && return
  failures=$((failures + 1))
  echo "FAILED: ${2:-the output} lacks /$1/"
  sed 's/^/  /' "$work/${2:-out}" | tail -n 40
}

bash "$here/bundle" "$work/made" "$build" || exit 1
mkdir "$work/elsewhere"
mv "$work/made" "$work/elsewhere/a place" || exit 1
place="$work/elsewhere/a place"
cd "$work" || exit 1

expect 0 env -i "$place/run" 1 lockstep --version
says '^lockstep '

expect 0 bash "$here/bundle" --packed "$work/made.tar.xz" "$build"
for python in python3 /usr/bin/python3 ""; do [ -z "$python" ] || "$python" -c 'import lzma' 2>/dev/null && break; done
if [ -n "$python" ]; then expect 0 "$python" -m tarfile -e made.tar.xz unpacked; else mkdir unpacked && tar -C unpacked -xf made.tar.xz; fi
expect 0 env -i unpacked/lockstep/tests/gpu/run --on cpu --quick --only curve,two_ranks
rm -rf unpacked made.tar.xz

# The compiler's libraries: the newer ones, the bundle's or the machine's. A file that is no library fails when it is
# used.
gcc=$place/lib/gcc/libstdc++.so.6
theirs=$(env -i ldd "$place/bin/lockstep" | awk '/libstdc/{ print $3 }')
mkdir older
sed 's/GLIBCXX_3\.4\.[23]/GLIBCXX_3.4.0/g' "$theirs" >older/libstdc++.so.6
expect 0 env -i LD_LIBRARY_PATH="$work/older" "$place/run" 1 lockstep --version
expect 1 env -i LD_LIBRARY_PATH="$work/older" "$place/bin/lockstep" --version
mv "$gcc" kept
echo GLIBCXX_3.4.1 >"$gcc"
expect 0 env -i CUDA_HOME=1 "$place/run" 1 lockstep --version
echo GLIBCXX_3.4.99 >"$gcc"
expect 127 env -i CUDA_HOME=2 "$place/run" 1 lockstep --version
mv kept "$gcc"

# Only the C library and the loader come from this machine.
env -i LD_LIBRARY_PATH="$place/lib/gcc" ldd "$place/bin/lockstep" "$place/bin/gpu_tests" "$place/bin/mpirun" | awk '/=> /{ print $3 }' | grep -v "^$work" |
  grep -vE '/(ld-linux[^/]*|lib(c|m|pthread|dl|rt|resolv|util|anl)\.so\.[0-9]+)$' >foreign
expect 1 grep . foreign

data=$place/data
if [ ! -d "$data" ]; then
  expect 0 env -i "$place/run" 1 lockstep pack --format synthetic --samples 600 --out data
  data=$work/data
fi
expect 0 env -i "$place/run" 2 lockstep train --device cpu --data "$data" --hidden 32 --steps 20 --no-tensorboard --run runs/a
expect 0 env -i "$place/run" 1 lockstep info runs/a

expect 0 env -i "$place/tests/gpu/run" --on cpu --quick --json all.json \
  --only linear.fp32,curve,graphs,two_ranks,one_rank_per_gpu,resume_on_cpu,no_gpu,killed_rank,comparison_fires,mlp
says '^9 passed, 0 failed'
says '"result": "not run"' all.json
says '"workload": "mlp"' all.json
says '"commit": "([0-9a-f]{40}|unknown)' all.json
expect 77 env -i CUDA_VISIBLE_DEVICES= "$place/tests/gpu/run"
says 'not run \(no device\)'
printf '#!/bin/sh\nexit 3\n' >"$place/bin/gpu_tests"
expect 1 env -i "$place/tests/gpu/run" --on cpu --only linear.fp32,curve --json broken.json
says '"name": "linear.fp32"' broken.json
says '"result": "failed"' broken.json
says '^curve +passed'
echo "$failures failures"
[ "$failures" = 0 ]
