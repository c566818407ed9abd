#!/bin/sh
# check_includes.sh TREE: the walls between the folders, the order of the layers in a folder, and the one home of each foreign
# header. Prints each violation as FILE:LINE: REASON and ends with 1 when there is one, with 2 when the tree is not
# Lockstep's.
tree=$1
cd "$tree" || exit 2
for folder in app comm io model; do
  [ -d "$folder" ] || { echo "$tree has no folder $folder: not Lockstep's tree" >&2; exit 2; }
done

find app comm io model tests -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \
  -o -name '*.inl' -o -name '*.ipp' \) | sort | xargs awk '
  BEGIN {
    # The folders that a folder may include. tests/FOLDER belongs to its folder; what else a test links, CMake decides.
    folders["comm"] = "comm"; folders["model"] = "model"; folders["io"] = "io"; folders["app"] = "app comm io model"

    # The layers of a folder, the lowest first: a layer includes itself and lower ones. *.hpp and *.cpp are the files that
    # lie in the folder itself; layers with commas between them do not know each other.
    layers("app", "report options agree/*.hpp data,place plan engine agree/all,agree/local,agree/servers agree/*.cpp train,evaluate check,bench,info,pack,exchange,help,runs *.hpp *.cpp")
    layers("comm", "session *.hpp failure survey host nccl servers *.cpp")
    layers("io", "files text shards formats,datasets,checkpoints,exchange runs *.hpp *.cpp")

    # header as written in the include line ; the files it may appear in ; its home in words
    home("^mpi\\.h$", "^comm/.*\\.cpp$|^comm/session/mpi_state\\.hpp$|^tests/mpi/|^tests/cluster/simulation/", "comm/, sources")
    home("^nccl.*\\.h$", "^comm/nccl/|^tests/mpi/nccl/", "comm/nccl/")
    home("^(cublas|cudnn|curand|cub/|cutlass/|nvtx|nvml)", "^model/cuda/|^tests/support/[a-z_]*on_cpu\\.", "model/cuda/")
    home("^(cuda\\.h|cuda_runtime|cuda_fp|cuda_bf|driver_types|cuda/)", "^model/cuda/|^comm/nccl/|^tests/mpi/nccl/|^tests/support/[a-z_]*on_cpu\\.",
         "model/cuda/ and comm/nccl/")
    home("^(cblas|openblas|f77blas|lapack|dnnl|mkl|oneapi/)", "^model/cpu/", "model/cpu/")
    home("^(hdf5.*\\.h|H5.*\\.h)$", "^io/files/hdf5_([a-z]+\\.cpp|handles\\.hpp)$", "io/files/hdf5_*.cpp and io/files/hdf5_handles.hpp")
    home("^boost/program_options", "^app/options/", "app/options/")
    home("^nlohmann/", "^io/((files|text|shards|runs|exchange)/[^/]*\\.cpp|files/json_text\\.hpp)$|^tests/", "io/files, io/text, io/shards, io/runs and io/exchange, sources, and io/files/json_text.hpp")
    home("^yaml-cpp/", "^model/yaml/yaml_document\\.cpp$", "model/yaml/yaml_document.cpp")
    home("^(zlib|xxhash|xxh3)\\.h$", "^io/|^tests/(io|torture)/", "io/")
    home("^(jpeglib|jerror|turbojpeg|png)\\.h$", "^io/formats/jpeg_png\\.cpp$", "io/formats/jpeg_png.cpp")
    home("^webp/", "^io/formats/webp\\.cpp$", "io/formats/webp.cpp")
    home("^boost/crc", "^io/runs/tensorboard_log\\.cpp$", "io/runs/tensorboard_log.cpp")
  }
  function home(header, place, words) { ++homes; header_[homes] = header; place_[homes] = place; words_[homes] = words }
  function layers(folder, order,    steps, members, i, j) {
    ordered[folder] = 1
    for (i = split(order, steps, " "); i > 0; --i)
      for (j = split(steps[i], members, ","); j > 0; --j) level[folder, members[j]] = i
  }
  function layer_of(path,    parts, n) {
    n = split(path, parts, "/")
    if (n > 3 && parts[2] == "agree") return parts[2] "/" parts[3]
    if (n > 2 && parts[2] != "agree") return parts[2]
    sub(/.*\./, "*.", path)
    return n > 2 ? parts[2] "/" path : path
  }
  function violation(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; ++violations }

  /^[ \t]*template <typename / { violation("template <class ...> is how the tree writes it") }

  /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header); sub(/[>"].*$/, "", header)
    if (header ~ /(^|\/)\.\.?\//) violation("includes " header ": write the path from the root of the tree")

    folder = FILENAME; sub(/\/.*/, "", folder)
    target = header; if (!sub(/\/.*/, "", target)) target = ""
    if (folder in folders && (target in folders || target == "tests") && index(" " folders[folder] " ", " " target " ") == 0)
      violation(folder " includes " header ": " folder " knows nothing of " target)

    if (folder == target && folder in ordered) {
      own = layer_of(FILENAME); other = layer_of(header)
      if (!((folder, own) in level) || !((folder, other) in level))
        violation("includes " header ": " (((folder, own) in level) ? other : own) " is no layer of " folder)
      else if (other ~ /^agree\/[a-z]/ && own != other && own != "agree/*.cpp")
        violation("includes " header ": app/agree alone knows the modes; include app/agree/agreement.hpp")
      else if (own != other && level[folder, other] >= level[folder, own])
        violation("includes " header ": " folder "/" own " stands below or beside " folder "/" other)
    }

    for (i = 1; i <= homes; ++i)
      if (header ~ header_[i] && FILENAME !~ place_[i])
        violation("includes " header ", whose home is " words_[i])
  }
  END { if (violations) exit 1 }'
status=$?
[ $status = 0 ] && echo "include rules: kept"
[ $status = 0 ] || exit 1
