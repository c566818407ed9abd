#!/usr/bin/env bash
# Servers hear everybody in turn, keep requests, wait as long as they say, and account for every gradient.
# label: more
# seconds: 300
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
base="--data data --global-batch 60 --seed 3 --learning-rate 0.003 --progress off"
without_end="--steps 100000000 --evaluate-every -1 --checkpoint-every -1"
counts() { sed -nE "s/.*$1[^:]*: ([0-9 ]*).*/\1/p" out | tail -n 1; }
sum() { python3 -c 'import sys; print(sum(map(int, sys.argv[1:])))' "$@"; }
one_sentence() { [ "$(own_words | grep -vc '^warning: ')" = 1 ] || failed "not one sentence: $(own_words)"; }
beyond() { [ "$(grep -c '^ *step ' out)" -gt "$1" ]; }

if unshare -U --map-root-user --uts true 2>/dev/null && mpirun --version 2>/dev/null | grep -q "Open MPI"; then
  # Rank FAR takes itself for another host: what it says comes through MPI, and what the others say through memory.
  script far <<'END'
[ "$OMPI_COMM_WORLD_RANK" = "$FAR" ] || exec "$@"
exec unshare -U --map-root-user --uts sh -c 'hostname far; exec "$0" "$@"' "$@"
END
  export FAR=6
  # A message of a megabyte needs the two cores that the others compute on.
  for way in "32 75" "512,512 12"; do
    read -r hidden least <<<"$way"
    check "a worker of another host is heard in its turn: hidden layers of $hidden"
    for try in 1 2 3; do # on a busy machine the operating system may hold one worker up in a run this short
      succeeds -n 8 -w ./far train $base --hidden $hidden --optimizer sgd --steps 150 --evaluate-every -1 --checkpoint-every -1 --agree async --run runs/far --force
      # shellcheck disable=SC2046  # numbers
      set -- $(counts accepted)
      [ $((7 * 150)) = "$(sum "$@")" ] || failed "accepted: $*"
      [ "$7" -lt "$least" ] || break
    done
    [ "$7" -ge "$least" ] || failed "accepted in try $try: $*: a fair share is 150, and that of the last is small"
  done
  check "and a server that is never without work minds a signal"
  start -n 5 -w ./far train $base --hidden 32 --optimizer sgd $without_end --agree async --report-every 1000 --run runs/busy
  wait_for 90 grep -q '^ *step ' out
  kill -USR1 "$(rank 4)"
  finish 20
  expect_status 75
fi

for mode in async quorum=2; do
  check "the file checkpoint-now brings a checkpoint, and training goes on: $mode"
  start -n 3 train $base --hidden 32 --optimizer sgd $without_end --agree $mode --report-every 100 --run runs/asked --force
  wait_for 90 grep -q '^ *step ' out
  for time in 1 2; do
    touch runs/asked/checkpoint-now
    wait_for 20 eval "[ \$(grep -c '^checkpoint ' out) = $time ]"
  done
  expect_no_file runs/asked/checkpoint-now
  lines=$(grep -c '^ *step ' out)
  wait_for 20 beyond "$lines"
  kill -USR1 "$(rank 0)"
  finish 60
  expect_status 75
  [ "$(grep -c '^checkpoint ' out)" = 3 ] || failed "$(grep -c '^checkpoint ' out) checkpoints: each request brings one, and the end another"
done

check "all servers and workers wait ten times as long as the longest step"
start -n 4 train $base --hidden 32 --optimizer sgd $without_end --agree async --servers 2 --staleness 1 --deadline 2 --io-deadline 2 --report-every 100 --run runs/slow
wait_for 90 grep -q '^ *step ' out
for stop in 2.7 9; do  # longer than both deadlines, and than the other worker waits for its own steps
  kill -STOP "$(rank 1)"
  sleep $stop
  lines=$(grep -c '^ *step ' out)
  kill -CONT "$(rank 1)"
  wait_for 30 beyond $((lines + 2))
done
kill -USR1 "$(rank 0)"
finish 60
expect_status 75
check "and not longer: then one sentence says which rank is silent"
start -n 3 train $base --hidden 32 --optimizer sgd $without_end --agree async --staleness 1 --deadline 1 --io-deadline 1 --report-every 100 --run runs/stuck
wait_for 90 grep -q '^ *step ' out
kill -STOP "$(rank 1)"
finish 30
[ "$status" != 0 ] || failed "it ended with 0"
one_sentence
expect_err 'server 0: no gradient has come for [0-9]+ s from rank 1; look at what they do'

for victim in "async --servers shared 2" "quorum=2 0" "async --servers 2 --transport ring 4"; do
  check "a server that dies is named in one sentence: ${victim% *}"
  start -n 5 train $base --hidden 32 --optimizer sgd $without_end --agree ${victim% *} --report-every 50 --run runs/dies --force
  wait_for 90 grep -q '^ *step ' out
  pid=$(rank "${victim##* }")
  kill -9 "$pid"
  finish 30
  [ "$status" != 0 ] || failed "it ended with 0"
  one_sentence
  expect_err "rank ${victim##* } \(host .*, pid $pid\) has died"
done
for mode in async "async --servers shared" "quorum=2 --transport ring"; do
  check "data that cannot be read any more are named in one sentence, and all ranks end: $mode"
  rm -rf cut && cp -r data cut
  start -n 4 train ${base/data data/data cut} --hidden 32 --optimizer sgd $without_end --agree $mode --report-every 50 --run runs/cut --force
  wait_for 90 grep -q '^ *step ' out
  truncate -s 100 cut/train/*.h5
  finish 30
  expect_status 1
  one_sentence
  expect_err 'the file has become shorter since it was opened'
done

check "gradients of no sample, as in the last and smaller step of an epoch, are counted"
run -n 4 train --data data --hidden 8 --epochs 2 --global-batch 599 --learning-rate 0.003 --evaluate-every -1 --checkpoint-every -1 --agree async --run runs/last
# Every second turn of two of the three workers is empty: 4 of 12 with equal turns, at most half of them with unequal ones.
expect_status 0; expect_out 'gradients accepted, rank by rank: .*; [1-6] of them of no sample'
succeeds -n 4 train --data data --hidden 8 --epochs 2 --global-batch 599 --learning-rate 0.003 --evaluate-every -1 --checkpoint-every -1 --agree async --staleness 0 --run runs/sums
expect_out 'gradients accepted, rank by rank: 4 4 4; dropped: 0 0 0; 4 of them of no sample'

check "what is said of the gradients is of all of them, also of those before a roll-back"
succeeds -n 4 train --data data --hidden 16 --global-batch 60 --steps 60 --evaluate-every 20 --checkpoint-every 10 --optimizer momentum --momentum 0.5 \
  --learning-rate 1e30 --roll-back 2 --roll-back-factor 1e-31 --agree async --run runs/back
expect_err 'Going back to'
late=$(sed -nE 's/^staleness .*gradients\): (.*)/\1/p' out | grep -oE '[0-9]+(,|$)' | tr -d ,)
# shellcheck disable=SC2046,SC2086  # numbers
[ "$(sum $(counts accepted))" = "$(sum $late)" ] || failed "accepted $(counts accepted), and by staleness $late"

check "a run that compensated gradients for their delay goes on without it where one says so"
succeeds -n 3 train $base --hidden 8 --steps 10 --agree async --stale-rate scale --run runs/older
sed -i 's/^stale-rate = scale$/stale-rate = compensate\ncompensation = 0.04/' runs/older/config.ini
fails 2 'config.ini: this run compensated its gradients for their delay .*which is gone: give --stale-rate keep or scale' \
  -n 3 train --resume --run runs/older --steps 20
succeeds -n 3 train --resume --run runs/older --steps 20 --stale-rate keep
expect_out 'continuing after step 10'

if ! sanitized && mpirun --version 2>/dev/null | grep -q "Open MPI"; then
  check "no two threads of a rank are inside MPI at once, heartbeats included"
  # shellcheck disable=SC2046  # words
  ${CXX:-c++} -std=c++20 -O1 -shared -fPIC -DOMPI_SKIP_MPICXX $(mpicc --showme:compile) -o overlaps.so "$tree/tests/mpi/overlaps/mpi_overlaps.cpp" -ldl || exit 1
  script preloaded "LD_PRELOAD=$work/overlaps.so exec \"\$@\""
  export LOCKSTEP_MPI_OVERLAPS=$work/overlaps
  for mode in quorum=2 "async --servers shared"; do
    rm -f overlaps
    succeeds -n 3 -w ./preloaded train $base --hidden 32 --optimizer sgd --steps 60 --evaluate-every -1 --checkpoint-every -1 --report-every 10 --deadline 1 \
      --agree $mode --transport ring --run runs/overlaps --force
    [ "$(grep -cE '^calls [0-9]{3,} overlaps 0$' overlaps)" = 3 ] || failed "$mode: $(cat overlaps)"
  done
fi
