#!/usr/bin/env bash
# Cluster mistakes before the first step: no route, no such interface, another program. Each gives one message of ours
# in time (a start gets 20 s, with any deadline), and no rank hangs.
# seconds: 600
# waits
# openmpi: its options and messages
. "$(dirname "$0")/harness.sh"
pack_small data/train
nodes 3
train=(train --data data --optimizer sgd --hidden 16 --batch 20 --steps 20 --device cpu --deadline 5)
slots=node1:1,node2:1,node3:1

check "a host whose data network is cut"
"$hosts" cut node3 data
start -H $slots "${train[@]}" --run runs/cut
fails_at_start "error on rank [01] .*rank 2 has not introduced itself at the start for 20 s.*interfaces"
"$hosts" heal node3 data

check "two hosts that cannot route to each other"
"$hosts" exec node2 ip route add unreachable 198.18.1.3/32
start -H $slots "${train[@]}" --run runs/unroutable
finish 60
[ "$status" != 0 ] || failed "exit 0"  # Open MPI's own end, in its words
expect grep -q "from node2 to: node3.*198.18.1.3.*No route to host" err
nobody_remains 10 head $(all_nodes)
"$hosts" exec node2 ip route del unreachable 198.18.1.3/32

check "a firewall between two hosts"
"$hosts" part node2 node3
start -H $slots "${train[@]}" --run runs/parted
fails_at_start "rank [12] has not introduced itself at the start for 20 s"
"$hosts" join node2 node3

check "an interface that does not exist"
export OMPI_MCA_btl_tcp_if_include=nosuch
start -H $slots "${train[@]}" --run runs/interface
fails_at_start "rank [0-9].*interfaces .*data0.*control0.* and OMPI_MCA_btl_tcp_if_include=nosuch names none of them"
unset OMPI_MCA_btl_tcp_if_include

check "an interface that is down on one host"
"$hosts" exec node2 ip link set data0 down
start -H $slots "${train[@]}" --run runs/down
fails_at_start "rank [0-9].*talking to rank [01].*OMPI_MCA_btl_tcp_if_include=data0|has not introduced itself"
"$hosts" exec node2 ip link set data0 up

check "an older program on one host"
cp "$lockstep" older
printf 'one more byte' >>older
start -H node1:1 -m "-np 1 $lockstep ${train[*]} --run runs/older : --host node2:1 -np 1 $work/older ${train[*]} --run runs/older :
  --host node3:1 -np 1" "${train[@]}" --run runs/older
fails_at_start "the program differs.*rank.* 1"

check "options that differ between hosts"
start -H node1:1 -m "-np 1 $lockstep ${train[*]} --run runs/options : --host node2:1 -np 1" "${train[@]}" --seed 7 --run runs/options
finish 60
expect_error 2 "ranks? [01].*differ|differ.*ranks? [01]"

check "a full /dev/shm"
for host in $(all_nodes); do "$hosts" exec "$host" sh -c 'cat /dev/zero >/dev/shm/full' 2>/dev/null; done
run -H node1:2,node2:1 "${train[@]}" --run runs/full
expect_status 0
expect_out "done at step 20"
run -H node1:3 "${train[@]}" --run runs/full-one-host
expect_status 0
expect_out "done at step 20"
for host in $(all_nodes); do "$hosts" exec "$host" rm /dev/shm/full; done

check "Slurm's variables without Slurm"
export SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_NTASKS=3 SLURM_NNODES=3 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEPID=0
run "${train[@]}" --run runs/slurm-alone
expect_status 0
expect_err "MPI sees a world of one, but SLURM_NTASKS=3"
run -H $slots "${train[@]}" --run runs/slurm  # mpirun trusts them, too, and reports the missing one
[ "$status" != 0 ] || failed "exit 0"
expect grep -q "unable to find the following environment variable" err
unset ${!SLURM_*}

check "afterwards all is well"
run -H $slots "${train[@]}" --run runs/well
expect_status 0
expect_silence
nobody_remains 10 head $(all_nodes)
