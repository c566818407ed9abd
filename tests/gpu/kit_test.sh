#!/usr/bin/env bash
# kit_test.sh BUILD: a packed kit rebuilds the kernels of a bundle with nvcc, g++ and its own files. It compiles only
# changed sources; one that does not compile leaves the programs unchanged.
set -u
build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-kit.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
failed() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/  /' "$work/out" | tail -n 40
}
# expect STATUS PATTERN COMMAND...
expect() {
  local wanted=$1 pattern=$2 status
  shift 2
  "$@" >"$work/out" 2>&1 </dev/null
  status=$?
  [ $status = "$wanted" ] || failed "exit $status instead of $wanted: $*"
  grep -Eq -- "$pattern" "$work/out" || failed "$* does not print /$pattern/"
}

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { echo "needs nvcc"; exit 77; }
alone=(env -i PATH="$(dirname "$nvcc"):/usr/bin:/bin")
expect 0 MiB bash "$here/bundle" "$work/bundle" "$build"
expect 0 MiB bash "$here/kit" --packed "$work/kit.tar.xz" "$build"
[ "$(stat -c %s "$work/kit.tar.xz")" -lt $((8 << 20)) ] || failed "the kit is too large to travel"
mkdir "$work/there"
tar -C "$work/there" -xf "$work/kit.tar.xz" || exit 1
kit=$work/there/kit

before=$(stat -c %i "$work/bundle/bin/gpu_tests")
echo 'not C++' >"$kit/model/cuda/kernels/broken.cu"
expect 1 'the kernels do not compile' "${alone[@]}" "$kit/build" "$work/bundle"
[ "$(stat -c %i "$work/bundle/bin/gpu_tests")" = "$before" ] || failed "a program without its kernels"
rm "$kit/model/cuda/kernels/broken.cu"
expect 0 '^0 of [0-9]+ kernel files compiled.*both programs linked' "${alone[@]}" "$kit/build" "$work/bundle"
touch "$kit/model/cuda/kernels/update_kernels.cu"
expect 0 '^1 of [0-9]+ kernel files compiled' "${alone[@]}" "$kit/build" "$work/bundle"
[ "$(stat -c %i "$work/bundle/bin/gpu_tests")" != "$before" ] || failed "the program is the old one"

# Headers come from the kit and the two compilers.
cat "$kit"/kernels/*.d | tr -s ' \\' '\n\n' | grep '^/' | grep -E '/(openmpi|mpich|hdf5|boost|fmt|gtest|gmock|openblas|oneapi)' >"$work/out" &&
  failed "headers of other libraries"
# lockstep also has the kernels of sums between GPUs, which a kit leaves as they were built.
expect 0 'machine code for sm_90' python3 "$here/embedded_architectures.py" "$work/bundle/bin/gpu_tests" 90-real
expect 0 '^lockstep .*' env -i "$work/bundle/run" 1 lockstep --version
expect 77 'not run \(no device\)' env -i CUDA_VISIBLE_DEVICES= "$work/bundle/run" 1 gpu_tests --survey
expect 0 '4 passed, 0 failed' env -i "$work/bundle/tests/gpu/run" --on cpu --quick --only linear.fp32,curve,two_ranks,mlp
grep -q 'rebuilt kernels' "$work/bundle/COMMIT" || failed "the bundle does not say that its kernels are others"
echo "$failures failures"
[ "$failures" = 0 ]
