#!/usr/bin/env bash
# label: more
# seconds: 60
# Every network trains with its defaults alone; defaults for photographs in classes do not apply to other data.
. "$(dirname "$0")/harness.sh"
python3 - <<'PYTHON'
import h5py, numpy
random = numpy.random.default_rng(6)
def write(name, x, y):
    with h5py.File(f"{name}.h5", "w") as f: f["x"], f["y"] = x, y
n = 240
# Balls of a random radius in volumes: the outer slices are nearly always empty.
grid = numpy.stack(numpy.meshgrid(*[numpy.arange(12)] * 3, indexing="ij"), -1)
radius, centre = random.uniform(1, 5.5, n), random.normal(5.5, .5, (n, 3))
balls = (((grid - centre[:, None, None, None]) ** 2).sum(-1) < radius[:, None, None, None] ** 2).astype("f4")
write("volumes", 1000 * balls, radius.astype("f4"))
write("volume_classes", 1000 * balls, (radius > 3.2).astype("i4"))
# Small grey images: the bright corner is the class, the brightness a number.
corner = random.integers(0, 4, n)
small = random.integers(0, 60, (n, 8, 8)).astype("u1")
for i, c in enumerate(corner): small[i, 4 * (c // 2):4 * (c // 2) + 4, 4 * (c % 2):4 * (c % 2) + 4] += 150
write("small", small, corner.astype("i4"))
level = random.integers(20, 230, n)
write("bright", (level[:, None, None] + random.integers(-9, 9, (n, 12, 12))).clip(0, 255).astype("u1"), (level > 125).astype("i4"))
# Spectra as images of one column: the target is the line's position.
place = random.uniform(10, 90, n)
spectra = numpy.exp(-(numpy.arange(100) - place[:, None]) ** 2 / 50) + .02 * random.normal(size=(n, 100))
write("spectra", spectra[:, :, None].astype("f4"), (place // 34).astype("i4"))
write("spectra_numbers", spectra[:, :, None].astype("f4"), place.astype("f4"))
write("photos", random.integers(0, 256, (24, 32, 32, 3)).astype("u1"), random.integers(0, 2, 24).astype("i4"))
write("unit", random.random((24, 32, 32, 3)).astype("f4"), random.integers(0, 2, 24).astype("i4"))
# Temperature, wind and pressure as three channels: their means depend on the class, and their sizes differ.
kind = random.integers(0, 2, n)
fields = random.normal(size=(n, 12, 12, 3)) + .8 * kind[:, None, None, None]
write("fields", (fields * [9, 4, 6] + [280, 0, 1013]).astype("f4"), kind.astype("i4"))
write("large", random.integers(0, 256, (4, 64, 64, 3)).astype("u1"), numpy.arange(4, dtype="i4") % 2)
write("bands", (random.normal(size=(20, 32, 32, 8)) * 100 + 500).astype("f4"), numpy.arange(20, dtype="i4") % 2)
PYTHON
# beats MODEL DATA EPOCHS: with nothing but defaults, validation is better than a constant.
beats() {
  check "$1 on $2 with its defaults is better than a constant"
  succeeds train --data $2.h5 --validation 0.25 --model $1 --epochs $3 --evaluate-every -1 --progress off --run runs/$1-$2
  expect_out '^  to beat: a constant'
  ! own_words | grep -q 'is no better than' || failed "it is worse"
}
beats mlp volumes 20
beats cnn volumes 12
beats resnet volumes 20
beats mlp volume_classes 10
beats cnn small 20
beats cnn bright 10
beats cnn spectra 10
beats cnn spectra_numbers 6
beats cnn fields 3

plan() { succeeds train --data $2.h5 --model $1 --dry-run; }
check "numbers are learnt with Adam from samples that nothing changes, and the plan says what was left out"
plan resnet volumes
expect_out '^optimiser: adam,'; expect_out 'augmentation none$'; expect_out '^learning rate: cosine, 0.001 to 0'
expect_out '^left out of the defaults of resnet: --augment pad=4,flip .*--optimizer nesterov .*numbers to predict'
expect_out '^defaults of resnet: --schedule cosine --batch 128$'
plan cnn spectra_numbers
expect_out '^optimiser: adam,'; expect_out '^learning rate: constant, 0.001$'

check "what the user gives stays"
succeeds train --data volumes.h5 --model resnet --dry-run --optimizer sgd --augment flip
expect_out '^optimiser: sgd'; expect_out 'augmentation flip$'; expect_out '^learning rate: .*0\.1 to 0'

check "each channel has its mean and deviation, and the network says what the channels are"
plan mlp volumes
expect_out 'normalisation per-feature \(12 channels'
plan mlp bands
expect_out 'normalisation per-feature \(8 channels'
printf '%s\n' 'name: volumes' 'inputs: {x: [any, any, any, any]}' 'network: [flatten, dense: $outputs]' >volumes.yaml
plan volumes.yaml volumes
expect_out 'normalisation per-feature \(1 channel '
check "the configuration of such a run makes the same run"
must_run train --config runs/mlp-volumes/config.ini --run runs/again --progress off
metric runs/mlp-volumes validation loss >first && metric runs/again validation loss >second && expect_same first second

check "images of another size are not cropped, grey ones not mirrored"
plan cnn small
expect_out 'augmentation none$'; expect_out 'left out of the defaults of cnn: crop=24 \(images of 8 x 8\); flip \(1 channel: '
expect_out 'normalisation per-feature \(1 channel '
plan cnn large
expect_out 'augmentation flip,brightness=63,contrast=0.2:1.8$'; expect_out 'crop=24 \(images of 64 x 64\)'
plan resnet small
expect_out 'augmentation none$'; expect_out 'pad=4 \(images of 8 x 8\)'

check "photographs in classes keep what the tutorial does"
plan cnn photos
expect_out 'normalisation per-image, augmentation crop=24,flip,brightness=63,contrast=0.2:1.8$'; expect_no_out 'left out'
plan resnet photos
expect_out 'augmentation pad=4,flip$'; expect_no_out 'left out'
for model in cnn resnet; do
  succeeds train --data unit.h5 --model $model --dry-run
  expect_no_out 'left out'
done

check "three channels that are no photographs have a scale each, and no mirror image"
plan cnn fields
expect_out 'normalisation per-feature \(3 channels to mean 0, deviation 1\), augmentation none$'
expect_out 'flip \(3 channels from -[0-9.]* to 10[0-9.]*: .*brightness and contrast .*--normalize per-image'
