#!/usr/bin/env bash
# `lockstep bench step` reports all-reduces and buckets, and times other bucket sizes beside the rule's.
# label: more
. "$(dirname "$0")/harness.sh"

small=(--device cpu --features 784 --hidden 64,64 --batch 8 --warmup 2 --repeat 5)

for n in 1 3; do
  check "$n ranks"
  succeeds -n $n bench step "${small[@]}" --json step.json
  expect_silence
  expect_out "^time +compute [0-9.]+ %  exposed communication [0-9.]+ %  input [0-9.]+ %  host"
  expect_out "^roofline +[0-9.]+ ms per step: "
  [ $n = 1 ] || expect_out "^all-reduce +[0-9.]+ ms per step in all, [0-9.]+ ms of it exposed; "
  [ $n = 1 ] || expect_out "^buckets +1 bucket \([0-9.]+ KiB\), up to 4 MiB$"
  python3 - $n <<'PYTHON' || failed "the JSON"
import json, sys
rows = [json.loads(line) for line in open("step.json")]
assert len(rows) == 1
step = rows[0]
assert step["bench"] == "step" and step["world"] == int(sys.argv[1]) and step["steps"] == 5
assert step["buckets"] == 1 and int(step["bucket_sizes"]) >= step["parameters"] and step["bucket_rule"]
assert step["roof_flops"] > 0 and step["roofline_ms"] > 0
assert step["exposed_ms"] >= 0 and step["communication_ms"] >= 0 and step["waiting_ms"] >= 0
PYTHON
done

check "without the matrix product of the roofline"
succeeds -n 1 bench step "${small[@]}" --no-roof --json step.json
expect_silence
expect_out "^step "; expect_no_out "roofline"
python3 - <<'PYTHON' || failed "the JSON"
import json
step = json.load(open("step.json"))
assert step["step_ms"] > 0 and step["roof_flops"] is None and step["roofline_ms"] is None
PYTHON

check "buckets of the user's size, on the ring"
succeeds -n 2 bench step "${small[@]}" --transport ring --bucket-size 5000 --json step.json
expect_out "^buckets +[2-9] buckets \([0-9.]+ KiB to [0-9.]+ KiB\), .*as asked for$"
check "sums of the MPI library, which travel in full"
succeeds -n 2 bench step "${small[@]}" --transport mpi
expect_silence
fails 2 "--transport mpi sums in full: take one of --transport mpi and --wire bf16" -n 2 bench step "${small[@]}" --transport mpi --wire bf16

check "half the bytes, on the ring"
succeeds -n 2 bench step "${small[@]}" --transport ring --wire bf16
expect_silence

check "other sizes beside the rule's"
succeeds -n 2 bench step --device cpu --hidden 512,256 --batch 8 --warmup 2 --repeat 5 --transport ring --sweep-buckets \
  --json step.json
expect_silence
expect_out "^ +by the rule "
expect_out "^ +262,144 "
expect_out "^the rule's (buckets are the best of these|step takes [0-9.]+ % longer than with --bucket-size [0-9]+)"
python3 - <<'PYTHON' || failed "the JSON"
import json
rows = [json.loads(line) for line in open("step.json")]
sweep = [row for row in rows if row["bench"] == "step-buckets"]
assert rows[0]["bench"] == "step" and len(sweep) == len(rows) - 1 >= 3, rows
assert sweep[0]["bucket_size"] == 0 and sweep[0]["buckets"] == rows[0]["buckets"]
assert sweep[1]["buckets"] == 1 or sweep[0]["buckets"] == 1  # one bucket holds everything
assert all(row["step_ms"] > 0 and row["largest_bucket"] > 0 for row in sweep)
PYTHON
check "a file that cannot be written is told of before anything is timed"
fails 1 "cannot write nowhere/step.json" -n 2 bench step "${small[@]}" --json nowhere/step.json; expect_no_out "ms"
