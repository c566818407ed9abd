#!/usr/bin/env bash
# Validation data that are training data: train names equal files and copies of them, check also equal samples; equal rows of few
# categories are natural.
. "$(dirname "$0")/harness.sh"
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(4)
def write(name, x, y):
    with h5py.File(name + ".h5", "w") as f: f["x"], f["y"] = x, y
x = r.normal(size=(400, 6)).astype("f4"); y = (x[:, 0] > 0).astype("i4")
write("data", x, y)
write("copy", x, y)
write("shuffled", x[::-1], y[::-1])
write("half", np.concatenate([r.normal(size=(100, 6)).astype("f4"), x[50:150]]), y[:200])
write("other", r.normal(size=(200, 6)).astype("f4"), y[:200])
write("twice", np.concatenate([x, x]), np.concatenate([y, y]))
few = r.integers(0, 3, (600, 3)).astype("f4")
write("few", few[:400], y); write("more", few[400:], y[:200])
END
train=(--model linear --progress off --no-tensorboard --steps 2)
check "train names equal files, and copies"
for name in data copy; do
  for n in 1 2; do
    succeeds -n $n train --data data.h5 --validation $name.h5 "${train[@]}" --run runs/$name-$n
    expect_err 'warning: the validation data are the training data, or a copy of them: .*--validation names other data'
  done
done
must_run pack --x data.h5 --out packed; must_run pack --x copy.h5 --out again
succeeds train --data packed --validation again "${train[@]}" --run runs/packed
expect_err 'warning: the validation data are the training data'
check "it says nothing about other data, nor of the parts of a split"
for validation in other.h5 shuffled.h5 0.2; do
  run train --data data.h5 --validation $validation "${train[@]}" --run runs/other-$validation
  expect_status 0
  ! own_words | grep -q 'are the training data' || failed "$validation is not the training data"
done
check "check compares samples"
hosts=(--model linear --seconds 0.05)
succeeds -n 2 check --data data.h5 --validation shuffled.h5 "${hosts[@]}"
expect_out 'warning: 400 of 400 validation samples equal a training sample'
succeeds check --data data.h5 --validation half.h5 "${hosts[@]}"
expect_out 'warning: 100 of 200 validation samples equal a training sample'
succeeds check --data packed --validation again "${hosts[@]}"
expect_out 'warning: the validation data are the training data'
for validation in other.h5 0.2; do
  succeeds check --data data.h5 --validation $validation "${hosts[@]}"
  expect_no_out 'training sample'
done
check "equal rows of few categories, and samples that occur twice before a split, are shares"
succeeds check --data few.h5 --validation more.h5 "${hosts[@]}"
expect_out '^data +ok .*; ([0-9]+) of \1 validation samples equal a training sample, ([0-9]+) of \2 training samples another one'
succeeds check --data twice.h5 --validation 0.2 "${hosts[@]}"
expect_out '^data .*[0-9]+ of 160 validation samples equal a training sample'
