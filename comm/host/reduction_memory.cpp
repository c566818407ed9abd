#include "comm/host/reduction_memory.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace lockstep::comm {

ReductionMemory::ReductionMemory(std::byte* begin, std::size_t bytes, std::function<void()> release)
    : begin_(begin), bytes_(bytes), releases_{std::move(release)} {}

ReductionMemory::~ReductionMemory() {
  while (!releases_.empty()) releases_.back()(), releases_.pop_back();
}

void* ReductionMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment > kReductionAlignment) throw std::invalid_argument("reduction memory is aligned to 256 bytes at most");
  if (bytes > bytes_ - used_) throw std::bad_alloc();
  std::byte* const result = begin_ + used_;
  used_ += std::min(rounded_up(bytes), bytes_ - used_);
  return result;
}

std::unique_ptr<ReductionMemory> plain_reduction_memory(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  auto* const block = static_cast<std::byte*>(::operator new (size, std::align_val_t{kReductionAlignment}));
  return std::make_unique<ReductionMemory>(
      block, size, [block] { ::operator delete (block, std::align_val_t{kReductionAlignment}); });
}

}  // namespace lockstep::comm
