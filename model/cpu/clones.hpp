/// \file
/// LOCKSTEP_CLONES before a function compiles it for several instruction sets and selects the best one at program
/// start. It does nothing on other processors and under sanitizers, which instrument the resolver before they are
/// initialised.
#pragma once

#include "model/cpu/instruction_sets.hpp"

#if LOCKSTEP_HAS_INSTRUCTION_SETS && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define LOCKSTEP_HAS_CLONES 1
#else
#define LOCKSTEP_CLONES
#define LOCKSTEP_HAS_CLONES 0
#endif

/// Marks a part of a cloned function: it is inlined and thus compiled for the instruction set of the clone.
#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

/// Marks a loop with independent iterations, if the compiler cannot know that its pointers do not overlap. Clang checks
/// the pointers at run time instead.
#ifdef __clang__
#define LOCKSTEP_INDEPENDENT
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif
