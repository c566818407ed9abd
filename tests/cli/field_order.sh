#!/usr/bin/env bash
# Fields of the same names in another order, and samples with other extents, give the same figures or are refused: in validations, eval
# and predict, of shards and of files of others.
# label: more
# seconds: 120
. "$(dirname "$0")/harness.sh"

python3 - <<'END' || exit 1
import h5py, numpy as np
for seed, name in ((1, "tr.h5"), (2, "te.h5")):
    r = np.random.default_rng(seed)
    with h5py.File(name, "w") as f:
        f["p"], f["q"] = r.normal(500, 9, (60, 3)).astype("f4"), r.normal(0, 0.01, (60, 3)).astype("f4")
        f["a"], f["b"] = f["p"][:, 0] + r.normal(size=60), f["q"][:, 0] * 2
        image = r.normal(size=(60, 3, 3, 3)).astype("f4")
        f["first"], f["mask"] = np.moveaxis(image, 3, 1), (image[..., 0] > 0).astype("u1")
        f["wide"], f["tall"], f["label"] = (r.normal(size=s).astype("f4") for s in ((60, 4, 8, 1), (60, 8, 4, 1), 60))
END
join() { printf '%s\n' "name: $1" "inputs: {$2: [any], $3: [any]}" 'network:' "- concatenate: {from: [$2, $3]}" '- dense: $outputs' >"$1.yaml"; }
join named p q; join other m n
printf '%s\n' 'name: pixels' 'network:' '- conv: {channels: 8, kernel: 3, activation: relu}' '- conv: {channels: $outputs, kernel: 3}' >pixels.yaml
train() { run train "$@" --epochs 2 --seed 1 --batch 20 --no-tensorboard --progress off; }
loss() { metric "$1" validation loss | tail -n 1 | cut -d ' ' -f 2; }
same() { [ -n "$1" ] && [ "$1" = "$2" ] || failed "$1 is not $2"; }
for part in "tr train p,q a,b" "te turned q,p b,a" "te right p,q a,b"; do
  read -r file out x y <<<"$part"
  must_run pack --x "$file.h5" --x-name "$x" --y-name "$y" --regression --out "$out"
done

check "validation shards in another order are read in the order of training, by name"
for validation in right turned; do
  train train --validation $validation --model named.yaml --run runs/$validation
  expect_status 0
done
same "$(loss runs/right)" "$(loss runs/turned)"
train train --validation turned --model other.yaml --run runs/other  # the network's names are others: the data's count
expect_status 0
train train --validation right --model other.yaml --run runs/others
same "$(loss runs/other)" "$(loss runs/others)"

check "targets in another order are refused where they cannot be put in order, and read where they can"
fails 2 "turned: has the targets b and a, and the network learns a and b: --y names them in its order" eval runs/right --data turned
fails 2 "turned: has the targets b and a" predict runs/right --data turned --out p.h5
expect_no_file p.h5
succeeds eval runs/right --data turned --y a,b --json turned.json
run eval runs/right --data right --json right.json
same "$(grep -o '"loss":[^,]*' turned.json)" "$(grep -o '"loss":[^,]*' right.json)"
fails 2 "te.h5: has the targets b and a" eval runs/right --data te.h5 --x p,q --y b,a

check "--layout turns files, not the shards made of them"
must_run pack --x te.h5 --x-name first --y-name mask --layout nchw --out cubes
train tr.h5 --x first --y mask --layout nchw --model pixels.yaml --validation te.h5 --run runs/files
expect_status 0
train tr.h5 --x first --y mask --layout nchw --model pixels.yaml --validation cubes --run runs/cubes
expect_status 0
same "$(loss runs/files)" "$(loss runs/cubes)"
run eval runs/files --data cubes --json cubes.json
run eval runs/files --data te.h5 --json files.json
same "$(grep -o '"loss":[^,]*' cubes.json)" "$(grep -o '"loss":[^,]*' files.json)"

check "validation images of other extents are refused"
python3 -c "
import h5py
with h5py.File('te.h5') as f, h5py.File('tall.h5', 'w') as g: g['wide'], g['label'] = f['tall'][()], f['label'][()]"
printf '%s\n' 'name: flat' 'network:' '- conv: {channels: 2, kernel: 3}' '- global-average' '- dense: $outputs' >flat.yaml
fails 2 "tall.h5: its samples are 8 x 4 x 1, those that the network was trained on 4 x 8 x 1.*another order" \
  -n 2 train tr.h5 --x wide --y label --model flat.yaml --validation tall.h5 --epochs 1 --run runs/tall
