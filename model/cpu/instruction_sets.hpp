/// \file
/// Functions for one instruction set, if clones of the same code (clones.hpp) do not suffice. LOCKSTEP_TARGET(set)
/// before a function compiles it for that set. Callers must check LOCKSTEP_SUPPORTS(set) first. Works under sanitizers,
/// too. LOCKSTEP_SUPPORTS is false on other processors, and with Clang before 19, which does not know the sets by name.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && (!defined(__clang__) || __clang_major__ >= 19)
#define LOCKSTEP_HAS_INSTRUCTION_SETS 1
#ifdef __clang__  // without min_vector_width Clang splits vectors of 64 bytes
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
