#include "model/cuda/device_memory.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/cuda/handles.hpp"
#include "model/device.hpp"

namespace lockstep::model::cuda {

namespace {

constexpr std::size_t kAlignment = 256;  // cudaMalloc guarantees it; cudaHostAlloc returns whole pages

void require_alignment(std::size_t alignment) {
  if (alignment > kAlignment) throw std::invalid_argument("memory of a GPU is aligned to 256 bytes, no further");
}

std::string in_mebibytes(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20); }

}  // namespace

void* DeviceMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  require_alignment(alignment);
  check(cudaSetDevice(device_), "choosing it");
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, std::max<std::size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t available = 0, total = 0;
    check(cudaMemGetInfo(&available, &total), "asking for its free memory");
    throw DeviceError(
        fmt::format("{} is out of memory: {} were wanted, {} of {} are free. A smaller --batch needs less; "
                    "nvidia-smi shows who else uses this GPU",
                    describe_current_device(), in_mebibytes(bytes), in_mebibytes(available), in_mebibytes(total)));
  }
  check(error, "allocating memory");
  return block;
}

void DeviceMemory::do_deallocate(void* block, std::size_t, std::size_t) {
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaFree(block));
}

bool DeviceMemory::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* memory = dynamic_cast<const DeviceMemory*>(&other);
  return memory != nullptr && memory->device_ == device_;
}

void* PinnedMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  require_alignment(alignment);
  check(cudaSetDevice(device_), "choosing it");
  void* block = nullptr;
  const cudaError_t error = cudaHostAlloc(&block, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw DeviceError(
        fmt::format("the host has no {} of memory to lock for copies to {}: it is full, or a limit of the job "
                    "or its container is reached. A smaller --batch needs less",
                    in_mebibytes(bytes), describe_current_device()));
  }
  check(error, "locking host memory for copies");
  return block;
}

void PinnedMemory::do_deallocate(void* block, std::size_t, std::size_t) {
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaFreeHost(block));
}

bool PinnedMemory::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const PinnedMemory*>(&other) != nullptr;
}

Block::Block(std::pmr::memory_resource& memory, std::size_t bytes)
    : memory_(&memory), data_(memory.allocate(bytes, kAlignment)), bytes_(bytes) {}

Block::~Block() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes_, kAlignment);
}

void Block::swap(Block& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace lockstep::model::cuda
