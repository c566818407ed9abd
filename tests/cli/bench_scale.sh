#!/usr/bin/env bash
# `lockstep bench scale` times every world size, its figures are consistent, and it names a slow rank.
# label: more
. "$(dirname "$0")/harness.sh"

small=(--device cpu --features 20 --outputs 5 --hidden 16 --batch 12 --warmup 1)

# rows FILE RANKS...: the JSON has the world sizes of each kind of scaling, and its figures are consistent.
rows() {
  python3 - "$@" <<'PYTHON' || failed "rows of the JSON"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
worlds = [int(n) for n in sys.argv[2:]]
assert [(r["scaling"], r["world"]) for r in rows] == [(s, w) for s in ("weak", "strong") for w in worlds], rows
for r in rows:
    base = next(b for b in rows if b["scaling"] == r["scaling"])
    near = lambda a, b: abs(a - b) < 1e-6 * max(abs(a), abs(b), 1e-3)
    assert near(r["compute_ms"] + r["input_ms"] + r["exposed_ms"] + r["waiting_ms"], r["step_ms"]), r
    assert min(r["step_ms"], r["compute_ms"], r["samples_per_second"]) > 0, r
    assert min(r["exposed_ms"], r["waiting_ms"], r["input_ms"]) >= -1e-9, r
    assert near(r["efficiency"], r["samples_per_second"] / r["world"] / (base["samples_per_second"] / base["world"])), r
    assert near(sum(r["lost_" + p] for p in ("compute", "input", "communication", "waiting")), 1 - r["efficiency"]), r
    assert r["global_batch"] == (12 * r["world"] if r["scaling"] == "weak" else base["global_batch"]), r
    assert near(r["samples_per_second"], 1e3 * r["global_batch"] / r["step_ms"]), r
    if r["world"] > 1:
        assert r["gradient_sum_ms"] > 0 and near(r["bus_bandwidth"], 2 * (r["world"] - 1) / r["world"] *
            r["gradient_bytes"] / r["gradient_sum_ms"] * 1e3), r
    assert r["explanation"].startswith("At %d rank" % r["world"]) or r is base, r
PYTHON
}

for transport in shared-memory ring; do
  check "three ranks, $transport"
  succeeds -n 3 bench scale "${small[@]}" --transport $transport --repeat 3 --rounds 2 \
    --csv scale.csv --json scale.json --svg scale.svg
  expect_silence
  expect_out "^2 ranks: $(hostname) \(ranks 0-1\)$"
  expect_out "^weak scaling: 12 samples per rank and step$"
  expect_out "^strong scaling: 12 samples per step$"
  expect_out "^At 3 ranks [0-9]+ % efficiency: "
  rows scale.json 1 2 3
  [ "$(awk -F, '{ print NF }' scale.csv | sort -u | wc -l)" = 1 ] && [ "$(wc -l <scale.csv)" = 7 ] ||
    failed "rows of the CSV"
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("scale.svg")' || failed "the SVG does not parse"
  grep -q "exposed communication" scale.svg || failed "the SVG lacks a part"
done

check "worlds of the user's choice, one kind of scaling"
succeeds -n 3 bench scale "${small[@]}" --worlds 3,2 --scaling strong --global-batch 24 --repeat 2 --rounds 1
expect_no_out "^weak"
expect_out "^strong scaling: 24 samples per step$"; expect_out "^At 3 ranks"; expect_no_out "^At [12] rank"
check "one rank"
succeeds bench scale "${small[@]}" --repeat 2 --rounds 1
expect_silence; expect_out "nothing to be compared with"

check "real data"
pack_small data
succeeds -n 2 bench scale --device cpu --input data --data data --hidden 16 --batch 12 --warmup 1 --repeat 3 --rounds 1 \
  --json scale.json
rows scale.json 1 2
check "a batch larger than the data"
fails 2 "a step of 800 samples on 2 ranks, and data has 600" \
  -n 2 bench scale --device cpu --input data --data data --hidden 16 --batch 400 --repeat 1 --rounds 1
check "data that is not there: said by all, though one rank alone looks"
fails 1 "nowhere" -n 2 bench scale --device cpu --input data --data nowhere --worlds 1 --repeat 1

check "more ranks than samples"
fails 2 "3 ranks cannot share 2 samples: give a --global-batch of at least 3, fewer --worlds, or --scaling weak" \
  -n 3 bench scale "${small[@]}" --global-batch 2 --repeat 1
check "a world larger than the job"
fails 2 "--worlds: 4 ranks of 2: start the job with more" -n 2 bench scale "${small[@]}" --worlds 1,4
check "a file that cannot be written is told of before anything is timed"
fails 1 "cannot write nowhere/scale.svg" -n 2 bench scale "${small[@]}" --svg nowhere/scale.svg; expect_no_out "ms"
check "a loss that is not finite ends the ranks that wait, too"
fails 1 "not finite" -n 2 bench scale "${small[@]}" --worlds 1 --learning-rate 1e30 --repeat 50

# Rank 1 gets a fifth of its time: whenever it has had 4 ms of a processor, it is stopped for four times as long as that
# took, on a busy machine longer than on a quiet one.
script slow_rank_1 <<'END'
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || "$PYTHON" slow_down.py $$ >/dev/null 2>&1 </dev/null &
exec "$@"
END
cat >slow_down.py <<'END'
import os, signal, sys, time
pid = int(sys.argv[1])
def processor_seconds():
    return int(open("/proc/%d/schedstat" % pid).read().split()[0]) / 1e9
try:
    while True:
        start, had = time.monotonic(), processor_seconds()
        while processor_seconds() < had + 0.004:
            time.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(4 * (time.monotonic() - start))
        os.kill(pid, signal.SIGCONT)
except (OSError, IndexError):  # it has ended
    pass
END
export PYTHON=$python
for transport in shared-memory ring; do
  check "a rank that is slowed down is named, $transport"
  # Long steps with short sums: each step meets many pauses, and few of them fall into the sums.
  start -n 3 -w ./slow_rank_1 bench scale --device cpu --transport $transport --features 64 --hidden 512,512 \
    --batch 512 --worlds 1,3 --scaling weak --warmup 1 --repeat 15 --rounds 1 --json late.json
  finish 120
  expect_status 0
  expect_out "^Of 3 ranks: rank 1 on $(hostname) works [0-9]+ % longer than the others \(in [0-9]+ of 15 steps; compute\)"
  expect_out "^At 3 ranks .* % waiting for rank 1 on $(hostname)"
  python3 - <<'PYTHON' || failed "the JSON does not name rank 1, late by what it was slowed down"
import json
row = [json.loads(line) for line in open("late.json")][-1]
assert row["world"] == 3 and row["straggler_rank"] == 1 and row["straggler_excess"] > 0.5, row
PYTHON
done

check "the ranks that wait outlast the deadline"
# Four deadlines of work at the pace of this machine, now.
long=(--device cpu --hidden 512,512 --batch 2048 --worlds 1 --scaling weak --warmup 1 --rounds 1)
succeeds -n 2 bench scale "${long[@]}" --repeat 3 --json pace.json
repeats=$(python3 -c 'import json; print(max(3, round(12000 / json.loads(open("pace.json").readline())["step_ms"])))')
succeeds -n 2 bench scale "${long[@]}" --repeat "$repeats" --deadline 3
expect_silence
for victim in 0 1; do
  check "rank $victim is killed while rank 0 works and rank 1 waits"
  start -n 2 bench scale --device cpu --hidden 512,512 --batch 512 --worlds 1 --repeat 100000
  wait_for 30 grep -q "^1 rank" out
  sleep 0.5
  kill -9 "$(rank $victim)"
  finish 20
  [ "$status" != 0 ] || failed "exit 0"
done
check "the only rank at work is stopped"
# Enough steps for any machine: nothing ends by itself before the signal comes.
start -n 2 bench scale --device cpu --hidden 512,512 --batch 512 --worlds 1 --repeat 100000 --deadline 1
wait_for 30 grep -q "^1 rank" out
sleep 2
kill -STOP "$(rank 0)"
finish "$(sanitized && echo 200 || echo 60)"
expect_status 1
expect_err "rank 0 .*stopped"
