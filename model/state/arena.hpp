/// \file
/// The memory of one array.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "model/backend.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// Owns an array in memory from a resource. Empty without elements. Move-only.
class Arena {
 public:
  Arena() = default;
  /// The initial content is unspecified; the constructor does not touch the pages.
  Arena(std::pmr::memory_resource* memory, ElementType type, std::size_t elements);
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena();

  /// Returns one row of zeros. memory nullptr: the backend's memory.
  static Arena of_zeros(Backend& backend, ElementType type, std::size_t elements,
                        std::pmr::memory_resource* memory = nullptr);

  const Tensor& tensor() const noexcept { return tensor_; }
  void* data() const noexcept { return tensor_.data; }
  bool empty() const noexcept { return !tensor_.present(); }

 private:
  void swap(Arena& other) noexcept;

  std::pmr::memory_resource* memory_ = nullptr;
  Tensor tensor_;
};

}  // namespace lockstep::model
