#!/usr/bin/env bash
# tests/cluster/network/table.sh LOCKSTEP TREE [RATE [NODES]]: our all-reduce beside Open MPI's MPI_Allreduce, with its
# own choice and with each of its algorithms, on hosts joined by shaped links (1gbit, 4 hosts; none: not shaped), from 1
# KiB to 64 MiB. A measurement, no test: it needs a quiet machine. From the environment: MAX, the largest size in bytes;
# REPEAT, the number of measurements of each; DELAY (1ms, 500us), the delay of each packet from host to host besides its
# bytes; ALL_REDUCE=measured: ours with the limits measured at the start; MPICH, a program that was built with it: its
# MPI_Allreduce in a column.
#
# The bound is 2(p-1)/p of the data over the capacity of TCP: of 1,514 bytes that a link counts, 1,448 are payload. It
# includes no delay. Within one run ours and MPI_Allreduce take turns, batch by batch. Open MPI's algorithm is fixed for
# a run, so there are several runs, each with ours. The first run compares our schedules, too.
mpich=${MPICH:+$(realpath "$MPICH")}
. "$(dirname "$0")/harness.sh"
rate=${3:-1gbit} count=${4:-4}
export HOSTS_LIMIT=${HOSTS_LIMIT:-900}  # 100mbit is slow
nodes "$count" --rate "$rate" ${DELAY:+--delay "$DELAY"}
case $rate in
  *gbit) gbps=${rate%gbit} ;;
  *mbit) gbps=$(awk "BEGIN { print ${rate%mbit} / 1000 }") ;;
  none) gbps=100 ;;  # unused: only times count
  *) echo "table.sh: a rate like 1gbit or 200mbit, or none, not $rate" >&2; exit 2 ;;
esac
payload=$(awk "BEGIN { print $gbps * 1448 / 1514 }")
list=$(all_nodes | paste -sd,)
bench=(--all-reduce "${ALL_REDUCE:-auto}" --min 256 --max "${MAX:-16777216}" --factor 4 --repeat "${REPEAT:-9}" --warmup 2 --device cpu --link-gbps "$payload")
measure() { # FILE ALGORITHMS LAUNCHER-OPTIONS
  check "$1"
  start -H "$list" -m "$3" bench all-reduce --algorithms "$2" "${bench[@]}" --json "$1.json"
  finish 900
  [ "$1" = mpich ] || expect_status 0  # its launcher may report failure for a complete job
}
yielding="--mca mpi_yield_when_idle 1"
forced() { echo "$yielding --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm $1"; }
measure default ring,mpi,doubling,halving,ring-only "$yielding"
measure doubling ring,mpi "$(forced 3)"
measure ring ring,mpi "$(forced 4)"
measure segmented ring,mpi "$(forced 5)"
measure rabenseifner ring,mpi "$(forced 6)"
[ -z "$mpich" ] || lockstep=$mpich measure mpich mpi ""
[ $failures = 0 ] || exit 1
python3 - "$count" "$rate${DELAY:+, $DELAY}" default doubling ring segmented rabenseifner <<'END'
import json, sys
count, rate, *names = sys.argv[1:]
runs = {}
for name in names:
    runs[name] = {}
    for line in open(name + ".json"):
        row = json.loads(line)
        runs[name][row["bytes"], row["way"]] = row
rows = runs["default"]
try:
    mpich = {row["bytes"]: row for row in map(json.loads, open("mpich.json"))}
except FileNotFoundError:
    mpich = {}
print(f"{count} hosts, {rate}; percent of the bound (median) and, of ours, how many times as fast as Open MPI in turns")
print(f"{'bytes':>10} {'bound ms':>9} | {'ours':>6} {'by':>9} {'doubling':>9} {'halving':>9} {'ring':>6} | "
      f"{'default':>8} {'best':>6}  {'which':<12} | {'x default':>9} {'x best':>7}" +
      (f" | {'MPICH':>6} {'x MPICH':>8}" if mpich else ""))
for size in sorted({size for size, _ in rows}):
    ours = rows[size, "ring"]
    percent = lambda row: row["percent_of_bound"]
    best = min(names, key=lambda name: runs[name][size, "mpi"]["time_us"])
    ahead = lambda name: runs[name][size, "mpi"]["time_us"] / runs[name][size, "ring"]["time_us"]
    print(f"{size:>10} {ours['bound_us'] / 1000:>9.3f} | {percent(ours):>6.1f} {ours['schedule']:>9} "
          f"{percent(rows[size, 'doubling']):>9.1f} {percent(rows[size, 'halving']):>9.1f} {percent(rows[size, 'ring-only']):>6.1f} | "
          f"{percent(rows[size, 'mpi']):>8.1f} {percent(runs[best][size, 'mpi']):>6.1f}  {best:<12} | "
          f"{ahead('default'):>9.2f} {ahead(best):>7.2f}" +
          (f" | {percent(mpich[size]):>6.1f} {mpich[size]['time_us'] / ours['time_us']:>8.2f}" if mpich else ""))
END
