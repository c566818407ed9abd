#!/usr/bin/env bash
# pack and info read every format, and other programs can read the shards.
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
# holds FOLDER: its shards, in order, hold raw.npy and raw_y.npy.
cat >holds.py <<'END'
import glob, h5py, numpy as np, sys
files = [h5py.File(f, "r") for f in sorted(glob.glob(sys.argv[1] + "/*.h5"))]
x, y = (np.concatenate([f[name][...] for f in files]) for name in "xy")
assert len(files) == int(sys.argv[2]), len(files)
assert np.array_equal(x, np.load("raw.npy")) and np.array_equal(y, np.load("raw_y.npy"))
END

check "IDX"
succeeds pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 3
expect_silence; expect python3 holds.py idx 3
check "IDX, compressed, format from the name"
succeeds pack --x images-idx3-ubyte.gz --y labels-idx1-ubyte.gz --out idxgz --shards 1
expect python3 holds.py idxgz 1
check "NPY"
succeeds pack --format npy --x x.npy --y y.npy --out npy --shards 4
expect python3 holds.py npy 4
check "CSV with a label column of names"
succeeds pack --format csv --x table.csv --label-column species --out csv
succeeds info csv
expect_out 'cat'; expect_out '120'
check "CSV: a label column that is not there"
run pack --format csv --x table.csv --label-column specie --out csv2
expect_status 2; expect_err 'specie'; expect_no_file csv2
for task in classification regression; do
  check "synthetic $task"
  succeeds pack --format synthetic --task $task --samples 500 --features 7 --out synthetic-$task --shards 2
  succeeds info synthetic-$task
  expect_out '500'
done
check "CIFAR-10 batches: a folder, and one file of it"
python3 - <<'END'
import os, numpy as np
rng = np.random.default_rng(2)
os.makedirs("batches")
for name, first in ("data_batch_1", 0), ("data_batch_2", 7), ("test_batch", 14):
    with open(f"batches/{name}.bin", "wb") as f:
        for i in range(first, first + 7):
            f.write(bytes([i % 10]) + rng.integers(0, 256, 3072, dtype=np.uint8).tobytes())
open("batches/batches.meta.txt", "w").write("\n".join("abcdefghij") + "\n")
END
succeeds pack --x batches --out cifar/train --shards 2
expect_out '14 samples'
succeeds pack --x batches/test_batch.bin --out cifar/test
expect_out '7 samples'
expect python3 -c '
import glob, h5py, numpy as np
raw = np.concatenate([np.fromfile(f"batches/data_batch_{i}.bin", np.uint8).reshape(-1, 3073) for i in (1, 2)])
files = [h5py.File(f, "r") for f in sorted(glob.glob("cifar/train/*.h5"))]
x, y = (np.concatenate([f[name][...] for f in files]) for name in "xy")
assert np.array_equal(x, raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)) and np.array_equal(y, raw[:, 0])'
check "a part of the samples validates"
succeeds pack --x batches --validation 0.25 --seed 3 --out split
expect_out 'train: 10 samples'; expect_out 'validation: 4 samples'
expect_file split/train/manifest.json; expect_file split/validation/manifest.json
fails 1 '14 of 14' pack --x batches --validation 14 --out split2; expect_no_file split2
check "a label that is none, with its record"
cp batches/test_batch.bin wrong.bin
printf '\012' | dd of=wrong.bin bs=1 seek=3073 conv=notrunc 2>/dev/null
fails 1 'wrong\.bin.*record 1.*label 10' pack --format cifar10 --x wrong.bin --out wrong; expect_no_file wrong

check "text by characters, its end to validate"
for i in $(seq 400); do echo "line $i of a text"; done >text.txt
succeeds pack --x text.txt --validation 0.1 --out text
expect_out 'vocabulary of'; expect_out 'bytes per token'
succeeds info text/train
expect_out 'of kind char'; expect_out 'begins +line 1 of a text'; expect_out ' ok'
check "text by words, validation with the vocabulary of training"
succeeds pack --x text.txt --tokenizer word --vocabulary 50 --out words
echo "a line of zebras" >other.txt
succeeds pack --x other.txt --vocabulary-from words --out words2
succeeds info words2
expect_out 'begins +a line of <unk>'
check "a word that the vocabulary lacks"
succeeds pack --x text.txt --tokenizer word --out closed
fails 1 'other\.txt.*zebras' pack --x other.txt --vocabulary-from closed --out closed2; expect_no_file closed2
check "bytes that are no UTF-8"
printf 'caf\351' >latin1.txt
fails 1 'latin1\.txt.*byte 3.*UTF-8' pack --x latin1.txt --out latin1; expect_no_file latin1
succeeds pack --x latin1.txt --tokenizer byte --out latin1
check "tokens made elsewhere, with a header and without"
python3 - <<'END'
import numpy as np
np.arange(300, dtype=np.uint16).tofile("a.bin")
header = np.zeros(256, np.int32); header[:3] = 20240520, 1, 200
open("b.bin", "wb").write(header.tobytes() + np.arange(200, dtype=np.uint16).tobytes())
END
succeeds pack --format tokens --x a.bin,b.bin --vocabulary 300 --shards 3 --out tokens
expect_out '500 tokens'
succeeds info tokens
expect_out 'of kind ids'
fails 1 'a\.bin.*token 299' pack --format tokens --x a.bin --vocabulary 299 --out tokens2; expect_no_file tokens2
check "folders of images by class"
mkdir -p pictures/cat pictures/dog
cp "$tree/tests/io/fixtures/images/rgb.png" "$tree/tests/io/fixtures/images/rgb.jpg" pictures/cat
cp "$tree/tests/io/fixtures/images/grey.png" pictures/dog
run pack --x pictures --size 8 --out pictures-8
if grep -q 'built without libjpeg' err; then
  expect_error 1 'rgb|pictures'
else
  expect_status 0; expect_out '\[8, 8, 3\]'
  succeeds info pictures-8
  expect_out 'cat +2'; expect_out 'dog +1'; expect_out 'names +of the samples: file'
  must_run train --data pictures-8 --model mlp --steps 2 --batch 2 --progress off --run runs/pictures
  succeeds predict runs/pictures --data pictures-8 --out pictures.h5 --csv pictures.csv
  [ "$(cut -d, -f2 pictures.csv | tr '\n' ' ')" = "file cat/rgb.jpg cat/rgb.png dog/grey.png " ] || failed "$(cat pictures.csv)"
  head -c 300 "$tree/tests/io/fixtures/images/rgb.jpg" >pictures/dog/bad.jpg
  fails 1 'pictures/dog/bad\.jpg.*damaged' pack --x pictures --size 8 --out pictures-9; expect_no_file pictures-9
fi
check "several ranks write the bytes of one"
for i in 1 2 3; do printf '%s\n' "$((i % 2)),$i.5" "1,0.25"; done | sed '1i label,number' >small.csv
python3 -c '
import h5py, numpy as np
with h5py.File("mine.h5", "w") as f: f["x"], f["y"] = np.load("x.npy"), np.load("y.npy")'
while read -r name options; do
  [ -n "$name" ] || continue
  # shellcheck disable=SC2086  # words
  succeeds pack $options --out "alone/$name"
  # shellcheck disable=SC2086  # words
  succeeds -n 3 pack $options --out "together/$name"
  expect_silence; expect_out "by 3 ranks"
  expect diff -r "alone/$name" "together/$name"
done <<END
$([ -d pictures-8 ] && rm -f pictures/dog/bad.jpg && echo "images --x pictures --size 8 --shards 3")
hdf5 --x mine.h5 --shards 7
split --x mine.h5 --shards 4 --validation 0.3
npy --format npy --x x.npy --y y.npy --shards 3
csv --x small.csv --label-column label --shards 3
synthetic --format synthetic --samples 300 --features 5 --shards 4
END
succeeds -n 2 pack --x mine.h5 --out single
expect_err "only 1 of 2 ranks have something to write: --shards 2"
check "several ranks: one sentence where something is wrong"
fails 1 "exists already.*--force" -n 3 pack --x mine.h5 --out together/hdf5 --shards 3
fails 1 "nothing.h5" -n 3 pack --x nothing.h5 --out nothing; expect_no_file nothing
python3 -c '
import h5py, numpy as np
x = np.load("x.npy"); x[110, 2, 2] = np.nan
with h5py.File("bad.h5", "w") as f: f["x"], f["y"] = x, np.load("y.npy")'
fails 1 "rank 2: bad.h5: sample 110 holds NaN" -n 3 pack --x bad.h5 --out bad --shards 3; expect_no_file bad
fails 2 "a corpus is packed by one process, and 2 were started" -n 2 pack --x text.txt --out text2

check "more shards than samples, or none"
fails 2 'shards' pack --format npy --x x.npy --y y.npy --out many --shards 0

check "h5dump reads a shard"
expect h5dump -H idx/shard-00000.h5
check "info tells counts, shapes and that checksums hold"
succeeds info idx
expect_out '120'; expect_out '6 ?[x×,] ?5'
check "info of what is nothing"
mkdir empty
fails 1 'empty' info empty
fails 1 'nowhere' info nowhere

check "an existing folder is left alone"
picture idx >before
fails 1 'idx.*--force' pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 2
picture idx >after; expect_same before after
check "--force replaces it"
succeeds pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out idx --shards 2 --force
expect python3 holds.py idx 2
check "--force does not replace what is no shard folder"
mkdir precious; echo thesis >precious/thesis.txt
fails 1 'precious' pack --format idx --x images-idx3-ubyte --y labels-idx1-ubyte --out precious --force; expect_file precious/thesis.txt

check "an input that is not there"
fails 1 'none-idx3-ubyte' pack --format idx --x none-idx3-ubyte --y labels-idx1-ubyte --out missing; expect_no_file missing
check "an input cut short"
head -c 2000 images-idx3-ubyte >short-idx3-ubyte
fails 1 'short-idx3-ubyte' pack --format idx --x short-idx3-ubyte --y labels-idx1-ubyte --out short; expect_no_file short
check "a damaged .gz"
cp images-idx3-ubyte.gz bad-idx3-ubyte.gz; flip_byte bad-idx3-ubyte.gz 900
fails 1 'bad-idx3-ubyte\.gz' pack --format idx --x bad-idx3-ubyte.gz --y labels-idx1-ubyte --out bad; expect_no_file bad
check "more images than labels"
head -c 108 labels-idx1-ubyte | python3 -c 'import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[:4] + bytes([0, 0, 0, 100]) + d[8:])' >few-idx1-ubyte
fails 1 '120.*100|100.*120' pack --format idx --x images-idx3-ubyte --y few-idx1-ubyte --out few; expect_no_file few
check "a number that is none, with its line"
sed '17s/^[0-9]*/abc/' table.csv >broken.csv
fails 1 'broken\.csv.*17' pack --format csv --x broken.csv --label-column species --out broken; expect_no_file broken
check "nothing is left behind"
remains=$(find . -mindepth 1 -maxdepth 1 -name '.*' ! -name .launcher -o -name '*tmp*' -o -name '*partial*')
[ -z "$remains" ] || failed "$remains"
