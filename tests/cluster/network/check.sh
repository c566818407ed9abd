#!/usr/bin/env bash
# The preflight over several hosts: it measures the existing links, and finds a slow host, an unusable interface,
# missing data and hosts that do not reach each other.
# seconds: 300
# openmpi: the interfaces that it is told to take
. "$(dirname "$0")/harness.sh"
pack_small data
nodes 4 --rate 200mbit

check "all is well"
run -H node1:2,node2:1,node3:1,node4:1 check --data data --hidden 16 --seconds 3 --json found --device cpu
expect_status 0; expect_silence
expect_out 'check: 5 ranks on 4 hosts'; expect_out '^network +ok +6 pairs of hosts'; expect_out '^clocks +ok +within'
expect_out '^interfaces +ok +198\.18\.[12]\.0/24 on all hosts'; expect_out 'recomputed on 4 hosts'
tail -n 1 out | grep -Eq '^(OK|BUSY)' || failed "the last line is not OK"
python3 - found <<'PYTHON' || failed "the bandwidths of 200 Mbit/s links"
import json, sys
pairs = [r for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "pair"]
assert len(pairs) == 6
for pair in pairs:
    for way in "forward", "backward":
        assert 12e6 < pair[way] < 30e6, pair  # 25 MB/s less headers
PYTHON

check "one slow host of three"
"$hosts" rate node2 100mbit
run -H node1:1,node2:1,node3:1 check --seconds 3 --device cpu
expect_status 0
expect_out 'warning: node2 has less than 70 %'; expect_out '^--exclude=node2$'
check "one crippled host of four"
"$hosts" rate node2 20mbit
run -H node1:1,node2:1,node3:1,node4:1 check --seconds 4 --device cpu
expect_error 1 'node2 has less than a quarter of the usual bandwidth'
expect_out '^--exclude=node2$'; expect_out '^NOT OK: 1 error'
"$hosts" rate node2 200mbit

check "an address that several hosts have"
for i in 1 2 3; do
  "$hosts" exec node$i sh -c 'ip link add docker0 type veth peer name docker1; ip addr add 172.17.0.1/16 dev docker0
    ip link set docker0 up; ip link set docker1 up'
done
run -H node1:1,node2:1,node3:1 check --seconds 1 --device cpu
expect_status 0; expect_no_out 'address docker0'  # the launch names data0
# Without a list MPI tries docker0, too: the ranks may never reach each other, which the error then explains.
export OMPI_MCA_btl_tcp_if_include=
run -H node1:1,node2:1,node3:1 check --seconds 1 --device cpu --deadline 8
if [ "$status" = 0 ]; then
  expect_out 'warning: several hosts have the address docker0 172.17.0.1'
  expect_out 'btl_tcp_if_include 198.18.[12].0/24 .*NCCL_SOCKET_IFNAME=(data0|control0)'
else
  expect_status 1
  expect_err 'docker0 172\.17\.0\.1 looks like the same address on every host.*btl_tcp_if_include 198\.18\.'
fi
unset OMPI_MCA_btl_tcp_if_include
for i in 1 2 3; do "$hosts" exec node$i ip link del docker0; done

check "two hosts that stop reaching each other while the network is measured"
start -H node1:1,node2:1,node3:1,node4:1 check --seconds 20 --deadline 6 --device cpu
wait_for 30 grep -q '^environment' out
sleep 1
"$hosts" part node1 node3
finish 60
expect_status 1
expect_err 'do not reach each other|no way between|rank [02] '
"$hosts" join node1 node3
nobody_remains 5 head $(all_nodes)
