#!/usr/bin/env bash
# Predictions that a killed job has begun: another goes on with them, or starts over and says why.
# label: more
. "$(dirname "$0")/harness.sh"

pack_small data
pack_small data/validation --seed 7
# Enough for some seconds of two ranks: the first second is noted.
must_run train --data data --optimizer sgd --validation data/validation --hidden 1024,512 --batch 20 --steps 2 --progress off --run runs/wide
must_run pack --format synthetic --samples 16000 --features 20 --classes 5 --out large
large=(predict runs/wide --data large --batch 1)
check "a killed job goes on where it was, and the bytes are the same"
succeeds "${large[@]}" --out whole.h5
start -n 2 "${large[@]}" --out killed.h5
wait_for 30 test -s killed.h5.partial.progress
kill -9 $(ranks)
finish 20
expect_no_file killed.h5
succeeds -n 3 "${large[@]}" --out killed.h5
expect_out "going on behind the [0-9,]+ samples that an earlier job has left in killed.h5.partial"
expect cmp killed.h5 whole.h5
check "what another checkpoint has left is not gone on with"
start -n 2 "${large[@]}" --out other.h5
wait_for 30 test -s other.h5.partial.progress
kill -9 $(ranks)
finish 20
fails 2 "the run kept no average" "${large[@]}" --checkpoint latest --average --out other.h5
must_run train --data data --optimizer sgd --validation data/validation --hidden 16 --batch 20 --steps 30 --progress off --run runs/b
succeeds predict runs/b --data large --batch 1 --out other.h5
expect_no_out "going on"
check "a damaged part is started over, and said so"
start -n 2 "${large[@]}" --out damaged.h5
wait_for 30 test -s damaged.h5.partial.progress
kill -9 $(ranks)
finish 20
truncate -s 100 damaged.h5.partial
succeeds -n 2 "${large[@]}" --out damaged.h5
expect_no_out "going on"
expect_out "damaged.h5.partial, which an earlier job has left, is damaged: starting over"
expect cmp damaged.h5 whole.h5
check "two jobs into one file"
start "${large[@]}" --out shared.h5
wait_for 30 test -e shared.h5.partial
first=$job
"$lockstep" "${large[@]}" --out shared.h5 >second.out 2>second.err </dev/null
[ $? = 1 ] && grep -q "another process is writing shared.h5" second.err || failed "the second was not refused: $(cat second.err)"
finish 30
expect_status 0; expect cmp shared.h5 whole.h5
