#!/usr/bin/env bash
# A job chooses its device: it says so without a GPU, and with one it refuses what GPUs cannot do. The second half needs
# a GPU and is otherwise skipped aloud; training on GPUs is tested in tests/gpu.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
train=(train --data data --optimizer sgd --hidden 16 --batch 25 --steps 8 --report-every 1)
nothing_but_cpus='device: cpu \(.+\)'

check "the version tells what was built and what is there"
succeeds --version
expect_silence
expect_out '^lockstep [0-9]+\.[0-9]+\.[0-9]+$'; expect_out '^(without CUDA|CUDA [0-9.]+ \(.+\), NCCL [0-9.]+)$'
expect_out '^(no GPU: .+|GPU 0: .+, compute capability [0-9]+\.[0-9]+)$'
has_gpu=$(grep -c '^GPU [0-9]' out)
no_gpu_because=$(sed -n 's/^no GPU: //p' out)
if [ "$has_gpu" = 0 ]; then [ -n "$no_gpu_because" ] || failed "no GPU and no reason"; fi

for n in 1 2; do
  check "the CPU, where told to, on $n ranks"
  succeeds -n $n "${train[@]}" --device cpu --run runs/cpu-$n
  expect_no_out "$nothing_but_cpus"; expect_out ' cpu \(1 thread\) '
  metric runs/cpu-$n train loss >cpu-$n
  check "the CPU has no tf32, on $n ranks"
  fails 2 "--precision tf32 .*CPUs compute in fp32" -n $n "${train[@]}" --device cpu --precision tf32 --run runs/none; expect_no_file runs/none
  check "fp32 on the CPU is no contradiction, on $n ranks"
  succeeds -n $n "${train[@]}" --device cpu --precision fp32 --run runs/fp32-$n
  metric runs/fp32-$n train loss | cmp -s - cpu-$n || failed "another loss curve"
done
check "NCCL's interfaces are nobody's business on the CPU"
NCCL_SOCKET_IFNAME=nosuch0 run -n 2 "${train[@]}" --device cpu --run runs/interface
expect_status 0
check "options of GPUs contradict the CPU"
for option in --ring --nvls --no-cudnn-attention --no-graph --share-gpu; do
  fails 2 "^lockstep train: $option has an effect only with --device auto or gpu" "${train[@]}" --device cpu $option --run runs/none
done

check "a plan for GPUs needs none"
unset NCCL_NVLS_ENABLE
succeeds -n 2 "${train[@]}" --device gpu --dry-run
expect_silence; expect_out '^device: gpu \(a plan: no GPU was looked at\)$'; expect_out '^all-reduce: nccl'
expect_out '^memory per rank: .* input'
expect_out '^all-reduce: nccl \(without NVLS, whose sums do not repeat bit for bit\), '
run -n 2 "${train[@]}" --device gpu --nvls --dry-run
expect_out '^all-reduce: nccl \(with NVLS: runs may differ in the last bits\), '
NCCL_NVLS_ENABLE=0 run -n 2 "${train[@]}" --device gpu --nvls --dry-run
expect_out '^all-reduce: nccl \(without NVLS'

if [ "$has_gpu" != 0 ]; then
  echo "NOT RUN, for there is a GPU here: what a job says where there is none"
  check "a GPU that is hidden"
  CUDA_VISIBLE_DEVICES=9999 run "${train[@]}" --device gpu --run runs/none
  expect_error 1 "CUDA_VISIBLE_DEVICES is '9999'"; expect_no_file runs/none
  check "hiding all GPUs leaves the CPU"
  CUDA_VISIBLE_DEVICES="" run -n 2 "${train[@]}" --run runs/hidden
  expect_status 0; expect_out "^$nothing_but_cpus\$"
  metric runs/hidden train loss | cmp -s - cpu-2 || failed "another loss curve"
  check "one rank sees a GPU and the other does not"
  script hide_from_1 <<'END'
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export CUDA_VISIBLE_DEVICES=""
exec "$@"
END
  fails 1 "--device auto: rank 1 on .* sees no GPU \(.*\), while rank 0 on .* does; --device cpu" -n 2 -w ./hide_from_1 "${train[@]}" --run runs/none
  expect_no_file runs/none
  check "two ranks on one GPU"
  CUDA_VISIBLE_DEVICES=0 run -n 2 "${train[@]}" --run runs/none
  expect_error 1 "ranks 0-1 on .* would share one GPU, .*CUDA_VISIBLE_DEVICES is '0' for each.*--share-gpu"; expect_no_file runs/none
  check "more memory than the GPU has"
  fails 1 "out of GPU memory before the start: .*parameters .*gradients .*free" \
    train --data data --optimizer sgd --hidden 100000,100000,100000 --steps 1 --run runs/none
  exit 0
fi
echo "NOT RUN, there is no GPU: hidden GPUs, shared GPUs, ranks with and without, too little memory"

# The reason that --version gave, as a regular expression.
reason=$(printf '%s' "$no_gpu_because" | sed 's/[][().*^$?+{}|\\]/\\&/g')
for n in 1 2 3; do
  check "no GPU where one is asked for, on $n ranks"
  fails 1 "^lockstep train: error: --device gpu: .* no GPU \($reason\); --device cpu computes without one" \
    -n $n "${train[@]}" --device gpu --run runs/none
  expect_no_file runs/none
  [ $n = 1 ] || expect_err "ranks 0-$((n - 1)) on .* see no GPU"
  fails 1 "^lockstep eval: error: --device gpu: .* no GPU \($reason\)" -n $n eval runs/cpu-1 --device gpu
  fails 1 "^lockstep bench step: error: --device gpu: .* no GPU \($reason\)" -n $n bench step --device gpu --hidden 8 --batch 8 --warmup 1 --repeat 1
done
for n in 1 2; do
  check "the CPU, where there is nothing else, on $n ranks"
  succeeds -n $n "${train[@]}" --run runs/auto-$n
  expect_silence
  [ "$(grep -Ec "^device: cpu \($reason\)\$" out)" = 1 ] || failed "the device is not told once"
  expect grep -Eq "^$nothing_but_cpus\$" runs/auto-$n/log.txt
  expect grep -Fxq 'device = auto' runs/auto-$n/config.ini
  metric runs/auto-$n train loss | cmp -s - cpu-$n || failed "another loss curve than with --device cpu"
  check "a precision that nothing here has, on $n ranks"
  fails 1 "--precision tf32 needs a GPU, and there is none \($reason\): CPUs compute in fp32" -n $n "${train[@]}" --precision tf32 --run runs/none
  expect_no_file runs/none
  check "variables for GPUs do no harm where there are none, on $n ranks"
  CUDA_VISIBLE_DEVICES=9 NCCL_SOCKET_IFNAME=nosuch0 run -n $n "${train[@]}" --run runs/variables-$n
  expect_status 0; expect_out "^$nothing_but_cpus\$"
done
check "eval and bench step take the CPU as well"
succeeds -n 2 eval runs/auto-2
expect_silence
succeeds bench step --hidden 8 --batch 8 --warmup 1 --repeat 2

for n in 1 2; do
  check "what no host has memory for is refused before it is taken, on $n ranks"
  fails 1 "out of memory before the start: .* of memory, and the host has .*: take a smaller network" \
    -n $n train --data data --optimizer sgd --hidden 1000000,1000000 --run runs/none
  expect_no_file runs/none
  fails 1 "out of memory before the start" -n $n bench all-reduce --max 1000000000000 --algorithms ring
done
