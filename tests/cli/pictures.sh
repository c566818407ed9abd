#!/usr/bin/env bash
# Folders of image files work as people keep them: sub-folders, other formats, splits, depths, orientations, no classes
# at all.
# label: more
. "$(dirname "$0")/harness.sh"
images=$tree/tests/io/fixtures/images
mkdir -p probe/a && cp "$images/rgb.png" probe/a
run pack --x probe --format images --out probed
if grep -q 'built without libjpeg' err; then skip_all "built without JPEG and PNG"; fi
expect_status 0
# place FILE TO: copies one of the small images.
place() { mkdir -p "$(dirname "$2")" && cp "$images/$1" "$2"; }
# picture FILE SEED [ORIENTATION]: draws 12 x 12 pixels, bright above (the class of even seeds) or below.
cat >draw.py <<'END'
import struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(name, rows, depth, extra=b""):
    raw = b"".join(b"\0" + b"".join(v.to_bytes(depth // 8, "big") for v in row) for row in rows)
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), depth, 0, 0, 0, 0)
    open(name, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
def drawn(seed, scale):
    top = seed % 2 == 0
    return [[scale * ((150 if (y < 6) == top else 20) + (seed * 31 + x * 7 + y * 13) % 40) for x in range(12)] for y in range(12)]
END

check "what is not read is counted and named"
place rgb.png mixed/cat/deep/er/a.png; place rgb.jpg mixed/cat/b.jfif; place rgb.png mixed/dog/c.png; place rgb.png mixed/dog/._c.png
printf 'BM' >mixed/dog/d.bmp; printf 'BM' >mixed/dog/e.bmp; printf 'II*\0' >mixed/cat/f.tif; echo text >mixed/cat/notes.txt
succeeds pack --x mixed --format images --out packed-mixed
expect_out '3 samples'
expect_out 'left out: 2 BMP images, which this program does not read: convert to PNG \(mixed/dog/[de]\.bmp'
expect_out 'left out: 1 TIFF image.*mixed/cat/f\.tif'
expect_out 'left out: 1 file without an image \(mixed/cat/notes\.txt\)'
expect_no_out '\._c'
check "a folder of nothing that is read"
mkdir -p none/a; printf 'BM' >none/a/b.bmp
fails 1 'none: holds no images that this program reads.*1 BMP image' pack --x none --format images --out packed-none

check "images are upright, and a line says so"
place rgb.png turned/a/1.png; place orientation_6.png turned/a/2.png; place orientation_7.png turned/b/1.png; place rgb.png turned/b/2.png
succeeds pack --x turned --format images --out packed-turned
[ "$(grep -c 'turned upright, as the orientation (EXIF) in them says: 2 of 4' out)" = 1 ] || failed "not said once"
python3 -c "
import h5py
x = h5py.File('packed-turned/shard-00000.h5')['x'][:]
assert x.shape == (4, 12, 16, 3) and all((x[i] == x[0]).all() for i in range(4))" || failed "they differ"

check "16 bits stay 16 bits, and train"
python3 - <<'END'
import os
from draw import *
for part, count in ("train", 40), ("val", 20):
    for seed in range(count):
        folder = f"deep/{part}/{'above' if seed % 2 == 0 else 'below'}"
        os.makedirs(folder, exist_ok=True)
        png(f"{folder}/{seed:02}.png", drawn(seed + (100 if part == "val" else 0), 256), 16)
END
succeeds pack --x deep --format images --shards 2 --out packed-deep
expect_out 'train: 40 samples; x uint16 \[12, 12, 1\]'; expect_out 'validation: 20 samples'; expect_out 'more than 8 bits a channel'
expect_file packed-deep/train/manifest.json; expect_file packed-deep/validation/manifest.json
python3 -c "
import h5py
from draw import *
x = h5py.File('packed-deep/train/shard-00000.h5')['x'][:, :, :, 0]
assert x.dtype == 'u2' and (x[0] == drawn(0, 256)).all()" || failed "other numbers"
must_run train --data packed-deep --model mlp --steps 60 --optimizer adam --run runs/deep
succeeds eval runs/deep
expect_out 'accuracy 100\.00 %'

check "train/, val/ and test/ become train/, validation/ and test/"
python3 - <<'END'
import os
from draw import *
for part, count in ("Training", 40), ("valid", 20), ("test", 10):
    for seed in range(count):
        folder = f"flat/{part}/{'above' if seed % 2 == 0 else 'below'}"
        os.makedirs(folder, exist_ok=True)
        png(f"{folder}/{seed:02}.png", drawn(seed + 7 * count, 1), 8)
END
succeeds -n 2 pack --x flat --format images --size 10 --shards 2 --out packed-flat
expect_out 'test: 10 samples; x uint8 \[10, 10, 1\]'
for part in train validation test; do expect_file packed-flat/$part/manifest.json; done
fails 1 'exists already' pack --x flat --format images --size 10 --shards 2 --out packed-flat
succeeds pack --x flat --format images --size 10 --shards 2 --out packed-flat --force
must_run train --data packed-flat --model mlp --steps 60 --optimizer adam --run runs/flat
fails 2 'flat is split already.*leave --validation out' pack --x flat --format images --validation 0.2 --out again; expect_no_file again
mkdir flat/test/extra; cp flat/test/above/00.png flat/test/extra
fails 1 'flat/Training and flat/test have different classes \(above, below and above, below, extra\)' pack --x flat --format images --out again
expect_no_file again
rm -r flat/test/extra

check "a folder without classes is data for predict"
mkdir loose; cp flat/test/above/00.png loose/b.png; cp flat/test/below/01.png loose/a.png
mkdir loose/more; cp flat/test/below/03.png loose/more; echo text >loose/notes.txt
for n in 1 2; do
  succeeds -n $n predict runs/flat --data loose --out loose-$n.h5 --csv loose-$n.csv
  expect_err 'left out: 1 file without an image \(loose/notes\.txt\)'
done
expect_same loose-1.csv loose-2.csv
[ "$(cut -d, -f1-3 loose-1.csv | paste -sd' ')" = "index,file,class 0,a.png,below 1,b.png,above 2,more/03.png,below" ] || failed "$(cat loose-1.csv)"
succeeds predict runs/flat --data packed-flat/test --out whole.h5
python3 - <<'END' || failed "a packed image and the file itself have other scores"
import h5py, numpy as np
loose, whole = h5py.File("loose-1.h5"), h5py.File("whole.h5")
assert list(loose["class"]) == [1, 0, 1], list(loose["class"])
# Packed: above 0 2 4 6 8, then below 1 3 5 7 9. Loose: a.png is below/01, b.png above/00, more/03.png below/03.
assert np.allclose(loose["scores"][:], whole["scores"][:][[5, 0, 6]], atol=1e-6)
END
check "images of another depth than those of the training"
fails 1 'loose: its images are uint8, and the network was trained on uint16' predict runs/deep --data loose --out other.h5; expect_no_file other.h5
check "a network that was not trained on images"
pack_small numbers
must_run train --data numbers --model linear --steps 2 --run runs/numbers
fails 1 'loose: holds images, and the network was trained on samples of float32 \[20\]' predict runs/numbers --data loose --out other.h5

check "a small file that promises gigabytes"
python3 - <<'END'
import os, struct, zlib
from draw import chunk
side = 36000
packer = zlib.compressobj(9)
data = b"".join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
os.makedirs("bomb/a")
open("bomb/a/b.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
END
(sanitized || ulimit -v 1500000; "$lockstep" pack --x bomb --format images --size 32 --out packed-bomb >out 2>err; echo $? >code)
status=$(cat code); expect_error 1 'bomb/a/b\.png: is damaged: its header promises 36000 x 36000 pixels, which [0-9]+ bytes cannot hold'
