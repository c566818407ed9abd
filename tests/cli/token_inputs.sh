#!/usr/bin/env bash
# Inputs of whole numbers that a network reads through an embedding, beside numbers and alone: packed or not, in fp32 and bf16, on ranks,
# resumed, evaluated, predicted, exported. Tokens outside the vocabulary end every rank with one sentence.
# label: more
# seconds: 150
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(7)
value = np.random.default_rng(1).normal(size=1000)
def make(name, n, seed):
    r = np.random.default_rng(seed)
    ids, table = r.integers(300, 1000, size=(n, 6)), (r.normal(size=(n, 3)) * 9 + 50).astype("f4")
    # Neighbours of a token mean something else: numbers that bfloat16 rounds, or that are scaled, teach nothing.
    y = (value[ids] > 0).sum(1) + 2 * (table[:, 0] - 50) / 9
    fields = dict(ids=ids.astype("i8"), table=table, y=y.astype("f4"), label=(value[ids[:, 0]] > 0).astype("i4"))
    with h5py.File(name + ".h5", "w") as f:
        for key, values in fields.items(): f[key] = values
    np.savez(name + ".npz", **fields)
make("train", 4000, 1)
make("test", 400, 2)
def change(name, **changes):
    with h5py.File("test.h5") as f, h5py.File(name, "w") as g:
        for key in f:
            values = f[key][:].astype("f8" if key == "ids" else f[key].dtype)
            if key == "ids": values[7, 2] = changes["to"]
            g[key] = values
change("large.h5", to=1003)
change("below.h5", to=-1)
change("half.h5", to=400.5)
END
python3 data.py || exit 1
network() { printf '%s\n' "name: $1" "${@:2}" >"$1.yaml"; }
network beside 'inputs: {ids: [any], table: [any]}' 'training: {optimizer: adam, learning-rate: 0.01, batch: 64}' 'network:' \
  '- embedding: {vocabulary: 1000, width: 8, from: ids, name: words}' '- flatten: {name: text}' \
  '- concatenate: {from: [text, table]}' '- dense: {units: 32, activation: relu}' '- dense: $outputs'
network alone 'inputs: {ids: [any]}' 'training: {optimizer: adam, learning-rate: 0.01, batch: 64}' 'network:' \
  '- embedding: {vocabulary: 1000, width: 8, positions: true}' '- flatten' '- dense: $outputs'
network steps 'inputs: {ids: [any], table: [any]}' 'network:' '- embedding: {vocabulary: 1000, width: 8, from: ids}' \
  '- dense: 24' '- attention: {heads: 2, causal: false}' '- gru: {units: 8, steps: last, name: read}' '- concatenate: {from: [read, table]}' '- dense: $outputs'
common=(--no-tensorboard --progress off --seed 2)
must_run pack --x train.h5 --x-name ids,table --y-name y --out packed
must_run pack --x test.h5 --x-name ids,table --y-name y --out packed-test

loss_of() { metric "$1" validation loss | tail -n 1 | awk '{ print $2 }'; }
learns() { loss_of "$1" | awk -v most="$2" '{ exit !($1 < most) }' || failed "a loss of $(loss_of "$1")"; }

check "tokens beside numbers are learnt, packed or not, in fp32 and in bf16"
succeeds train packed --validation packed-test --model beside.yaml --epochs 8 "${common[@]}" --run runs/packed
expect_silence; learns runs/packed 0.05
succeeds train train.h5 --validation test.h5 --x ids,table --y y --model beside.yaml --epochs 8 "${common[@]}" --run runs/files
expect_silence
expect_same <(metric runs/packed validation loss) <(metric runs/files validation loss)
succeeds train packed --validation packed-test --model beside.yaml --epochs 8 --precision bf16 --bf16-unit emulated-avx512 "${common[@]}" --run runs/bf16
learns runs/bf16 0.08

check "all numbers of ranks give one run, and a resumed one is the same"
for n in 1 3; do
  succeeds -n $n train packed --validation packed-test --model beside.yaml --epochs 2 --global-batch 64 --reproducible --report-every 1 "${common[@]}" --run runs/on$n
done
expect_same <(metric runs/on1 train loss) <(metric runs/on3 train loss)
succeeds -n 2 train packed --validation packed-test --model beside.yaml --epochs 1 --global-batch 64 --reproducible "${common[@]}" --run runs/half
succeeds -n 2 train --resume --run runs/half --epochs 2
expect_same <(metric runs/on1 validation loss | tail -n 1) <(metric runs/half validation loss | tail -n 1)

check "eval, predict and export know the tokens"
succeeds -n 2 eval runs/packed
succeeds predict runs/packed --data test.h5 --out p.h5 --csv p.csv
expect_silence
python3 - <<'END' >out 2>err || failed "predictions are others"
import h5py, numpy as np
with h5py.File("test.h5") as f, h5py.File("p.h5") as p:
    error = ((p["scores"][:, 0] - f["y"][:]) ** 2).mean()
assert error < 0.2, error
END
succeeds export runs/packed --format onnx --out beside.onnx
if peer=$(peer_python onnxruntime h5py numpy); then
  "$peer" - <<'END' >out 2>err || failed "onnxruntime computes something else"
import h5py, numpy, onnxruntime
session = onnxruntime.InferenceSession("beside.onnx")
assert [(i.name, i.type) for i in session.get_inputs()] == [("ids", "tensor(int64)"), ("table", "tensor(float)")]
with h5py.File("test.h5") as f, h5py.File("p.h5") as p:
    (got,) = session.run(["predictions"], {"ids": f["ids"][:], "table": f["table"][:]})
    assert abs(got - p["scores"][:]).max() < 1e-4
END
fi
fails 2 "the input ids takes an extent from the data" info beside.yaml --outputs 1
sed 's/ids: .any./ids: [6]/; s/table: .any./table: [3]/' beside.yaml >fixed.yaml
succeeds bench step --model fixed.yaml --regression --outputs 1 --batch 8 --repeat 1

check "tokens alone, with positions, and as labels"
succeeds train train.h5 --validation test.h5 --x ids --y label --model alone.yaml --epochs 6 "${common[@]}" --run runs/alone
expect_silence
metric runs/alone validation accuracy | tail -n 1 | awk '{ exit !($2 > 0.95) }' || failed "$(metric runs/alone validation accuracy)"
run train train.npz --validation test.npz --x ids --y label --model alone.yaml --epochs 1 "${common[@]}" --run runs/npz
[ "$status" = 0 ] || { must_run pack --x train.npz --x-name ids --y-name label --out npz
  must_run train npz --model alone.yaml --epochs 1 "${common[@]}" --run runs/npz; }
succeeds export runs/alone --format onnx --out alone.onnx

check "attention and recurrent layers read embedded inputs"
succeeds -n 2 train packed --validation packed-test --model steps.yaml --steps 30 --optimizer adam "${common[@]}" --run runs/steps

check "numbers that are no tokens: one sentence, on all ranks"
for n in 1 3; do
  for data in large below half; do
    case $data in
      large) words="ids holds 1003, and its embedding has the tokens 0 to 999: give the embedding a vocabulary of 1004 or more" ;;
      below) words="ids holds -1, and its embedding has the tokens 0 to 999: give padding and unknown words tokens of their own" ;;
      half) words="ids holds 400.5, and its embedding has the tokens 0 to 999: tokens are whole numbers" ;;
    esac
    fails 1 "$data.h5: $words" -n $n train $data.h5 --x ids,table --y y --model beside.yaml --steps 30 "${common[@]}" --run runs/no-$data$n
    fails 1 "$data.h5: $words" -n $n predict runs/packed --data $data.h5 --out no.h5
    [ $n = 3 ] || must_run pack --x $data.h5 --x-name ids,table --y-name y --out packed-$data
    run -n $n eval runs/packed --data packed-$data
    [ $data = half ] && expect_error 1 "packed-$data: $words" || expect_error 2 "packed-$data: $words"
  done
  fails 2 "packed-large: ids holds 1003" -n $n train packed --validation packed-large --model beside.yaml "${common[@]}" --run runs/no
done
fails 2 "--normalize" train train.h5 --x ids --y label --model alone.yaml --normalize standard "${common[@]}" --run runs/no
fails 2 "--normalize scales numbers, and the network reads tokens: leave it out" \
  train train.h5 --x ids --y label --model alone.yaml --normalize per-feature "${common[@]}" --run runs/no

check "the preflight finds them, too, before a job is wasted"
for n in 1 2; do
  for data in large half; do
    run -n $n check $data.h5 --x ids,table --y y --model beside.yaml --seconds 0.1
    [ "$status" = 1 ] || failed "status $status"
    expect_out "training refuses the data: $data.h5: ids holds"
  done
  succeeds -n $n check train.h5 --x ids,table --y y --model beside.yaml --seconds 0.1
  expect_out "; 4,000 samples read"
done

check "ids are not filled with means"
python3 - <<'END'
import h5py, numpy as np
with h5py.File("test.h5") as f, h5py.File("holes.h5", "w") as g:
    for key in f: g[key] = f[key][:]
    g["ids"][3, 1] = -9
    g["ids"].attrs["_FillValue"] = np.int64(-9)
    g["table"][5, 0] = -9
    g["table"].attrs["_FillValue"] = np.float32(-9)
END
fails 1 "holes.h5: ids holds whole numbers, which may be ids: a mean would mean nothing" \
  pack --x holes.h5 --x-name ids,table --y-name y --missing mean --out no
succeeds pack --x holes.h5 --x-name ids,table --y-name y --missing drop --out dropped
expect_out "2 of 400 samples miss a number and are left out"

check "an embedding reads an input"
network not 'inputs: {ids: [any], table: [any]}' 'network:' '- dense: {units: 4, from: table}' '- embedding: {vocabulary: 9, width: 2}' \
  '- flatten: {name: text}' '- concatenate: {from: [text, ids]}' '- dense: 1'
fails 2 "embedding_1 reads numbers, and embedding reads tokens: from: names an input of whole numbers" \
  train packed --model not.yaml "${common[@]}" --run runs/no
network big 'inputs: {ids: [any], table: [any]}' 'network:' '- embedding: {vocabulary: 20000000, width: 2, from: ids}' \
  '- flatten: {name: text}' '- concatenate: {from: [text, table]}' '- dense: 1'
fails 2 "has a vocabulary of 20000000; tokens among numbers have at most 16777216" train packed --model big.yaml "${common[@]}" --run runs/no
network tokens 'inputs: {ids: [any], table: [any]}' 'network:' '- tokens: {first: 0, count: 2, vocabulary: 3, from: ids}' \
  '- concatenate: {from: [ids, table]}' '- dense: 1'
fails 2 "tokens is no layer" train packed --model tokens.yaml "${common[@]}" --run runs/no
