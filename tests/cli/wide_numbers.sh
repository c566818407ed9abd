#!/usr/bin/env bash
# Numbers too precise for float32, such as Unix times and long integers, are standardised before they are narrowed, in HDF5
# files, tables and packed data; a value outside of float32's range is refused with its sample.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"

check "numbers that float32 does not tell apart are standardised first"
python3 - <<'END'
import h5py, numpy as np
rng = np.random.default_rng(1)
t = 1_700_000_000 + rng.integers(0, 60, 1200)
y = (t % 60 >= 30).astype("i4")
for name, kind in ("f8", "f8"), ("i8", "i8"), ("i4", "i4"), ("u4", "u4"):
    with h5py.File(f"stamps_{name}.h5", "w") as f: f["x"], f["y"] = t[:, None].astype(kind), y
with h5py.File("stamps_ints.h5", "w") as f: f["x"], f["y"] = np.hstack([t[:, None], -t[:, None]]), y
with h5py.File("stamp_targets.h5", "w") as f: f["x"], f["y"] = (t[:, None] % 60).astype("f4") / 60, t.astype("f8")
np.save("stamps.npy", t[:, None]); np.save("kinds.npy", y)
with h5py.File("large.h5", "w") as f:
    z = rng.normal(0, 1, (1200, 2)); z[17, 1] = 1e39
    f["x"], f["y"] = z, y
with h5py.File("large_y.h5", "w") as f:
    z = rng.normal(0, 1, 1200); z[23] = -1e300
    f["x"], f["y"] = rng.normal(0, 1, (1200, 2)), z
END
accuracy_over() {
  succeeds eval "$1"
  python3 -c "import re,sys; sys.exit(float(re.findall(r'accuracy ([0-9.]+)', open('out').read())[-1]) < $2)" || failed "accuracy below $2 %"
}
for name in f8 i8 i4 u4 ints; do
  succeeds -n 2 train stamps_$name.h5 --validation 0.2 --epochs 15 --run "runs/stamps_$name"
  accuracy_over "runs/stamps_$name" 95
done
must_run pack --x stamps_f8.h5 --validation 0.2 --out packed_stamps
run train packed_stamps --epochs 15 --run runs/packed_stamps
accuracy_over runs/packed_stamps 95
must_run pack --x stamps.npy --y kinds.npy --validation 0.2 --out npy_stamps
run train npy_stamps --epochs 15 --normalize standard --run runs/npy_stamps
accuracy_over runs/npy_stamps 95
check "a resumed run goes on with the same numbers"
run train stamps_f8.h5 --validation 0.2 --epochs 2 --run runs/resumed
succeeds train --resume --epochs 15 --run runs/resumed
accuracy_over runs/resumed 95
check "targets likewise"
succeeds train stamp_targets.h5 --validation 0.2 --epochs 60 --run runs/stamp_targets
python3 - <<'END' || failed "the mean absolute error is not below 2 s"
import json
last = [json.loads(line) for line in open("runs/stamp_targets/metrics.jsonl")]
assert [r for r in last if r["kind"] == "validation"][-1]["mean_absolute_error"] < 2
END
check "an ONNX graph of float32 inputs is not made of such a network"
fails 1 'float32 does not tell apart' export runs/stamps_f8 --out stamps.onnx
check "beyond the range of float32"
for name in large large_y; do
  fails 1 "$name\\.h5: sample (17 holds 1e\\+39 in x|23 holds -1e\\+300 in y), which is beyond the range of float32" \
    -n 2 train $name.h5 --steps 5 --optimizer sgd --model linear --run runs/r
  fails 1 'sample (17|23) holds .*beyond the range of float32' pack --x $name.h5 --out packed
done
check "a column whose integers differ by less than float64 shows is named once"
python3 - <<'END'
import h5py, numpy as np
k = np.arange(400)
def write(name, x, y=None):
    with h5py.File(name + ".h5", "w") as f: f["x"], f["y"] = x, (k % 7 > 3).astype("i4")[:len(x)] if y is None else y
write("close", np.stack([k, 1_700_000_000_000_000_000 + k], 1))
write("one", np.stack([k, 1_700_000_000_000_000_000 + k % 100], 1))
days = np.stack([k, 1_700_000_000_000_000_000 + k * 86_400_000_000_000], 1)
write("days", days); write("few_days", days[:3] + np.array([0, 1]) * np.arange(3)[:, None])
write("close_y", k[:, None].astype("f4"), 1_700_000_000_000_000_000 + k)
np.save("close.npy", 1_700_000_000_000_000_000 + k[:, None]); np.save("kinds.npy", (k % 7 > 3).astype("i4"))
END
warns() { expect_status 0; [ "$(own_words | grep -c "$1")" = 1 ] || failed "not one warning of $1"; }
silent() { expect_status 0; ! own_words | grep -q 'there: ' || failed "a warning"; }
must_run pack --x close.npy --y kinds.npy --out close_npy
few=(--model linear --steps 5)
run -n 2 train close.h5 "${few[@]}" --checkpoint-every 5 --run runs/close
warns 'close.h5: x at \[1\] holds numbers around 17000000000000[0-9]* with a deviation of .*float64.*multiples of 256 there: subtract'
run -n 2 train --resume --steps 10 --run runs/close; silent
run train close_npy "${few[@]}" --run runs/close_npy; warns 'close_npy: x holds numbers around 17000000000000'
run train one.h5 "${few[@]}" --run runs/one; warns 'one.h5: x at \[1\] is 1700000000000000000 in all samples, as far as float64 shows'
run -n 2 train close_y.h5 "${few[@]}" --loss mean-squared-error --run runs/close_y; warns 'close_y.h5: y holds numbers around 17'
run train stamps_i8.h5 "${few[@]}" --normalize none --run runs/none; warns 'stamps_i8.h5: x holds numbers around 17.*float32.*--normalize per-feature'
for name in days stamps_i8; do run train $name.h5 "${few[@]}" --run runs/far-$name; silent; done
run eval runs/far-days --data few_days.h5; silent
run predict runs/far-days --data few_days.h5 --out few_days.out.h5; silent
check "tables likewise"
python3 - <<'END'
import h5py
x, y = h5py.File("stamps_f8.h5")["x"][:, 0], h5py.File("stamps_f8.h5")["y"][...]
with open("stamps.csv", "w") as f:
    f.write("time,kind\n" + "".join(f"{int(t)},{'late' if k else 'early'}\n" for t, k in zip(x, y)))
END
succeeds pack --x stamps.csv --label-column kind --validation 0.2 --out table_stamps
expect_out 'x float64 \[1\]'
run train table_stamps --epochs 15 --run runs/table_stamps
accuracy_over runs/table_stamps 95
printf 'a,b\n1.25,2\n2021,3\n' >short.csv
succeeds pack --x short.csv --label-column b --regression --out table_short
expect_out 'x float32 \[1\]'
printf 'a,b\n1e60,1\n2,3\n' >beyond.csv
fails 1 'beyond\.csv:2: .*1e60.*the range of float32.*scale the column' pack --x beyond.csv --label-column b --out table_beyond
check "errors of targets that float32 does not tell apart"
succeeds eval runs/stamp_targets --report
cat >errors.py <<'END'
import re
text = open("out").read()
line = float(re.findall(r"mean absolute error ([0-9.]+)", text)[-1])
report = float(re.search(r"target_0 +240 +([0-9.]+)", text)[1])
assert abs(line - report) < 1e-3 * line, (line, report)
END
expect python3 errors.py
succeeds predict runs/stamp_targets --data stamp_targets.h5 --out predicted.h5
expect_err 'predictions are float32'
