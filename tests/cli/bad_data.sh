#!/usr/bin/env bash
# Faulty data end in one message that names the file, and leave no run folder behind.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small good
train=(train --data data --optimizer sgd --steps 50 --run runs/r)
fresh() { rm -rf data runs; cp -r good data; }
# edit FILE PYTHON: with the file open as f (h5py).
edit() { python3 -c "
import h5py, numpy as np
with h5py.File('$1', 'r+') as f:
    $2"; }

check "a folder that is not there"
fails 1 'data' "${train[@]}"
for n in 1 3; do
  refused() { run -n $n "${train[@]}" "$@"; }
  check "a folder that is not there, $n ranks"
  rm -rf data; refused; expect_error 1 'data'
  check "an empty folder, $n ranks"
  mkdir data; refused; expect_error 1 'data'
  check "a shard cut short, $n ranks"
  fresh; truncate -s -500 data/shard-00001.h5; refused; expect_error 1 'shard-00001\.h5'
  check "an empty shard, $n ranks"
  fresh; : >data/shard-00002.h5; refused; expect_error 1 'shard-00002\.h5'
  check "a shard that is missing, $n ranks"
  fresh; rm data/shard-00001.h5; refused; expect_error 1 'shard-00001\.h5'
  check "a flipped byte among the samples, $n ranks"
  fresh
  flip_byte data/shard-00001.h5 "$(python3 -c 'import h5py; print(h5py.File("data/shard-00001.h5")["x"].id.get_offset() + 1234)')"
  refused; expect_error 1 'shard-00001\.h5'
  check "samples of another shape, $n ranks"
  fresh; edit data/shard-00001.h5 'x = f["x"][...]; del f["x"]; f["x"] = x[:, :10]'; refused; expect_error 1 'shard-00001\.h5'
  check "samples of another type, $n ranks"
  fresh; edit data/shard-00001.h5 'x = f["x"][...]; del f["x"]; f["x"] = x.astype("f8")'; refused; expect_error 1 'shard-00001\.h5'
  check "another number of classes, $n ranks"
  fresh; edit data/shard-00001.h5 'f.attrs["classes"] = np.int64(7)'; refused; expect_error 1 'shard-00001\.h5'
  check "a label out of range, $n ranks"
  fresh; edit data/shard-00002.h5 'f["y"][5] = 250 if f["y"].dtype.itemsize == 1 else 1000'
  refused --verify none; expect_error 1 'shard-00002\.h5.*(label|class)'
  check "NaN among the samples, $n ranks"
  fresh; edit data/shard-00000.h5 'f["x"][7, 3] = np.nan'; refused --verify none; expect_error 1 'shard-00000\.h5.*(NaN|nan|finite)'
  check "a manifest of rubbish, $n ranks"
  fresh; echo '{"samples": 6' >data/manifest.json; refused; expect_error 1 'manifest\.json'
  check "a flipped byte in the manifest, $n ranks"
  fresh; flip_byte data/manifest.json 40; refused; expect_error 1 'manifest\.json'
  check "a file that is no HDF5, $n ranks"
  rm -rf data; mkdir data; echo text >data/a.h5; refused; expect_error 1 'a\.h5'
  check "a loss that is not finite stops before the update, $n ranks"
  fresh; refused --learning-rate 1e38; expect_error 1 '(NaN|nan|finite)'
  [ -z "$(newest_checkpoint runs/r)" ] || run info "$(newest_checkpoint runs/r)"
done

check "a folder that one rank alone lacks"
fresh
mkdir -p here/0 here/1 here/2
cp -r good here/0/data; cp -r good here/2/data
script apart 'cd "here/$OMPI_COMM_WORLD_RANK" && exec "$@"'
fails 1 'rank 1.*data' -n 3 -w ./apart train --data data --optimizer sgd --steps 5
check "a shard that one rank alone lacks"
cp -r good here/1/data; rm here/1/data/shard-00001.h5
fails 1 'rank 1.*shard-00001\.h5' -n 3 -w ./apart train --data data --optimizer sgd --steps 5
check "a shard that is another on one rank"
rm -rf here/1/data; pack_small here/1/data --seed 9
fails 1 'rank.* 1' -n 3 -w ./apart train --data data --optimizer sgd --steps 5

check "any flipped byte of the structure of a shard is noticed or harmless"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"  # libhdf5 loses memory over damaged metadata
must_run train --data good --optimizer sgd --hidden 8 --steps 12 --report-every 1 --run runs/truth
metric runs/truth train loss >truth
offsets=$(python3 - <<'END'
import h5py, os
name = "good/shard-00000.h5"
with h5py.File(name) as f:
    data = [(f[k].id.get_offset(), f[k].id.get_storage_size()) for k in "xy"]
structure = [o for o in range(os.path.getsize(name)) if not any(s <= o < s + n for s, n in data)]
print(*structure[:: max(1, len(structure) // 25)])
END
)
for offset in $offsets; do
  fresh; flip_byte data/shard-00000.h5 "$offset"
  run train --data data --optimizer sgd --hidden 8 --steps 12 --report-every 1 --run runs/r
  if [ "$status" = 0 ]; then
    metric runs/r train loss >flipped; expect_same truth flipped
  else
    expect_error 1 'shard-00000\.h5'
  fi
done

check "files of others are read in place"
python3 - <<'END'
import h5py, numpy as np
rng = np.random.default_rng(1)
x, y = rng.random((300, 4, 4), dtype=np.float32), rng.integers(0, 3, 300)
y[:3] = range(3)
with h5py.File("plain.h5", "w") as f:
    f["images"], f["labels"] = x, y
with h5py.File("chunked.h5", "w") as f:
    f.create_dataset("images", data=x, chunks=(64, 2, 2), compression="gzip")
    f["labels"] = y
END
succeeds -n 2 train --data plain.h5 --optimizer sgd --x images --y labels --no-shuffle --hidden 8 --steps 12 --report-every 1 --run runs/plain
succeeds -n 2 train --data chunked.h5 --optimizer sgd --x images --y labels --no-shuffle --hidden 8 --steps 12 --report-every 1 --run runs/chunked
expect grep -Eiq 'chunk' <(cat out err)
metric runs/plain train loss >plain; metric runs/chunked train loss >chunked; expect_same plain chunked
check "a dataset name that is not there"
fails 2 'plain\.h5.*pictures' train --data plain.h5 --optimizer sgd --x pictures --y labels --steps 1
check "packed samples without labels"
printf 'a,b\n1,2\n3,4\n' >samples.csv
succeeds pack --x samples.csv --out unlabelled
fails 2 'unlabelled has no labels.*--label-column' -n 2 train --data unlabelled --optimizer sgd --model linear --steps 1 --run runs/unlabelled
[ ! -e runs/unlabelled ] || failed "a run folder was made"
