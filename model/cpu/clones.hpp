/// \file
/// LOCKSTEP_CLONES before a function compiles it for several instruction sets and picks the best one at start. Inactive
/// under sanitizers (they instrument the resolver before they are ready) and on other processors.
#pragma once

#include "model/cpu/instruction_sets.hpp"

#if LOCKSTEP_HAS_INSTRUCTION_SETS && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define LOCKSTEP_HAS_CLONES 1
#else
#define LOCKSTEP_CLONES
#define LOCKSTEP_HAS_CLONES 0
#endif

/// A piece of a cloned function: inlining compiles it for the clone's instruction set.
#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

/// Marks a loop with independent iterations, whose pointers the compiler cannot tell apart. Clang checks the pointers
/// at run time.
#ifdef __clang__
#define LOCKSTEP_INDEPENDENT
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif
