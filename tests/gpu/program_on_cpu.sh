#!/usr/bin/env bash
# Whole runs of lockstep on one to four ranks whose GPUs, cuBLASLt and NCCL are the stand-ins of tests/support: the
# CPU's losses, the same bits recorded and plain, and states that travel between devices. A fault that the stand-ins
# find (a missing event, a late reuse, a call that a capture does not allow) ends a run with 97.
. "$(dirname "$0")/../cli/harness.sh"
export LOCKSTEP_ORDER=${LOCKSTEP_ORDER:-$RANDOM} OMPI_MCA_mpi_yield_when_idle=1
echo "order of streams: LOCKSTEP_ORDER=$LOCKSTEP_ORDER"
pack_small data/train
make_images_and_text

mlp="--data data --hidden 33,20 --activation tanh --optimizer adam --learning-rate 0.003 --average-decay 0.9 --clip-norm 1 --l2 0.001"
cnn="--model cnn --data images.h5 --augment crop=16,flip --learning-rate 0.01"
resnet="--model resnet --depth 20 --data images.h5 --augment pad=2,crop=16,flip --learning-rate 0.02 --sync-batch-norm"
lstm="--model lstm --data text --layers 2 --hidden 16 --unroll 6 --dropout 0.2 --learning-rate 0.5"
gpt="--model gpt --data text --layers 2 --width 16 --heads 2 --context 12 --dropout 0.1"
printf '%s\n' 'name: field' 'network:' '- conv: {channels: 5, kernel: 3, activation: gelu}' '- upsample: 2' '- conv: {channels: $outputs, kernel: 3}' >field.yaml
python3 -c "
import h5py, numpy as np
x = np.random.default_rng(4).normal(size=(30, 7, 6, 3)).astype('f4')
with h5py.File('field.h5', 'w') as f: f['x'], f['y'] = x, x.repeat(2, 1).repeat(2, 2)[..., :2] * [1e-3, 700] + [0, 9e4]"
field="--model field.yaml --data field.h5 --learning-rate 0.05"
usual="--global-batch 12 --report-every 1 --evaluate-every -1 --checkpoint-every 4 --seed 3 --progress off --no-tensorboard"
on_gpu="--device gpu --precision fp32"
# trained RUN RANKS OPTION...
trained() {
  local folder=$1 ranks=$2
  shift 2
  rm -rf "$folder"
  run -n "$ranks" train $usual --steps 8 "$@" --run "$folder"
  expect_status 0
}
# close A B TOLERANCE: compares the losses of all steps, relatively; to ten times as much the gradient norms and, if
# both runs share a folder, the last checkpoint's weights; 0: the same bits.
close() {
  python3 - "$@" "$(newest_checkpoint "$1")" "$(newest_checkpoint "$2")" <<'END' || failed "$1 and $2 differ"
import h5py, json, numpy as np, sys
a, b, tolerance, file_a, file_b = sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]
def curve(folder):
    steps = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
    return {s["step"]: (s["loss"], s["gradient_norm"]) for s in steps if s["kind"] == "train"}
def weights(file):
    found, whole = {}, h5py.File(file)
    if "parameters" in whole:
        whole["parameters"].visititems(lambda k, v: found.update({k: v[...].astype(float)}) if isinstance(v, h5py.Dataset) else None)
    return found
x, y, v, w = curve(a), curve(b), weights(file_a), weights(file_b)
assert len(x) == 8 and x.keys() == y.keys(), (x.keys(), y.keys())
assert w and (not v or v.keys() == w.keys()) and file_a.split("/")[-1] == file_b.split("/")[-1]
loss = max(abs(x[s][0] / y[s][0] - 1) for s in x)
norm = max(abs(x[s][1] / y[s][1] - 1) for s in x)
moved = np.sqrt(sum(((v[k] - w[k]) ** 2).sum() for k in v)) / np.sqrt(sum((w[k] ** 2).sum() for k in w))
print(f"{a} {b}: loss {loss:.1e}, norm {norm:.1e}, weights {moved:.1e}")
sys.exit(not (loss <= tolerance and norm <= 10 * tolerance and moved <= 10 * tolerance))
END
}

for network in $(share 1 3 gpt resnet lstm field mlp cnn); do
  check "$network: the CPU's curve on two ranks, recorded and plain"
  trained cpu 2 ${!network} --device cpu
  trained gpu 2 ${!network} $on_gpu
  expect_out 'a GPU on the CPU'
  close gpu cpu 1e-6
  trained plain 2 ${!network} $on_gpu --no-graph
  close gpu plain 0
done

in_short_form && exit
check "lstm: layers side by side have the same bits in any order of their streams, on one rank and on two"
trained cpu 1 $lstm --device cpu
for ranks in $(some 1 2 1); do
  trained gpu $ranks $lstm $on_gpu
  close gpu cpu 1e-6
  LOCKSTEP_ORDER=$((LOCKSTEP_ORDER + 1)) trained other $ranks $lstm $on_gpu --no-graph
  close gpu other 0
done

check "gpt: the CPU's curve on one rank and on three, with small buckets, an optimiser in parts, and two micro-steps"
trained cpu 1 $gpt --device cpu
trained one 1 $gpt $on_gpu
close one cpu 1e-6
trained three 3 $gpt $on_gpu --bucket-size 3000
close three cpu 1e-6
trained parts 3 $gpt $on_gpu --bucket-size 3000 --shard-optimizer --accumulate 2
close parts cpu 1e-6

check "gpt: where cuBLASLt refuses all that it proposes, other kernels make the same curve, and the run says so"
for precision in fp32 bf16; do
  [ $precision = fp32 ] && tolerance=1e-6 || tolerance=1e-2
  trained usual 1 $gpt --device gpu --precision $precision
  ! grep -q 'cuBLASLt refuses' out err || failed "refusals without a fault"
  LOCKSTEP_PLANT=refusals trained refused 1 $gpt --device gpu --precision $precision
  grep -q 'cuBLASLt refuses .* a product .*: a simple, slow kernel computes it' out err || failed "no word of refusals"
  close refused usual $tolerance
done

check "a checkpoint goes on where another device left it"
trained cpu 2 $mlp --device cpu
for first in $(some 1 gpu cpu); do
  [ $first = cpu ] && { here="--device cpu" there=$on_gpu; } || { here=$on_gpu there="--device cpu"; }
  rm -rf moved
  run -n 2 train $usual $mlp --steps 4 $here --run moved; expect_status 0
  run -n 3 train --resume --run moved --steps 8 $there; expect_status 0; expect_out 'continuing after step 4'
  close moved cpu 1e-6
done

check "a step that is not finite: the CPU's words, checkpoints and return"
comes_apart="--data data --hidden 16 --optimizer momentum --learning-rate 1e30"
for back in "" "--roll-back 1 --roll-back-factor 1e-31"; do
  for way in cpu gpu plain; do
    case $way in cpu) device="--device cpu" ;; gpu) device=$on_gpu ;; *) device="$on_gpu --no-graph" ;; esac
    rm -rf apart
    run -n 2 train $usual --steps 8 $comes_apart $back $device --run apart
    { echo "$status"; own_words | grep -oE 'step [0-9]+: .* is not finite: .* were not touched'; ls apart/checkpoints; } >$way.said
  done
  grep -q 'not finite' cpu.said && cmp cpu.said gpu.said && cmp cpu.said plain.said || failed "not alike: $(cat ./*.said)"
done

check "a leap of the loss is left behind as on the CPU"
leaps="--data data --optimizer sgd --hidden 16 --global-batch 40 --schedule step --boundaries 60 --decay-rate 300 --steps 100 --checkpoint-every 5
  --keep 50 --seed 3 --progress off --no-tensorboard --roll-back 1 --roll-back-factor 0.003"
for device in cpu gpu; do
  rm -rf leaps
  run -n 2 train $leaps --learning-rate 0.1 --device $device --precision fp32 --run leaps
  expect_status 0
  { own_words | grep -o 'step [0-9]*: the loss leaps'; grep -o '"kind":"roll_back","step":[0-9]*' leaps/metrics.jsonl; ls leaps/checkpoints; } >$device.said
done
grep -q 'leaps' cpu.said && cmp cpu.said gpu.said || failed "not alike: $(cat cpu.said gpu.said)"

check "layers frozen above trained ones, on three ranks, the optimiser in parts, too"
frozen="--learning-rate 0.01 --freeze block_2/attention/*,norm/shift"
trained cpu 1 $gpt --device cpu $frozen
expect_out 'frozen: block_2/attention'
trained three 3 $gpt $on_gpu $frozen --bucket-size 3000
close three cpu 1e-6
trained parts 3 $gpt $on_gpu $frozen --bucket-size 3000 --shard-optimizer
close parts cpu 1e-6

check "bf16, on the wire, too"
trained wire 2 $gpt --device gpu --precision bf16 --wire bf16
close wire one 1e-3
trained plain 2 $gpt --device gpu --precision bf16 --wire bf16 --no-graph
close wire plain 0

check "--reproducible: the same file on other numbers of ranks, recorded and plain"
# reproduced NAME RANKS OPTION...: leaves the last checkpoint in NAME.h5; the run's folder is part of it.
reproduced() {
  local name=$1 ranks=$2
  shift 2
  rm -rf here
  run -n "$ranks" train $usual --steps 6 $on_gpu "$@" --run here
  expect_status 0
  cp "$(newest_checkpoint here)" "$name.h5"
}
for network in $(some 1 cnn mlp); do
  reproduced one 1 ${!network}
  reproduced three 3 ${!network}
  ! cmp -s one.h5 three.h5 || failed "$network: nothing to show: the bytes are the same anyway"
  reproduced one 1 ${!network} --reproducible --virtual-ranks 5 --bucket-size 3000
  for n in $(some 1 3 2 4); do
    reproduced many $n ${!network} --reproducible --virtual-ranks 5 --bucket-size 3000
    cmp one.h5 many.h5 || failed "$network on $n ranks"
  done
done
if in_long_form; then
  reproduced one 1 $mlp --reproducible --virtual-ranks 5 --no-graph
  reproduced many 4 $mlp --reproducible --virtual-ranks 5 --no-graph
  cmp one.h5 many.h5 || failed "plain on 4 ranks"
fi
run -n 2 train $usual --steps 6 $mlp $on_gpu --reproducible --tune --run here
expect_error 2 '--reproducible does not go with --tune'

check "missing events are found"
for network in gpt lstm; do
  rm -rf planted
  LOCKSTEP_PLANT=events run -n 2 train $usual --steps 3 ${!network} $on_gpu --no-graph --run planted
  [ "$status" != 0 ] || failed "nobody misses them"
  expect_err 'found on the stand-ins: a missing event'
done
expect_err 'found on the stand-ins: a missing event: lstm_'
