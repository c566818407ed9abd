#!/usr/bin/env bash
# The benchmark of all-reduces prints its table, writes its files and checks every element.
# label: more
. "$(dirname "$0")/harness.sh"

# rows WAY: the table's rows of that way.
rows() { awk -v way="$1" '$3 == "float32" && $5 == way' out; }

for n in 1 2 3; do
  check "$n ranks on the CPU"
  succeeds -n $n bench all-reduce --device cpu --max 100000 --factor 10 --repeat 3 --csv rows.$n.csv --json rows.$n.json --svg $n.svg
  expect_silence
  ways="serial"
  [ $n = 1 ] || ways="ring shared-memory mpi"
  read -ra list <<<"$ways"
  for way in "${list[@]}"; do
    # Size and count match, times are positive and in order, the bus bandwidth follows from the time by the formula.
    rows "$way" | awk -v p=$n -v way="$way" '
      { if (NF != 12 || $1 != 4 * $2 || $4 != "sum" || $6 < 0 || $10 < $6 || $11 < $10 || $12 < $11 || $9 != 0) {
          print "row: " $0; bad = 1 }
        d = $8 - $7 * 2 * (p - 1) / p; most = 0.001 * $8 + 0.0002  # both are rounded to four digits or so
        if (d > most || d < -most) { print "bus bandwidth: " $0; bad = 1 } }
      END { if (NR != 6) { print NR " rows of " way; bad = 1 } exit bad }' >complaints || failed "$(cat complaints)"
    expect_out "^average bus bandwidth of $way: [0-9.]* GB/s\$"
  done
  [ "$(grep -c float32 out)" = $((6 * ${#list[@]})) ] || failed "rows of the table"
  expect_file rows.$n.csv
  [ "$(awk -F, 'NR > 1 && NF == 22 && $10 == 0' rows.$n.csv | wc -l)" = $((6 * ${#list[@]})) ] || failed "rows of the CSV"
  python3 - rows.$n.json $n.svg $n $((6 * ${#list[@]})) "${list[@]}" <<'PYTHON' || failed "rows of the JSON, or the chart"
import json, sys, xml.etree.ElementTree as xml
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == int(sys.argv[4])
for row in rows:
    assert row["bench"] == "all-reduce" and row["world"] == int(sys.argv[3]) and row["wrong"] == 0
    assert row["bytes"] == 4 * row["count"] and row["batches"] == 3 and row["hosts"] == 1
    assert 0 < row["time_us_min"] <= row["time_us"] <= row["time_us_p95"] <= row["time_us_p99"] <= row["time_us_max"]
assert [row["way"] for row in rows] == sys.argv[5:] * 6  # side by side for each size
chart = xml.parse(sys.argv[2]).getroot()
words = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
for way in sys.argv[5:]:
    assert {"mpi": "MPI_Allreduce"}.get(way, way).replace("shared-", "shared ") in words, words
PYTHON
  if [ $n = 1 ]; then
    expect_no_out "^fastest"
  else
    expect_out "^mpi: MPI_Allreduce of .*MPI.*[0-9]"
    expect_out "^fastest algorithm, and how many times as fast as MPI_Allreduce each is"
    [ "$(grep -cE '^ +[0-9.]+ [KM]?i?B  (ring|shared-memory|mpi) .*x$' out)" = 6 ] || failed "the summary"
  fi
done

check "a world of one has one way to itself, and MPI's"
succeeds bench all-reduce --algorithms ring,mpi,shared-memory --max 64 --repeat 1
expect_silence
[ "$(rows serial | wc -l) $(rows mpi | wc -l)" = "4 4" ] || failed "four rows each expected"

check "one way alone"
succeeds -n 2 bench all-reduce --device cpu --algorithms ring --min 5 --max 5 --repeat 1 --warmup 0
[ "$(rows ring | wc -l)" = 1 ] || failed "one row expected"
[ "$(grep -c float32 out)" = 1 ] || failed "no other row expected"
expect_no_out "^fastest"

check "the schedules of the ring beside each other"
succeeds -n 3 bench all-reduce --algorithms ring,doubling,halving,ring-only --all-reduce 4000,40000 --min 1000 --max 100000 --factor 10 \
  --repeat 2 --json schedules.json
expect_silence
expect_out "^ring: by doubling up to 4000 bytes, by halving up to 40000 bytes, then by the ring"
expect_out "^ring-only: by doubling up to 512 bytes, then by the ring"
expect_out "^fastest on this network: --all-reduce [0-9]+,[0-9]+ \(by doubling up to "
python3 - <<'PYTHON' || failed "schedules in the JSON"
import json
rows = [json.loads(line) for line in open("schedules.json")]
taken = {(row["way"], row["count"]): row["schedule"] for row in rows}
assert [taken["ring", count] for count in (1000, 10000, 100000)] == ["doubling", "halving", "ring"], taken
for way, schedule in (("doubling", "doubling"), ("halving", "halving"), ("ring-only", "ring")):
    assert all(taken[way, count] == schedule for count in (1000, 10000, 100000)), taken
assert all(row["wrong"] == 0 for row in rows)
PYTHON

check "the library's own sums under our watch, and which transport is best"
succeeds -n 3 bench all-reduce --algorithms ring,iallreduce,mpi --wire bf16 --max 300000 --factor 1000 --repeat 2 --json own.json
expect_silence
expect_out "^iallreduce: MPI_Iallreduce of .*MPI"
expect_out "^fastest for gradients: --transport (ring|mpi) \([0-9.]+ times as fast as (ring|mpi)[;)]"
[ "$(grep '"way":"iallreduce"' own.json | grep '"wire":"fp32"' | grep '"transport":"mpi"' | grep -c '"wrong":0,')" = 3 ] ||
  failed "rows of iallreduce"

check "a bound needs a link to cross"
succeeds -n 2 bench all-reduce --link-gbps 10 --max 8 --repeat 1
expect_out "^bound: none, all ranks are on one host"
expect_no_out "\(%\)"

check "rounded on the way, and right all the same"
succeeds -n 3 bench all-reduce --wire bf16 --max 100000 --factor 10 --repeat 1 --json bf16.json
expect_silence; expect_out "^wire: bf16 by ring, else fp32"
[ "$(grep -c '"wire":"bf16"' bf16.json) $(grep -c '"wire":"fp32"' bf16.json)" = "6 12" ] || failed "wires in the JSON"
! grep -qv '"wrong":0' bf16.json || failed "wrong elements"

check "usage"
fails 2 "--min 7 is more than --max 6" bench all-reduce --min 7 --max 6
fails 2 "bench all-reduce" bench all-reduc
fails 2 "--algorithms: ring,mpu names no all-reduce algorithm 'mpu'; the algorithms are ring, two-level, shared-memory, mpi, iallreduce, nccl, doubling, halving and ring-only; did you mean mpi" \
  bench all-reduce --algorithms ring,mpu
fails 2 "--algorithms nccl is between GPUs" bench all-reduce --algorithms nccl --device cpu
fails 2 "--csv and --svg are both rows" bench all-reduce --csv rows --svg rows
check "a file that cannot be written"
for file in csv json svg; do
  fails 1 "cannot write nowhere/rows: No such file" -n 2 bench all-reduce --device cpu --max 2 --repeat 1 --$file nowhere/rows
  expect_no_out float32  # before anything is timed
  fails 1 "/dev/full: No space left" -n 2 bench all-reduce --device cpu --max 2 --repeat 1 --$file /dev/full
done
check "an interrupted benchmark leaves the rows that it has shown"
start bench all-reduce --device cpu --max 67108864 --repeat 10000 --csv part.csv --json part.json
wait_for 30 grep -q float32 part.json
kill -TERM "$job"  # a shell's background jobs ignore INT
finish 20
expect_status 143
[ "$(wc -l <part.csv)" -ge 2 ] || failed "rows of the CSV"

check "a rank that a signal ends is no riddle to its peers"
for signal in TERM INT; do
  start -n 2 bench all-reduce --device cpu --algorithms shared-memory --min 1048576 --max 1048576 --repeat 10000
  wait_for 30 grep -q busbw out
  sleep 1
  kill -$signal "$(rank 1)"
  finish 30
  expect_err "rank 1 \(host .*\) has been ended by SIG$signal; "
  ! grep -q "out of memory" err || failed "a guess although it is known"
done

# stop_a_rank ALGORITHM: stops a rank while all-reduces of that algorithm are timed.
stop_a_rank() {
  start -n 2 bench all-reduce --algorithms "$1" --min 1048576 --max 1048576 --repeat 10000 --deadline 3
  wait_for 30 grep -q busbw out
  sleep 1
  kill -STOP "$(rank 1)"
  finish 30
  expect_status 1
  [ "$(own_words | grep -c .)" = 1 ] || failed "not one line of error"
}
check "a rank that is stopped while all-reduces are timed"
stop_a_rank shared-memory
expect_err "rank 1 .*timing all-reduces"
! own_words | grep -q "step [0-9]" || failed "there are no steps here"
check "a rank that is stopped while MPI sums"
stop_a_rank mpi
# Between two batches the ranks also meet outside of MPI_Allreduce.
expect_err "rank 0 .* has waited in MPI_Allreduce of 1048576 floats for [0-9.]* s\. For rank 1 .*is stopped|rank 1 .*timing all-reduces"

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  check "GPUs where there is none"
  fails 1 "--device gpu: .*(GPU|CUDA)" -n 2 bench all-reduce --device gpu
  fails 1 "--device gpu: .*(GPU|CUDA)" bench all-reduce --device gpu
  fails 1 "--algorithms nccl needs a GPU for every rank" -n 2 bench all-reduce --algorithms ring,nccl
fi
