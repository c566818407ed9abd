#!/usr/bin/env bash
# predict writes one file with a prediction for every sample, the same bytes at any number of ranks.
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
must_run train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 20 --steps 60 --progress off --run runs/a
predict=(predict runs/a --batch 50)

check "the same bytes at one, two and three ranks"
for n in 1 2 3; do
  succeeds -n $n "${predict[@]}" --out of-$n.h5
  expect_silence
  expect_out "600 predictions for .*data/validation, written to of-$n.h5"
  expect_no_file of-$n.h5.partial; expect_no_file of-$n.h5.partial.progress
done
succeeds -n 3 "${predict[@]}" --out of-ring.h5 --transport ring
for n in 2 3 ring; do expect cmp of-1.h5 of-$n.h5; done

check "what the file holds agrees with eval"
succeeds eval runs/a --json eval.json
python3 - <<'END' || failed "the content of the file"
import h5py, json, numpy
with h5py.File("of-1.h5") as f:
    scores, its_class, target, index = f["scores"][:], f["class"][:], f["target"][:], f["index"][:]
    assert scores.shape == (600, 5) and scores.dtype == numpy.float32, scores.shape
    assert numpy.allclose(scores.sum(axis=1), 1, atol=1e-6) and (scores >= 0).all()
    assert (its_class == scores.argmax(axis=1)).all() and (index == numpy.arange(600)).all()
    accuracy = (its_class == target).mean()
    loss = -numpy.log(scores[numpy.arange(600), target].astype(float)).mean()
    told = json.loads(open("eval.json").readlines()[-1])
    assert abs(accuracy - told["accuracy"]) < 1e-9 and abs(loss - told["loss"]) < 1e-5, (accuracy, loss, told)
    assert f.attrs["weights"] in ("current", b"current"), f.attrs["weights"]
    program = f.attrs["program"]  # predict does not continue a part of another version, device or precision
    program = program.decode() if isinstance(program, bytes) else program
    assert program.startswith("lockstep ") and program.endswith(" on a cpu in fp32"), program
END

check "as text"
succeeds -n 2 "${predict[@]}" --out csv.h5 --csv out.csv
python3 - <<'END' || failed "the text"
import csv, h5py
rows = list(csv.DictReader(open("out.csv")))
with h5py.File("csv.h5") as f:
    assert len(rows) == 600 and list(rows[0])[:3] == ["index", "target", "class"], rows[0]
    assert all(int(r["class"]) == c and int(r["target"]) == t for r, c, t in zip(rows, f["class"], f["target"]))
    assert all(abs(float(list(r.values())[3]) - s[0]) < 1e-6 for r, s in zip(rows, f["scores"]))
END

check "as text, classes by their names"
python3 -c '
print("a,b,kind")
for i in range(60): print("%d,%d,\"%s\"" % (i % 7 - 3 * (i % 2), i % 5, ["oak, red", "ash"][i % 2]))' >trees.csv
must_run pack --x trees.csv --label-column kind --out trees
must_run train trees --steps 5 --batch 20 --progress off --run runs/trees
succeeds predict runs/trees --data trees --out trees.h5 --csv named.csv
python3 - <<'END' || failed "the names"
import csv, h5py
rows = list(csv.DictReader(open("named.csv")))
with h5py.File("trees.h5") as f:
    names = [n.decode() if isinstance(n, bytes) else n for n in f.attrs["class_names"]]
    assert set(names) == {"oak, red", "ash"}, names
    assert all(r["class"] == names[c] and r["target"] == names[t] for r, c, t in zip(rows, f["class"], f["target"]))
END

check "data without labels"
python3 -c 'import numpy; numpy.save("x.npy", numpy.random.default_rng(3).random((70, 20), numpy.float32))'
must_run pack --format npy --x x.npy --out bare
succeeds -n 2 "${predict[@]}" --data bare --out bare.h5
python3 -c '
import h5py
with h5py.File("bare.h5") as f: assert "target" not in f and f["class"].shape == (70,) and f["scores"].shape == (70, 5)' ||
  failed "the content of the file"

python3 -c '
import h5py, numpy
with h5py.File("bare-plain.hdf5", "w") as f: f["x"] = numpy.load("x.npy")'
succeeds -n 2 "${predict[@]}" --data bare-plain.hdf5 --out bare-plain.h5
python3 -c '
import h5py
with h5py.File("bare-plain.h5") as f, h5py.File("bare.h5") as g:
    assert "target" not in f and (f["scores"][:] == g["scores"][:]).all() and (f["class"][:] == g["class"][:]).all()' ||
  failed "files made by others are read as packed ones"
fails 2 "bare-plain.hdf5: has no dataset y; it holds x" eval runs/a --data bare-plain.hdf5

check "numbers to predict"
python3 -c '
import numpy
x = numpy.random.default_rng(3).random((90, 4), numpy.float32)
numpy.save("rx.npy", x); numpy.save("ry.npy", x[:, :2] * 3 + 1)'
must_run pack --format npy --x rx.npy --y ry.npy --out numbers
must_run train --data numbers --optimizer sgd --validation numbers --hidden 8 --batch 10 --steps 20 --learning-rate 0.01 --progress off --run runs/numbers
succeeds -n 2 predict runs/numbers --out numbers.h5 --csv numbers.csv
python3 -c '
import h5py, numpy
with h5py.File("numbers.h5") as f:
    assert "class" not in f and f["scores"].shape == (90, 2)
    assert numpy.allclose(f["target"], numpy.load("ry.npy"))
    assert abs(numpy.loadtxt("numbers.csv", delimiter=",", skiprows=1)[:, 3:] - f["scores"][:]).max() < 1e-6' ||
  failed "the content of the file"

check "a file that is there stays, unless it may be replaced"
fails 1 "of-1.h5 exists already: --force replaces it" -n 2 "${predict[@]}" --out of-1.h5
succeeds -n 2 "${predict[@]}" --out of-1.h5 --force
expect cmp of-1.h5 of-2.h5
check "a folder that is not there"
fails 1 "cannot write nowhere/p.h5" -n 2 "${predict[@]}" --out nowhere/p.h5
check "a text that is there stays, too, and is looked for before anything is computed"
echo mine >mine.csv
fails 1 "mine.csv exists already: --force replaces it, --csv FILE names another" -n 2 "${predict[@]}" --out new.h5 --csv mine.csv
expect_no_file new.h5; expect_no_file new.h5.partial; expect_no_file new.h5.partial.progress
expect grep -qx mine mine.csv
fails 2 "--csv and --out name the same file" "${predict[@]}" --out same.h5 --csv same.h5
check "no room for the text: the predictions are not lost"
fails 1 "nowhere/" "${predict[@]}" --out kept.h5 --csv nowhere/p.csv
expect_no_file kept.h5
succeeds -n 2 "${predict[@]}" --out kept.h5 --csv kept.csv
expect_out "going on behind the 600 samples"
expect cmp kept.h5 of-1.h5; expect cmp kept.csv out.csv
check "no --out"
fails 2 "--out is missing: name the file for the predictions" predict runs/a

check "a network that reads tokens, at any number of ranks"
for i in $(seq 200); do echo "a line of text"; done >text.txt
must_run pack --format text --x text.txt --out text
must_run train --data text --model lstm --unroll 8 --hidden 8 --batch 4 --steps 2 --progress off --run runs/text
for n in 1 2 3; do
  fails 2 "predict is for samples, and this network reads tokens" -n $n predict runs/text --data text --out text.h5
done
