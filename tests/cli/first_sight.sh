#!/usr/bin/env bash
# Common files are understood without options: HDF5 of h5py, tables whose numbers are far from 0.
# seconds: 300
. "$(dirname "$0")/harness.sh"
python3 - <<'END'
import h5py, numpy as np
random = np.random.default_rng(1)
labels = np.arange(240) % 4
x = random.normal(size=(240, 6)) + 3 * np.eye(4, 6)[labels]
pictures = (np.clip(random.normal(60, 9, size=(240, 3, 8, 8)) + 120 * (labels[:, None, None, None] == np.arange(3)[:, None, None]), 0, 255)).astype("u1")
def file(name, **fields):
    with h5py.File(name, "w") as f:
        for key, value in fields.items(): f.create_dataset(key, data=value)
with h5py.File("groups.h5", "w") as f:
    f["train/x"], f["train/y"] = x.astype("f4"), labels
    f["about/version"] = 3.0
with h5py.File("parts.h5", "w") as f:
    for part in "train", "test":
        f[part + "/data/features"], f[part + "/species"] = x.astype("f4"), labels
names = np.array(["oak", "ash", "elm", "fir"])[labels]
file("found.h5", features=x.astype("f4"), species=labels.astype("i8"))
file("three.h5", features=x.astype("f4"), species=labels, weight=np.ones(240))
file("half.h5", x=x.astype("f2"), y=labels.astype("i8"))
file("texts.h5", x=x.astype("f4"), y=[str(n).encode() for n in names])
file("one_hot.h5", x=x.astype("f4"), y=np.eye(4)[labels])
file("binary.h5", x=x.astype("f4"), y=(x[:, :3] > 1).astype("u1"))
np.save("x.npy", x.astype("f4")), np.save("binary.npy", (x[:, :3] > 1).astype("f4")), np.save("one_hot.npy", np.eye(4, dtype="f4")[labels])
file("masks.h5", x=pictures, y=pictures[:, 0])
file("first.h5", x=pictures, y=labels)
file("last.h5", x=np.moveaxis(pictures, 1, 3), y=labels)
wide = np.stack([1e4 * x[:, 0] + 2e4, x[:, 1] / 1e3, x[:, 2]], 1)
target = 2e5 + 1e5 * x[:, 0] - 3e4 * x[:, 1] + random.normal(scale=1e3, size=240)
file("houses.h5", x=wide, y=target)
with open("houses.csv", "w") as f:
    f.write("income,rooms,sea,price\n")
    for i in range(240):
        f.write(f"{wide[i, 0]:.3f},{'' if i % 40 == 9 else f'{wide[i, 1]:.9f}'},{names[i]},{target[i]:.2f}\n")
END
train="train --steps 120 --hidden 16 --learning-rate 0.01 --progress off --no-tensorboard"
best() { python3 -c '
import json, sys
print(max(json.loads(line).get("accuracy", 0) for line in open(sys.argv[1] + "/metrics.jsonl") if "\"validation\"" in line))' "$1"; }
learns() { expect awk "BEGIN { exit !($(best "$1") > 0.7) }"; }

check "two data sets that fit are found, and a part is put aside for validation"
succeeds $train --data found.h5 --validation 0.25 --run runs/found
expect_err "found.h5 has no x and y: takes features for the samples and species for the labels"
expect_out "data: 180 samples in 1 file, 4 classes; validation: 60 samples"
learns runs/found
succeeds -n 2 eval runs/found
expect_out "60 samples"
succeeds eval runs/found --data found.h5 --x features --y species
expect_out "240 samples"
fails 2 "has no dataset species" eval runs/found --data half.h5 --x species
fails 2 "has no dataset x; it holds features, species, weight: choose with --x" $train --data three.h5 --run runs/three

check "what is there is not said to be missing"
python3 - <<'END'
import h5py, numpy
for name, x, y in (("only_x", "x", "species"), ("only_y", "features", "y")):
    with h5py.File(name + ".h5", "w") as f: f[x], f[y] = numpy.random.rand(20, 3).astype("f4"), numpy.zeros(20, "i4")
END
succeeds $train --data only_x.h5 --dry-run
expect_err "only_x.h5 has no y: takes species for the labels"
expect_out "data: 20 samples in 1 file, 1 class;"
succeeds $train --data only_y.h5 --dry-run
expect_err "only_y.h5 has no x: takes features for the samples \("
succeeds info only_x.h5
expect_out "labels of 1 class$"; expect_out "learns 1 class by"

check "what is to be packed first"
fails 1 'houses.csv: is no HDF5 file; `lockstep pack --x houses.csv --out FOLDER` makes shards of it' $train --data houses.csv --run runs/never
mkdir pictures; cp houses.csv pictures/
fails 1 'pictures: holds no HDF5 file; .*`lockstep pack` makes shards of images, tables' $train --data pictures --run runs/never

check "data sets inside groups"
succeeds $train --data groups.h5 --validation 0.25 --run runs/groups
expect_err "takes train/x for the samples and train/y for the labels"; learns runs/groups
fails 2 "has no dataset x; it holds test/species, train/species, test/data/features, train/data/features: choose with --x" \
  $train --data parts.h5 --run runs/parts
succeeds $train --data parts.h5 --x train/data/features --y train/species --validation 0.25 --run runs/parts
learns runs/parts
succeeds eval runs/parts --data parts.h5 --x test/data/features --y test/species
expect_out "240 samples"
succeeds info groups.h5
expect_out "data set train/x, contiguous"
must_run pack --x parts.h5 --x-name test/data/features --y-name test/species --out packed_part

check "names belong to the data that they are given with"
must_run pack --x found.h5 --out packed
succeeds $train --data found.h5 --x features --y species --validation packed --run runs/mixed
learns runs/mixed
succeeds eval runs/mixed --data packed
fails 1 "leave --x and --y away" $train --data packed --x features --run runs/none

check "float16, texts and one-hot rows as labels"
for kind in half texts one_hot; do
  succeeds $train --data $kind.h5 --validation 0.25 --run runs/$kind
  expect_out "4 classes"; learns runs/$kind
done
expect_err "one 1 in each row: taken as labels of 4 classes"
run info runs/texts/checkpoints/step-0000000120.h5
expect_out "ash.*elm.*fir.*oak"

check "masks ask for a network that gives a class for each position"
fails 2 "the network's output is [0-9]+ of each sample, and masks of .* ask for" $train --data masks.h5 --run runs/masks

check "rows of 0 and 1 are labels, any of which a sample has"
succeeds -n 2 $train --data binary.h5 --validation 0.25 --run runs/binary
expect_err "rows of 0 and 1: taken as 3 labels"; expect_out "^loss: binary-cross-entropy"
expect_out "180 samples in 1 file, 3 labels"; expect_out "label accuracy 9[0-9]\.[0-9]+ %  F1 0\.[89]"
succeeds -n 2 eval runs/binary --report --json binary.json
expect_out "all together"; expect_out "have all their labels right"
succeeds predict runs/binary --out binary_scores.h5
python3 - 2>python.log <<'END' || failed "$(tail -n 1 python.log)"
import h5py, json, numpy as np
with h5py.File("binary_scores.h5") as f: scores, target = f["scores"][:].astype(float), f["target"][:]
assert target.shape == scores.shape == (60, 3) and 0 <= scores.min() and scores.max() <= 1
records = [json.loads(line) for line in open("binary.json")]
said, there = scores > 0.5, target == 1
of = lambda kind: [r for r in records if r["kind"] == kind]
whole = of("evaluation")[0]
assert abs(whole["loss"] + np.where(there, np.log(scores), np.log1p(-scores)).mean()) < 1e-5, whole
assert abs(whole["label_accuracy"] - (said == there).mean()) < 1e-12
assert abs(whole["f1"] - 2 * (said & there).sum() / (said.sum() + there.sum())) < 1e-12
for r in of("label"):
    i = r["index"]
    assert r["samples"] == there[:, i].sum() and r["predicted"] == said[:, i].sum() and abs(r["recall"] * r["samples"] - (said & there)[:, i].sum()) < 1e-9
assert of("exact")[0]["right"] == (said == there).all(axis=1).sum()
END
succeeds train --run runs/binary --resume --steps 140 --progress off
expect_out "^loss: binary-cross-entropy"
run info binary.h5
expect_out "learns 3 labels by binary cross-entropy"; expect_out "samples that have a label"
succeeds $train --data binary.h5 --loss mean-squared-error --run runs/numbers
expect_out "^loss: mean-squared-error"
fails 2 "does not fit the network" eval runs/numbers --data one_hot.h5 --y y
succeeds $train --data one_hot.h5 --loss binary-cross-entropy --run runs/chosen
expect_out "4 labels"
succeeds eval runs/chosen --data one_hot.h5
expect_out "label accuracy"
fails 2 "needs labels of 0 and 1, and the data holds other numbers" $train --data houses.h5 --loss binary-cross-entropy --run runs/none
must_run pack --x x.npy --y binary.npy --out packed_binary --shards 2
succeeds eval runs/binary --data packed_binary
expect_out "240 samples"
succeeds $train --data packed_binary --run runs/packed_binary
expect_out "^loss: binary-cross-entropy"
must_run pack --x x.npy --y one_hot.npy --out packed_one_hot
succeeds $train --data packed_one_hot --run runs/packed_one_hot
expect_out "4 classes"

check "channels first and channels last are the same pictures"
for layout in first last; do
  succeeds $train --data $layout.h5 --validation 0.25 --seed 5 --run runs/$layout
  learns runs/$layout
done
run eval runs/first --data last.h5; grep -o 'loss .*' out >first.out
run eval runs/last --data first.h5; grep -o 'loss .*' out >last.out
expect_same first.out last.out
succeeds $train --data first.h5 --layout channels-last --validation 0.25 --run runs/other
fails 2 "another order" eval runs/other --data last.h5

check "pack takes them, too"
must_run pack --x first.h5 --out packed_first --validation 60
run info packed_first
expect_out "x +uint8 \[8, 8, 3\]"
must_run pack --x texts.h5 --out packed_texts --shards 3
run info packed_texts
expect_out "ash +60"

check "info looks at the numbers and says what train would make of them"
succeeds info houses.h5
expect_out "x +float64 \[3\], -?[0-9.]+(e-[0-9]+)? to [0-9]{5}"; expect_out "data set x, contiguous"
expect_out "sees 3 features; predicts 1 number"
run info first.h5
expect_out "1 +60"; expect_out "images of 8 x 8 pixels, 3 channels; learns 4 classes by cross-entropy"

check "wide numbers are standardised, the same at any number of ranks, and told in their units"
for n in 1 2 3; do
  succeeds -n $n $train --data houses.h5 --validation 0.25 --global-batch 32 --run runs/houses-$n
  expect_out "normalisation per-feature \(3 features"; expect_out "errors are in the units of the data"
  expect awk "BEGIN { exit !($(metric runs/houses-$n validation mean_absolute_error | tail -n 1 | cut -d ' ' -f 2) < 20000) }"
done
python3 - 2>python.log <<'END' || failed "$(tail -n 1 python.log)"
import h5py, json
def description(n):
    with h5py.File(f"runs/houses-{n}/checkpoints/step-0000000120.h5") as f: return json.loads(bytes(f["state/data_description"][()]))
one = description(1)
assert one["feature_scale"] == description(2)["feature_scale"] == description(3)["feature_scale"]
assert one["target_scale"] == description(3)["target_scale"]
import numpy as np
with h5py.File("houses.h5") as f: x, y = f["x"][:], f["y"][:]
assert abs(one["feature_scale"]["mean"][0] / x[:, 0].mean() - 1) < 0.1
assert abs(one["target_scale"]["deviation"][0] / y.std() - 1) < 0.1
END
succeeds predict runs/houses-2 --data houses.h5 --out predictions.h5
python3 - 2>python.log <<'END' || failed "$(tail -n 1 python.log)"
import h5py, numpy as np
with h5py.File("predictions.h5") as f, h5py.File("houses.h5") as data:
    target = f["target"][:].ravel()
    assert (target == data["y"][:].astype("f4")).all()
    assert abs(f["scores"][:].ravel() - target).mean() < 20000
END
succeeds -n 2 train --run runs/houses-2 --resume --steps 130 --progress off
expect_out "normalisation per-feature"
run train --data houses.h5 --normalize none --normalize-targets none --optimizer sgd --learning-rate 1e-12 --steps 2 --hidden 4 --run runs/plain
expect_err "inputs go up to .*--normalize per-feature"

check "a table: texts, missing cells"
fails 1 "houses.csv:11: column 1 \(rooms\).*--missing drop" pack --x houses.csv --label-column price --regression --out table
succeeds pack --x houses.csv --label-column price --regression --missing mean --out table --validation 0.25
expect_out "column 2 \(sea\) holds 4 different texts"
succeeds $train --data table --run runs/table
expect_out "6 features"
