#!/usr/bin/env bash
# The commands of the documents work: each block after a line <!-- run --> runs in a copy of the tree's layout, with a
# build at build/release and the data of app/quickstart in data/raw. YAML after a line <!-- network --> is a network.
# label: more
. "$(dirname "$0")/harness.sh"
raw=/usr/share/datasets/fashion-mnist
[ -d $raw ] || raw=$tree/data/fashion-mnist/raw
[ -d "$raw" ] || skip_all "Fashion-MNIST is not here (dataset-fashion-mnist, or app/quickstart downloads it)"
mkdir -p build/release app runs
ln -s "$lockstep" build/release/lockstep
ln -s "$tree/app/launch" app/launch
ln -s "$tree/app/quickstart" app/quickstart
check "app/quickstart leaves the files that the first session names"
command_line="leave_raw_files $raw"
(. "$tree/app/setup.sh" && leave_raw_files "$raw") >out 2>err || failed "it could not"
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
  expect gzip -t "data/raw/$name-ubyte.gz"
done
grep -q '^ *leave_raw_files ' "$tree/app/quickstart" || failed "app/quickstart does not call it"
mkdir plain && for file in data/raw/*.gz; do gzip -dc "$file" >"plain/$(basename "$file" .gz)"; done
(mkdir other && cd other && . "$tree/app/setup.sh" && leave_raw_files ../plain) || failed "it could not from files that are not compressed"
gzip -dc other/data/raw/t10k-labels-idx1-ubyte.gz | expect_same - plain/t10k-labels-idx1-ubyte

documents=("$tree/README.md" "$tree"/{app,comm,io,model}/README.md "$tree/model/networks.md")
ln -s "$tree/README.md" README.md
for folder in comm io model slurm; do ln -s "$tree/$folder" $folder; done
ln -s "$tree/app/README.md" app/README.md

# One file per block: block.1.sh, block.2.yaml …
awk '/^<!-- (run|network) -->$/ { armed = 1; next }
     armed && /^```(sh|yaml)$/ { inside = 1; armed = 0; file = "block." ++n "." substr($0, 4); next }
     /^```$/ { inside = 0 }
     inside { print > file }
     armed && NF { armed = 0 }' "${documents[@]}"
[ -f block.1.sh ] || { check "the documents have commands to run"; failed "none found"; exit 1; }
# As a user for whom plain mpirun works: elsewhere the launcher script deals with root and few cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none
before=$(ls)
for block in $(find . -maxdepth 1 -name 'block.*.sh' | sort -V); do
  check "$(head -n 1 "$block") ..."
  command_line="bash -e $block"
  timeout 120 bash -e "$block" >out 2>err </dev/null
  status=$?
  expect_status 0
done
check "they write only where git ignores it"
[ "$(ls -I shards)" = "$before" ] || failed "other files: $(ls -I shards | grep -vxF "$before" | tr '\n' ' ')"

for block in block.*.yaml; do
  check "$(head -n 1 "$block") is a network"
  succeeds bench step --model "./$block" --features 20 --outputs 5 --plan plan.jsonl
done
