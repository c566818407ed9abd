#!/usr/bin/env bash
# A rank that never reaches the start: one message of ours in time, from any rank that notices.
# seconds: 600
# waits
# openmpi: its options and messages
. "$(dirname "$0")/harness.sh"
pack_small data/train
nodes 3
train=(train --data data --optimizer sgd --hidden 16 --batch 20 --device cpu --deadline 5)
slots=node1:1,node2:1,node3:1

# A rank that stops before or somewhere inside MPI_Init.
cat >stops <<'END'
#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" = "$STOPS" ]; then
  if [ "$AFTER" = 0 ]; then kill -STOP $$; else (sleep "$AFTER"; kill -STOP $$) & fi
fi
exec "$@"
END
chmod +x stops
for case in "1 0" "0 0" "1 0.03" "1 0.1" "0 0.2"; do
  read -r STOPS AFTER <<<"$case"
  export STOPS AFTER
  check "rank $STOPS is stopped ${AFTER} s after its start"
  start -H $slots -m "-x STOPS -x AFTER" -w "$work/stops" "${train[@]}" --steps 100000000 --run "runs/stops-$STOPS-$AFTER"
  fails_at_start "rank [012].*(MPI_[A-Z][a-z_]+ has not returned for 20 s|has not introduced itself|has not arrived)"
done
unset STOPS AFTER

check "afterwards all is well"
run -H $slots "${train[@]}" --steps 20 --run runs/well
expect_status 0
expect_silence
nobody_remains 10 head $(all_nodes)
