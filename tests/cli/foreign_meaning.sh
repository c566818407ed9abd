#!/usr/bin/env bash
# Files of other programs have no checksums, yet a run that goes on needs the numbers that it began with, whatever their
# file is called. The names of enumerations are names of classes, numbers in names of files count as numbers, bytes of 0
# and 1 are no shades, and a unit is compared with that of the training data.
# label: more
# seconds: 180
. "$(dirname "$0")/harness.sh"
python3 - <<'END' || exit 1
import h5py, os
import numpy as np
r = np.random.default_rng(3)
x = r.normal(size=(300, 4)).astype("f4")
y = ((x[:, 0] > 0) * 1 + (x[:, 1] > 0)).astype("i4")
def write(name, x=x, y=y, kind=None):
    with h5py.File(name + ".h5", "w") as f:
        f["x"] = x
        f.create_dataset("y", data=y, dtype=kind)
write("good")
write("times_20", 20 * x)
other = x.copy(); other[150, 2] += 1
write("other_x", other)
other = y.copy(); other[150] = (other[150] + 1) % 3
write("other_y", y=other)
large = r.normal(size=(300, 20000)).astype("f4")  # 24 MB
write("large", large)
write("other_large", large[::-1])
def members(**values): return h5py.enum_dtype(values, basetype="i2")
write("texts", y=np.array([b"ant", b"bee", b"cow"])[y])
write("members", y=y, kind=members(ant=0, bee=1, cow=2))
write("turned", y=(y + 1) % 3, kind=members(cow=0, ant=1, bee=2))
write("no_member", y=np.where(np.arange(300) == 7, 5, y), kind=members(ant=0, bee=1, cow=2))
write("no_names", y=y)
pixels = r.normal(size=(30, 6, 5, 2)).astype("f4")
labels = (pixels.sum(-1) > 0).astype("u1") + (pixels[..., 0] > 1)
labels[0, 0, 0] = 255
for name, kind in {"masks": members(car=2, road=1, sky=0, void=255), "numbers": None, "gap": members(car=2, sky=0, void=255)}.items():
    with h5py.File(name + ".h5", "w") as f:
        f["x"] = pixels
        f.create_dataset("y", data=labels, dtype=kind)
write("booleans", y=y > 0)
write("bits", (x > 0).astype("u1"))
write("shades", (40 * np.abs(x)).astype("u1"))
os.makedirs("mixed"); write("mixed/a", y=np.array([b"ant", b"bee", b"cow"])[y]); write("mixed/b")
def with_units(name, of_x, of_y):
    with h5py.File(name + ".h5", "w") as f:
        f["x"], f["y"] = x, x[:, 0] * 2
        if of_x: f["x"].attrs["units"] = of_x
        if of_y: f["y"].attrs["units"] = np.bytes_(of_y)
for name, units in {"kelvin": ("kelvin", "m"), "celsius": ("celsius ", "m"), "feet": ("kelvin", "ft"),
                    "bare": ("", "")}.items(): with_units(name, *units)
os.makedirs("units"); with_units("units/a", "", "m"); with_units("units/b", "K", "m"); with_units("units/c", "degC", "m")
rows = np.sin(np.arange(240) / 5).astype("f4")[:, None] + np.arange(240)[:, None].astype("f4")
os.makedirs("days"); os.makedirs("series")
for i in range(12):
    with h5py.File(f"days/day-{i + 1}.h5", "w") as f: f["x"] = rows[20 * i:20 * i + 20]
with h5py.File("series/all.h5", "w") as f: f["x"] = rows
END
train=(--model linear --progress off --no-tensorboard)

# begin_with FILE OPTION...: a run of four steps with a copy of FILE. go_on_with FILE RANKS: it goes on where FILE has
# taken the copy's place.
begin_with() {
  rm -rf runs
  cp "$1" data.h5
  must_run train --data data.h5 "${train[@]}" --global-batch 60 --steps 4 --checkpoint-every 2 --run runs/r "${@:2}"
}
go_on_with() { cp "$1" new.h5 && mv new.h5 data.h5 && run -n "$2" train --resume --run runs/r --steps 6; }
changed='data.h5 is not the data that the checkpoint in runs/r/checkpoints was trained on'
for n in 1 3; do
  check "the same numbers in another file, $n ranks"
  begin_with good.h5; go_on_with good.h5 $n
  expect_status 0; expect_out 'continuing after step 4'
  check "one other number, $n ranks"
  begin_with good.h5; go_on_with other_x.h5 $n
  expect_error 1 "$changed"
done
check "one other label"
begin_with good.h5; go_on_with other_y.h5 1
expect_error 1 "$changed"
check "other numbers in a file of which some are compared"
begin_with large.h5; go_on_with other_large.h5 1
expect_error 1 "$changed"
begin_with large.h5; go_on_with large.h5 2
expect_status 0
check "what a run says of changed data, and what to do"
begin_with good.h5; go_on_with other_x.h5 1
expect_error 1 "$changed, though it has the same path \(its numbers, .* are others now\).* Restore the files, their order and --validation"
cp other_x.h5 elsewhere.h5
fails 1 "elsewhere.h5 is not the data .*, which was .*data.h5 .* Give --data .*data.h5, or start a new run" \
  train --resume --run runs/r --steps 6 --data elsewhere.h5
begin_with members.h5; go_on_with no_names.h5 1
expect_error 1 "$changed, though .*its classes are 3 without names now, and were ant, bee, cow"
check "a file that was moved and renamed"
begin_with good.h5
mkdir moved; mv data.h5 moved/renamed.h5
succeeds -n 2 train --resume --run runs/r --steps 6 --data moved/renamed.h5
expect_out 'continuing after step 4'; expect_out 'moved/renamed.h5 has the contents of data.h5, with which the run began'
begin_with large.h5
cp large.h5 renamed.h5
fails 1 'renamed.h5 is not the data .* knows its files by their names, too' train --resume --run runs/r --steps 6 --data renamed.h5
check "other numbers in the training part alone"
begin_with good.h5 --validation 0.2; go_on_with other_x.h5 1
expect_error 1 "$changed"

check "validations on other numbers are told apart"
rm -rf runs
for name in good other_y again; do
  cp "${name/again/good}.h5" validation.h5
  must_run train --data good.h5 --validation validation.h5 "${train[@]}" --steps 4 --run runs/$name
  metric runs/$name start validation_data >$name.identity
done
expect cmp good.identity again.identity
expect test "$(cat good.identity)" '!=' "$(cat other_y.identity)"

check "members of an enumeration are classes with their names"
rm -rf runs
for name in texts members; do
  must_run train --data $name.h5 "${train[@]}" --epochs 20 --learning-rate 0.1 --run runs/$name
  metric runs/$name train loss >$name.losses
done
expect_same members.losses texts.losses
check "... whatever their numbers are"
for name in members turned texts; do
  must_run eval runs/members --data $name.h5 --json $name.json
  expect python3 -c "
import json
first, here = (json.loads(open(name).readline())['accuracy'] for name in ('members.json', '$name.json'))
assert first == here > 0.7"
done
check "a number that no member has"
run train --data no_member.h5 "${train[@]}" --steps 1 --run runs/no
expect_error 1 'no_member.h5: sample 7 of y is no member of its enumeration \(ant, bee, cow\)'
succeeds info members.h5; expect_out 'y +data set y, members of an enumeration'
succeeds info texts.h5; expect_out 'y +data set y, texts$'
check "masks that are members of an enumeration have class names"
printf '%s\n' 'name: pixels' 'network:' '- conv: {channels: $outputs, kernel: 1}' >pixels.yaml
for name in masks numbers gap; do
  succeeds train --data $name.h5 --ignore-label 255 --model pixels.yaml --steps 8 --progress off --no-tensorboard --run runs/$name
  must_run eval runs/$name --data masks.h5 --report --json $name.json
  must_run pack --x $name.h5 --ignore-label 255 --out packed-$name
done
expect grep -Eq '"name": ?"road"' masks.json
expect python3 - <<'END'
import h5py, json
def names(name): return json.load(open(f"packed-{name}/manifest.json")).get("class_names")
assert names("masks") == ["sky", "road", "car"] and not names("numbers") and not names("gap"), (names("masks"), names("gap"))
END
must_run predict runs/masks --data masks.h5 --out masks-predicted.h5
expect python3 -c "import h5py; assert list(h5py.File('masks-predicted.h5').attrs['class_names']) == [b'sky', b'road', b'car']"
check "booleans are two classes without names"
run train --data booleans.h5 "${train[@]}" --steps 1 --run runs/booleans
expect_status 0; expect_out '2 classes'
check "names are no numbers to predict"
for name in members texts; do
  run pack $name.h5 --regression --out packed
  expect_error 2 "--regression: the labels in $name.h5 are names of classes, not numbers to predict"
done
check "names in one file and numbers in another"
run train --data mixed "${train[@]}" --steps 1 --run runs/no
expect_error 1 'b.h5: y is int32 of shape \(300\), unlike its sibling a.h5: names of shape \(300\)'

check "units"
began='the network was trained on'
must_run train --data kelvin.h5 --validation celsius.h5 "${train[@]}" --steps 4 --run runs/kelvin
expect_err "celsius.h5: x is in celsius, and $began kelvin: is that meant\?"
for data in kelvin bare; do
  succeeds eval runs/kelvin --data $data.h5
  ! grep -q ' is in ' err || failed "a warning without a reason"
done
succeeds eval runs/kelvin --data celsius.h5; expect_err "celsius.h5: x is in celsius, and $began kelvin"
succeeds eval runs/kelvin --data feet.h5; expect_err "feet.h5: y is in ft, and $began m: "
succeeds predict runs/kelvin --data celsius.h5 --out p.h5; expect_err "x is in celsius"
succeeds train --data celsius.h5 --initialize-from runs/kelvin --steps 2 "${train[@]}" --run runs/celsius
expect_err "x is in celsius, and $began kelvin"
succeeds info runs/kelvin/checkpoints/latest; expect_out 'a sample .* in kelvin'; expect_out 'target .* in m$'
must_run pack --x kelvin.h5 --regression --out packed_kelvin
must_run pack --x celsius.h5 --regression --out packed_celsius
succeeds info packed_kelvin; expect_out 'float32 \[4\] in kelvin'
must_run train --data packed_kelvin --validation packed_celsius "${train[@]}" --steps 4 --run runs/packed
expect_err "packed_celsius: x is in celsius, and $began kelvin"
check "numbers of another size than those of the training, in files of other programs"
must_run -n 2 train --data good.h5 "${train[@]}" --steps 4 --run runs/good
succeeds info runs/good/checkpoints/latest; expect_out '\[4\].*-[0-9.]+ to [0-9.]+'
larger='times_20.h5 holds float32 from -[0-9.]+ to [0-9.]+, and the network was trained on float32 from -[0-9.]+ to [0-9.]+: is that meant\?'
succeeds predict runs/good --data times_20.h5 --out p.h5 --force; expect_err "$larger"
succeeds -n 2 eval runs/good --data times_20.h5; expect_err "$larger"
succeeds eval runs/good --data good.h5; ! grep -q 'is that meant' err || failed "a warning without a reason"
check "a run that goes on with its numbers in another unit"
begin_with kelvin.h5; go_on_with celsius.h5 1
expect_status 0; expect_err "data.h5: x is in celsius, and $began kelvin"
check "files of one folder in two units"
must_run train --data units "${train[@]}" --steps 1 --run runs/units
expect_err 'c.h5: x is in degC, and in its sibling b.h5 in K: is that meant\?'
check "windows of inputs and targets in two units"
must_run train --data kelvin.h5 --window 6 --steps 2 "${train[@]}" --run runs/windows
succeeds eval runs/windows --data celsius.h5; expect_err "x is in celsius, m, and $began kelvin, m"
succeeds eval runs/windows --data kelvin.h5; ! grep -q ' is in ' err || failed "a warning without a reason"

check "windows go through files in the order of their numbers"
series=(--y "" --window 6 --horizon 2 --normalize none --normalize-targets none --steps 40 --no-shuffle "${train[@]}")
for name in series days; do
  must_run train --data $name "${series[@]}" --run runs/$name
  metric runs/$name train loss >$name.losses
done
expect_same days.losses series.losses

check "bytes that are 0 and 1"
must_run train --data bits.h5 "${train[@]}" --steps 1 --run runs/bits
expect_err "the bytes of the samples are 0 to 1, and --normalize auto divides bytes by 255"
must_run train --data bits.h5 "${train[@]}" --normalize none --steps 1 --run runs/none
must_run train --data shades.h5 "${train[@]}" --steps 1 --run runs/shades
! grep 'the bytes of the samples' runs/none/log.txt runs/shades/log.txt || failed "a warning without a reason"
