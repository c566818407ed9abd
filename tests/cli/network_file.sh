#!/usr/bin/env bash
# A user's network from a file (the example of model/networks.md): trained on two ranks, resumed on others, evaluated,
# exported, imported, frozen, swept; wrong files end every rank with one sentence.
# seconds: 600
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data/train
pack_small data/test --first 600
sed -n '/^```yaml$/,/^```$/p' "$tree/model/networks.md" | sed -n '/^name: two_branches/,/^```$/p' | grep -v '^```' >net.yaml
expect_file net.yaml
common=(--data data --model net.yaml --report-every 1 --no-tensorboard --progress off --seed 3)

check "its options and defaults are in the help"
succeeds train --model net.yaml --help
expect_silence
expect_out 'Network two_branches: a residual'
expect_out '--width N +numbers in each branch \[16\]'
expect_out '--dropout X .*\[0\]'
expect grep -Pzq -- '--optimizer [A-Z]+[^[]*\[momentum\]' out
expect_out '--weight-init SCHEME'
! grep -q -- '^  --hidden' out || failed "options of other networks are in its help"

check "info shows it without data"
succeeds info net.yaml --features 20 --outputs 5 --width 8
expect_silence
expect_out 'net.yaml: network two_branches: a residual'; expect_out 'samples +20 numbers -> 5 outputs'
expect_out 'options .*width 8'; expect_out 'training +optimizer momentum, learning-rate 0.05'
expect_out 'begin/wide +20 -> 8, relu +168'; expect_out '[0-9,]+ parameters \('
fails 2 "--width: none is not a whole number" info net.yaml --width none
succeeds info net.yaml --help
expect_out '--width N +numbers in each branch'
fails 1 "nowhere.yaml: there is no such file" info nowhere.yaml
succeeds info "$tree/model/networks/resnet.yaml" --image 32x32x3 --depth 56
expect_out '853,018 parameters'; expect_out 'stage_3/block_9'

check "the plan shows its operations"
succeeds train "${common[@]}" --width 8 --blocks 3 --dry-run
expect_silence
expect_out 'begin/wide +20 -> 8, relu'
expect_out 'block_3/dense_2 +8 -> 8'
expect_out 'head +8 -> 5'
run -n 2 check "${common[@]}" --width 8 --run runs/none --seconds 0.2
expect_status '0|1'; expect_out 'memory +ok'

check "it is trained on two ranks"
succeeds -n 2 train "${common[@]}" --global-batch 40 --width 12 --dropout 0.1 --epochs 2 --checkpoint-every 10 --keep 9 --run runs/a
expect_silence
metric runs/a train loss >curve
[ "$(wc -l <curve)" = 30 ] || failed "30 steps expected"
awk 'NR <= 3 { first += $2 } NR > 27 { last += $2 } END { exit !(last < first) }' curve || failed "the loss does not fall"
expect grep -qx "model = $PWD/net.yaml" runs/a/config.ini
for line in "width = 12" "dropout = 0.1" "optimizer = momentum" "learning-rate = 0.05"; do
  expect grep -qx "$line" runs/a/config.ini
done
expect_same net.yaml runs/a/network.yaml

check "from now on nothing needs the file"
mv net.yaml kept.yaml
succeeds -n 3 train --resume=runs/a/checkpoints/step-0000000010.h5 --run runs/b
expect_near <(tail -n 20 curve) <(metric runs/b train loss) 1e-4 20
expect_same kept.yaml runs/b/network.yaml
succeeds eval runs/a
expect_silence; cp out alone
succeeds -n 3 eval runs/a
expect_same alone out
succeeds predict runs/a --data data/test --out predictions.h5
expect_silence
succeeds info runs/a
expect_silence; expect_out 'width 12'
succeeds info "$(newest_checkpoint runs/a)"
expect_out 'network +20 -> 5: two_branches 20-5 [0-9a-f]{16}'
succeeds report runs/a --out page.html
expect_silence

check "its weights go out and come back"
succeeds export runs/a --out a.safetensors
succeeds import a.safetensors --out a.h5
expect_out 'two_branches'
must_run export a.h5 --out again.safetensors
expect cmp a.safetensors again.safetensors
succeeds eval a.h5 --data data/test
succeeds export runs/a --out a.onnx
expect_file a.onnx

check "a new run begins with its weights, some of them frozen"
cp kept.yaml net.yaml
succeeds train "${common[@]}" --initialize-from runs/a --freeze 'begin/*,block_1/*' --steps 3 --run runs/tuned
expect_silence
expect grep -qx "width = 12" runs/tuned/config.ini
python3 - "$tree" <<'END' || failed "what is frozen"
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from checkpoint_tensors import tensors
import glob
a, b = tensors("runs/a/checkpoints/best"), tensors(sorted(glob.glob("runs/tuned/checkpoints/step-*.h5"))[-1])
for name in b:
    if "parameters/" in name:
        frozen = "begin/" in name or "block_1/" in name
        assert (a[name].tobytes() == b[name].tobytes()) == frozen, name
END

check "a resumed run keeps its network and says that the file differs"
sed -i 's/^  blocks: {default: 2/  blocks: {default: 3/; s/residual multilayer/changed multilayer/' net.yaml
succeeds train --resume=runs/a/checkpoints/step-0000000010.h5 --run runs/c
expect_err "net.yaml differs from the network of the run, which stays as it was"
succeeds train --model net.yaml --resume=runs/a/checkpoints/step-0000000010.h5 --run runs/d --steps 12
expect_err "net.yaml differs from the network of the run"
expect_same kept.yaml runs/d/network.yaml
succeeds -n 2 train --resume --run runs/a --epochs 3 --model net.yaml
expect_err "net.yaml differs from the network of the run"
cp kept.yaml net.yaml

check "a changed copy in the run's folder changes nothing"
sed -i 's/dropout: \$dropout, //' runs/a/network.yaml
succeeds train --resume --run runs/a --epochs 4
expect_same kept.yaml runs/a/network.yaml
rm runs/a/network.yaml
succeeds train --resume --run runs/a --epochs 5
expect_same kept.yaml runs/a/network.yaml

check "another network is not resumed"
run train --model mlp --resume=runs/a/checkpoints/step-0000000010.h5 --run runs/e
expect_status '1|2'; expect_err 'network'

check "its configuration makes the same run again"
succeeds train --config runs/a/config.ini --run runs/again --steps 2
head -n 2 curve >two; metric runs/again train loss | awk '{ print $1 }' >steps
[ "$(wc -l <steps)" = 2 ] || failed "two steps expected"

check "series and volumes are convolved along their directions"
python3 - <<'END'
import h5py
import numpy as np
random = np.random.default_rng(1)
for name, extents in ("series", (40, 3)), ("volumes", (8, 9, 10, 2)):
    y = random.integers(0, 2, 240)
    x = random.normal(size=(240, *extents)) * np.where(y, 1.5, 0.5).reshape(-1, *[1] * len(extents))
    with h5py.File(name + ".h5", "w") as file:
        file["x"], file["y"] = x.astype("f4"), y.astype("i4")
END
printf '%s\n' 'name: probe' 'network:' '- conv: {channels: 6, kernel: 3, stride: 2, norm: batch, activation: relu}' \
  '- conv: {channels: 6, kernel: 3, activation: relu}' '- max-pool: 2' '- global-average' '- dense: $outputs' >volumes.yaml
sed 's/^network:/inputs: {x: [any, any]}\nnetwork:/' volumes.yaml >series.yaml
for data in series volumes; do
  succeeds -n 2 train $data.h5 --model $data.yaml --optimizer adam --learning-rate 0.02 --global-batch 24 --epochs 8 --seed 2 \
    --no-tensorboard --progress off --run runs/$data
  succeeds -n 3 eval runs/$data --data $data.h5
  accuracy=$(grep -o 'accuracy [0-9.]*' out | tail -n 1 | cut -d ' ' -f 2)
  awk -v a="$accuracy" 'BEGIN { exit !(a > 95) }' || failed "$data: accuracy $accuracy"
  succeeds predict runs/$data --data $data.h5 --out $data-predicted.h5
  succeeds train --resume --run runs/$data --epochs 9
done
run train series.h5 --model volumes.yaml --run runs/none --dry-run
expect_out 'conv_1 +40x3x1 -> 20x2x6'
run train volumes.h5 --model series.yaml --run runs/none
expect_status 2; expect_err "inputs: x: the data have samples of 8x9x10x2, and the file asks for anyxany"

check "copies of shipped language models train as they do"
python3 -c 'import random; random.seed(1); print("\n".join(" ".join(random.choice(("the", "cat", "sat", "on", "a", "mat")) for _ in range(12)) for _ in range(60)))' >corpus.txt
must_run pack --format text --tokenizer char --x corpus.txt --out text
for model in gpt lstm; do
  cp "$tree/model/networks/$model.yaml" copy.yaml
  for from in $model copy.yaml; do
    succeeds -n 2 train text --model $from --steps 6 --global-batch 8 --report-every 1 --seed 3 --no-tensorboard --progress off \
      --run runs/$from.$model
    metric runs/$from.$model train loss >curve.$from
  done
  expect_same curve.$model curve.copy.yaml
  rm copy.yaml
  succeeds generate runs/copy.yaml.$model --prompt "the " --tokens 20 --seed 9
  cp out written
  run generate runs/$model.$model --prompt "the " --tokens 20 --seed 9
  expect_same written out
done

check "it is swept over its own options"
printf '%s\n' '--width 4' '--width 8 --dropout 0.2' '--model mlp --hidden 8' >settings.txt
succeeds sweep settings.txt "${common[@]}" --steps 4 --run runs/s
expect grep -qx 'width = 8' runs/s/2/config.ini
expect grep -qx 'model = mlp' runs/s/3/config.ini
printf '%s\n' '--widht 4' >settings.txt
fails 2 "settings.txt, setting 1 .*unknown option --widht; did you mean --width" sweep settings.txt "${common[@]}" --steps 4 --run runs/wrong

check "it is drawn"
succeeds info net.yaml --features 20 --outputs 5 --svg net.svg
expect_silence; expect_out 'net.svg: a picture of it'
python3 - <<'END' || failed "the picture"
import xml.etree.ElementTree
root = xml.etree.ElementTree.parse("net.svg").getroot()
names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("rx")]
assert {"begin/wide", "begin/deep_2", "begin/add_1", "block_2/add_1", "head"} <= set(names), names
places = {(box.get("x"), box.get("y")) for box in boxes}
assert len(places) == len(boxes) > 10, "boxes lie on each other"
assert len({x for x, y in places}) > 1, "branches lie side by side"
END
fails 2 "--svg draws a network: name its file" info runs/a --svg net.svg

check "its steps are timed without data"
succeeds bench step --model net.yaml --width 4 --features 20 --outputs 5 --batch 4 --warmup 1 --repeat 2

check "images: branches side by side, evaluated, exported"
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = r.integers(0, 256, (48, 8, 8, 3)).astype(np.uint8), r.integers(0, 4, 48).astype(np.int32)
END
cat >inception.yaml <<'END'
name: inception
inputs: {picture: [any, any, 3]}
network:
  - conv: {channels: 4, kernel: 3, norm: batch, activation: relu, name: stem}
  - parallel: [[conv: {channels: 2, kernel: 1}, relu], [conv: {channels: 3, kernel: 3}, max-pool: {window: 3, stride: 1}]]
  - concatenate: [stem]
  - max-pool: 2
  - flatten
  - dense: $outputs
END
succeeds train --data images.h5 --model inception.yaml --global-batch 8 --steps 6 --run runs/i
succeeds -n 2 eval runs/i --data images.h5
cp out two
run eval runs/i --data images.h5
expect_same two out
succeeds export runs/i --out i.onnx

check "samples that --layout auto has turned"
python3 -c "
import h5py, numpy as np
with h5py.File('turned.h5', 'w') as f: f['x'], f['y'] = np.ones((8, 4, 12, 16), 'f4'), np.arange(8) % 2"
printf '%s\n' 'name: turned' 'inputs: {x: [4, 12, any]}' 'network: [flatten, dense: $outputs]' >turned.yaml
turned=(train --data turned.h5 --x x --y y --model turned.yaml --dry-run)
fails 2 "samples of 12x16x4, and the file asks for 4x12xany: --layout channels-last reads data that are stored as 4x12x16 so" "${turned[@]}"
succeeds "${turned[@]}" --layout channels-last

check "a batch normalisation sees more than one value per channel, or is frozen"
printf '%s\n' 'name: normed' 'network:' '- dense: {units: 4, norm: batch, name: wide}' '- dense: $outputs' >normed.yaml
sed 's/norm: batch, name: wide}/name: wide}\n- batch-norm: {synchronize: true}/' normed.yaml >joined.yaml
for words in "1 --batch 1" "2 --global-batch 2" "1 --global-batch 4 --accumulate 4"; do
  read -r n options <<<"$words"
  # shellcheck disable=SC2086
  fails 2 "wide/norm normalises over the batch, and each batch of a rank is one sample \(global batch [124]\)" \
    -n $n train --data data --model normed.yaml $options --run runs/wrong
done
expect_no_file runs/wrong
fails 2 "normalises over the batch" train --data data --model joined.yaml --batch 1
succeeds -n 2 train --data data --model joined.yaml --batch 1 --dry-run
succeeds train --data data --model normed.yaml --batch 2 --dry-run
succeeds train --data data --model normed.yaml --batch 1 --freeze 'wide*' --dry-run
succeeds train --data images.h5 --model inception.yaml --batch 1 --dry-run

check "wrong use of options"
fails 2 "unknown option --widht; did you mean --width" train "${common[@]}" --widht 5
fails 2 "--width: 0 must be at least 1" train "${common[@]}" --width 0
fails 2 "--width has an effect only with --model gpt" train --data data --model mlp --width 5
fails 2 "--model: nte.yaml cannot be read" train --data data --model nte.yaml
fails 2 "--model: ntes is not one of cnn, gpt, linear, lstm, mlp and resnet" train --data data --model ntes
fails 2 "--model: ./data cannot be read" train --data data --model ./data

# wrong LINE-PATTERN REPLACEMENT MESSAGE: on two ranks, exit 2 from each and one sentence
wrong() {
  sed "s/$1/$2/" kept.yaml >net.yaml
  fails 2 "$3" -n 2 train "${common[@]}" --run runs/wrong
  expect_no_file runs/wrong
}
check "a layer that is none"
wrong 'dense: \$width, relu' 'denes: $width, relu' 'net.yaml:[0-9]+: denes is no layer; did you mean dense\? Layers: add, '
check "shapes that do not meet"
wrong 'units: \$width, name: deep_2' 'units: 7, name: deep_2' 'net.yaml:[0-9]+: begin/add_1 adds 16 and 7'
check "an output that does not fit the data"
wrong 'units: \$outputs' 'units: 4' "net.yaml: the network's output is 4 of each sample, and the data ask for 5: end with .dense: .outputs"
check "no YAML"
wrong '^network:' 'network: [' 'net.yaml:[0-9]+: no YAML: '
check "an option with the name of another"
wrong '^  width:' '  batch:' 'net.yaml: options: batch is the name of another option of lockstep train'
check "training defaults that are none"
wrong 'batch: 32' 'run: here' 'net.yaml: training: run is no option of training that a network brings'
wrong 'batch: 32' 'btach: 32' 'net.yaml: training: btach is no option of training that a network brings; did you mean batch'
wrong 'batch: 32' 'batch: many' 'batch of two_branches: many is not a whole number'

check "ranks that read different files end together"
cp kept.yaml net.yaml
mkdir -p other && sed 's/activation: tanh/activation: sigmoid/' kept.yaml >other/net.yaml
script each <<'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
[ "$rank" = 0 ] || { cd other; ln -sfn ../data data; }
exec "$@"
END
run -n 2 -w ./each train "${common[@]}" --run "$PWD/runs/differ"
expect_status '[12]'; expect_err 'text of the network'
