#include "model/layers/dense_chain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/layers/dense.hpp"
#include "model/layers/dropout_stage.hpp"

namespace lockstep::model {

DenseChain::DenseChain(std::string name, const Numbers& hidden, const NetworkOptions& options, const SampleShape& shape)
    : LayerChain(shape) {
  Numbers widths{shape.features};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(shape.outputs);
  const LayerActivation activation = layer_activation(options.find<std::string>("activation").value_or("relu"));
  const auto dropout = static_cast<float>(options.find<double>("dropout").value_or(0));

  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    append<Dense>(
        fmt::format("dense_{}", i + 1),
        DenseOptions{.inputs = widths[i],
                     .outputs = widths[i + 1],
                     .activation = last ? LayerActivation() : activation,
                     .weight_initializer =
                         options.initializer("weight-init").value_or(Initializer{Initializer::Scheme::he_normal}),
                     .bias_initializer = options.initializer("bias-init").value_or(Initializer{}),
                     .first = i == 0,
                     .last = last});
    if (!last && dropout > 0) {
      append<DropoutStage>(fmt::format("dropout_{}", i + 1), widths[i + 1],
                           Dropout{.rate = dropout, .stream = kFirstDropoutStream + static_cast<std::uint32_t>(i)});
    }
  }
  std::string signature = fmt::format("{} {}", name, fmt::join(widths, "-"));
  if (!hidden.empty()) signature += fmt::format(" {}", name_of(activation));
  finish(std::move(signature));
}

}  // namespace lockstep::model
