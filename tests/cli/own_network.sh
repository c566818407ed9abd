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
succeeds train --help
expect_out "elman +simple recurrent language model"
succeeds train --model elman --help
expect_out "--memory-span TOKENS"
tr '\n' ' ' <out | grep -Eq -- '--learning-rate RATE [^[]*\[0.5\]' || failed "the rate of the network is no default"

check "it learns something on one rank"
succeeds train $common --steps 10 --checkpoint-every 4 --keep 9 --run one
metric one train loss >curve.one
[ "$(wc -l <curve.one)" = 10 ] || failed "10 steps expected"
awk 'NR <= 3 { first += $2 } NR > 7 { last += $2 } END { exit !(last < first) }' curve.one ||
  failed "the loss does not fall: $(tr '\n' ' ' <curve.one)"
for line in "model = elman" "memory-span = 8" "clip-norm = 2"; do
  grep -qx "$line" one/config.ini || failed "config.ini lacks: $line"
done

check "the same curve on two ranks"
succeeds -n 2 train $common --steps 10 --run two
expect_near curve.one <(metric two train loss) 1e-4 10

check "it resumes bit for bit: the recurrent state is restored"
succeeds train $common --steps 10 --resume=one/checkpoints/step-0000000004.h5 --run again
metric again train loss >curve
tail -n 6 curve.one | expect_same - curve

check "it goes on at another number of ranks, its state where it was"
succeeds -n 3 train $common --steps 10 --resume=one/checkpoints/step-0000000004.h5 --run other
expect_near <(tail -n 6 curve.one) <(metric other train loss) 1e-4 6

check "the same evaluation at any number of ranks"
succeeds eval one
expect_out "perplexity"; cp out alone
succeeds -n 3 eval one
expect_same alone out

check "it writes text"
succeeds generate one --prompt "the " --tokens 20 --seed 9
expect_out "^the "

check "its steps are timed without data"
succeeds bench step --model elman --memory-span 5 --batch 4 --warmup 1 --repeat 2

check "its own kinds of options: one of a few words, in the help, checked, in config.ini, refused for others"
run train --model elman --help
expect_out "--nonlinearity NAME +activation of the hidden layer \(tanh or sigmoid\) \[tanh\]"
succeeds train $common --steps 2 --nonlinearity sigmoid --run words
grep -qx "nonlinearity = sigmoid" words/config.ini || failed "config.ini lacks it"
fails 2 "--nonlinearity: sigmod is not one of tanh and sigmoid; did you mean sigmoid" train $common --nonlinearity sigmod --run refused
succeeds help train --man
expect_out 'nonlinearity'

check "an option of another network names those that take it"
run train $common --context 20 --run refused
expect_status 2; expect_err "--context has an effect only with --model gpt, not with elman"

check "its weights can be exported and imported; an ONNX graph of operations on parts of tensors cannot be made"
succeeds export one --out one.safetensors
succeeds import one.safetensors --out one.h5
expect_out "elman"
must_run export one.h5 --out again.safetensors
expect cmp one.safetensors again.safetensors
fails 1 "one/checkpoints/.*: its network cannot be an ONNX graph: .*; --format safetensors has its weights" export one --out one.onnx
expect_no_file one.onnx
