#!/usr/bin/env bash
# The all-reduce benchmark over several hosts: all algorithms side by side, the bound of the links, and a link that is
# cut while MPI reduces.
# seconds: 300
. "$(dirname "$0")/harness.sh"
nodes 3 --rate 200mbit
bench=(bench all-reduce --device cpu --min 1000 --max 100000 --factor 10 --repeat 2 --warmup 1 --link-gbps 0.2)

# judge FILE WAYS WIRE HOSTS: checks the rows of a benchmark over HOSTS hosts.
judge() {
  python3 - "$@" <<'END' || failed "rows: $1"
import json, sys
file, ways, wire, hosts = sys.argv[1:]
ways, hosts = ways.split(","), int(hosts)
rows = [json.loads(line) for line in open(file)]
assert [row["way"] for row in rows] == 3 * ways, rows
for row in rows:
    assert row["wrong"] == 0 and row["hosts"] == hosts and row["link_gbps"] == 0.2, row
    travels = wire if row["way"] not in ("mpi", "iallreduce") else "fp32"
    assert row["wire"] == travels, row
    bound = 2 * (hosts - 1) / hosts * row["count"] * (4 if travels == "fp32" else 2) * 8 / 0.2e9 * 1e6
    assert abs(row["bound_us"] - bound) < 1e-6 * bound, (row, bound)
    assert abs(row["percent_of_bound"] - 100 * bound / row["time_us"]) < 1e-6 * row["percent_of_bound"], row
END
}

check "two ranks on each of two hosts"
run -H node1:2,node2:2 "${bench[@]}" --json pairs.json --svg pairs.svg
expect_status 0; expect_silence
expect_out "^all-reduce over 4 ranks on 2 hosts"
expect_out "^bound: at 0.2 Gbit/s each way, 1 times the data .* 2 hosts' links; the ring takes 1.5 times and reaches 67 %"
judge pairs.json ring,two-level,mpi,iallreduce fp32 2
expect grep -q ">bound of the links</text>" pairs.svg

check "a rank on each of three hosts: the ring is the two-level way, and can reach the bound"
run -H node1:1,node2:1,node3:1 "${bench[@]}" --wire bf16 --json three.json
expect_status 0; expect_silence
expect_out "^wire: bf16 by ring, else fp32"
expect_out "^bound: .* 1.333 times the data over each of 3 hosts' links\$"
judge three.json ring,mpi,iallreduce bf16 3

check "shared memory does not reach another host"
run -H node1:1,node2:1 "${bench[@]}" --algorithms shared-memory
expect_error 1 "no communication through shared memory: rank 1 .* is not on the machine of rank 0"

check "a link that is cut while MPI reduces"
start -H node1:1,node2:1 bench all-reduce --algorithms mpi --min 1000000 --max 1000000 --repeat 10000 --deadline 4
wait_for 30 grep -q busbw out
sleep 1
"$hosts" cut node2 data
finish 40
"$hosts" heal node2 data
[ "$status" != 0 ] || failed "it ended with success"
expect_err "rank [01] \(host node[12], pid [0-9]*\) has waited in MPI_Allreduce of 1000000 floats for|rank [01] .*timing all-reduces"
nobody_remains 20 node1 node2
