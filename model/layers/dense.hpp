/// \file
/// The fully connected layer: y = act(x W + b), x [B, inputs], W [inputs, outputs], b [outputs], y [B, outputs].
#pragma once

#include <cstdint>
#include <string>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

struct DenseOptions {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  Activation activation = Activation::none;
  Initializer weight_initializer;
  Initializer bias_initializer;
  /// The first layer of a network: nobody asks for the gradient of its input.
  bool first = false;
};

/// Owns nothing but its place in the table: memory comes with each call.
class Dense {
 public:
  /// Declares NAME/weight [inputs, outputs] (decayed) and NAME/bias [outputs] (not decayed).
  Dense(ParameterTable& table, std::string name, const DenseOptions& options);

  const std::string& name() const noexcept { return name_; }
  std::int64_t inputs() const noexcept { return options_.inputs; }
  std::int64_t outputs() const noexcept { return options_.outputs; }
  LayerPlan plan() const;

  /// `parameters`: the whole arena.
  void forward(Backend& backend, const ParameterTable& table, const Tensor& parameters, const Tensor& x,
               const Tensor& y) const;
  /// d_y is overwritten with the gradient before the activation; d_x may be empty. Writes (or adds to) this layer's two
  /// slices of `gradients`. Returns the end of the arena's part that is final now: layers go backward, so all below it.
  std::size_t backward(Backend& backend, const ParameterTable& table, const NetworkMemory& memory, const Tensor& x,
                       const Tensor& y, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const;

 private:
  std::string name_;
  DenseOptions options_;
  std::size_t weight_;
  std::size_t bias_;
};

/// The slice of an arena that belongs to `parameter`, as [shape[0], rest] or [1, count] for vectors.
Tensor slice_of(const Tensor& arena, const Parameter& parameter);

}  // namespace lockstep::model
