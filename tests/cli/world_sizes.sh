#!/usr/bin/env bash
# A run's results do not depend on the number of ranks; only its time does.
# label: more
. "$(dirname "$0")/harness.sh"
launches_one=yes
pack_small data/train
pack_small data/test

# Neither 600 by 90 nor every step's share by 2, 3 and 4 ranks divides evenly: the test includes short steps and unequal
# ranks.
for n in 1 2 3 4; do
  for transport in shared-memory ring mpi; do
    check "the same loss curve on $n ranks over $transport"
    succeeds -n $n train --data data --hidden 32,16 --global-batch 90 --epochs 4 --learning-rate 0.05 --optimizer momentum \
      --report-every 1 --transport $transport --run runs/$n-$transport
    metric runs/$n-$transport train loss >curve.$n-$transport
    [ "$(wc -l <curve.$n-$transport)" = 28 ] || failed "28 steps expected"
    expect_near curve.1-shared-memory curve.$n-$transport 2e-6
  done
done

check "the same evaluation, to the last bit"
succeeds eval runs/1-ring --evaluation-batch 7
cp out alone
for n in 2 3 4; do
  succeeds -n $n eval runs/1-ring --evaluation-batch 7
  expect_same alone out
done

check "accumulation is the same mean"
succeeds -n 2 train --data data --hidden 32,16 --global-batch 90 --accumulate 3 --epochs 4 --learning-rate 0.05 --optimizer momentum \
  --report-every 1 --run runs/accumulate
expect_near curve.1-shared-memory <(metric runs/accumulate train loss) 2e-6

check "more ranks than samples in a step"
succeeds -n 4 train --data data --optimizer sgd --hidden 8 --global-batch 3 --steps 5 --run runs/few
