#!/usr/bin/env bash
# HDF5 files made by others mean what the HDF5 library says: links to other files, raw files beside them, virtual data
# sets, numbers of fewer bits, netCDF's attributes. Values never written are no data, and a failed read gives its
# reason.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"

cat >make.py <<'END'
import os
import h5py, numpy as np
rng = np.random.default_rng(3)
x, y = rng.normal(0, 1, (60, 6)).astype("f4"), (np.arange(60) % 3).astype("i4")
counts = rng.integers(0, 4096, (60, 6)).astype("u2")

def expect(name, x=x, y=y):
    np.savez(name + ".expected.npz", x=np.asarray(x, "f8"), y=y)

def new(name, **more):
    f = h5py.File(name + ".h5", "w", **more)
    f["y"] = y
    return f

def low(f, kind, values, memory, plist=None, name=b"x"):
    space = h5py.h5s.create_simple(values.shape)
    d = h5py.h5d.create(f.id, name, kind, space, plist)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)

# Bytes in many places
with h5py.File("part.h5", "w") as f:
    f["other"] = rng.normal(5, 1, (60, 6)).astype("f4")
    f["x"], f["images"], f["y"] = x, x, y
with new("linked") as f:
    f["aside"] = rng.normal(9, 1, (200, 6)).astype("f4")
    f["x"] = h5py.ExternalLink("part.h5", "/x")
expect("linked")
with h5py.File("linked_both.h5", "w") as f:
    f["x"], f["y"] = h5py.ExternalLink("linked.h5", "/x"), h5py.ExternalLink("part.h5", "/y")
expect("linked_both")
with new("soft") as f:
    f["a/b/numbers"] = x
    f["x"] = h5py.SoftLink("/a/b/numbers")
expect("soft")
x.tofile("raw.bin")
with new("storage") as f:
    f.create_dataset("x", x.shape, "f4", external=[("raw.bin", 0, x.nbytes // 2), ("raw.bin", x.nbytes // 2, h5py.h5f.UNLIMITED)])
expect("storage")
layout = h5py.VirtualLayout((60, 6), "f4")
layout[:20], layout[20:] = h5py.VirtualSource("part.h5", "images", (60, 6))[:20], h5py.VirtualSource("part.h5", "x", (60, 6))[20:]
with new("virtual", libver="v110") as f:
    f.create_virtual_dataset("x", layout)
expect("virtual")
with h5py.File("block.h5", "w", userblock_size=512) as f:
    f["x"], f["y"] = x, y
expect("block")
# Bits
for name, offset, order in ("bits_12", 0, h5py.h5t.STD_U16LE), ("bits_12_high", 4, h5py.h5t.STD_U16LE), ("bits_12_big", 0, h5py.h5t.STD_U16BE):
    kind = order.copy(); kind.set_precision(12); kind.set_offset(offset)
    with new(name) as f:
        low(f, kind, counts, h5py.h5t.NATIVE_UINT16)
    expect(name, counts)
kind = h5py.h5t.STD_I32LE.copy(); kind.set_precision(24); kind.set_size(3)
with new("bits_24") as f:
    low(f, kind, counts.astype("i4") - 2000, h5py.h5t.NATIVE_INT32)
expect("bits_24", counts.astype("i4") - 2000)
for code in ">f4", ">f8", ">i2", ">i8", "<f2", ">f2", "<i1", "<u4":
    name = "type_" + code[1:] + ("big" if code[0] == ">" else "")
    values = (x * 20 if code[1] != "u" else x * 20 + 100).astype(code)
    with new(name) as f:
        f["x"] = values
    expect(name, values)
with new("bools") as f:
    f["x"] = x > 0
expect("bools", x > 0)
with new("compact") as f:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE); plist.set_layout(h5py.h5d.COMPACT)
    low(f, h5py.h5t.NATIVE_FLOAT, x, h5py.h5t.NATIVE_FLOAT, plist)
expect("compact")
# Attributes
packed = rng.integers(-3000, 3000, (60, 6)).astype("i2")
with new("scaled") as f:
    f["x"] = packed
    f["x"].attrs["scale_factor"], f["x"].attrs["add_offset"] = 0.001, np.float32(1.5)
expect("scaled", packed * 0.001 + 1.5)
with new("unsigned") as f:
    f["x"] = counts.astype("u1").view("i1")
    f["x"].attrs["_Unsigned"] = "true"
expect("unsigned", counts.astype("u1"))
holes = packed.copy(); holes[7, 2] = holes[33, 5] = -32767
with new("holes") as f:
    f["x"] = holes
    f["x"].attrs["_FillValue"], f["x"].attrs["scale_factor"] = np.int16([-32767]), 0.5
with new("netcdf") as f:  # the default fill value of its library for values never written
    f.attrs["_NCProperties"] = np.bytes_("version=2")
    z = x.copy(); z[5, 1] = np.float32(9.96921e36)
    f.create_dataset("x", data=z, fillvalue=np.float32(9.96921e36))
with new("valid") as f:
    f["x"] = packed
    f["x"].attrs["valid_range"] = np.int16([-2900, 3000])
with new("nan_fill") as f:
    z = x.copy(); z[50, 0] = np.nan
    f["x"] = z
    f["x"].attrs["_FillValue"] = np.float32(np.nan)
with new("label_hole") as f:
    z = y.copy(); z[9] = -999
    del f["y"]; f["y"] = z
    f["y"].attrs["missing_value"] = np.int32(-999)
    f["x"] = x
# Never written
with new("half") as f:
    f.create_dataset("x", (60, 6), "f4", chunks=(10, 6), compression="gzip")[:30] = x[:30]
with new("corner") as f:
    d = f.create_dataset("x", (60, 6), "f4", chunks=(20, 4))
    d[:, :4] = x[:, :4]; d[:40, 4:] = x[:40, 4:]
with new("nothing") as f:
    f.create_dataset("x", (60, 6), "f4")
    f["bulk"] = np.zeros(4000)
with new("half_labels") as f:
    f["x"] = x
    del f["y"]; f.create_dataset("y", (60,), "i4", chunks=(10,))[:20] = y[:20]
with new("half_names") as f:
    f["x"] = x
    del f["y"]; f.create_dataset("y", (60,), h5py.string_dtype())[:45] = np.array(["red", "blue", "green"], object)[y[:45]]
with new("half_fixed", ) as f:
    f["x"] = x
    del f["y"]; f.create_dataset("y", (60,), "S5", chunks=(15,), compression="gzip")[:45] = np.array([b"red", b"blue", b"green"])[y[:45]]
x[:40].tofile("short.bin")
with new("short_storage") as f:
    f.create_dataset("x", x.shape, "f4", external=[("short.bin", 0, h5py.h5f.UNLIMITED)])
with new("no_storage") as f:
    f.create_dataset("x", x.shape, "f4", external=[("gone.bin", 0, h5py.h5f.UNLIMITED)])
def virtual(name, parts, shape=(60, 6)):
    layout = h5py.VirtualLayout(shape, "f4")
    for at, source in parts: layout[at] = source
    with new(name, libver="v110") as f:
        f.create_virtual_dataset("x", layout)
S = lambda file, data, shape=(60, 6): h5py.VirtualSource(file, data, shape)
virtual("v_renamed", [(slice(0, 60), S("part.h5", "pictures"))])
virtual("v_hole", [(slice(0, 20), S("part.h5", "x")[:20]), (slice(30, 60), S("part.h5", "x")[30:])])
virtual("v_twice", [(slice(0, 30), S("part.h5", "x")[:30]), (slice(0, 30), S("part.h5", "x")[30:])])
virtual("v_half", [(slice(0, 60), S("half.h5", "x"))])
virtual("v_short", [(slice(0, 60), S("short_rows.h5", "x"))])
virtual("v_shorter", [(slice(0, 30), S("part.h5", "x")[:30]), (slice(30, 60), S("short_rows.h5", "x")[30:60])])
virtual("v_itself", [(slice(0, 60), S("v_itself.h5", "x"))])
virtual("v_chain", [(slice(0, 60), S("v_hole.h5", "x"))])
with h5py.File("short_rows.h5", "w") as f: f["x"] = x[:50]
# Unlimited selections: files with a number in their names, sources that grow
for k in range(6):
    with h5py.File(f"numbered{k}.h5", "w") as f: f["x"] = x[10 * k:10 * k + 10]
def mapped(name, mappings):
    with new(name, libver="v110") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE); plist.set_layout(h5py.h5d.VIRTUAL)
        for file, here, there in mappings: plist.set_virtual(here, file, b"x", there)
        h5py.h5d.create(f.id, b"x", h5py.h5t.NATIVE_FLOAT, mappings[-1][1], plist)
def endless(column, columns):
    space = h5py.h5s.create_simple((1, 6), (h5py.h5s.UNLIMITED, 6))
    space.select_hyperslab((0, column), (1, 1), block=(h5py.h5s.UNLIMITED, columns))
    return space
here = h5py.h5s.create_simple((10, 6), (h5py.h5s.UNLIMITED, 6))
here.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), stride=(10, 1), block=(10, 6))
there = h5py.h5s.create_simple((10, 6)); there.select_hyperslab((0, 0), (1, 1), block=(10, 6))
mapped("numbered", [(b"numbered%b.h5", here, there)])
expect("numbered")
for name, rows in ("grown", 60), ("grown_less", 45):
    with h5py.File(name + "_part.h5", "w") as f: f.create_dataset("x", data=x[:rows], maxshape=(None, 6), chunks=(10, 6))
mapped("growing", [(b"grown_part.h5", endless(0, 6), endless(0, 6))])
expect("growing")
mapped("uneven", [(b"grown_part.h5", endless(0, 3), endless(0, 3)), (b"grown_less_part.h5", endless(3, 3), endless(3, 3))])
# Unreadable
with new("damaged") as f:
    d = f.create_dataset("x", data=x, chunks=(10, 6), compression="gzip")
    at = d.id.get_chunk_info(3).byte_offset
data = bytearray(open("damaged.h5", "rb").read()); data[at + 20] ^= 255; data[at + 21] ^= 255; open("damaged.h5", "wb").write(data)
with new("fletcher") as f:
    d = f.create_dataset("x", data=x, chunks=(10, 6), fletcher32=True)
    at = d.id.get_chunk_info(5).byte_offset
data = bytearray(open("fletcher.h5", "rb").read()); data[at + 20] ^= 1; open("fletcher.h5", "wb").write(data)
def patched(name, old, value):
    data = open(name, "rb").read()
    assert data.count(old) == 1, (name, data.count(old))
    open(name, "wb").write(data.replace(old, value))
deflate = lambda number: int.to_bytes(number, 2, "little") + bytes([8, 0, 1, 0, 1, 0]) + b"deflate\0"
for name, number in ("zstd", 32015), ("lzf", 32000), ("unheard", 41234):
    with new(name, libver="earliest") as f:
        f.create_dataset("x", data=x, chunks=(10, 6), compression="gzip")
    patched(name + ".h5", deflate(1), deflate(number))
with new("newer", libver="earliest") as f:
    d = f.create_dataset("x", data=x)
    place = d.id.get_offset().to_bytes(8, "little")
patched("newer.h5", bytes([3, 1]) + place, bytes([5, 1]) + place)
# Kinds of elements and links
with new("compound") as f: f["x"] = np.zeros(60, [("mass", "f4"), ("charge", "i4")])
with new("complex") as f: f["x"] = np.zeros((60, 2), "c8")
with new("long_double") as f: f["x"] = np.zeros((60, 2), np.longdouble)
with new("arrays") as f: f.create_dataset("x", (60,), np.dtype(("f4", (3,))), data=np.zeros((60, 3), "f4")) if False else low(f, h5py.h5t.array_create(h5py.h5t.NATIVE_FLOAT, (3,)), np.zeros((60,), "(3,)f4") if False else np.zeros((60,), [("a", "f4", (3,))]).view(np.void), h5py.h5t.array_create(h5py.h5t.NATIVE_FLOAT, (3,))) if False else f.create_dataset("x", (60,), h5py.h5t.array_create(h5py.h5t.NATIVE_FLOAT, (3,)))
with new("ragged") as f: f.create_dataset("x", (60,), h5py.vlen_dtype("f4"))
with h5py.File("dangling_file.h5", "w") as f: f["x"], f["y"] = h5py.ExternalLink("gone.h5", "/x"), y
with h5py.File("dangling_name.h5", "w") as f: f["x"], f["y"] = h5py.ExternalLink("part.h5", "/pictures"), y
with h5py.File("dangling_soft.h5", "w") as f: f["x"] = h5py.SoftLink("/data/x")
with h5py.File("dangling_alone.h5", "w") as f: f["samples"] = h5py.SoftLink("/data/x")
END
python3 make.py || exit 1

# Compares the numbers that `pack` makes of a file with those that h5py reads.
cat >same.py <<'END'
import sys, h5py, numpy as np
wanted, tolerance = np.load(sys.argv[2]), float(sys.argv[3])
with h5py.File(sys.argv[1] + "/shard-00000.h5") as f:
    x, y = f["x"][...].astype("f8"), f["y"][...]
assert x.shape == wanted["x"].shape, (x.shape, wanted["x"].shape)
assert np.allclose(x, wanted["x"], rtol=tolerance, atol=0), (x[:2], wanted["x"][:2])
assert (y == wanted["y"]).all()
END
for expected in *.expected.npz; do
  name=${expected%.expected.npz}
  check "$name.h5 holds what h5py reads"
  succeeds pack --x "$name.h5" --out "packed_$name"
  expect python3 same.py "packed_$name" "$expected" 1e-7
done
check "training reads these numbers, too"
for name in linked virtual block; do
  succeeds -n 2 train "$name.h5" --optimizer sgd --model linear --no-shuffle --steps 6 --report-every 1 --run "runs/$name"
  metric "runs/$name" train loss >"$name.loss"
done
expect_same linked.loss virtual.loss; expect_same linked.loss block.loss

# refused FILE REGEX: info and train refuse it and leave nothing behind.
refused() {
  check "$1.h5 is refused"
  fails "${3:-1}" "$1\\.h5.*$2" info "$1.h5"
  refused_by_train "$@"
}
refused_by_train() {
  fails "${3:-1}" "$1\\.h5.*$2" -n 2 train "$1.h5" --optimizer sgd --model linear --steps 2 --run runs/r
  expect_no_file runs/r
  fails "${3:-1}" "$1\\.h5.*$2" pack --x "$1.h5" --out packed
  expect_no_file packed
}
refused half 'not all of x was written: 3 of its 6 chunks were never written, within samples 30 to 59 of 60'
refused corner '1 of its 6 chunks were never written, within samples 40 to 59'
refused nothing 'not all of x was written: nothing of it was ever written'
refused half_labels 'not all of y was written: 4 of its 6 chunks were never written, within samples 20 to 59'
refused half_names '15 of the 60 labels in y are empty texts, that of sample 45 first'
refused half_fixed '15 of the 60 labels in y are empty texts, that of sample 45 first'
refused short_storage 'its external file short\.bin has 960 bytes where it needs 1440'
refused no_storage 'external file gone\.bin, which is not there'
refused v_renamed 'samples 0 to 59 come from part\.h5:pictures, and that file holds no such dataset'
refused v_hole '60 of its 360 elements come from nowhere.*within samples 20 to 29'
refused v_twice '180 of its 360 elements come from nowhere.*within samples 30 to 59'
refused v_half 'come from half\.h5:x: 3 of its 6 chunks were never written'
refused v_short 'come from short_rows\.h5:x, which has the shape \(50, 6\) where 360 numbers are needed'
refused v_shorter 'come from short_rows\.h5:x, which has the shape \(50, 6\) where at least \(60, 6\) is needed'
refused uneven 'come from grown_less_part\.h5:x, which has the shape \(45, 6\) where at least \(60, 6\) is needed'
refused v_itself 'x is a virtual dataset that is made of itself'
refused v_chain 'come from v_hole\.h5:x: 60 of its 360 elements come from nowhere'
refused damaged 'cannot read samples 30 to 39 of dataset x, whose chunk is damaged.*inflate'
refused fletcher 'cannot read samples 50 to 59 of dataset x, whose chunk is damaged.*[Ff]letcher32'
refused zstd 'x is compressed with filter 32015 \(Zstandard\), which .* does not have: set HDF5_PLUGIN_PATH.*hdf5plugin'
refused lzf 'filter 32000 \(LZF\), .*only h5py reads it'
refused unheard 'filter 41234 \(deflate\), .*HDF5_PLUGIN_PATH'
refused newer 'does not know .*: HDF5 2\.0 or newer is needed'
refused compound 'the elements of x are compound, records of mass, charge'
refused complex 'the elements of x are complex numbers'
refused long_double 'the elements of x are long double'
refused arrays 'the elements of x are arrays'
refused ragged 'the elements of x are sequences of variable length'
refused dangling_file 'x is a link to /x in the file gone\.h5, which is not there'
refused dangling_name 'x is a link to /pictures in the file part\.h5, which holds no such object'
refused dangling_soft 'x is a link to /data/x, which is not there'
refused dangling_alone 'has no dataset x; it holds samples, which is a link to /data/x, which is not there' 2

check "on two ranks, and by pack"
fails 1 'half\.h5: not all of x was written' -n 2 train half.h5 --optimizer sgd --model linear --steps 2 --run runs/r
expect_no_file runs/r
for name in half v_hole holes; do
  fails 1 "$name\.h5" pack --x $name.h5 --out packed
  expect_no_file packed
done

check "what nobody wrote is data where the user says so"
for name in half corner nothing half_labels half_names half_fixed v_hole v_renamed v_half; do
  succeeds info "$name.h5" --allow-fill
  succeeds train "$name.h5" --allow-fill --optimizer sgd --model linear --steps 2 --run "runs/$name"
done
succeeds eval runs/half --data half.h5
must_run train linked.h5 --optimizer sgd --model linear --steps 2 --run runs/whole
fails 1 'half\.h5' eval runs/whole --data half.h5
succeeds eval runs/whole --data half.h5 --allow-fill
succeeds pack --x half.h5 --allow-fill --out packed_half

# missing FILE REFUSAL INFO DROPPED
missing() {
  check "$1.h5: a missing number"
  refused_by_train "$1" "$2"
  succeeds info "$1.h5"
  expect_out "$3"
  succeeds pack --x "$1.h5" --missing drop --out "dropped_$1"
  expect_out "$4"
}
missing holes 'sample 7 of x holds -32767, its _FillValue' 'missing  2 of 360 numbers' '2 of 60 samples miss a number and are left out'
missing netcdf 'sample 5 of x holds 9\.9692[0-9]*e\+36, its netCDF fill value' 'missing  1 of 360' '1 of 60 samples'
missing valid 'sample [0-9]+ of x holds -29[0-9][0-9], outside of what its attributes call valid' 'valid from -2900, valid to 3000' \
  'samples miss a number'
missing nan_fill 'sample 50 of x holds nan, its _FillValue' 'missing  1 of 360' '1 of 60 samples'
missing label_hole 'sample 9 of y holds -999, its missing_value' 'missing_value -999' '1 of 60 samples'
run info label_hole.h5
expect_out '^  0 +19 '; expect_err '1 of 60 samples miss their label'
mkdir label_holes && cp label_hole.h5 label_holes/1.h5 && cp label_hole.h5 label_holes/2.h5
run info label_holes
expect_out '^  0 +38 '; expect_err '2 of 120 samples miss their label'
check "numbers that are scaled"
run info scaled.h5
expect_out 'int16 as float64: scale_factor 0\.001 and add_offset 1\.5 applied'
check "missing numbers that are filled"
succeeds pack --x holes.h5 --missing mean --out filled
expect_out '2 missing numbers get the mean'
cat >filled.py <<'END'
import h5py, numpy as np
x = h5py.File("holes.h5")["x"][...].astype("f8") * 0.5
x[[7, 33], [2, 5]] = np.nan
means = np.nanmean(x, 0)
x[7, 2], x[33, 5] = means[2], means[5]
assert np.allclose(h5py.File("filled/shard-00000.h5")["x"][...], x)
assert h5py.File("dropped_holes/shard-00000.h5")["x"].shape == (58, 6)
END
expect python3 filled.py
succeeds pack --x holes.h5 --missing mean --validation 0.25 --out split
cat >split.py <<'END'
import h5py, numpy as np
x = h5py.File("holes.h5")["x"][...].astype("f8") * 0.5
x[[7, 33], [2, 5]] = np.nan
parts = {name: h5py.File(f"split/{name}/shard-00000.h5")["x"][...] for name in ("train", "validation")}
here = {name: x[[np.argmin(np.nansum(np.abs(x - row), 1)) for row in rows]] for name, rows in parts.items()}
means = np.nanmean(here["train"], 0)
for name, rows in parts.items():
    assert np.allclose(rows, np.where(np.isnan(here[name]), means, here[name])), name
END
expect python3 split.py
fails 1 'label_hole\.h5: sample 9 misses its label, which is never guessed' pack --x label_hole.h5 --missing mean --out guessed

check "a folder with a master file and its parts is not read twice"
mkdir family; cp part.h5 family/part.h5; cp virtual.h5 family/all.h5
succeeds info family
expect_out '60 samples'; expect_err 'part\.h5 holds the data that other files of the folder show as theirs'
rm family/all.h5
python3 - <<'END'
import h5py
with h5py.File("family/z_master.h5", "w") as f:
    f["x"], f["y"] = h5py.ExternalLink("raw_part.h5", "/counts"), h5py.ExternalLink("raw_part.h5", "/kinds")
with h5py.File("family/raw_part.h5", "w") as f, h5py.File("part.h5") as g:
    f["counts"], f["kinds"] = g["x"][...], g["y"][...]
END
succeeds info family
expect_out '120 samples'
succeeds -n 2 train family --optimizer sgd --model linear --steps 2 --run runs/family

check "a source that goes away during a run ends it"
mkdir going; cp virtual.h5 part.h5 going/
start train going/virtual.h5 --optimizer sgd --model linear --batch 20 --steps 2000000 --report-every 3 \
  --checkpoint-every 100000 --run runs/going
wait_for 60 test -s runs/going/metrics.jsonl
mv going/part.h5 going/aside.h5
finish 60
expect_error 1 'part\.h5.*it is gone, and going/virtual\.h5 takes data from it'
