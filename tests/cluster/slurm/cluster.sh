# Sourced by tests/cluster/slurm/*_test.sh: a Slurm cluster of several nodes on this one machine, for as long as the
# script runs. Every node is a set of namespaces (network, host name, processes, mounts, shared memory) with its own
# address, /tmp, /run, munged and slurmd; a login host has slurmctld and the bridge that joins them. All of it hangs
# below one process, the login host's init, and dies with it; nothing outside the folder $cluster is written.
#
#   cluster_start NODES [LINE...]   nodes n1 n2 ... with two CPUs each; LINEs are added to slurm.conf
#   on_login COMMAND...             runs it on the login host, in the folder of the script
#   on_node NODE COMMAND...
#   power_off NODE, power_on NODE   peers of a node that is off receive nothing from it, not even closed connections
#   release_requeued                jobs that went back into the queue are held for two minutes there: not here
#
# Inside the namespaces the same file is run as: bash cluster.sh login|node FOLDER [NODE]

cluster_file=$(realpath "${BASH_SOURCE[0]}")
subnet=10.77.0

# ---------------------------------------------------------------------------------------------- inside the namespaces

# Makes a host's own mounts; hosts share the rest of the file system.
own_mounts() {
  local own=$1
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 run /run
  mkdir -p /run/munge /run/lock /run/spool
  mount -t tmpfs -o mode=1777 shm /dev/shm
  mount -t sysfs sysfs /sys 2>/dev/null
  mount --bind "$cluster/hosts" /etc/hosts
  mount --bind /dev/null /etc/resolv.conf 2>/dev/null
  # A /tmp of its own that contains the shared folders of this test at their outside paths.
  mkdir -p "$own/tmp"
  mount -t tmpfs -o mode=1777 tmp "$own/tmp"
  local folder
  while read -r folder; do
    case $folder in
      /tmp/*)
        mkdir -p "$own/tmp/${folder#/tmp/}"
        mount --bind "$folder" "$own/tmp/${folder#/tmp/}"
        ;;
    esac
  done <"$cluster/shared"
  mount --rbind "$own/tmp" /tmp
  ip link set lo up
  munged --foreground --force --num-threads=2 --key-file="$cluster/munge.key" --seed-file=/run/munge/seed \
    --log-file=/run/munge/log >>"$own/munged.out" 2>&1 &
  local i
  for ((i = 0; i < 200; i++)); do
    [ -S /run/munge/munge.socket.2 ] && return
    sleep 0.05
  done
  echo "munged does not start" >&2
}

# The first process of a host: reaps orphans for ever.
reap() { while :; do wait; sleep 1; done; }

login_init() {
  trap '' INT HUP
  hostname login
  own_mounts "$cluster/login"
  ip link add bridge type bridge
  ip addr add "$subnet.254/24" dev bridge
  ip link set bridge up
  slurmctld -D >>"$cluster/login/slurmctld.out" 2>&1 &
  : >"$cluster/login/ready"
  reap
}

node_init() {
  local own=$cluster/$1 i
  trap '' INT HUP
  hostname "$1"
  own_mounts "$own"
  : >"$own/wants_network"
  for ((i = 0; i < 200; i++)); do
    ip link show eth0 >/dev/null 2>&1 && break
    sleep 0.05
  done
  ip addr add "$subnet.${1#n}/24" dev eth0
  ip link set eth0 up
  cd / && slurmd -D -N "$1" >>"$own/slurmd.out" 2>&1 &
  reap
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  cluster=$2
  export SLURM_CONF=$cluster/slurm.conf
  case $1 in
    login) login_init ;;
    node) node_init "$3" ;;
  esac
  exit
fi

# ------------------------------------------------------------------------------------------------------------ outside

cluster="" cluster_keeper="" login_pid=""
declare -A node_keeper node_pid

# The reason why no cluster is possible here; empty if it is.
no_cluster_because() {
  local program missing=""
  for program in slurmctld slurmd munged sbatch mpirun ip unshare nsenter setpriv; do
    command -v $program >/dev/null || missing+=" $program"
  done
  if [ -n "$missing" ]; then
    echo "not found:$missing (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 openmpi-bin)"
  elif [ "$(id -u)" != 0 ]; then
    echo "a cluster of namespaces needs root"
  elif ! unshare --mount --uts --ipc --net --pid --fork --mount-proc true 2>/dev/null; then
    echo "this system allows no new namespaces (a container without privileges?)"
  fi
}

write_cluster_files() {
  local i
  (umask 077 && head -c 1024 /dev/urandom >"$cluster/munge.key")
  {
    echo "127.0.0.1 localhost"
    echo "$subnet.254 login"
    for ((i = 1; i <= nodes; i++)); do echo "$subnet.$i n$i"; done
  } >"$cluster/hosts"
  echo "CgroupPlugin=cgroup/v1" >"$cluster/cgroup.conf" # named, so that Slurm does not look for it; nothing here uses it
  cat >"$cluster/slurm.conf" <<END
ClusterName=lockstep
SlurmctldHost=login($subnet.254)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$cluster/state
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$cluster/login/slurmctld.log
SlurmdLogFile=$cluster/%n/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
MessageTimeout=10
KillWait=5
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=5
NodeName=n[1-$nodes] NodeAddr=$subnet.[1-$nodes] Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

child_of() { ps -o pid= --ppid "$1" | head -n 1 | tr -d ' '; }

# Waits for the first process of a keeper (unshare --fork).
wait_for_init() {
  local pid i
  for ((i = 0; i < 200; i++)); do
    pid=$(child_of "$1")
    [ -z "$pid" ] || { echo "$pid"; return; }
    sleep 0.05
  done
  return 1
}

# Keepers die with this script, for any end of it, and their processes die with them.
keeper() { exec setpriv --pdeathsig KILL unshare --mount --uts --ipc --net --pid --fork --mount-proc --kill-child "$@"; }

cluster_start() {
  nodes=$1
  shift
  local reason i
  reason=$(no_cluster_because)
  [ -z "$reason" ] || skip_all "$reason"
  cluster=$work/cluster
  mkdir -p "$cluster/login" "$cluster/state"
  printf '%s\n' "$work" "$tree" "$(dirname "$lockstep")" >"$cluster/shared"
  write_cluster_files
  printf '%s\n' "$@" >>"$cluster/slurm.conf"
  export SLURM_CONF=$cluster/slurm.conf
  (keeper bash "$cluster_file" login "$cluster") </dev/null >>"$cluster/login/init.out" 2>&1 &
  cluster_keeper=$!
  login_pid=$(wait_for_init $cluster_keeper) || { echo "no namespaces: $(cat "$cluster/login/init.out")"; exit 1; }
  for ((i = 0; i < 200; i++)); do
    [ -e "$cluster/login/ready" ] && break
    sleep 0.05
  done
  for ((i = 1; i <= nodes; i++)); do power_on n$i; done
  for ((i = 0; i < 300; i++)); do
    [ "$(on_login timeout 5 sinfo -h -N -o '%N %t' 2>/dev/null | sort -u | grep -c ' idle$')" = "$nodes" ] && return
    sleep 0.2
  done
  echo "the cluster does not come up:"
  on_login timeout 5 sinfo -N -l
  tail -n 5 "$cluster"/*/*.out "$cluster"/*/*.log
  exit 1
}

cluster_stop() {
  [ -z "$cluster_keeper" ] || kill -9 "$cluster_keeper" 2>/dev/null
  wait "$cluster_keeper" 2>/dev/null
  cluster_keeper=""
  local i
  for ((i = 0; i < 100; i++)); do
    grep -q " $cluster/" /proc/self/mountinfo || break # mounts are gone with the last process; never remove through one
    sleep 0.05
  done
}

# As root, with nothing of the caller's Slurm or Open MPI settings.
in_namespaces() {
  local pid=$1
  shift
  nsenter -t "$pid" -m -u -i -n -p -- env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp \
    OMPI_MCA_mpi_yield_when_idle=1 bash -c 'cd "$0" && exec "$@"' "$work" "$@"
}
on_login() { in_namespaces "$login_pid" "$@"; }
on_node() {
  local pid=${node_pid[$1]}
  shift
  in_namespaces "$pid" "$@"
}

power_on() {
  local node=$1 own=$cluster/$1 pid i
  mkdir -p "$own"
  rm -f "$own/wants_network"
  (keeper bash "$cluster_file" node "$cluster" "$node") </dev/null >>"$own/init.out" 2>&1 &
  node_keeper[$node]=$!
  pid=$(wait_for_init "${node_keeper[$node]}") || { echo "$node: $(cat "$own/init.out")"; exit 1; }
  node_pid[$node]=$pid
  for ((i = 0; i < 200; i++)); do
    [ -e "$own/wants_network" ] && break
    sleep 0.05
  done
  nsenter -t "$login_pid" -n ip link add "to-$node" type veth peer name "from-$node"
  nsenter -t "$login_pid" -n ip link set "to-$node" master bridge up
  nsenter -t "$login_pid" -n ip link set "from-$node" netns "$pid" name eth0
}

power_off() {
  local node=$1
  nsenter -t "$login_pid" -n ip link set "to-$node" down
  kill -9 "${node_keeper[$node]}"
  wait "${node_keeper[$node]}" 2>/dev/null
  nsenter -t "$login_pid" -n ip link del "to-$node" 2>/dev/null
  powered_off_at=$SECONDS
}
powered_off_at=-1000

# When a job is back in the queue, its former attempt may still be ending on some node and would disturb a new one.
declare -A pending_since
release_requeued() {
  local job node
  for job in $(on_login squeue -h -t PD -O 'JobID:12,RestartCnt:6,Reason:20' | awk '$2 > 0 && $3 == "BeginTime" { print $1 }'); do
    : "${pending_since[$job]:=$SECONDS}"
    [ $((SECONDS - ${pending_since[$job]})) -ge 4 ] || continue
    # After the loss of a node, an order to end the former attempt may take longer.
    [ $((SECONDS - powered_off_at)) -gt 30 ] || continue
    for node in "${!node_pid[@]}"; do
      ! on_node "$node" pgrep -f "^slurmstepd: \\[$job\\." >/dev/null 2>&1 || continue 2
    done
    unset "pending_since[$job]"
    on_login scontrol update JobId="$job" StartTime=now
  done
}
