/// \file
/// Code for one instruction set, for cases that need more than clones of the same text (clones.hpp):
/// LOCKSTEP_TARGET(set) before a function compiles it for that set alone. Its callers check LOCKSTEP_SUPPORTS(set)
/// first. Works under sanitizers, too. Nothing is supported on other processors, or by Clang before 19, which does not
/// know the sets by name.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && (!defined(__clang__) || __clang_major__ >= 19)
#define LOCKSTEP_HAS_INSTRUCTION_SETS 1
#ifdef __clang__  // Clang splits vectors of 64 bytes unless told that they are wanted
#define LOCKSTEP_TARGET(set) __attribute__((target("arch=" set), min_vector_width(512)))
#else
#define LOCKSTEP_TARGET(set) __attribute__((target("arch=" set)))
#endif
#define LOCKSTEP_SUPPORTS(set) (__builtin_cpu_init(), __builtin_cpu_supports(set) != 0)
#else
#define LOCKSTEP_HAS_INSTRUCTION_SETS 0
#define LOCKSTEP_TARGET(set)
#define LOCKSTEP_SUPPORTS(set) false
#endif
