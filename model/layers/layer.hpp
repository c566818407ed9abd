/// \file
/// What the layers of a network have in common. A layer owns nothing but its entries in the network's two tables: it
/// declares its parameters and activations when it is made, and finds them in the memory that comes with each pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/network.hpp"

namespace lockstep::model {

/// Whether somebody computed what a layer reads, or it is the network's input.
enum class Input { computed, given };
/// Of the backward pass of a product of so many FLOPs with the matrix `weight`, the first parameter of its layer: as
/// many for the matrix's gradient and for the input's, where these are made.
inline double backward_flops(const ParameterTable& table, double product, std::size_t weight,
                             Input input = Input::computed) {
  const bool goes_on = input == Input::computed && table.trains_below(weight);
  return (table[weight].frozen ? 0 : product) + (goes_on ? product : 0);
}

class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  /// `table`: the network's, which says what of the layer is trained.
  virtual LayerPlan plan(const ParameterTable& table) const = 0;
  /// The layer's output, among the activations.
  virtual Tensor forward(const Pass& pass, const Tensor& x) const = 0;
  /// Same pass and x as the forward before it. d_y is used up; d_x (not d_y's memory, but where a layer says so) may be
  /// empty. Parameter gradients are written, or added to.
  virtual void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                        const Tensor& d_x) const = 0;

  /// The end of the arena's part that is final when this layer has gone backward, and all behind it have; 0 where it
  /// has no weights.
  std::size_t gradients_end(const ParameterTable& table) const {
    return has_weights_ ? table.gradients_end(first_weight_) : 0;
  }
  /// Whether somebody needs the gradient of its input: a layer with weights.
  bool trains_below(const ParameterTable& table) const { return table.trains_below(first_weight_); }
  /// The output of one sample: rows and columns.
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t columns() const noexcept { return columns_; }
  Tensor output(const Pass& pass) const { return pass.at(output_); }
  /// Of all positions, where the pass has only some.
  Tensor whole_output(const Pass& pass) const { return pass.whole(output_); }

 protected:
  Layer(ActivationTable& activations, const std::string& name, std::int64_t rows, std::int64_t columns,
        std::int64_t padded_columns = 0)
      : output_(activations.add({.name = name, .rows = rows, .columns = columns, .padded_columns = padded_columns})),
        rows_(rows),
        columns_(columns) {}
  /// The layer's weight that was declared first.
  void set_first_weight(std::size_t parameter) noexcept {
    first_weight_ = parameter;
    has_weights_ = true;
  }

 private:
  std::size_t output_;
  std::int64_t rows_, columns_;
  std::size_t first_weight_ = 0;
  bool has_weights_ = false;
};

}  // namespace lockstep::model
