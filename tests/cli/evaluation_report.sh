#!/usr/bin/env bash
# eval --report lists every class and every target, alike at any number of ranks.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data --noise 4
pack_small data/validation --first 600 --noise 4
must_run train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 20 --steps 60 --progress off --run runs/a

check "the same bytes at one, two and three ranks"
for n in 1 2 3; do
  succeeds -n $n eval runs/a --evaluation-batch 50 --report --json $n.json --svg $n.svg
  expect_silence
  expect_out '^class +samples +precision +recall +F1$'; expect_out '^macro mean +600 '
  expect_out '^is +taken for$'; expect_out '^calibration: expected error 0\.[0-9]+ '
  cp out $n.out
done
for n in 2 3; do expect cmp 1.json $n.json; expect cmp 1.svg $n.svg; expect cmp 1.out $n.out; done

check "its figures are those of the predictions"
succeeds predict runs/a --batch 50 --out p.h5
cat >compare.py <<'END'
import h5py, json, numpy, sys
records = [json.loads(line) for line in open(sys.argv[2])]
of_kind = lambda kind: [r for r in records if r["kind"] == kind]
with h5py.File(sys.argv[1]) as f:
    scores, target, taken = f["scores"][:], f["target"][:], f["class"][:]
classes = scores.shape[1]
counts = numpy.zeros((classes, classes), int)
numpy.add.at(counts, (target, taken), 1)
told = numpy.zeros_like(counts)
for r in of_kind("confusion"): told[r["target"], r["predicted"]] = r["samples"]
assert (told == counts).all(), (told, counts)
assert abs(of_kind("evaluation")[0]["accuracy"] - numpy.trace(counts) / len(target)) < 1e-12
for r in of_kind("class"):
    i = r["index"]
    right = counts[i, i]
    assert r["samples"] == counts[i].sum() and r["predicted"] == counts[:, i].sum()
    assert abs(r["precision"] - right / counts[:, i].sum()) < 1e-12 and abs(r["recall"] - right / counts[i].sum()) < 1e-12
    assert abs(r["f1"] - 2 * right / (counts[i].sum() + counts[:, i].sum())) < 1e-12
confidence = scores.max(axis=1).astype(float)
bins = numpy.ceil(confidence * 15).astype(int) - 1
error = 0
for r, b in zip(of_kind("bin"), range(15)):
    inside = bins == b
    assert r["samples"] == inside.sum(), (r, inside.sum())
    if inside.any():
        accuracy = (taken == target)[inside].mean()
        assert abs(r["accuracy"] - accuracy) < 1e-12 and abs(r["confidence"] - confidence[inside].mean()) < 1e-6
        error += inside.mean() * abs(accuracy - confidence[inside].mean())
assert abs(of_kind("calibration")[0]["expected_error"] - error) < 1e-6
END
expect python3 compare.py p.h5 1.json
sed 's/"recall":0\.[0-9]*/"recall":0.5/' 1.json >other.json
! python3 compare.py p.h5 other.json 2>/dev/null || failed "the comparison sees no difference"

check "the picture is XML with both charts"
python3 - <<'END' || failed "the picture"
import xml.dom.minidom
texts = [t.firstChild.data for t in xml.dom.minidom.parse("1.svg").getElementsByTagName("text")]
assert "Confusion" in texts and "Calibration" in texts, texts
END

check "numbers to predict: MAE, RMSE and R2 of each"
python3 - <<'END'
import numpy
random = numpy.random.default_rng(3)
x = random.normal(size=(300, 6)).astype(numpy.float32)
numpy.save("x.npy", x)
numpy.save("y.npy", numpy.stack([x @ random.normal(size=6), 50 + x[:, 0] ** 2], axis=1).astype(numpy.float32))
END
must_run pack --format npy --x x.npy --y y.npy --out numbers
must_run train --data numbers --model mlp --hidden 16 --batch 20 --steps 60 --optimizer adam --learning-rate 0.01 --progress off --run runs/b
for n in 1 3; do
  succeeds -n $n eval runs/b --data numbers --evaluation-batch 40 --report --json b$n.json
  expect_out '^target_1 +300 '
done
expect cmp b1.json b3.json
succeeds predict runs/b --data numbers --batch 40 --out b.h5
python3 - <<'END' || failed "the figures"
import h5py, json, numpy
with h5py.File("b.h5") as f: prediction, target = f["scores"][:].astype(float), f["target"][:].astype(float)
told = [r for r in map(json.loads, open("b1.json")) if r["kind"] == "target"]
assert len(told) == 2
for i, r in enumerate(told):
    error = prediction[:, i] - target[:, i]
    assert abs(r["mean_absolute_error"] / abs(error).mean() - 1) < 1e-9
    assert abs(r["root_mean_squared_error"] / (error ** 2).mean() ** 0.5 - 1) < 1e-9
    assert abs(r["r_squared"] - 1 + (error ** 2).sum() / ((target[:, i] - target[:, i].mean()) ** 2).sum()) < 1e-9
END
fails 2 '--svg draws which classes are confused, and this network does not choose one of several' -n 2 eval runs/b --data numbers --report --svg b.svg

check "a class that nobody is or is taken for has no precision, and none in the file"
python3 - <<'END'
import numpy
numpy.save("few_x.npy", numpy.zeros((4, 20), numpy.float32))
numpy.save("few_y.npy", numpy.array([0, 1, 1, 4], numpy.int32))
END
must_run pack --format npy --x few_x.npy --y few_y.npy --out few
succeeds eval runs/a --data few --report --json few.json
expect_out '^2 +0 +- '
expect grep -q '"index":2,"name":"2","samples":0,.*"precision":null,"recall":null,"f1":null' few.json

check "what it is not for"
fails 2 '--svg .*--report' eval runs/a --svg alone.svg
for _ in 1 2 3 4 5 6 7 8; do echo "the cat sat on a mat and the dog saw no cat"; done >corpus.txt
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.2
must_run train --data text --model lstm --hidden 4 --layers 1 --unroll 5 --global-batch 3 --steps 4 --progress off --run runs/c
fails 2 '--report is for classes, labels and numbers, and this network writes text' -n 2 eval runs/c --report
[ ! -e /dev/full ] || fails 1 /dev/full eval runs/a --report --json /dev/full

check "the perplexity of a recurrent network does not depend on how much is computed at once"
for _ in $(seq 300); do echo "the cat sat on a mat and the dog saw no cat"; done >long.txt
must_run pack --format text --tokenizer char --x long.txt --out long --validation 0.5
must_run train --data long --model lstm --hidden 12 --layers 1 --unroll 5 --global-batch 8 --steps 80 --progress off --run runs/long
for batch in 1 3 20 250; do
  succeeds -n 2 eval runs/long --evaluation-batch $batch --json long.$batch.json
done
expect python3 -c '
import json
found = [json.load(open(f"long.{batch}.json"))["perplexity"] for batch in (1, 3, 20, 250)]
assert max(found) - min(found) < 1e-5 * found[0], found'

check "a recurrent network goes through a text with its state, however short the windows"
must_run train --data long --model lstm --hidden 16 --layers 1 --unroll 20 --global-batch 8 --steps 200 --optimizer adam \
  --learning-rate 0.01 --progress off --run runs/learnt
for unroll in 1 20; do  # the same weights
  succeeds train --data long --model lstm --hidden 16 --layers 1 --unroll $unroll --global-batch 8 --steps 1 --optimizer sgd \
    --learning-rate 1e-12 --initialize-from "$(newest_checkpoint runs/learnt)" --progress off --run runs/unroll$unroll
done
one=$(metric runs/unroll1 validation loss | tail -n 1 | cut -d' ' -f2) twenty=$(metric runs/unroll20 validation loss | tail -n 1 | cut -d' ' -f2)
python3 -c 'import sys; one, twenty = map(float, sys.argv[1:]); sys.exit(not (twenty < 0.2 and abs(one - twenty) < 0.01 * twenty))' \
  "$one" "$twenty" || failed "loss $one by windows of 1 token, $twenty by windows of 20"
