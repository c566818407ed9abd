/// \file
/// LOCKSTEP_HOST_DEVICE marks a formula of a few operations: one source for the kernels of a GPU and for loops on the
/// host. Always inlined, because a loop that is compiled for several instruction sets (cpu/clones.hpp) needs it so.
#pragma once

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HOST_DEVICE __attribute__((always_inline)) inline
#endif
