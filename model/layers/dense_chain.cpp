#include "model/layers/dense_chain.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/layers/dense.hpp"

namespace lockstep::model {

DenseChain::DenseChain(std::string name, const std::vector<std::int64_t>& hidden, const NetworkOptions& options,
                       const SampleShape& shape)
    : LayerChain(shape) {
  std::vector<std::int64_t> widths{shape.features};
  for (const std::int64_t width : hidden) {
    if (width <= 0) throw std::invalid_argument(fmt::format("a hidden layer of width {}: must be positive", width));
    widths.push_back(width);
  }
  widths.push_back(shape.outputs);

  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    append<Dense>(fmt::format("dense_{}", i + 1),
                  DenseOptions{.inputs = widths[i],
                               .outputs = widths[i + 1],
                               .activation = last ? Activation::none : options.activation,
                               .weight_initializer = options.weight_initializer.value_or(
                                   Initializer{.scheme = Initializer::Scheme::he_normal}),
                               .bias_initializer = options.bias_initializer.value_or(Initializer{}),
                               .first = i == 0});
  }
  std::string signature = fmt::format("{} {}", name, fmt::join(widths, "-"));
  if (!hidden.empty()) signature += fmt::format(" {}", name_of(options.activation));
  finish(std::move(signature));
}

}  // namespace lockstep::model
