#!/usr/bin/env bash
# tests/cluster/network/sync_batch_norm.sh LOCKSTEP TREE [RATE [NODES [OTHER]]]: time of a step of a residual network
# between hosts (1gbit, 2 hosts) whose batch statistics are summed over the ranks. Compares it with the same step
# without these sums and, if OTHER is another lockstep, with that one. They take turns, ROUNDS (7) times; medians, and
# the median of the ratios. BATCH (16) samples per rank, DEPTH (20). A measurement, no test: it needs a quiet machine.
. "$(dirname "$0")/harness.sh"
rate=${3:-1gbit} count=${4:-2} other=${5:-}
ours=$lockstep
nodes "$count" --rate "$rate"
list=$(all_nodes | paste -sd,)
bench=(bench step --device cpu --threads 1 --model resnet --depth "${DEPTH:-20}" --features 3072 --image 32x32x3 --outputs 10
  --batch "${BATCH:-16}" --warmup 2 --repeat "${REPEAT:-8}")
step() { # NAME PROGRAM OPTIONS...
  local name=$1
  lockstep=$2
  shift 2
  check "$name"
  start -H "$list" "${bench[@]}" --json step.json "$@"
  finish 900
  expect_status 0
  [ $failures = 0 ] || exit 1
  head -n 1 step.json >> "$name.jsonl"
}
[ -z "$other" ] || cp "$other" other_lockstep
for ((round = 0; round < ${ROUNDS:-7}; round++)); do
  step summed "$ours" --sync-batch-norm
  [ -z "$other" ] || step other "$PWD/other_lockstep" --sync-batch-norm
  step apart "$ours"
done
python3 - "$count" "$rate" <<'END_OF_TABLE'
import json, os, statistics, sys
names = {"apart": "statistics of each rank", "summed": "--sync-batch-norm", "other": "--sync-batch-norm, the other program"}
steps = {name: [json.loads(line)["step_ms"] for line in open(name + ".jsonl")] for name in names if os.path.exists(name + ".jsonl")}
exposed = {name: [json.loads(line)["exposed_all_ms"] for line in open(name + ".jsonl")] for name in steps}
print(f"{sys.argv[1]} hosts, {sys.argv[2]}: medians of {len(steps['summed'])} runs in turns")
for name, times in steps.items():
    ratio = statistics.median(b / a for a, b in zip(steps["summed"], times))
    print(f"{names[name] + ':':<38} step {statistics.median(times):7.1f} ms, {statistics.median(exposed[name]):7.1f} ms of it exposed; "
          f"{ratio:.3f} of --sync-batch-norm's")
END_OF_TABLE
