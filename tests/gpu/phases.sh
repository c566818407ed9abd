# shellcheck shell=bash disable=SC2154  # tests/gpu/run sets the variables and sources this
# Runs phases, one after another or side by side, and writes what is known of each as soon as it has ended.

work="" warm="" beside=() width=1
widest=$(($(nproc) / 2))  # a check computes on two cores
[ $widest -ge 1 ] || widest=1
[ $widest -le 8 ] || widest=8

# escaped TEXT: as the content of a JSON string.
escaped() { printf '%s' "$1" | LC_ALL=C tr -s '\000-\037' ' ' | sed 's/[\\"]/\\&/g'; }

# clean_up: leaves no process and no temporary file, for any end of the script.
clean_up() {
  local processes file
  mapfile -t processes < <(jobs -p)
  [ ${#processes[@]} = 0 ] || kill "${processes[@]}" 2>/dev/null
  for file in "$work"/pids/*; do [ ! -f "$file" ] || kill "$(<"$file")" 2>/dev/null; done
  [ "$out" = "$work/out" ] || tar -C "$work" -czf "$out/more.tar.gz" more
  rm -rf "$work"
}

# begin: prints the subject and the machine; ends the script if there is nothing to test.
begin() {
  local version devices="the CPU in a GPU's place" driver place
  [ -x "$programs/lockstep" ] || stop "$programs/lockstep is not there: build it first (tests/run does)"
  version=$(launch 1 lockstep --version 2>&1) || stop "lockstep does not start: $version" 1
  if [ "$subject" = gpu ]; then
    devices=$(launch 1 gpu_tests --survey 2>&1)
    case $? in
      0) ;;
      77) echo "$devices"; exit 77 ;;
      *) stop "gpu_tests does not start: $devices" 1 ;;
    esac
  fi
  work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-gpu.XXXXXX") || exit 1
  out=${out:-$work/out}
  mkdir -p "$out" "$work/pids" "$work/more" || stop "$out could not be made" 1
  (cd "$out" && rm -f machine.txt summary.txt results.jsonl logs.txt figures.jsonl torch.jsonl result.json more.tar.gz)
  touch "$out"/{summary.txt,results.jsonl,logs.txt}
  export work out
  trap clean_up EXIT
  trap 'exit 1' INT TERM HUP
  python=""
  for place in python3 /usr/bin/python3; do
    "$place" -c '' 2>/dev/null || continue
    python=${python:-$place}
    "$place" -c 'import torch' 2>/dev/null && python=$place && break
  done
  export python
  [ -n "$python" ] || [ -z "$json" ] || stop "--json needs python3"

  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || driver=""
  {
    printf '{"commit": "%s", "date": "%s", "devices": "%s", ' "$(escaped "$commit")" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
      "$(escaped "$devices")"
    printf '"driver": "%s", "lockstep": "%s", "kernel": "%s"}\n' "$(escaped "$driver")" "$(escaped "$version")" \
      "$(escaped "$(uname -sr)")"
  } >"$work/header.json"
  compose || stop "${json:-$out/result.json} could not be written" 1
  describe_machine >"$out/machine.txt" 2>&1
  printf '%s\n%s\ncommit %s%s\n\n' "$devices" "${version//$'\n'/; }" "$commit" "${driver:+, driver $driver}"

  # Keeps the driver open between processes, and reads the clocks.
  if [ "$subject" = gpu ] && command -v nvidia-smi >/dev/null; then
    nvidia-smi dmon -s pucm -d 1 >"$work/more/dmon.txt" 2>&1 &
  fi
  # torch.compile keeps its results in a cache, which is filled beside the checks, whose time does not count.
  if [ "$subject" = gpu ] && [ -z "$quick$only" ] && [[ $parts == *" correct "* && $parts == *" figures "* ]]; then
    timeout 300 bash "$here/figures.sh" warm_torch >"$work/warm.log" 2>&1 &
    warm=$!
    echo $warm >"$work/pids/warm"
  fi
}

describe_machine() {
  local tool
  printf '%s\n' "$(date -u)" "commit $commit" "$(uname -a)" "$(nproc) processors" "$devices"
  grep -m 1 'model name' /proc/cpuinfo
  free -g | sed -n 2p
  df -h /tmp /dev/shm 2>/dev/null
  ip -br addr 2>/dev/null || cat /proc/net/dev
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi | head -n 20
    nvidia-smi -q -d CLOCK,PERFORMANCE | head -n 60
  fi
  echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
  cat "${bundle:-.}/.found_folders" 2>/dev/null
  for tool in python3 nvcc g++ cmake compute-sanitizer cuobjdump flock xz mpirun; do
    echo "$tool: $(command -v $tool)"
  done
  ls -d /usr/local/cuda* 2>/dev/null
  ldconfig -p 2>/dev/null | grep -E 'libcuda\.|libcublasLt|libcudnn\.|libnccl'
}

# compose: result.json and --json's file from all results so far.
compose() {
  [ -z "$python" ] || "$python" -B "$here/result.py" "$work/header.json" "$out" ${json:+"$json"} >"$work/table"
}

# record NAME VERDICT SECONDS NOTE: into all files; one phase at a time.
record() {
  (
    flock 9
    printf '%-28s %-8s %6.1f s  %s\n' "$1" "$2" "$3" "${4:0:150}" | tee -a "$out/summary.txt"
    [ "$2" != failed ] || tail -n 25 "$work/$1.log" | sed 's/^/    /'
    printf '{"name": "%s", "result": "%s", "seconds": %s, "note": "%s"}\n' "$1" "$2" "$3" "$(escaped "${4:0:400}")" \
      >>"$out/results.jsonl"
    { echo "==== $1: $2"; tail -c 60000 "$work/$1.log" 2>/dev/null; } >>"$out/logs.txt"
    [ "$2" = "no time" ] || compose
  ) 9>"$work/lock"
}

# left: seconds until the deadline; without one, a very large number.
left() { if [ -n "$end" ]; then echo $((end - SECONDS - 3)); else echo 1000000; fi; }
# share_of PERCENT SECONDS: that percentage of the time left, at most SECONDS.
share_of() { local part=$(($(left) * $1 / 100)); echo $((part < $2 ? part : $2)); }

# run_phase NAME SECONDS COMMAND...: with a deadline. Its last line is the note beside the verdict.
run_phase() {
  local name=$1 limit=$2 cut="" began code verdict note
  shift 2
  if [ "$limit" -gt "$(left)" ]; then limit=$(left) cut=yes; fi
  if [ "$limit" -lt 4 ]; then record "$name" "no time" 0 ""; return; fi
  began=$(date +%s%N)
  seconds=$limit timeout --kill-after 2 "$limit" "$@" >"$work/$name.log" 2>&1 </dev/null &
  echo $! >"$work/pids/$name"
  wait $! 2>/dev/null  # a signal to this script interrupts it; no "Killed" between the lines
  code=$?
  rm -f "$work/pids/$name"
  note=$(grep -av '^ *$' "$work/$name.log" | tail -n 1)
  case $code in
    0) verdict=passed ;;
    77) verdict="not run" ;;
    124|137) verdict=${cut:+no time} verdict=${verdict:-failed} note="not done after $limit s" ;;
    *) verdict=failed ;;
  esac
  record "$name" "$verdict" "$(awk -v a="$began" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }')" "$note"
  [ "$verdict" != failed ] || [[ $name == *.again || $name == *.memcheck ]] || find_fault "$name"
}

# find_fault NAME: repeats the first of gpu_tests that failed in a phase, alone, kernel by kernel and under memcheck.
find_fault() {
  local test
  test=$(sed -n 's/^\[  FAILED  \] \([A-Za-z0-9_/]*\.[^ ,]*\).*/\1/p' "$work/$1.log" | head -n 1)
  [ -n "$test" ] && [ "$subject" = gpu ] || return
  run_phase "$1.again" 60 bash "$here/checks.sh" again "$test"
  run_phase "$1.memcheck" 40 bash "$here/checks.sh" memcheck "$test"
}

# phase NAME SECONDS COMMAND...: runs it if it is selected.
phase() {
  if [ "$only" = list ]; then echo "$1"; return; fi
  [ -z "$only" ] || [[ ",$only," == *",$1,"* ]] || return
  if [ $width = 1 ]; then run_phase "$@"; return; fi
  while [ "$(running)" -ge $width ]; do sleep 0.1; done
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} run_phase "$@" &
  beside+=($!)
}
running() {
  local process count=0
  for process in "${beside[@]}"; do if kill -0 "$process" 2>/dev/null; then count=$((count + 1)); fi; done
  echo $count
}
side_by_side() { width=$widest; }
one_by_one() {
  [ ${#beside[@]} = 0 ] || wait "${beside[@]}"
  beside=() width=1
}

# torch_warmed: waits, so that nothing compiles beside measurements.
torch_warmed() {
  local until=$((SECONDS + $(share_of 20 60)))
  [ -n "$warm" ] || return
  while kill -0 "$warm" 2>/dev/null && [ $SECONDS -lt $until ]; do sleep 0.5; done
  kill "$warm" 2>/dev/null
  wait "$warm"
  rm -f "$work/pids/warm"
  { echo "==== warm_torch"; cat "$work/warm.log" "$work/more/warm.jsonl"; } >>"$out/logs.txt" 2>/dev/null
  warm=""
}

# finish: the table and the count; ends the script.
finish() {
  local passed failed
  one_by_one
  compose
  passed=$(grep -c '"result": "passed"' "$out/results.jsonl") failed=$(grep -c '"result": "failed"' "$out/results.jsonl")
  {
    cat "$work/table" "$work/all_reduce.files/all_reduce.out" 2>/dev/null | sed '1s/^/\n/'
    printf '\n%s passed, %s failed%s\n' "$passed" "$failed" "${json:+, written to $json}"
  } | tee -a "$out/summary.txt"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
  exit
}
