#!/bin/bash
# ptxas_report_test.sh PYTHON NVCC: the report finds a kernel that spills registers, has a stack frame, or does not
# compile.
. "$(dirname "$0")/checker_harness.sh"

# report NAME STATUS TEXT OPTION [REPORT OPTION...]: compiles NAME.cu with OPTION; the report must end with STATUS and
# print TEXT.
report() {
  cat > "$folder/compile_commands.json" <<JSON
[{"directory": "$folder", "file": "$folder/$1.cu",
  "command": "$nvcc --generate-code=arch=compute_80,code=[sm_80] --generate-code=arch=compute_90,code=[sm_90] $4 -x cu -c $folder/$1.cu -o $folder/$1.o"},
 {"directory": "$folder", "file": "$folder/$1.cu", "command": "/usr/bin/c++ -x c++ -c $folder/$1.cu -o other.o"}]
JSON
  judge "$1" "$2" "$3" ptxas_report.py "$folder" "${@:5}"
}

cat > "$folder/plain.cu" <<'CU'
__global__ void plain(float* x) { x[threadIdx.x] *= 2; }
CU
cat > "$folder/greedy.cu" <<'CU'
// A hundred values that all live from one round to the next, in the registers that -maxrregcount leaves.
__global__ void greedy(float* x, int rounds) {
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
CU
cat > "$folder/framed.cu" <<'CU'
// An array with indices that only the running kernel knows: it cannot be in registers.
__global__ void framed(float* x, const int* at, int count) {
  float all[64];
  for (int i = 0; i < 64; ++i) all[i] = x[i];
  for (int k = 0; k < count; ++k) all[at[k] & 63] += all[at[k + 1] & 63];
  for (int i = 0; i < 64; ++i) x[i] = all[i];
}
CU
echo 'this is no program' > "$folder/broken.cu"

report plain 0 "2 kernels, no stack frame, no spilled register" ""
report greedy 1 "greedy(float*, int) for sm_90 has a stack frame of" "-maxrregcount=32"
report greedy 1 "greedy(float*, int) for sm_80 has a stack frame of" "-maxrregcount=32"
report framed 1 "framed(float*, int const*, int) for sm_80 has a stack frame of 256 bytes and spills registers (0 bytes" ""
report greedy 1 "greedy(float*, int) for sm_75 has a stack frame of" "-maxrregcount=32" .cu --for 75
report framed 0 "1 kernels, no spilled register" "" .cu --for 75
report broken 2 "does not compile" ""
rm "$folder/compile_commands.json"
if "$python" "$here/ptxas_report.py" "$folder" > /dev/null 2>&1; then echo "no list of compilations: passed"; failures=1; fi
exit $failures
