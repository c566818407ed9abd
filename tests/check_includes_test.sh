#!/bin/sh
# Every rule of check_includes.sh fires, and none fires on the allowed twin of the same include.
checker=$(cd "$(dirname "$0")" && pwd)/check_includes.sh
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
failures=0

# expect fires|passes FILE HEADER
expect() {
  rm -rf "$tree"; mkdir -p "$tree/app" "$tree/comm" "$tree/io" "$tree/model" "$tree/tests" "$tree/$(dirname "$2")"
  printf '/// \\file\n#pragma once\n  #  include %s  // why\n' "$3" >"$tree/$2"
  output=$(sh "$checker" "$tree"); status=$?
  case $1 in
    fires) [ $status = 1 ] && case $output in "$2:3: "*) true ;; *) false ;; esac ;;
    passes) [ $status = 0 ] ;;
  esac || { echo "FAILED: $3 in $2 should be one that $1 (exit $status): $output"; failures=$((failures + 1)); }
}

# folders
for folder in comm model io; do
  for other in comm model io app tests; do
    [ $folder = $other ] && verdict=passes || verdict=fires
    expect $verdict $folder/one.cpp "\"$other/two.hpp\""
    case $folder in comm) deeper=host/er.hpp ;; io) deeper=er.hpp ;; *) deeper=deep/er.hpp ;; esac
    expect $verdict $folder/$deeper "<$other/two.hpp>"
  done
  expect passes app/one.cpp "\"$folder/two.hpp\""
  expect passes tests/$folder/one.cpp "\"$folder/two.hpp\""
  expect fires $folder/one.cpp '"../other/two.hpp"'
done
for other in comm model app tests; do expect fires io/files/er.hpp "<$other/two.hpp>"; done  # the ground floor of io is its highest
expect fires app/one.cpp '"tests/two.hpp"'
expect passes model/one.cpp '<vector>'

# layers: FOLDER, two layers of which the first is lower; beside: two that do not know each other
while read -r folder lower upper; do
  expect passes $folder/$upper/one.cpp "\"$folder/$lower/two.hpp\""
  expect passes $folder/$lower/one.cpp "\"$folder/$lower/two.hpp\""
  expect fires $folder/$lower/one.cpp "\"$folder/$upper/two.hpp\""
done <<'END'
app report options
app options plan
app plan engine
app engine train
app engine evaluate
app train check
app evaluate bench
app train info
app evaluate pack
comm session failure
comm failure survey
comm survey host
comm host nccl
io files text
io text shards
io shards formats
io shards datasets
io files checkpoints
io checkpoints runs
END
while read -r folder layer other; do
  expect fires $folder/$layer/one.hpp "\"$folder/$other/two.hpp\""
  expect fires $folder/$other/one.hpp "\"$folder/$layer/two.hpp\""
done <<'END'
app train evaluate
app check bench
app bench info
app info pack
io formats datasets
io datasets checkpoints
END
# files in the folder itself
expect passes app/main.cpp '"app/pack/pack.hpp"'
expect fires app/pack/pack.cpp '"app/main.hpp"'
expect passes comm/communicator.hpp '"comm/session/deadline.hpp"'
expect fires comm/session/deadline.cpp '"comm/communicator.hpp"'
expect passes comm/failure/watch.hpp '"comm/communicator.hpp"'
expect fires comm/communicator.hpp '"comm/failure/watch.hpp"'
expect passes comm/make_communicator.cpp '"comm/nccl/nccl_reduction.hpp"'
expect passes io/foreign_files.cpp '"io/datasets/shard_set.hpp"'
expect fires io/runs/run_folder.cpp '"io/foreign_files.hpp"'
# the modes of agreement
expect passes app/plan/plan.hpp '"app/agree/agreement.hpp"'
expect fires app/agree/agreement.hpp '"app/plan/plan.hpp"'
expect passes app/agree/agreement.cpp '"app/agree/local/local_agreement.hpp"'
expect fires app/agree/local/local_rounds.cpp '"app/agree/servers/servers.hpp"'
expect passes app/agree/local/local_rounds.cpp '"app/engine/trainer.hpp"'
expect fires app/engine/engine.hpp '"app/agree/local/local_rounds.hpp"'
expect fires app/train/train.cpp '"app/agree/servers/servers.hpp"'
# a folder that has no place in the order
expect fires app/somewhere/one.cpp '"app/report/two.hpp"'
expect fires app/main.cpp '"app/somewhere/two.hpp"'
expect passes model/somewhere/one.cpp '"model/elsewhere/two.hpp"'

# foreign headers: HEADER, a place where it is at home, a place where it is not
while read -r header good bad; do
  expect passes "$good" "$header"
  expect fires "$bad" "$header"
done <<'END'
<mpi.h> comm/host/ring_communicator.cpp comm/host/ring_communicator.hpp
<mpi.h> comm/session/mpi_state.hpp comm/survey/topology.hpp
<mpi.h> tests/mpi/ring_test.cpp app/main.cpp
<nccl.h> comm/nccl/nccl_communicator.cpp comm/host/ring_communicator.cpp
<cuda_runtime.h> model/cuda/backend.cu model/backend.hpp
<cuda_runtime.h> comm/nccl/nccl_communicator.cpp comm/host/ring_communicator.cpp
<cuda_bf16.h> comm/nccl/nccl_bf16.cu comm/host/ring_communicator.cpp
<cublasLt.h> model/cuda/gemm.cpp model/cpu/gemm.cpp
<cudnn.h> model/cuda/conv.cpp app/train.cpp
<cblas.h> model/cpu/gemm.cpp model/network.cpp
<oneapi/dnnl/dnnl.hpp> model/cpu/conv.cpp model/layers/conv.cpp
<hdf5.h> io/files/hdf5_file.cpp io/checkpoints/checkpoint.cpp
"H5Ppublic.h" io/files/hdf5_handles.hpp io/files/hdf5_file.hpp
<boost/program_options.hpp> app/options/options.cpp app/plan/plan.cpp
<boost/program_options/parsers.hpp> app/options/ini_file.cpp io/runs/metrics_log.cpp
<nlohmann/json.hpp> io/runs/metrics_log.cpp io/runs/metrics_log.hpp
<nlohmann/json.hpp> io/shards/shard_manifest.cpp io/formats/csv.cpp
<nlohmann/json.hpp> tests/io/runs/metrics_log_test.cpp app/report.cpp
<yaml-cpp/parser.h> model/yaml/yaml_document.cpp model/yaml/expression.cpp
<xxhash.h> io/files/checksum.cpp app/info.cpp
<zlib.h> io/formats/idx.cpp model/model.hpp
END

# templates
for word in typename class; do
  rm -rf "$tree"; mkdir -p "$tree/app" "$tree/comm" "$tree/io" "$tree/model" "$tree/tests"
  echo "template <$word T>" >"$tree/app/main.cpp"
  sh "$checker" "$tree" >/dev/null; status=$?
  [ $status = $([ $word = class ]; echo $?) ] || { echo "FAILED: template <$word T> ends with $status"; failures=$((failures + 1)); }
done

rm -rf "$tree/io"
sh "$checker" "$tree" 2>/dev/null; [ $? = 2 ] || { echo "FAILED: a tree without io/ should be refused"; failures=$((failures + 1)); }

[ $failures = 0 ] && echo "include rules: every one fires"
[ $failures = 0 ]
