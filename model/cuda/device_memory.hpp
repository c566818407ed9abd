/// \file
/// Memory of one GPU, and pinned host memory.
#pragma once

#include <memory_resource>

namespace lockstep::model::cuda {

/// Allocates by cudaMalloc, 256-byte aligned. Allocating and freeing wait for the device, so do not use them in every
/// step. allocate() throws DeviceError if memory is short, with the requested and the free amount and a remedy.
class DeviceMemory final : public std::pmr::memory_resource {
 public:
  explicit DeviceMemory(int device) : device_(device) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  int device_;
};

/// Pinned (page-locked) host memory, for every GPU of the process. Thread-safe.
class PinnedMemory final : public std::pmr::memory_resource {
 public:
  explicit PinnedMemory(int device) : device_(device) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  int device_;
};

/// Owns one block of a memory resource.
class Block {
 public:
  Block() = default;
  Block(std::pmr::memory_resource& memory, std::size_t bytes);
  ~Block();
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    swap(other);
    return *this;
  }

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void swap(Block& other) noexcept;

  std::pmr::memory_resource* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::model::cuda
