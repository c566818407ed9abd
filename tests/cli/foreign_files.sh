#!/usr/bin/env bash
# Damaged HDF5 files of other programs, which crash libhdf5, exhaust memory or have an impossible header, end in one
# sentence that names the file, from every command that opens data, at any number of ranks.
# label: more
. "$(dirname "$0")/harness.sh"
sanitized || ulimit -v 8000000  # a header must not claim the machine's memory
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"  # libhdf5 leaks memory over damaged metadata

python3 - <<'END'
import h5py, numpy as np
rng = np.random.default_rng(1)
x, y = rng.random((40, 6), dtype=np.float32), rng.integers(0, 3, 40).astype(np.int32)
with h5py.File("sound.h5", "w", libver=("earliest", "v108")) as f:
    f.create_dataset("x", data=x, chunks=(8, 6), compression="gzip")
    f["y"] = y
sound = open("sound.h5", "rb").read()

def patched(name, at, value):
    assert at >= 0, name
    open(name, "wb").write(sound[:at] + value + sound[at + len(value):])

words = lambda size, *values: b"".join(v.to_bytes(size, "little") for v in values)
tree = sound.find(b"TREE")
patched("tree.h5", tree + 24, b"\xff" * 27)                          # the root group's keys
shape = sound.find(words(8, 40, 6))
patched("extent.h5", shape, words(8, 40 + 2**36))
patched("sample.h5", shape + 8, words(8, 6 + 2**28))
chunk = sound.find(words(4, 8, 6, 4))
patched("chunk.h5", chunk + 4, words(4, 6 + 2**18))
patched("nochunk.h5", chunk, words(4, 0))
for name, label in ("label.h5", 909295687), ("many.h5", 2**21):
    with h5py.File(name, "w") as f:
        z = y.copy(); z[17] = label
        f["x"], f["y"] = x, z
with h5py.File("unwritten.h5", "w") as f:
    f.create_dataset("x", (1000, 6), "f4")
    f["y"] = np.zeros(1000, np.int32)
with h5py.File("few.h5", "w") as f:  # like a part of ImageNet-21k
    z = y.copy(); z[17] = 21840
    f["x"], f["y"] = x, z
END

# This library cannot open the descriptions of virtual datasets that a newer one writes: a changed byte of a sound file
# imitates that.
python3 - <<'END'
import h5py, numpy as np
rng = np.random.default_rng(1)
for k in range(2):
    with h5py.File(f"part{k}.h5", "w") as f:
        f["x"], f["y"] = rng.random((20, 6), dtype=np.float32), rng.integers(0, 3, 20).astype(np.int32)
x, y = h5py.VirtualLayout((40, 6), np.float32), h5py.VirtualLayout((40,), np.int32)
for k in range(2):
    x[20 * k:20 * k + 20] = h5py.VirtualSource(f"part{k}.h5", "x", (20, 6))
    y[20 * k:20 * k + 20] = h5py.VirtualSource(f"part{k}.h5", "y", (20,))
with h5py.File("virtual.h5", "w", libver="latest") as f:
    f.create_virtual_dataset("x", x)
    f.create_virtual_dataset("y", y)
END
check "a virtual dataset of several files"
succeeds info virtual.h5
expect_out '40 samples'
check "one of its files is missing: no fill values are taken for data"
mv part1.h5 aside.h5
fails 1 "virtual\.h5: [xy] is a virtual dataset that takes its data from part1.h5, which is not there" info virtual.h5
for n in 1 2; do
  fails 1 "takes its data from part1.h5, which is not there" -n $n train virtual.h5 --model linear --steps 2 --run runs/r
  expect_no_file runs/r
done
mv aside.h5 part1.h5
check "a description that this library does not know"
python3 - <<'END'
import struct
data = bytearray(open("virtual.h5", "rb").read())
name = data.find(b"part0.h5\0")
at = data.find(struct.pack("<II", 2, 1), name)  # a hyperslab selection, version 1
if at < 0:
    at = data.find(struct.pack("<II", 2, 2), name)
assert at > 0
# The global heap has no checksum. HDF5 1.12 introduced version 3; 99 does not exist.
data[at + 4:at + 8] = struct.pack("<I", 99)
open("newer.h5", "wb").write(data)
END
fails 1 "newer\.h5: cannot open dataset [xy]: it was written in a form that the HDF5 library here .*HDF5 1\.12 or newer is needed" info newer.h5

check "a sound file of others"
succeeds info sound.h5
expect_out '40 samples'
for file in tree extent sample chunk nochunk label many unwritten; do
  check "info, $file.h5"
  fails 1 "$file\.h5" info $file.h5
  for n in 1 2; do
    check "train, $n ranks, $file.h5"
    fails 1 "$file\.h5" -n $n train --data $file.h5 --optimizer sgd --model linear --steps 2 --run runs/r
    expect_no_file runs/r
  done
  check "bench input, $file.h5"
  fails 1 "$file\.h5" bench input --data $file.h5 --model linear
  check "check, $file.h5"
  run -n 2 check --data $file.h5 --model linear
  expect_status 1; expect_out "$file\.h5"
done
check "what is wrong is said"
run info extent.h5;    expect_err 'should be [0-9]+ bytes .* the file has [0-9]+: its header is damaged'
run info chunk.h5;     expect_err 'chunks of \(8, 262150\) do not fit the shape \(40, 6\)'
run info label.h5;     expect_err 'sample 17 has label 909295687, which 40 samples do not explain'
run info unwritten.h5; expect_err 'not all of it was written'

check "validation data and evaluations are looked at, too"
must_run train --data sound.h5 --optimizer sgd --model linear --steps 2 --run runs/sound
fails 1 'tree\.h5' -n 2 train --data sound.h5 --optimizer sgd --validation tree.h5 --model linear --steps 2 --run runs/r
fails 1 'tree\.h5' -n 2 eval runs/sound --data tree.h5
check "a folder with one damaged file among sound ones"
mkdir folder; cp sound.h5 folder/a.h5; cp tree.h5 folder/b.h5; cp sound.h5 folder/c.h5
fails 1 'folder/b\.h5' info folder
fails 1 'folder/b\.h5' -n 2 train --data folder --optimizer sgd --model linear --steps 2 --run runs/r
check "few samples of many classes are data"
succeeds info few.h5
expect_out '21,841 classes'
