#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/plan.hpp"
#include "app/report/result_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

/// The operation that has the parameter: of those whose names begin its own, the one with the longest.
std::size_t owner_of(const model::Parameter& parameter, const std::vector<BackwardLayer>& layers) {
  std::size_t owner = layers.size(), length = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string prefix = layers[i].layer.name + "/";
    if (prefix.size() > length && parameter.name.starts_with(prefix)) {
      owner = i;
      length = prefix.size();
    }
  }
  if (owner == layers.size()) {
    throw std::logic_error(fmt::format("the parameter {} belongs to no layer of the plan", parameter.name));
  }
  return owner;
}

}  // namespace

std::vector<BackwardLayer> backward_plan(const model::Network& network) {
  std::vector<BackwardLayer> layers;
  for (model::LayerPlan& layer : network.operation_plan())
    layers.push_back({.layer = std::move(layer), .slice_ends = {}});
  std::ranges::reverse(layers);
  std::vector<model::Parameter> arena = network.parameters().all();
  std::erase_if(arena, [](const model::Parameter& parameter) { return parameter.frozen; });
  std::ranges::sort(arena, {}, &model::Parameter::offset);
  const std::vector<std::size_t> ends = network.parameters().slice_ends();
  std::size_t last = 0;  // the operation that completes all gradients up to here
  for (std::size_t i = 0; i < arena.size(); ++i) {
    const bool is_weight = arena[i].role == model::Role::weight;
    last = is_weight ? std::max(last, owner_of(arena[i], layers)) : layers.size() - 1;
    layers[last].slice_ends.push_back(ends[i]);
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
