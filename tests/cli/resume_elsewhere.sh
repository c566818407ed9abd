#!/usr/bin/env bash
# A new run goes on from another run's checkpoint.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data/train
pack_small data/test --seed 7
must_run train --data data --optimizer sgd --hidden 16,8 --global-batch 30 --steps 40 --checkpoint-every 10 --keep 9 --evaluate-every 10 --learning-rate 0.1 \
  --progress off --no-tensorboard --run runs/a
at_20=runs/a/checkpoints/step-0000000020.h5

check "network, data and options are the checkpoint's"
succeeds -n 2 train --resume $at_20 --run runs/same
expect_out "^a run from $at_20 \(step 20\): its data, network and options, but for what is given here$"
expect_out '^continuing after step 20 \(epoch [0-9]+, sample [0-9]+\)$'
expect_out '^done at step 40'
expect grep -q '^hidden = 16,8$' runs/same/config.ini
expect grep -q "^run = .*runs/same$" runs/same/config.ini

check "what is given wins, also where it contradicts"
succeeds train --resume $at_20 --run runs/other --learning-rate 0.05 --batch 10 --epochs 2
expect_out 'options that differ now: .*epochs = 2, global-batch = 10, learning-rate = 0\.05'

check "where the data have moved, the validation data are those beside them"
mv data moved
run train --resume $at_20 --run runs/moved --data moved
mv moved data
expect_status 0; expect_out '^validation at step 40'
expect grep -q '^validation = .*/moved/test$' runs/moved/config.ini

check "from another folder, with paths that are relative there"
mkdir elsewhere
cd elsewhere || exit 1
succeeds train --resume ../$at_20 --run here
expect_file here/checkpoints/step-0000000040.h5
mv out err ..
cd .. || exit 1

check "a run travels with its data: to another folder, under another mount"
mkdir -p there/runs
cp -r runs/a there/runs/
mv data there/
succeeds eval there/runs/a
expect_out "data/test is not there: .*/there/data/test has moved with the run, and is taken"
succeeds -n 2 train --resume --run there/runs/a --steps 41 --progress off
expect_out "^continuing after step 40"; expect_out "^done at step 41"
mv there/data data
succeeds eval there/runs/a --data data/train
expect_no_out "has moved"

check "it needs a folder of its own"
fails 2 '--resume FILE needs --run' train --resume $at_20
check "and a file that can be read"
fails 2 'runs/none\.h5' -n 2 train --resume runs/none.h5 --run runs/never; expect_no_file runs/never
head -c 3000 $at_20 >short.h5
fails 2 'short\.h5' train --resume short.h5 --run runs/never; expect_no_file runs/never

check "another optimiser is refused unless its state may begin anew"
fails 1 'trained with --optimizer sgd, not adam: .*--resume FILE --new-optimizer-state' \
  -n 2 train --resume $at_20 --run runs/adam --optimizer adam --learning-rate 0.001
fails 2 '--new-optimizer-state needs --resume FILE' train --run runs/a --resume --optimizer adam --new-optimizer-state

check "Adam's first update is of the size of the learning rate, wherever the run is"
succeeds -n 2 train --resume $at_20 --run runs/adam --optimizer adam --learning-rate 0.001 --new-optimizer-state --steps 21
cat >moved.py <<'END'
import h5py, numpy as np, sys
a, b = (h5py.File(f, "r")["parameters"] for f in sys.argv[1:])
moved = []
def compare(name, item):
    if isinstance(item, h5py.Dataset):
        moved.append(np.abs(item[...].astype(float) - b[name][...]).ravel())
a.visititems(compare)
moved = np.concatenate(moved)
assert moved.max() < 0.00101 and np.median(moved) > 0.0009, (moved.max(), np.median(moved))
END
expect python3 moved.py $at_20 runs/adam/checkpoints/step-0000000021.h5

check "and 20 and 20 more steps of it are 40, bit by bit"
new=(train --resume $at_20 --optimizer adam --learning-rate 0.001 --average-decay 0.9 --new-optimizer-state --keep 9)
must_run "${new[@]}" --steps 60 --run runs/whole
must_run "${new[@]}" --steps 40 --run runs/parts
succeeds train --run runs/parts --resume --steps 60
expect_same_tensors runs/whole/checkpoints/step-0000000060.h5 runs/parts/checkpoints/step-0000000060.h5 24

check "a file that has left its place is named, with what brings it back"
python3 -c '
import h5py, numpy as np
x = np.random.default_rng(1).normal(size=(200, 4)).astype("f4")
with h5py.File("rows.h5", "w") as f: f["x"], f["y"] = x, (x[:, 0] > 0).astype("i4")'
must_run train --data rows.h5 --validation 0.2 --model linear --epochs 1 --progress off --no-tensorboard --run runs/rows
mv rows.h5 new.h5
fails 1 'rows.h5 is not there, and the run began with it: .*name its new place with --data' -n 2 train --resume --run runs/rows --epochs 2
fails 1 'rows.h5 is not there, of which the run put 20 % aside for validation: .*ln -s NEW .*rows.h5' -n 2 eval runs/rows
fails 1 'rows.h5 is not there, of which the run put 20 % aside' predict runs/rows --out rows-out.h5
ln -s new.h5 rows.h5
succeeds -n 2 predict runs/rows --out rows-out.h5
expect python3 -c '
import h5py
with h5py.File("rows-out.h5") as p, h5py.File("new.h5") as f:
    rows = p["row"][:]
    assert p.attrs["part"] == b"validation" and len(rows) == 40 and list(p["index"]) == list(range(40))
    assert (f["y"][:][rows] == p["target"][:]).all() and len(set(rows // 5)) == 40'
rm rows.h5
succeeds train --resume --run runs/rows --epochs 2 --data new.h5
must_run predict runs/rows --data new.h5 --out all-out.h5
expect python3 -c 'import h5py; f = h5py.File("all-out.h5"); assert f.attrs["part"] == b"all" and "row" not in f'
