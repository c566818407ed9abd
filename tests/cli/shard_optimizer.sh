#!/usr/bin/env bash
# Ranks that share the update make exactly the steps that they make without sharing.
# label: more
# long: 900
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test
# Several buckets, unequal ranks, short last steps; some buckets are too small to share, some large enough.
options=(--data data --hidden 48,24 --global-batch 90 --bucket-size 600 --report-every 1 --evaluate-every 10)
whole_options=("${options[@]}" --checkpoint-every -1)

# expect_same_run RUN RUN TENSORS [TOLERANCE]: compares their newest checkpoints.
expect_same_run() { expect_same_tensors "$(newest_checkpoint "$1")" "$(newest_checkpoint "$2")" "${@:3}"; }

# rule NAME TENSORS OPTIONS...: runs with and without sharing, and alone.
rule() {
  local name=$1 tensors=$2
  shift 2
  check "$name: alone"
  succeeds train "${whole_options[@]}" "$@" --steps 20 --shard-optimizer --run "runs/$name-alone"
  metric "runs/$name-alone" train loss >curve.alone
  mapfile -t ways < <(some 1 "3 ring" "3 shared-memory" "2 ring")
  for way in "${ways[@]}"; do
    read -r n transport <<<"$way"
    check "$name: the same bits on $n ranks over $transport"
    for shared in no yes; do
      succeeds -n "$n" train "${whole_options[@]}" "$@" --steps 20 --transport "$transport" --shard-optimizer=$shared --run "runs/$name-$n-$transport-$shared"
      metric "runs/$name-$n-$transport-$shared" train loss >"curve.$shared"
      metric "runs/$name-$n-$transport-$shared" validation loss >>"curve.$shared"
    done
    [ "$(wc -l <curve.no)" = 22 ] || failed "20 steps and 2 validations expected"
    expect_same curve.no curve.yes
    expect_same_run "runs/$name-$n-$transport-no" "runs/$name-$n-$transport-yes" "$tensors"
    metric "runs/$name-$n-$transport-yes" train loss >curve.yes
    expect_near curve.alone curve.yes 2e-5 10
  done
}
rule sgd 6 --optimizer sgd --weight-decay 0.01
rule momentum 18 --optimizer momentum --l2 0.01 --average-decay 0.9 --evaluate-average
rule adam 24 --optimizer adam --clip-value 0.01 --average-decay 0.99
rule adamw 18 --optimizer adamw --weight-decay 0.1 --l2 0.001 --accumulate 2

check "clipping by a norm that ranks add up differs by its rounding alone"
for n in 2 3; do
  for shared in no yes; do
    succeeds -n $n train "${whole_options[@]}" --optimizer adam --clip-norm 0.05 --steps 20 --shard-optimizer=$shared --run runs/clip-$n-$shared
    metric runs/clip-$n-$shared train loss >curve.$shared
    metric runs/clip-$n-$shared train gradient_norm >norm.$shared
  done
  expect_near curve.no curve.yes 1e-5 10
  expect_near norm.no norm.yes 1e-4 10
done

check "checkpoints know nothing of it: 10 steps and 10 more in any pair of ways"
parts=("${options[@]}" --optimizer adam --average-decay 0.9 --checkpoint-every 10 --steps 20 --keep 9)
for way in "2 yes" "3 no"; do
  read -r n shared <<<"$way"
  succeeds -n "$n" train "${parts[@]}" --shard-optimizer=$shared --run "runs/from-$n-$shared"
done
for from in 2-yes 3-no; do
  for way in "1 no" "2 yes" "3 yes"; do
    read -r n shared <<<"$way"
    rm -rf runs/onward
    cp -r "runs/from-$from" runs/onward
    rm runs/onward/checkpoints/step-*20.h5
    succeeds -n "$n" train "${parts[@]}" --resume --run runs/onward --shard-optimizer=$shared
    expect_out 'continuing after step 10'
    if [ "${from%-*}" = "$n" ]; then
      expect_same_run "runs/from-$from" runs/onward 24
    else
      expect_same_run "runs/from-$from" runs/onward 24 1e-4
    fi
  done
done

check "a rank that is killed, and fewer that go on"
start -n 3 train "${options[@]}" --optimizer adam --average-decay 0.9 --checkpoint-every 10 --steps 100000000 --shard-optimizer --run runs/killed
wait_for 30 grep -q "^checkpoint .*step-0000000020.h5" out  # the file itself goes soon
kill -9 "$(rank 1)"
finish 30
[ "$status" != 0 ] || failed "exit 0 though a rank was killed"
step=$(($(basename "$(newest_checkpoint runs/killed)" .h5 | sed 's/step-0*//')))
succeeds -n 2 train "${options[@]}" --optimizer adam --average-decay 0.9 --steps $((step + 10)) --resume --shard-optimizer --run runs/killed
expect_out "continuing after step"

check "histograms are of all gradients"
for shared in no yes; do
  succeeds -n 3 train "${options[@]}" --optimizer momentum --steps 4 --histograms-every 2 --shard-optimizer=$shared --run runs/histograms-$shared
done
cat >histograms.py <<'END'
import glob, struct, sys
def histograms(run):
    data, found, at = open(glob.glob(run + "/events*")[0], "rb").read(), [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + length]
        at += length + 16
        if b"gradients/" in event or b"weights/" in event:
            found.append(event[9:])  # without the time
    return found
a, b = map(histograms, sys.argv[1:])
assert len(a) == 2 * 2 * 6, len(a)
assert a == b
END
expect python3 histograms.py runs/histograms-no runs/histograms-yes

check "a share of the memory"
bytes() { sed -n 's/^memory per rank: .* optimiser \([0-9.]* [A-Za-z]*\) .*/\1/p' out; }
wide=(train --data data --hidden 2048 --optimizer adam --bucket-size 1 --dry-run)
succeeds -n 2 "${wide[@]}"
bytes >all
succeeds -n 2 "${wide[@]}" --shard-optimizer
bytes >share
awk 'NR == FNR { all = $1; unit = $2; next } { exit !(unit == $2 && all > 100 && $1 > 0.49 * all && $1 < 0.53 * all) }' all share ||
  failed "of $(cat all) a rank's share is $(cat share)"
succeeds "${wide[@]}" --shard-optimizer
bytes >alone; expect_same all alone

check "numbers that are not finite stop all ranks before the update"
fails 1 'step [0-9]+: .* not finite' -n 3 train "${options[@]}" --optimizer sgd --steps 200 --learning-rate 1e30 --shard-optimizer --run runs/infinite

check "bench step takes it, too"
succeeds -n 3 bench step --hidden 64 --optimizer adam --batch 8 --warmup 2 --repeat 5 --shard-optimizer --json step.json
expect grep -q '"shard_optimizer": *1' step.json
