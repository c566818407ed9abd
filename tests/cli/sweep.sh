#!/usr/bin/env bash
# sweep makes one training for each line of a file; sweeps can be resumed, shared and halved.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train --noise 4
pack_small data/test --first 600 --noise 4
cat >settings.txt <<'LINES'
# width and rate

--learning-rate 0.1 --hidden 8
  --learning-rate 0.00001 --hidden 8,8
--learning-rate 0.02
LINES
common=(--data data --batch 20 --epochs 4)

check "a run for each line, and the ranking"
run sweep settings.txt "${common[@]}" --hidden 4 --run runs/s
expect_status 0; expect_silence
expect_out '^3 settings of settings.txt; runs in runs/s$'; expect_out '^1\. +runs/s/[123] '; expect_out '--learning-rate +'
expect grep -Eq '^hidden = 8,8$' runs/s/2/config.ini
expect grep -Eq '^hidden = 4$' runs/s/3/config.ini
python3 - <<'PYTHON' || failed "the ranking"
import json, re
best = {n: max(r["accuracy"] for r in map(json.loads, open(f"runs/s/{n}/metrics.jsonl")) if r["kind"] == "validation") for n in "123"}
ranked = re.findall(r"^\d\. +runs/s/(\d) ", open("out").read(), re.M)
assert ranked == sorted(best, key=lambda n: -best[n]), (ranked, best)
PYTHON

check "what is done stays done"
before=$(picture runs/s)
run sweep settings.txt "${common[@]}" --hidden 4 --run runs/s
expect_status 0; expect_out '^1\. '; expect_no_out ' in [0-9.]+ s$'
[ "$before" = "$(picture runs/s)" ] || failed "something was done again"

check "a sweep that is told to stop goes on where it was"
start sweep settings.txt --data data --batch 20 --epochs 400 --hidden 4 --run runs/t
wait_for 30 grep -q '"kind":"train"' runs/t/1/metrics.jsonl
kill -TERM "$job"
finish 60
expect_status 75; expect_out 'stopped on request; the same command goes on'
expect grep -q '"how":"stopped"' runs/t/1/metrics.jsonl
step=$(metric runs/t/1 end step | tail -n 1 | cut -d' ' -f1)
run sweep settings.txt --data data --batch 20 --epochs 400 --hidden 4 --run runs/t
expect_status 0
expect grep -q "\"kind\":\"start\",\"step\":$step," runs/t/1/metrics.jsonl

check "halving: the better half goes on, two processes share the work"
start sweep settings.txt "${common[@]}" --hidden 4 --run runs/h --halving
first=$job
"$lockstep" sweep settings.txt "${common[@]}" --hidden 4 --run runs/h --halving >out2 2>err2 </dev/null
second=$?
finish 60
expect_status 0
[ $second = 0 ] || failed "the second process: $second $(cat err2)"
cat out out2 >both
for rung in 1/3 2/3 3/3; do echo "$rung $(grep -c "^rung $rung " both)"; done >counts
printf '1/3 3\n2/3 2\n3/3 1\n' >wanted
expect_same wanted counts
expect cmp <(tail -n 5 out) <(tail -n 5 out2)
# A quarter, a half and all of 120 steps, under the same schedule.
steps=$(for n in 1 2 3; do metric runs/h/$n end step | tail -n 1 | cut -d' ' -f1; done | sort -n | tr '\n' ' ')
[ "$steps" = "30 60 120 " ] || failed "steps: $steps"

check "a halved run is the same as one that was never stopped"
winner=$(for n in 1 2 3; do [ "$(metric runs/h/$n end step | tail -n 1 | cut -d' ' -f1)" = 120 ] && echo $n; done)
line=$(grep -v -e '^#' -e '^$' settings.txt | sed -n "${winner}p")
# shellcheck disable=SC2086  # words
case $line in *hidden*) hidden= ;; *) hidden="--hidden 4" ;; esac
# shellcheck disable=SC2086
must_run train "${common[@]}" $hidden $line --run runs/whole --progress off
[ "$(metric runs/whole validation loss | tail -n 1)" = "$(metric runs/h/$winner validation loss | tail -n 1)" ] || failed "another result"

check "halving of a table: each rung goes on with what the first one has decided"
pack_house house
printf -- '--learning-rate 0.003\n--learning-rate 0.00001\n' >rates.txt
run sweep rates.txt --data house --epochs 8 --run runs/table --halving
expect_status 0
must_run train --data house --epochs 8 --learning-rate 0.003 --run runs/table-whole --progress off
metric runs/table/1 validation loss >halved; metric runs/table-whole validation loss >whole; expect_same whole halved

check "halving refuses settings that cannot be compared before it trains"
printf -- '--seed 1\n--best-by loss\n' >metrics.txt
fails 2 'metrics.txt, setting 2 .--best-by loss.: setting 1 is judged by its accuracy, setting 2 by its loss' sweep metrics.txt "${common[@]}" --run runs/metrics --halving
printf -- '--seed 1\n--best-by f1\n' >metrics.txt
fails 2 'metrics.txt, setting 2 .--best-by f1.: --best-by f1 is no metric of classes' sweep metrics.txt "${common[@]}" --run runs/metrics --halving
fails 2 'setting 1 .*--halving needs data for validation' sweep settings.txt --data data/train --steps 4 --run runs/metrics --halving
expect_no_file runs/metrics

check "under a launcher, and what sweep says itself may be said"
printf -- '--hidden 4\n' >one.txt
run sweep one.txt --data data --batch 20 --steps 4 --progress off --run runs/two --launch "$tree/app/launch 2"
expect_status 0
expect grep -q '"ranks":2' runs/two/1/metrics.jsonl

check "the ways to agree, side by side: the shipped settings"
run sweep "$tree/app/examples/agree.txt" --data data --hidden 16 --global-batch 40 --epochs 4 --optimizer sgd --run runs/agree --launch "$tree/app/launch 4"
expect_status 0; expect_silence; expect_out '^4 settings of '
expect_out '^ +run +accuracy +--agree .*--islands.* at step +loss +steps +steps/s +time +state$'
for way in all quorum=3 async local=16; do expect_out "^[1-4]\. +runs/agree/[1-4] +[0-9.]+ % +$way .* 60 +[0-9.]+ .* done\$"; done
run report runs/agree --along time --out agree.html
expect_status 0; expect grep -q 'local=16' agree.html

check "a training that fails is told, and the others are made"
printf -- '--hidden 4\n--hidden 4 --learning-rate 1e30\n' >bad.txt
run sweep bad.txt --data data --batch 20 --steps 20 --run runs/bad
expect_status 1; expect_err 'setting 2 .* failed with exit code 1: .*setting-2.txt tells why'
expect grep -q 'not finite' runs/bad/sweep/setting-2.txt
expect grep -q '"how":"done"' runs/bad/1/metrics.jsonl

check "paths that are no UTF-8: the same command goes on with them"
strange=$'data-\xff\xc3\xa9'
mkdir "$strange" && cp -r data/. "$strange"
printf -- '--hidden 4 --data %s\n' "$strange" >strange.txt
for again in 1 2; do
  run sweep strange.txt --batch 20 --steps 4 --run $'runs/\xfe'
  expect_status 0; expect_silence; expect_out '^1\. +runs/\\xFE/1 '
done
expect grep -q '"line":"--hidden 4 --data data-\\\\xFFé"' $'runs/\xfe/sweep/rung-1-setting-1.json'

check "a launcher with a blank in its path"
mkdir "a b"
script "a b/launch" ': >launched; exec "$@"'
run sweep one.txt --data data --batch 20 --steps 4 --run runs/blank --launch "$work/a b/launch"
expect_status 0; expect test -e launched

check "a launcher that waits for ranks that have ended is ended"
make_stuck_launcher stuck
run sweep one.txt --data data --batch 20 --steps 4 --run runs/stuck --launch "$work/stuck"
expect_status 1; expect_err 'setting 1 .* failed with exit code 137'
check "one that cannot be started is told"
run sweep one.txt --data data --batch 20 --steps 4 --run runs/none --launch "$work/none"
expect_status 1; expect_err 'none cannot be started: No such file'
check "a sweep that is killed takes its training with it"
start sweep one.txt --data data --batch 20 --steps 100000000 --report-every 100 --run runs/killed --launch "$tree/app/launch 2"
training() { pgrep -f "train .*--run=runs/killed/1"; }
wait_for 60 grep -q '^ *step ' runs/killed/1/log.txt
kill -9 "$job"
finish 10
wait_for 30 eval '! training'
expect grep -q 'stopped at step .* on request' runs/killed/1/log.txt

check "usage"
printf -- '--hidden 4\n--hiden 4\n' >wrong.txt
run sweep wrong.txt --data data --run runs/w
expect_error 2 'wrong.txt, setting 2 \(--hiden 4\): .*--hidden'
printf -- '--run here\n' >wrong.txt
run sweep wrong.txt --data data --run runs/w
expect_error 2 '--run is not for a single line of a sweep'
run sweep nowhere.txt --data data --run runs/w
expect_error 2 'nowhere.txt cannot be read'
run sweep settings.txt --data data
expect_error 2 '--run is missing'
sed -i 's/0.02/0.03/' settings.txt
run sweep settings.txt "${common[@]}" --hidden 4 --run runs/s
expect_error 1 "setting 3 is '--learning-rate 0.03' now"
expect_no_file runs/w
