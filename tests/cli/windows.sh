#!/usr/bin/env bash
# Forecasts of series of numbers (--window, --horizon): curves at 1 to 3 ranks, the split by time, places of forecasts, data in tables,
# arrays and samples, resumes, and what does not fit.
# seconds: 300
. "$(dirname "$0")/harness.sh"

python3 - <<'END' || exit 1
import numpy as np, h5py
r = np.random.default_rng(3)
wind = np.sin(np.arange(400) / 7) + r.normal(size=400) * 0.05
load = 1000 + 300 * np.roll(wind, 2) ** 2 + r.normal(size=400)
table = np.column_stack([wind, load])
np.savetxt("power.csv", table, fmt="%.6f", delimiter=",", header="wind,load", comments="")
np.savetxt("turned.csv", table[:, ::-1], fmt="%.6f", delimiter=",", header="load,wind", comments="")
with h5py.File("array.h5", "w") as f:
    f["series"] = table.astype("f4")
with h5py.File("samples.h5", "w") as f:
    f["series"] = np.stack([table[i * 40:(i + 2) * 40] for i in range(8)]).astype("f4")
END
must_run pack --x power.csv --label-column load --regression --out power
must_run pack --x turned.csv --label-column load --regression --out turned
net=$tree/app/examples/series/series.yaml
common=(--model "$net" --width 8 --global-batch 24 --seed 5 --report-every 1 --no-tensorboard --progress off --validation 0.2
  --learning-rate 0.02)

check "a table's column is forecast from all columns, alike at 1 to 3 ranks"
for n in 1 2 3; do
  succeeds -n $n train power "${common[@]}" --window 12 --horizon 3 --epochs 4 --run runs/$n
  [ $n = 3 ] || expect_silence  # more ranks than cores, perhaps
  metric runs/$n train loss >curve.$n
  metric runs/$n validation loss >>curve.$n
done
for n in 2 3; do expect_near curve.1 curve.$n 1e-4 20; done
succeeds train power "${common[@]}" --window 12 --horizon 3 --dry-run
expect_silence
expect_out '306 samples'  # 320 steps train: 320 - 12 - 3 + 1 windows
expect_out '78 samples'   # 80 steps validate: 80 - 3 + 1
expect_out 'recurrent +2 -> 8, 12 steps, the last one.s result'

check "predictions have their places, and go on behind the end"
succeeds -n 2 train power "${common[@]}" --window 12 --horizon 1 --epochs 6 --run runs/one
succeeds -n 2 predict runs/one --data power --out all.h5 --csv all.csv
expect_silence
[ "$(wc -l <all.csv)" = 390 ] || failed "$(wc -l <all.csv) lines"
head -n 1 all.csv | grep -qx 'index,step,predicted_load+1' || failed "the header is $(head -n 1 all.csv)"
tail -n 1 all.csv | grep -Eq '(^|,)400,' || failed "the last forecast is $(tail -n 1 all.csv)"
succeeds eval runs/one --json eval.json
expect_silence
python3 - <<'END' || failed "the error of eval is not that of the predictions at their places"
import csv, json
load = [float(line["load"]) for line in csv.DictReader(open("power.csv"))]
errors = []
for line in csv.DictReader(open("all.csv")):
    step = int(line["step"])
    if 320 <= step < 400:
        errors.append(abs(float(line["predicted_load+1"]) - load[step]))
told = json.loads(open("eval.json").read().splitlines()[-1])["mean_absolute_error"]
mean = sum(errors) / len(errors)
assert len(errors) == 80 and abs(mean - told) < 1e-3 * mean, (len(errors), mean, told)
END

check "columns are matched by name below the windows"
succeeds predict runs/one --data turned --out turned.h5 --csv turned.out
cut -d, -f 1-9 all.csv >a; cut -d, -f 1-9 turned.out >b; expect_same a b

check "a resumed run makes the same bytes"
succeeds -n 2 train power "${common[@]}" --window 12 --horizon 3 --epochs 2 --checkpoint-every 10 --keep 9 --run runs/here
last=$(newest_checkpoint runs/here | grep -o '[0-9]*\.h5' | sed 's/^0*//; s/\.h5//')
resumes_with_its_bytes 2 10 "$last"

check "arrays of numbers alone, and samples that are series"
succeeds -n 2 train array.h5 --x series "${common[@]}" --window 6 --horizon 2 --epochs 1 --run runs/array
succeeds train array.h5 --x series "${common[@]}" --window 6 --horizon 2 --dry-run
expect_out '313 samples'; expect_out 'forecast +8 -> 4'
succeeds -n 2 train samples.h5 --x series "${common[@]}" --window 6 --horizon 2 --epochs 1 --run runs/samples
succeeds predict runs/samples --data samples.h5 --out samples.out.h5 --csv samples.csv
expect_out '600 predictions'
head -n 1 samples.csv | grep -q 'series:step' || failed "no places in $(head -n 1 samples.csv)"
tail -n 1 samples.csv | grep -q '7:80' || failed "the last forecast is $(tail -n 1 samples.csv)"

check "weights that went through safetensors know their windows"
must_run export runs/1 --format safetensors --out w.safetensors
must_run import w.safetensors --out w.h5
succeeds eval w.h5 --data power --json imported.json
run eval runs/1 --data power --json own.json
[ "$(grep -o '"loss":[^,]*' imported.json)" = "$(grep -o '"loss":[^,]*' own.json)" ] || failed "$(cat imported.json own.json)"

check "what does not fit"
fails 1 "power: has series of 400 steps, which is too short for a window of 500 and a horizon of 1: give a smaller --window" \
  -n 2 train power "${common[@]}" --window 500 --run runs/no
fails 1 "of which the last 80 are for validation: a window of 350 with a horizon of 1 does not fit" \
  -n 3 train power "${common[@]}" --window 350 --run runs/no
fails 2 "--window is for series of numbers, and --model gpt reads tokens" train power --model gpt --window 8 --run runs/no
fails 1 "too short for a window of 12 and a horizon of 9223372036854775807" \
  train power "${common[@]}" --window 12 --horizon 9223372036854775807 --run runs/no
fails 2 "--horizon is for forecasts of series: give --window, too" train power "${common[@]}" --horizon 3 --run runs/no
fails 2 "--sample-weight is for samples, and --window makes each of many rows" \
  train array.h5 --x series "${common[@]}" --window 12 --sample-weight w --run runs/no
fails 2 "--augment is for images, and --window reads series" train array.h5 --x series "${common[@]}" --window 12 --augment flip --run runs/no
printf '%s\n' 'name: two' 'network: [flatten, dense: $outputs]' 'losses:' '- {loss: huber, with: one}' '- {loss: huber, with: other}' >two-losses.yaml
fails 2 "the data have one target: with --window all that is forecast is judged together: leave .with:. out" \
  train power --model two-losses.yaml --window 4 --steps 1 --run runs/no
python3 -c "
import h5py, numpy
with h5py.File('two.h5', 'w') as f: f['p'], f['q'] = numpy.zeros((90, 2), 'f4'), numpy.zeros((90, 3), 'f4')"
fails 1 "two.h5: has 2 inputs, and --window makes windows of one: --x names it" train two.h5 --x p,q "${common[@]}" --window 12 --run runs/no
fails 2 "--window: -1 must not be negative" train power "${common[@]}" --window -1
fails 2 "--horizon: 0 .*at least 1" train power "${common[@]}" --window 8 --horizon 0
must_run pack --x power.csv --label-column load --regression --validation 0.2 --out drawn
fails 1 "drew by chance, and windows need rows that follow each other" -n 2 train drawn "${common[@]}" --window 8 --run runs/no
awk 'NR == 50 { print "NA,5"; next } { print }' power.csv >gap.csv
must_run pack --x gap.csv --label-column load --regression --missing drop --out gap
fails 1 "gap: was packed with --missing drop, which left lines out, and windows need rows that follow each other" \
  -n 2 train gap "${common[@]}" --window 8 --run runs/no
must_run pack --x power.csv --label-column load --regression --missing drop --out whole
succeeds train whole "${common[@]}" --window 8 --dry-run
python3 -c "
import h5py, numpy
with h5py.File('gap.h5', 'w') as f:
    f['x'] = numpy.arange(90, dtype='f4').reshape(45, 2)
    f['x'][7, 1] = numpy.nan"
must_run pack --format hdf5 --x gap.h5 --missing drop --out gap-h5
fails 1 "gap-h5: was packed with --missing drop" train gap-h5 "${common[@]}" --window 8 --run runs/no
pack_small classes
fails 1 "holds classes, and --window forecasts numbers" train classes "${common[@]}" --window 8 --run runs/no
