#include "comm/survey/numa_nodes.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::comm {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

/// The nodes of the devices in `folder` for which `carries` is true.
template <class Carries>
std::set<int> nodes_of_devices(const std::filesystem::path& folder, Carries carries) {
  std::set<int> nodes;
  std::error_code unknown;
  for (const auto& device : std::filesystem::directory_iterator(folder, unknown)) {
    if (carries(device.path())) nodes.merge(unfolded(first_line(device.path() / "device/numa_node")));
  }
  return nodes;
}

bool has_active_port(const std::filesystem::path& device) {
  std::error_code unknown;
  return std::ranges::any_of(std::filesystem::directory_iterator(device / "ports", unknown), [](const auto& port) {
    return first_line(port.path() / "state").find("ACTIVE") != std::string::npos;
  });
}

bool is_fast_ethernet(const std::filesystem::path& device) {
  const std::string speed = first_line(device / "speed");
  int megabits = 0;
  std::from_chars(speed.data(), speed.data() + speed.size(), megabits);
  return first_line(device / "operstate") == "up" && megabits >= 10'000;
}

}  // namespace

std::set<int> network_card_nodes(const std::filesystem::path& folder) {
  std::set<int> nodes = nodes_of_devices(folder / "infiniband", has_active_port);
  if (nodes.empty()) nodes = nodes_of_devices(folder / "net", is_fast_ethernet);
  nodes.erase(nodes.begin(), nodes.lower_bound(0));  // -1: unknown
  return nodes;
}

std::string folded(const std::set<int>& numbers) {
  std::vector<std::string> runs;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) ++last;
    runs.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(runs, ","));
}

std::set<int> unfolded(const std::string& text) {
  std::set<int> numbers;
  std::istringstream runs(text);
  for (std::string run; std::getline(runs, run, ',');) {
    const char* const end = run.data() + run.size();
    int first = 0;
    const auto from = std::from_chars(run.data(), end, first);
    if (from.ec != std::errc()) break;
    int last = first;
    if (from.ptr != end && *from.ptr == '-' && std::from_chars(from.ptr + 1, end, last).ec != std::errc()) break;
    for (int number = first; number <= last; ++number) numbers.insert(number);
  }
  return numbers;
}

std::vector<NumaNode> numa_nodes(const std::filesystem::path& folder) {
  std::vector<NumaNode> nodes;
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
    constexpr std::string_view kPrefix = "node";
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto read = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    nodes.push_back({.number = number, .cores = unfolded(first_line(entry.path() / "cpulist"))});
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  return nodes;
}

std::set<int> nodes_of(std::span<const int> cores, std::span<const NumaNode> nodes) {
  std::set<int> numbers;
  for (const NumaNode& node : nodes) {
    if (std::ranges::any_of(cores, [&](int core) { return node.cores.contains(core); })) numbers.insert(node.number);
  }
  return numbers;
}

}  // namespace lockstep::comm
