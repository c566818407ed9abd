#!/usr/bin/env bash
# The commands of README.md that follow a line <!-- run --> do what it says: each block of them in a copy of the tree's
# layout, with a build at build/release and the packed Fashion-MNIST that app/quickstart makes.
. "$(dirname "$0")/harness.sh"
raw=/usr/share/datasets/fashion-mnist
[ -d $raw ] || raw=$tree/data/fashion-mnist/raw
[ -d "$raw" ] || skip_all "Fashion-MNIST is not here (dataset-fashion-mnist, or app/quickstart downloads it)"
mkdir -p build/release data app runs
ln -s "$lockstep" build/release/lockstep
ln -s "$tree/app/launch" app/launch
ln -s "$tree/app/quickstart" app/quickstart
ln -s "$raw" data/raw
cat "$tree"/README.md "$tree"/io/*.md >data/corpus.txt

# One file per block: block.1, block.2 …
awk '/^<!-- run -->$/ { armed = 1; next }
     armed && /^```sh$/ { inside = 1; armed = 0; ++n; next }
     /^```$/ { inside = 0 }
     inside { print > ("block." n) }
     armed && NF { armed = 0 }' "$tree/README.md"
[ -f block.1 ] || { check "README.md has commands to run"; failed "none found"; exit 1; }
# As a user who may say mpirun as it stands: root and few cores are the launcher script's business elsewhere.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none
for block in $(find . -maxdepth 1 -name 'block.*' | sort -V); do
  check "$(head -n 1 "$block") ..."
  command_line="bash -e $block"
  timeout 120 bash -e "$block" >out 2>err </dev/null
  status=$?
  expect_status 0
done
