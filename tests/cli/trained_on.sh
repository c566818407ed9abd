#!/usr/bin/env bash
# A checkpoint knows its training data: classes are matched by name, values of another kind are refused.
# label: more
# seconds: 300
. "$(dirname "$0")/harness.sh"

# points.py FILE SEED CLASS...: four classes of points in the plane; a CSV's classes are numbered in the order of their
# names.
cat >points.py <<'END'
import random, sys
file, seed, *classes = sys.argv[1:]
draw = random.Random(int(seed))
centre = {"ash": (4, 0), "beech": (-4, 0), "cedar": (0, 4), "date": (0, -4), "elm": (9, 9)}
with open(file, "w") as out:
    out.write("width,height,tree\n")
    for i in range(160):
        tree = classes[i % len(classes)]
        x, y = centre[tree]
        out.write("%.4f,%.4f,%s\n" % (draw.gauss(x, 0.5), draw.gauss(y, 0.5), tree))
END
# trees FOLDER SEED CLASS...
trees() {
  local folder=$1
  python3 points.py $folder.csv "${@:2}"
  must_run pack --x $folder.csv --label-column tree --out $folder
}
trees train 1 ash beech cedar date
trees validation 2 date cedar beech
trees others 3 date cedar beech
trees two 4 date beech
trees stranger 5 ash elm
must_run train --data train --optimizer sgd --validation validation --model mlp --hidden 16 --batch 20 --steps 60 --learning-rate 0.05 --progress off --run runs/trees
# accuracy WHERE: prints the last evaluation's accuracy as a fraction.
accuracy() { sed -nE 's/.*accuracy ([0-9.]+) %.*/\1/p' out | tail -n 1; }

check "classes of validation data that have other numbers are matched by name, and said so"
expect_out "classes are matched by name: the 3 of validation with the network's 4"
[ "$(metric runs/trees validation accuracy | awk 'END { print ($2 > 0.95) }')" = 1 ] || failed "other numbers spoil the accuracy"
check "info tells what a checkpoint was trained on"
succeeds info "$(newest_checkpoint runs/trees)"
expect_out "trained on +csv train.csv"; expect_out "a sample +float32 \[2\] \(features\), -"; expect_out "mean -?[0-9.e-]+, deviation"
expect_out "classes +4: ash, beech, cedar, date"; expect_out "input x +1 x \+ 0"
check "eval maps classes with other numbers, at any number of ranks"
succeeds eval runs/trees --data others --json one.json
expect_out "classes are matched by name: the 3 of others with the network's 4"
awk -v a="$(accuracy)" 'BEGIN { exit !(a > 95) }' || failed "accuracy $(accuracy) %"
succeeds -n 3 eval runs/trees --data others --json three.json
expect_same one.json three.json
check "eval maps a subset"
succeeds eval runs/trees --data two
expect_out "matched by name: the 2 of two with the network's 4"; expect_silence
awk -v a="$(accuracy)" 'BEGIN { exit !(a > 95) }' || failed "accuracy $(accuracy) %"
check "data with the network's own classes need no word"
succeeds eval runs/trees --data train
expect_no_out "matched"; expect_silence
check "a class that the network does not know is refused, at any number of ranks"
for n in 1 2; do
  fails 2 "stranger has classes that the network does not know: elm; it knows ash, beech, cedar, date" -n $n eval runs/trees --data stranger
done
check "predict writes targets as the network numbers them, and its names"
succeeds predict runs/trees --data two --out two.h5
python3 - <<'END' || failed "two.h5"
import h5py
with h5py.File("two.h5") as f:
    assert [name.decode() for name in f.attrs["class_names"]] == ["ash", "beech", "cedar", "date"], f.attrs["class_names"]
    assert list(f["target"][:4]) == [3, 1, 3, 1], f["target"][:4]
    assert (f["class"][:] == f["target"][:]).mean() > 0.95
END
check "classes without names are taken by number, with a warning"
python3 - <<'END'
import h5py, numpy, csv
with open("two.csv") as f:
    rows = list(csv.DictReader(f))
with h5py.File("unnamed.h5", "w") as f:
    f["x"] = numpy.array([[row["width"], row["height"]] for row in rows], numpy.float32)
    f["y"] = numpy.array([["date", "beech"].index(row["tree"]) for row in rows], numpy.int32)
END
succeeds eval runs/trees --data unnamed.h5
expect_err "unnamed.h5 has 2 classes, the network 4, and only the network's have names \(ash, beech, cedar, date\): class 0 is taken"

check "numbers of 0 to 1 are refused by a network that was trained on bytes, and the remedy helps"
python3 - <<'END'
import h5py, numpy
r = numpy.random.default_rng(1)
x = r.integers(0, 256, (200, 6, 6)).astype(numpy.uint8)
y = (x[:, 0, 0] > 127).astype(numpy.int32)
for name, values in (("bytes", x), ("unit", (x / 255).astype(numpy.float32)), ("swapped", x.reshape(200, 4, 9))):
    with h5py.File(name + ".h5", "w") as f:
        f["x"], f["y"] = values, y
numpy.save("unit_x.npy", (x / 255).astype(numpy.float32)), numpy.save("unit_y.npy", y)
END
must_run pack --format npy --x unit_x.npy --y unit_y.npy --out packed
must_run train --data bytes.h5 --optimizer sgd --model mlp --hidden 8 --batch 20 --steps 40 --progress off --run runs/bytes
for data in unit.h5 packed; do
  for n in 1 2; do
    fails 2 "$data holds float32 from [0-9.e-]+ to 1, and the network was trained on uint8 from 0 to 255: --normalize says" \
      -n $n eval runs/bytes --data $data
  done
done
run eval runs/bytes --data bytes.h5 --json bytes.json
succeeds eval runs/bytes --data unit.h5 --normalize "affine(1,0)" --json unit.json
expect_silence
python3 -c 'import json
a, b = (json.loads(open(name).readline()) for name in ("bytes.json", "unit.json"))
assert a["accuracy"] == b["accuracy"] and abs(a["loss"] - b["loss"]) < 1e-5, (a, b)' || failed "the remedy gives other numbers"
check "predict refuses them, too"
fails 2 "unit.h5 holds float32" predict runs/bytes --data unit.h5 --out unit_out.h5; expect_no_file unit_out.h5
check "bytes are refused by a network that was trained on 0 to 1"
must_run train --data packed --optimizer sgd --model mlp --hidden 8 --batch 20 --steps 4 --progress off --run runs/unit
fails 2 "bytes.h5 holds uint8 from 0 to 255, and the network was trained on float32 from [0-9.e-]+ to 1:" eval runs/unit --data bytes.h5
check "images of another layout are refused"
fails 2 "swapped.h5: its samples are 4 x 9, those that the network was trained on 6 x 6 \(height, width\)" eval runs/bytes --data swapped.h5

check "a corpus of another vocabulary is refused"
for i in $(seq 60); do echo "the cat sat on a mat"; done >one.txt
tr 'catseonmh' 'CATSEONMH' <one.txt >other.txt
for name in one other; do must_run pack --format text --x $name.txt --out text_$name; done
must_run train --data text_one --model lstm --unroll 8 --hidden 8 --batch 4 --steps 2 --progress off --run runs/text
succeeds eval runs/text --data text_one
expect_silence
fails 2 "text_other was made with another vocabulary \([0-9]+ tokens of kind char\)" eval runs/text --data text_other

check "what is exported and imported again still knows it"
must_run export runs/trees --out trees.safetensors
must_run import trees.safetensors --out imported.h5
succeeds eval imported.h5 --data others
expect_out "matched by name: the 3 of others"
check "checkpoints of older formats load, and say once that they do not know"
must_run pack --format synthetic --samples 40 --features 4 --classes 3 --out data
succeeds eval "$tree/tests/io/fixtures/checkpoint_format_3.h5" --data data
[ "$(grep -c "does not say what data it was trained on" out)" = 1 ] || failed "not said once"
succeeds info "$tree/tests/io/fixtures/checkpoint_format_3.h5"
expect_out "trained on +not known"
