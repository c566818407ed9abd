/// \file
/// The activations of a network: name -> offset in one arena, declared once like parameters. A pass over B samples
/// finds each of them at an offset that depends only on the largest batch, so a step computes no offset and allocates
/// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/graph/lifetimes.hpp"
#include "model/operation_types.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// Element type of an activation; the backend maps it to a concrete type.
enum class Holds {
  activations,  ///< compute type
  narrow,       ///< narrow type: bf16 where the CPU multiplies in bf16
  statistics,   ///< master type
  sums,         ///< float64
  choices,      ///< uint8
  tokens        ///< int32
};

struct ActivationSpec {
  std::string name;       ///< "dense_1" for a layer's output, as messages name it; "" for everything else
  std::int64_t rows = 1;  ///< per sample, or in total with `per_batch`
  std::int64_t columns = 0;
  Holds holds = Holds::activations;
  bool per_batch = false;  ///< the row count does not depend on the batch
  /// Columns in bfloat16, where matrix products want aligned rows; 0: the same as `columns`. The code that asks for
  /// more columns fills them.
  std::int64_t padded_columns = 0;
  std::int64_t margin = 0;  ///< extra rows per sample, stored before the others
  Lifetime lifetime = {};   ///< ticks at which its memory is needed; default: all
};

class ActivationTable {
 public:
  /// Adds an activation and returns its index. Throws std::invalid_argument if an extent is not positive.
  std::size_t add(ActivationSpec spec);
  /// Adds an activation that shares the memory of activation `on`, and returns its index. The memory is as large as the
  /// largest of them. For values that are never needed at the same time, such as gradients of different layers.
  std::size_t overlay(std::size_t on, ActivationSpec spec);
  struct Entry : ActivationSpec {
    std::size_t memory_of = 0;  ///< index of the entry that owns the memory
  };
  const std::vector<Entry>& all() const noexcept { return entries_; }
  /// Elements per sample of Holds::activations and Holds::narrow; shared memory counts once. For plans.
  std::int64_t elements_per_sample() const noexcept;

 private:
  std::vector<Entry> entries_;
};

/// Offsets of a table's activations for batches of up to `max_batch` samples. Each activation starts at a multiple of
/// 256 bytes. Activations whose lifetimes do not overlap may share memory.
class ActivationLayout {
 public:
  ActivationLayout(const ActivationTable& table, std::int64_t max_batch, const OperationTypes& types);
  std::size_t bytes() const noexcept { return bytes_; }
  /// Returns activation `index` of a batch, in an arena that begins at `base`. `first`: number of samples in the arena
  /// before the batch.
  Tensor at(std::size_t index, void* base, std::int64_t batch, std::int64_t first = 0) const;
  /// Like at(), with the rows of the margin.
  Tensor with_margin(std::size_t index, void* base, std::int64_t batch) const;

 private:
  struct Allocation {
    std::size_t offset = 0;  ///< bytes
    ElementType type = ElementType::float32;
    std::int64_t rows = 0, columns = 0, margin = 0;
    bool per_batch = false;
  };
  std::vector<Allocation> allocations_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::model
