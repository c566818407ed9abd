#!/usr/bin/env bash
# An interrupted and resumed run equals an uninterrupted one.
# label: mpich
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test
options=(--data data --hidden 24,16 --optimizer adam --learning-rate 0.003 --schedule cosine --warmup-steps 5 --average-decay 0.99
  --global-batch 70 --report-every 1 --evaluate-every 10 --keep 9)
every_10=("${options[@]}" --checkpoint-every 10)


for n in 1 2 3; do
  check "40 steps are 20 and 20 more, bit by bit, on $n ranks"
  succeeds -n $n train "${every_10[@]}" --steps 40 --run runs/whole-$n
  succeeds -n $n train "${options[@]}" --steps 40 --run runs/parts-$n --checkpoint-every 20
  rm "$(newest_checkpoint runs/parts-$n)"  # as if it had died after step 20's
  succeeds -n $n train "${every_10[@]}" --steps 40 --run runs/parts-$n --resume
  expect_out 'continuing after step 20'
  expect_same_tensors "$(newest_checkpoint runs/whole-$n)" "$(newest_checkpoint runs/parts-$n)" 24
  metric runs/whole-$n train loss >whole; metric runs/parts-$n train loss >parts
  expect_same whole parts
done

check "schedules that were measured at the start are kept"
measured=("${every_10[@]}" --all-reduce measured --transport ring)
run -n 3 train "${measured[@]}" --steps 40 --stop-at 20 --run runs/measured
expect_status 75
limits=$(sed -n 's/^all-reduce = \([0-9]*,[0-9]*\)$/\1/p' runs/measured/config.ini)
[ -n "$limits" ] || failed "config.ini has no limits: $(grep all-reduce runs/measured/config.ini)"
expect_out "sums between hosts: .* \(--all-reduce $limits\)"
succeeds -n 3 train "${measured[@]}" --steps 40 --run runs/measured --resume
expect_out 'continuing after step 20'
expect_out "sums between hosts: .* \(--all-reduce $limits\)"
succeeds -n 3 train "${every_10[@]}" --all-reduce "$limits" --transport ring --steps 40 --run runs/given
expect_same_tensors "$(newest_checkpoint runs/measured)" "$(newest_checkpoint runs/given)" 24

check "another world size goes on with the same samples"
cp -r runs/whole-1 runs/grown
rm runs/grown/checkpoints/step-*[34]0.h5
succeeds -n 3 train "${every_10[@]}" --steps 40 --run runs/grown --resume
expect_out 'continuing after step 20'
expect_near <(metric runs/whole-1 train loss) <(metric runs/grown train loss) 1e-5

check "resume takes the newest that verifies and says which it did not"
cp -r runs/whole-1 runs/damaged
flip_byte "$(newest_checkpoint runs/damaged)" -200
truncate -s -100 runs/damaged/checkpoints/step-0000000030.h5
succeeds -n 2 train "${every_10[@]}" --steps 40 --run runs/damaged --resume
expect_out 'continuing after step 20'
expect grep -Eq 'step-0000000040\.h5' <(cat out err)
expect grep -Eq 'step-0000000030\.h5' <(cat out err)

check "resume from a named file into a new run"
succeeds train "${options[@]}" --steps 25 --run runs/branch --resume runs/whole-1/checkpoints/step-0000000020.h5
expect_out 'continuing after step 20'

check "resume where nothing is yet starts at the beginning"
succeeds train "${options[@]}" --steps 8 --run runs/nothing-yet --resume

check "a run that is complete has nothing left to do"
succeeds train "${options[@]}" --steps 40 --run runs/whole-1 --resume

check "a checkpoint that the owner before writes at the last moment is not lost"
cp -r runs/whole-1 runs/taken
rm runs/taken/checkpoints/step-*[34]0.h5
# The reader reads nothing of its program's output until the program has read its checkpoint and wants to report that;
# meanwhile the orphan writes.
python_script late_reader <<'END'
import fcntl, os, shutil, subprocess, sys, time
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.write(writer, b"x" * 4095 + b"\n")
job = subprocess.Popen(sys.argv[1:], stdout=writer)
os.close(writer)
stack = f"/proc/{job.pid}/syscall"  # write is 1
for _ in range(2000):
    if open(stack).read().startswith("1 0x1 "):
        break
    time.sleep(0.01)
else:
    sys.exit("the program does not wait to be read")
for name in ("metrics.jsonl", "checkpoints/step-0000000030.h5"):
    shutil.copy("runs/whole-1/" + name, "runs/taken/" + name)
with os.fdopen(reader, "rb") as pipe:
    sys.stdout.buffer.write(pipe.read())
sys.exit(job.wait())
END
succeeds -w ./late_reader train "${every_10[@]}" --steps 40 --run runs/taken --resume
expect_out 'continuing after step 20'
expect_out 'the owner before has written .*step-0000000030.h5 meanwhile'; expect_out 'continuing after step 30'
metric runs/whole-1 train loss >whole; metric runs/taken train loss >taken; expect_same whole taken
expect_same_tensors "$(newest_checkpoint runs/whole-1)" "$(newest_checkpoint runs/taken)" 24

check "a kill between a checkpoint and its line, or in the middle of a file, leaves no gap and no rest"
must_run train "${every_10[@]}" --steps 20 --run runs/killed
grep -v '"kind":"checkpoint"' runs/killed/metrics.jsonl >metrics && cp metrics runs/killed/metrics.jsonl
echo x >runs/killed/.owner.4711-0123456789abcdef.tmp
echo x >runs/killed/.metrics.jsonl.4711-0123456789abcdef.tmp
succeeds train "${every_10[@]}" --steps 30 --run runs/killed --resume
metric runs/killed checkpoint file >lines
printf "%s\n" "10 'step-0000000010.h5'" "20 'step-0000000020.h5'" "30 'step-0000000030.h5'" >expected
expect_same expected lines
[ -z "$(find runs/killed -name '*.tmp')" ] || failed "left: $(find runs/killed -name '*.tmp')"

check "a configuration whose data have lost their name goes on with those that are given"
sed -i 's/^data *=.*/data = ""/' runs/killed/config.ini
succeeds train --data data --steps 31 --run runs/killed --resume
expect_out 'continuing after step 30'
