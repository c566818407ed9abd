/// \file
/// The common base of a network's layers. A layer owns nothing but its entries in the network's two tables: it declares
/// its parameters and activations in its constructor, and finds them in the memory that comes with each pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/network.hpp"

namespace lockstep::model {

/// Tells whether an earlier layer computes a layer's input, or it is the network's input.
enum class Input { computed, given };
/// FLOPs of the backward pass of a product of `product` FLOPs with the matrix `weight`, the first parameter of its
/// layer: as many for the matrix's gradient and for the input's, if these are made.
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

  /// `table`: the network's, which knows the frozen parameters.
  virtual LayerPlan plan(const ParameterTable& table) const = 0;
  /// The layer's output, among the activations.
  virtual Tensor forward(const Pass& pass, const Tensor& x) const = 0;
  /// Takes the pass and x of the preceding forward. d_y is overwritten. d_x may be empty; it is not d_y's memory unless
  /// the layer allows it. Parameter gradients are written, or added to.
  virtual void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                        const Tensor& d_x) const = 0;

  /// The end of the range of gradients that is final once this layer and all behind it have gone backward; 0 for a
  /// layer without weights.
  std::size_t gradients_end(const ParameterTable& table) const {
    return has_weights_ ? table.gradients_end(first_weight_) : 0;
  }
  /// True if the gradient of its input is needed; for a layer with weights.
  bool trains_below(const ParameterTable& table) const { return table.trains_below(first_weight_); }
  /// The output of one sample: rows and columns.
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t columns() const noexcept { return columns_; }
  Tensor output(const Pass& pass) const { return pass.at(output_); }
  /// The output for all positions, even if the pass has only some.
  Tensor whole_output(const Pass& pass) const { return pass.whole(output_); }

 protected:
  Layer(ActivationTable& activations, const std::string& name, std::int64_t rows, std::int64_t columns,
        std::int64_t padded_columns = 0)
      : output_(activations.add({.name = name, .rows = rows, .columns = columns, .padded_columns = padded_columns})),
        rows_(rows),
        columns_(columns) {}
  /// Sets the weight that the layer declared first.
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
