#!/usr/bin/env bash
# Every network has the same curve at any number of ranks and the same bits after a resume; language models write text.
. "$(dirname "$0")/harness.sh"

python3 - <<'EOF' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
labels = r.integers(0, 4, 96)
x = r.integers(0, 60, (96, 18, 18, 3))
for i, label in enumerate(labels):  # a bright corner for each class
    x[i, 9 * (label // 2):9 * (label // 2) + 9, 9 * (label % 2):9 * (label % 2) + 9] += 120
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = x.astype(np.uint8), labels.astype(np.int32)
spoilt = x / np.float32(255)
spoilt[50, 3, 3, 0] = np.nan
with h5py.File("spoilt.h5", "w") as f:
    f["x"], f["y"] = spoilt.astype(np.float32), labels.astype(np.int32)
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
text = " ".join(words[i] for i in r.integers(0, 10, 1400))
open("corpus.txt", "w").write("\n".join(text[i:i + 60] for i in range(0, len(text), 60)) + "\n")
EOF
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.1

cnn="--model cnn --data images.h5 --validation images.h5 --augment crop=16,flip,brightness=30,contrast=0.5:1.5 --learning-rate 0.01 --decay-steps 100"
# (the usual learning rate is too large for so few images)
resnet="--model resnet --depth 20 --data images.h5 --validation images.h5 --augment pad=2,crop=16,flip --sync-batch-norm"
lstm="--model lstm --data text --layers 2 --hidden 16 --unroll 6 --dropout 0.2 --learning-rate 0.5"
gpt="--model gpt --data text --layers 2 --width 16 --heads 2 --context 12 --dropout 0.1"

for network in cnn resnet lstm gpt; do
  common="${!network} --global-batch 12 --evaluation-batch 8 --report-every 1 --no-tensorboard --seed 3"
  [ $network = resnet ] && common+=" --learning-rate 0.02"

  check "$network learns something on one rank"
  succeeds train $common --steps 10 --checkpoint-every 4 --keep 9 --run $network-1
  metric $network-1 train loss >curve.one
  [ "$(wc -l <curve.one)" = 10 ] || failed "10 steps expected"
  awk 'NR <= 3 { first += $2 } NR > 7 { last += $2 } END { exit !(last < first) }' curve.one ||
    failed "the loss does not fall: $(tr '\n' ' ' <curve.one)"

  for n in 2 4; do
    check "$network on $n ranks: the same curve"
    succeeds -n $n train $common --steps 10 --run $network-$n
    metric $network-$n train loss >curve
    expect_near curve.one curve 1e-4
  done

  check "$network in two micro-steps: the same curve"
  succeeds -n 2 train $common --steps 10 --accumulate 2 --run $network-accumulate
  metric $network-accumulate train loss >curve
  # Batch statistics belong to a micro-step: the curve differs there.
  [ $network = resnet ] || expect_near curve.one curve 1e-4

  check "$network resumes bit for bit, with the same evaluation"
  succeeds train $common --steps 10 --resume=$network-1/checkpoints/step-0000000004.h5 --run $network-again
  metric $network-again train loss >curve
  tail -n 6 curve.one | expect_same - curve
  metric $network-again validation loss | tail -n 1 >again
  metric $network-1 validation loss | tail -n 1 | expect_same - again

  check "$network: the same evaluation at any number of ranks"
  succeeds eval $network-1
  cp out alone
  for n in 2 3; do
    succeeds -n $n eval $network-1
    expect_same alone out
  done
done

check "batch norm without --sync-batch-norm takes each rank's own statistics: another curve, the same on all ranks"
succeeds -n 2 train ${resnet/--sync-batch-norm/} --learning-rate 0.02 --seed 3 --evaluation-batch 8 --global-batch 12 --steps 4 --report-every 1 --run own-statistics
metric own-statistics train loss >curve
metric resnet-2 train loss >synchronised
head -n 4 curve | cmp -s - <(head -n 4 synchronised) && failed "the curves should differ"

check "a rank that cannot read its samples leaves nobody waiting in synchronised sums"
run -n 2 train ${resnet/images.h5/spoilt.h5} --normalize none --learning-rate 0.02 --global-batch 12 --accumulate 2 --run spoilt
expect_status 1
expect_err "spoilt.h5.*(NaN|nan|finite)"

check "weights that explode under synchronised sums end the run on all ranks"
run -n 2 train $resnet --global-batch 12 --steps 400 --learning-rate 1e30 --schedule constant --optimizer sgd --run exploded
expect_status 1
expect_err "not finite"

check "a language model resumes at another number of ranks, its state with the sequences it belongs to"
succeeds -n 3 train $lstm --global-batch 12 --report-every 1 --no-tensorboard --seed 3 --evaluation-batch 8 --steps 10 \
  --resume=lstm-1/checkpoints/step-0000000004.h5 --run lstm-other
metric lstm-1 train loss >curve.one
{ head -n 4 curve.one; metric lstm-other train loss; } >curve
expect_near curve.one curve 1e-4

check "another global batch in the middle of an epoch are refused"
run train $lstm --global-batch 6 --seed 3 --steps 10 --resume=lstm-1/checkpoints/step-0000000004.h5 --run lstm-other
expect_status 1
expect_err "12 sequences.*give the --global-batch"

for network in lstm gpt; do
  check "generate: the same seed, the same text; $network"
  succeeds generate $network-1 --prompt "the " --tokens 40 --temperature 0.8 --top-k 5 --seed 9
  cp out first
  [ "$(head -c 4 first)" = "the " ] || failed "stdout does not begin with the text: $(head -n 1 first)"
  [ "$(tr -d '\n' <first | wc -c)" -ge 40 ] || failed "too short"
  run generate $network-1 --prompt "the " --tokens 40 --temperature 0.8 --top-k 5 --seed 9
  expect_same first out
  run generate $network-1 --prompt "the " --tokens 40 --temperature 0.8 --top-k 5 --seed 10
  cmp -s first out && failed "another seed should write another text"
done

check "language models report perplexity and bits per byte"
run eval gpt-1 --json eval.json
expect_out "perplexity .*bits per byte .* tokens"
grep -q '"perplexity":.*"bits_per_byte":' eval.json || failed "eval.json lacks them: $(cat eval.json)"

check "bits per byte of a validation count the bytes of its own text"
python3 -c 'print("a bc d " * 2000, "eeeeeeeeeeeeeee ffffffffff " * 300)' >ab.txt
must_run pack ab.txt --tokenizer word --validation 0.08 --out ab
must_run train ab --model gpt --layers 1 --width 8 --heads 1 --context 8 --steps 2 --progress off --run runs/ab
must_run eval runs/ab --json ab.json
python3 - "$(metric runs/ab validation bits_per_byte)" <<'END' 2>err || failed "they are those of the training text"
import json, sys
told, own = float(sys.argv[1].split()[1]), json.loads(open("ab.json").readlines()[-1])
assert abs(told - own["bits_per_byte"]) < 1e-6 * told and own["bits_per_byte"] < own["loss"] / 5, (told, own)
END
must_run pack ab.txt --tokenizer word --vocabulary 4 --out lost
must_run train lost --model gpt --layers 1 --width 8 --heads 1 --context 8 --steps 2 --progress off --run runs/lost
expect_out "perplexity"; expect_no_out "bits per byte"

check "usual options of a network are in the configuration; given ones win"
succeeds train --model cnn --data images.h5 --augment none --normalize per-image --steps 1 --run defaults
for line in "average-decay = 0.9999" "l2 = 0.004" "schedule = exponential" "augment = none"; do
  grep -qx "$line" defaults/config.ini || failed "config.ini lacks: $line"
done

# Wrong input gives one sentence each and leaves nothing behind.
refuse() {
  run train "${@:2}" --run refused
  case $status in 1 | 2) ;; *) failed "exit $status" ;; esac
  expect_err "$1"
  [ ! -e refused ] || failed "a run folder was made"
}
check "samples for a language model"; refuse "token" --model gpt --data images.h5
check "a corpus for an image network"; refuse "holds tokens" --model cnn --data text
check "a crop larger than the image"; refuse "crop of 40 x 40 does not fit" --model cnn --data images.h5 --augment crop=40
check "an unknown augmentation"; refuse "flop.*none of.*flip" --model cnn --data images.h5 --augment flop
check "a depth that is no network"; refuse "depth" --model resnet --data images.h5 --depth 21
check "heads that do not divide the width"; refuse "heads" --model gpt --data text --width 16 --heads 3
for option in "--ignore-label 0" "--normalize standard" "--augment flip" "--x foo" "--y label" "--layout channels-first"; do
  check "an option of samples for tokens: $option"; refuse "${option% *} is for samples, and text/train holds tokens" --model gpt --data text $option
done
for option in "--normalize standard" "--x foo" "--y label"; do
  check "an option of samples for the evaluation of tokens: $option"
  fails 2 "${option% *} is for samples, and .*text/validation holds tokens" eval gpt-1 $option
done
check "but the configuration of a run, which holds their default values, trains anew"
succeeds train --config gpt-1/config.ini --run gpt-anew
check "a context longer than the corpus"; refuse "context|window|tokens" --model gpt --data text --context 100000
check "more sequences than windows"; refuse "sequences" --model lstm --data text --unroll 100 --global-batch 600
check "an option of another network"; refuse "only with .*model" --model gpt --data text --depth 20
check "generate from a network that writes no text"
run generate cnn-1
expect_status 2; expect_err "language model"
check "generate with a letter outside the vocabulary"
run generate gpt-1 --prompt "Ω"
[ "$status" != 0 ] || failed "should be refused"
expect_err "vocabulary|prompt"
