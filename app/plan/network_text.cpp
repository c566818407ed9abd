#include "app/plan/network_text.hpp"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"
#include "app/report/text_table.hpp"

namespace lockstep::app {

NetworkText describe_network(const model::Network& network) {
  NetworkText text;
  std::vector<std::vector<std::string>> layers{{"  layer", "", "parameters", "outputs/sample", "FLOPs/sample fwd+bwd"}};
  for (const model::LayerPlan& layer : network.plan()) {
    layers.push_back({"  " + layer.name, layer.description, with_commas(layer.parameters),
                      with_commas(layer.activation_elements),
                      format_flops(layer.forward_flops + layer.backward_flops)});
    text.flops += layer.forward_flops + layer.backward_flops;
    text.parameters += layer.parameters;
  }
  text.table = format_table(layers, {2, 3, 4});
  std::vector<std::string> fusions;
  for (const auto& [calls, count] : network.fusions()) {
    fusions.push_back(count == 1 ? calls : fmt::format("{} ({} times)", calls, count));
  }
  if (!fusions.empty()) text.table += fmt::format("  in one pass: {}\n", fmt::join(fusions, ", "));
  return text;
}

}  // namespace lockstep::app
