#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/plan.hpp"
#include "app/report/result_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

std::vector<BackwardLayer> backward_plan(const model::Network& network) {
  std::vector<BackwardLayer> layers;
  for (model::LayerPlan& layer : network.operation_plan())
    layers.push_back({.layer = std::move(layer), .slice_ends = {}});
  std::ranges::reverse(layers);
  std::map<std::size_t, std::size_t> owners;  // parameter -> last operation of the backward pass that contributes
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const std::size_t parameter : layers[i].layer.declares) owners[parameter] = i;
  }
  const std::vector<model::Parameter>& parameters = network.parameters().all();
  std::map<std::size_t, std::size_t> arena;  // end of slice -> trained parameter
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].frozen) arena.emplace(parameters[i].end(), i);
  }
  std::size_t last = 0;  // operation that completes all gradients so far
  for (const auto& [end, parameter] : arena) {
    const bool is_weight = parameters[parameter].role == model::Role::weight;
    last = is_weight ? std::max(last, owners.at(parameter)) : layers.size() - 1;
    layers[last].slice_ends.push_back(end);
  }
  return layers;
}

void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network) {
  std::string text;
  for (const BackwardLayer& entry : backward_plan(network)) {
    const model::LayerPlan& layer = entry.layer;
    const std::string line = io::to_json_line({{"layer", layer.name},
                                               {"description", layer.description},
                                               {"parameters", layer.parameters},
                                               {"outputs", layer.activation_elements},
                                               {"forward_flops", layer.forward_flops},
                                               {"backward_flops", layer.backward_flops}});
    text +=
        fmt::format("{},\"slice_ends\":[{}]}}\n", line.substr(0, line.size() - 1), fmt::join(entry.slice_ends, ","));
  }
  ResultFile(communicator, file).write(text);
}

}  // namespace lockstep::app
