#!/usr/bin/env bash
# Exported graphs compute the same in ONNX Runtime (the Python packages onnx and onnxruntime) as `lockstep predict`, and for language models the same as a forward pass in numpy.
# label: slow
# seconds: 600
. "$(dirname "$0")/harness.sh"
runtime=$(peer_python onnx onnxruntime h5py numpy) || skip_all "no Python here has onnx, onnxruntime, h5py and numpy (PEER_PYTHONS: others to try)"

"$runtime" - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
def images(file, count, side):
    with h5py.File(file, "w") as f:
        f["x"], f["y"] = r.integers(0, 180, (count, side, side, 3)).astype(np.uint8), r.integers(0, 4, count).astype(np.int32)
images("images.h5", 48, 18)
images("large.h5", 6, 40)
with h5py.File("numbers.h5", "w") as f:
    x = r.random((90, 7))
    f["x"], f["y"] = x.astype(np.float32), (x[:, :2] * 3 + 1).astype(np.float32)
with h5py.File("labels.h5", "w") as f:
    f["x"], f["y"] = x.astype(np.float32), (x[:, :4] > 0.6).astype(np.uint8)
with h5py.File("wide.h5", "w") as f:
    f["x"], f["y"] = (x * 900 + 40).astype(np.float32), (x[:, :2] * 30 + [100, 7]).astype(np.float32)
with h5py.File("floats.h5", "w") as f:
    f["x"], f["y"] = (r.random((48, 18, 18, 3)) * [90, 30, 9] + [50, 5, 1]).astype(np.float32), np.arange(48) % 4
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
with h5py.File("series.h5", "w") as f:
    x = r.normal(size=(60, 7, 4))
    f["x"], f["y"] = x.astype(np.float32), (x.mean(axis=2)[:, [0, 6]] * 3 + 1).astype(np.float32)
with h5py.File("rows.h5", "w") as f:
    f["rows"] = (np.sin(np.arange(120)[:, None] / [5, 9, 3]) * [30, 2, 1] + [500, 0, 7]).astype(np.float32)
open("corpus.txt", "w").write("\n".join(" ".join(words[i] for i in r.integers(0, 10, 12)) for _ in range(60)) + "\n")
END
must_run pack --format text --tokenizer char --x corpus.txt --out text

# exported NAME DATA OPTION...: trains a little and exports.
exported() {
  local name=$1 data=$2
  shift 2
  must_run train --data "$data" --validation "$data" --steps 8 --batch 12 --progress off --no-tensorboard --run "runs/$name" "$@"
  succeeds export "runs/$name" --out "$name.onnx"
  expect_silence; expect_out "tensors, written to $name.onnx"
}

cat >samples.py <<'END'
import h5py, numpy, onnx, onnxruntime, sys
name, data = sys.argv[1:]
model = onnx.load(name + ".onnx")
onnx.checker.check_model(model, full_check=True)
assert model.ir_version == 8 and [o.version for o in model.opset_import] == [17]
session = onnxruntime.InferenceSession(name + ".onnx")
(given,) = session.get_inputs()
with h5py.File(data) as f: x = f["x"][:].astype(numpy.float32)
if len(given.shape) == 2: x = x.reshape(len(x), -1)
if len(given.shape) == x.ndim + 1: x = x[..., None]
with h5py.File(name + ".h5") as f: want = f["scores"][:]
wanted = "predictions" if want.shape[1] == 2 else "probabilities"
for count in len(x), 1, 3:
    (got,) = session.run([wanted], {"input": x[:count]})
    assert got.shape == want[:count].shape and abs(got - want[:count]).max() < 1e-5 * max(1, abs(want).max()), (count, abs(got - want[:count]).max())
assert want.std(axis=0).max() > 1e-6, "all samples have one answer: nothing is compared"
END
cat >branches.yaml <<'END'
name: branches
inputs: {picture: [any, any, 3]}
network:
  - conv: {channels: 4, kernel: 3, norm: batch, activation: relu, name: stem}
  - parallel: [[conv: {channels: 2, kernel: 1}, silu], [conv: {channels: 3, kernel: 3}, max-pool: {window: 3, stride: 1}]]
  - concatenate: [stem]
  - max-pool: 2
  - flatten
  - dense: $outputs
END
cp "$tree/app/examples/vit/vit.yaml" .
cat >recurrent.yaml <<'END'
name: recurrent
inputs: {series: [any, any]}
network:
  - positions
  - lstm: {units: 5, direction: both, name: both}
  - gru: {units: 4, direction: backward, name: turned}
  - residual: [layer-norm, dense: 12, attention: {heads: 2, causal: no}]
  - residual: [dense: 12, attention: {heads: 2}]
  - parallel: [[gru: {units: 3, direction: both, steps: last}], [lstm: {units: 4, steps: last}]]
  - dense: $outputs
END
cat >unet.yaml <<'END'
name: unet
inputs: {picture: [any, any, any]}
network:
  - conv: {channels: 4, kernel: 3, name: top}
  - group-norm: {groups: 2}
  - conv: {channels: 6, kernel: 3, stride: 2, activation: relu, name: down}
  - instance-norm
  - parallel: [[conv-transpose: {channels: 4, kernel: 2, stride: 2, activation: tanh}], [conv-transpose: {channels: 4, kernel: 3, stride: 2, groups: 2}], [upsample: 2, conv: {channels: 4, kernel: 1}], [upsample: {factor: 2, mode: linear}, conv: {channels: 4, kernel: 1}]]
  - concatenate: [top]
  - flatten
  - dense: $outputs
END
cat >products.yaml <<'END'
name: products
network:
  - conv: {channels: 8, kernel: 4, stride: 4, padding: valid}
  - reshape: {shape: [-1, 8], name: places}
  - constant: {shape: [2, 8], name: class}
  - concatenate: {from: [class, places], axis: 0}
  - dense: {units: 8, name: queries}
  - dense: {units: 8, name: keys}
  - matmul: {from: [queries, keys], transpose: yes}
  - softmax: {name: shares}
  - matmul: {from: [shares, keys]}
  - mean: {axis: 0}
  - dense: $outputs
END
cat >columns.yaml <<'END'
name: columns
network: [parallel: [[dense: 4, tanh], [dense: 3, leaky-relu: 0.1]], concatenate: [input], residual: [dense: 14], dense: $outputs]
END
while read -r name data options; do
  check "$name: the graph answers as lockstep predict"
  # shellcheck disable=SC2086  # words
  exported "$name" "$data" $options
  must_run predict "runs/$name" --out "$name.h5"
  "$runtime" samples.py "$name" "$data" 2>python.log || failed "$(tail -n 1 python.log)"
done <<'END'
linear images.h5 --model linear
mlp images.h5 --model mlp --hidden 9,8 --activation tanh --average-decay 0.8 --evaluate-average
sigmoid images.h5 --model mlp --hidden 9 --activation sigmoid --augment crop=12x9,flip --normalize affine(0.01,-0.5)
padded images.h5 --model mlp --hidden 9 --augment pad=4,crop=21x15
per_image images.h5 --model mlp --hidden 9 --normalize per-image
standardised wide.h5 --model mlp --hidden 9 --learning-rate 0.01
channels floats.h5 --model mlp --hidden 9 --normalize per-feature
channels_cropped floats.h5 --model resnet --depth 20 --learning-rate 0.01 --augment pad=2,crop=16,flip --normalize per-feature
regression numbers.h5 --model mlp --hidden 9 --learning-rate 0.01
several labels.h5 --model mlp --hidden 9 --learning-rate 0.01
cnn images.h5 --model cnn --augment crop=15,flip --learning-rate 0.01 --decay-steps 100
resnet20 images.h5 --model resnet --depth 20 --learning-rate 0.01 --augment pad=2,crop=16,flip --average-decay 0.5 --evaluate-average
resnet18 large.h5 --model resnet --depth 18 --learning-rate 0.01
resnet50 large.h5 --model resnet --depth 50 --learning-rate 0.01
branches images.h5 --model branches.yaml --learning-rate 0.01
columns wide.h5 --model columns.yaml --learning-rate 0.01
products images.h5 --model products.yaml --learning-rate 0.01
recurrent series.h5 --model recurrent.yaml --learning-rate 0.01
unet images.h5 --model unet.yaml --learning-rate 0.01
vit images.h5 --model vit.yaml --patch 3 --width 8 --heads 2 --warmup-steps 0
END
check "windows over a series: the graph answers as lockstep predict"
exported windows rows.h5 --x rows --model "$tree/app/examples/series/series.yaml" --width 6 --window 5 --horizon 2 --normalize per-feature
succeeds predict runs/windows --data rows.h5 --out windows.h5
"$runtime" - <<'END' 2>python.log || failed "$(tail -n 1 python.log)"
import h5py, numpy, onnxruntime
session = onnxruntime.InferenceSession("windows.onnx")
with h5py.File("rows.h5") as f: rows = f["rows"][:]
with h5py.File("windows.h5") as f: want = f["scores"][:]
x = numpy.stack([rows[i:i + 5] for i in range(len(rows) - 4)])
(got,) = session.run(["predictions"], {"input": x})
assert got.shape == want.shape and abs(got - want).max() < 1e-5 * abs(want).max(), abs(got - want).max()
END

cat >tokens.py <<'END'
import h5py, numpy, onnx, onnxruntime, sys
name, kind, layers, heads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
onnx.checker.check_model(onnx.load(name + ".onnx"), full_check=True)
session = onnxruntime.InferenceSession(name + ".onnx")
w = {}
with h5py.File(f"runs/{name}/checkpoints/best") as f:
    f["parameters"].visititems(lambda key, item: w.__setitem__(key, item[:].astype(float)) if isinstance(item, h5py.Dataset) else None)
head = lambda x: x @ w["head/weight"] + w["head/bias"] if "head/weight" in w else x @ w["embedding/tokens"].T
linear = lambda x, layer: x @ w[layer + "/weight"] + w[layer + "/bias"]
sigmoid = lambda x: 1 / (1 + numpy.exp(-x))
def norm(x, layer): return (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5) * w[layer + "/scale"] + w[layer + "/shift"]
def gpt(tokens):
    count, length = tokens.shape
    x = w["embedding/tokens"][tokens] + w["embedding/positions"][:length]
    for block in (f"block_{i + 1}" for i in range(layers)):
        joint = linear(norm(x, block + "/norm_1"), block + "/attention/joint")
        q, k, v = (part.reshape(count, length, heads, -1).swapaxes(1, 2) for part in numpy.split(joint, 3, -1))
        scores = q @ k.swapaxes(2, 3) / numpy.sqrt(q.shape[-1])
        scores = numpy.where(numpy.tril(numpy.ones((length, length), bool)), scores, -numpy.inf)
        shares = numpy.exp(scores - scores.max(-1, keepdims=True))
        attended = (shares / shares.sum(-1, keepdims=True)) @ v
        x = x + linear(attended.swapaxes(1, 2).reshape(x.shape), block + "/attention/output")
        h = linear(norm(x, block + "/norm_2"), block + "/feed_forward/expand")
        x = x + linear(0.5 * h * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (h + 0.044715 * h ** 3))), block + "/feed_forward/contract")
    return head(norm(x, "norm")), {}
def lstm(tokens, states):
    x, after = w["embedding/tokens"][tokens], {}
    for layer in (f"lstm_{i + 1}" for i in range(layers)):
        hidden, cell, outputs = states[layer + "/hidden"], states[layer + "/cell"], []
        for step in range(tokens.shape[1]):
            i, f, g, o = numpy.split(x[:, step] @ w[layer + "/input"] + hidden @ w[layer + "/recurrent"] + w[layer + "/bias"], 4, -1)
            cell = sigmoid(f) * cell + sigmoid(i) * numpy.tanh(g)
            hidden = sigmoid(o) * numpy.tanh(cell)
            outputs.append(hidden)
        x, after[layer + "/hidden/next"], after[layer + "/cell/next"] = numpy.stack(outputs, 1), hidden, cell
    return head(x), after
random = numpy.random.default_rng(2)
context = len(w["embedding/positions"]) if kind == "gpt" else 9
for count, length in (1, context), (5, context), (3, max(1, context - 4)), (2, 1):
    tokens = random.integers(0, len(w["embedding/tokens"]), (count, length))
    states = {given.name: random.normal(size=(count, given.shape[1])).astype(numpy.float32) for given in session.get_inputs()[1:]}
    logits, after = gpt(tokens) if kind == "gpt" else lstm(tokens, states)
    got = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"tokens": tokens, **states})))
    assert set(got) == {"logits", *after}, set(got)
    for key, want in {"logits": logits, **after}.items():
        assert got[key].shape == want.shape and abs(got[key] - want).max() < 1e-5, (count, length, key, abs(got[key] - want).max())
END
while read -r name kind layers heads options; do
  check "$name: the graph's logits are those of the formulas, at any length"
  # shellcheck disable=SC2086  # words
  exported "$name" text --model "$kind" --layers "$layers" $options
  "$runtime" tokens.py "$name" "$kind" "$layers" "$heads" 2>python.log || failed "$(tail -n 1 python.log)"
done <<'END'
lstm lstm 2 0 --hidden 16 --unroll 6 --dropout 0.2
lstm_tied lstm 1 0 --hidden 16 --unroll 1 --tied
gpt gpt 2 2 --width 16 --heads 2 --context 12 --dropout 0.1
gpt_untied gpt 1 1 --width 8 --heads 1 --context 1 --no-tied
END

check "the judge sees a graph that differs"
"$runtime" - <<'END' || failed "the altered graph"
import onnx
from onnx import numpy_helper
model = onnx.load("mlp.onnx")
for tensor in model.graph.initializer:
    if tensor.name == "dense_2/bias": tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + 1e-3 * (numpy_helper.to_array(tensor) * 0 + range(8)).astype("f4"), tensor.name))
onnx.save(model, "mlp.onnx")
END
if "$runtime" samples.py mlp images.h5 2>/dev/null; then failed "the altered graph passes"; fi
