#!/usr/bin/env bash
# Classes that are drawn equally often: the same batches at any number of ranks and after a resume, beside class weights
# where the two are the same, and what is refused.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"

# In an epoch of balanced.h5 each sample of the two rare classes is drawn twice, and half of those of the frequent one,
# which are all alike: an epoch as one step is the one that balanced class weights make.
"$python" - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(5)
y = r.permutation(np.repeat([0, 1, 2], [160, 40, 40])).astype("i4")
x = r.normal(size=(240, 6)).astype("f4")
x[y == 0] = x[y == 0][0]
def write(name, **data):
    with h5py.File(name, "w") as f:
        for key, value in data.items(): f[key] = value
write("balanced.h5", x=x, y=y, w=np.ones(240, "f4"))
x = r.normal(size=(300, 6)).astype("f4")
y = np.minimum(r.integers(0, 12, 300), 2).astype("i4")
x[np.arange(300), y] += 1
write("classes.h5", x=x, y=y)
write("gap.h5", x=x, y=np.where(y == 1, 3, y).astype("i4"))
write("many.h5", x=x, y=np.arange(300, dtype="i4"))
write("numbers.h5", x=x, y=x[:, :2])
write("labels.h5", x=x, y=(x[:, :2] > 0).astype("f4"))
END
cat >compare.py <<'END'
import h5py, numpy as np, sys
def tensors(file):
    found = {}
    h5py.File(file).visititems(lambda name, item: found.__setitem__(name, item[...]) if name.startswith("parameters/") and isinstance(item, h5py.Dataset) else None)
    return found
a, b = map(tensors, sys.argv[1:])
assert a.keys() == b.keys() and max(np.abs(v).max() for v in a.values()) > 0.05, "nothing was learnt"
worst = max(np.abs(a[k] - b[k]).max() for k in a)
assert worst < 2e-5, worst
END

network=(--model linear --weight-init "constant(0)" --bias-init "constant(0)" --schedule constant --normalize none --no-tensorboard --progress off)
# made RANKS FILE OPTION...: the last checkpoint is in last.h5.
made() { train_to last.h5 "$1" --data "${@:2}"; }

whole=("${network[@]}" --optimizer sgd --learning-rate 0.5 --global-batch 240 --steps 8)
check "an epoch has as many of each class: what balanced class weights teach"
made 1 balanced.h5 "${whole[@]}"
cp last.h5 uniform.h5
made 1 balanced.h5 "${whole[@]}" --class-weight balanced
cp last.h5 weighted.h5
for n in 1 3; do
  made $n balanced.h5 "${whole[@]}" --sampling balanced
  expect_out '^sampling: balanced, 80 of each of 3 classes in an epoch; there are 40 to 160$'
  expect "$python" compare.py weighted.h5 last.h5
  ! "$python" compare.py uniform.h5 last.h5 2>/dev/null || failed "the comparison sees no difference"
done
check "micro-steps, servers, a quorum of all"
made 2 balanced.h5 "${whole[@]}" --sampling balanced --accumulate 4
expect "$python" compare.py weighted.h5 last.h5
made 2 balanced.h5 "${whole[@]}" --sampling balanced --agree quorum=2
expect "$python" compare.py weighted.h5 last.h5
made 3 balanced.h5 "${whole[@]}" --sampling balanced --agree async --staleness 0
expect "$python" compare.py weighted.h5 last.h5
made 2 balanced.h5 "${whole[@]}" --sampling balanced --agree local=2 --islands 2
expect_status 0

check "the same bytes at any number of ranks, and after a resume at any step; a part put aside is not drawn from"
small=("${network[@]}" --sampling balanced --global-batch 48 --steps 30 --checkpoint-every 1 --keep 40 --validation 0.2 --evaluate-every 10 --reproducible
  --optimizer adam --learning-rate 0.01)
made 1 classes.h5 "${small[@]}"
expect_out '^sampling: balanced, 80 of each of 3 classes in an epoch; there are '
grep -q '^sampling = balanced$' runs/here/config.ini || failed "config.ini does not say it"
cp last.h5 one.h5
for n in 2 3; do
  made $n classes.h5 "${small[@]}"
  expect cmp one.h5 last.h5
done
for step in 5 13 24; do  # at the end of an epoch, within one
  resumes_with_its_bytes 2 $step 30
  expect_out '^sampling: balanced, 80 of each'
  made 2 classes.h5 "${small[@]}"
done
check "without --reproducible, too, on one and the same number of ranks; the curve is that of other numbers"
small=("${network[@]}" --sampling balanced --global-batch 48 --steps 30 --checkpoint-every 10 --keep 9 --report-every 1)
made 1 classes.h5 "${small[@]}"
metric runs/here train loss >alone
made 3 classes.h5 "${small[@]}"
metric runs/here train loss >three
expect_near alone three 1e-5
resumes_with_its_bytes 3 10 30
check "whoever resumes a run may draw otherwise, and is told so"
rm -r runs/here/checkpoints/step-0000000030.h5
succeeds -n 2 train --resume --run runs/here --sampling uniform
expect_no_out '^sampling:'
expect_out 'sampling' || expect_err 'sampling'

check "what the checkpoint says of itself"
made 1 classes.h5 "${small[@]}"
succeeds info runs/here/checkpoints/step-0000000030.h5
expect_out '^  sampling       balanced$'
succeeds report runs/here --out here.html
grep -q sampling here.html || failed "the report does not say it"

check "what does not go together is refused"
ranks=2
refused() {
  fails 2 "$1" -n $ranks train "${network[@]}" --steps 3 --run runs/none "${@:2}"
  ranks=1  # the first on two
  expect_no_file runs/none
}
for _ in $(seq 60); do echo "the cat sat on a mat and the dog saw no cat"; done >corpus.txt
must_run pack --format text --tokenizer char --x corpus.txt --out text
refused "--sampling balanced needs samples of which each has one class, and the data hold numbers to predict" --data numbers.h5 --sampling balanced
refused "--sampling balanced needs samples of which each has one class, and the data hold labels, any of which" --data labels.h5 --sampling balanced
refused "--sampling balanced: 1 of the 4 classes has no training sample that could be drawn \(1\): pack the data" --data gap.h5 --sampling balanced
refused "--sampling balanced: the training data have 300 samples of 300 classes: an epoch would not draw 2 of each" --data many.h5 --sampling balanced
fails 2 "--sampling balanced needs samples of classes, and the data are a corpus of tokens" \
  -n 2 train --data text --model lstm --hidden 4 --unroll 5 --global-batch 3 --steps 3 --sampling balanced --run runs/none
fails 2 "has no training sample that could be drawn" -n 2 train --data gap.h5 "${network[@]}" --steps 3 --sampling balanced --dry-run
