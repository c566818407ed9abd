#include "app/engine/allocation_count.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t count = 0;

}  // namespace

std::int64_t lockstep::app::allocations_of_this_thread() noexcept { return count; }

// Every other form of new and delete ends in these, except under sanitizers, which have each form of their own.
void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
