#!/usr/bin/env bash
# One rule covers labels of every type and shape: whole numbers, booleans and texts are classes, other floats are
# numbers to predict, and the user may say otherwise.
# label: more
. "$(dirname "$0")/harness.sh"
python3 - <<'END'
import h5py, numpy as np
rng = np.random.default_rng(1)
y = np.arange(120) % 3
x = rng.random((120, 6), dtype=np.float32) + y[:, None]
text = np.array(["ant", "bee", "cat"], dtype="S3")
def write(name, labels, samples=x):
    with h5py.File(name + ".h5", "w") as f:
        f["x"], f["y"] = samples, labels
write("integers", y)
write("column", y[:, None])
write("floats", y.astype("f8"))
write("floats32", y.astype("f4"))
write("floats-column", y.astype("f8")[:, None])
write("matlab", y.astype(">f8") + 1)
write("texts", text[y])
write("texts-column", text[y][:, None])
write("booleans", y == 1)
write("booleans-column", (y == 1)[:, None])
write("halves", y + 0.5)
write("prices", np.round(rng.random(120) * 1e6))
write("distinct", np.arange(120.0))
write("negative", y - 1.0)
few = np.where(y < 2, y, 0).astype("f8")
write("few", few)
large = y.astype("u8"); large[17] = 2**63
write("large", large)
np.save("x.npy", x); np.save("y.npy", y.astype("f4")); np.save("c.npy", y.astype("f8")[:, None]); np.save("b.npy", y == 1); np.save("h.npy", y + 0.5)
END
train=(--model linear --optimizer adam --steps 12 --report-every 1)

must_run train --data integers.h5 "${train[@]}" --run runs/integers
metric runs/integers train loss >truth
for labels in column floats floats32 floats-column texts texts-column; do
  check "$labels: the classes of integers, and their very losses"
  succeeds -n 2 train --data $labels.h5 "${train[@]}" --run runs/$labels
  succeeds train --data $labels.h5 "${train[@]}" --run runs/$labels-alone
  metric runs/$labels-alone train loss >losses; expect_same truth losses
  succeeds eval runs/$labels --data $labels.h5
  expect_out 'accuracy'
done
check "floats that are taken for classes are said to be"
succeeds train --data floats.h5 "${train[@]}" --run runs/said
expect_err 'floats\.h5: y holds whole numbers as floats: taken as labels of classes \(--loss mean-squared-error'
succeeds info floats.h5
expect_out '3 classes|labels of 3'
for labels in booleans booleans-column; do
  check "$labels"
  succeeds train --data $labels.h5 "${train[@]}" --run runs/$labels
  expect_out 'accuracy'
done
check "MATLAB counts from 1"
succeeds train --data matlab.h5 "${train[@]}" --run runs/matlab
expect_out 'accuracy'
expect_err 'matlab\.h5: labels begin at 1: the classes below have no samples'
succeeds train --data floats.h5 "${train[@]}" --run runs/zero
! grep -q 'labels begin at' err || failed "they begin with 0"
for labels in halves prices distinct negative; do
  check "$labels: numbers to predict"
  succeeds train --data $labels.h5 "${train[@]}" --run runs/$labels
  expect_out 'mean absolute error'
done
check "the user decides: numbers"
succeeds train --data floats.h5 "${train[@]}" --loss mean-squared-error --run runs/numbers
expect_out 'mean absolute error'
succeeds train --data integers.h5 "${train[@]}" --loss mean-squared-error --run runs/numbers2
expect_out 'mean absolute error'
check "the user decides: classes"
succeeds train --data distinct.h5 "${train[@]}" --loss softmax-cross-entropy --run runs/classes
expect_out 'accuracy'
fails 2 'softmax-cross-entropy needs class labels' train --data halves.h5 "${train[@]}" --loss softmax-cross-entropy --run runs/r
expect_no_file runs/r
check "validation and evaluation take labels as the training did"
succeeds train --data floats.h5 --validation few.h5 "${train[@]}" --run runs/validated
succeeds eval runs/numbers --data few.h5
expect_out 'mean absolute error'
succeeds eval runs/halves --data floats.h5
expect_out 'mean absolute error'
run eval runs/classes --data halves.h5
expect_status 2; expect_err 'softmax-cross-entropy needs class labels'
succeeds train --resume --run runs/numbers --steps 20
expect_out 'mean absolute error'
check "a label of 2^63 is told as it is"
fails 1 'sample 17 has label 9223372036854775808, which is no class number' train --data large.h5 "${train[@]}" --run runs/r; expect_no_file runs/r

check "pack has the same rule"
succeeds pack --x floats-column.h5 --out packed-floats
expect_out 'class labels'; expect_out 'classes  3'; expect_out 'holds whole numbers as floats'
succeeds pack --x texts-column.h5 --out packed-texts
expect_out 'classes  3'
for y in y c; do
  succeeds pack --x x.npy --y $y.npy --out packed-$y
  expect_out "$y\.npy holds whole numbers as floats: taken as labels of classes"; expect_out 'classes  3'
done
succeeds -n 2 pack --x x.npy --y y.npy --shards 2 --out packed-two
python3 -c "
import h5py, numpy as np
y = np.concatenate([h5py.File(f'packed-two/shard-0000{i}.h5')['y'][:] for i in range(2)])
assert y.dtype == 'i4' and (y == np.load('y.npy')).all()" || failed "other labels"
succeeds pack --x x.npy --y b.npy --out packed-b
expect_out 'classes  2'
succeeds pack --x x.npy --y h.npy --out packed-h
expect_out 'numbers to predict'
for input in "--x floats.h5" "--x integers.h5" "--x x.npy --y y.npy" "--x x.npy --y b.npy"; do
  rm -rf packed-numbers
  # shellcheck disable=SC2086  # words
  succeeds pack $input --regression --out packed-numbers
  expect_out 'numbers to predict'
done
fails 1 'label 9223372036854775808' pack --x large.h5 --out packed-large
