#!/usr/bin/env bash
# --best-by selects the best validation by metrics that need every answer, alike at any number of ranks.
# label: more
. "$(dirname "$0")/harness.sh"

cat >data.py <<'END'
import h5py, numpy as np
r = np.random.default_rng(3)
def made(n, name, classes):
    x = np.round(r.normal(size=(n, 4)), 1).astype(np.float32)  # coarse: some scores are equal
    y = np.where(r.random(n) < 0.8, 0, r.integers(0, classes, n)).astype(np.int32)
    x[np.arange(n), y % 4] += 1
    x[: n // 4] = x[0]
    with h5py.File(name, "w") as f:
        f["x"], f["y"] = x, y
made(300, "three.h5", 3), made(157, "three-test.h5", 3)
made(300, "two.h5", 2), made(157, "two-test.h5", 2)
for name, n in ("labels.h5", 300), ("labels-test.h5", 157):
    x = np.round(r.normal(size=(n, 4)), 1).astype(np.float32)
    with h5py.File(name, "w") as f:
        f["x"], f["y"] = x, np.stack([x[:, 0] + r.normal(size=n) > 1, x[:, 1] > 0, x[:, 2] > 2], 1).astype(np.float32)
with h5py.File("numbers.h5", "w") as f:
    f["x"], f["y"] = x, x @ r.normal(size=(4, 1)).astype(np.float32)
with h5py.File("one-class.h5", "w") as f:
    f["x"], f["y"] = x, np.zeros(len(x), np.int32)
END
python3 data.py || exit 1

# metric_of METRIC PREDICTIONS: computed by its definition from the output of predict.
cat >metric_of.py <<'END'
import h5py, numpy as np, sys
with h5py.File(sys.argv[2]) as f:
    scores, target = f["scores"][:], f["target"][:]
labels = target.ndim == 2
taken = scores > 0.5 if labels else scores.argmax(1)
columns = range(scores.shape[1])
there = [target[:, c] == 1 if labels else target == c for c in columns]
said = [taken[:, c] if labels else taken == c for c in columns]
def area(there, score):
    positive, negative = score[there].astype(float), score[~there].astype(float)
    return ((positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()) / (len(positive) * len(negative))
if sys.argv[1] == "balanced-accuracy":
    found = np.mean([(t & s).sum() / t.sum() for t, s in zip(there, said) if t.any()])
elif sys.argv[1] == "f1-macro":
    found = np.mean([2 * (t & s).sum() / (t.sum() + s.sum()) for t, s in zip(there, said) if t.any() or s.any()])
else:
    of = [1] if not labels and len(columns) == 2 else columns
    found = np.mean([area(there[c], scores[:, c]) for c in of if 0 < there[c].sum() < len(scores)])
print(repr(float(found)))
END

options=(--model mlp --hidden 8 --optimizer sgd --learning-rate 0.2 --global-batch 30 --evaluate-every 8 --checkpoint-every 8
  --keep 20 --evaluation-batch 20 --reproducible --no-tensorboard --progress off)
key() { tr - _ <<<"$1"; }
for case in "three balanced-accuracy" "three f1-macro" "three roc-auc" "two roc-auc" "labels f1-macro" "labels roc-auc"; do
  read -r data by <<<"$case"
  check "$by of $data: the same at one, two and three ranks, and what its definition says"
  for n in 1 2 3; do
    succeeds -n $n train --data $data.h5 --validation $data-test.h5 "${options[@]}" --steps 40 --best-by $by --run runs/$data-$by-$n
    metric runs/$data-$by-$n validation "$(key $by)" >$n.txt
  done
  expect cmp 1.txt 2.txt; expect cmp 1.txt 3.txt
  [ "$(wc -l <1.txt)" = 5 ] || failed "validations without the metric"
  rm -f p.h5
  succeeds -n 2 predict runs/$data-$by-2 --checkpoint latest --data $data-test.h5 --out p.h5
  said=$(tail -n 1 1.txt | cut -d ' ' -f 2) expected=$("$python" metric_of.py $by p.h5)
  "$python" -c "assert abs($said - $expected) < 1e-12" || failed "$said, and by its definition $expected"
  best=$(sort -s -k2,2gr 1.txt | head -n 1 | cut -d ' ' -f 2)
  linked=$(readlink runs/$data-$by-2/checkpoints/best | sed 's/step-0*//; s/[.]h5//')
  grep -q "^$linked $best$" 1.txt || failed "best is step $linked, the metric says $(cat 1.txt)"
  succeeds -n 3 eval runs/$data-$by-2 --data $data-test.h5 --json e.json
  grep -q "\"$(key $by)\":$best" e.json || failed "eval says $(cat e.json), the run $best"
done

check "lines, the table at the end, report and info say the metric"
succeeds -n 2 train --data three.h5 --validation three-test.h5 "${options[@]}" --steps 40 --best-by balanced-accuracy --run runs/shown
expect_out '^validation at step 8: loss [0-9.]+  accuracy [0-9.]+ %  balanced accuracy [0-9.]+ %  \(157 samples\)'
expect_out '^ +step +loss +balanced accuracy$'
succeeds info runs/shown
expect_out 'balanced_accuracy 0\.[0-9]+'
succeeds report runs/shown

check "by the loss: the smaller is better, for the link, patience and the target"
succeeds -n 2 train --data three.h5 --validation three-test.h5 "${options[@]}" --best-by loss --target-metric 0.7 --steps 400 --run runs/loss
expect_out '^target reached at step'
tail -n 1 <(metric runs/loss validation loss) | cut -d ' ' -f 2 | xargs -I{} "$python" -c 'assert {} <= 0.7' || failed "not reached"
succeeds -n 2 train --data three.h5 --validation three-test.h5 "${options[@]}" --best-by roc-auc --patience 2 --min-delta 1 --steps 400 --run runs/patient
expect_out '^no improvement in 2 validations at step 24'

check "a run that goes on by another metric looks for its best in the validations so far"
succeeds -n 2 train --data three.h5 --validation three-test.h5 "${options[@]}" --steps 40 --best-by loss --run runs/other
succeeds -n 2 train --resume --run runs/other --best-by accuracy --steps 48
best=$(metric runs/other validation accuracy | sort -s -k2,2gr | head -n 1 | cut -d ' ' -f 2)
succeeds info "$(newest_checkpoint runs/other)"
expect_out "best so far +$("$python" -c "print('%.6g' % $best)" | sed 's/[.]/[.]/')"

check "what is refused"
ranks=2
refused() {
  fails "$1" "$2" -n $ranks train "${options[@]}" --steps 40 --run runs/none "${@:3}"
  ranks=1  # the first on two
}
refused 2 "--best-by mean-absolute-error is no metric of classes: give auto, loss, accuracy, balanced-accuracy, f1-macro, roc-auc" --data three.h5 --validation three-test.h5 --best-by mean-absolute-error
refused 2 "--best-by accuracy is no metric of labels, any of which a sample has: give auto, loss, f1, f1-macro, roc-auc" --data labels.h5 --validation labels-test.h5 --best-by accuracy
refused 2 "--best-by roc-auc is no metric of numbers to predict: give auto, loss, mean-absolute-error" --data numbers.h5 --validation 0.2 --best-by roc-auc
refused 2 "--best-by needs validation data" --data three.h5 --best-by roc-auc
ranks=2
refused 1 "--best-by roc-auc: ROC AUC is not defined where all samples are of one class, as in one-class.h5: give another metric" --data three.h5 --validation one-class.h5 --best-by roc-auc
check "eval of samples of one class says that the metric is not defined there"
succeeds eval runs/three-roc-auc-1 --data one-class.h5
expect_err "ROC AUC is not defined: all samples of one-class.h5 are of one class"
