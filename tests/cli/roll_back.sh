#!/usr/bin/env bash
# Training that diverges goes back to a good checkpoint with a smaller learning rate.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data/train
pack_small data/test --seed 7
train=(train --data data --hidden 16 --global-batch 40 --steps 60 --evaluate-every 20 --checkpoint-every 10 --keep 9 --report-every 1
  --progress off --no-tensorboard)
# The rate times the factor is 0.1.
too_fast=(--optimizer momentum --momentum 0.5 --learning-rate 1e30)
back_to_a_tenth=(--roll-back 2 --roll-back-factor 1e-31)


for n in 1 3; do
  must_run -n $n "${train[@]}" --optimizer momentum --momentum 0.5 --learning-rate 0.1 --run runs/calm-$n

  check "without --roll-back it stops, $n ranks"
  fails 1 'is not finite' -n $n "${train[@]}" "${too_fast[@]}" --run runs/stops-$n

  check "from the beginning, $n ranks: as if the rate had been the smaller one from the start"
  succeeds -n $n "${train[@]}" "${too_fast[@]}" "${back_to_a_tenth[@]}" --run runs/anew-$n
  expect_err 'is not finite.*Going back to the beginning with 1e-31 times the learning rate \(roll-back 1 of 2\)$'
  expect_same_tensors runs/{calm,anew}-$n/checkpoints/step-0000000060.h5 8

  check "from a checkpoint, $n ranks: as if the rate had never been too large"
  succeeds -n $n train --resume runs/calm-$n/checkpoints/step-0000000020.h5 --run runs/back-$n --learning-rate 1e30 "${back_to_a_tenth[@]}"
  expect_err 'is not finite.*Going back to runs/calm-.*/step-0000000020\.h5'
  expect_same_tensors runs/{calm,back}-$n/checkpoints/step-0000000060.h5 8
  expect grep -q '"kind":"roll_back","step":21,"failed_step":2[0-9],"count":1,"rate_factor":1e-31' runs/back-$n/metrics.jsonl
  expect [ "$(grep -c '"kind":"train","step":30,' runs/back-$n/metrics.jsonl)" = 1 ]
done

check "what rounding on the wire held back of the steps that came apart is forgotten"
int8=("${train[@]/#16/256,256}" --optimizer momentum --momentum 0.5 --learning-rate 0.1 --transport ring --all-reduce ring --wire int8-feedback)
must_run -n 2 "${int8[@]}" --run runs/calm-int8
succeeds -n 2 train --resume runs/calm-int8/checkpoints/step-0000000020.h5 --run runs/back-int8 --learning-rate 1e30 "${back_to_a_tenth[@]}"
expect_err 'Going back to runs/calm-int8/.*/step-0000000020\.h5'
expect_same_tensors runs/{calm,back}-int8/checkpoints/step-0000000060.h5 8

check "a run that resumes keeps the smaller rate"
succeeds -n 2 train --run runs/back-1 --resume --steps 80
expect_out 'lr 0\.1 '
check "and knows how often it went back"
fails 1 'is not finite.*went back 1 time before.*--roll-back 1 allows no more' \
  -n 2 train --run runs/back-1 --resume --steps 90 --learning-rate 1e62 --roll-back 1
expect_file runs/back-1/checkpoints/step-0000000080.h5

check "a run that was killed after its return, before the next checkpoint, knows of it"
cp -r runs/calm-3 runs/killed
rm runs/killed/checkpoints/step-00000000[3-6]0.h5
succeeds -n 3 train --run runs/killed --resume --learning-rate 1e30 "${back_to_a_tenth[@]}"
expect_err 'Going back to runs/killed/.*/step-0000000020\.h5'
rm runs/killed/checkpoints/step-00000000[3-6]0.h5
succeeds -n 3 train --run runs/killed --resume
expect_out 'continuing after step 20'; expect_out 'lr 0\.1 '
expect_same_tensors runs/{calm-3,killed}/checkpoints/step-0000000060.h5 8
expect [ "$(grep -c '"kind":"roll_back","step":21,"failed_step":2[0-9],"count":1,"rate_factor":1e-31' runs/killed/metrics.jsonl)" = 1 ]
fails 1 'is not finite.*went back 1 time before' -n 3 train --run runs/killed --resume --steps 70 --roll-back 1 --learning-rate 1e62
check "also where it went back to its beginning"
rm runs/anew-1/checkpoints/*
succeeds -n 1 train --run runs/anew-1 --resume
expect_out 'lr 0\.1 '
expect_same_tensors runs/{calm,anew}-1/checkpoints/step-0000000060.h5 8

check "where a smaller rate does not help it ends after N returns"
fails 1 'went back 3 times before, at last with 0\.125 times' "${train[@]}" "${too_fast[@]}" --roll-back 3 --run runs/hopeless

check "a leap of the loss, whose numbers are finite, and checkpoints made within it"
succeeds -n 2 train --data data --optimizer sgd --hidden 16 --global-batch 40 --learning-rate 0.1 --schedule step --boundaries 100 --decay-rate 300 --steps 160 \
  --checkpoint-every 5 --keep 50 --no-tensorboard --roll-back 1 --roll-back-factor 0.003 --run runs/leaps
expect_err 'the loss leaps: [0-9.]+ on average over the last 20 steps, and [0-9.]+ at its best\. Going back to runs/leaps/'
expect [ "$(grep -c '"kind":"checkpoint","step":105,' runs/leaps/metrics.jsonl)" = 1 ]
expect [ "$(grep -c '"kind":"roll_back"' runs/leaps/metrics.jsonl)" = 1 ]
succeeds eval runs/leaps --checkpoint latest

# Islands diverge by themselves and tell the others at the end of their turn; workers do at the end of a round.
for mode in "local=10 --islands 2 --outer-optimizer nesterov" "local=10 --islands 3 --fragments 2 --delay 2" "local=5 --islands 1" \
  "quorum=3" "async --staleness 0 --servers 1"; do
  ranks=3
  case $mode in async*) ranks=4 ;; esac
  check "as if the rate had been the smaller one from the start: $mode"
  rm -rf runs/back
  must_run -n $ranks "${train[@]}" --optimizer momentum --momentum 0.5 --learning-rate 0.1 --agree $mode --run runs/calm --force
  succeeds -n $ranks "${train[@]}" "${too_fast[@]}" "${back_to_a_tenth[@]}" --agree $mode --run runs/anew --force
  expect_err 'is not finite.*Going back to the beginning with 1e-31 times the learning rate \(roll-back 1 of 2\)$'
  expect_same_tensors runs/{calm,anew}/checkpoints/step-0000000060.h5 8
  succeeds -n $ranks train --resume runs/calm/checkpoints/step-0000000020.h5 --run runs/back --learning-rate 1e30 "${back_to_a_tenth[@]}"
  expect_err 'is not finite.*Going back to runs/calm/.*/step-0000000020\.h5'
  expect_same_tensors runs/{calm,back}/checkpoints/step-0000000060.h5 8
done
check "workers without an order come back, too"
succeeds -n 4 "${train[@]}" "${too_fast[@]}" "${back_to_a_tenth[@]}" --agree async --run runs/anew --force
expect_err 'is not finite.*Going back to the beginning'; expect_out 'done at step 60'
check "without --roll-back they stop with one message"
for mode in "local=10 --islands 2" async quorum=2; do
  fails 1 'is not finite' -n 3 "${train[@]}" "${too_fast[@]}" --agree $mode --run runs/stops --force
done
check "a factor without returns"
fails 2 'roll-back-factor has no effect without --roll-back' "${train[@]}" --roll-back-factor 0.1
