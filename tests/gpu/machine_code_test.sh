#!/bin/bash
# machine_code_test.sh PYTHON NVCC: tests each rule of machine_code.py with a kernel that breaks it.
. "$(dirname "$0")/checker_harness.sh"

# look NAME STATUS TEXT: compiles NAME.cu; the program must end with STATUS and print TEXT.
look() {
  cat > "$folder/compile_commands.json" <<JSON
[{"directory": "$folder", "file": "$folder/$1.cu",
  "command": "$nvcc --generate-code=arch=compute_80,code=[sm_80] -x cu -c $folder/$1.cu -o $folder/$1.o"}]
JSON
  judge "$1" "$2" "$3" machine_code.py "$folder"
}

cat > "$folder/whole.cu" <<'CU'
__global__ void whole(const uint4* x, uint4* y) { y[threadIdx.x] = x[threadIdx.x]; }
CU
cat > "$folder/apart.cu" <<'CU'
__global__ void apart(const uint4* x, unsigned short* y) {
  const uint4 pack = x[threadIdx.x];
  y[threadIdx.x * 3] = pack.x + pack.z;
  y[threadIdx.x * 3 + 1] = pack.y + pack.w;
}
CU
cat > "$folder/scattered.cu" <<'CU'
// The 2-byte stores stand in a block of their own, but there are more than one pack has.
__global__ void scattered(unsigned short* y, int wide) {
  if (wide) {
    *reinterpret_cast<uint4*>(y + threadIdx.x * 8) = uint4{};
  } else {
#pragma unroll
    for (int k = 0; k < 17; ++k) y[threadIdx.x * 17 + k] = k;
  }
}
CU
cat > "$folder/greedy.cu" <<'CU'
// A hundred values that live at once, in a kernel that shall leave room for others.
template <int kWidth, class T>
__global__ void add_runs(float* x, int rounds) {
  float all[100];
#pragma unroll
  for (int i = 0; i < 100; ++i) all[i] = x[i];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 100; ++i) all[i] = all[i] * all[(i * 37 + 11) % 100] + x[round];
  }
#pragma unroll
  for (int i = 0; i < 100; ++i) x[i] = all[i];
}
template __global__ void add_runs<8, int>(float*, int);
CU
echo 'this is no program' > "$folder/broken.cu"

NVDISASM=/nowhere look whole 77 "there is no nvdisasm"
"$python" "$here/machine_code.py" "$folder" > /dev/null 2>&1
if [ $? = 77 ]; then
  [ $failures = 0 ] && echo "not run but for its absence: there is no nvdisasm" && exit 77
  exit 1
fi
look whole 0 "1 kernels, 0 problems"
look apart 1 "apart(uint4 const*, unsigned short*): 2 global stores of 2 bytes beside 1 loads of 16"
look scattered 1 "17 global stores of 2 bytes, 1 of 16"
look greedy 1 "registers: 4 blocks of 256 threads leave 64"
look broken 2 "does not compile"
exit $failures
