#!/usr/bin/env bash
# Checkpoints that do not fit or are damaged are refused by name and left as they are.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test
train=(train --data data --optimizer adam --learning-rate 0.01 --batch 50)
must_run "${train[@]}" --hidden 16 --steps 12 --run runs/good
file=runs/good/checkpoints/step-0000000012.h5
expect_file $file

for n in 1 3; do
  check "of another network, $n ranks"
  picture runs/good >before
  fails 1 '(16.*17|17.*16)' -n $n "${train[@]}" --hidden 17 --steps 20 --run runs/good --resume
  picture runs/good >after; expect_same before after
  check "of another optimiser, $n ranks"
  fails 1 'adam.*sgd' -n $n train --data data --optimizer sgd --batch 50 --hidden 16 --steps 20 --run runs/good --resume
  check "of other data, $n ranks"
  [ -d other ] || pack_small other --seed 5
  fails 1 'other' -n $n train --data other --optimizer adam --learning-rate 0.01 --batch 50 --hidden 16 --steps 20 --run runs/good --resume
  check "cut short, $n ranks"
  head -c 3000 $file >short.h5
  fails 1 'short\.h5' -n $n "${train[@]}" --hidden 16 --steps 20 --run runs/r --resume short.h5; expect_no_file runs/r
  check "not there, $n ranks"
  fails 1 'none\.h5' -n $n "${train[@]}" --hidden 16 --steps 20 --run runs/r --resume none.h5; expect_no_file runs/r
  check "not a checkpoint, $n ranks"
  fails 1 'shard-00000\.h5' -n $n "${train[@]}" --hidden 16 --steps 20 --run runs/r --resume data/train/shard-00000.h5; expect_no_file runs/r
  check "eval of a damaged one, $n ranks"
  fails 1 'short\.h5' -n $n eval short.h5
done
check "other data for eval that do not fit"
must_run pack --format synthetic --samples 100 --features 9 --classes 5 --out narrow
run -n 2 eval runs/good --data narrow
[ "$status" != 0 ] || failed "exit 0"
expect_err 'narrow'

# Bytes that HDF5 does not use, or uses for another access path, may flip: every value that is read by name is then
# unchanged.
cat >same_contents.py <<'END'
import h5py, sys
whole, flipped = (h5py.File(name) for name in sys.argv[1:])
names = ["/"]
whole.visit(names.append)
for name in names:
    a, b = whole[name], flipped[name]
    assert all(str(a.attrs[key]) == str(b.attrs[key]) for key in a.attrs), name
    if isinstance(a, h5py.Dataset):
        assert a.dtype == b.dtype and a.shape == b.shape and str(a[()]) == str(b[()]), name
        assert a.dtype.kind != "f" or a[()].tobytes() == b[()].tobytes(), name
END
check "a flipped byte of a checkpoint is noticed, or is none of its contents"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"  # libhdf5 loses memory over damaged metadata
noticed=0
size=$(stat -c %s $file)
for ((offset = 3; offset < size; offset += size / 40 + 1)); do
  cp $file flipped.h5; flip_byte flipped.h5 $offset
  run info flipped.h5
  if [ "$status" = 0 ]; then
    python3 same_contents.py $file flipped.h5 2>trace || failed "byte $offset of $size: not noticed"
  else
    expect_error 1 'flipped\.h5'
    noticed=$((noticed + 1))
  fi
done
[ $noticed -ge 20 ] || failed "$noticed of 40 noticed: that is not the damage this case means"

check "written by a newer format"
version=$(python3 - <<'END'
import h5py
with h5py.File("runs/good/checkpoints/step-0000000012.h5") as f:
    print(*[k for k in f.attrs if "format" in k])
END
)
[ -n "$version" ] || failed "no attribute names the format's version"
cp $file newer.h5
python3 -c "
import h5py
with h5py.File('newer.h5', 'r+') as f:
    f.attrs['$version'] = f.attrs['$version'] + 9"
fails 1 'newer\.h5.*newer' info newer.h5

check "all checkpoints damaged: a resume says so and starts nothing over them"
cp -r runs/good runs/damaged
for f in runs/damaged/checkpoints/step-*.h5; do truncate -s 100 "$f"; done
picture runs/damaged >before
fails 1 'damaged' -n 2 "${train[@]}" --hidden 16 --steps 20 --run runs/damaged --resume
picture runs/damaged >after; expect_same before after
