#!/usr/bin/env bash
# Weights go to other programs and come from them: safetensors, GPT-2 under Hugging Face's names. The test compares
# the files' values with the checkpoint's own, and GPT-2 with a forward pass in numpy.
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
must_run train --data data --optimizer sgd --validation data/validation --hidden 16,8 --batch 20 --steps 60 --average-decay 0.9 --evaluate-every 20 --checkpoint-every 20 --keep 5 --no-tensorboard --progress off --run runs/a
best=$(readlink runs/a/checkpoints/best)

check "safetensors and the checkpoint hold the same numbers"
succeeds export runs/a --out raw.safetensors
expect_silence
expect_out "^runs/a/checkpoints/$best \(step [0-9]+, the best of its run\): 6 tensors, written to raw.safetensors \(mlp 20-16-8-5 relu, "
succeeds export runs/a --weights average --checkpoint latest --format safetensors --out average
expect_silence
expect_out "^runs/a/checkpoints/step-0000000060.h5 \(step 60(, the best of its run)?, averaged weights\)"
python3 - "runs/a/checkpoints/$best" <<'END' || failed "the numbers"
import h5py, json, numpy, struct, sys
def tensors(file):
    bytes = open(file, "rb").read()
    (length,) = struct.unpack("<Q", bytes[:8])
    header = json.loads(bytes[8:8 + length])
    return header.pop("__metadata__"), header, length, bytes
metadata, header, length, bytes = tensors("raw.safetensors")
assert length % 8 == 0 and metadata["format"] == "pt" and metadata["lockstep_signature"] == "mlp 20-16-8-5 relu", metadata
assert all(isinstance(value, str) for value in metadata.values())
names = set()
with h5py.File(sys.argv[1]) as f:
    f["parameters"].visititems(lambda name, item: names.add(name) if isinstance(item, h5py.Dataset) else None)
    assert names == set(header), (names, set(header))
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        assert begin == end and entry["dtype"] == "F32"
        end = stop
        values = numpy.frombuffer(bytes[8 + length + begin:8 + length + stop], "<f4").reshape(entry["shape"])
        assert numpy.array_equal(values, f["parameters"][name][:]), name
    assert 8 + length + end == len(bytes)
with h5py.File("runs/a/checkpoints/step-0000000060.h5") as f:
    _, header, length, bytes = tensors("average")
    assert set(header) == names
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        values = numpy.frombuffer(bytes[8 + length + begin:8 + length + stop], "<f4").reshape(entry["shape"])
        assert numpy.array_equal(values, f["average"][name][:]), name
END

check "import and export again: the same bytes, and the same answers"
succeeds import raw.safetensors --out again.h5
expect_silence
expect_out "^raw.safetensors: 6 tensors, written to again.h5 \(mlp 20-16-8-5 relu, "
must_run export again.h5 --out again.safetensors
expect cmp raw.safetensors again.safetensors
must_run predict runs/a --out a.h5
must_run predict again.h5 --data data/validation --out b.h5
python3 -c '
import h5py
with h5py.File("a.h5") as a, h5py.File("b.h5") as b: assert (a["scores"][:] == b["scores"][:]).all()' || failed "the answers"
succeeds info again.h5
expect_out 'all checksums verified'

check "a run begins with a file of weights"
succeeds -n 2 train --data data --optimizer sgd --validation data/validation --hidden 16,8 --batch 20 --learning-rate 1e-30 --steps 1 --initialize-from raw.safetensors --run runs/b
expect_silence
expect_out "^weights of raw.safetensors$"
expect_out "^  dense_3/bias +5  the file's values$"
must_run eval runs/a --json a.json
must_run eval runs/b --json b.json
python3 -c '
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert a["loss"] == b["loss"], (a, b)' || failed "the two evaluations"
fails 1 "raw.safetensors: dense_2/weight has shape \[16, 8\], this network wants \[16, 9\]; .*: --reinitialize 'dense_2/\*,dense_3/\*' leaves those new" \
  -n 2 train --data data --optimizer sgd --hidden 16,9 --batch 20 --steps 1 --initialize-from raw.safetensors --run runs/c

check "what is there already stays"
cp raw.safetensors precious
for words in "export runs/a --format safetensors" "export runs/a --format onnx" "import raw.safetensors"; do
  # shellcheck disable=SC2086  # words
  fails 1 "precious: is there already: give --force to replace it" $words --out precious
  expect cmp raw.safetensors precious
done
succeeds export runs/a --format safetensors --out precious --force
expect cmp raw.safetensors precious
fails 1 "runs: is a folder: name a file" export runs/a --format safetensors --out runs
fails 1 "no/such/folder/x: cannot be written: No such file or directory" export runs/a --format safetensors --out no/such/folder/x

check "usage"
fails 2 "--format.*the end of --out does not say which" export runs/a --out weights
fails 2 "--format: npz is not one of onnx and safetensors" export runs/a --format npz --out a.onnx
fails 2 "--out" export runs/a --format onnx
fails 2 "--run" export --out a.onnx
must_run train --data data --optimizer sgd --hidden 8 --steps 1 --progress off --run runs/plain
fails 2 "--weights average: the run kept no average of its weights" export runs/plain --weights average --out a.onnx
expect_no_file a.onnx
fails 1 "nowhere: no such checkpoint" export nowhere --out a.onnx
fails 2 "--out" import raw.safetensors

check "GPT-2"
cat >gpt2.py <<'END'
import json, struct, sys
import numpy
def save(file, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "float64": "F64", "bool": "BOOL"}[str(values.dtype)]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    open(file, "wb").write(struct.pack("<Q", len(text)) + text + data)
random = numpy.random.default_rng(5)
vocabulary, width, context, layers = 30, 64, 8, 2
number = lambda *shape: (random.normal(size=shape) * 0.2).astype(numpy.float32)
tensors = {"wte.weight": number(vocabulary, width), "wpe.weight": number(context, width),
           "ln_f.weight": 1 + number(width), "ln_f.bias": number(width)}
for i in range(layers):
    for norm in "ln_1", "ln_2":
        tensors[f"h.{i}.{norm}.weight"], tensors[f"h.{i}.{norm}.bias"] = 1 + number(width), number(width)
    for name, inputs, outputs in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)):
        tensors[f"h.{i}.{name}.weight"] = number(inputs * width, outputs * width)
        tensors[f"h.{i}.{name}.bias"] = number(outputs * width)
    tensors[f"h.{i}.attn.bias"] = numpy.tril(numpy.ones((1, 1, context, context), bool))
save("gpt2.safetensors", tensors)
long = {"transformer." + name: values for name, values in tensors.items()}
save("tied.safetensors", {**long, "lm_head.weight": tensors["wte.weight"]})
save("untied.safetensors", {**long, "lm_head.weight": number(vocabulary, width)})
save("half.safetensors", {name: v if v.dtype == bool else v.astype(numpy.float16) for name, v in tensors.items()})
save("double.safetensors", {**tensors, "wpe.weight": tensors["wpe.weight"].astype(float)})
save("odd.safetensors", {**tensors, "h.0.attn.rotary": number(3)})
save("missing.safetensors", {name: values for name, values in tensors.items() if name != "h.1.mlp.c_fc.bias"})
def norm(x, name):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / numpy.sqrt(variance + 1e-5) * tensors[name + ".weight"] + tensors[name + ".bias"]
def linear(x, name): return x @ tensors[name + ".weight"].astype(float) + tensors[name + ".bias"]
def logits(tokens, heads=1):
    x = tensors["wte.weight"][tokens].astype(float) + tensors["wpe.weight"][:len(tokens)]
    for i in range(layers):
        q, k, v = (part.reshape(len(tokens), heads, -1).swapaxes(0, 1)
                   for part in numpy.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, axis=-1))
        scores = q @ k.swapaxes(1, 2) / numpy.sqrt(width / heads)
        scores[:, numpy.triu(numpy.ones((len(tokens), len(tokens)), bool), 1)] = -numpy.inf
        shares = numpy.exp(scores - scores.max(-1, keepdims=True))
        attended = (shares / shares.sum(-1, keepdims=True)) @ v
        x = x + linear(attended.swapaxes(0, 1).reshape(len(tokens), width), f"h.{i}.attn.c_proj")
        h = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        h = 0.5 * h * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (h + 0.044715 * h ** 3)))
        x = x + linear(h, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ tensors["wte.weight"].T
corpus = random.integers(0, vocabulary, 8 * 12 + 1)
losses = []
for begin in range(0, 96, 8):
    y = logits(corpus[begin:begin + 8])
    largest = y.max(-1)
    losses.append((largest + numpy.log(numpy.exp(y - largest[:, None]).sum(-1)) - y[range(8), corpus[begin + 1:begin + 9]]).mean())
json.dump(losses, open("losses.json", "w"))
head = numpy.zeros(256, "<i4")
head[:3] = 20240520, 1, len(corpus)
open("tokens.bin", "wb").write(head.tobytes() + corpus.astype("<u2").tobytes())
END
python3 gpt2.py || failed "the files of the test"
succeeds import gpt2.safetensors --out gpt2.h5
expect_silence
expect_out "^gpt2.safetensors: 28 tensors, written to gpt2.h5 \(gpt 2x64 heads 1 vocabulary 30 context 8, "
must_run pack --format tokens --x tokens.bin --vocabulary 30 --out corpus
succeeds eval gpt2.h5 --data corpus --json gpt2.json
python3 -c '
import json
told, windows = json.loads(open("gpt2.json").readlines()[-1]), json.load(open("losses.json"))
windows = windows[:told["samples"]]
assert len(windows) >= 11 and abs(told["loss"] - sum(windows) / len(windows)) < 1e-4, (told, windows)' || failed "the loss"
succeeds import tied.safetensors --out tied.h5
must_run export gpt2.h5 --out first.safetensors
must_run export tied.h5 --out second.safetensors
expect cmp first.safetensors second.safetensors
succeeds import first.safetensors --out third.h5
must_run export third.h5 --out third.safetensors
expect cmp first.safetensors third.safetensors
succeeds import untied.safetensors --out untied.h5
expect_out "30 tensors.* untied"
succeeds import half.safetensors --out half.h5
succeeds import gpt2.safetensors --heads 4 --out heads.h5
expect_out "heads 4"
succeeds train --data corpus --model gpt --layers 2 --width 64 --heads 1 --context 8 --batch 4 --steps 1 --initialize-from tied.safetensors --progress off --run runs/gpt
expect_out "^  block_2/attention/joint/weight +64 x 192  the file's values$"

check "config.json beside GPT-2's tensors tells the heads, and what this program cannot compute is refused"
config() { mkdir -p hf; cp gpt2.safetensors hf/model.safetensors; echo "{\"model_type\": \"gpt2\", \"n_head\": 4$1}" >hf/config.json; }
config ', "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "scale_attn_weights": true'
succeeds import hf/model.safetensors --out told.h5
expect_out "heads 4"
must_run export heads.h5 --out heads.safetensors
must_run export told.h5 --out told.safetensors
expect cmp heads.safetensors told.safetensors
succeeds -n 2 train --data corpus --batch 4 --steps 1 --initialize-from hf/model.safetensors --progress off --run runs/told
expect_out "64, 4 heads of 16"
fails 2 "--heads 2: hf/config.json says n_head 4: leave --heads out" import hf/model.safetensors --heads 2 --out x.h5
gpt=(--data corpus --model gpt --layers 2 --width 64 --context 8 --batch 4 --steps 1 --progress off)
fails 1 "--heads 2: hf/config.json says n_head 4: leave --heads out" -n 2 train "${gpt[@]}" --heads 2 --initialize-from hf/model.safetensors --run runs/x
succeeds -n 2 train "${gpt[@]}" --heads 2 --initialize-from gpt2.safetensors --run runs/two-heads
expect_out "64, 2 heads of 32"
while IFS='|' read -r setting said; do
  config ", $setting"
  fails 1 "hf/config.json: $said" import hf/model.safetensors --out x.h5
  fails 1 "hf/config.json: $said" -n 2 train --data corpus --steps 1 --initialize-from hf/model.safetensors --run runs/x
done <<'END'
"layer_norm_epsilon": 0.01|layer_norm_epsilon is 0.01, and --model gpt computes with 1e-05
"activation_function": "gelu"|activation_function is "gelu", and --model gpt computes with gelu_new
"scale_attn_by_inverse_layer_idx": true|scale_attn_by_inverse_layer_idx is true
"scale_attn_weights": false|scale_attn_weights is false
"n_head": 0|n_head is no number of attention heads
END
echo '{' >hf/config.json
fails 1 "hf/config.json: it is no JSON" import hf/model.safetensors --out x.h5
succeeds train --data corpus --batch 4 --steps 1 --initialize-from tied.safetensors --progress off --run runs/alone
expect_out "64, 1 heads of 64"
fails 1 "--reinitialize 'embedding/positions' leaves" \
  train --data corpus --model gpt --context 4 --steps 1 --initialize-from tied.safetensors --run runs/x

check "files that are none, damaged, or of other networks"
fails 2 "gpt2.safetensors: give --heads, which the tensors do not tell: they must divide the width, 64" import gpt2.safetensors --heads 5 --out x.h5
fails 1 "double.safetensors: wpe.weight is of type F64: F32, F16 and BF16 are read" import double.safetensors --out x.h5
fails 1 "odd.safetensors: h.0.attn.rotary is no tensor of GPT-2" import odd.safetensors --out x.h5
fails 1 "missing.safetensors: it has no block_2/feed_forward/expand/bias, which its network needs" import missing.safetensors --out x.h5
echo '{"weight_map": {}}' >parts.safetensors.index.json
fails 1 "parts.safetensors.index.json: is the index of a model in several files: save the model in one" import parts.safetensors.index.json --out x.h5
head -c 3000 gpt2.safetensors >cut.safetensors
fails 1 "cut.safetensors: is no sound safetensors file: .* it is cut off" import cut.safetensors --out x.h5
fails 1 "gpt2.h5: is no safetensors file" import gpt2.h5 --out x.h5
fails 1 "raw.safetensors: it has no wte.weight" import raw.safetensors --format gpt2-safetensors --out x.h5
fails 1 "gpt2.safetensors: it does not say what network its tensors belong to" import gpt2.safetensors --format safetensors --out x.h5
sed 's/hidden = 16,8/hidden = 16,9/' raw.safetensors >other.safetensors
fails 1 "other.safetensors: dense_2/weight has shape \[16, 8\], and its network wants \[16, 9\]" import other.safetensors --out x.h5
sed 's/hidden = 16,8/hidden = 99999/' raw.safetensors >large.safetensors
fails 1 "large.safetensors: is no sound safetensors file|large.safetensors: its metadata tells of a network that is larger" \
  import large.safetensors --out x.h5
fails 1 "cannot read nowhere: No such file" import nowhere --out x.h5
fails 1 "cut.safetensors: is no sound safetensors file" \
  -n 2 train --data data --optimizer sgd --hidden 16,8 --steps 1 --initialize-from cut.safetensors --run runs/d
expect_no_file x.h5

check "a full disk leaves nothing"
mkdir disk
if mount -t tmpfs -o size=64k none disk 2>/dev/null; then
  for words in "export gpt2.h5 --format safetensors" "export gpt2.h5 --format onnx" "import gpt2.safetensors"; do
    # shellcheck disable=SC2086  # words
    fails 1 "disk/x.* (No space left on device|no space).*needed" $words --out disk/x
    [ -z "$(ls -A disk)" ] || failed "left behind: $(ls -A disk)"
  done
  umount disk
else
  echo "not run: no right to mount a small tmpfs"
fi
