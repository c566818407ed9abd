# Sourced by app/quickstart and tests/run, from the root of the tree. The functions install missing packages, find a
# CMake that is new enough, configure, build, and find Fashion-MNIST. They change nothing outside the tree except
# installed packages.

build_packages="g++ cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libhdf5-dev libboost-program-options-dev
  libopenblas-pthread-dev libdnnl-dev libfmt-dev libjpeg-dev libpng-dev libwebp-dev libxxhash-dev nlohmann-json3-dev
  libyaml-cpp-dev zlib1g-dev"
test_packages="libgtest-dev libgmock-dev hdf5-tools patchelf python3 python3-h5py"
fedora_build_packages="gcc-c++ cmake ninja-build pkgconf openmpi-devel hdf5-devel boost-devel openblas-devel
  onednn-devel fmt-devel libjpeg-turbo-devel libpng-devel libwebp-devel xxhash-devel json-devel
  yaml-cpp-devel zlib-devel"
fedora_test_packages="gtest-devel gmock-devel hdf5 patchelf python3 python3-h5py"
cmake_needed=3.25

say() { if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else printf '==> %s\n' "$*"; fi; }
stop() { printf '%s\n' "$*" >&2; exit 1; }

is_debian() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
is_offered() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

# as_root LINE: runs LINE in a shell as root, directly or through sudo; otherwise prints LINE and stops.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    sh -c "$1" </dev/null
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo sh -c "$1" </dev/null  # sudo asks for a password on the terminal itself
  else
    stop "Run this as root, then start again:
  $1"
  fi
}

# install_packages NAME...: installs the missing packages and prints their names.
install_packages() {
  local missing="" name
  for name in "$@"; do is_installed "$name" || missing="$missing $name"; done
  [ -n "$missing" ] || return 0
  say "installing:$missing"
  as_root "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends$missing" ||
    stop "apt-get could not install:$missing"
}

has_nvidia_driver() { [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ]; }  # dxg: in WSL

version_at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
cmake_is_new_enough() {
  local version
  version=$("$1" --version 2>/dev/null | sed -n 's/^cmake version //p')
  [ -n "$version" ] && version_at_least "$version" "$cmake_needed"
}

# Checksums of PyPI's wheels for x86 and Arm.
cmake_wheel="cmake==3.31.6 --hash=sha256:1c8b05df0602365da91ee6a3336fe57525b137706c4ab5675498f662ae1dbcec
  --hash=sha256:42d9883b8958da285d53d5f69d40d9650c2d1bcf922d82b3ebdceb2b3a7d4521"
# Sets $cmake and $ctest: those of the system, or, if these are too old (Ubuntu 22.04 has 3.22), PyPI's in build/tools.
find_cmake() {
  local tools=$PWD/build/tools
  cmake=cmake ctest=ctest
  cmake_is_new_enough cmake && return
  cmake=$tools/bin/cmake ctest=$tools/bin/ctest
  cmake_is_new_enough "$cmake" && return
  say "this system's CMake is older than $cmake_needed: installing a newer one into build/tools"
  is_debian && install_packages python3-venv
  python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --require-hashes --only-binary :all: -r <(echo ${cmake_wheel}) &&
    cmake_is_new_enough "$cmake" ||
    stop "CMake $cmake_needed or newer is needed (https://cmake.org/download); put it first in PATH and start again"
}

# Sets $clang to a Clang for the C++20 of this tree: since Clang 16, lambdas capture structured bindings.
find_clang() {
  local version
  for version in 22 21 20 19 18 17 16; do
    clang=clang-$version
    if ! command -v "$clang" >/dev/null && is_debian && is_offered "$clang"; then install_packages "$clang"; fi
    command -v "$clang" >/dev/null && command -v "${clang/clang/clang++}" >/dev/null && return
  done
  clang=clang # the name on distributions with a single version
  version_at_least "$(clang -dumpversion 2>/dev/null || echo 0)" 16 || stop "Clang 16 or newer is needed"
}

# put_mpich_first FOLDER: installs MPICH, writes its mpirun to FOLDER, and puts FOLDER first in PATH.
put_mpich_first() {
  is_debian && install_packages mpich libmpich-dev
  local mpirun
  mpirun=$(command -v mpirun.mpich || command -v mpiexec.hydra) || stop "MPICH is needed: mpicc.mpich and mpirun.mpich"
  mkdir -p "$1"
  # A script, not a link: MPICH's mpirun looks for other programs beside the path that started it.
  rm -f "$1/mpirun"
  printf '#!/bin/sh\nexec %s "$@"\n' "$mpirun" >"$1/mpirun"
  chmod +x "$1/mpirun"
  export PATH=$PWD/$1:$PATH
}

# prepare_system with-tests|without [PACKAGE]: installs everything that a build needs, and PACKAGE if Debian offers it.
# On other systems, stops with the names of the packages if something is missing.
prepare_system() {
  local debian=$build_packages fedora=$fedora_build_packages command missing=""
  if [ "${1:-}" = with-tests ]; then
    debian="$debian $test_packages" fedora="$fedora $fedora_test_packages"
  fi
  if is_debian; then
    if [ -n "${2:-}" ] && is_offered "$2"; then debian="$debian $2"; fi
    # shellcheck disable=SC2086  # the lists are words
    install_packages $debian
  else
    for command in g++ cmake ninja mpirun; do command -v $command >/dev/null || missing="$missing $command"; done
    [ -z "$missing" ] || stop "Not found:$missing. This is no Debian or Ubuntu, so install first (names as on Fedora):
  $(echo $fedora)
On Fedora and RHEL, \`module load mpi\` puts mpirun into PATH."
  fi
  find_cmake
}

# True if each of `nproc` + 2 compilers can use 1.5 GiB of memory.
has_memory_to_spare() {
  local free
  free=$(sed -nE 's/^MemAvailable: *([0-9]+) kB$/\1/p' /proc/meminfo 2>/dev/null)
  [ "${free:-0}" -gt $(((2 + $(nproc)) * 1572864)) ]
}

# configure_and_build PRESET [CMAKE OPTION...] [-- TARGET...]: configures and builds in build/PRESET.
configure_and_build() {
  local preset=$1 options=() log=build/$1/configure.log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  mkdir -p "build/$preset"
  # With enough memory, GCC compiles faster with less garbage collection. CMake reads CXXFLAGS only for a new folder.
  if [ -z "${CXX:-}${CXXFLAGS:-}" ] && has_memory_to_spare && [[ "${options[*]}" != *CMAKE_CXX_COMPILER=* ]]; then
    export CXXFLAGS="--param ggc-min-heapsize=600000"
  fi
  say "configuring build/$preset"
  "$cmake" --preset "$preset" "${options[@]}" >"$log" 2>&1 || { cat "$log" >&2; stop "CMake could not configure (above)"; }
  say "building build/$preset"
  "$cmake" --build "build/$preset" ${1:+--target "$@"}
}

# ---- Fashion-MNIST ----

fashion_package=dataset-fashion-mnist
fashion_package_folder=/usr/share/datasets/fashion-mnist
fashion_home=http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
# SHA-256 of the decompressed files, because Debian has compressed them again.
fashion_sums="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  train-labels-idx1-ubyte
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  t10k-labels-idx1-ubyte"

# fashion_file FOLDER NAME: prints FOLDER/NAME or FOLDER/NAME.gz, whichever exists.
fashion_file() {
  if [ -f "$1/$2" ]; then echo "$1/$2"; elif [ -f "$1/$2.gz" ]; then echo "$1/$2.gz"; else return 1; fi
}

# leave_raw_files FOLDER: puts its four files, compressed, into data/raw for the first session in the documents.
leave_raw_files() {
  local sum name file
  mkdir -p data/raw
  while read -r sum name; do
    [ -f "data/raw/$name.gz" ] && continue
    file=$(realpath "$(fashion_file "$1" "$name")") || return 1
    case $file in
      *.gz) ln -sf "$file" "data/raw/$name.gz" ;;
      *) gzip -c "$file" >"data/raw/$name.gz.part" && mv "data/raw/$name.gz.part" "data/raw/$name.gz" ;;
    esac || return 1
  done <<<"$fashion_sums"
}

# fashion_is_whole FOLDER: true if the four files exist and are intact; otherwise prints the first bad file.
fashion_is_whole() {
  local sum name file
  while read -r sum name; do
    file=$(fashion_file "$1" "$name") || { echo "$1 has neither $name nor $name.gz" >&2; return 1; }
    [ "$(gzip -cdf "$file" | sha256sum | cut -d ' ' -f 1)" = "$sum" ] || { echo "$file is damaged" >&2; return 1; }
  done <<<"$fashion_sums"
}

download() {
  if command -v curl >/dev/null; then curl -fsSL --retry 2 -o "$2" "$1"; else wget -q -O "$2" "$1"; fi
}

# Sets $fashion to a folder with the four files: the Debian package's, or data/fashion-mnist/raw after a download.
find_fashion_mnist() {
  local sum name
  fashion=$fashion_package_folder
  if is_debian && ! is_installed $fashion_package && is_offered $fashion_package; then
    install_packages $fashion_package
  fi
  [ -d "$fashion" ] && fashion_is_whole "$fashion" && return
  fashion=data/fashion-mnist/raw
  [ -d $fashion ] && fashion_is_whole $fashion && return
  say "downloading Fashion-MNIST (30 MB) from $fashion_home"
  mkdir -p $fashion
  while read -r sum name; do
    download "$fashion_home/$name.gz" "$fashion/$name.gz.part" && mv "$fashion/$name.gz.part" "$fashion/$name.gz" ||
      stop "$fashion_home/$name.gz could not be downloaded. With the four files in a folder of yours, say --data-dir FOLDER"
  done <<<"$fashion_sums"
  fashion_is_whole $fashion || stop "What was downloaded is not Fashion-MNIST (above)"
}
