#!/usr/bin/env bash
# PyTorch computes the same loss and metric as `lockstep eval`, with networks built
# from checkpoints by io/checkpoints/checkpoint_format.md alone.
# label: slow
# seconds: 900
. "$(dirname "$0")/harness.sh"
peer=$(peer_python torch h5py numpy) || skip_all "no Python here has torch, h5py and numpy (PEER_PYTHONS: others to try)"

"$peer" - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
def images(file, count, height, width):
    with h5py.File(file, "w") as f:
        y = r.integers(0, 4, count).astype(np.int32)
        f["x"], f["y"] = (r.integers(0, 120, (count, height, width, 3)) + 30 * y[:, None, None, None]).astype(np.uint8), y
images("images.h5", 60, 18, 21)
images("large.h5", 12, 40, 40)
with h5py.File("numbers.h5", "w") as f:
    x = r.random((90, 7))
    f["x"], f["y"] = x.astype(np.float32), (x[:, :2] * 3 + 1).astype(np.float32)
words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "no", "dog"]
open("corpus.txt", "w").write("\n".join(" ".join(words[i] for i in r.integers(0, 10, 12)) for _ in range(30)) + "\n")
END
must_run pack --format text --tokenizer char --x corpus.txt --out text
text=$(find text -name '*.h5')

cat >compare.py <<'END'
import json, sys
ours, theirs = ([json.loads(line) for line in open(name)][-1] for name in sys.argv[1:])
for key, value in theirs.items():
    assert abs(ours[key] - value) <= 1e-4 * max(abs(value), 1e-3), (key, ours[key], value)
END
while read -r name data options; do
  check "$name: PyTorch finds the loss and the metric that eval finds"
  file=$data
  [ "$data" != text ] || file=$text
  # shellcheck disable=SC2086  # words
  must_run train --data "$data" --validation "$data" --steps 8 --batch 6 --progress off --no-tensorboard --run "runs/$name" $options
  checkpoint=$(newest_checkpoint "runs/$name")
  must_run eval "$checkpoint" --data "$data" --evaluation-batch 1 --json "$name.json"
  "$peer" "$tree/tests/peers/torch_from_checkpoint.py" "$checkpoint" "$file" >"$name.torch" 2>python.log ||
    failed "$(tail -n 1 python.log)"
  "$peer" compare.py "$name.json" "$name.torch" 2>python.log || failed "$(tail -n 1 python.log)"
done <<'END'
linear images.h5 --model linear --learning-rate 0.01
mlp images.h5 --model mlp --hidden 9,8 --activation tanh --average-decay 0.8 --evaluate-average
gelu images.h5 --model mlp --hidden 9,8 --activation gelu
per_image images.h5 --model mlp --hidden 9 --activation sigmoid --normalize per-image --augment crop=15x11,flip
regression numbers.h5 --model mlp --hidden 9 --learning-rate 0.01
cnn images.h5 --model cnn --augment crop=15,flip --learning-rate 0.01 --decay-steps 100
cnn_whole images.h5 --model cnn --augment none --learning-rate 0.01 --decay-steps 100
resnet20 images.h5 --model resnet --depth 20 --learning-rate 0.01 --augment pad=2,crop=16,flip --average-decay 0.5 --evaluate-average
resnet18 large.h5 --model resnet --depth 18 --learning-rate 0.01 --augment none
resnet50 large.h5 --model resnet --depth 50 --learning-rate 0.01 --augment none
lstm text --model lstm --layers 2 --hidden 16 --unroll 6 --dropout 0.2
lstm_tied text --model lstm --layers 1 --hidden 16 --unroll 5 --tied
gpt text --model gpt --layers 2 --heads 2 --width 16 --context 12
gpt_untied text --model gpt --layers 1 --heads 1 --width 8 --context 7 --no-tied
END

check "the judge sees weights that differ"
cp "$(newest_checkpoint runs/mlp)" other.h5
"$peer" - <<'END' || failed "the altered checkpoint"
import h5py
with h5py.File("other.h5", "r+") as f:
    for group in ("parameters", "average"): f[group]["dense_2/bias"][0] += 0.5
END
"$peer" "$tree/tests/peers/torch_from_checkpoint.py" other.h5 images.h5 >other.torch
if "$peer" compare.py mlp.json other.torch 2>/dev/null; then failed "the altered checkpoint passes"; fi
