#!/bin/sh
# check_includes.sh TREE: the walls between the rooms, and the one home of each foreign header. Prints each violation as
# FILE:LINE: REASON and ends with 1 when there is one, with 2 when the tree is not Lockstep's.
tree=$1
cd "$tree" || exit 2
for room in app comm io model; do
  [ -d "$room" ] || { echo "$tree has no folder $room: not Lockstep's tree" >&2; exit 2; }
done

find app comm io model tests -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \
  -o -name '*.inl' -o -name '*.ipp' \) | sort | xargs awk '
  BEGIN {
    # The rooms a room may include. tests/ROOM lives in its room; what else a test links, CMake decides.
    rooms["comm"] = "comm"; rooms["model"] = "model"; rooms["io"] = "io"; rooms["app"] = "app comm io model"

    # header as written in the include line ; the files it may appear in ; its home in words
    home("^mpi\\.h$", "^comm/[^/]*\\.cpp$|^comm/mpi_state\\.hpp$|^tests/mpi/|^tests/cluster/simulation/", "comm/*.cpp")
    home("^nccl.*\\.h$", "^comm/nccl_[^/]*\\.cpp$|^tests/mpi/nccl/", "comm/nccl_*.cpp")
    home("^(cublas|cudnn|curand|cub/|cutlass/|cuda_fp|cuda_bf|nvtx|nvml)", "^model/cuda/|^tests/support/[a-z_]*on_cpu\\.", "model/cuda/")
    home("^(cuda\\.h|cuda_runtime|driver_types|cuda/)", "^model/cuda/|^comm/nccl_[^/]*\\.cpp$|^tests/mpi/nccl/|^tests/support/[a-z_]*on_cpu\\.",
         "model/cuda/ and comm/nccl_*.cpp")
    home("^(cblas|openblas|f77blas|lapack|dnnl|mkl|oneapi/)", "^model/cpu/", "model/cpu/")
    home("^(hdf5.*\\.h|H5.*\\.h)$", "^io/hdf5_file\\.cpp$", "io/hdf5_file.cpp")
    home("^boost/program_options", "^app/options[^/]*\\.cpp$", "app/options*.cpp")
    home("^nlohmann/", "^io/[^/]*\\.cpp$|^tests/", "io/*.cpp")
    home("^(zlib|xxhash|xxh3)\\.h$", "^io/|^tests/io/", "io/")
    home("^(jpeglib|jerror|turbojpeg|png)\\.h$", "^io/formats/jpeg_png\\.cpp$", "io/formats/jpeg_png.cpp")
    home("^boost/crc", "^io/tensorboard_log\\.cpp$", "io/tensorboard_log.cpp")
  }
  function home(header, place, words) { ++homes; header_[homes] = header; place_[homes] = place; words_[homes] = words }
  function violation(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; ++violations }

  /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header); sub(/[>"].*$/, "", header)
    if (header ~ /(^|\/)\.\.?\//) violation("includes " header ": write the path from the root of the tree")

    room = FILENAME; sub(/\/.*/, "", room)
    target = header; if (!sub(/\/.*/, "", target)) target = ""
    if (room in rooms && (target in rooms || target == "tests") && index(" " rooms[room] " ", " " target " ") == 0)
      violation(room " includes " header ": " room " knows nothing of " target)

    for (i = 1; i <= homes; ++i)
      if (header ~ header_[i] && FILENAME !~ place_[i])
        violation("includes " header ", whose home is " words_[i])
  }
  END { if (violations) exit 1 }'
status=$?
[ $status = 0 ] && echo "include rules: kept"
[ $status = 0 ] || exit 1
