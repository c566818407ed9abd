#!/usr/bin/env bash
# Checkpoints of formats 1 to 3 (tests/io/fixtures/checkpoint_format_*.h5, made by the runs below with the program of
# that time) still work: a run that goes on from one ends like an uninterrupted one.
# label: more
. "$(dirname "$0")/harness.sh"
# close FILE FILE: compares the same steps; the fixtures come from a processor whose sums may differ in the last bits.
close() {
  python3 - "$@" <<'END'
import sys
a, b = ([line.split() for line in open(name)] for name in sys.argv[1:])
same = len(a) == len(b) > 0 and all(s == t and abs(float(x) - float(y)) <= 1e-6 * abs(float(y)) for (s, x), (t, y) in zip(a, b))
sys.exit(0 if same else 1)
END
}
fixtures=$tree/tests/io/fixtures
must_run pack --format synthetic --samples 40 --features 4 --classes 3 --out data --validation 10
for _ in 1 2 3 4 5 6 7 8; do echo "the cat sat on a mat and the dog saw no cat"; done >corpus.txt
must_run pack --format text --tokenizer char --x corpus.txt --out text --validation 0.2
mlp="--data data --optimizer sgd --model mlp --hidden 5 --batch 6 --steps 8 --evaluate-every 4 --checkpoint-every 4 --seed 2"
lstm="--data text --model lstm --hidden 4 --layers 1 --unroll 5 --global-batch 3 --steps 6 --checkpoint-every 4"
lstm+=" --learning-rate 1 --clip-norm 5 --evaluate-every 3 --seed 2"

# goes_on FORMAT STEP OPTIONS...
goes_on() {
  local format=$1 step=$2
  shift 2
  succeeds train "$@" --report-every 1 --no-tensorboard --run whole-$format
  succeeds train "$@" --report-every 1 --no-tensorboard --resume=$fixtures/checkpoint_format_$format.h5 --run rest-$format
  expect_out "continuing after step $step"
  metric whole-$format train loss | awk -v step="$step" '$1 > step' >expected
  metric rest-$format train loss >actual
  expect close expected actual
  metric whole-$format validation loss | tail -n 1 >expected
  metric rest-$format validation loss | tail -n 1 >actual
  expect close expected actual
}
check "a run goes on from a checkpoint of format 1"
goes_on 1 4 $mlp
check "a run goes on from a checkpoint of format 3"
goes_on 3 4 $mlp
check "what was validated then is not validated again"
[ "$(metric rest-1 validation loss | wc -l)" = 1 ] || failed "one validation expected, at step 8"
check "a language model goes on from a checkpoint of format 2, in the middle of an epoch"
goes_on 2 4 $lstm

check "it is evaluated"
succeeds eval $fixtures/checkpoint_format_1.h5 --data data
expect_out "accuracy"; expect_out "format_1.h5 does not say what data it was trained on"
succeeds eval $fixtures/checkpoint_format_2.h5 --data text
expect_out "perplexity"
check "it writes text"
succeeds generate $fixtures/checkpoint_format_2.h5 --prompt "the " --tokens 5
expect_out "^the "
check "it is described"
succeeds info $fixtures/checkpoint_format_1.h5
expect_out "network +4 -> 3: mlp 4-5-3 relu"
check "it is refused by another network"
run train --data data --optimizer sgd --model mlp --hidden 6 --batch 6 --steps 8 --seed 2 --resume=$fixtures/checkpoint_format_1.h5 --run other
expect_status 1; expect_err "another network \(4 -> 3: mlp 4-5-3 relu\) than this one \(4 -> 3: mlp 4-6-3 relu\)"
