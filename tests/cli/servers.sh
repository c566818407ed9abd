#!/usr/bin/env bash
# --agree async and quorum: servers keep the parameters, workers push gradients.
# seconds: 600
# more: 600
# long: 1800
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600

base="--data data --hidden 32 --global-batch 60 --seed 3 --learning-rate 0.003 --progress off"
# same_weights RUN RUN: their newest checkpoints have the same tensors.
same_weights() { expect_same_tensors "$(newest_checkpoint "$1")" "$(newest_checkpoint "$2")" 4; }
# counts WORD: prints the numbers after it in the last run's log, rank by rank.
counts() { sed -nE "s/.*$1[^:]*: ([0-9 ]*).*/\1/p" out | tail -n 1; }
# beyond LINES: the log has more lines of steps.
beyond() { [ "$(grep -c '^ *step ' out)" -gt "$1" ]; }
sum() { python3 -c 'import sys; print(sum(map(int, sys.argv[1:])))' "$@"; }

if [ "$form" != more ]; then
  # cases: OPTIONS OF THE OPTIMISER
  mapfile -t optimizers < <(some 1 "adam --accumulate 2" "sgd --l2 0.01" "momentum --clip-norm 0.5 --average-decay 0.9")
  for optimizer in "${optimizers[@]}"; do
    check "with everybody in every sum the weights have the bits of --agree all: $optimizer"
    train="$base --steps 40 --optimizer $optimizer"
    rm -rf runs
    succeeds -n 3 train $train --run runs/all
    succeeds -n 3 train $train --agree quorum=3 --run runs/quorum
    expect_out 'mean of the first 3 of 3 gradients'
    same_weights runs/all runs/quorum
    succeeds -n 4 train $train --agree async --staleness 0 --run runs/one
    expect_out 'rank 3 keeps the parameters, 3 ranks train'
    same_weights runs/all runs/one
    case $optimizer in *clip*) continue ;; esac  # several servers sum the squares of the norm in another order
    succeeds -n 5 train $train --agree async --staleness 0 --servers 2 --run runs/two
    expect_out 'ranks 3 to 4 keep 1/2 of the parameters each'
    same_weights runs/all runs/two
    succeeds -n 3 train $train --agree quorum=3 --servers shared --run runs/shared
    expect_out 'every rank keeps 1/3'
    same_weights runs/all runs/shared
  done
  ! same_tensors "$(newest_checkpoint runs/all)" "$(find runs/all/checkpoints -name 'step-*' | sort | head -n 1)" 4 || failed "the comparison sees no difference"

  for transport in $(some 1 ring auto); do
    check "a resumed run of sums has the bits of one that was not stopped, and goes on as --agree all: $transport"
    train="$base --optimizer adam --agree async --staleness 0 --transport $transport"
    rm -rf runs
    succeeds -n 3 train $train --steps 70 --checkpoint-every 35 --run runs/here
    resumes_with_its_bytes 3 35 70
    succeeds -n 2 train $base --optimizer adam --steps 80 --agree all --resume --run runs/here
    expect_out 'continuing after step 70'; expect_out 'done at step 80'
  done
fi
in_short_form && exit

mapfile -t modes < <(some 3 "async --servers shared" "async --stale-rate scale" "async" "async --servers 2" "async --staleness 1")
for mode in "${modes[@]}"; do
  check "every gradient is an update, as many as there are workers make a step, and it learns: $mode"
  rm -rf runs
  succeeds -n 4 train $base --optimizer adam --steps 60 --evaluate-every 25 --agree $mode --run runs/each
  expect_out 'validation at step 25:'; expect_out 'validation at step 50:'; expect_out 'done at step 60'
  expect_out 'staleness \(updates in between: gradients\): 0: '
  accepted=$(counts accepted)
  [ "$(sum $accepted)" = $((60 * $(wc -w <<<"$accepted"))) ] || failed "accepted: $accepted"
  python3 -c "import sys; sys.exit(not float(sys.argv[1]) < 0.2)" "$(metric runs/each validation loss | tail -n 1 | cut -d' ' -f2)" ||
    failed "it has not learnt"
done

modes=("async --servers 2" "async" "async --stale-rate scale --transport ring")
in_long_form && modes+=("async --servers shared" "quorum=2")
for mode in "${modes[@]}" "quorum=3 --servers shared"; do  # the next cases go on with the last
  rm -rf runs
  train="$base --optimizer adam --steps 200 --evaluate-every 90 --agree $mode"
  succeeds -n 4 train $train --run runs/first
  check "the order of the gradients is recorded, and a replay has the bits: $mode"
  succeeds -n 4 train $train --replay runs/first/arrivals-0 --run runs/again
  expect_out 'done at step 200'
  ! grep -q 'record ends' err || failed "a whole record is said to end early"
  same_weights runs/first runs/again
  for record in runs/first/arrivals-0*; do expect_same "$record" "runs/again/${record##*/}"; done
  case $mode in
    *"servers shared") expect_no_file runs/first/arrivals-0.4; [[ $mode = quorum* ]] || expect_file runs/first/arrivals-0.3 ;;
    *"servers 2")
      rm runs/first/arrivals-0.1
      fails 1 '--replay runs/first/arrivals-0.1: there is no such file' -n 4 train $train --replay runs/first/arrivals-0 --run runs/other
      ;;
    async)
      python3 - runs/first/arrivals-0 odd <<'END'
import struct, sys
whole = open(sys.argv[1], "rb").read()
head = len("lockstep arrivals 3\n") + 16
gradients = [at for at in range(head, len(whole), 8) if whole[at:at + 4] != b"\xff\xff\xff\xff"]  # the others end rounds
kept = whole[:gradients[100]]  # the gradients of three workers
value = 2166136261
for byte in kept: value = (value ^ byte) * 16777619 & 0xffffffff
open(sys.argv[2], "wb").write(kept + struct.pack("<II", 0xffffffff, value))
END
      fails 1 '--replay odd: it ends after 100 gradients, in the middle of a step of 3 workers: take the record of a whole run' \
        -n 4 train $train --replay odd --run runs/other
      ;;
  esac
done
check "a record that ends early, as that of a killed run, is said to"
size=$(stat -c %s runs/first/arrivals-0)
head -c $((size - size / 2 / 8 * 8)) runs/first/arrivals-0 >half
succeeds -n 4 train $train --replay half --run runs/half
expect_out 'done at step 200'
expect_err '--replay .*half: its record ends at step [0-9]+, and this run at step 200: in the steps after it gradients count as they come'
cp runs/first/checkpoints/step-0000000200.h5 at200.h5
check "a resumed run has a record of its own, and a run folder that begins anew has none of before"
succeeds -n 4 train --resume --run runs/first --steps 230
expect_file runs/first/arrivals-200; expect_file runs/first/arrivals-0
cp -r runs/first runs/kept
succeeds -n 4 train $train --run runs/kept --force
expect_no_file runs/kept/arrivals-200; expect_file runs/kept/arrivals-0
check "a resumed run is repeated from where it was resumed"
rm runs/again/checkpoints/*
cp at200.h5 runs/again/checkpoints/step-0000000200.h5
succeeds -n 4 train --resume --run runs/again --steps 230 --replay runs/first/arrivals-200
expect_out 'continuing after step 200'; expect_out 'done at step 230'
same_weights runs/first runs/again
expect_same runs/first/arrivals-200 runs/again/arrivals-200
fails 1 'it begins after update 200, and this run after 230' -n 4 train --resume --run runs/again --steps 240 --replay runs/first/arrivals-200
check "a record of another run is refused"
fails 1 'it is of 4 workers in sums, and this run has 3 in sums' -n 3 train $train --replay runs/first/arrivals-0 --run runs/other
head -c 30 runs/first/arrivals-0 >cut
fails 1 'this is no record of arrivals' -n 4 train $train --replay cut --run runs/other
python3 -c 'import sys; b = bytearray(open("runs/first/arrivals-0", "rb").read()); b[-12] ^= 1; open("bent", "wb").write(b)'
fails 1 '--replay bent: damaged (at|before) byte [0-9]+' -n 4 train $train --replay bent --run runs/other
fails 2 '--replay has an effect only with --agree quorum=RANKS or async' -n 2 train $base --agree local=5 --replay cut --run runs/other

python3 -c 'import random; random.seed(1); print(*(f"word{int(random.expovariate(0.01)) % 1500}" for _ in range(12000)))' >words.txt
must_run pack --format text --tokenizer word --x words.txt --validation 0.1 --out words
# bytes_per_gradient: prints the last run's, and the full size of a gradient.
bytes_per_gradient() {
  python3 - <<'END'
import re
unit = {"B": 1, "KiB": 2**10, "MiB": 2**20}
texts = re.findall(r"([0-9.]+) (B|KiB|MiB) per gradient (?:and rank|to and from)", open("out").read())
print(*(float(number) * unit[word] for number, word in texts))
END
}
mapfile -t networks < <(some 1 "lstm --layers 1 --hidden 32 --unroll 8 --tied=no" "gpt --layers 1 --heads 2 --width 32 --context 8 --tied=no")
for network in "${networks[@]}"; do
  words="--data words --model $network --clip-norm 0 --weight-decay 0 --global-batch 6 --seed 3 --progress off --steps 30 --evaluate-every -1"
  check "language models have the bits of --agree all, of embeddings travel the rows that a batch meets: ${network%% *}"
  rm -rf runs
  sgd="--optimizer sgd --learning-rate 0.1"
  succeeds -n 3 train $words $sgd --run runs/all
  for mode in "4 quorum=3 --servers 1" "4 async --staleness 0" "5 async --staleness 0 --servers 2"; do
    succeeds -n "${mode%% *}" train $words $sgd --agree ${mode#* } --transport ring --run runs/agree --force  # without messages nothing travels
    same_weights runs/all runs/agree
    bytes_per_gradient | awk '{ exit !($2 > 0.4 * $1 && $2 < 0.7 * $1) }' || failed "$mode: bytes $(bytes_per_gradient)"
  done
  run -n 4 train $words --optimizer adam --agree quorum=3 --servers 1 --transport ring --run runs/agree --force  # moves all rows ever met
  bytes_per_gradient | awk '{ exit !($2 > 0.6 * $1 && $2 < 0.95 * $1) }' || failed "adam: bytes $(bytes_per_gradient)"
  check "and go on with the state of their sequences: ${network%% *}"
  succeeds -n 4 train $words $sgd --agree async --staleness 0 --checkpoint-every 20 --run runs/here
  rm runs/here/checkpoints/step-0000000030.h5
  succeeds -n 4 train --resume --run runs/here
  expect_out 'continuing after step 20'
  same_weights runs/all runs/here
  succeeds -n 4 train $words $sgd --agree quorum=2 --run runs/late
  succeeds -n 4 train $words $sgd --agree async --servers shared --run runs/each
done

check "staleness bounds how far ranks are apart"
start -n 4 train $base --optimizer sgd --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree async --staleness 3 --report-every 10 --run runs/bound
wait_for 90 grep -q '^ *step ' out
kill -STOP "$(rank 1)"
sleep 1
before=$(grep -c '^ *step ' out); sleep 1; after=$(grep -c '^ *step ' out)
[ "$before" = "$after" ] || failed "the others went on: $before, $after lines"
kill -CONT "$(rank 1)"
wait_for 90 beyond "$after"
kill -USR1 "$(rank 3)"  # the server
finish 90
expect_status 75; expect_out 'stopped at step [0-9]* on request'

check "a quorum goes on without a rank that is late, drops what it brings, and takes it in again"
rm -rf runs
start -n 4 train $base --optimizer sgd --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree quorum=3 --report-every 100 --run runs/late
wait_for 90 grep -q '^ *step ' out
late=$(rank 3)
kill -STOP "$late"
sleep 0.5
before=$(grep -c '^ *step ' out)
wait_for 90 beyond $((before + 2))
kill -CONT "$late"
sleep 0.5
kill -USR1 "$(rank 0)"
finish 90
expect_status 75
[ "$(counts dropped | wc -w)" = 4 ] || failed "dropped: $(counts dropped)"
set -- $(counts dropped)
[ "$4" -ge 1 ] || failed "dropped: $*"
set -- $(counts accepted)
steps=$(sed -nE 's/^stopped at step ([0-9]+) .*/\1/p' out)
# Three lines of steps came during the stop: two hundred steps, but for a gradient on its way.
[ $((steps - $4)) -ge 199 ] || failed "rank 3 was stopped for 200 steps and more, and yet: accepted $* in $steps steps"
run -n 4 train --resume --run runs/late --time-limit 9
expect_status 75; expect_out 'continuing after step'

check "a checkpoint on demand waits for the end of a step"
rm -rf runs
start -n 3 train $base --optimizer sgd --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree async --report-every 100 --run runs/asked
wait_for 90 grep -q '^ *step ' out
kill -USR2 "$(rank 0)"
wait_for 90 grep -q '^checkpoint .*step-' out
kill -USR1 "$(rank 1)"
finish 90
expect_status 75

mapfile -t modes < <(some 2 "async --servers 2" "quorum=3 --servers 1 --transport ring" "async --staleness 5")
for mode in "${modes[@]}"; do
  check "a worker that dies is named, and the others finish: $mode"
  rm -rf runs
  start -n 5 train $base --optimizer adam --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree $mode --report-every 50 --run runs/dies
  wait_for 90 grep -q '^ *step ' out
  pid=$(rank 1)
  kill -9 "$pid"
  wait_for 90 grep -q 'go on without it' err
  kill -USR2 "$(rank 0)"
  wait_for 90 grep -q '^checkpoint .*step-' out
  kill -USR1 "$(rank 0)"
  finish 120
  expect_status 75; expect_err "rank 1 \(host .*, pid $pid\) has died; [234] ranks go on without it"
  ! grep -q 'gradients of' err || failed "as many are left as make an update"
done
expect_file runs/dies/checkpoints/latest

must_run pack --format synthetic --samples 150000 --features 20 --classes 5 --out many/test
cp -r data/train many/train
for transport in $(some 1 ring auto); do
  check "a worker that dies in a validation is named, and the others finish it: $transport"
  rm -rf runs
  start -n 4 train --data many --hidden 512,512 --global-batch 60 --seed 3 --learning-rate 0.003 --progress off --optimizer adam --steps 40 \
    --evaluate-every 20 --checkpoint-every -1 --report-every 10 --agree quorum=3 --transport $transport --run runs/validates
  wait_for 90 grep -q '^ *step *20/' out
  pid=$(rank 2)
  kill -9 "$pid"
  grep -q 'validation at step 20:' out && failed "it was killed too late for this"
  finish 120
  expect_status 0; expect_err "rank 2 \(host .*, pid $pid\) has died; 3 ranks go on without it"
  [ "$(grep -c 'has died' err)" = 1 ] || failed "said $(grep -c 'has died' err) times"
  expect_out 'validation at step 20:'; expect_out 'done at step 40'
  alone=$(metric runs/validates validation loss | tail -n 1 | cut -d' ' -f2)
  python3 -c "import sys; sys.exit(not float(sys.argv[1]) > 0)" "$alone" || failed "no validation: $alone"
  [ "$(metric runs/validates validation samples | cut -d' ' -f2 | sort -u)" = 150000 ] || failed "samples: $(metric runs/validates validation samples)"
done

mapfile -t modes < <(some 2 "async --transport ring" "quorum=3" "async" "async --staleness 0" "quorum=3 --transport mpi")
for mode in "${modes[@]}"; do
  check "a worker that dies in a checkpoint, or where all agree on the end of a round, is named, and the others finish: $mode"
  left=3  # three of four workers, or of five without a dedicated server
  case $mode in quorum*) left=4 ;; esac
  for wait in $(some 2 0.05 0.3 0.55 0.8); do  # most of the time goes into these
    rm -rf runs
    start -n 5 train $base --optimizer adam --steps 100000000 --evaluate-every 1 --checkpoint-every 1 --keep 1 --agree $mode --report-every 1 --run runs/dies
    wait_for 90 grep -q '^checkpoint .*step-' out
    sleep $wait
    pid=$(rank 1)
    kill -9 "$pid"
    wait_for 60 grep -q 'go on without it' err
    lines=$(wc -l <out)
    wait_for 60 eval "tail -n +$((lines + 1)) out | grep -q '^checkpoint .*step-'"
    kill -USR1 "$(rank 0)"
    finish 60
    expect_status 75; expect_err "rank 1 \(host .*, pid $pid\) has died; $left ranks go on without it"
    [ "$(grep -c 'has died' err)" = 1 ] || failed "said $(grep -c 'has died' err) times"
  done
  step=$(newest_checkpoint runs/dies) && step=${step##*step-} && step=$((10#${step%.h5}))
  succeeds -n 3 train --resume --run runs/dies --evaluate-every -1 --checkpoint-every -1 --agree ${mode/quorum=3/quorum=2} --steps $((step + 5))
  expect_out "done at step $((step + 5)) "
done

check "two that die together are named, and one that is stopped meanwhile is waited for"
rm -rf runs
start -n 5 train $base --optimizer adam --steps 100000000 --evaluate-every 1 --checkpoint-every 1 --keep 1 --agree quorum=3 --transport ring --report-every 1 --run runs/dies
wait_for 90 grep -q '^checkpoint .*step-' out
late=$(rank 3)
kill -STOP "$late"
pids=("$(rank 1)" "$(rank 4)")
kill -9 "${pids[@]}"
sleep 2
kill -CONT "$late"
wait_for 60 eval '[ "$(grep -c "on without it" err)" = 2 ]'
lines=$(wc -l <out)
wait_for 60 eval "tail -n +$((lines + 1)) out | grep -q '^checkpoint .*step-'"
kill -USR1 "$(rank 0)"
finish 60
expect_status 75
expect_err "rank 1 \(host .*, pid ${pids[0]}\) has died; 4 ranks go on without it"
expect_err "rank 4 \(host .*, pid ${pids[1]}\) has died; 3 ranks go on without it"

check "a replay cannot do without one"
rm -rf runs
succeeds -n 4 train $base --optimizer adam --steps 100 --evaluate-every -1 --checkpoint-every -1 --agree async --run runs/first
start -n 4 train $base --optimizer adam --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree async --replay runs/first/arrivals-0 --report-every 50 --run runs/again
wait_for 90 grep -q '^ *step ' out
kill -9 "$(rank 1)"
finish 60
[ "$status" != 0 ] || failed "it ended with 0"
expect_err 'rank 1 \(host '

check "a quorum of all is one of all that are left"
rm -rf runs
start -n 3 train $base --optimizer adam --steps 100000000 --evaluate-every -1 --checkpoint-every -1 --agree quorum=3 --report-every 50 --run runs/fewer
wait_for 90 grep -q '^ *step ' out
kill -9 "$(rank 2)"
wait_for 90 grep -q 'go on without it' err
kill -USR1 "$(rank 0)"
finish 120
expect_status 75; expect_err '2 ranks go on without it, and the gradients of 2 make an update'

mapfile -t victims < <(some 2 "async 3" "async --servers shared 2" "quorum=2 0")
for victim in "${victims[@]}"; do
  check "a server that dies ends the job, which resumes: $victim"
  rm -rf runs
  mode=${victim% *}
  start -n 4 train $base --optimizer adam --steps 100000000 --evaluate-every 500 --checkpoint-every 500 --agree $mode --report-every 50 --run runs/server
  wait_for 90 grep -q '^checkpoint .*step-' out
  pid=$(rank "${victim##* }")
  kill -9 "$pid"
  finish 60
  [ "$status" != 0 ] || failed "it ended with 0"
  expect_err "rank ${victim##* } \(host .*, pid $pid\)"
  step=$(newest_checkpoint runs/server) && step=${step##*step-} && step=$((10#${step%.h5}))
  succeeds -n 4 train --agree $mode --resume --run runs/server --steps $((step + 20))
  expect_out "done at step $((step + 20)) "
done

check "Adam's correction counts the updates that were made, in whatever mode and by however many workers"
script step <<'END'
import sys
import h5py
import numpy as np
before, after = (h5py.File(name) for name in sys.argv[1:3])
made = int(sys.argv[3])  # updates, the last step's among them
of = lambda file, group: file[f"{group}/dense_1/weight"][:].astype("f8")
first, second = of(after, "first_moment"), of(after, "second_moment")
expected = 0.003 * first / (1 - 0.9**made) / (np.sqrt(second / (1 - 0.999**made)) + 1e-8)
there = np.abs(first) > 1e-4
ratio = np.median(((of(before, "parameters") - of(after, "parameters")) / expected)[there])
assert abs(ratio - 1) < 1e-3, f"the steps are {ratio} times those of update {made}"
END
rm -rf runs
succeeds -n 4 train $base --optimizer adam --agree async --steps 20 --run runs/counted
succeeds train --resume --run runs/counted --agree all --steps 21
expect python3 step runs/counted/checkpoints/step-00000000{20,21}.h5 61
succeeds train --resume --run runs/counted --steps 22
expect python3 step runs/counted/checkpoints/step-00000000{21,22}.h5 62
succeeds train --resume runs/counted/checkpoints/step-0000000022.h5 --run runs/anew --steps 23 --new-optimizer-state
expect python3 step {runs/counted/checkpoints/step-0000000022,runs/anew/checkpoints/step-0000000023}.h5 1
succeeds -n 2 train --resume --run runs/anew --agree async --servers 1 --steps 24
expect python3 step runs/anew/checkpoints/step-00000000{23,24}.h5 2

check "a gradient that is not finite ends the job before the update"
run -n 3 train --data data --hidden 32 --global-batch 60 --optimizer sgd --learning-rate 1e30 --steps 50 --agree async --run runs/spoilt
expect_status 1; expect_err 'is not finite'

check "contradictions are one sentence before anything starts"
refused() { fails 2 "$1" ${ranks:+-n $ranks} train $base --run runs/refused "${@:2}"; }
ranks=2  # these depend on it; tests/app/options has those of the words alone
refused '--agree quorum=3 of 2 ranks: there are never so many' --agree quorum=3
refused '--agree quorum=2 of 1 worker' --agree quorum=2 --servers 1
refused '2 servers of 2 ranks leave nobody to train' --agree async --servers 2
refused '--agree quorum does not go with --optimizer lars on 2 servers' --agree quorum=2 --servers shared --optimizer lars
ranks=""
refused '--servers has an effect only with --agree quorum=RANKS or async' --agree local=5 --servers 1
refused '--agree async does not go with --islands' --agree async --servers shared --islands 2
refused '--agree async does not go with --shard-optimizer' --agree async --servers shared --shard-optimizer --optimizer adam
refused '--agree quorum does not go with --reproducible' --agree quorum=1 --servers shared --reproducible
refused '--agree async does not go with --wire bf16' --agree async --servers shared --wire bf16
