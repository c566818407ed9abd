#!/usr/bin/env bash
# checks.sh NAME [TEST]: one check of tests/gpu/run, which sets the variables; with TEST only this test. Exit: 0 passed,
# 77 not run, else failed; the last line of output is the finding.
set -u
: "${work:?tests/gpu/run calls this}" "${here:?}" "${python?}" "${data:?}" "${subject:?}" "${quick?}" "${LAUNCHER:?}"
scratch=$work/$1${2:+.$$}.files
mkdir -p "$scratch" && cd "$scratch" || exit 1
export TMPDIR=$scratch
examples=$here/../../app/examples
# launch N PROGRAM ARGS...
launch() { eval "$LAUNCHER \"\$@\""; }
failed() { echo "$*"; exit 1; }
not_run() { echo "$*"; exit 77; }
needs_gpu() { [ "$subject" = gpu ] || not_run "needs a GPU"; }
# On the CPU every precision is fp32, and nothing is shared or recorded.
on() { if [ "$subject" = gpu ]; then echo "--device gpu --precision $1"; else echo "--device cpu"; fi; }
shared() { [ "$subject" != gpu ] || echo "--share-gpu"; }
plain() { [ "$subject" != gpu ] || echo "--no-graph"; }

# The data: a part of Fashion-MNIST, else a generated problem of the same shape.
if [ ! -d "$data/train" ]; then
  data=$work/data
  if [ ! -d "$data/test" ]; then
    launch 1 lockstep pack --format synthetic --samples 6000 --out "$data/train" >/dev/null || failed "cannot pack"
    launch 1 lockstep pack --format synthetic --samples 1000 --first 6000 --out "$data/test" >/dev/null || failed "cannot pack"
  fi
fi
# train RANKS RUN OPTIONS...: $steps steps, each reported.
steps=60 rate=0.001
train() {
  local ranks=$1 run=$2
  shift 2
  launch "$ranks" lockstep train --data "$data" --hidden 128,64 --optimizer adam --learning-rate $rate --global-batch 120 \
    --steps $steps --report-every 1 --evaluate-every -1 --checkpoint-every -1 --no-tensorboard --progress off --run "$run" "$@" \
    >"$run.out" 2>&1 || { cat "$run.out"; failed "training $run failed"; }
}
# numbers RUN: "step loss gradient_norm" of each step, in full precision.
numbers() { sed -n 's/^{"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),.*"gradient_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }
# accuracy RUN: accuracy of the last validation.
accuracy() { sed -n 's/^{"kind":"validation",.*"accuracy":\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
# close RUN RUN TOLERANCE: the same steps, losses within this relative distance in half of them, and within a hundred
# times as much in all. Sums in another order flip the ReLU of a unit near zero, and from there on the losses drift.
close() {
  paste -d ' ' <(numbers "$1") <(numbers "$2") | awk '
    $1 != $4 || NF != 6 || /nan|inf|null/ || $5 == 0 { print "broken"; next }
    { d = ($2 - $5) / $5; print d < 0 ? -d : d }' | LC_ALL=C sort -g | awk -v tolerance="$3" '
    { distance[NR] = $1; if ($1 == "broken") broken = 1 }
    END {
      half = distance[int((NR + 1) / 2)]; worst = distance[NR]
      printf "%d steps, losses within %.1e of each other, half of them within %.1e (limit %s)\n", NR, worst, half, tolerance
      exit !(NR >= 60 && !broken && half <= tolerance + 0 && worst <= 100 * tolerance)
    }' || failed "$1 and $2 differ: $(paste -d ' ' <(numbers "$1") <(numbers "$2") | tail -n 1)"
}
# same RUN RUN: every loss and gradient norm, and the evaluation of the last checkpoint, are equal to the last bit.
same() {
  [ "$(numbers "$1" | wc -l)" -ge 60 ] || failed "$1 has too few steps"
  cmp <(numbers "$1") <(numbers "$2") || failed "$1 and $2 differ: $(diff <(numbers "$1") <(numbers "$2") | sed -n 2p)"
  [ "$(evaluation "$1" fp32)" = "$(evaluation "$2" fp32)" ] || failed "the evaluations of $1 and $2 differ"
}
# evaluation RUN PRECISION|cpu: "loss accuracy" in full precision.
evaluation() {
  local where
  if [ "$2" = cpu ]; then where="--device cpu"; else where=$(on "$2"); fi
  # shellcheck disable=SC2086  # the options are words
  launch 1 lockstep eval "$1" $where --json "$1.eval" >/dev/null || failed "eval $1 failed"
  sed -n 's/.*"loss":\([^,]*\),"accuracy":\([^,]*\),.*/\1 \2/p' "$1.eval"
}
# refused PATTERN COMMAND...: ends with exit code 1 and a message that contains the pattern.
refused() {
  local pattern=$1 code
  shift
  "$@" >refused.out 2>&1
  code=$?
  [ "$code" = 1 ] || { cat refused.out; failed "exit code $code instead of 1"; }
  grep -E -m 1 -- "$pattern" refused.out || { cat refused.out; failed "the message lacks /$pattern/"; }
}

# filter_of NAME: the gpu_tests of a phase; `rest` has all that are in no other, tf32 among them.
families="linear=Operations sequences=Sequences images=Images update=Update queue=Queue training=Training"
filter_of() {
  local precision=${1##*.} family others="*Gpt2Size*"
  case $1 in
    gpt2_size) echo "*Gpt2Size*"; return ;;
  esac
  for family in $families; do
    [ "${family%=*}" != "${1%.*}" ] || { echo "Gpu/${family#*=}.*/$precision"; return; }
    others+=":Gpu/${family#*=}.*/bf16:Gpu/${family#*=}.*/fp32"
  done
  echo "-$others"
}

# make_documents: packs a text of short documents; token 0 begins each.
make_documents() {
  "$python" -B - <<'END' || failed "no text"
import numpy
random = numpy.random.default_rng(3)
words = ["".join(random.choice(list("abcdefgh"), random.integers(1, 4))) for _ in range(4000)]
open("text.txt", "w").write("".join("#" + (word * 9)[:random.integers(1, 30)] for word in words))
END
  launch 1 lockstep pack --format text --tokenizer char --x text.txt --out text >pack.out 2>&1 || { cat pack.out; failed "no pack"; }
}
# make_lengths: series of 0 to 37 steps whose padding is far from all other numbers, and a network whose layers read lengths.
make_lengths() {
  "$python" -B - <<'END' || failed "no series"
import h5py, numpy
random = numpy.random.default_rng(5)
count, steps = 400, 37
length = random.integers(0, steps + 1, count)
series = random.normal(size=(count, steps, 6)).astype("f4")
inside = numpy.arange(steps) < length[:, None]
y = numpy.stack([(series[..., 0] * inside).sum(1) / 6, series[numpy.arange(count), numpy.maximum(length, 1) - 1, 1]], 1)
with h5py.File("lengths.h5", "w") as file:
    file["series"] = numpy.where(inside[..., None], series, 1000).astype("f4")
    file["length"], file["y"] = length.astype("i4"), y.astype("f4")
END
  cat >lengths.yaml <<'END'
name: lengths
inputs: {series: [any, any], length: [any]}
training: {optimizer: sgd, learning-rate: 0.05}
network:
  - lstm: {from: series, units: 40, direction: both, lengths: length, name: first}
  - dense: {units: 192, name: joint}
  - attention: {heads: 2, causal: no, lengths: length, name: seen}
  - mean: {axis: 0, from: seen, lengths: length, name: mean}
  - global-max: {from: seen, lengths: length, name: greatest}
  - gru: {from: seen, units: 24, direction: both, steps: last, lengths: length, name: second}
  - lstm: {from: seen, units: 16, steps: last, lengths: length, name: third}
  - concatenate: {from: [mean, greatest, second, third]}
  - dense: {units: $outputs, name: head}
END
}

# alive PID: it runs, and is no zombie that nobody has waited for.
alive() { grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null; }

# shellcheck disable=SC2046,SC2086  # what on(), shared() and plain() print are words
case $1 in
  *.bf16|*.fp32|gpt2_size|rest)
    launch 1 gpu_tests --backend "${subject/gpu/cuda}" $quick --gtest_filter="$(filter_of "$1")" --gtest_brief=1 ;;
  filter) filter_of "$2" ;;
  again)  # kernel by kernel, so that each error is reported at its source
    CUDA_LAUNCH_BLOCKING=1 launch 1 gpu_tests $quick --gtest_filter="$2" ;;
  curve)
    train 1 gpu $(on fp32)
    train 1 cpu --device cpu
    close gpu cpu 1e-4 ;;
  accuracy)
    steps=300
    train 1 fp32 $(on fp32)
    for precision in tf32 bf16; do
      train 1 $precision $(on $precision)
      awk -v a="$(accuracy $precision)" -v b="$(accuracy fp32)" 'BEGIN { exit !(a > 0.5 && a > b - 0.02) }' ||
        failed "$precision reaches $(accuracy $precision), fp32 $(accuracy fp32)"
    done
    echo "fp32 $(accuracy fp32), tf32 $(accuracy tf32), bf16 $(accuracy bf16)" ;;
  graphs)
    for precision in fp32 bf16; do
      train 1 $precision $(on $precision)
      train 1 $precision-plain $(on $precision) $(plain)
      same $precision $precision-plain
    done
    echo "60 steps recorded and plain: the same bits" ;;
  repeats)
    for precision in fp32 bf16; do
      train 1 $precision $(on $precision)
      train 1 $precision-again $(on $precision)
      same $precision $precision-again
    done
    echo "60 steps twice: the same bits" ;;
  two_ranks|two_ranks_plain|three_ranks)  # plain: if two_ranks fails and this passes, recording is at fault
    if [ "$1" = three_ranks ]; then ranks=3; else ranks=2; fi
    if [ "$1" = two_ranks_plain ]; then recorded=$(plain); else recorded=""; fi
    train $ranks ranks $(on fp32) $(shared) $recorded
    train 1 one $(on fp32) --accumulate $ranks
    close ranks one 1e-4 ;;
  sharded|wire)
    if [ "$1" = sharded ]; then option=--shard-optimizer limit=1e-4; else option="--wire bf16" limit=1e-2; fi
    train 2 ranks $(on fp32) $(shared) $option
    train 1 one $(on fp32) --accumulate 2
    close ranks one $limit ;;
  reproducible)
    train 1 one $(on bf16) --reproducible --virtual-ranks 6
    train 2 two $(on bf16) $(shared) --reproducible --virtual-ranks 6
    same one two
    echo "60 steps on one rank and on two: the same bits" ;;
  one_rank_per_gpu)
    needs_gpu
    ranks=$(launch 1 gpu_tests --survey | grep -c '^device ')
    [ "$ranks" -gt 1 ] || not_run "one GPU"
    train "$ranks" ranks $(on fp32)
    train 1 one $(on fp32) --accumulate "$ranks"
    close ranks one 1e-4 ;;
  example.*|masks.*)  # a network of app/examples, or one with documents or lengths, from its data to its loss
    "$python" -c 'import h5py, numpy' 2>/dev/null || not_run "no python3 here has h5py"
    name=${1#*.}
    make() { "$python" -B "$examples/$name/make.py" "$@" >make.out 2>&1 || { cat make.out; failed "make.py failed"; }; }
    options="--model $examples/$name/$name.yaml"
    case $1 in
      *.cosmoflow) make data.h5 200 16; options+=" data.h5 --x full --y unitPar" ;;
      *.mixed) make data.h5 1000; options+=" data.h5 --x image,table --y label" ;;
      *.series) make data.csv 1500; options+=" data --window 24 --horizon 4"
        launch 1 lockstep pack --x data.csv --label-column x --regression --out data >pack.out 2>&1 || { cat pack.out; failed "no pack"; } ;;
      *.spectra) make data.h5 1000; options+=" data.h5 --x spectra --y line" ;;
      *.unet) make --extents 12,12,12 --samples 100 --out data.h5
        options+=" data.h5 --x image --y mask --ignore-label 255 --width 8 --levels 2" ;;
      *.vit) make data.h5 1000; options+=" data.h5 --x images --y direction" ;;
      masks.gpt|masks.lstm) make_documents
        options="text --document-token 0 --model gpt --layers 1 --width 128 --heads 2 --context 40"
        [ "$name" = gpt ] || options="text --document-token 0 --model lstm --layers 2 --hidden 48 --unroll 35 --optimizer adam --learning-rate 0.01" ;;
      masks.lengths) make_lengths; options="lengths.h5 --model lengths.yaml --x series,length --y y --normalize none --normalize-targets none" ;;
    esac
    # example RUN OPTIONS...
    example() {
      launch 1 lockstep train $options --global-batch 16 --steps 60 --report-every 1 --evaluate-every -1 \
        --checkpoint-every -1 --no-tensorboard --progress off --run "$@" >"$1.out" 2>&1 ||
        { cat "$1.out"; failed "training $1 failed"; }
    }
    example cpu --device cpu
    example gpu $(on fp32)
    close gpu cpu 1e-4
    example plain $(on fp32) $(plain)
    cmp <(numbers gpu) <(numbers plain) || failed "recorded and plain steps differ"
    example bf16 $(on bf16)
    close bf16 cpu 3e-2 ;;
  resume_on_cpu|resume_on_gpu)
    first_on=$(on fp32) then_on="--device cpu"
    [ "$1" = resume_on_cpu ] || { first_on="--device cpu" then_on=$(on fp32); }
    train 1 whole $first_on
    steps=30
    train 1 parts $first_on
    launch 1 lockstep train --resume --run parts --steps 60 $then_on >parts.out 2>&1 || { cat parts.out; failed "no resume"; }
    close parts whole 1e-4 ;;
  evaluation)
    train 1 run $(on fp32)
    there=$(evaluation run fp32) on_cpu=$(evaluation run cpu)
    echo "$there, on the CPU $on_cpu"
    awk -v a="$there" -v b="$on_cpu" 'BEGIN {
      split(a, x); split(b, y); d = x[1] / y[1] - 1; e = x[2] - y[2]
      exit !(d < 1e-5 && d > -1e-5 && e < 0.0021 && e > -0.0021) }' || failed "not the same: $there, on the CPU $on_cpu" ;;
  no_gpu)
    export CUDA_VISIBLE_DEVICES=
    refused 'CUDA_VISIBLE_DEVICES|driver|without CUDA' launch 1 lockstep train --data "$data" --run none --device gpu ;;
  automatic)
    export CUDA_VISIBLE_DEVICES=
    train 1 run --device auto
    grep -m 1 -i 'cpu' run.out || failed "does not say that it takes the CPU" ;;
  shared_without_asking)
    needs_gpu
    export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
    refused 'rank.*0.*1.* would share .*--share-gpu' launch 2 lockstep train --data "$data" --run none --device gpu ;;
  too_large)
    needs_gpu
    refused 'out of GPU memory before the start.* --batch [0-9,]+ would fit' \
      launch 1 lockstep bench step --features 1 --outputs 2 --hidden 65536 --batch 8000000 --device gpu ;;
  ring)
    needs_gpu
    unset NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_ALGO  # lockstep reads NCCL's log itself
    train 2 run $(on fp32) $(shared) --ring
    grep -m 1 'ring 0 -> 1 -> 0.* algorithm Ring ' run.out || { cat run.out; failed "the log does not show the ring"; }
    ! grep 'NOT the ring' run.out || failed "another algorithm runs" ;;
  killed_rank)
    launch 2 lockstep train --data "$data" --hidden 64 --global-batch 120 --steps 100000000 --report-every 50 \
      --progress off --run run $(on fp32) $(shared) >run.out 2>&1 &
    for _ in $(seq 200); do grep -q '^ *step ' run.out 2>/dev/null && break; sleep 0.1; done
    ranks=$(for process in /proc/[0-9]*; do  # pgrep is not available everywhere
      [ "$(basename "$(readlink "$process/exe" 2>/dev/null)")" = lockstep ] && [ "$process/cwd" -ef "$scratch" ] && echo "${process#/proc/}"
    done | sort -n)
    [ "$(wc -w <<<"$ranks")" = 2 ] || { cat run.out; failed "ranks: ${ranks:-none}"; }
    kill -9 "$(tail -n 1 <<<"$ranks")"
    began=$SECONDS
    wait $!
    code=$?
    [ $code != 0 ] || failed "exit 0 though a rank was killed"
    [ $((SECONDS - began)) -le 10 ] || failed "$((SECONDS - began)) s until the end"
    for pid in $ranks; do
      for _ in $(seq 50); do alive "$pid" || break; sleep 0.1; done
      ! alive "$pid" || failed "rank $pid lives on"
    done
    echo "over $((SECONDS - began)) s after the kill, exit $code" ;;
  memcheck|racecheck)
    needs_gpu
    command -v compute-sanitizer >/dev/null || not_run "compute-sanitizer is not installed"
    # Kernels of libraries are excluded. Ours have the namespace in their mangled names.
    ours="--kernel-name kernel_substring=lockstep"
    compute-sanitizer --help 2>&1 | grep -q -e '--kernel-name' || ours="--filter kernel_substring=lockstep"
    [ "$1" != memcheck ] || ours=""  # an invalid access, even of a library, breaks everything after it
    # racecheck does not survive cuBLASLt's kernels for bf16 on Hopper, even excluded ones. initcheck misses what they write.
    if [ "$1" = memcheck ]; then filter=-*Large*:*Training*; else filter=*/fp32:-*Large*:*Training*; fi
    filter=${2:-$filter} enough=$((seconds - 8))
    eval "timeout --foreground $enough compute-sanitizer --tool $1 $ours --error-exitcode 9 --target-processes all $LAUNCHER \
      1 gpu_tests --quick --gtest_filter='$filter' --gtest_brief=1" >sanitizer.out 2>&1
    code=$?
    cat sanitizer.out
    ! grep -q 'Device not supported' sanitizer.out || not_run "compute-sanitizer does not support this device here"
    [ $code != 124 ] || ! grep -q 'ERROR SUMMARY: [1-9]\|========= Error:\|========= Invalid' sanitizer.out || failed "errors"
    [ $code != 124 ] || not_run "not done in $enough s; no error until then"
    exit $code ;;
  comparison_fires)
    # The comparisons above must detect a real difference.
    train 1 a $(on fp32)
    rate=0.00101
    train 1 b $(on fp32)
    (close a b 1e-4) && failed "two learning rates count as one curve"
    (same a b) && failed "two learning rates count as the same bits"
    (refused 'anything' true) && failed "success counts as refusal"
    echo "each comparison fails where it should" ;;
  *) failed "no such check: $1" ;;
esac
