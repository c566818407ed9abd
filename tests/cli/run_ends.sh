#!/usr/bin/env bash
# Runs end in several ways, and a resume continues from each; ranks with different command lines are refused.
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test
train=(train --data data --optimizer sgd --hidden 16 --batch 25 --report-every 4)

check "a run ends with what it has come to"
succeeds -n 2 "${train[@]}" --epochs 3 --run runs/a
tail -n 1 out >last
expect grep -Eq '^done at step 36 after .*; validation loss .* accuracy .*; checkpoint runs/a/checkpoints/step-0000000036\.h5$' last
check "log.txt begins where the output begins"
expect_same <(head -n 3 out) <(head -n 3 runs/a/log.txt)

check "a finished run has nothing left to do, and its place in the data stays"
picture runs/a/checkpoints >before
cp runs/a/metrics.jsonl metrics
for steps in "--epochs 3" "--steps 20"; do
  succeeds -n 2 "${train[@]}" $steps --run runs/a --resume
  expect_out 'step 36 is done.*nothing is left to do'
done
picture runs/a/checkpoints >after; expect_same before after; expect_same metrics runs/a/metrics.jsonl
check "a job that was killed before it moved latest: the next one does"
ln -sfn step-0000000024.h5 runs/a/checkpoints/latest
succeeds -n 2 "${train[@]}" --epochs 3 --run runs/a --resume
expect_out 'nothing is left to do'
[ "$(readlink runs/a/checkpoints/latest)" = step-0000000036.h5 ] || failed "latest is $(readlink runs/a/checkpoints/latest)"
check "a finished run goes on with the next epoch"
succeeds -n 2 "${train[@]}" --epochs 4 --run runs/a --resume
expect_out 'continuing after step 36 \(epoch 3, sample 0\)'; expect_out '^done at step 48'
run -n 2 "${train[@]}" --epochs 4 --run runs/whole
metric runs/a train loss | tail -n 3 >parts; metric runs/whole train loss | tail -n 3 >whole
expect_same whole parts

check "a finished checkpoint in a new run folder keeps its place, too"
succeeds -n 2 "${train[@]}" --epochs 4 --run runs/copy --resume runs/a/checkpoints/step-0000000048.h5
expect_file runs/copy/checkpoints/step-0000000048.h5
succeeds -n 2 "${train[@]}" --epochs 5 --run runs/copy --resume
expect_out 'continuing after step 48 \(epoch 4, sample 0\)'
check "a checkpoint does not go on in another run's folder"
picture runs/whole >before
fails 1 'runs/whole holds a run already' -n 2 "${train[@]}" --epochs 9 --run runs/whole --resume runs/a/checkpoints/step-0000000048.h5
picture runs/whole >after; expect_same before after
check "going on from an older checkpoint of the run warns of the newer ones"
succeeds -n 2 "${train[@]}" --epochs 4 --run runs/a --resume runs/a/checkpoints/step-0000000036.h5
expect_err 'checkpoints of later steps, up to 48'

check "an average cannot begin in the middle"
fails 2 'keeps no average' -n 2 train --run runs/a --resume --epochs 9 --average-decay 0.9
check "a resume names the options that differ, and only those"
succeeds -n 2 train --run runs/copy --resume --epochs 6
expect_out 'options that differ now: epochs = 6$'

check "a reached target stays reached"
succeeds "${train[@]}" --epochs 50 --target-metric 0.5 --run runs/target
expect_out '^target reached at step'
succeeds "${train[@]}" --epochs 50 --target-metric 0.5 --run runs/target --resume
expect_out 'target metric 0.5 is reached.*nothing is left'
succeeds "${train[@]}" --epochs 50 --target-metric 0.995 --run runs/target --resume
expect_out '^target reached at step'

check "weights that diverged are not kept"
fails 1 'step 1: the validation loss is not finite' \
  -n 2 "${train[@]}" --learning-rate 1e30 --steps 8 --evaluate-every 1 --checkpoint-every 1 --run runs/diverged
[ -z "$(newest_checkpoint runs/diverged)" ] || failed "a checkpoint was written: $(newest_checkpoint runs/diverged)"
check "a loss that is not finite names micro-step and layer"
fails 1 'step 2: the loss is not finite: ranks 0-1: first in .* in micro-step 1 of 2' \
  -n 2 "${train[@]}" --learning-rate 1e30 --steps 8 --evaluate-every -1 --accumulate 2 --run runs/diverged2

check "eval writes every digit"
succeeds -n 2 eval runs/a --json evaluation.json
expect python3 -c "
import json
said = json.load(open('evaluation.json'))
trained = [json.loads(line) for line in open('runs/a/metrics.jsonl')]
trained = [r for r in trained if r['kind'] == 'validation' and r['step'] == said['step']][-1]
assert said['loss'] == trained['loss'] and said['accuracy'] == trained['accuracy'], (said, trained)"
check "eval finds the test part of a folder"
succeeds eval runs/a --data data
expect_out '600 samples'
check "eval of an average that was never kept"
fails 2 'average-decay' -n 2 eval runs/a --average
check "eval into a place that is none"
fails 1 'nowhere/x\.json' -n 2 eval runs/a --json nowhere/x.json

check "resume where there is nothing to learn the data from"
fails 2 'runs/none has no config.ini' -n 2 train --resume --run runs/none
check "checkpoints is a file"
mkdir -p runs/odd; touch runs/odd/checkpoints
fails 1 'runs/odd/checkpoints' -n 2 "${train[@]}" --steps 2 --resume --run runs/odd
check "more epochs than can be counted"
fails 2 'epochs 1e\+30' "${train[@]}" --epochs 1e30 --run runs/none; expect_no_file runs/none

# ranks_differ FIRST... : SECOND...: starts one rank with each command line.
ranks_differ() {
  local first=()
  while [ "$1" != : ]; do first+=("$1"); shift; done
  shift
  script one_of_two <<END
shift
if [ "\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" = 0 ]; then exec "$lockstep" ${first[*]}; fi
exec "$lockstep" $*
END
  run -n 2 -w ./one_of_two
}
check "ranks with different options"
ranks_differ train --data data --steps 5 --run runs/d : train --data data --steps 6 --run runs/d
expect_error 2 'steps = 5.*steps = 6'; expect_no_file runs/d
check "one rank resumes"
ranks_differ train --data data --steps 5 --run runs/d : train --data data --steps 5 --run runs/d --resume
expect_error 2 'resume'; expect_no_file runs/d
check "one rank uses another transport"
ranks_differ train --data data --steps 5 --run runs/d : train --data data --steps 5 --run runs/d --transport ring
expect_error 2 'transport = auto.*transport = ring'; expect_no_file runs/d
check "one rank runs another command"
ranks_differ train --data data --steps 5 --run runs/d : eval runs/a
expect_error 2 'command.*train.*eval'; expect_no_file runs/d
