#!/usr/bin/env bash
# A run that begins with the weights of another one.
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
must_run pack --format synthetic --samples 200 --features 20 --classes 3 --out three
train=(train --data data --optimizer sgd --validation data/validation --batch 20 --progress off --no-tensorboard)
must_run "${train[@]}" --hidden 16,8 --steps 60 --evaluate-every 20 --checkpoint-every 20 --run runs/a

check "all weights are taken: the first validation is that of the other run's best"
run -n 2 "${train[@]}" --hidden 16,8 --learning-rate 1e-30 --steps 1 --initialize-from runs/a --run runs/b
expect_status 0; expect_silence
expect_out "^weights of runs/a/checkpoints/step-[0-9]+.h5 \(step [0-9]+\)$"
expect_out "^  dense_3/bias +5  the checkpoint's values$"
run eval runs/a --json a.json
run eval runs/b --json b.json
python3 - <<'END' || failed "the two evaluations"
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert a["loss"] == b["loss"] and a["accuracy"] == b["accuracy"], (a, b)
END

check "the averaged weights, where the other run validated with them"
must_run "${train[@]}" --hidden 16 --steps 40 --average-decay 0.9 --evaluate-average --run runs/average
run -n 2 "${train[@]}" --hidden 16 --average-decay 0.9 --evaluate-average --learning-rate 1e-30 --steps 1 \
  --initialize-from runs/average --run runs/of-average
expect_status 0
expect_out "^averaged weights of runs/average/checkpoints/step-0000000040.h5 \(step 40\)$"
expect_out "^  dense_2/bias +5  the checkpoint's averaged values$"
run eval runs/average --json a.json
for weights in --average --no-average; do
  run eval runs/of-average $weights --json b.json
  python3 - <<'END' || failed "the two evaluations, $weights"
import json
a, b = (json.loads(open(f).readlines()[-1]) for f in ("a.json", "b.json"))
assert abs(a["loss"] - b["loss"]) < 1e-6 and a["accuracy"] == b["accuracy"], (a, b)
END
done

check "a new last layer for other classes"
run -n 2 train --data three --optimizer sgd --hidden 16,8 --batch 20 --steps 5 --progress off --initialize-from runs/a --reinitialize 'dense_3/*' --run runs/c
expect_status 0
expect_out "^  dense_2/weight +16 x 8  the checkpoint's values$"
expect_out "^  dense_3/weight +8 x 3  new values, as asked for$"
check "a shape that differs"
run -n 2 train --data three --optimizer sgd --hidden 16,8 --batch 20 --steps 5 --initialize-from runs/a --run runs/d
expect_error 1 "dense_3/weight has shape \[8, 5\], this network wants \[8, 3\]: --reinitialize dense_3/weight leaves it new"
check "tensors that only one of the two has"
run "${train[@]}" --hidden 16 --steps 1 --initialize-from runs/a --reinitialize 'dense_2/*' --run runs/e
expect_status 0
expect_out "^  dense_3/bias +5  unused: this network has no such tensor$"
run "${train[@]}" --hidden 16,8,8 --steps 1 --initialize-from runs/a --reinitialize 'dense_3/*' --run runs/f
expect_status 0
expect_out "^  dense_4/bias +5  new values: the checkpoint has none$"
check "nothing fits"
run "${train[@]}" --hidden 16,8 --steps 1 --initialize-from runs/a --reinitialize '*' --run runs/g
expect_error 1 "has no tensor that this network wants"
check "a pattern that means nothing"
run -n 2 "${train[@]}" --hidden 16,8 --steps 1 --initialize-from runs/a --reinitialize 'dense_9/*' --run runs/g
expect_error 2 "--reinitialize: no tensor is called dense_9/\*; there are dense_1/bias, dense_1/weight"
check "what is not there"
run -n 2 "${train[@]}" --steps 1 --initialize-from nowhere --run runs/g
expect_error 1 "nowhere: no such checkpoint"
run "${train[@]}" --steps 1 --reinitialize 'dense_1/*' --run runs/g
expect_error 2 "reinitialize"

check "a run that goes on does so with its own weights, with the same command line"
run "${train[@]}" --hidden 16,8 --steps 10 --initialize-from runs/a --resume --run runs/h
expect_status 0; expect_out "^weights of runs/a/"
run "${train[@]}" --hidden 16,8 --steps 20 --initialize-from runs/a --resume --run runs/h
expect_status 0; expect_no_out "^weights of"; expect_out "continuing after step 10"
