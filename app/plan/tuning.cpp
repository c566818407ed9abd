#include "app/plan/tuning.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {

namespace {

/// Returns up to four names of tensors and of their enclosing modules ("block_1", "block_1/attention", ...), the
/// nearest to the pattern first.
std::vector<std::string> near_names(std::string_view pattern, const model::ParameterTable& table) {
  constexpr std::size_t kMax = 4;
  std::string stem;
  std::copy_if(pattern.begin(), pattern.end(), std::back_inserter(stem),
               [](char c) { return c != '*' && c != '?' && c != '[' && c != ']'; });
  if (stem.ends_with('/')) stem.pop_back();
  std::set<std::string> known;
  for (const model::Parameter& parameter : table.all()) {
    for (std::size_t end = parameter.name.find('/'); end != std::string::npos;
         end = parameter.name.find('/', end + 1)) {
      known.insert(parameter.name.substr(0, end) + "/*");
    }
    known.insert(parameter.name);
  }
  std::vector<std::string> names(known.begin(), known.end());
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const auto distance = [&](const std::string& name) {
      return model::edit_distance(stem,
                                  name.ends_with("/*") ? std::string_view(name).substr(0, name.size() - 2) : name);
    };
    return distance(a) < distance(b);
  });
  names.resize(std::min(names.size(), kMax));
  return names;
}

/// Returns the indices of the parameters that the pattern matches. Throws UsageError if there are none.
std::vector<std::size_t> matches(std::string_view option, const std::string& pattern,
                                 const model::ParameterTable& table) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < table.all().size(); ++i) {
    if (::fnmatch(pattern.c_str(), table[i].name.c_str(), 0) == 0) found.push_back(i);
  }
  if (found.empty()) {
    throw UsageError(fmt::format("--{}: no tensor is called {}; there are {} and others", option, pattern,
                                 fmt::join(near_names(pattern, table), ", ")));
  }
  return found;
}

}  // namespace

void apply_tuning(const TuningOptions& options, model::Network& network) {
  const model::ParameterTable& table = network.parameters();
  std::set<std::size_t> frozen;
  for (const std::string& pattern : options.freeze) {
    const std::vector<std::size_t> found = matches("freeze", pattern, table);
    frozen.insert(found.begin(), found.end());
  }
  try {
    network.freeze(std::vector<std::size_t>(frozen.begin(), frozen.end()));
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--freeze: {}", error.what()));
  }
  for (const RateScale& scale : options.rate_scales) {
    bool any = false;
    for (const std::size_t index : matches("learning-rate-scale", scale.pattern, table)) {
      if (table[index].frozen || table[index].role == model::Role::statistic) continue;
      network.set_rate_scale(index, scale.factor);
      any = true;
    }
    if (!any) {
      throw UsageError(
          fmt::format("--learning-rate-scale: {} names only tensors that are frozen or no weights", scale.pattern));
    }
  }
}

std::string format_tuning(const TuningOptions& options, const model::Network& network) {
  const model::ParameterTable& table = network.parameters();
  std::string text;
  if (table.has_frozen()) {
    text += fmt::format("trained: {} of {} parameters; frozen: {}\n", with_commas(table.trained_count()),
                        with_commas(table.parameter_count()), fmt::join(options.freeze, ", "));
  }
  for (const RateScale& scale : options.rate_scales) {
    text += fmt::format("learning rate of {}: that of the schedule times {}\n", scale.pattern, scale.factor);
  }
  return text;
}

}  // namespace lockstep::app
