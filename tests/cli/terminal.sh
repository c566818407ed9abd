#!/usr/bin/env bash
# A terminal shows lines that fit and colours unless NO_COLOR forbids them; the log has the long form.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
train=("$lockstep" train --data data --hidden 8 --batch 20 --epochs 2 --progress off)

check "at 100 columns a report is one line, and the log has all of it"
TERM=xterm NO_COLOR=1 on_terminal 100 "${train[@]}" --run runs/a
expect_status 0
expect_out '^step 30/60  epoch 1\.00  loss [0-9.]+  accuracy [0-9.]+ %'
expect_out '^step 60/60  .*left 0:00$'; expect_no_out 'compute [0-9]+ %  communication [0-9]+ %  other [0-9]+ %  left'
[ -z "$(grep -E '^(step|validation) ' out | awk 'length > 100')" ] || failed "a line is longer than the terminal"
expect grep -Eq '^step 60/60 .*lr 0\.001 .*/rank\)  input .* other [0-9]+ %  left 0:00$' runs/a/log.txt
expect grep -Eq '^validation at step 60: .* samples\)  in [0-9.]+ s  training in the 30 steps before: loss' runs/a/log.txt
expect_no_out $'\x1b'

check "the end has a table"
expect_out '^ +step +loss +accuracy$'; expect_out '^training +60 '; expect_out '^validation +60 '; expect_out '^the best +[36]0 '

check "colours, where the terminal has them and NO_COLOR is not set"
NO_COLOR="" TERM=xterm on_terminal 100 "${train[@]}" --run runs/b
expect_out $'^\x1b\\[1mstep 30/60\x1b\\[0m'; expect_out $'^\x1b\\[1;32mvalidation at step'
! grep -q $'\x1b' runs/b/log.txt || failed "the log has colours"
TERM=dumb on_terminal 100 "${train[@]}" --run runs/c
expect_no_out $'\x1b'
run train --data data --hidden 8 --batch 20 --epochs 2 --run runs/d
expect_no_out $'\x1b'; expect_out '^step 60/60 .*other [0-9]+ %  left 0:00$'

check "the bar, in place, means by loss what the line means"
TERM=xterm on_terminal 100 "$lockstep" train --data data --hidden 8 --batch 20 --epochs 600 --l2 0.1 --report-every 100000 --run runs/e
expect_status 0
expect grep -q $'\r' out

check "two ranks are told where one would be faster, with figures"
succeeds -n 2 train --data data --hidden 4 --batch 2 --steps 400 --transport ring --progress off --run runs/f
if grep -q '^one rank would be faster' out; then
  expect_out '^one rank would be faster: about [0-9.e-]+ ms for a step, .* these took [0-9.e-]+ ms, of which [0-9.e-]+ ms went into'
fi
share=$(sed -n 's/^time in steps:.*communication \([0-9]*\) %.*/\1/p' out)
[ "$share" -lt 60 ] || expect_out '^one rank would be faster'
run train --data data --hidden 4 --batch 4 --steps 400 --progress off --run runs/g
expect_no_out 'one rank would be faster'

check "files of others have no checksums to verify"
python3 - <<'PYTHON'
import h5py, numpy
with h5py.File("own.h5", "w") as f:
    f["x"], f["y"] = numpy.random.rand(60, 5).astype("f4"), numpy.arange(60, dtype="i4") % 3
PYTHON
succeeds train --data own.h5 --hidden 4 --batch 4 --steps 4 --progress off --run runs/h
expect_no_out 'checksums of'
run train --data data --hidden 4 --batch 4 --steps 4 --progress off --run runs/i
expect_out '^checksums of .* verified'

check "a file behind mpirun gets whole lines, also where shells stand between"
script between '"$@"'
for agree in "" "--agree quorum=2"; do
  succeeds -n 2 -w ./between train --data data --hidden 8 --batch 20 --epochs 2 --progress off $agree --run "runs/between$agree"
  expect_out '^checkpoint .*  in .*without training$'; expect_out '^done at step .* checkpoint .*\.h5$'
done
