/// \file
/// Everything that the network and its layers need in one pass: memory, the batch and settings.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "model/activation_table.hpp"
#include "model/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

enum class Purpose { training, evaluation };

/// gradients[0, end) of the arena is final. Called in ascending order of `end`.
using GradientReady = std::function<void(std::size_t end)>;
/// Enqueues the sum over all ranks of a float64 tensor in the backend's memory, in place.
using SumOverRanks = std::function<void(const Tensor& sums)>;

/// Result of an operation of a graph that has been enqueued.
struct CallResult {
  std::int32_t tick;      ///< its tick (model/graph/program.hpp)
  std::string_view name;  ///< the operation's
  Tensor output;          ///< forward: the call's result; backward: absent
};
using AfterCall = std::function<void(const CallResult&)>;

/// The arenas of one pass; Model owns them.
struct PassMemory {
  Tensor parameters;                         ///< [1, arena_elements], compute type
  Tensor gradients;                          ///< [1, updated_elements], master type; empty in evaluation
  const ActivationLayout* layout = nullptr;  ///< layout of the activations for the purpose of the pass
  void* activations = nullptr;               ///< laid out by `layout`
  const ActivationLayout* state_layout = nullptr;
  void* state = nullptr;            ///< recurrent state (Network::recurrent_state()), laid out by `state_layout`
  std::int64_t first_sequence = 0;  ///< the batch's first sequence within the state
};

struct Pass {
  Backend& backend;
  const ParameterTable& table;
  PassMemory memory;
  std::int64_t batch = 0;  ///< samples
  Tensor input;          ///< images or features: [batch, features] in the compute type; tokens: int32 [batch, context]
  Tensor samples = {};   ///< [batch, numbers] as read, exact, for tokens among numbers; the input may be rounded
  Tensor keys;           ///< uint64 [batch, 1]; empty: nothing is random (evaluation)
  bool training = true;  ///< uses batch statistics and dropout; false: fixed statistics
  double share = 1;      ///< this batch's share of the step's samples over all ranks
  const SumOverRanks* sum_over_ranks = nullptr;  ///< for synchronised batch norm; nullptr: a world of one
  /// With count > 0, in the evaluation of one sample: computes only these positions. The activations of earlier
  /// positions must still be there from earlier passes (Network::reuses_positions()).
  struct Positions {
    std::int64_t first = 0, count = 0;
  };
  Positions positions = {};
  /// For messages and tests: called after each operation. The next operation may overwrite its results.
  const AfterCall* after_call = nullptr;

  ImageOperations& images() const noexcept { return backend.images(); }
  SequenceOperations& sequences() const noexcept { return backend.sequences(); }
  /// Activation `index` of this batch, with the rows of the pass' positions.
  Tensor at(std::size_t index) const {
    const Tensor all = whole(index);
    return positions.count > 0 ? all.row_range(positions.first, positions.count) : all;
  }
  /// Activation `index` with the rows of all positions.
  Tensor whole(std::size_t index) const { return memory.layout->at(index, memory.activations, batch); }
  Tensor recurrent_state(std::size_t index) const {
    return memory.state_layout->at(index, memory.state, batch, memory.first_sequence);
  }
  /// A parameter as GEMMs read it, and its gradient: [product of all extents but the last, last], or [1, count] for
  /// vectors. The gradient of a frozen parameter is absent.
  Tensor weight(std::size_t parameter) const;
  Tensor gradient(std::size_t parameter) const;
  /// The same with `rows` rows. The surplus rows lie in the parameter's padding and are zero.
  Tensor weight(std::size_t parameter, std::int64_t rows) const;
  Tensor gradient(std::size_t parameter, std::int64_t rows) const;
  /// A vector with `columns` columns, and its gradient. The surplus columns lie in its padding and are zero.
  Tensor vector(std::size_t parameter, std::int64_t columns) const;
  Tensor vector_gradient(std::size_t parameter, std::int64_t columns) const;
};

}  // namespace lockstep::model
