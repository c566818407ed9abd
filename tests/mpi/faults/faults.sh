#!/bin/bash
# faults.sh LAUNCH WORKER [TRANSPORT...]: a rank of three is stopped, killed, fails, leaves or diverges. The job ends
# within seconds and without success; one line names the culprit; no process and no file in /dev/shm stays behind. All
# transports run at the same time, because they mostly wait.
launch=$1 worker=$2
shift 2
if [ $# = 0 ]; then
  failed=0 lanes=()
  for transport in shared-memory ring mpi two-level:0,1,0 two-level:0,1,1; do
    bash "$0" "$launch" "$worker" "$transport" &
    lanes+=($!)
  done
  for lane in "${lanes[@]}"; do wait "$lane" || failed=1; done
  exit $failed
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0 hangs=0

fail() { echo "FAILED: $case: $*"; sed 's/^/    | /' "$folder/output"; failures=$((failures + 1)); }

# alive PID: the process runs, and is no zombie that waits for its parent.
alive() { grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null; }

# Lists the files in /dev/shm that the job's ranks map.
mapped_files() {
  local rank
  for rank in 0 1 2; do
    grep -o '/dev/shm/[^ ]*$' "/proc/$(cat "$folder/pid.$rank")/maps"
  done 2>/dev/null | sort -u
}

# start TRANSPORT CONDUCT [DEADLINE]: starts the job in the background and waits until all ranks run.
start() {
  case="$1, $2"
  rm -f "$folder"/pid.*
  # With CMA, which serves ranks of one machine, UCX ends a rank that reads a message from the memory of a dead one.
  if [ "$2" = diverges ]; then unset UCX_TLS; else export UCX_TLS=^cma; fi
  timeout -k 1 40 "$launch" 3 "$worker" "$1" "${3:-3}" "$folder" "$2" > "$folder/output" 2>&1 &
  job=$!
  for _ in $(seq 300); do
    [ -s "$folder/pid.0" ] && [ -s "$folder/pid.1" ] && [ -s "$folder/pid.2" ] && break
    sleep 0.05
  done
  [ -s "$folder/pid.1" ] || fail "the ranks did not start"
  pid=$(cat "$folder/pid.1")
  mapped_files > "$folder/files"
  begin=$(date +%s%N)
}

# finish LIMIT: waits for the job's end and checks the rules for every fault.
finish() {
  local rank ended=""
  while [ -z "$ended" ] && kill -0 $job 2>/dev/null; do
    ended=yes
    for rank in 0 1 2; do alive "$(cat "$folder/pid.$rank" 2>/dev/null)" && ended=""; done
    sleep 0.02
  done
  local tenths=$((($(date +%s%N) - begin) / 100000000))
  wait $job; local code=$?
  # Open MPI's launcher may hang after its ranks have ended and it has said so: one hang is tolerated.
  [ $code -ne 124 ] || { hangs=$((hangs + 1)); echo "$case: the launcher hung"; }
  [ $hangs -le 1 ] || fail "the launcher hung again"
  [ $code -ne 0 ] || fail "it ended with success"
  [ $tenths -le $(($1 * 10)) ] || fail "it took $tenths tenths of a second, more than $1 s"
  for rank in 0 1 2; do
    local process; process=$(cat "$folder/pid.$rank") || continue
    for _ in $(seq 20); do alive "$process" || break; sleep 0.1; done
    if alive "$process"; then fail "rank $rank still runs"; kill -9 "$process"; fi
  done
  local left
  for _ in $(seq 20); do  # the launcher removes the files of killed ranks
    left=$(while read -r file; do [ ! -e "$file" ] || echo "$file"; done < "$folder/files")
    [ -z "$left" ] && break
    sleep 0.3
  done
  [ -z "$left" ] || fail "left: $left"
  echo "$case: code $code after $tenths tenths of a second, $(wc -l < "$folder/files") files in /dev/shm removed"
}

# survive TRANSPORT CONDUCT: starts a job that tolerates dead ranks, with a launcher that does, too.
survive() {
  rm -f "$folder/stop"
  OMPI_MCA_orte_enable_recovery=1 start "$1" "$2" 10
}
# goes_on RANKS: that many are left, have the right numbers, and end on request.
goes_on() {
  local turn ranks=$1
  for turn in $(seq 400); do
    [ "$(grep -c "goes on in a job of $ranks" "$folder/output")" -ge "$ranks" ] && break
    sleep 0.05
  done
  says "$ranks" "goes on in a job of $ranks"
  touch "$folder/stop"
  wait $job
  says "$ranks" "ends in a job of $ranks"
  says 0 "Ending the job|has other numbers"
  echo "$case: $ranks left"
}

# says COUNT TEXT: the output has exactly COUNT lines with TEXT.
says() {
  local count; count=$(grep -c -E -- "$2" "$folder/output")
  [ "$count" -eq "$1" ] || fail "$count lines, not $1, say \"$2\""
}

hydra=""
case $(mpirun --version 2>/dev/null) in HYDRA*) hydra=yes ;; esac

# names_the_dead: one line names a dead rank that ends the job.
names_the_dead() {
  says 1 "Ending the job"
  says 1 "rank 1 \(host .*, pid $pid\) has died"
}

# Two levels: the culprit, rank 1, shares its machine with rank 2, or is alone.
for transport in "$@"; do
  start $transport stopped
  kill -STOP "$pid"
  finish 8
  says 1 "Ending the job"
  says 1 "rank 1 \(host .*, pid $pid\) has not arrived at an all-reduce for 3(\.[0-9])? s; .* step [0-9]+: backward"
  # The ranks on its machine see the reason, and tell the others.
  case $transport in
    *:0,1,0) says 1 "It may be stopped, swapped out or cut off" ;;
    *) says 1 "is stopped \(SIGSTOP" ;;
  esac

  start $transport killed
  kill -KILL "$pid"
  finish 5
  names_the_dead

  # Hydra ends all ranks when one has died.
  for conduct in survives survives-beside; do
    [ -z "$hydra" ] || continue
    survive $transport $conduct
    kill -KILL "$pid"
    goes_on 2

    # The rank that must hear of the death is stopped meanwhile, and lives.
    survive $transport $conduct
    kill -STOP "$pid"
    sleep 0.3
    kill -KILL "$(cat "$folder/pid.2")"
    sleep 1.2
    kill -CONT "$pid"
    goes_on 2

    survive $transport $conduct
    kill -KILL "$pid" "$(cat "$folder/pid.2")"
    goes_on 1
  done

  # One computing thread waits in a small sum that overtakes buckets, the others in a bucket or in nothing.
  case $transport in
    ring | two-level:*)
      start $transport overtakes
      kill -STOP "$pid"
      finish 8
      says 1 "Ending the job"
      says 1 "rank 1 \(host .*, pid $pid\) has not arrived at an all-reduce for 3(\.[0-9])? s; .* step [0-9]+: backward"

      start $transport overtakes
      kill -KILL "$pid"
      finish 5
      names_the_dead
      ;;
  esac

  [ $transport = two-level:0,1,0 ] && continue  # shows no more than a ring
  [ $transport = mpi ] && continue

  # The deadline of 30 s has become 1 s.
  start $transport hurries 30
  kill -STOP "$pid"
  finish 6
  says 1 "Ending the job"
  says 1 "rank 1 \(host .*, pid $pid\) has not arrived at an all-reduce for 1(\.[0-9])? s"

  # Nobody is in a collective when it dies.
  start $transport waits 30
  sleep 0.5
  kill -KILL "$pid"
  finish 5
  names_the_dead

  start $transport fails
  finish 5
  says 1 "error on rank"
  says 1 "error on rank 1: this rank fails alone"

  # Open MPI's launcher ends the others one after the other; the ranks still alive do not take the first of them for the
  # dead one.
  if [ -z "$hydra" ]; then
    rm -f "$folder/launcher"
    start $transport overtaken
    for _ in $(seq 100); do [ -s "$folder/launcher" ] && break; sleep 0.05; done
    sleep 2.6
    kill -CONT "$(cat "$folder/launcher")"
    finish 6
    says 1 "error on rank"
    says 1 "error on rank 1: this rank fails alone"
  fi

  # With exit code 0, which Hydra may take for the job's.
  if [ -z "$hydra" ]; then
    start $transport leaves
    finish 6
    names_the_dead
  fi

  # The sentence comes before a destructor that never returns.
  start $transport stuck
  kill -KILL "$pid"
  finish 5
  names_the_dead

  # Two ranks have done their work, the third never ends: the exit code is the work's, not the wait's.
  start $transport ends 30
  finish 12
  says 1 "rank 0 \(host .*\) is done, but some rank has not come .* Ending with exit code 75"
  [ -n "$hydra" ] || says 1 "Exit code: +75"

  start $transport diverges
  finish 8
  says 1 "Ending the job"
  says 1 "the ranks have diverged"
done

# The lowest rank is the culprit: the next one speaks.
start "$1" stopped-0
kill -STOP "$(cat "$folder/pid.0")"
finish 8
says 1 "error on rank 1: rank 0 \(host"

# The dead rank is indispensable, and no collective notices its end.
start "$1" behind-the-work
finish 5
names_the_dead
says 0 "goes on without"

# No rank can speak: the process above the rank does.
if [ -n "$hydra" ] && [ "$1" = shared-memory ]; then
  start "$1" stopped-all
  kill -STOP "$(cat "$folder/pid.0")" "$(cat "$folder/pid.2")"
  kill -KILL "$pid"
  finish 9
  says 1 "lockstep: rank 1 \(host .*, pid $pid\) has been ended by signal 9 \(Killed\)"
fi

[ $failures -eq 0 ] || { echo "$failures checks failed"; exit 1; }
echo "every fault was named"
