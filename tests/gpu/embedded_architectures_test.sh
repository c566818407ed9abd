#!/bin/bash
# embedded_architectures_test.sh PYTHON NVCC: objects that lack an architecture, have one too many, or have none.
. "$(dirname "$0")/checker_harness.sh"

# look FILE STATUS TEXT ARCHITECTURE...
look() {
  judge "$1 ${*:4}" "$2" "$3" embedded_architectures.py "$1" "${@:4}"
}

echo '__global__ void plain(float* x) { x[threadIdx.x] *= 2; }' > "$folder/plain.cu"
"$nvcc" --generate-code=arch=compute_80,code=[sm_80] -c "$folder/plain.cu" -o "$folder/one.o" &&
  "$nvcc" --generate-code=arch=compute_80,code=[sm_80] --generate-code=arch=compute_90,code=[sm_90,compute_90] \
    -c "$folder/plain.cu" -o "$folder/all.o" || exit 1
echo 'int main() {}' > "$folder/none.cpp"
c++ -c "$folder/none.cpp" -o "$folder/none.o" || exit 1
# Bytes that only resemble the beginning of a fat binary are not counted.
{ cat "$folder/none.o"; printf '\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff\xff\xff\xff\xff\xff\x7f'; } > "$folder/torn.o"
cat "$folder/torn.o" "$folder/all.o" > "$folder/hidden.o"

look "$folder/all.o" 0 "machine code for sm_80, machine code for sm_90, PTX for compute_90" 80-real 90-real 90-virtual
look "$folder/all.o" 0 "" 80-real 90
look "$folder/hidden.o" 0 "1 fat binaries" 80-real 90
look "$folder/one.o" 1 "lacks machine code for sm_90, PTX for compute_90" 80-real 90-real 90-virtual
look "$folder/all.o" 1 "lacks PTX for compute_80" 80 90
look "$folder/all.o" 1 "also has PTX for compute_90" 80-real 90-real
look "$folder/none.o" 1 "no code for any GPU" 80-real
look "$folder/torn.o" 1 "no code for any GPU" 80-real
look "$folder/missing.o" 2 "No such file" 80-real
look "$folder/all.o" 2 "'native' is no architecture" native
exit $failures
