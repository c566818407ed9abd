#!/usr/bin/env bash
# Documents in a stream of tokens (--document-token): the loss of a window is that of its documents apart, in float64 NumPy, for attention,
# learnt positions and recurrent state; the same on ranks and resumed; generated text and exported graphs keep documents apart, too.
# label: more
# seconds: 150
. "$(dirname "$0")/harness.sh"

cat >corpus.py <<'END'
import random
random.seed(3)
for name, count in ("train", 400), ("test", 60):
    with open(name + ".txt", "w") as f:
        for _ in range(count):
            word = "".join(random.choice("abcdefgh") for _ in range(random.randint(1, 3)))
            f.write("#" + (word * 9)[:random.randint(1, 17)])
END
python3 corpus.py || exit 1
must_run pack --format text --tokenizer char --x train.txt --out text/train
must_run pack --format text --tokenizer char --vocabulary-from text/train --x test.txt --out text/test
cat >network.py <<'END'
import glob, h5py, json, sys
import numpy as np
text = json.load(open("text/train/manifest.json"))
def find(node):  # the tokens' texts, wherever the manifest has them
    if isinstance(node, dict): node = list(node.values())
    if isinstance(node, list):
        if node and all(isinstance(item, str) for item in node) and "#" in node: return node
        for item in node:
            if (found := find(item)) is not None: return found
letters = find(text)
separator = letters.index("#")
def weights(run):
    w = {}
    with h5py.File(run + "/checkpoints/best") as f:
        f["parameters"].visititems(lambda key, item: w.__setitem__(key, item[:].astype(float)) if isinstance(item, h5py.Dataset) else None)
    return w
def linear(w, x, layer): return x @ w[layer + "/weight"] + w[layer + "/bias"]
def norm(w, x, layer):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w[layer + "/scale"] + w[layer + "/shift"]
def gpt(w, tokens, layers=2, heads=2):
    x = w["embedding/tokens"][tokens] + w["embedding/positions"][:len(tokens)]
    for block in (f"block_{i + 1}" for i in range(layers)):
        q, k, v = (part.reshape(len(tokens), heads, -1).swapaxes(0, 1)
                   for part in np.split(linear(w, norm(w, x, block + "/norm_1"), block + "/attention/joint"), 3, -1))
        scores = np.where(np.tril(np.ones((len(tokens),) * 2, bool)), q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        x = x + linear(w, ((shares / shares.sum(-1, keepdims=True)) @ v).swapaxes(0, 1).reshape(x.shape), block + "/attention/output")
        h = linear(w, norm(w, x, block + "/norm_2"), block + "/feed_forward/expand")
        x = x + linear(w, 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3))), block + "/feed_forward/contract")
    return norm(w, x, "norm") @ w["embedding/tokens"].T
def apart(forward, w, tokens):
    """Each document alone; the window's first one may be a rest of one."""
    begins = [0] + [i for i in range(1, len(tokens)) if tokens[i] == separator] + [len(tokens)]
    return np.concatenate([forward(w, tokens[a:b]) for a, b in zip(begins, begins[1:])])
sigmoid = lambda x: 1 / (1 + np.exp(-x))
def recurrent(w, tokens, cell):
    x = w["embedding/tokens"][tokens]
    for layer in ("one", "two"):
        zeros = np.zeros(w[layer + "/recurrent"].shape[0])
        h, c, out = zeros, zeros, []
        for t in range(len(tokens)):
            h, c = cell(w, layer, x[t], h, c)
            out.append(h)
        x = np.array(out)
    return linear(w, x, "head")
def lstm(w, layer, x, h, c):
    i, f, g, o = np.split(x @ w[layer + "/input"] + h @ w[layer + "/recurrent"] + w[layer + "/bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c
def gru(w, layer, x, h, c):
    a, p = x @ w[layer + "/input"] + w[layer + "/bias"], h @ w[layer + "/recurrent"] + w[layer + "/recurrent-bias"]
    (ar, az, an), (pr, pz, pn) = np.split(a, 3), np.split(p, 3)
    z, n = sigmoid(az + pz), np.tanh(an + sigmoid(ar + pr) * pn)
    return n + z * (h - n), c
def nats(logits, targets):
    top = logits.max(-1, keepdims=True)
    return (top[:, 0] + np.log(np.exp(logits - top).sum(-1)) - logits[np.arange(len(targets)), targets])
def stream(name):
    lookup = {letter: i for i, letter in enumerate(letters)}
    return np.array([lookup[letter] for letter in open(name + ".txt").read()])
END
cat >losses.py <<'END'
from network import *
run, kind, context = sys.argv[1], sys.argv[2], int(sys.argv[3])
told = json.loads(open(sys.argv[4]).readlines()[-1])
w, tokens = weights(run), stream("test")
count = told["samples"]
forward = gpt if kind == "gpt" else lambda w, t: recurrent(w, t, lstm if kind == "lstm" else gru)
if kind == "gpt":
    windows = [(tokens[i * context:(i + 1) * context], tokens[i * context + 1:(i + 1) * context + 1]) for i in range(count)]
else:  # state goes on from window to window
    windows = [(tokens[:count * context], tokens[1:count * context + 1])]
want = np.concatenate([nats(apart(forward, w, x), y) for x, y in windows]).mean()
mixed = np.concatenate([nats(forward(w, x), y) for x, y in windows]).mean()
assert abs(told["loss"] - want) < 1e-5, (told["loss"], want, mixed)
assert abs(want - mixed) > 1e-3, "documents do not matter: nothing is tested"
END
cat >recurrent.py <<'END'
for kind in "lstm", "gru":
    print(f"""name: {kind}s
reads: tokens
window: unroll
options: {{unroll: {{default: 9, at-least: 1}}}}
network:
  - embedding: {{vocabulary: $vocabulary, width: 12, name: embedding}}
  - {kind}: {{units: 16, name: one}}
  - {kind}: {{units: 16, name: two}}
  - dense: {{units: $vocabulary, name: head}}""", file=open(kind + ".yaml", "w"))
END
python3 recurrent.py
id=$(python3 -c 'from network import *; print(separator)') || exit 1
plain=(--schedule constant --no-tensorboard --progress off --seed 4)
common=(--document-token "$id" "${plain[@]}")
gpt=(--model gpt --layers 2 --width 16 --heads 2 --context 24)

check "the loss of a window is that of its documents apart"
must_run train text/train --validation text/test "${gpt[@]}" --steps 120 --learning-rate 0.01 --batch 8 "${common[@]}" --run runs/gpt
for kind in lstm gru; do
  must_run train text/train --validation text/test --model $kind.yaml --steps 120 --batch 8 --learning-rate 0.5 "${common[@]}" --run runs/$kind
done
for kind in gpt lstm gru; do
  succeeds eval runs/$kind --data text/test --evaluation-batch 1 --json $kind.json
  expect_silence
  python3 losses.py runs/$kind $kind "$([ $kind = gpt ] && echo 24 || echo 9)" $kind.json 2>err || failed "the loss of $kind"
done
succeeds train --resume --run runs/gpt --steps 121 --dry-run
expect_out "24 positions of documents"

check "all numbers of ranks give one run, and a resumed one is the same"
for kind in gpt lstm; do
  network=("${gpt[@]}")
  [ $kind = gpt ] || network=(--model lstm.yaml)
  for n in 1 3; do
    succeeds -n $n train text/train --validation text/test "${network[@]}" --steps 12 --global-batch 6 --reproducible "${common[@]}" --run runs/$kind-on$n
  done
  expect_same <(metric runs/$kind-on1 train loss) <(metric runs/$kind-on3 train loss)
  succeeds -n 2 train text/train --validation text/test "${network[@]}" --steps 6 --global-batch 6 --reproducible "${common[@]}" --run runs/$kind-half
  succeeds -n 2 train --resume --run runs/$kind-half --steps 12
  expect_same <(metric runs/$kind-on1 validation loss | tail -n 1) <(metric runs/$kind-half validation loss | tail -n 1)
done
succeeds train text/train --validation text/test "${gpt[@]}" --steps 12 --precision bf16 --bf16-unit emulated-amx "${common[@]}" --run runs/bf16

check "text is written with documents apart, also where positions are computed anew alone"
succeeds generate runs/gpt --prompt "#abab#cd" --tokens 30 --temperature 0
cp out generated
python3 - <<'END' 2>err || failed "another text: $(cat generated)"
from network import *
w = weights("runs/gpt")
def written(forward):
    tokens = [letters.index(letter) for letter in "#abab#cd"]
    for _ in range(30): tokens.append(int(forward(w, np.array(tokens[-24:]))[-1].argmax()))
    return "".join(letters[token] for token in tokens)
got = open("generated").read().strip("\n").splitlines()[-1]
assert got == written(lambda w, t: apart(gpt, w, t)), (got, written(lambda w, t: apart(gpt, w, t)))
END

check "exported graphs keep documents apart, or are refused"
succeeds export runs/gpt --out gpt.onnx
if peer=$(peer_python onnx onnxruntime h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "onnxruntime computes something else"
from network import *
import onnx, onnxruntime
onnx.checker.check_model(onnx.load("gpt.onnx"), full_check=True)
session, w, tokens = onnxruntime.InferenceSession("gpt.onnx"), weights("runs/gpt"), stream("test")
for count, length in (3, 24), (2, 7), (1, 1):
    x = np.stack([tokens[5 * i:5 * i + length] for i in range(count)])
    (got,) = session.run(["logits"], {"tokens": x})
    want = np.stack([apart(gpt, w, row) for row in x])
    assert abs(got - want).max() < 1e-4, abs(got - want).max()
END
fi
fails 1 "ONNX's recurrent operators cannot begin anew within a sequence" export runs/lstm --out lstm.onnx

check "the text of a token means its number"
succeeds train text/train --validation text/test "${gpt[@]}" --steps 6 --batch 8 "${common[@]}" --run runs/number
succeeds train text/train --validation text/test "${gpt[@]}" --steps 6 --batch 8 "${plain[@]}" --document-token "#" --run runs/text
expect_out "documents begin with token $id, '#'"
expect_same <(metric runs/number validation loss) <(metric runs/text validation loss)
expect_same <(grep ^document-token runs/number/config.ini) <(grep ^document-token runs/text/config.ini)
succeeds train --resume --run runs/text --document-token "#" --steps 8
expect_no_out 'document-token'
refused="give the number of the token that begins each document"
fails 2 "--document-token #a: text/train has no single token with this text: $refused" train text/train "${gpt[@]}" --document-token "#a" --run runs/no
fails 2 "--document-token Z: text/train.* is not in the vocabulary.*: $refused" train text/train "${gpt[@]}" --document-token Z --run runs/no
fails 2 "--document-token #: only data with a vocabulary tell which token has this text" bench step "${gpt[@]}" --document-token "#"
check "the document token of another vocabulary is not taken over"
tr -d g <train.txt >other.txt && must_run pack --format text --tokenizer char --x other.txt --out other
fails 2 'other was made with another vocabulary .*--vocabulary-from' train other --initialize-from runs/number --steps 1 --run runs/no
fails 2 "other was made with another vocabulary .*document token is $id: give --document-token" \
  train other --initialize-from runs/number --reinitialize 'embedding/*' --steps 1 --run runs/no
succeeds train other --initialize-from runs/number --reinitialize 'embedding/*' --model gpt --document-token "#" --steps 1 --run runs/other

check "what --document-token cannot do is said"
fails 2 "--document-token 40: the tokens are 0 to " train text/train "${gpt[@]}" --document-token 40 --run runs/no
fails 2 "--document-token" train text/train "${gpt[@]}" --document-token -1 --run runs/no
printf '%s\n' 'name: mixed' 'reads: tokens' 'window: context' 'options: {context: 8}' 'network:' \
  '- embedding: {vocabulary: $vocabulary, width: 8, positions: yes}' '- multiply: {from: [embedding_1, embedding_1]}' '- attention: 1' '- dense: $vocabulary' >mixed.yaml
sed -i 's/- attention: 1/- dense: 24\n- attention: 1/' mixed.yaml
fails 2 "is a multiply, which mixes the documents that --document-token keeps apart" train text/train --model mixed.yaml "${common[@]}" --run runs/no
