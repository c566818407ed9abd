/// \file
/// LOCKSTEP_HOST_DEVICE marks a short formula that kernels of a GPU and loops on the host share. It is always inlined,
/// because loops that are compiled for several instruction sets (cpu/clones.hpp) need that.
#pragma once

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HOST_DEVICE __attribute__((always_inline)) inline
#endif
