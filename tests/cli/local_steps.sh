#!/usr/bin/env bash
# --agree local: islands of ranks train by themselves for a round, then average.
# label: more
# long: 900
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600

base="--data data --hidden 32 --global-batch 60 --seed 3"
# loss RUN: prints the loss of the last validation.
loss() { metric "$1" validation loss | tail -n 1 | cut -d' ' -f2; }
# near A B TOLERANCE: compares with a relative tolerance.
near() { python3 -c "import sys; a, b, t = map(float, sys.argv[1:]); sys.exit(abs(a - b) > t * abs(b))" "$@" || failed "$1 is not near $2"; }

# islands_apart CHECKPOINT: tells if some island's weights differ from the common ones.
islands_apart() {
  python3 - "$1" <<'END'
import sys, h5py
file, apart = h5py.File(sys.argv[1]), []
weights = file["parameters"]
for name in file:
    if name.startswith("parameters_of_island_"):
        weights.visititems(lambda key, item: apart.append((item[()] != file[name][key][()]).any()) if hasattr(item, "shape") else None)
sys.exit(0 if apart and any(apart) else 1 if apart else 2)
END
}

check "rounds of one step, plain SGD and the mean are the synchronous curve, to rounding"
succeeds -n 4 train $base --steps 60 --optimizer sgd --learning-rate 0.1 --run runs/all
for islands in $(some 2 3 1 2 4); do
  succeeds -n 4 train $base --steps 60 --optimizer sgd --learning-rate 0.1 --agree local=1 --islands $islands \
    --outer-optimizer average --run runs/one-$islands
  expect_out "agreement: $islands island"
  near "$(loss runs/one-$islands)" "$(loss runs/all)" 1e-4
done

check "rounds of several steps differ from it, and learn"
succeeds -n 4 train $base --steps 60 --optimizer sgd --learning-rate 0.1 --agree local=8 --islands 2 \
  --outer-optimizer average --run runs/eight
! python3 -c "import sys; sys.exit(abs(float(sys.argv[1]) / float(sys.argv[2]) - 1) > 1e-5)" "$(loss runs/eight)" "$(loss runs/all)" ||
  failed "nothing to show: the loss is the synchronous one"
near "$(loss runs/eight)" "$(loss runs/all)" 0.2

slowmo="slowmo --outer-rate 1 --outer-momentum 0.6"
mapfile -t ways < <(some 3 "auto nesterov" "ring $slowmo" "two-level average" "ring nesterov" "two-level nesterov" "auto $slowmo" "two-level $slowmo" \
  "auto average" "ring average")
for way in "${ways[@]}"; do
  read -r transport outer <<<"$way"
  local_steps="$base --optimizer adam --learning-rate 0.003 --agree local=7 --islands 2 --outer-optimizer $outer --transport $transport"
  check "a resumed run has the bytes of one that was not stopped: $outer, $transport"
  rm -rf runs/here
  succeeds -n 3 train $local_steps --steps 70 --checkpoint-every 35 --run runs/here
  resumes_with_its_bytes 3 35 70
done

check "slowmo goes on after the end of a schedule without a kick"
succeeds -n 2 train $base --optimizer sgd --learning-rate 0.1 --schedule cosine --steps 64 --agree local=32 --islands 2 \
  --outer-optimizer slowmo --outer-rate 1 --outer-momentum 0.8 --run runs/cosine
before=$(loss runs/cosine)
succeeds -n 2 train --resume --run runs/cosine --steps 128
python3 -c "import sys; sys.exit(not float(sys.argv[1]) < 2 * float(sys.argv[2]))" "$(loss runs/cosine)" "$before" ||
  failed "the loss goes from $before to $(loss runs/cosine)"

for streams in "--islands 2 --fragments 7" "--islands 3 --transport ring --fragments 3 --delay 1" \
  "--islands 3 --transport ring --delay 6 --wire int8-feedback"; do
  check "fragments that take turns: a resumed run has the bytes of one that was not stopped: $streams"
  rm -rf runs/here
  # shellcheck disable=SC2086  # words
  succeeds -n 3 train $base --optimizer adam --learning-rate 0.003 --clip-norm 2 --accumulate 2 --agree local=7 $streams --steps 68 \
    --checkpoint-every 35 --run runs/here
  expect_out 'then agree \(nesterov, rate 0.7, momentum 0.9\)(, on [37] fragments in turns)?(, while they make the next [16] steps?)?;'
  near "$(loss runs/here)" 0.005 1  # the run has learnt
  islands_apart runs/here/checkpoints/step-0000000035.h5 || failed "the islands have the same weights between rounds"
  ! islands_apart runs/here/checkpoints/step-0000000068.h5 || failed "the islands have other weights at the end"
  succeeds info runs/here/checkpoints/step-0000000068.h5
  expect_out '^  agreement +local=7, islands [23], (fragments|delay)'
  resumes_with_its_bytes 3 35 68
done

check "one fragment without delay is a round as it always was"
# shellcheck disable=SC2086  # words
succeeds -n 3 train $base --optimizer adam --learning-rate 0.003 --agree local=7 --islands 3 --fragments 1 --delay 0 --steps 35 --run runs/plain
expect_no_out 'in turns'
! python3 -c 'import sys, h5py; sys.exit("parameters_of_island_0" not in h5py.File(sys.argv[1]))' "$(newest_checkpoint runs/plain)" ||
  failed "weights of islands where they are the anchor"

check "the ranks of an island share the optimiser: the same weights and moments, and the same bytes through a resume"
mapfile -t shares < <(some 1 "4 --islands 2 --transport ring" "5 --islands 3" "4 --islands 2 --fragments 3 --delay 1")
for share in "${shares[@]}"; do
  read -r n rest <<<"$share"
  # shellcheck disable=SC2086  # words
  for sharing in no yes; do
    succeeds -n $n train $base --optimizer adam --learning-rate 0.003 --agree local=7 $rest --shard-optimizer=$sharing --steps 42 \
      --checkpoint-every 21 --run runs/share-$sharing --force
  done
  expect_out 'reduce-scatter and all-gather'
  for step in 21 42; do
    expect_same_tensors runs/share-{no,yes}/checkpoints/step-00000000$step.h5 24
  done
  cp runs/share-yes/checkpoints/step-0000000042.h5 whole.h5
  rm runs/share-yes/checkpoints/step-0000000042.h5
  [[ $rest = *ring ]] && sharing=no || sharing=yes
  succeeds -n $n train --resume --run runs/share-yes --shard-optimizer=$sharing
  expect_out 'continuing after step 21'
  expect_same_tensors whole.h5 runs/share-yes/checkpoints/step-0000000042.h5 24
  python3 -c 'import h5py; assert any("_of_island_1" in name and not name.startswith("parameters") for name in h5py.File("whole.h5"))' ||
    failed "it lacks the moments of an island"
done

check "all ranks agree in every step up to --agree-after: the synchronous bits until there, others after"
adam="$base --optimizer adam --learning-rate 0.003"
succeeds -n 3 train $adam --steps 60 --checkpoint-every 30 --run runs/synchronous
after="$adam --agree local=7 --islands 2 --agree-after 30"
succeeds -n 3 train $after --steps 65 --checkpoint-every 30 --run runs/after
expect_out 'agreement: all ranks in every step up to step 30, then 2 islands make 7 steps'
expect_same <(metric runs/after training loss | head -n 1) <(metric runs/synchronous training loss | head -n 1)
python3 - runs/after/checkpoints/step-0000000030.h5 runs/synchronous/checkpoints/step-0000000030.h5 <<'END' || failed "the weights of step 30 differ"
import sys, h5py
a, b = (h5py.File(name, "r") for name in sys.argv[1:])
same = []
a["parameters"].visititems(lambda name, item: same.append((item[()] == b["parameters"][name][()]).all()) if hasattr(item, "shape") else None)
sys.exit(0 if same and all(same) else 1)
END
expect_file runs/after/checkpoints/step-0000000065.h5
[ -s runs/after/checkpoints/step-0000000060.h5 ] && failed "a checkpoint in the middle of a round"

for step in 20 44; do
  check "a run with --agree-after resumes with its bytes from step $step"
  rm -rf runs/whole runs/here
  succeeds -n 3 train $after --steps 65 --checkpoint-every $step --run runs/here
  resumes_with_its_bytes 3 "$step" 65
done

check "islands that have begun come together where --agree-after says so, and say that"
succeeds -n 3 train $adam --agree local=7 --islands 2 --steps 21 --checkpoint-every 7 --run runs/together
succeeds -n 3 train $after --steps 44 --resume --run runs/together
expect_err "the first island's"

check "checkpoints, validations and stops wait for the end of a round"
start -n 2 train $base --steps 100000000 --agree local=10 --islands 2 --checkpoint-every 25 --evaluate-every 15 \
  --report-every 5 --progress off --run runs/stopped
wait_for 30 grep -q '^ *step ' out
kill -USR1 "$(rank 1)"
finish 30
expect_status 75; expect_silence
expect_out 'validation at step 20:'; expect_out 'checkpoint .*step-0000000030.h5'; expect_no_out 'step-0000000025.h5'
expect_out 'stopped at step [0-9]*0 on request'
newest=$(newest_checkpoint runs/stopped) && newest=${newest##*step-} && newest=$((10#${newest%.h5}))
succeeds -n 2 train --resume --run runs/stopped --steps $((newest + 20)) --report-every 5
expect_out "done at step $((newest + 20)) "

check "a run that agreed in every step goes on with local ones, and back"
succeeds -n 2 train $base --steps 30 --optimizer momentum --run runs/turn
succeeds -n 2 train $base --steps 60 --optimizer momentum --agree local=10 --islands 2 --resume --run runs/turn
expect_out 'continuing after step 30'
succeeds -n 2 train $base --steps 70 --optimizer momentum --agree all --resume --run runs/turn
expect_err "the first island's"

check "another number of islands is refused"
rm -rf runs/turn
succeeds -n 4 train $base --steps 30 --agree local=10 --islands 4 --run runs/turn
fails 2 'of 4 islands, not 2' -n 4 train $base --steps 60 --agree local=10 --islands 2 --resume --run runs/turn

check "an island that fails names its ranks as the job counts them"
run -n 4 train --data data --optimizer sgd --learning-rate 1e30 --global-batch 60 --steps 50 --agree local=10 --islands 2 --run runs/spoilt
expect_status 1; expect_err 'is not finite'

check "a rank that dies ends the job, whatever island it is of"
start -n 4 train $base --steps 100000000 --agree local=50 --islands 2 --progress off --report-every 50 --run runs/dies
wait_for 30 grep -q '^ *step ' out
pid=$(rank 3)
kill -9 "$pid"
finish 40
expect_err "rank 3 \(host .*, pid $pid\)|signal 9"

check "contradictions are one sentence before anything starts"  # those of the words alone: tests/app/options
fails 2 '--islands 3 of 2 ranks: every island needs a rank' -n 2 train $base --agree local=5 --islands 3 --run runs/refused
refused() { fails 2 "$1" train $base --run runs/refused "${@:2}"; }
refused '--agree quorum does not go with --agree-after: that is for --agree local' --agree quorum=1 --servers shared --agree-after 10
refused '--agree local does not go with --shard-optimizer and --agree-after' --agree local=5 --agree-after 5 --shard-optimizer --optimizer adam
refused '--agree local does not go with --reproducible' --agree local=5 --reproducible
refused '--agree local does not go with --average-decay' --agree local=5 --average-decay 0.9
refused '--agree local does not go with --checkpoint-writers' --agree local=5 --checkpoint-writers 2
refused '--fragments 6 of --agree local=5: each needs a step of its own' --agree local=5 --fragments 6
refused '--delay 2 of --agree local=5 --fragments 2: it must be below 2, the steps of a turn' --agree local=5 --fragments 2 --delay 2
refused '--agree quorum does not go with --fragments: that is for --agree local' --agree quorum=1 --servers shared --fragments 2
refused '--agree async does not go with --delay: that is for --agree local' --agree async --servers shared --delay 1
check "messages of an island do not travel beside those of a fragment"
fails 1 'the ranks of an island exchange gradients as messages' \
  -n 4 train $base --agree local=5 --islands 2 --transport ring --delay 2 --run runs/refused
