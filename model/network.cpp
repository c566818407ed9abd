#include "model/network.hpp"

#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/networks/linear.hpp"
#include "model/networks/mlp.hpp"

namespace lockstep::model {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Network> (*make)(const NetworkOptions&, const SampleShape&);
};
constexpr std::array kNetworks{Entry{"linear", make_linear}, Entry{"mlp", make_mlp}};

}  // namespace

std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape) {
  for (const Entry& entry : kNetworks) {
    if (entry.name == options.name) return entry.make(options, shape);
  }
  throw std::invalid_argument(
      fmt::format("unknown network '{}'; valid: {}", options.name, fmt::join(network_names(), ", ")));
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kNetworks) names.emplace_back(entry.name);
  return names;
}

}  // namespace lockstep::model
