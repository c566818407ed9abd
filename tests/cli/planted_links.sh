#!/usr/bin/env bash
# Links, pipes and devices stand in place of a run's files: the run changes nothing of others, and waits for nothing for
# ever.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
options=(train --data data --optimizer sgd --hidden 8 --batch 20 --progress off)
must_run "${options[@]}" --steps 4 --run runs/victim
cp -r runs/victim kept
must_run "${options[@]}" --steps 4 --run runs/other

# unchanged: the victim's folder is unaltered.
unchanged() { diff -r kept runs/victim >out 2>err || failed "the other run has changed"; }

check "checkpoints that are a link to another run's are not removed"
rm -r runs/other/checkpoints
ln -s ../victim/checkpoints runs/other/checkpoints
for how in --force --resume; do
  fails 1 'runs/other/checkpoints is a link' "${options[@]}" --steps 8 --keep 1 --run runs/other "$how"
  unchanged
done

check "logs that are links are not written through"
for name in log.txt metrics.jsonl; do
  rm -rf runs/other
  must_run "${options[@]}" --steps 4 --run runs/other
  ln -sf ../victim/$name runs/other/$name
  fails 1 "runs/other/$name: it is a link" "${options[@]}" --steps 8 --run runs/other --resume
  unchanged
done

check "a sweep's words do not go through a link"
echo "--epochs 1 --hidden 4" >settings
mkdir -p runs/sweep/sweep
ln -s ../../victim/log.txt runs/sweep/sweep/setting-1.txt
fails 1 'setting-1.txt: it is a link' sweep settings --data data --run runs/sweep
unchanged

check "pipes hold up nobody"
for name in owner config.ini metrics.jsonl log.txt; do
  rm -rf runs/other
  must_run "${options[@]}" --steps 4 --run runs/other
  rm runs/other/$name
  mkfifo runs/other/$name
  for command in "info runs/other" "report runs/other" "${options[*]} --steps 8 --run runs/other --resume"; do
    # shellcheck disable=SC2086  # words
    start $command
    finish 20
    [ "$status" -lt 124 ] || failed "$command waits for $name"
  done
done
