/// \file
/// Memory of tensors on the host.
#pragma once

#include <memory_resource>

namespace lockstep::model::cpu {

/// Allocates from the system, at least 256-byte aligned. Requests huge pages for large blocks, so that a TLB entry
/// covers 2 MiB instead of 4 KiB.
class ArenaMemory final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;
};

}  // namespace lockstep::model::cpu
