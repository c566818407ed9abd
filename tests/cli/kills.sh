#!/usr/bin/env bash
# A run survives kill -9 at random moments, of one rank or of all, while it writes checkpoints beside the training, in
# one file and in parts: every checkpoint that it called safe is there, and after all kills the run has every bit of an
# undisturbed one. KILLS: their number (kills_many.sh: 200). SEED: for the moments.
# label: more
. "$(dirname "$0")/harness.sh"
kills=${KILLS:-8}
RANDOM=${SEED:-1}
pack_small data/train
pack_small data/test
options=(train --data data --hidden 200,100 --optimizer adam --learning-rate 0.001 --global-batch 70 --report-every 1
  --evaluate-every 100 --checkpoint-every 10 --keep 2 --progress off --no-tensorboard)
steps=600

no_ranks() { [ -z "$(ranks)" ]; }
# killed_once FOLDER OPTIONS...: one attempt that goes on from the last; sets $ended if it ended by itself.
killed_once() {
  local folder=$1 pids victims safe newest
  shift
  ended=""
  start -n 3 "${options[@]}" --steps $steps --run "$folder" --resume "$@"
  sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
  mapfile -t pids < <(ranks)
  victims=("${pids[@]}")
  [ $((RANDOM % 3)) = 0 ] || victims=("${pids[$((RANDOM % (${#pids[@]} > 0 ? ${#pids[@]} : 1)))]:-}")
  [ -z "${victims[*]}" ] || kill -9 ${victims[*]} 2>/dev/null
  wait_for 60 no_ranks
  # A launcher whose rank dies during the start may say "PMIX ERROR: UNREACHABLE" and stay, alone.
  for ((waited = 0; waited < 500; ++waited)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.02
  done
  if kill -0 "$job" 2>/dev/null; then
    stuck_launchers=$((stuck_launchers + 1))
    kill_job
  fi
  finish 60
  if [ "$status" = 0 ]; then
    ended=yes
    return
  fi
  done_kills=$((done_kills + 1))
  # Open MPI's mpirun itself may crash in its last act, after its ranks: its lines begin with its host and process.
  crashed=$(sed -nE 's/^(\[[^]]*\]) .*mpirun\(.*/\1/p' err | head -n 1)
  crashes=$(grep -E 'Aborted|Segmentation|logic_error|is corrupted' out err | grep -v -F "${crashed:-no launcher}")
  [ -z "$crashes" ] || failed "${crashes%%$'\n'*}"
  safe=$(sed -n 's/^checkpoint .*step-0*\([0-9]*\)\.h5  in .*/\1/p' out | tail -n 1)
  newest=$(newest_checkpoint "$folder" 2>/dev/null)
  # Counts the writes that the kill interrupted: a file, or parts that are not joined yet.
  unfinished=$((unfinished + $(find "$folder" -name '.step-*.tmp' 2>/dev/null | wc -l)))
  while read -r parts; do
    [ -e "${parts%.parts-*}.h5" ] || unfinished=$((unfinished + 1))
  done < <(find "$folder" -name 'step-*.parts-*' -type d 2>/dev/null)
  if [ -n "$newest" ]; then
    [ "$(basename "$newest" .h5 | sed 's/step-0*//')" -ge "${safe:-0}" ] || failed "step $safe was said to be safe, and $newest is the newest"
    "$lockstep" info "$newest" >verified 2>&1 || failed "$newest: $(tail -n 1 verified)"
  elif [ -n "$safe" ]; then
    failed "step $safe was said to be safe, and nothing is there"
  fi
}

succeeds -n 3 "${options[@]}" --steps $steps --run runs/whole
done_kills=0 round=0 unfinished=0 stuck_launchers=0
while [ $done_kills -lt "$kills" ]; do
  for way in "1" "3" "3 --shard-optimizer"; do
    read -r writers shared <<<"$way"
    folder=runs/round-$round-$writers$shared
    check "round $round, --checkpoint-writers $way, after $done_kills kills"
    limit=$((kills / 6 + 1))  # attempts in a chain
    for ((i = 0; i < limit; ++i)); do
      killed_once "$folder" --checkpoint-writers "$writers" $shared
      [ -z "$ended" ] || break
    done
    succeeds -n 3 "${options[@]}" --steps $steps --run "$folder" --resume --checkpoint-writers "$writers" $shared
    expect_same_tensors "$(newest_checkpoint runs/whole)" "$(newest_checkpoint "$folder")" 18
    metric runs/whole train loss >whole
    metric "$folder" train loss | expect_same whole -
    [ -z "$(find "$folder/checkpoints" -name '*.tmp')" ] || failed "left behind: $(ls -A "$folder/checkpoints")"
    for parts in "$folder"/checkpoints/*.parts-*; do
      [ ! -e "$parts" ] || [ -e "${parts%.parts-*}.h5" ] || failed "parts without a checkpoint: $(ls "$folder/checkpoints")"
    done
    [ "$(find "$folder/checkpoints" -name 'step-*.h5' | wc -l)" -le 3 ] || failed "more than two and the best: $(ls "$folder/checkpoints")"
    rm -rf "$folder"
  done
  round=$((round + 1))
done
echo "$done_kills kills, of which $unfinished fell into the writing of a checkpoint; $stuck_launchers launchers stayed behind"
[ "$kills" -lt 100 ] || [ $unfinished -gt 10 ] || failed "too few to have tested anything"
