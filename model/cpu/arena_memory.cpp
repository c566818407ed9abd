#include "model/cpu/arena_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kCacheFriendly = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Below a few huge pages, rounding up wastes more memory than it saves in TLB misses.
std::size_t alignment_for(std::size_t bytes, std::size_t alignment) {
  return std::max({alignment, kCacheFriendly, bytes >= 2 * kHugePage ? kHugePage : std::size_t{1}});
}

}  // namespace

void* ArenaMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t unit = alignment_for(bytes, alignment);
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
  void* block = std::aligned_alloc(unit, rounded);
  if (block == nullptr) throw std::bad_alloc();
  // This is only advice: a system may ignore it and use small pages.
  if (unit >= kHugePage) static_cast<void>(madvise(block, rounded, MADV_HUGEPAGE));
  return block;
}

void ArenaMemory::do_deallocate(void* block, std::size_t, std::size_t) { std::free(block); }

bool ArenaMemory::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const ArenaMemory*>(&other) != nullptr;
}

}  // namespace lockstep::model::cpu
