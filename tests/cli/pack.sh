#!/usr/bin/env bash
# pack and info: every format in, shards out, and who else can read them.
. "$(dirname "$0")/harness.sh"

python3 - <<'END'
import gzip, struct, numpy as np
rng = np.random.default_rng(1)
x, y = rng.integers(0, 256, (120, 6, 5), dtype=np.uint8), rng.integers(0, 4, 120, dtype=np.uint8)
y[:4] = range(4)
images = struct.pack(">IIII", 0x803, *x.shape) + x.tobytes()
labels = struct.pack(">II", 0x801, len(y)) + y.tobytes()
open("images-idx3-ubyte", "wb").write(images)
open("labels-idx1-ubyte", "wb").write(labels)
gzip.open("images-idx3-ubyte.gz", "wb").write(images)
gzip.open("labels-idx1-ubyte.gz", "wb").write(labels)
np.save("x.npy", x.astype(np.float32)), np.save("y.npy", y.astype(np.int64)), np.save("raw.npy", x), np.save("raw_y.npy", y)
with open("table.csv", "w") as f:
    print("a,b,species,c", file=f)
    for row, label in zip(x.reshape(120, -1), y):
        print(f"{row[0]},{row[1] / 8},{'cat dog emu fox'.split()[label]},{row[2]}", file=f)
END
# holds FOLDER: its shards, in order, hold what raw.npy and raw_y.npy do.
cat >holds.py <<'END'
import glob, h5py, numpy as np, sys
files = [h5py.File(f, "r") for f in sorted(glob.glob(sys.argv[1] + "/*.h5"))]
x, y = (np.concatenate([f[name][...] for f in files]) for name in "xy")
assert len(files) == int(sys.argv[2]), len(files)
assert np.array_equal(x, np.load("raw.npy")) and np.array_equal(y, np.load("raw_y.npy"))
END

check "IDX"
run pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 3
expect_status 0; expect_silence; expect python3 holds.py idx 3
check "IDX, compressed, format from the name"
run pack --x images-idx3-ubyte.gz --y labels-idx1-ubyte.gz --out idxgz --shards 1
expect_status 0; expect python3 holds.py idxgz 1
check "NPY"
run pack --format npy --x x.npy --y y.npy --out npy --shards 4
expect_status 0; expect python3 holds.py npy 4
check "CSV with a label column of names"
run pack --format csv --x table.csv --label-column species --out csv
expect_status 0
run info csv
expect_status 0; expect_out 'cat'; expect_out '120'
check "CSV: a label column that is not there"
run pack --format csv --x table.csv --label-column specie --out csv2
expect_status 1; expect_err 'specie'; expect_no_file csv2
for task in classification regression; do
  check "synthetic $task"
  run pack --format synthetic --task $task --samples 500 --features 7 --out synthetic-$task --shards 2
  expect_status 0
  run info synthetic-$task
  expect_status 0; expect_out '500'
done
check "more shards than samples, or none"
run pack --format npy --x x.npy --y y.npy --out many --shards 0
expect_error 2 'shards'

check "h5dump reads a shard"
expect h5dump -H idx/shard-00000.h5
check "info tells counts, shapes and that checksums hold"
run info idx
expect_status 0; expect_out '120'; expect_out '6 ?[x×,] ?5'
check "info of what is nothing"
mkdir empty
run info empty
expect_error 1 'empty'
run info nowhere
expect_error 1 'nowhere'

check "an existing folder is left alone"
picture idx >before
run pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 2
expect_error 1 'idx.*--force'
picture idx >after; expect_same before after
check "--force replaces it"
run pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 2 --force
expect_status 0; expect python3 holds.py idx 2
check "--force does not replace what is no shard folder"
mkdir precious; echo thesis >precious/thesis.txt
run pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out precious --force
expect_error 1 'precious'; expect_file precious/thesis.txt

check "an input that is not there"
run pack --format idx --x none-idx3-ubyte --y labels-idx1-ubyte --out missing
expect_error 1 'none-idx3-ubyte'; expect_no_file missing
check "an input cut short"
head -c 2000 images-idx3-ubyte >short-idx3-ubyte
run pack --format idx --x short-idx3-ubyte --y labels-idx1-ubyte --out short
expect_error 1 'short-idx3-ubyte'; expect_no_file short
check "a damaged .gz"
cp images-idx3-ubyte.gz bad-idx3-ubyte.gz; flip_byte bad-idx3-ubyte.gz 900
run pack --format idx --x bad-idx3-ubyte.gz --y labels-idx1-ubyte --out bad
expect_error 1 'bad-idx3-ubyte\.gz'; expect_no_file bad
check "more images than labels"
head -c 108 labels-idx1-ubyte | python3 -c 'import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[:4] + bytes([0, 0, 0, 100]) + d[8:])' >few-idx1-ubyte
run pack --format idx --x images-idx3-ubyte --y few-idx1-ubyte --out few
expect_error 1 '120.*100|100.*120'; expect_no_file few
check "a number that is none, with its line"
sed '17s/^[0-9]*/abc/' table.csv >broken.csv
run pack --format csv --x broken.csv --label-column species --out broken
expect_error 1 'broken\.csv.*17'; expect_no_file broken
check "nothing is left behind"
remains=$(find . -mindepth 1 -maxdepth 1 -name '.*' ! -name .launcher -o -name '*tmp*' -o -name '*partial*')
[ -z "$remains" ] || failed "$remains"
