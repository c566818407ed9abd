/// \file
/// One layer of long short-term memory over a window of steps, with the state carried from window to window (Lstm in
/// sequence_operations.hpp). The input of all steps goes through one product.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

struct LstmOptions {
  std::int64_t context = 0;  ///< steps
  std::int64_t inputs = 0, hidden = 0;
  Initializer weight_initializer = {};
  Initializer bias_initializer = {};
};

class LstmLayer {
 public:
  /// Declares NAME/input [inputs, 4 hidden], NAME/recurrent [hidden, 4 hidden] and NAME/bias [4 hidden]; carries
  /// NAME/hidden and NAME/cell.
  LstmLayer(ParameterTable& parameters, ActivationTable& activations, ActivationTable& recurrent_state,
            std::string name, const LstmOptions& options);

  LayerPlan plan(const ParameterTable& table) const;
  /// [steps * sequences, hidden], time-major.
  Tensor output(const Pass& pass) const;
  /// Starts with the carried state and replaces it by the state after the last step.
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// d_y is overwritten; d_x may be its memory.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const;

  // ---- the same in pieces: together they give the bits of the whole wherever their products do ----

  /// Some steps of the window.
  struct Steps {
    std::int64_t first = 0, count = 0;
  };
  /// Rows of these steps in a time-major tensor of all steps.
  static Tensor rows_of(const Steps& steps, const Pass& pass, const Tensor& tensor) {
    return tensor.row_range(steps.first * pass.batch, steps.count * pass.batch);
  }
  /// Forward: begin_window(); then input_product() and recur() for ranges of steps in ascending order; end_window(). x,
  /// d_y, d_x: tensors of all steps.
  void begin_window(const Pass& pass) const;
  void input_product(const Pass& pass, const Tensor& x, const Steps& steps) const;
  void recur(const Pass& pass, const Steps& steps, Queue queue) const;
  void end_window(const Pass& pass) const;
  /// Backward: recur_backward() and, if the gradient of the input is needed, input_gradient() for ranges of steps in
  /// descending order; then parameter_gradients(), each one product or sum over all steps. It may also make d_x, for
  /// all steps.
  void recur_backward(const Pass& pass, const Tensor& d_y, const Steps& steps, Queue queue) const;
  void input_gradient(const Pass& pass, const Tensor& x, const Steps& steps, const Tensor& d_x) const;
  void parameter_gradients(const Pass& pass, const Tensor& x, Accumulate accumulate, const Tensor& d_x) const;

  std::size_t gradients_end(const ParameterTable& table) const { return table.gradients_end(input_); }
  bool trains_below(const ParameterTable& table) const { return table.trains_below(input_); }

 private:
  Lstm shape(const Pass& pass, const Steps& steps, Queue queue = Queue::main) const noexcept;
  Steps all() const noexcept { return {0, options_.context}; }

  std::string name_;
  LstmOptions options_;
  std::size_t input_, recurrent_, bias_;
  std::size_t gates_, cells_, hidden_, d_cell_;    ///< activations
  std::size_t state_hidden_ = 0, state_cell_ = 0;  ///< carried state
};

}  // namespace lockstep::model
