# CMake reports what it finds and what is missing, with and without the packages that GPUs need.
# label: more
. "$(dirname "${BASH_SOURCE[0]}")/harness.sh"

# configure NAME [ENVIRONMENT...] [-D...]: its output is in ./out, its exit code in $status.
configure() {
  local name=$1 environment=()
  shift
  while [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; do environment+=("$1"); shift; done
  command_line="cmake -S . -B $name ${environment[*]} $*"
  env "${environment[@]}" cmake -S "$tree" -B "$name" -G Ninja -DLOCKSTEP_TESTS=OFF "$@" >out 2>&1
  status=$?
  tr '\n' ' ' <out | tr -s ' ' >line
  : >err
}
expect_line() { grep -qF -- "$1" line || failed "the output does not say: $1"; }

check "OFF looks for nothing"
configure off -DLOCKSTEP_CUDA=OFF
[ "$status" = 0 ] || failed "ended with $status"
grep -q CUDA line && failed "it looked for CUDA"
check "whoever builds the program alone can install it: its manual pages come with it"
command_line="ninja -t query share/man/man1/lockstep.1"
ninja -C off -t query share/man/man1/lockstep.1 >out 2>err
expect_out 'CXX_EXECUTABLE_LINKER__lockstep_'
check "a new commit compiles one source, and links the program alone"
command_line="grep program_commit.cpp build.ninja"
sed -n 's/^build \([^: ]*\.o\): [^ ]* [^ ]*off\/program_commit\.cpp .*/\1/p' off/build.ninja >out
[ "$(cat out)" = CMakeFiles/lockstep.dir/program_commit.cpp.o ] || failed "it is compiled into other things"

check "two sanitizers at once"
configure sanitized -DLOCKSTEP_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug -DLOCKSTEP_SANITIZE=address,undefined
[ "$status" = 0 ] || failed "ended with $status"

check "AUTO without nvcc says so and goes on"
configure auto CUDACXX=/bin/false
[ "$status" = 0 ] || failed "ended with $status"
expect_line "GPUs: none, these were not found: nvcc; -DLOCKSTEP_CUDA=ON makes that an error"

check "ON without nvcc is an error that names it"
configure on CUDACXX=/bin/false -DLOCKSTEP_CUDA=ON
[ "$status" != 0 ] || failed "it went on"
expect_line "LOCKSTEP_CUDA is ON, and these were not found: nvcc."

if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  check "ON without NCCL is an error that names it"
  configure no-nccl -DLOCKSTEP_CUDA=ON -DNCCL_INCLUDE_DIR=/nowhere
  [ "$status" != 0 ] || failed "it went on"
  expect_line "NCCL (nccl.h and libnccl: NCCL_ROOT says where)"
fi

check "the files that the container's recipe copies are enough"
mkdir copied
for part in $(sed -n '/^%files$/,/^%post$/s|^ *\([^ ]*\) /src/$|\1|p' "$tree/slurm/lockstep.def"); do cp -r "$tree/$part" copied/; done
command_line="cmake -S copied"
cmake -S copied -B copied/build -G Ninja -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_CUDA=OFF >out 2>err
status=$?
expect_status 0

check "whoever may not install packages is told a line that does"
command_line="install_packages one two"
(
  . "$tree/app/setup.sh"
  id() { echo 1000; }
  sudo() { return 1; }
  is_installed() { return 1; }
  install_packages one two
) >out 2>err </dev/null
status=$?
expect_status 1
expect_err '^Run this as root, then start again:$'
sed -n 's/^  //p' err >line.sh
apt-get() { echo "apt-get $*"; }
(. ./line.sh) >out 2>err
printf '%s\n' "apt-get update -q" "apt-get install -q -y --no-install-recommends one two" | expect_same out -
check "whoever has a password for sudo is asked for it, at a terminal"
cat >asked.sh <<'END'
. "$1/app/setup.sh"
id() { echo 1000; }
sudo() { [ "$1" != -n ] && echo "sudo: $*"; }
is_installed() { return 1; }
install_packages one two
END
python3 -c 'import pty, sys; sys.exit(pty.spawn(["bash", "asked.sh", sys.argv[1]]))' "$tree" >out 2>err </dev/null
status=$?
expect_status 0
expect_out '^sudo: sh -c apt-get update -q && .* one two'

check "a wrong command line of a script is told with 2, before anything is built"
for words in "app/quickstart --ranks" "app/quickstart --ranks none" "app/quickstart --data-dir nowhere" "tests/run --preset" \
  "tests/run --preset fast" "tests/run --label"; do
  command_line=$words
  # shellcheck disable=SC2086  # words
  bash "$tree/"$words >out 2>err </dev/null
  status=$?
  expect_status 2; expect_err "^${words%% *}: .*(needs|unknown preset fast)"; expect_no_out .
done
check "app/quickstart whose training is stopped says how it goes on"
mkdir -p quick/app quick/data/raw quick/build/release
touch quick/data/raw/t10k-labels-idx1-ubyte.gz
cp "$tree/app/quickstart" quick/app
script quick/app/launch 'exit 75'
script quick/build/release/lockstep 'exit 0'
cat >quick/app/setup.sh <<'END'
fashion_package=none
prepare_system() { :; }
configure_and_build() { :; }
find_fashion_mnist() { fashion=none; }
fashion_file() { echo "$2"; }
say() { echo "$*"; }
END
bash quick/app/quickstart --no-cuda --ranks 3 >out 2>err </dev/null
status=$?
expect_status 75; expect_out 'this goes on: app/launch 3 build/release/lockstep train --resume --run runs/quickstart'
