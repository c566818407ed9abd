/// \file
/// A block of a residual network (He et al. 2015): two 3x3 convolutions, or 1x1, 3x3, 1x1 (bottleneck), each followed
/// by batch norm; the block's input is added before the last ReLU. The stride is in the first 3x3 convolution.
///
/// The backward pass needs three workspaces, each as large as the largest activation of a block. The block returns the
/// one that holds the gradient of its input.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/batch_norm_layer.hpp"
#include "model/layers/convolution_layer.hpp"

namespace lockstep::model {

/// The connection from the input to the sum in blocks that change the shape.
enum class Shortcut {
  subsample,  ///< every stride-th pixel, new channels zero: option A, without parameters
  projection  ///< 1x1 convolution and batch norm: option B
};

struct ResidualOptions {
  ImageShape in;
  std::int64_t channels = 0;   ///< channels of the 3x3 convolutions
  std::int64_t expansion = 1;  ///< > 1: a bottleneck, whose output has `expansion` times as many
  std::int64_t stride = 1;
  Shortcut shortcut = Shortcut::subsample;
  bool synchronize = false;
  std::optional<Initializer> weight_initializer =
      {};  ///< initializer of convolutions; empty: he_normal by their fan out
};

/// A convolution without bias, and the batch norm behind it.
class NormalizedConvolution {
 public:
  struct Options {
    ImageShape in;
    Sliding window;
    std::int64_t channels = 0;
    bool relu = true;
    bool residual = false;
    bool zero_scale = false;
    bool synchronize = false;
    bool first = false;
    std::optional<Initializer> weight_initializer = {};
  };
  /// Declares NAME/weight, and what BatchNormLayer declares as NAME/norm.
  NormalizedConvolution(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                        const Options& options);

  const ImageShape& out() const noexcept { return convolution_.out(); }
  Tensor output(const Pass& pass) const { return norm_.output(pass); }
  /// Plan of both layers in one line.
  LayerPlan plan(const ParameterTable& table) const;
  Tensor forward(const Pass& pass, const Tensor& x, const Tensor& residual = {}) const;
  /// d_y becomes the residual's gradient; d_middle: workspace, as large as the output (may be d_y if the residual's
  /// gradient is not needed); d_x: not d_middle, may be empty.
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, const Tensor& d_middle, Accumulate accumulate,
                const Tensor& d_x) const;
  bool adds_gradient(const Pass& pass) const { return convolution_.adds_gradient(pass); }
  /// As backward(), but d_x +=; only where adds_gradient().
  void backward_adding(const Pass& pass, const Tensor& x, const Tensor& d_y, const Tensor& d_middle,
                       Accumulate accumulate, const Tensor& d_x) const;
  std::size_t gradients_end(const ParameterTable& table) const { return convolution_.gradients_end(table); }
  bool trains_below(const ParameterTable& table) const { return convolution_.trains_below(table); }

 private:
  ConvolutionLayer convolution_;
  BatchNormLayer norm_;
};

/// The three workspaces: add() them once all blocks are known.
class GradientWorkspaces {
 public:
  /// Makes each workspace large enough for `elements` per sample.
  void fit(std::int64_t elements) { elements_ = elements > elements_ ? elements : elements_; }
  void add_to(ActivationTable& activations);
  Tensor at(const Pass& pass, std::size_t workspace, std::int64_t elements) const;

 private:
  std::int64_t elements_ = 0;
  std::array<std::size_t, 3> workspaces_{};
};

class ResidualBlock {
 public:
  ResidualBlock(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                const ResidualOptions& options, GradientWorkspaces& workspaces);

  const ImageShape& out() const noexcept { return convolutions_.back()->out(); }
  Tensor output(const Pass& pass) const { return convolutions_.back()->output(pass); }
  LayerPlan plan(const ParameterTable& table) const;
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// The output's gradient is in workspace `workspace`. Returns the workspace of the input's gradient, which is made
  /// only if a layer below is trained. Uses all three.
  std::size_t backward(const Pass& pass, const GradientWorkspaces& workspaces, const Tensor& x, std::size_t workspace,
                       Accumulate accumulate) const;
  std::size_t gradients_end(const ParameterTable& table) const;
  bool trains_below(const ParameterTable& table) const;

 private:
  std::string name_;
  ResidualOptions options_;
  std::unique_ptr<NormalizedConvolution> projection_;  ///< nullptr without a projection
  std::vector<std::unique_ptr<NormalizedConvolution>> convolutions_;
  std::optional<std::size_t> subsampled_;  ///< activation
};

}  // namespace lockstep::model
