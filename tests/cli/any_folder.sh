#!/usr/bin/env bash
# A run finds its data from any working folder, and its log says before the start how it will train.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test
options=(--data data --hidden 8 --optimizer adam --schedule cosine --warmup-steps 1 --evaluate-every 2)
must_run train "${options[@]}" --steps 2 --run runs/a
mkdir elsewhere
here=$PWD

check "paths in config.ini begin at the root"
expect grep -qx "data = $here/data/train" runs/a/config.ini
expect grep -qx "validation = $here/data/test" runs/a/config.ini
expect grep -qx "run = $here/runs/a" runs/a/config.ini

check "a run is evaluated from another folder"
cd elsewhere
succeeds eval "$here/runs/a"
expect_out 'loss .* accuracy'

check "and goes on from there, with nothing that differs"
succeeds train --resume --run "$here/runs/a" --steps 4
expect_out 'continuing after step 2'
expect_no_out 'differ now:.*data'
cd ..

check "another spelling of the same folder is no other option"
succeeds train "${options[@]/#data/./data}" --steps 4 --run runs/a --resume
expect_no_out 'differ now'

check "configurations with paths from the folder of the start still load"
sed "s|$here/||" runs/a/config.ini >relative.ini
succeeds train --config relative.ini --steps 3 --run runs/b

check "the plan says how it trains"
succeeds train "${options[@]}" --l2 0.01 --normalize range --dry-run
expect_out '^optimiser: adam, beta1 0.9, beta2 0.999, epsilon 1e-08$'
expect_out '^learning rate: cosine, 0.001 to 0, warm-up over 1 step$'
expect_out '^loss: softmax-cross-entropy, L2 0.01$'
expect_out '^input: normalisation affine\(.*\), augmentation none$'
