#!/usr/bin/env bash
# tests/cluster/network/overlap.sh LOCKSTEP TREE [RATE [NODES]]: how much of the transfer of gradients between hosts
# (200mbit, 4 hosts) the computation hides when the backward pass takes as long as the transfer. A measurement, no test:
# it needs a quiet machine.
#
# A network of 33 equal layers: a small batch gives the transfer's own time, larger ones the time of a sample, until the
# backward pass (two thirds of the computation) lasts as long as the transfer. Then the step runs in buckets, and in one
# bucket, beside which nothing is computed.
. "$(dirname "$0")/harness.sh"
rate=${3:-200mbit} count=${4:-4}
nodes "$count" --rate "$rate"
list=$(all_nodes | paste -sd,)
layers=$(printf '%0.s,384' $(seq 32))
bench=(bench step --device cpu --features 384 --outputs 384 --regression --hidden "${layers#,}" --optimizer sgd
  --learning-rate 0.000001)
# step NAME LIST BATCH STEPS OPTIONS...: BATCH samples per rank.
step() {
  local name=$1 on=$2 batch=$3 steps=$4
  shift 4
  check "$name: $batch samples a rank"
  start -H "$on" "${bench[@]}" --batch "$batch" --warmup 1 --repeat "$steps" --json "$name.json" "$@"
  finish 900
  expect_status 0
  [ $failures = 0 ] || exit 1
}
figure() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())[sys.argv[2]])' "$1.json" "$2"; }
compute_ms() { awk "BEGIN { print $(figure "$1" compute_fraction) * $(figure "$1" step_ms) }"; }

step transfer "$list" 4 5
transfer=$(figure transfer communication_ms)
batch=512
for name in first second third; do
  step $name "$list" $batch 5 --bucket-size 1000000000
  batch=$(awk "BEGIN { a = $(compute_ms transfer); b = ($(compute_ms $name) - a) / ($batch - 4)
                       printf \"%d\", (1.5 * $transfer - a) / b }")
done
step both "$list" "$batch" 7
step one_bucket "$list" "$batch" 7 --bucket-size 1000000000
[ -z "${KEEP:-}" ] || cp ./*.json "$KEEP"
python3 - "$count" "$rate" "$transfer" <<'END_OF_TABLE'
import json, sys
transfer = float(sys.argv[3])
both, one = (json.loads(open(name + ".json").readline()) for name in ("both", "one_bucket"))
print(f"{sys.argv[1]} hosts, {sys.argv[2]}: the transfer alone takes {transfer:.0f} ms a step, in {both['buckets']} buckets")
for name, run in (("buckets", both), ("one bucket", one)):
    compute = run["compute_fraction"] * run["step_ms"]
    print(f"{name + ':':<12} step {run['step_ms']:7.0f} ms, compute {compute:7.0f} ms, exposed {run['exposed_all_ms']:7.0f} ms: "
          f"{100 * run['exposed_all_ms'] / transfer:.1f} % of the transfer; {run['waiting_ms']:.0f} ms wait for the slowest rank")
END_OF_TABLE
