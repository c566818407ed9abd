/// \file
/// A network with the memory of its passes, in float64 on the reference backend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "model/network.hpp"
#include "model/reference/reference_backend.hpp"
#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model::test {

inline constexpr OperationTypes kDoubles{.compute = ElementType::float64, .master = ElementType::float64};

inline SampleShape images(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t outputs) {
  const ImageShape image{height, width, channels};
  return {.features = image.elements(), .outputs = outputs, .image = image};
}

inline SampleShape tokens(std::int64_t context, std::int64_t vocabulary) {
  return {.features = context, .outputs = vocabulary, .tokens = true};
}

/// Dense layers of the widths in `hidden`, each with the activation, and an output layer. Also allows activations that
/// "mlp" does not have.
inline std::unique_ptr<Network> dense_layers(const Numbers& hidden, std::string_view activation,
                                             const SampleShape& shape) {
  Description description{.input_shape = {shape.features}, .calls = {}};
  const auto add = [&](std::int64_t units, std::string_view after) {
    description.calls.push_back({.kind = "dense",
                                 .name = fmt::format("dense_{}", description.calls.size() + 1),
                                 .arguments = {{"units", units}, {"activation", std::string(after)}}});
  };
  for (const std::int64_t units : hidden) add(units, activation);
  add(shape.outputs, "none");
  return std::make_unique<Network>(description, shape, "dense layers");
}

class NetworkInDoubles {
 public:
  /// Initial weights are sample data, scaled so that values neither vanish nor explode: scales around 1, others smaller
  /// with more inputs.
  NetworkInDoubles(std::unique_ptr<Network> made, std::int64_t max_batch)
      : backend(std::make_unique<ReferenceBackend>()),
        network(std::move(made)),
        parameters(table().arena_elements()),
        gradients(table().arena_elements()),
        layout_(network->activations(Purpose::training), max_batch, kDoubles),
        evaluation_layout_(network->activations(Purpose::evaluation), max_batch, kDoubles),
        state_layout_(network->recurrent_state(), max_batch, kDoubles),
        activations_(std::max(layout_.bytes(), evaluation_layout_.bytes()) / sizeof(double) + 1, 7.0),
        state_(state_layout_.bytes() / sizeof(double) + 1) {
    for (const Parameter& parameter : table().all()) {
      const bool scale = parameter.initializer.scheme == Initializer::Scheme::constant &&
                         (parameter.name.ends_with("scale") || parameter.role == Role::statistic);
      const double inputs = static_cast<double>(parameter.count) / static_cast<double>(parameter.shape.back());
      auto values = samples<double>(parameter.name, static_cast<std::int64_t>(parameter.count),
                                    scale ? 0.3 : std::min(0.5, std::sqrt(3 / inputs)));
      for (double& value : values) value += scale ? 1 : 0;
      const auto offset = static_cast<std::ptrdiff_t>(parameter.offset);
      std::ranges::copy(values, parameters.begin() + offset);
      std::fill_n(gradients.begin() + offset, values.size(), 7.0);  // to be overwritten
    }
  }

  const ParameterTable& table() const { return network->parameters(); }

  Pass pass(const Tensor& input, const Tensor& keys = {}, Purpose purpose = Purpose::training) {
    const auto elements = static_cast<std::int64_t>(table().arena_elements());
    return {.backend = *backend,
            .table = table(),
            .memory = {.parameters = view(parameters, 1, elements),
                       .gradients = view(gradients, 1, elements),
                       .layout = purpose == Purpose::training ? &layout_ : &evaluation_layout_,
                       .activations = activations_.data(),
                       .state_layout = &state_layout_,
                       .state = state_.data()},
            .batch = input.rows,
            .input = input,
            .keys = keys,
            .training = purpose == Purpose::training};
  }
  /// Restarts the sequences with zero state.
  void forget() { std::ranges::fill(state_, 0.0); }

  /// Returns the sum of the loss over all rows. With want_gradient the output becomes its gradient, times `scale`.
  double loss(const Pass& pass, const Tensor& output, const Tensor& y, double scale, bool want_gradient) {
    return scale * softmax_cross_entropy(*backend, output, network->targets(pass, y), scale, want_gradient).loss;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Network> network;
  std::vector<double> parameters, gradients;

 private:
  ActivationLayout layout_, evaluation_layout_, state_layout_;
  std::vector<double> activations_, state_;
};

/// Samples [first, first + count) of one stream, for networks of tokens and of numbers.
class SampleBatch {
 public:
  SampleBatch(const SampleShape& shape, std::int64_t count, std::int64_t first = 0) {
    const std::int64_t positions = shape.tokens ? shape.features : 1, end = first + count;
    keys_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = sample_key(1, 2, first + static_cast<std::int64_t>(i));
    const auto tail = [&](auto all, std::int64_t elements) {
      return decltype(all)(all.begin() + first * elements, all.end());
    };
    answers_ = tail(labels(end * positions, shape.outputs), positions);
    y = view(answers_, count, positions);
    if (shape.tokens) {
      // Labels in a different order than the tokens.
      tokens_ = labels(end * positions + 1, shape.outputs);
      tokens_.erase(tokens_.begin());
      tokens_ = tail(tokens_, positions);
      input = view(tokens_, count, positions);
    } else {
      images_ = tail(samples<double>("x", end * shape.features), shape.features);
      input = view(images_, count, shape.features);
    }
    keys = {keys_.data(), ElementType::uint64, count, 1};
  }
  SampleBatch(const SampleBatch&) = delete;
  SampleBatch& operator=(const SampleBatch&) = delete;

  Tensor input, y, keys;

 private:
  std::vector<double> images_;
  std::vector<std::int32_t> tokens_, answers_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace lockstep::model::test
