/// \file
/// The memory of Communicator::reduction_memory, in steps of 256 bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::comm {

inline constexpr std::size_t kReductionAlignment = 256;

/// Size of an allocation of `bytes`.
constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kReductionAlignment - 1) / kReductionAlignment * kReductionAlignment;
}

/// Hands out one block from front to back; freed memory is not reused while the resource exists.
class ReductionMemory final : public std::pmr::memory_resource {
 public:
  /// `begin` is aligned to kReductionAlignment; `release` frees the block.
  ReductionMemory(std::byte* begin, std::size_t bytes, std::function<void()> release);
  ~ReductionMemory() override;
  ReductionMemory(const ReductionMemory&) = delete;
  ReductionMemory& operator=(const ReductionMemory&) = delete;

  std::span<const std::byte> block() const noexcept { return {begin_, bytes_}; }
  std::span<std::byte> writable_block() noexcept { return {begin_, bytes_}; }
  /// Calls `release`, too, before the block is freed.
  void on_release(std::function<void()> release) { releases_.push_back(std::move(release)); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::byte* begin_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::vector<std::function<void()>> releases_;
};

/// Plain memory of this process, for transports that need no special memory.
std::unique_ptr<ReductionMemory> plain_reduction_memory(std::size_t bytes);

}  // namespace lockstep::comm
