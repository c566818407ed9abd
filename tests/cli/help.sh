#!/usr/bin/env bash
# The program describes itself, and corrects those who mistype.
. "$(dirname "$0")/harness.sh"
launches_one=yes

check "the program's own help"
succeeds --help
expect_silence
for command in pack train eval "bench step" "bench scale" "bench all-reduce" "bench checkpoint" "bench input" check info export import; do expect_out "$command"; done
check "version"
succeeds --version
expect_out '^lockstep [0-9]+\.[0-9]+\.[0-9]+$'

for command in pack train eval "bench step" "bench scale" "bench all-reduce" "bench checkpoint" "bench input" check info export import; do
  check "help of $command"
  # shellcheck disable=SC2086  # "bench step" is two words
  succeeds $command --help
  expect_silence; expect_out '^Usage: .*lockstep'; expect_out '--'
  expect awk 'length($0) > 110 { exit 1 }' out
done

check "every option of train is in its help"
run train --help
for option in data validation model hidden optimizer learning-rate schedule warmup-steps batch global-batch epochs steps \
  seed run resume force checkpoint-every keep threads transport deadline dry-run config; do
  expect_out "--(\[no-\])?$option( |=|$)"
done

check "help is printed once under several ranks"
succeeds -n 3 train --help
[ "$(grep -c '^Usage' out)" = 1 ] || failed "the help was not printed exactly once"

check "no command"
run
expect_status 2; expect_err 'pack'
check "unknown command, with the nearest"
fails 2 "unknown command trian.*train" trian
for ranks in 1 3; do
  check "unknown option, with the nearest, on $ranks ranks"
  fails 2 "--learning-rat.*--learning-rate" -n $ranks train --data nowhere --learning-rat 0.1
  check "a value that is none, on $ranks ranks"
  fails 2 "--learning-rate.*fast" -n $ranks train --data nowhere --learning-rate fast
  check "a value outside its range, on $ranks ranks"
  fails 2 "--batch" -n $ranks train --data nowhere --batch 0
  check "a name that is none of the choices, on $ranks ranks"
  fails 2 "--optimizer.*adam" -n $ranks train --data nowhere --optimizer adamm
  check "options that contradict each other, on $ranks ranks"
  fails 2 "(--steps.*--epochs|--epochs.*--steps)" -n $ranks train --data nowhere --steps 5 --epochs 2
done
check "batch and global batch contradict each other"
fails 2 "--(global-)?batch.*--(global-)?batch" train --data nowhere --batch 5 --global-batch 20
check "a missing option"
fails 2 "--data" train
check "unknown key in the configuration file"
printf 'data = nowhere\nlearning_rat = 0.1\n' >bad.ini
fails 2 "bad\.ini.*learning.rat" train --config bad.ini
check "configuration file that is not there"
fails 2 "none\.ini" -n 2 train --config none.ini
