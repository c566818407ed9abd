#!/usr/bin/env bash
# label: more
# seconds: 600
# Ranks that end early, folders without room, launchers that wait for ever: the job ends in time, with rank 0's exit code.
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --hidden 8 --global-batch 60 --optimizer adam --progress off --no-tensorboard)

# ends_within SECONDS EXIT REGEX: since $begin; one sentence.
ends_within() {
  [ $((SECONDS - begin)) -le $((patience * $1)) ] || failed "it took $((SECONDS - begin)) s"
  expect_status "$2"; expect_err "$3"
}

# A launcher that starts rank 0 alone, and never ends by itself.
script endless <<'END'
trap '' TERM
[ "$1" = --version ] && echo "Open MPI" && exit
OMPI_COMM_WORLD_RANK=0 "$@" &
wait
sleep 300
END
mkdir slow
script slow/grep "sleep 4; exec $(command -v grep) \"\$@\""
script ends_with_ranks 'OMPI_COMM_WORLD_RANK=0 "$@"; sleep 4'
# Such jobs mostly wait, so they run at the same time. beside NAME ARGUMENTS...: slurm/stop_in_time, in the background.
beside() {
  local name=$1
  shift
  { timeout 120 "$tree/slurm/stop_in_time" "$@" >$name.out 2>$name.err; echo $? >$name.status; } &
}
# ended NAME: makes it the last call.
ended() {
  command_line="slurm/stop_in_time: $1"
  cp $1.out out && cp $1.err err && status=$(cat $1.status)
}
begin=$SECONDS
codes=$(some 2 1 3 75)
for code in $codes; do beside code-$code ./endless -- sh -c "exit $code" rank --agree async; done
PATH=$work/slow:$PATH beside late ./ends_with_ranks -- sh -c 'sleep 3; exit 75' rank --agree async
beside killed ./endless -- sh -c 'kill -9 $PPID; sleep 100' rank --agree async
beside missing ./endless -- ./missing --agree async
wait
for code in $codes; do
  check "a launcher that waits for ever is ended, with the exit code of rank 0, $code"
  ended code-$code
  ends_within 100 $code ''
done
check "a code that arrives while the launcher looks whether rank 0 lives"
ended late
expect_status 75
check "without a word from rank 0, which was killed with the shell beside it"
ended killed
ends_within 100 1 'rank 0 has ended with exit code 137'
check "where rank 0 does not exist"
ended missing
ends_within 100 1 'missing.*(not found|No such file)'
check "signals reach rank 0, whose code counts"
make_forwarding_launcher plain
"$tree/slurm/stop_in_time" ./plain -- sh -c 'trap "exit 75" USR1; echo up; while :; do sleep 0.1; done' rank --agree async >out 2>err &
job=$!
wait_for 20 grep -q up out
kill -TERM "$job"
finish 20
expect_status 75

check "a job that ranks outlive: as the command line says, the file of --config, or the run that goes on"
mkdir -p runs/q/checkpoints
echo ' agree = "quorum=2" # of three' >runs/q/config.ini
echo 'agree = all' >all.ini
outlives() { "$tree/slurm/stop_in_time" --outlives-ranks "$@"; }
for words in "lockstep train --agree async" "lockstep train --agree=quorum=3" "lockstep train --config runs/q/config.ini" \
  "lockstep train --config=runs/q/config.ini --steps 3" "lockstep train --resume --run runs/q" "lockstep train --run=runs/q --resume auto" \
  "lockstep train --resume runs/q/checkpoints/step-0000000003.h5 --run runs/r"; do
  outlives $words || failed "not: $words"
done
for words in "lockstep train" "lockstep train --agree sync" "lockstep train --config runs/q/config.ini --agree sync" \
  "lockstep train --config all.ini --resume --run runs/q" "lockstep train --run runs/q" "lockstep train --data async"; do
  outlives $words && failed "it does: $words"
done
check "slurm/launch takes mpirun for it; an mpirun that starts rank 0 elsewhere cannot tell its exit code"
mkdir bin
script bin/mpirun 'echo "mpirun (Open MPI) 4.1.4"'
PATH=$work/bin:$PATH SLURM_JOB_ID=1 SLURM_NTASKS=3 SLURM_JOB_NUM_NODES=1 SLURMD_NODENAME=n1 LOCKSTEP=$lockstep \
  "$tree/slurm/launch" train --config runs/q/config.ini >out 2>err
status=$?
expect_status 1; expect_out 'by mpirun .*which lets ranks go on without one that has died'
expect_err 'the exit code of rank 0 is not known'
rm -rf runs

mpirun --version 2>/dev/null | grep -q "Open MPI" || { echo "the rest not run: this is not Open MPI"; exit; }

# early RANK: a program that ends there before MPI starts.
script early <<END
if [ "\$OMPI_COMM_WORLD_RANK" = "\$EARLY" ]; then
  echo "early: rank \$EARLY ends" >&2
  exit 3
fi
exec "\$@"
END
for mode in $(some 1 quorum=2 async all); do
  check "rank 0 ends before MPI starts: --agree $mode"
  begin=$SECONDS
  agree="--agree $mode"; [ "$mode" != all ] || agree=""
  EARLY=0 start -n 3 -w ./early "${options[@]}" $agree --steps 20 --run runs/early
  finish 90
  ends_within 100 3 'early: rank 0'
done
check "another one does: rank 0 says so, alone, when its time is over"
begin=$SECONDS
EARLY=1 start -n 3 -w ./early "${options[@]}" --agree quorum=2 --deadline 20 --steps 20 --run runs/early
finish 90
ends_within 100 1 'rank 0 \(.*has not returned for 20 s'
[ "$(grep -c 'has not returned' err)" = 1 ] || failed "said $(grep -c 'has not returned' err) times"

check "rank 0 dies in its training, which others cannot go on without"
start -n 3 "${options[@]}" --agree quorum=2 --steps 100000000 --checkpoint-every -1 --report-every 50 --run runs/dies
wait_for 90 grep -q '^ *step ' out
begin=$SECONDS
kill -9 "$(rank 0)"
finish 90
ends_within 100 1 'rank 0'

# dies_and_goes_on: rank 1 of the started job; then rank 0 is asked to stop.
dies_and_goes_on() {
  wait_for 90 grep -q '^ *step ' out
  kill -9 "$(rank 1)"
  wait_for 60 grep -q 'on without it' err
  kill -TERM "$job"
  finish 90
  expect_status 75; expect_err 'rank 1 .* has died; [12] ranks? go(es)? on without it'
}
check "a worker that dies is no loss where a file asks for a quorum"
echo 'agree = quorum=2' >quorum.ini
start -n 3 "${options[@]}" --config quorum.ini --steps 100000000 --checkpoint-every -1 --report-every 50 --run runs/file
dies_and_goes_on
check "or where the run did that goes on"
start -n 3 train --resume --run runs/file --progress off --no-tensorboard
dies_and_goes_on
check "an mpirun that ends all is not promised away"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
rm out
mpirun --oversubscribe --bind-to none -np 3 "$lockstep" "${options[@]}" --agree quorum=2 --steps 100000000 --checkpoint-every -1 --report-every 50 \
  --run runs/plain >out 2>err </dev/null &
job=$!
wait_for 90 grep -q '^ *step ' out
kill -9 "$(rank 1)"
finish 60
[ "$status" != 0 ] || failed "exit 0"
! grep -q 'on without it' err || failed "promised"

# Folders ------------------------------------------------------------------------------------------------------------------
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo "the rest not run: no right to mount"; exit; }
# Small file systems, with $LEFT KiB of 8 MiB left, or read-only, hide the folder "small" and those of $HIDDEN, which may
# hold this script's own.
script private <<END
exec unshare -m sh -c '
  small() {
    mount -t tmpfs -o size=8m none "\$1" || exit
    [ "\$LEFT" = ro ] || head -c \$((8388608 - LEFT * 1024)) /dev/zero >"\$1/ballast"
  }
  mount --bind "$work" /mnt || exit
  for folder in \$HIDDEN; do small \$folder; done
  mkdir -p "$work"
  mount --move /mnt "$work" && cd "$work" || exit
  small "$work/small"
  [ "\$LEFT" != ro ] || mount -o remount,ro "$work/small" || exit
  exec "\$@"' private "\$@"
END
mkdir small
# codes WORDS...: 0, 1 and 75 arrive, whatever the ranks agree on.
codes() {
  local agree
  for agree in "" "--agree quorum=2"; do
    succeeds "$@" "${options[@]}" $agree --steps 20 --run "runs/codes$agree"
    expect_out 'done at step 20 '
    fails 1 'nothing' "$@" train --data nothing $agree --run "runs/codes$agree"
    start "$@" "${options[@]}" $agree --steps 100000000 --checkpoint-every -1 --report-every 50 --run "runs/stops$agree"
    wait_for 60 grep -q '^ *step ' out
    kill -TERM "$job"
    finish 60
    expect_status 75
    rm -rf runs
  done
}
export LEFT HIDDEN=""
for LEFT in $(some 3 0 4000 ro 4 400); do
  check "TMPDIR with room for $LEFT KiB"
  TMPDIR=$work/small codes -u ./private -n 3
done
check "nor any in /tmp and /dev/shm"
case $lockstep in
  /tmp/*) HIDDEN=/dev/shm ;;
  *) HIDDEN="/tmp /dev/shm" ;;
esac
LEFT=0
TMPDIR=$work/small codes -u ./private -n 3
script contained <<END
exec unshare -m sh -c 'mount -t tmpfs none "$work/small" && exec "\$@"' contained "\$@"
END
check "each rank in a container with a TMPDIR of its own"
HIDDEN="" LEFT=8000
TMPDIR=$work/small codes -n 3 -w ./contained
check "mpirun by itself, where TMPDIR has little room, is warned of: it may wait for ever"
LEFT=400 TMPDIR=$work/small timeout -k 5 30 ./private mpirun --oversubscribe -np 2 "$lockstep" bench all-reduce --max 4 --repeat 1 >out 2>err
expect_err 'warning: MPI may not start on .*/small.* has [0-9]+ KiB left, less than the .*TMPDIR'
