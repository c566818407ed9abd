#!/usr/bin/env bash
# tests/cluster/network/table.sh LOCKSTEP TREE [RATE [NODES]]: our ring beside Open MPI's MPI_Allreduce, as it chooses and
# forced to its ring, on hosts joined by shaped links (1gbit, 4 hosts), in percent of what the links allow. A
# measurement, no test: it wants a quiet machine.
#
# The bound is 2(p-1)/p of the data over what TCP can carry: of 1,514 bytes that a link is charged for, 1,448 are payload.
# Within one run our ring and MPI_Allreduce take turns, batch by batch; which algorithm Open MPI takes is fixed for a run,
# so there are two, and ours is in both.
. "$(dirname "$0")/harness.sh"
rate=${3:-1gbit} count=${4:-4}
nodes "$count" --rate "$rate"
case $rate in
  *gbit) gbps=${rate%gbit} ;;
  *mbit) gbps=$(awk "BEGIN { print ${rate%mbit} / 1000 }") ;;
  *) echo "table.sh: a rate like 1gbit or 200mbit, not $rate" >&2; exit 2 ;;
esac
payload=$(awk "BEGIN { print $gbps * 1448 / 1514 }")
list=$(all_nodes | paste -sd,)
bench=(bench all-reduce --algorithms ring,mpi --min 16384 --max "${MAX:-16777216}" --factor 4 --repeat "${REPEAT:-9}" --warmup 2
  --device cpu --link-gbps "$payload")
check "MPI_Allreduce as Open MPI chooses"
start -H "$list" -m "--mca mpi_yield_when_idle 1" "${bench[@]}" --json default.json
finish 900
expect_status 0
check "MPI_Allreduce forced to a ring"
start -H "$list" -m "--mca mpi_yield_when_idle 1 --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4" "${bench[@]}" --json ring.json
finish 900
expect_status 0
[ $failures = 0 ] || exit 1
python3 - "$count" "$rate" <<'END'
import json, sys
def rows(name):
    table = {}
    for line in open(name):
        row = json.loads(line)
        table[row["bytes"], row["way"]] = row
    return table
default, ring = rows("default.json"), rows("ring.json")
ways = sorted({way for _, way in default})
ours, theirs = [next(way for way in ways if (way == "mpi") == (key == "mpi")) for key in ("ours", "mpi")]
print(f"{sys.argv[1]} hosts, {sys.argv[2]}; percent of the bound (median)")
print(f"{'bytes':>10} {'bound ms':>9} | {'our ring':>8} {'default':>8} | {'our ring':>8} {'forced ring':>11}")
for size in sorted({size for size, _ in default}):
    bound = default[size, ours]["bound_us"] / 1000
    cells = [table[size, way]["percent_of_bound"] for table, way in
             ((default, ours), (default, theirs), (ring, ours), (ring, theirs))]
    print(f"{size:>10} {bound:>9.2f} | {cells[0]:>8.1f} {cells[1]:>8.1f} | {cells[2]:>8.1f} {cells[3]:>11.1f}")
END
