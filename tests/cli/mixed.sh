#!/usr/bin/env bash
# Several inputs and targets of a sample: packed, trained on ranks, resumed, evaluated, exported; the commands of
# model/networks.md work; wrong fields end every rank with one sentence.
# seconds: 400
# label: more
. "$(dirname "$0")/harness.sh"
example=$tree/app/examples/mixed
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none

check "the section of networks.md: from files to predictions"
mkdir -p build/release app/examples
ln -s "$lockstep" build/release/lockstep
ln -s "$tree/app/launch" app/launch
ln -s "$example" app/examples/mixed
sed -n '/^## Several inputs/,/^## /p' "$tree/model/networks.md" | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' >section.sh
expect_file section.sh
command_line="bash -e section.sh"
(export PATH="$work/build/release:$(dirname "$python"):$PATH"
 python3() { "$python" "$@"; }
 export -f python3 && export python
 timeout 300 bash -e section.sh) >out 2>err </dev/null
status=$?
expect_status 0
expect_file predictions.csv; expect_file mixed.onnx

check "it learns what neither input tells alone"
accuracy() { metric "$1" validation accuracy | awk '{ best = $2 > best ? $2 : best } END { print best + 0 }'; }
metric runs/mixed validation accuracy >accuracies
awk '{ best = $2 > best ? $2 : best } END { exit !(best >= 0.9) }' accuracies || failed "accuracy $(tr '\n' ' ' <accuracies)"
common=(--data shards/mixed --report-every 1 --no-tensorboard --progress off --seed 3)
for input in image table; do
  cat >"$input.yaml" <<END
name: alone
inputs: {$input: [$([ $input = image ] && echo any, any, any || echo any)]}
training: {optimizer: adam, learning-rate: 0.003, batch: 64}
network: [flatten, dense: {units: 64, activation: relu}, dense: \$outputs]
END
  succeeds train "${common[@]}" --model "$input.yaml" --epochs 12 --run "runs/$input"
  metric "runs/$input" validation accuracy >accuracies
  awk '{ best = $2 > best ? $2 : best } END { exit !(best <= 0.4) }' accuracies ||
    failed "the $input alone has an accuracy of $(tr '\n' ' ' <accuracies)"
done

check "shards have a data set for each field, in its own type, with a checksum and statistics"
python3 - shards/mixed/train <<'END' >out 2>err || failed "they have not"
import h5py, json, sys
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))
assert manifest["schema_version"] == 3, manifest["schema_version"]
fields = {field["name"]: field for field in manifest["fields"]}
assert [(f["name"], f["role"]) for f in manifest["fields"]] == [("image", "input"), ("label", "target"), ("table", "input")]
with h5py.File(folder + "/" + manifest["shards"][0]["file"]) as file:
    assert file.attrs["lockstep_schema_version"] == 3
    assert file["image"].dtype == "uint8" and file["image"].shape[1:] == (16, 16, 1)
    assert file["table"].dtype == "float32" and file["table"].shape[1:] == (6,)
    for name in fields:
        assert file[name].attrs["xxh3_64"].decode() == manifest["shards"][0]["xxh3_64"][name]
assert fields["image"]["value_max"] == 255 and 10 < fields["table"]["mean"] < 25, fields
END
succeeds info shards/mixed/train
expect_silence
expect_out 'image +uint8 \[16, 16, 1\], 0 to 255, mean 12'; expect_out 'table +float32 \[6\], .*mean 1[67]'
succeeds info shards/mixed/train --verify
expect_out ' ok$'

check "the same bytes from any number of ranks"
succeeds -n 3 pack --x mixed.h5 --x-name image,table --y-name label --validation 0.2 --shards 4 --out again
diff -r shards/mixed again >/dev/null || failed "the folders differ"

check "damage to any field is found"
cp -r shards/mixed/train damaged
offset=$(python3 -c 'import h5py; f = h5py.File("damaged/shard-00000.h5"); print(f["table"].id.get_offset() + 40)')
flip_byte damaged/shard-00000.h5 "$offset"
fails 1 "shard-00000.h5: table is damaged" -n 2 train --data damaged --model "$example/mixed.yaml" --epochs 1 --no-tensorboard --run runs/damaged

mixed=("${common[@]}" --model "$example/mixed.yaml" --channels 4 --width 16 --global-batch 96 --steps 8)
check "resumed, it computes equal bits"
succeeds train "${mixed[@]}" --checkpoint-every 4 --keep 9 --run runs/whole
succeeds train "${mixed[@]}" --resume=runs/whole/checkpoints/step-0000000004.h5 --run runs/rest
metric runs/whole train loss | tail -n 4 >wanted
metric runs/rest train loss >found
expect_same wanted found
expect_same_tensors runs/{whole,rest}/checkpoints/step-0000000008.h5 4

check "the same curve on 2 and 3 ranks, and from the user's file"
for ranks in 2 3; do
  succeeds -n $ranks train "${mixed[@]}" --run runs/ranks$ranks
  expect_near <(metric runs/whole train loss) <(metric runs/ranks$ranks train loss) 1e-4 8
done
succeeds -n 2 train --data mixed.h5 --x table,image --y label --model "$example/mixed.yaml" --epochs 1 --no-tensorboard \
  --run runs/direct
succeeds eval runs/direct --data mixed.h5
cp out alone
succeeds -n 3 eval runs/direct --data mixed.h5
expect_same alone out
succeeds train --data mixed.h5 --y label --model "$example/mixed.yaml" --epochs 1 --no-tensorboard --run runs/unnamed

check "batches that are balanced, and part of the samples for validation"
succeeds -n 2 train --data shards/mixed/train --validation 0.1 --sampling balanced --model "$example/mixed.yaml" --steps 4 \
  --no-tensorboard --run runs/balanced

check "info tells of files as they are"
succeeds info mixed.h5 --x image,table --y label
expect_out 'image +uint8 \[16, 16, 1\]'; expect_out 'sees 2 inputs side by side, 262 numbers; learns 4 classes'
succeeds info "$(newest_checkpoint runs/mixed)"
expect_out 'image: uint8 \[16, 16, 1\]'

check "channels first, by letters"
python3 - <<'END'
import h5py
with h5py.File("mixed.h5") as a, h5py.File("first.h5", "w") as b:
    b["image"] = a["image"][()].transpose(0, 3, 1, 2)
    for name in ("table", "label"):
        b[name] = a[name][()]
END
succeeds pack --x first.h5 --x-name image,table --y-name label --layout image=nchw --validation 0.2 --shards 4 --out first
cmp -s first/train/shard-00001.h5 shards/mixed/train/shard-00001.h5 || failed "the shards differ"
fails 1 "first.h5: --layout tables=nc: the inputs are image, table" \
  pack --x first.h5 --x-name image,table --y-name label --layout image=nchw,tables=nc --out wrong
fails 1 "--layout ncdhw names 4 extents, and the samples of image have 3" \
  pack --x first.h5 --x-name image,table --y-name label --layout image=ncdhw --out wrong
fails 2 "cnwh, which is no order of extents such as nchw" pack --x first.h5 --x-name image,table --y-name label --layout image=cnwh --out wrong

check "several targets of numbers, side by side"
python3 - <<'END'
import h5py, numpy
r = numpy.random.default_rng(1)
a, b = r.normal(size=(800, 5)).astype("f4"), r.normal(size=(800, 3, 2)).astype("f8") + 1000
with h5py.File("two.h5", "w") as f:
    f["in/a"], f["in/b"] = a, b
    f["mass"] = (a.sum(1) + b.sum((1, 2)) - 6000).astype("f4")
    f["place"] = numpy.stack([a[:, 0] * 3, b[:, 0, 0] - 1000], 1)
END
cat >two.yaml <<'END'
name: two
inputs: {a: [5], b: [3, 2]}
network:
  - flatten: {from: b, name: flat}
  - concatenate: {from: [a, flat]}
  - dense: {units: $outputs}
END
succeeds pack --x two.h5 --x-name in/a,in/b --y-name mass,place --validation 0.25 --out two
expect_out 'mass float32.*place float64 \[2\] \(numbers to predict\)'
succeeds -n 2 train --data two --model two.yaml --learning-rate 0.02 --epochs 80 --no-tensorboard --run runs/two
metric runs/two validation loss | tail -n 1 | awk '{ exit !($2 < 0.01) }' || failed "it did not learn them"
succeeds predict runs/two --data two/validation --out predicted.h5 --csv two.csv
head -n 1 two.csv | grep -q 'mass.*place_0.*place_1' || failed "the header is $(head -n 1 two.csv)"
succeeds train --data two --y mass --model two.yaml --epochs 2 --no-tensorboard --run runs/mass
succeeds eval runs/mass

check "export: an input for each field, and the same weights back"
succeeds export runs/mixed --out again.safetensors
succeeds import again.safetensors --out again.h5
succeeds eval again.h5 --data shards/mixed
cp out imported
run eval runs/mixed --data shards/mixed
grep -o 'accuracy[^,]*' out | expect_same - <(grep -o 'accuracy[^,]*' imported)
if peer=$(peer_python onnxruntime h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "onnxruntime computes something else"
import h5py, json, numpy, onnxruntime
session = onnxruntime.InferenceSession("mixed.onnx")
inputs = {i.name: i.shape[1:] for i in session.get_inputs()}
assert inputs == {"image": [16, 16, 1], "table": [6]}, inputs
manifest = json.load(open("shards/mixed/validation/manifest.json"))
fields = {"image": [], "table": []}
for shard in manifest["shards"]:
    with h5py.File("shards/mixed/validation/" + shard["file"]) as f:
        for name in fields:
            fields[name].append(f[name][()].astype("f4"))
fields = {name: numpy.concatenate(parts) for name, parts in fields.items()}
logits = session.run(["logits"], fields)[0]
rows = [line.split(",") for line in open("predictions.csv").read().splitlines()]
column = rows[0].index("predicted") if "predicted" in rows[0] else rows[0].index("class")
classes = numpy.array([int(row[column]) for row in rows[1:]])
assert (logits.argmax(1) == classes).mean() > 0.999
END
fi

check "info shows the network, and a picture of it"
sed 's/\[any, any, any\]/[16, 16, 1]/; s/\[any\]/[6]/' "$example/mixed.yaml" >fixed.yaml
succeeds info fixed.yaml --outputs 4 --svg net.svg
expect_silence
expect_out 'samples +image \[16, 16, 1\], table \[6\] -> 4 outputs'; expect_file net.svg
fails 2 "the input image takes an extent from the data" info "$example/mixed.yaml" --outputs 4
succeeds bench step --model fixed.yaml --outputs 4 --plan plan.jsonl

check "wrong fields: one sentence on every rank"
for ranks in 1 3; do
  wrong=(train --model "$example/mixed.yaml" --epochs 1 --no-tensorboard --run runs/wrong)
  fails 2 "mixed.h5: has no dataset tables; it holds image, label, table" -n $ranks "${wrong[@]}" --data mixed.h5 --x image,tables --y label
  fails 1 "no such field: --x image,tables: it was packed with the inputs image, table" -n $ranks "${wrong[@]}" --data shards/mixed --x image,tables
  fails 2 "the network reads image \[any, any, any\] and table \[any\], and the data have one input" \
    -n $ranks "${wrong[@]}" --data shards/mixed --x image
  fails 2 "the data have the inputs image \[16, 16, 1\] and table \[6\], and the network reads one" \
    -n $ranks train --model mlp --data shards/mixed --epochs 1 --no-tensorboard --run runs/wrong
  sed 's/\[any\]/[7]/' "$example/mixed.yaml" >seven.yaml
  fails 2 "seven.yaml:[0-9]+: inputs: the data have the inputs image .* and table \[6\], and the file asks for image .* and table \[7\]" \
    -n $ranks train --model seven.yaml --data shards/mixed --epochs 1 --no-tensorboard --run runs/wrong
  python3 - <<'END'
import h5py
with h5py.File("mixed.h5") as a, h5py.File("short.h5", "w") as b:
    b["image"], b["label"], b["table"] = a["image"][()], a["label"][()], a["table"][:-1]
END
  fails 1 "short.h5: image has 6000 samples but table has 5999" -n $ranks "${wrong[@]}" --data short.h5 --x image,table --y label
done
fails 2 "--normalize standard knows one scale for all numbers, and the samples have 2 inputs" \
  train "${common[@]}" --model "$example/mixed.yaml" --normalize standard --run runs/wrong
fails 2 "--augment needs samples of one image each, and these have 2 inputs" \
  train "${common[@]}" --model "$example/mixed.yaml" --augment flip --run runs/wrong
python3 - <<'END'
import h5py
with h5py.File("mixed.h5") as a, h5py.File("smaller.h5", "w") as b:
    b["image"], b["label"], b["table"] = a["image"][:, :8], a["label"][()], a["table"][()]
END
fails 2 "smaller.h5: has the inputs image \[8, 16, 1\] and table \[6\], and the network was made for the inputs image \[16, 16, 1\] and table \[6\]" \
  -n 2 eval runs/mixed --data smaller.h5 --y label
fails "1|2" "two" eval runs/mixed --data two

check "ranks whose files differ: one sentence"
for rank in 0 1 2; do
  mkdir -p "here/$rank" && cp "$example/mixed.yaml" mixed.h5 "here/$rank/"
done
script rank.sh 'cd "here/$OMPI_COMM_WORLD_RANK" && exec "$@"'
there=(-n 3 -w "$work/rank.sh" train --model mixed.yaml --data mixed.h5 --x image,table --y label --epochs 1
  --no-tensorboard --run "$work/runs/wrong")
cp smaller.h5 here/1/mixed.h5
fails 1 "training data" "${there[@]}"
python3 - <<'END'
import h5py, numpy
with h5py.File("mixed.h5") as a, h5py.File("here/1/mixed.h5", "w") as b:
    b["image"], b["label"], b["table"] = a["image"][()], a["label"][()], numpy.tile(a["table"][()], 2)
END
fails 1 "training data" "${there[@]}"
cp short.h5 here/1/mixed.h5
fails 1 "rank 1: mixed.h5: image has 6000 samples but table has 5999" "${there[@]}"
python3 - <<'END'
import h5py
with h5py.File("mixed.h5") as a, h5py.File("here/1/mixed.h5", "w") as b:
    b["image"], b["label"] = a["image"][()], a["label"][()]
END
fails 2 "rank 1: mixed.h5: has no dataset table" "${there[@]}"

check "packs of one x and one y keep their bytes"
run pack --format synthetic --samples 300 --features 7 --classes 3 --shards 2 --seed 5 --out plain
python3 -c 'import json; m = json.load(open("plain/manifest.json")); print(m["schema_version"], m["checksum"])' >sum
expect_same sum <(echo "1 169a6c6b3745ef9a")
run pack --x mixed.h5 --x-name image --y-name label --out named
python3 -c 'import json; m = json.load(open("named/manifest.json")); print(m["schema_version"], [f["name"] for f in m["fields"]])' >sum
expect_same sum <(echo "1 ['x', 'y']")
