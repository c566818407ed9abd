#include "model/network.hpp"

#include <cmath>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/network_kinds.hpp"

namespace lockstep::model {

Tensor Network::targets(const Pass& pass, const Tensor& y) const {
  return shape_.tokens ? reshaped(y, pass.batch * positions(), 1) : y;
}

std::string Network::first_not_finite(const Pass& pass) const {
  const auto& entries = activations_.all();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name.empty()) continue;
    if (!std::isfinite(sum_of_squares_now(pass.backend, pass.at(i)))) return entries[i].name;
  }
  return "";
}

const NetworkKind& network_kind(std::string_view name) {
  for (const NetworkKind* kind : network_kinds()) {
    if (kind->name == name) return *kind;
  }
  throw std::invalid_argument(fmt::format("unknown network '{}'; valid: {}", name, fmt::join(network_names(), ", ")));
}

std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape) {
  return network_kind(options.name).make(options, shape);
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const NetworkKind* kind : network_kinds()) names.emplace_back(kind->name);
  return names;
}

}  // namespace lockstep::model
