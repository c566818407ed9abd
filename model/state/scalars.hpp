/// \file
/// A few numbers that operations compute and the host reads.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model {

/// Owns float64 numbers in the backend's memory, initially zero, and a copy on the host.
class Scalars {
 public:
  /// backend must outlive the numbers.
  Scalars(Backend& backend, std::size_t count);

  /// The numbers in the backend's memory: float64 [1, count].
  Tensor tensor() const noexcept { return arena_.tensor(); }
  Tensor at(std::size_t offset, std::size_t count = 1) const noexcept { return tensor().slice({offset, count}); }
  /// Enqueues a copy of all numbers to the host.
  void post();
  /// Returns the copy. Valid after post() and Backend::synchronize().
  std::span<const double> posted() const noexcept { return host_; }
  /// Copies all numbers to the host and synchronises.
  std::span<const double> read_now();

 private:
  Backend& backend_;
  Arena arena_;
  std::pmr::vector<double> host_;
};

}  // namespace lockstep::model
