# Sourced by tests/cluster/network/*.sh, which are called as: bash tests/cluster/network/NAME.sh LOCKSTEP TREE
# tests/cli/harness.sh on several hosts: `nodes N ...` makes them, and -H LIST ("node1:2,node2:1") in place of -n RANKS
# starts the program over them, by the launcher of its MPI. If nodes cannot be made the script is skipped, with the
# reason.
. "$(dirname "${BASH_SOURCE[0]}")/../../cli/harness.sh"
hosts=$tree/tests/cluster/network/hosts
# mpi_of PROGRAM: the MPI that it was built with, openmpi or mpich.
mpi_of() { if ldd "$1" | grep -q libmpich; then echo mpich; else echo openmpi; fi; }

trap 'code=$?; take_down; (exit $code); end_of_script' EXIT
take_down() {
  [ -n "${LOCKSTEP_HOSTS:-}" ] || return 0
  "$hosts" down
  unset LOCKSTEP_HOSTS
}

# nodes N [--rate RATE] [--delay DELAY]: replaces the nodes before.
nodes() {
  take_down
  node_count=$1
  local build; build=$(dirname "$lockstep")
  LOCKSTEP_HOSTS=$(TMPDIR=$work "$hosts" up "$@" --build "$build" --owner $$ --share "$work" --share "$build" 2>up.err)
  local code=$?
  [ $code != 77 ] || skip_all "$(cat up.err)"
  [ $code = 0 ] || { cat up.err; exit 1; }
  export LOCKSTEP_HOSTS
}

# command_for -H LIST [-m "LAUNCHER OPTIONS"] [-w WRAPPER] ARGUMENTS...: one rank per slot.
command_for() {
  local list="" launcher=() wrapper=()
  while :; do
    case ${1:-} in
      -H) list=$2; shift 2 ;;
      -m) read -ra launcher <<<"$2"; shift 2 ;;
      -w) wrapper=("$2"); shift 2 ;;
      *) break ;;
    esac
  done
  local program=("${wrapper[@]}" "$lockstep" "$@")
  command=("${program[@]}")
  if [ -n "$list" ] && [ "$(mpi_of "$lockstep")" = mpich ]; then
    local ranks; ranks=$(tr ',' '\n' <<<"$list" | awk -F: '{ sum += NF > 1 ? $2 : 1 } END { print sum }')
    command=("$hosts" mpiexec -hosts "$list" -n "$ranks" "${launcher[@]}" "${program[@]}")
  elif [ -n "$list" ]; then
    command=("$hosts" mpirun --host "$list" "${launcher[@]}" "${program[@]}")
  fi
  command_line="${list:+${command[*]:1:3} ${launcher[*]} }${wrapper[*]} lockstep $*"
}

ranks() { :; }  # remaining processes end with their host
# ranks_on NODE: its process ids, by rank. With MPICH ranks are the children of the launcher's processes.
ranks_on() {
  "$hosts" exec "$1" ps -e -o pid=,ppid=,args= | awk -v program="$lockstep" '
    $3 == program { parent[$1] = $2; above[$2] = 1 }
    END { for (pid in parent) if (!(pid in above)) print parent[pid], pid }' | sort -n -k1,1 -k2,2 | cut -d" " -f2
}

# nobody_remains SECONDS HOST...: within that time all ranks, mpirun's daemons and all files in /tmp and /dev/shm are
# gone.
nobody_remains() {
  local deadline=$((SECONDS + $1)) host there; shift
  for host in "$@"; do
    while there=$("$hosts" processes "$host"; "$hosts" files "$host"); [ -n "$there" ]; do
      [ $SECONDS -le "$deadline" ] || { failed "left on $host: $there"; return; }
      sleep 0.1
    done
  done
}
# fails_at_start REGEX: within the deadline, the launcher's own second and the start itself.
fails_at_start() {
  finish 60
  expect_error 1 "$1"
  nobody_remains 10 head $(all_nodes)
}
all_nodes() { local i; for ((i = 1; i <= node_count; i++)); do echo "node$i"; done; }
# Total bytes that the nodes have sent so far.
bytes_sent() { "$hosts" bytes | awk '{ sum += $2 } END { print sum }'; }
