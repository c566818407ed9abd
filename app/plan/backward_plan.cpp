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

std::vector<BackwardLayer> backward_plan(const model::Network& network) {
  std::vector<BackwardLayer> layers;
  std::vector<model::LayerPlan> plan = network.plan();
  std::reverse(plan.begin(), plan.end());
  // The arena holds the parameters in reverse order of declaration, a layer's own together: each layer takes its slices
  // from the end of the previous layer's.
  std::vector<model::Parameter> arena = network.parameters().all();
  std::erase_if(arena, [](const model::Parameter& parameter) { return parameter.frozen; });
  std::sort(arena.begin(), arena.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  const std::vector<std::size_t> ends = network.parameters().slice_ends();
  std::size_t next = 0;
  for (model::LayerPlan& layer : plan) {
    BackwardLayer& entry = layers.emplace_back(BackwardLayer{.layer = std::move(layer), .slice_ends = {}});
    for (; next < arena.size() && arena[next].name.starts_with(entry.layer.name + "/") &&
           arena[next].role == model::Role::weight;
         ++next) {
      entry.slice_ends.push_back(ends[next]);
    }
  }
  for (; next < arena.size() && arena[next].role == model::Role::statistic; ++next) {
    layers.back().slice_ends.push_back(ends[next]);
  }
  if (next < arena.size()) {
    throw std::logic_error(fmt::format("the parameter {} belongs to no layer of the plan", arena[next].name));
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
