#!/usr/bin/env bash
# NumPy's .npz: plain, compressed and with sizes of 64 bits, packed to the same shards as HDF5 files of the same arrays; names that are
# not there, damage, cut files, other archives.
# seconds: 60
. "$(dirname "$0")/harness.sh"

python3 - <<'END' || exit 1
import h5py, io, numpy as np, zipfile
r = np.random.default_rng(1)
n = 300
fields = {
    "image": r.integers(0, 256, size=(n, 8, 8, 1)).astype("u1"),
    "table": r.normal(size=(n, 5)).astype("f4"),
    "label": r.integers(0, 3, n).astype("i4"),
    "mass": r.normal(size=n).astype("f4"),
    "place": r.normal(size=(n, 2)).astype("f4"),
    "mask": r.integers(0, 3, size=(n, 8, 8)).astype("u1"),
}
np.savez("plain.npz", **fields)
np.savez_compressed("packed.npz", **fields)
np.savez("xy.npz", x=fields["table"], y=fields["label"])
np.savez("x.npz", x=fields["table"])
flags = r.random((n, 4)) < 0.5
np.savez("flags.npz", flags=flags, table=fields["table"], label=fields["label"])
np.savez("numbers.npz", flags=flags.astype("i1"), table=fields["table"], label=fields["label"])
np.savez("short.npz", image=fields["image"], table=fields["table"][:-1], label=fields["label"])
with h5py.File("fields.h5", "w") as f:
    for name, values in fields.items():
        f[name] = values
with zipfile.ZipFile("wide.npz", "w", zipfile.ZIP_DEFLATED) as archive:
    for name, values in fields.items():
        with archive.open(name + ".npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, values)
    archive.comment = b"a comment"
with zipfile.ZipFile("other.npz", "w", zipfile.ZIP_LZMA) as archive:
    archive.writestr("x.npy", b"no matter")
with zipfile.ZipFile("text.npz", "w") as archive:
    archive.writestr("x.npy", b"this is a text and no array at all")
# Every entry's sizes and offset in 64 bits, and the directory's, as in archives beyond 4 GiB.
zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = 100, 1
with zipfile.ZipFile("large.npz", "w", allowZip64=True) as archive:
    for name, values in fields.items():
        memory = io.BytesIO()
        np.lib.format.write_array(memory, values)
        archive.writestr(name + ".npy", memory.getvalue())
END

# sums FOLDER: the checksums of the data in its shards.
sums() {
  python3 -c '
import json, sys
for shard in json.load(open(sys.argv[1] + "/manifest.json"))["shards"]:
    print({key: value for key, value in shard.items() if key.startswith("xxh3")})' "$1"
}

check "booleans are the numbers 0 and 1, and no bytes up to 255"
fields() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1] + "/manifest.json"))["fields"])' "$1"; }
for file in flags numbers; do
  must_run pack --x $file.npz --x-name flags,table --y-name label --out shards-$file
done
expect_same <(sums shards-flags) <(sums shards-numbers)
expect_same <(fields shards-flags) <(fields shards-numbers)

check "several inputs and a label, several targets, masks: the shards of HDF5"
for fields in "image,table label" "table mass,place" "image mask" "image,table mask" "table label"; do
  read -r x y <<<"$fields"
  must_run pack --x fields.h5 --x-name "$x" --y-name "$y" --shards 3 --out "h5-$x-$y"
  for file in plain packed wide large; do
    succeeds pack --x $file.npz --x-name "$x" --y-name "$y" --shards 3 --out "$file-$x-$y"
    expect_same <(sums "h5-$x-$y") <(sums "$file-$x-$y")
  done
done
succeeds -n 3 pack --x packed.npz --x-name image,table --y-name label --shards 3 --out ranks
expect_same <(sums ranks) <(sums h5-image,table-label)
succeeds pack xy.npz --out xy
expect_out '300 samples; x float32 \[5\]; y int32 \(class labels\)'
succeeds pack x.npz --out x
expect_out '300 samples; x float32 \[5\]$'
succeeds pack --x plain.npz --x-name table --y-name label --regression --out numbers
expect_out 'numbers to predict'

check "a network with two inputs learns from them"
cat >two.yaml <<'END'
name: two
inputs: {image: [8, 8, 1], table: [5]}
network:
  - flatten: {from: image, name: flat}
  - concatenate: {from: [flat, table]}
  - dense: {units: $outputs}
END
succeeds -n 2 train plain-image,table-label --model two.yaml --epochs 1 --no-tensorboard --run runs/two

check "what does not fit: one sentence"
for n in 1 2; do
  fails 2 "plain.npz: has no array x; it holds image, table, label, mass, place, mask: --x-name names one" -n $n pack --x plain.npz --out no
  fails 2 "plain.npz: has no array tables; it holds image, table, .*: --x-name names one" \
    -n $n pack --x plain.npz --x-name image,tables --y-name label --out no
  fails 2 "plain.npz: has no array labels; it holds .*: --y-name names one" -n $n pack --x plain.npz --x-name table --y-name labels --out no
  fails 1 "plain.npz: table is named twice: a field has one name" -n $n pack --x plain.npz --x-name table,table --y-name label --out no
  fails 1 "short.npz/image.npy has 300 samples but .*short.npz/table.npy has 299; they do not belong together" \
    -n $n pack --x short.npz --x-name image,table --y-name label --out no
done
fails 1 "other.npz: x.npy is compressed by method 14" pack --x other.npz --out no
fails 1 "text.npz/x.npy: is not an NPY file" pack --x text.npz --out no
fails 2 "--y .*idx, npy|--y" pack --x plain.npz --x-name table --y plain.npz --out no
expect_no_file no
fails 1 "plain.npz: is no HDF5 file; .lockstep pack --x plain.npz --out FOLDER. makes shards of it" train plain.npz --model mlp --dry-run

check "damaged and cut files"
head -c 20000 plain.npz >cut.npz
fails 1 "cut.npz: is not an NPZ file: it has no end of a ZIP archive" pack --x cut.npz --x-name table --y-name label --out no
for file in plain packed; do
  cp $file.npz damaged.npz
  at=$(python3 -c "
import zipfile
info = zipfile.ZipFile('damaged.npz').getinfo('table.npy')
print(info.header_offset + 400)")
  flip_byte damaged.npz "$at"
  fails 1 "damaged.npz/table.npy: is damaged: its bytes are not those of its checksum" pack --x damaged.npz --x-name table --y-name label --out no
done
: >empty.npz
fails 1 "empty.npz: is not an NPZ file" pack --x empty.npz --out no
expect_no_file no
