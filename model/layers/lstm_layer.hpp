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
  /// Begins with the state that is carried and leaves the one after the last step.
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// d_y is used up; d_x may be its memory. workspace: compute type [sequences, hidden].
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x,
                const Tensor& workspace) const;
  std::size_t gradients_end(const ParameterTable& table) const { return table.gradients_end(input_); }
  bool trains_below(const ParameterTable& table) const { return table.trains_below(input_); }

 private:
  Lstm shape(const Pass& pass) const noexcept;

  std::string name_;
  LstmOptions options_;
  std::size_t input_, recurrent_, bias_;
  std::size_t gates_, cells_, hidden_;             ///< activations
  std::size_t state_hidden_ = 0, state_cell_ = 0;  ///< carried
};

}  // namespace lockstep::model
