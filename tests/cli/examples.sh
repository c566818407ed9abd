#!/usr/bin/env bash
# The examples of app/examples with small data: each learns on two ranks what a linear model does not, and goes on behind its training.
# label: more
# seconds: 700
. "$(dirname "$0")/harness.sh"
examples=$tree/app/examples
"$python" -c 'import numpy' 2>/dev/null || skip_all "no NumPy beside h5py here"

for file in "$examples"/*/*.yaml; do
  check "$file has fewer than 40 lines"
  [ "$(wc -l <"$file")" -lt 40 ] || failed "$(wc -l <"$file")"
done

# made NAME FILE COUNT...
made() { "$python" "$examples/$1/make.py" "$2" "${@:3}" >made.out 2>&1 || { cat made.out; exit 1; }; }
# learns NAME KEY COMPARISON: `run train` has written runs/NAME and runs/NAME.linear; their last validations by awk, a and b.
learns() {
  local a b
  a=$(metric "runs/$1" validation "$2" | tail -n 1 | cut -d' ' -f2) b=$(metric "runs/$1.linear" validation "$2" | tail -n 1 | cut -d' ' -f2)
  awk -v a="$a" -v b="$b" "BEGIN { exit !($3) }" || failed "$1: $2 is $a, that of the linear model $b"
}
# both NAME DATA ARGUMENTS... -- ARGUMENTS...: trains the linear model with the first arguments, the example with all.
both() {
  local name=$1 data=()
  shift
  while [ "$1" != -- ]; do data+=("$1"); shift; done
  shift
  for model in linear "$examples/$name/"*.yaml; do
    local more=("$@") folder=runs/$name
    [ "$model" = linear ] && more=(--optimizer adam --learning-rate 0.003 --epochs 8) && folder=runs/$name.linear
    run -n 2 train "${data[@]}" --validation 0.2 --model "$model" --seed 1 --no-tensorboard --progress off --run "$folder" "${more[@]}"
    expect_status 0; [ "$model" = linear ] || expect_silence  # a linear model may learn nothing
  done
}

# commands_of SECTION SAMPLES: the commands of a section of model/networks.md, with as many samples where they do not say how many.
commands_of() {
  awk -v section="## $1" '/^## / { own = $0 == section } own && /^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } own && inside' \
    "$tree/model/networks.md" >commands
  [ "$(grep -c '^lockstep' commands)" -ge 3 ] || failed "few commands in $1"
  printf 'python3() { if [ $# = 2 ]; then set -- "$@" %s; fi; "%s" "$@"; }\nlockstep() { "%s" "$@"; }\n' "$2" "$python" "$lockstep" >all.sh
  cat commands >>all.sh
  command_line="the commands of $1"
  timeout 400 bash -e all.sh >out 2>err </dev/null
  status=$?
}
mkdir -p app && ln -s "$examples" app/examples

check "the commands of the documents: from spectra in HDF5 to predictions in CSV"
commands_of "From spectra in HDF5 to predictions in CSV" 1200
expect_status 0
expect_out 'R2'; expect_file spectra.onnx
[ "$(wc -l <predictions.csv)" = 101 ] || failed "$(wc -l <predictions.csv) lines"
metric runs/spectra validation mean_absolute_error | tail -n 1 | awk '{ exit !($2 < 0.6) }' || failed "$(metric runs/spectra validation mean_absolute_error)"

check "the commands of the documents: forecasts of series"
commands_of "Forecasts of series" 1500
expect_status 0
head -n 1 forecasts.csv | grep -qx 'index,step,predicted_x+1,predicted_x+2,predicted_x+3,predicted_x+4' || failed "$(head -n 1 forecasts.csv)"
tail -n 1 forecasts.csv | grep -Eq '(^|,)1500,' || failed "the last forecast is $(tail -n 1 forecasts.csv)"

check "the commands of the documents: rare classes"
commands_of "Rare classes" 120
expect_status 0
expect_out '^class +positions +precision +recall +F1 +IoU$'; expect_file classes.h5

check "the commands of the documents: fields from fields"
commands_of "Fields from fields" 60
expect_status 0
expect_out '^tracer: mean absolute error of persistence'; expect_out '^temperature \[K\] +12,288 '; expect_file fields.onnx
"$python" -c "import h5py; assert h5py.File('fields-forecast.h5')['scores'].shape == (60, 32, 32, 2)" || failed "the shape of the forecasts"
rm -rf runs fields.h5 fields.onnx fields-forecast.h5 climate.h5 classes.h5 predictions.h5 predictions.csv forecasts.h5 forecasts.csv shards new.h5 spectra.h5 series.csv spectra.onnx

check "spectra: from HDF5 to predictions in CSV"
made spectra spectra.h5 1500
made spectra new.h5 40 2
both spectra spectra.h5 --x spectra --y line -- --epochs 10 --filters 8,16,16 --learning-rate 0.004 --global-batch 32
learns spectra mean_absolute_error "a < 0.7 * b"
run eval runs/spectra --report
expect_status 0; expect_silence
run predict runs/spectra --data new.h5 --out predictions.h5 --csv predictions.csv
expect_status 0; expect_silence
[ "$(wc -l <predictions.csv)" = 41 ] || failed "$(wc -l <predictions.csv) lines"
run export runs/spectra --format onnx --out spectra.onnx
expect_status 0

check "series: forecasts"
made series series.csv 1500
must_run pack --x series.csv --label-column x --regression --out series
both series series --window 16 --horizon 4 -- --epochs 20 --width 24 --learning-rate 0.01 --global-batch 32
learns series mean_absolute_error "a < 0.8 * b"
run predict runs/series --data series --out forecasts.h5 --csv forecasts.csv
expect_status 0
tail -n 1 forecasts.csv | grep -Eq '(^|,)1500,' || failed "the last forecast is $(tail -n 1 forecasts.csv)"

check "vit: directions of stripes"
made vit stripes.h5 1500
both vit stripes.h5 --x images --y direction -- --epochs 15 --learning-rate 0.003 --warmup-steps 20 --global-batch 32
learns vit accuracy "a > b + 0.3"

check "deepcam: cyclones and rivers, with shifted maps and weights of classes; a linear model of each place alone"
made deepcam climate.h5 200
grep -q '^shares of background, cyclones and rivers: 0.9' made.out || failed "the shares: $(cat made.out)"
printf '%s\n' 'name: places' 'network: [conv: {channels: $outputs, kernel: 1}]' >places.yaml
climate=(train climate.h5 --x climate/data --y climate/labels_0 --loss softmax-cross-entropy --class-weight 1,2,2 --validation 0.2 --seed 1
  --global-batch 16 --no-tensorboard --progress off)
run -n 2 "${climate[@]}" --model places.yaml --optimizer adam --learning-rate 0.01 --epochs 10 --run runs/deepcam.linear
expect_status 0
run -n 2 "${climate[@]}" --model "$examples/deepcam/deepcam.yaml" --width 8 --learning-rate 0.01 --warmup-steps 20 --augment pad=2,crop=48x64 \
  --epochs 15 --run runs/deepcam
expect_status 0; expect_silence
learns deepcam mean_iou "a > b + 0.15"
run export runs/deepcam --format onnx --out deepcam.onnx
expect_status 0

check "advection: fields after a forecast, better than a linear model of each place alone and than no change"
made advection wind.h5 250 24
fields=(train wind.h5 --x state --y tracer,temperature --validation 0.2 --seed 1 --global-batch 16 --no-tensorboard --progress off)
run -n 2 "${fields[@]}" --model places.yaml --optimizer adam --learning-rate 0.01 --normalize per-feature --epochs 20 --run runs/advection.linear
expect_status 0
run -n 2 "${fields[@]}" --model "$examples/advection/advection.yaml" --width 16 --learning-rate 0.005 --epochs 20 --run runs/advection
expect_status 0; expect_silence
learns advection mean_absolute_error "a < 0.8 * b"
run eval runs/advection --report
for name in tracer temperature; do
  least=$(sed -n "s/^$name: .* of persistence \([^ ]*\) .*/\1/p" made.out)
  awk -v name="$name" -v least="$least" '$1 == name { found = 1; exit !($4 < 0.9 * least) } END { if (!found) exit 1 }' out ||
    failed "$name: persistence reaches $least, the network $(grep "^$name" out)"
done

check "cosmoflow: statistics of random fields"
made cosmoflow fields.h5 600 8
grep -q '^Cramer-Rao bound: deviation 0.0' made.out || failed "no bound: $(cat made.out)"
both cosmoflow fields.h5 --x full --y unitPar -- --epochs 10 --levels 2 --filters 8 --learning-rate 0.003 --global-batch 16
learns cosmoflow mean_absolute_error "a < 0.8 * b && a < 0.6"  # a constant: 0.87
