#!/usr/bin/env bash
# The best checkpoint is kept, named and found again, and a run ends when its validations stop improving.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
train=(train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 10 --learning-rate 0.5 --progress off
  --evaluate-every 5 --checkpoint-every 5 --keep 1 --no-tensorboard)
# best_step RUN: the step of the best validation in its metrics; among equals the lowest loss wins.
best_step() {
  paste -d ' ' <(metric "$1" validation accuracy) <(metric "$1" validation loss) | sort -s -k2,2gr -k4,4g | head -n 1 | cut -d ' ' -f 1
}
linked_step() { readlink "$1/checkpoints/best" | sed 's/step-0*//; s/[.]h5//'; }
# is_best RUN: the link is right, its target exists and is whole, and only the newest stands beside it.
is_best() {
  [ -n "$(linked_step "$1")" ] && [ "$(linked_step "$1")" = "$(best_step "$1")" ] ||
    failed "best is step $(linked_step "$1"), the metrics say $(best_step "$1")"
  expect_file "$1/checkpoints/best"
  [ "$(find "$1/checkpoints" -name 'step-*.h5' | wc -l)" -le 2 ] || failed "more than the newest and the best is there"
}

check "the best stays beside the newest"
succeeds -n 2 "${train[@]}" --steps 100 --run runs/a
is_best runs/a
best=$(best_step runs/a)
[ "$best" != 100 ] || failed "the last is the best: this shows nothing"
expect_out "; checkpoint runs/a/checkpoints/step-0000000100.h5, the best step-[0-9]+.h5$"

check "of equal ones the best is that of the lower loss"
must_run pack --format synthetic --samples 40 --features 20 --classes 2 --out easy
succeeds train --data easy --validation easy --batch 10 --hidden 16 --steps 60 --evaluate-every 4 --checkpoint-every 4 --keep 1 --progress off \
  --no-tensorboard --run runs/equal
metric runs/equal validation accuracy | awk '$2 == 1 { n++ } END { exit !(n > 2) }' || failed "no equal ones: this shows nothing"
[ "$(linked_step runs/equal)" = "$(best_step runs/equal)" ] || failed "best is step $(linked_step runs/equal), not $(best_step runs/equal)"
[ "$(best_step runs/equal)" != "$(metric runs/equal validation accuracy | awk '$2 == 1 { print $1; exit }')" ] || failed "it is the first, too"
expect_out "^the best +$(best_step runs/equal) "
check "also after a resume"
must_run train --resume --run runs/equal --steps 80
[ "$(linked_step runs/equal)" = "$(best_step runs/equal)" ] || failed "best is step $(linked_step runs/equal), not $(best_step runs/equal)"

check "eval takes the best, and says so"
succeeds eval runs/a --json best.json
expect_out "\(step $best, the best of its run\)"
python3 - "$best" <<'END' || failed "not the metric of the best"
import json, sys
best = [r for r in map(json.loads, open("runs/a/metrics.jsonl")) if r["kind"] == "validation" and r["step"] == int(sys.argv[1])]
assert json.loads(open("best.json").readlines()[-1])["accuracy"] == best[-1]["accuracy"]
END
check "eval takes the newest, or a file by its name, where that is asked for"
succeeds eval runs/a --checkpoint latest
expect_out "\(step 100\)"
succeeds eval runs/a --checkpoint step-0000000100.h5
expect_out "\(step 100\)"
fails 1 "runs/a/checkpoints has no checkpoint step-7.h5: there (is|are) step-0*$best.h5.*, step-0000000100.h5$" eval runs/a --checkpoint step-7.h5
mkdir step-0000000100.h5  # a checkpoint's name, but no checkpoint
for folder in runs/a runs/a/checkpoints; do
  succeeds eval $folder --checkpoint step-0000000100.h5
  expect_out "^runs/a/checkpoints/step-0000000100.h5 \(step 100\)"
done
rmdir step-0000000100.h5
fails 1 "runs/a/checkpoints/step-0000000100.h5 is no folder of checkpoints: leave out --checkpoint step-0000000005.h5" \
  eval runs/a/checkpoints/step-0000000100.h5 --checkpoint step-0000000005.h5
check "info shows which is which, with the metric of each"
succeeds info runs/a
expect_out "step-0*$best.h5 .*ok  accuracy 0\.[0-9]+  \(best\)"
expect_out "step-0000000100.h5 .*ok  accuracy 0\.[0-9]+  \(latest\)"

check "a best checkpoint that is damaged: the newest, with a warning"
cp -a runs/a runs/damaged
flip_byte "runs/damaged/checkpoints/$(readlink runs/damaged/checkpoints/best)" -200
succeeds eval runs/damaged
expect_err "is corrupted"; expect_out "\(step 100\)"

check "a run that is killed and goes on keeps the best of both parts"
start "${train[@]}" --steps 100000 --run runs/killed
wait_for 30 test -e runs/killed/checkpoints/best
sleep 1
kill_job
finish 5
reached=$(basename "$(newest_checkpoint runs/killed)" .h5 | sed 's/step-0*//')
succeeds "${train[@]}" --steps $((reached + 20)) --run runs/killed --resume
is_best runs/killed

check "by the clock, too: a validation that is the best so far brings a checkpoint"
succeeds -n 2 train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 10 --learning-rate 0.5 --progress off \
  --evaluate-every 7 --checkpoint-every 1h --keep 1 --no-tensorboard --steps 63 --run runs/clock
is_best runs/clock
[ "$(best_step runs/clock)" != 63 ] || failed "the last is the best: this shows nothing"
expect_out "^  one every 1:00:00, and one after each validation that is the best so far \(--keep-best\)$"

check "a best checkpoint that somebody has removed: the newest, and one sentence"
cp -a runs/a runs/removed
rm "runs/removed/checkpoints/$(readlink runs/removed/checkpoints/best)"
succeeds eval runs/removed
expect_out "\(step 100\)"
expect_err "runs/removed/checkpoints/best points at step-0*$best.h5, which is gone: taking the newest checkpoint instead"
succeeds info runs/removed
expect_no_out "\(best\)"
succeeds "${train[@]}" --steps 105 --run runs/removed --resume
[ ! -L runs/removed/checkpoints/best ] || expect_file runs/removed/checkpoints/best
check "without --keep-best a run that goes on has no best any more"
cp -a runs/a runs/given-up
succeeds "${train[@]}" --steps 120 --run runs/given-up --resume --keep-best 0
[ ! -L runs/given-up/checkpoints/best ] || failed "the link is still there"
succeeds eval runs/given-up
expect_silence; expect_out "\(step 120\)"

check "files of a branch that the run has left are nobody's best"
branch=(train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 10 --progress off --no-tensorboard --keep 20
  --run runs/branch)
succeeds "${branch[@]}" --learning-rate 0.1 --evaluate-every 5 --checkpoint-every 10 --steps 30
succeeds "${branch[@]}" --learning-rate 0.5 --evaluate-every 5 --checkpoint-every 45 --steps 45 --resume=runs/branch/checkpoints/step-0000000010.h5
succeeds "${branch[@]}" --learning-rate 0.5 --evaluate-every 5 --checkpoint-every 45 --steps 50 --resume
case $(linked_step runs/branch) in 10 | 45 | 50) ;; *) failed "best is step $(linked_step runs/branch)" ;; esac
expect grep -q '"kind":"checkpoint","step":45' runs/branch/metrics.jsonl
for step in 20 30; do
  ! grep -q "\"kind\":\"checkpoint\",\"step\":$step," runs/branch/metrics.jsonl || failed "step $step is recorded as the run's"
done

check "a validation that was owed is saved: nobody makes it twice"
owed=(train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 10 --progress off --evaluate-every 1
  --checkpoint-every 1000000 --steps 1000000 --run runs/owed)
start "${owed[@]}"
wait_for 20 grep -q '^validation ' out && kill -TERM "$job"
finish 20
expect_status 75
succeeds "${owed[@]}" --resume --target-metric 0.01
expect_out "^validation at step"; expect_out "the target metric 0.01 is reached"
succeeds "${owed[@]}" --resume --target-metric 0.01
expect_no_out "^validation at step"; expect_out "the target metric 0.01 is reached"

check "none is kept where that is asked for, and starting over removes the link"
succeeds "${train[@]}" --steps 20 --run runs/a --force --keep-best 0
expect_no_file runs/a/checkpoints/best
succeeds eval runs/a
expect_out "\(step 20\)"

check "a run ends when nothing gets better"
patient=("${train[@]}" --steps 1000 --min-delta 2 --run runs/patient)
succeeds -n 2 "${patient[@]}" --patience 3
expect_silence
expect_out "^no improvement in 3 validations at step 20 after"
expect grep -q '"how":"no improvement"' runs/patient/metrics.jsonl
check "it has nothing left to do, and goes on with more patience"
succeeds -n 2 "${patient[@]}" --patience 3 --resume
expect_out "the last 3 validations were not better than 0\.[0-9]+: nothing is left to do"
succeeds -n 2 "${patient[@]}" --patience 5 --resume
expect_out "^no improvement in 5 validations at step 30 after"
check "a validation because of --stop-at alone counts for nothing: the run goes on as if it had not stopped"
whole=(train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 10 --learning-rate 0.5 --progress off
  --no-tensorboard --evaluate-every 4 --checkpoint-every 4 --keep 1 --steps 1000 --min-delta 2 --patience 3)
succeeds "${whole[@]}" --run runs/unbroken
stops_at() {
  run "${whole[@]}" --run runs/broken --stop-at "$@"
  expect_status 75; expect_out "^validation at step $1"
}
stops_at 2
expect_no_file runs/broken/checkpoints/best
for step in 6 10 12; do stops_at $step --resume; done
succeeds "${whole[@]}" --run runs/broken --stop-at 0 --resume
expect_out "^no improvement in 3 validations at step 16 after"
metric runs/unbroken validation loss >unbroken
metric runs/broken validation loss | grep -v -E '^(2|6|10) ' >broken
expect_same unbroken broken
[ "$(linked_step runs/unbroken)" = "$(linked_step runs/broken)" ] || failed "best is step $(linked_step runs/broken)"
check "patience without a validation before the end"
fails 2 "--patience 2 needs validations before the end, and --evaluate-every -1 makes none" \
  -n 2 "${train[@]/--evaluate-every/--report-every}" --evaluate-every -1 --patience 2 --run runs/none
expect_no_file runs/none
check "patience without validation data"
fails 2 "--patience needs validation data" train --data data/validation --optimizer sgd --hidden 4 --patience 1 --run runs/none
