#!/usr/bin/env bash
# Altered packed data and checkpoints (values outside of the file, flipped bits, headers that claim memory) end in one
# sentence that names the file, from every command, and never in other data, a signal or exhausted memory.
# label: more
. "$(dirname "$0")/harness.sh"
sanitized || ulimit -v 8000000  # a header must not claim the machine's memory
pack_small good
must_run train --data good --optimizer adam --hidden 8 --steps 12 --run runs/good
checkpoint=$(newest_checkpoint runs/good)

# relocate FILE DATASET HOW: moves the data set's values (and attributes) elsewhere.
cat >relocate.py <<'END'
import h5py, numpy as np, sys, os
name, dataset, how = sys.argv[1:]
beside = name + ".beside"
with h5py.File(name, "r+") as f:
    old = f[dataset]
    values, attributes, shape, dtype = old[()], dict(old.attrs), old.shape, old.dtype
    del f[dataset]
    if how == "itself":
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(".", dataset, shape)
        f.create_virtual_dataset(dataset, layout)
    elif how == "virtual":
        with h5py.File(beside, "w") as g:
            g["values"] = values
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(os.path.basename(beside), "values", shape)
        f.create_virtual_dataset(dataset, layout)
    elif how == "external-link":
        with h5py.File(beside, "w") as g:
            g["values"] = values
            g["values"].attrs.update(attributes)
        f[dataset] = h5py.ExternalLink(os.path.basename(beside), "values")
    elif how == "soft-link":
        f["aside"] = values
        f["aside"].attrs.update(attributes)
        f[dataset] = h5py.SoftLink("/aside")
    elif how == "external-storage":
        open(beside, "wb").write(values.tobytes())
        f.create_dataset(dataset, shape, dtype, external=[(os.path.abspath(beside), 0, values.nbytes)])
    elif how == "chunks":
        f.create_dataset(dataset, data=values, chunks=True, compression="gzip")
    if "link" not in how:
        f[dataset].attrs.update(attributes)
END
relocate() { python3 relocate.py "$@"; }
# Makes the manifest match the altered shard.
cat >agree.py <<'END'
import json, os, sys
path = sys.argv[1] + "/manifest.json"
manifest = json.load(open(path))
manifest.pop("checksum")
for shard in manifest["shards"]:
    shard["bytes"] = os.path.getsize(sys.argv[1] + "/" + shard["file"])
json.dump(manifest, open(path, "w"))
END
fresh() { rm -rf data && cp -r good data; }
# Runs every command that opens data.
refuse_data() {
  fails 1 "$1" -n "${ranks:-1}" train --data data --optimizer sgd --model linear --steps 2 --run runs/r; expect_no_file runs/r
  fails 1 "$1" -n "${ranks:-1}" eval runs/good --data data
  fails 1 "$1" -n "${ranks:-1}" predict runs/good --data data --out predicted.h5; expect_no_file predicted.h5
  fails 1 "$1" pack --format hdf5 --x data --out again; expect_no_file again
}

for how in virtual external-link soft-link external-storage chunks; do
  check "the samples of a shard: $how"
  fresh; relocate data/shard-00001.h5 x $how; python3 agree.py data
  fails 1 "data/shard-00001\.h5: x (is a|has its values in another file|is not stored contiguously).*this program writes no such file" \
    train --data data --optimizer sgd --model linear --steps 2 --run runs/r
done
for dataset in x y; do
  check "the $dataset of a shard is made of itself"
  fresh; relocate data/shard-00001.h5 $dataset itself; python3 agree.py data
  refuse_data "data/shard-00001\.h5: $dataset is a virtual dataset.*this program writes no such file"
  fails 1 'data/shard-00001\.h5' info data
  run check --data data --model linear; expect_status 1; expect_err 'data/shard-00001\.h5'
done
check "the same on two ranks"
fresh; relocate data/shard-00001.h5 x itself; python3 agree.py data
ranks=2 refuse_data 'data/shard-00001\.h5'
check "a corpus"
seq 5000 >numbers.txt
must_run pack --x numbers.txt --format text --out corpus
relocate corpus/shard-00000.h5 tokens itself; python3 agree.py corpus
fails 1 'corpus/shard-00000\.h5: tokens is a virtual dataset' \
  train --data corpus --model gpt --layers 1 --width 8 --heads 1 --context 16 --steps 1 --run runs/r
check "a shard of an older HDF5 format, whose structure has no checksums"
fresh
python3 - <<'END'
import h5py
with h5py.File("data/shard-00001.h5") as f, h5py.File("old.h5", "w", libver=("earliest", "v108")) as g:
    for key in f:
        f.copy(key, g)
    g.attrs.update(f.attrs)
END
mv old.h5 data/shard-00001.h5; python3 agree.py data
refuse_data 'data/shard-00001\.h5.*older HDF5 format'

check "flipped bits of samples: everything that computes with them says so"
offset() { python3 -c "import h5py; f = h5py.File('$1'); print(f['$2'].id.get_offset() + $3)"; }
for dataset in x y; do
  fresh
  python3 -c "
import h5py
with h5py.File('data/shard-00001.h5', 'r+') as f:
    f['$dataset'][20] = f['$dataset'][21] if '$dataset' == 'x' else (f['y'][20] + 1) % 5"
  for ranks in 1 3; do
    refuse_data "data/shard-00001\.h5: $dataset is damaged: its checksum is"
  done
done
ranks=1
check "no damage is sealed under new checksums, by no rank"
fails 1 'data/shard-00001\.h5: y is damaged' -n 3 pack --format hdf5 --x data --shards 3 --out again; expect_no_file again
check "who wants may look at damaged data"
fresh; flip_byte data/shard-00001.h5 "$(offset data/shard-00001.h5 x 80)"
succeeds eval runs/good --data data --verify none
succeeds predict runs/good --data data --out predicted.h5 --verify none
expect_file predicted.h5; rm predicted.h5

for how in virtual external-link soft-link external-storage chunks; do
  check "a tensor of a checkpoint: $how"
  cp "$checkpoint" changed.h5; relocate changed.h5 parameters/dense_1/weight $how
  fails 1 "changed\.h5 is corrupted: .*parameters/dense_1/weight (is a|has its values in another file|is not stored contiguously)" \
    eval changed.h5 --data good
done
for dataset in parameters/dense_1/weight state/metrics; do
  check "$dataset of a checkpoint is made of itself"
  cp "$checkpoint" changed.h5; relocate changed.h5 $dataset itself
  sentence="changed\.h5 is corrupted: .*$dataset is a virtual dataset"
  fails 1 "$sentence" eval changed.h5 --data good
  fails 1 "$sentence" info changed.h5
  fails 1 "$sentence" train --data good --optimizer adam --hidden 8 --steps 20 --run runs/r --resume changed.h5; expect_no_file runs/r
  fails 1 "$sentence" train --data good --optimizer adam --hidden 8 --steps 20 --run runs/r --initialize-from changed.h5; expect_no_file runs/r
done
check "the state of a checkpoint is a link to another file"
cp "$checkpoint" changed.h5
python3 -c "
import h5py
with h5py.File('changed.h5', 'r+') as f:
    del f['state']
    f['state'] = h5py.ExternalLink('$checkpoint', 'state')"
fails 1 'changed\.h5 is corrupted: .*/state is a link to another file' eval changed.h5 --data good
check "a small checkpoint that promises gigabytes"
python3 - "$checkpoint" <<'END'
import h5py, numpy as np, shutil, sys
shutil.copy(sys.argv[1], "large.h5")
with h5py.File("large.h5", "r+") as f:
    name = "parameters/dense_1/weight"
    attributes = dict(f[name].attrs)
    del f[name]
    f.create_dataset(name, (2**16, 2**14), "f4", chunks=(2**12, 2**12), compression="gzip")
    f[name].attrs.update(attributes)
END
(ulimit -v 2000000; sanitized || "$lockstep" eval large.h5 --data good >out 2>err; echo $? >code)
sanitized || { status=$(cat code); expect_error 1 'large\.h5 is corrupted'; }
check "JSON nested without end"
fresh
python3 -c "
import json
text = open('data/manifest.json').read().rstrip()
assert text.endswith('}')
open('data/manifest.json', 'w').write(text[:-1] + ', \"more\": ' + '[' * 80000 + ']' * 80000 + '}')"
refuse_data 'data/manifest\.json: is damaged: it is JSON nested over 64 deep'
check "nor in a tokenizer"
mkdir bpe
python3 -c "open('bpe/tokenizer.json', 'w').write('{\"a\":' * 80000 + '1' + '}' * 80000)"
fails 1 'nested over 64 deep' pack --x numbers.txt --format text --tokenizer bpe --tokenizer-files bpe --out again
