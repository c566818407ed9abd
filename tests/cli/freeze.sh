#!/usr/bin/env bash
# A part of a network trains alone: frozen parameters stay, cost nothing, and go with every other option of a run.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data/train
pack_small data/test --seed 7
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
with h5py.File("images.h5", "w") as f:
    f["x"], f["y"] = r.integers(0, 256, (48, 8, 8, 3)).astype(np.uint8), r.integers(0, 4, 48).astype(np.int32)
END
options=(--data data --hidden 24,16 --global-batch 60 --learning-rate 0.01 --no-tensorboard --progress off)
must_run train "${options[@]}" --optimizer adam --steps 20 --run runs/first
any=("${options[@]}" --initialize-from runs/first --freeze 'dense_1/*,dense_2/bias')
half=("${any[@]}" --optimizer adam)
tuned=("${half[@]}" --steps 20)

# expect_frozen A B: in two checkpoints the parameters dense_1/* and dense_2/bias have equal bits, the others differ.
expect_frozen() {
  python3 - "$1" "$2" <<'END' 2>differences || failed "$1 and $2: $(tail -n 3 differences)"
import sys
sys.path.insert(0, "TREE/tests/cli".replace("TREE", __import__("os").environ["TREE"]))
from checkpoint_tensors import tensors
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
names = [name for name in b if "parameters/" in name or "average/" in name]
assert len([name for name in names if "parameters/" in name]) == 6, names
for name in names:
    frozen = "dense_1/" in name or name.endswith("dense_2/bias")
    same = a[name.replace("average/", "parameters/")].tobytes() == b[name].tobytes()
    assert same == frozen, (name, same)
for name in b:
    if "moment" in name or "velocity" in name:
        assert "dense_1/" not in name and not name.endswith("dense_2/bias"), name
END
}
export TREE=$tree
first=$(newest_checkpoint runs/first)

check "the plan says what is trained and what it takes"
succeeds train "${tuned[@]}" --dry-run
expect_silence
expect_out '^trained: 469 of 989 parameters; frozen: dense_1/\*, dense_2/bias$'
expect_out 'gradients 2\.2 KiB \+ optimiser 4\.5 KiB '
expect_out '1 bucket per step \(up to 4 MiB\): 2\.2 KiB$'
expect_out '^  989 parameters, 179 kFLOP per step over all ranks$'

check "one rank: the frozen tensors stay as they were, and have no state"
succeeds train "${tuned[@]}" --run runs/one
expect_silence
expect_frozen "$first" "$(newest_checkpoint runs/one)"
succeeds info "$(newest_checkpoint runs/one)"
expect_out '^  frozen         dense_1/\*, dense_2/bias$'

check "three ranks do what one does"
succeeds -n 3 train "${tuned[@]}" --run runs/three
expect_frozen "$first" "$(newest_checkpoint runs/three)"
expect_same_tensors "$(newest_checkpoint runs/one)" "$(newest_checkpoint runs/three)" 12 1e-4

# the_same NAME RANKS OPTION...: equals, bit for bit, the three ranks without these options.
the_same() {
  check "$1: the same bits"
  succeeds -n 3 train "${tuned[@]}" "${@:2}" --run "runs/$1"
  expect_frozen "$first" "$(newest_checkpoint "runs/$1")"
  expect_same_tensors "$(newest_checkpoint runs/three)" "$(newest_checkpoint "runs/$1")" 12
}
the_same sharded --shard-optimizer
the_same sharded-one-writer --shard-optimizer --checkpoint-writers 1
the_same sharded-two-writers --shard-optimizer --checkpoint-writers 2 --bucket-size 200
the_same writers --checkpoint-writers 3

# other NAME OPTION...: the frozen parameters stay.
other() {
  check "$1"
  succeeds -n 3 train "${tuned[@]}" "${@:2}" --run "runs/$1"
  expect_frozen "$first" "$(newest_checkpoint "runs/$1")"
}
other averages --average-decay 0.9 --evaluate-average
other averages-sharded --average-decay 0.9 --evaluate-average --shard-optimizer --checkpoint-writers 2
expect_same_tensors "$(newest_checkpoint runs/averages)" "$(newest_checkpoint runs/averages-sharded)" 12
other l2-clip-decay --l2 0.01 --clip-norm 0.1 --weight-decay 0.1
other accumulated --accumulate 2
other ring --transport ring --bucket-size 200
other wire --transport ring --wire bf16-feedback
for optimizer in sgd nesterov lars lamb; do
  check "$optimizer"
  succeeds -n 2 train "${any[@]}" --optimizer $optimizer --weight-decay 0.1 --steps 20 --run "runs/$optimizer"
  expect_frozen "$first" "$(newest_checkpoint "runs/$optimizer")"
done
other islands --agree local=5 --islands 3

check "the evaluation of a run that has frozen tensors is that of its checkpoint"
succeeds eval runs/averages --average --json a.json
succeeds -n 2 eval runs/averages --average --json b.json
expect_same a.json b.json

check "a run that goes on repeats the uninterrupted one"
for n in 1 3; do
  succeeds -n $n train "${tuned[@]}" --average-decay 0.9 --checkpoint-every 10 --run "runs/whole-$n"
  succeeds -n $n train "${half[@]}" --average-decay 0.9 --checkpoint-every 10 --steps 10 --run "runs/half-$n"
  succeeds -n $n train --resume --run "runs/half-$n" --steps 20
  expect_out 'continuing after step 10'
  expect_same_tensors "$(newest_checkpoint "runs/whole-$n")" "$(newest_checkpoint "runs/half-$n")" 12
done
check "islands go on as they were"
run -n 2 train "${tuned[@]}" --agree local=5 --islands 2 --run runs/islands-whole
run -n 2 train "${half[@]}" --agree local=5 --islands 2 --steps 10 --run runs/islands-half
succeeds -n 2 train --resume --run runs/islands-half --steps 20
expect_same_tensors "$(newest_checkpoint runs/islands-whole)" "$(newest_checkpoint runs/islands-half)" 12
check "what thaws lacks its state"
fails 1 "has no first_moment/dense_2/bias: it belongs to another network, optimiser or set of options" \
  train --resume --run runs/half-1 --steps 30 --freeze 'dense_1/*'

check "--reproducible: the same bits on one and on three ranks"
for n in 1 3; do
  succeeds -n $n train "${tuned[@]}" --reproducible --virtual-ranks 6 --average-decay 0.9 --run "runs/reproducible-$n"
  expect_frozen "$first" "$(newest_checkpoint "runs/reproducible-$n")"
done
expect_same_tensors "$(newest_checkpoint runs/reproducible-1)" "$(newest_checkpoint runs/reproducible-3)" 12

check "a residual network keeps the running statistics of what is frozen"
resnet=(train --model resnet --data images.h5 --global-batch 12 --learning-rate 0.01 --progress off)
must_run "${resnet[@]}" --steps 2 --run runs/images
succeeds -n 2 "${resnet[@]}" --initialize-from runs/images --steps 3 --freeze 'stem*,stage_1/*,stage_3/block_3/*' --run runs/tuned-images
python3 - "$(newest_checkpoint runs/images)" "$(newest_checkpoint runs/tuned-images)" <<'END' 2>differences || failed "$(tail -n 3 differences)"
import os, sys
sys.path.insert(0, os.environ["TREE"] + "/tests/cli")
from checkpoint_tensors import tensors
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
for name in (name for name in a if "parameters/" in name):
    bare = name.split("parameters/")[1]
    frozen = bare.startswith(("stem", "stage_1/", "stage_3/block_3/"))
    same = a[name].tobytes() == b[name].tobytes()
    assert same or not frozen, name
    assert not same or frozen or name.endswith("/scale"), name  # a block that begins as the identity hardly moves them
END

check "a learning rate of their own"
succeeds -n 2 train "${options[@]}" --initialize-from runs/first --steps 10 --learning-rate-scale '*=1,dense_1/*=1e-30' --weight-decay 0.1 --run runs/scaled
expect_out '^learning rate of dense_1/\*: that of the schedule times 1e-30$'
python3 - "$first" "$(newest_checkpoint runs/scaled)" <<'END' 2>differences || failed "$(tail -n 3 differences)"
import os, sys
sys.path.insert(0, os.environ["TREE"] + "/tests/cli")
from checkpoint_tensors import tensors
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
for name in (name for name in a if "parameters/" in name):
    assert (a[name].tobytes() == b[name].tobytes()) == ("dense_1/" in name), name
END

check "the options come back from the run's configuration"
expect grep -qx 'freeze = dense_1/\*,dense_2/bias' runs/one/config.ini
expect grep -qx 'learning-rate-scale = \*=1,dense_1/\*=1e-30' runs/scaled/config.ini

check "steps of a part are timed"
succeeds bench step --hidden 64 --freeze 'dense_1/*' --repeat 2

check "patterns that mean nothing"
fails 2 '--freeze: no tensor is called dens_1/\*; there are dense_1/\*, dense_2/\*, dense_3/\*, dense_1/bias and others' \
  -n 2 train "${options[@]}" --freeze 'dens_1/*' --run runs/no
fails 2 '--learning-rate-scale: no tensor is called layer; there are ' train "${options[@]}" --learning-rate-scale 'layer=2' --run runs/no
fails 2 '--freeze: all parameters are frozen: nothing is left to train' train "${options[@]}" --freeze 'dense*' --run runs/no
fails 2 '--learning-rate-scale: dense_1/\*=0 has the factor 0: --freeze dense_1/\* says that' \
  train "${options[@]}" --learning-rate-scale 'dense_1/*=0' --run runs/no
fails 2 '--learning-rate-scale: dense_1/\* names only tensors that are frozen or no weights' \
  train "${options[@]}" --freeze 'dense_1/*' --learning-rate-scale 'dense_1/*=2' --run runs/no
fails 2 '--freeze: stem/norm/scale is frozen and stem/norm/shift is not: a batch normalisation is frozen as a whole' \
  "${resnet[@]}" --freeze 'stem/norm/scale' --steps 1 --run runs/no
expect_no_file runs/no
