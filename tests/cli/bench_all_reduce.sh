#!/usr/bin/env bash
# The benchmark of sums: its table, its files, its check of every element.
. "$(dirname "$0")/harness.sh"

# rows TRANSPORT: the table's rows under a heading that starts with TRANSPORT.
rows() { awk -v way="$1," '/, in place;/ { on = index($0, way) == 1 } on && /float32/' out; }

for n in 1 2 3; do
  check "$n ranks on the CPU"
  run -n $n bench all-reduce --device cpu --max 100000 --factor 10 --repeat 3 --csv rows.$n.csv --json rows.$n.json
  expect_status 0; expect_silence
  ways="serial"
  [ $n = 1 ] || ways="shared memory:ring"
  IFS=: read -ra list <<<"$ways"
  for way in "${list[@]}"; do
    # Size and count agree, times are positive and in order, the bus bandwidth is what the formula makes of the other.
    rows "$way" | awk -v p=$n -v way="$way" '
      { if (NF != 8 || $1 != 4 * $2 || $5 > $4 || $4 < 0 || $8 != 0) { print "row: " $0; bad = 1 }
        d = $7 - $6 * 2 * (p - 1) / p; if (d > 0.002 || d < -0.002) { print "bus bandwidth: " $0; bad = 1 } }
      END { if (NR != 6) { print NR " rows over " way; bad = 1 } exit bad }' >complaints || failed "$(cat complaints)"
  done
  [ "$(grep -c '^average bus bandwidth: [0-9.]* GB/s$' out)" = ${#list[@]} ] || failed "an average is missing"
  expect_file rows.$n.csv
  [ "$(awk -F, 'NR > 1 && NF == 10 && $10 == 0' rows.$n.csv | wc -l)" = $((6 * ${#list[@]})) ] || failed "rows of the CSV"
  python3 - rows.$n.json $n $((6 * ${#list[@]})) <<'PYTHON' || failed "rows of the JSON"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == int(sys.argv[3])
for row in rows:
    assert row["bench"] == "all-reduce" and row["world"] == int(sys.argv[2]) and row["wrong"] == 0
    assert row["bytes"] == 4 * row["count"] and 0 < row["time_us_min"] <= row["time_us"]
PYTHON
done

check "one way alone"
run -n 2 bench all-reduce --device cpu --transport ring --min 5 --max 5 --repeat 1 --warmup 0
expect_status 0
expect_no_out "^shared memory"
[ "$(rows ring | wc -l)" = 1 ] || failed "one row expected"

check "usage"
run -n 2 bench all-reduce --min 7 --max 6
expect_error 2 "--min 7 is more than --max 6"
run bench all-reduc
expect_error 2 "bench all-reduce"
check "a file that cannot be written"
run -n 2 bench all-reduce --device cpu --max 2 --repeat 1 --csv nowhere/rows.csv
expect_error 1 "cannot write nowhere/rows.csv: No such file"
expect_no_out float32  # said before anything is timed
run -n 2 bench all-reduce --device cpu --max 2 --repeat 1 --csv /dev/full
expect_error 1 "/dev/full: No space left"
check "an interrupted benchmark leaves the rows that it has shown"
start bench all-reduce --device cpu --max 67108864 --repeat 10000 --csv part.csv --json part.json
wait_for 30 grep -q float32 part.json
kill -TERM "$job"  # a shell starts its background jobs deaf to INT
finish 20
expect_status 143
[ "$(wc -l <part.csv)" -ge 2 ] || failed "rows of the CSV"
check "a rank that is stopped while sums are timed"
start -n 2 bench all-reduce --device cpu --min 65536 --max 65536 --repeat 10000 --deadline 3
wait_for 30 grep -q busbw out
sleep 1
kill -STOP "$(rank 1)"
finish 30
expect_status 1
expect_err "rank 1 .*timing sums"
! own_words | grep -q "step [0-9]" || failed "there are no steps here"

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  check "GPUs where there is none"
  run -n 2 bench all-reduce --device gpu
  expect_error 1 "--device gpu: .*(GPU|CUDA)"
  run bench all-reduce --device gpu
  expect_error 1 "--device gpu: .*(GPU|CUDA)"
fi
