#!/usr/bin/env bash
# A network and an operation added as a file each (tests/networks/elman.yaml, elman.cpp) work in every command.
# label: more
# program: lockstep_with_elman
. "$(dirname "$0")/harness.sh"

python3 - <<'EOP' || exit 1
import random
random.seed(1)
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
text = " ".join(random.choice(words) for _ in range(1400))
open("corpus.txt", "w").write("\n".join(text[i:i + 60] for i in range(0, len(text), 60)) + "\n")
EOP
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.1
common="--model elman --data text --global-batch 12 --report-every 1 --no-tensorboard --seed 3"

check "it is among the networks of train --help, its options in its own"
run train --help
expect_status 0; expect_out "elman +simple recurrent language model"
run train --model elman --help
expect_status 0; expect_out "--memory-span TOKENS"; expect_out "--learning-rate .*\[0.5\]"

check "it learns something on one rank"
run train $common --steps 10 --checkpoint-every 4 --keep 9 --run one
expect_status 0
metric one train loss >curve.one
[ "$(wc -l <curve.one)" = 10 ] || failed "10 steps expected"
awk 'NR <= 3 { first += $2 } NR > 7 { last += $2 } END { exit !(last < first) }' curve.one ||
  failed "the loss does not fall: $(tr '\n' ' ' <curve.one)"
for line in "model = elman" "memory-span = 8" "clip-norm = 2"; do
  grep -qx "$line" one/config.ini || failed "config.ini lacks: $line"
done

check "the same curve on two ranks"
run -n 2 train $common --steps 10 --run two
expect_status 0
metric two train loss | paste curve.one - |
  awk '{ d = $2 - $4; if (d < 0) d = -d; if (!(d <= 1e-4 * $2)) bad = 1 } END { exit bad || NR != 10 }' ||
  failed "the curves differ"

check "it resumes bit for bit: the recurrent state is restored"
run train $common --steps 10 --resume=one/checkpoints/step-0000000004.h5 --run again
expect_status 0
metric again train loss >curve
tail -n 6 curve.one | expect_same - curve

check "it goes on at another number of ranks, its state where it was"
run -n 3 train $common --steps 10 --resume=one/checkpoints/step-0000000004.h5 --run other
expect_status 0
metric other train loss | paste <(tail -n 6 curve.one) - |
  awk '{ d = $2 - $4; if (d < 0) d = -d; if (!(d <= 1e-4 * $2)) bad = 1 } END { exit bad || NR != 6 }' ||
  failed "the curves differ"

check "the same evaluation at any number of ranks"
run eval one
expect_status 0; expect_out "perplexity"; cp out alone
run -n 3 eval one
expect_status 0; expect_same alone out

check "it writes text"
run generate one --prompt "the " --tokens 20 --seed 9
expect_status 0; expect_out "^the "

check "its steps are timed without data"
run bench step --model elman --memory-span 5 --batch 4 --warmup 1 --repeat 2
expect_status 0

check "its own kinds of options: one of a few words, in the help, checked, in config.ini, refused for others"
run train --model elman --help
expect_out "--nonlinearity NAME +of the hidden layer \(tanh or sigmoid\) \[tanh\]"
run train $common --steps 2 --nonlinearity sigmoid --run words
expect_status 0
grep -qx "nonlinearity = sigmoid" words/config.ini || failed "config.ini lacks it"
run train $common --nonlinearity sigmod --run refused
expect_error 2 "--nonlinearity: sigmod is not one of tanh and sigmoid; did you mean sigmoid"
run help train --man
expect_status 0; expect_out 'nonlinearity'

check "an option of another network names those that take it"
run train $common --context 20 --run refused
expect_status 2; expect_err "--context has an effect only with --model gpt, not with elman"

check "its weights can be exported and imported; an ONNX graph of operations on parts of tensors cannot be made"
run export one --out one.safetensors
expect_status 0
run import one.safetensors --out one.h5
expect_status 0; expect_out "elman"
must_run export one.h5 --out again.safetensors
expect cmp one.safetensors again.safetensors
run export one --out one.onnx
expect_error 1 "one/checkpoints/.*: its network cannot be an ONNX graph: .*; --format safetensors has its weights"
expect_no_file one.onnx
