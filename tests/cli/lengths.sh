#!/usr/bin/env bash
# Series of different lengths (`lengths:` in a network's file): nothing depends on what stands behind the end of a series, and recurrent layers,
# attention and pools compute what PyTorch does with packed sequences and key_padding_mask, forward and in training; on ranks, resumed,
# predicted, exported.
# label: more
# seconds: 200
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(5)
n, t = 120, 9
length = r.integers(1, t + 1, n)
length[:3] = 0, 1, t
series = r.normal(size=(n, t, 4)).astype("f4")
inside = np.arange(t) < length[:, None]
y = np.stack([(series[..., 0] * inside).sum(1), series[np.arange(n), np.maximum(length, 1) - 1, 1]], 1).astype("f4")
clean = series * inside[..., None]
for name, x in ("clean", clean), ("dirty", np.where(inside[..., None], series, 1000).astype("f4")):
    with h5py.File(name + ".h5", "w") as f: f["series"], f["length"], f["y"] = x, length.astype("i4"), y
for name, wrong in ("long", t + 1), ("negative", -1), ("half", 2.5):
    with h5py.File(name + ".h5", "w") as f:
        f["series"], f["y"] = clean, y
        f["length"] = np.where(np.arange(n) == 7, wrong, length).astype("f8" if name == "half" else "i4")
END
python3 data.py || exit 1
cat >read.yaml <<'END'
name: read
inputs: {series: [any, any], length: [any]}
training: {optimizer: sgd, learning-rate: 0.05}
network:
  - lstm: {from: series, units: 5, direction: both, lengths: length, name: first}
  - dense: {units: 24, name: joint}
  - attention: {heads: 2, causal: no, lengths: length, name: seen}
  - mean: {axis: 0, from: seen, lengths: length, name: mean}
  - global-max: {from: seen, lengths: length, name: most}
  - global-average: {from: first, lengths: length, name: average}
  - gru: {from: seen, units: 6, direction: both, steps: last, lengths: length, name: second}
  - lstm: {from: seen, units: 3, steps: last, lengths: length, name: third}
  - concatenate: {from: [mean, most, average, second, third]}
  - dense: {units: $outputs, name: head}
END
common=(--model read.yaml --x series,length --y y --normalize none --normalize-targets none --no-tensorboard --progress off --seed 3)

check "what stands behind the end of a series does not matter"
for data in clean dirty; do
  succeeds -n 2 train $data.h5 "${common[@]}" --global-batch 120 --steps 8 --report-every 1 --run runs/$data
  must_run predict runs/$data --data $data.h5 --out $data-out.h5
done
expect_same <(metric runs/clean train loss) <(metric runs/dirty train loss)
python3 -c '
import h5py
one, two = h5py.File("clean-out.h5")["scores"][:], h5py.File("dirty-out.h5")["scores"][:]
assert (one == two).all() and one.std() > 1e-3' 2>err || failed "predictions differ"

check "training and predictions are those of PyTorch"
must_run train clean.h5 "${common[@]}" --batch 120 --steps 1 --run runs/begin
must_run train clean.h5 "${common[@]}" --batch 120 --steps 6 --run runs/six
must_run predict runs/six --data clean.h5 --out six.h5
if peer=$(peer_python torch h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "PyTorch computes something else"
import h5py, numpy as np, torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
torch.set_default_dtype(torch.float64)
def weights(run):
    w = {}
    with h5py.File(run + "/checkpoints/latest") as f:
        f["parameters"].visititems(lambda key, item: w.__setitem__(key, torch.tensor(item[:].astype(float), requires_grad=True)) if isinstance(item, h5py.Dataset) else None)
    return w
with h5py.File("clean.h5") as f: x, lengths, y = torch.tensor(f["series"][:].astype(float)), torch.tensor(f["length"][:].astype(int)), torch.tensor(f["y"][:].astype(float))
some = lengths > 0  # PyTorch packs no series without steps
def recurrent(w, x, kind, name, units, both):
    net = getattr(torch.nn, kind)(x.shape[-1], units, batch_first=True, bidirectional=both)
    state = {}
    for part, suffix in (("/forward", ""), ("/backward", "_reverse")) if both else (("", ""),):
        base = name + part
        bias = w[base + "/bias"]
        state["weight_ih_l0" + suffix], state["weight_hh_l0" + suffix] = w[base + "/input"].T, w[base + "/recurrent"].T
        state["bias_ih_l0" + suffix] = bias
        state["bias_hh_l0" + suffix] = w.get(base + "/recurrent-bias", torch.zeros_like(bias))
    packed = pack_padded_sequence(x[some], lengths[some], batch_first=True, enforce_sorted=False)
    out, last = torch.func.functional_call(net, state, (packed,))
    out = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]
    last = (last[0] if kind == "LSTM" else last).transpose(0, 1).reshape(int(some.sum()), -1)
    return torch.zeros(len(x), *out.shape[1:]).index_put((some.nonzero()[:, 0],), out), torch.zeros(len(x), last.shape[1]).index_put((some.nonzero()[:, 0],), last)
inside = torch.arange(x.shape[1]) < lengths[:, None]
def forward(w):
    first, _ = recurrent(w, x, "LSTM", "first", 5, True)
    q, k, v = ((first @ w["joint/weight"] + w["joint/bias"]).split(8, -1))
    heads = lambda a: a.reshape(len(x), -1, 2, 4).transpose(1, 2)
    scores = (heads(q) @ heads(k).transpose(2, 3) / 2).masked_fill(~inside[:, None, None], -torch.inf)
    seen = (torch.nan_to_num(scores.softmax(-1)) @ heads(v)).transpose(1, 2).reshape(len(x), -1, 8)
    count = lengths.clamp(min=1)[:, None]
    mean = lambda a: (a * inside[..., None]).sum(1) / count
    most = torch.where(some[:, None], seen.masked_fill(~inside[..., None], -torch.inf).amax(1), torch.zeros(()))
    parts = [mean(seen), most, mean(first), recurrent(w, seen, "GRU", "second", 6, True)[1], recurrent(w, seen, "LSTM", "third", 3, False)[1]]
    return torch.cat(parts, 1) @ w["head/weight"] + w["head/bias"]
w = weights("runs/begin")
for step in range(5):
    loss = ((forward(w) - y) ** 2).mean()
    grads = torch.autograd.grad(loss, list(w.values()))
    w = {key: (value - 0.05 * grad).detach().requires_grad_() for (key, value), grad in zip(w.items(), grads)}
ours = weights("runs/six")
worst = max(float((ours[key] - w[key]).abs().max()) for key in w)
assert set(ours) == set(w) and worst < 2e-5, worst
moved = max(float((ours[key] - value).abs().max()) for key, value in weights("runs/begin").items())
assert moved > 1e-2, moved
with h5py.File("six.h5") as f: got = torch.tensor(f["scores"][:].astype(float))
assert (got - forward(ours)).abs().max() < 1e-5
END
fi

check "the statistics of --normalize are those of the real steps"
scaled=(--model read.yaml --x series,length --y y --normalize per-feature --normalize-targets none --no-tensorboard --progress off --seed 3)
for n in 1 3; do
  for data in clean dirty; do
    succeeds -n $n train $data.h5 "${scaled[@]}" --global-batch 120 --steps 4 --report-every 1 --run runs/$data-scaled$n
  done
  expect_same <(metric runs/clean-scaled$n train loss) <(metric runs/dirty-scaled$n train loss)
done
python3 - <<'END' 2>err || failed "the scale"
import h5py, json, numpy as np
with h5py.File("dirty.h5") as f: x, length = f["series"][:].astype(float), f["length"][:]
real = x[np.arange(x.shape[1]) < length[:, None]]
with h5py.File("runs/dirty-scaled3/checkpoints/latest") as f: scale = json.loads(bytes(f["state/data_description"][:]))["feature_scale"]
assert np.allclose(scale["mean"], [*real.mean(0), 0]) and np.allclose(scale["deviation"], [*real.std(0), 1]), scale
END

check "all numbers of ranks give one run, and a resumed one is the same"
for n in 1 3; do
  succeeds -n $n train dirty.h5 "${common[@]}" --validation 0.25 --global-batch 30 --epochs 3 --reproducible --run runs/on$n
done
expect_same <(metric runs/on1 train loss) <(metric runs/on3 train loss)
succeeds -n 2 train dirty.h5 "${common[@]}" --validation 0.25 --global-batch 30 --epochs 1 --reproducible --run runs/half
succeeds -n 2 train --resume --run runs/half --epochs 3
expect_same <(metric runs/on1 validation loss | tail -n 1) <(metric runs/half validation loss | tail -n 1)
succeeds train dirty.h5 "${common[@]}" --steps 3 --precision bf16 --bf16-unit emulated-amx --run runs/bf16
must_run pack --x dirty.h5 --x-name series,length --y-name y --out packed
succeeds eval runs/six --data packed

check "tokens of different lengths, packed as bytes"
python3 - <<'END' || exit 1
import numpy as np
r = np.random.default_rng(6)
ids, length = r.integers(0, 5, (60, 7)).astype("u1"), r.integers(0, 8, 60).astype("u1")
y = np.where(np.arange(7) < length[:, None], ids, 0).sum(1).astype("f4")
for name, behind in ("ends", 0), ("fills", 4): np.savez(name, ids=np.where(np.arange(7) < length[:, None], ids, behind).astype("u1"), length=length, y=y)
END
cat >words.yaml <<'END'
name: words
inputs: {ids: [any], length: [any]}
network:
  - embedding: {vocabulary: 5, width: 4, from: ids}
  - gru: {units: 6, steps: last, lengths: length}
  - dense: $outputs
END
for data in ends fills; do
  must_run pack $data.npz --x-name ids,length --out $data
  succeeds train $data --model words.yaml --steps 5 --batch 20 --seed 3 --no-tensorboard --progress off --report-every 1 --run runs/$data
  expect_out "^input: 7 tokens$"; expect_no_out "normalisation"
done
expect_same <(metric runs/ends train loss) <(metric runs/fills train loss)
sed 's/vocabulary: 5/vocabulary: 4/' words.yaml >small.yaml
fails 1 "ids holds 4, and its embedding has the tokens 0 to 3" train ends --model small.yaml --steps 5 --batch 60 --run runs/no

check "the exported graph reads lengths, too"
succeeds export runs/six --out read.onnx
if peer=$(peer_python onnx onnxruntime h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "onnxruntime computes something else"
import h5py, onnx, onnxruntime
onnx.checker.check_model(onnx.load("read.onnx"), full_check=True)
session = onnxruntime.InferenceSession("read.onnx")
assert [(i.name, i.type) for i in session.get_inputs()] == [("series", "tensor(float)"), ("length", "tensor(int64)")], session.get_inputs()
with h5py.File("dirty.h5") as f, h5py.File("six.h5") as p:
    (got,) = session.run(["predictions"], {"series": f["series"][:], "length": f["length"][:].reshape(-1, *session.get_inputs()[1].shape[1:]).astype("i8")})
    assert abs(got - p["scores"][:]).max() < 1e-5, abs(got - p["scores"][:]).max()
END
fi

check "lengths that are none, on all ranks; layers that cannot have them"
for n in 1 3; do
  for data in long negative half; do
    case $data in long) held=10 ;; negative) held=-1 ;; half) held=2.5 ;; esac
    fails 1 "$data.h5: length holds $held, and the length of a series of 9 steps is a whole number from 0 to 9" \
      -n $n train $data.h5 "${common[@]}" --global-batch 120 --steps 3 --run runs/no-$data$n
  done
done
refused() {  # MESSAGE LAYER...
  printf '%s\n' 'name: no' 'inputs: {series: [any, any], length: [any]}' 'network:' "${@:2}" '- flatten' '- dense: $outputs' >no.yaml
  fails 2 "$1" train clean.h5 "${common[@]/read.yaml/no.yaml}" --steps 1 --run runs/no
}
refused "reads 5 steps, and lengths of up to 9" '- conv: {channels: 3, kernel: 2, stride: 2, from: series}' '- lstm: {units: 2, lengths: length}'
refused "lengths: the name of an input belongs here" '- lstm: {units: 2, from: series, lengths: series}' '- flatten: {from: length, name: l}' '- concatenate: {from: [lstm_1, l]}'
refused "a mean with lengths is that of the steps of a series" '- mean: {axis: 1, from: series, lengths: length}'
refused "does not take lengths" '- dense: {units: 2, from: series, lengths: length}'
