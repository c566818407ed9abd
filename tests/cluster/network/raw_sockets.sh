#!/usr/bin/env bash
# tests/cluster/network/raw_sockets.sh LOCKSTEP TREE: compares our ring's throughput between two hosts whose links are
# not shaped, so that the cores are the limit, with raw sockets: iperf3 in both directions at once, one thread per host
# like the ring. In turns, three rounds. A measurement, no test: it needs a quiet machine, and iperf3.
. "$(dirname "$0")/harness.sh"
command -v iperf3 >/dev/null || { echo "raw_sockets.sh: iperf3 is not installed" >&2; exit 77; }
nodes 2 --rate none

# Both print bytes per second that the two hosts together receive.
raw() {
  "$hosts" exec node1 iperf3 --server --one-off --daemon --bind 198.18.1.1 >/dev/null  # its address on the data network
  sleep 0.5
  "$hosts" exec node2 iperf3 --client 198.18.1.1 --bidir --time 4 --json >raw.json
  python3 -c 'import json
end = json.load(open("raw.json"))["end"]
print((end["sum_received"]["bits_per_second"] + end["sum_received_bidir_reverse"]["bits_per_second"]) / 8)'
}
ring() {  # with two hosts each sends the size of the data
  run -H node1,node2 -m "--mca mpi_yield_when_idle 1" bench all-reduce --device cpu --algorithms ring-only \
    --min 16777216 --max 16777216 --repeat 20 --warmup 2 --json rows >&2
  expect_status 0 >&2
  python3 -c 'import json; row = json.loads(open("rows").readline()); print(2e6 * row["bytes"] / row["time_us"])'
}
check "raw sockets and the ring, in turns"
for round in 1 2 3; do
  rm -f rows
  echo "$(raw) $(ring)" >>figures
done
[ $failures = 0 ] || exit 1
python3 <<'END'
import statistics
rows = [tuple(map(float, line.split())) for line in open("figures")]
raw, ring = (statistics.median(row[i] for row in rows) for i in (0, 1))
ratios = [100 * row[1] / row[0] for row in rows]
print(f"raw sockets {raw / 1e9:.2f} GB/s, the ring {ring / 1e9:.2f} GB/s in all; "
      f"the ring carries {statistics.median(ratios):.0f} % ({min(ratios):.0f} to {max(ratios):.0f}) of what they do")
END
