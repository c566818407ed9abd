#!/usr/bin/env bash
# A whole job on small data fills its run folder, is evaluated by eval and goes on.
# label: mpich
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600

check "a run of two ranks"
succeeds -n 2 train --data data --optimizer sgd --model mlp --hidden 16 --batch 25 --epochs 3 --run runs/a --report-every 4
expect_silence
expect_out 'step +4/36'; expect_out 'validation at step 36'
for file in config.ini log.txt metrics.jsonl checkpoints/latest; do expect_file runs/a/$file; done
expect test -n "$(find runs/a -name 'events.out.tfevents.*' -size +0)"
[ "$(metric runs/a train loss | wc -l)" = 9 ] || failed "9 reports expected in metrics.jsonl"
check "log.txt holds what was printed"
while read -r line; do grep -Fq -- "$line" runs/a/log.txt || failed "log.txt lacks: $line"; done < <(grep -E '^ *(step|validation)' out)
check "the run folder keeps three checkpoints"
[ "$(find runs/a/checkpoints -name 'step-*.h5' | wc -l)" = 3 ] || failed "$(ls runs/a/checkpoints)"

check "eval says what training said, at any world size"
said=$(metric runs/a validation loss | tail -n 1)
accuracy=$(sed -n 's/.*validation at step 36: \(loss .*samples)\).*/\1/p' out)
[ -n "$accuracy" ] || failed "training printed no validation line"
succeeds eval runs/a
expect grep -F -- "$accuracy" out
cp out alone
for n in 2 3; do
  succeeds -n $n eval runs/a
  expect_same alone out
done
check "eval on other data"
succeeds -n 2 eval runs/a --data data/train
expect_out '600 samples'

check "info of a run and of a checkpoint"
succeeds info runs/a
expect_out '36'
succeeds info "$(newest_checkpoint runs/a)"
expect_out 'weight'; expect_out '36'

check "a run folder in use is not trained over"
picture runs/a >before
fails 1 'runs/a.*(--resume|--force)' -n 2 train --data data --optimizer sgd --run runs/a
picture runs/a >after; expect_same before after
check "--force starts over"
succeeds train --data data --optimizer sgd --hidden 16 --steps 3 --run runs/a --force
[ "$(metric runs/a validation loss | wc -l)" = 1 ] || failed "old metrics are still there"

check "the saved configuration repeats the run"
succeeds train --data data --hidden 12,8 --activation tanh --optimizer adam --learning-rate 0.01 --batch 50 --steps 12 --report-every 1 --run runs/b
succeeds train --config runs/b/config.ini --run runs/c
metric runs/b train loss >b; metric runs/c train loss >c
expect_same b c
check "the command line wins over the file"
succeeds train --config runs/b/config.ini --run runs/d --steps 4
[ "$(metric runs/d train loss | wc -l)" = 4 ] || failed "4 steps expected"

check "a dry run touches nothing"
succeeds -n 2 train --data data --optimizer sgd --run runs/dry --dry-run
expect_out '[Pp]arameters'; expect_out '[Bb]ucket'; expect_no_file runs/dry

check "early stop on a target metric"
succeeds train --data data --optimizer sgd --hidden 16 --epochs 50 --target-metric 0.01 --run runs/target
expect_out 'target reached'

check "every optimiser, schedule and loss takes a step"
for optimizer in sgd momentum nesterov adam adamw; do
  succeeds train --data data --hidden 8 --steps 2 --optimizer $optimizer --learning-rate 0.01 --run runs/$optimizer
done
must_run pack --format synthetic --task regression --samples 400 --features 6 --out line
succeeds -n 2 train --data line --optimizer sgd --model linear --steps 30 --batch 20 --learning-rate 0.05 --report-every 1 --run runs/line
expect_out 'mean absolute error'
check "the loss of a regression falls"
metric runs/line train loss | awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first / 2) }' || failed "$(metric runs/line train loss | sed -n '1p;$p')"
