#!/usr/bin/env bash
# The preflight says OK on a healthy system, and names each fault with its place and remedy.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data
job_options=(--data data --hidden 16 --seconds 0.5)

for n in 1 2 3; do
  check "all is well on $n ranks"
  succeeds -n $n check "${job_options[@]}" --json found.$n
  expect_silence
  expect_out "^lockstep [0-9.]+ check: $n ranks? on 1 host$"
  tail -n 1 out | grep -Eq '^(OK|BUSY)(, with [0-9]+ warnings?)?$' || failed "the last line is not OK"
  for subject in program hosts cores load products devices environment interfaces network all-reduce clocks data memory "run folder" limits; do
    expect_out "^$subject +(ok|warning) "
  done
  python3 - found.$n <<'PYTHON' || failed "the JSON"
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])]
assert {r["subject"] for r in records if r["kind"] == "subject"} >= {"program", "network", "data", "memory"}
assert not any(r.get("severity") == "error" for r in records)
PYTHON
done
check "a busy machine is never OK"
# The load at the time of the check, not the present one.
busy=$(sed -n 's/^load  *[a-z]*  *\([0-9.]*\) on \([0-9]*\) .*/\1 \2/p' out | awk '{ print ($1 > $2 + 0.1) ? "BUSY" : ($1 < $2 - 0.1) ? "OK" : "(OK|BUSY)" }')
tail -n 1 out | grep -Eq "^$busy(,|\$)" || failed "the verdict is not $busy"
check "nothing is left behind"
expect_no_file runs
[ -z "$(find . -name '.check.*')" ] || failed "the trial file is still there"
check "without data: hosts alone"
succeeds -n 2 check --seconds 0.1
expect_out '^data +- +name it with --data'; expect_out '^memory +- '
check "the command line of a job, and its configuration"
must_run train --data data --optimizer sgd --hidden 16 --steps 2 --run run --progress off
succeeds -n 2 check --config run/config.ini --seconds 0.1
expect_out 'warning: the run folder holds a run already'; expect_out '--resume'
succeeds check --resume --run run
expect_no_out 'holds a run already'

check "usage"
fails 2 "--second.*--seconds" -n 2 check --data data --second 1
fails 2 "--seconds" check --data data --seconds 0

# Each rank in a folder of its own stands for a host's view of a path.
mkdir rank0 rank1 rank2
script own_folder 'cd "rank$OMPI_COMM_WORLD_RANK" && exec "$@"'
cp -r data rank0; cp -r data rank2
check "the data is missing on one rank"
fails 1 "the data cannot be used: .*data" -n 3 -w ./own_folder check "${job_options[@]}"
expect_out 'where: rank 1 \('; expect_out '^data +error'
expect_out '^memory +- +depends on the data'; expect_out '^NOT OK: 1 error'
check "options that do not go together are not the data's fault"
fails 1 "the training cannot be planned: .*warm-up" -n 2 check "${job_options[@]}" --schedule cosine --steps 10 --warmup-steps 1000
check "other data under the same path on one rank"
must_run pack --format synthetic --samples 500 --features 20 --classes 5 --shards 2 --out rank1/data
fails 1 "the data under one path is not the same: 2 files" -n 3 -w ./own_folder check "${job_options[@]}"
expect_out 'where: rank 1 .* as against ranks 0,2'
check "a copy that is damaged"
rm -r rank1/data; cp -r data rank1
flip_byte rank1/data/shard-00001.h5 9000
succeeds -n 1 -w ./own_folder check "${job_options[@]}"
mv rank0 aside; mv rank1 rank0
fails 1 "the data is damaged: .*shard-00001.h5" -n 1 -w ./own_folder check "${job_options[@]}"
mv rank0 rank1; mv aside rank0
rm -r rank1/data; cp -r data rank1

check "another binary on one rank"
mkdir -p bin; cp "$lockstep" bin/lockstep; printf x >>bin/lockstep
script other_binary <<END
[ "\$OMPI_COMM_WORLD_RANK" = 1 ] || exec "\$@"
shift; exec $work/bin/lockstep "\$@"
END
fails 1 "the program is not the same file on all ranks" -n 3 -w ./other_binary check "${job_options[@]}"
expect_out 'where: .* on ranks 0,2 .* on rank 1 '

check "too little memory"
fails 1 "for 2 ranks, and the host has .* free of" -n 2 check --data data --hidden 300000,300000 --seconds 0.1
check "a limit on files that are open, and on their size"
script limited 'ulimit -n 100; ulimit -f 8192; exec "$@"'
fails 1 "2 things to fix.*(a rank needs [0-9]+ open files and may have 100|a checkpoint has)" \
  -n 2 -w ./limited check --data data --hidden 2000,2000 --seconds 0.1
expect_out 'ulimit -n'; expect_out 'ulimit -f'

check "environment that differs"
script own_threads 'OMP_NUM_THREADS=$((OMPI_COMM_WORLD_RANK / 2 + 1)) exec "$@"'
succeeds -n 3 -w ./own_threads check --seconds 0.1
expect_out 'warning: OMP_NUM_THREADS differs between ranks'; expect_out '"1" on ranks 0-1 .*"2" on rank 2'

check "a rank that is stopped while the network is measured"
script own_host <<'END'
exec unshare --uts sh -c 'hostname "node$OMPI_COMM_WORLD_RANK"; exec "$@"' sh "$@"
END
if unshare --uts true 2>/dev/null; then
  start -n 3 -w ./own_host check --seconds 600 --deadline 6
  wait_for 30 grep -q '^environment' out
  kill -STOP "$(rank 1)"
  finish 40
  expect_status 1
  expect_err 'rank 1( |$)'

  check "several hosts, of which one lacks the data"
  rm -r rank1/data
  script own_host_and_folder 'exec ./own_host ./own_folder "$@"'
  fails 1 "the data cannot be used" -n 3 -w ./own_host_and_folder check "${job_options[@]}"
  expect_out 'check: 3 ranks on 3 hosts'; expect_out '^--exclude=node1$'; expect_out 'where: rank 1 \(node1\)'
  expect_out '^clocks +ok +within'
fi

check "a run folder that cannot be written to"
fails 1 "the run folder cannot be written to: .*manifest.json is not a folder" -n 2 check "${job_options[@]}" --run data/manifest.json
fails 1 "the run folder cannot be written to" -n 2 check "${job_options[@]}" --run /proc/run
check "a JSON file that cannot be written"
fails 1 "nowhere/found" -n 2 check "${job_options[@]}" --json nowhere/found
expect_no_out '^program'  # before anything is measured

check "too little space for checkpoints"
mkdir disk
if mount -t tmpfs -o size=1m none disk 2>/dev/null; then
  trap 'code=$?; umount "$work/disk"; (exit $code); end_of_script' EXIT
  succeeds -n 2 check --data data --hidden 300 --seconds 0.1 --run disk/run
  run -n 2 check --data data --hidden 300,300 --seconds 0.1 --run disk/run
  expect_error 1 "for checkpoints of .*\(3 kept.*free"  # without validations there is no best one
  fails 1 "for checkpoints of .*\(4 kept.*free" -n 2 check --data data --validation data --hidden 300,300 --seconds 0.1 --run disk/run
  expect_no_file disk/run
fi
