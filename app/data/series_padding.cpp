#include "app/data/series_padding.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/graph/description.hpp"

namespace lockstep::app {

namespace {

/// Follows values of a network back to the inputs of the data.
class Origins {
 public:
  explicit Origins(const model::Description& description) {
    std::string before = description.input;
    for (const model::Call& call : description.calls) {
      sources_[call.name] = call.from.empty() ? std::vector{before} : call.from;
      if (call.kind == "slice" && sources_[call.name].front() == description.input) {
        first_of_slice_[call.name] = call.get<std::int64_t>("begin");
      }
      before = call.name;
    }
  }

  /// Returns the first numbers of the inputs that the value depends on.
  std::set<std::int64_t> of(const std::string& value) const {
    std::set<std::int64_t> firsts;
    std::set<std::string> seen;
    std::vector<std::string> open{value};
    while (!open.empty()) {
      const std::string name = open.back();
      open.pop_back();
      if (!seen.insert(name).second) continue;
      if (const auto slice = first_of_slice_.find(name); slice != first_of_slice_.end()) firsts.insert(slice->second);
      const auto from = sources_.find(name);
      if (from != sources_.end()) open.insert(open.end(), from->second.begin(), from->second.end());
    }
    return firsts;
  }

 private:
  std::map<std::string, std::vector<std::string>> sources_;
  std::map<std::string, std::int64_t> first_of_slice_;
};

}  // namespace

std::vector<SeriesPadding> padded_inputs(const model::Network& network, const io::DatasetInfo& info) {
  const model::Description& description = network.description();
  const Origins origins(description);
  std::map<std::string, std::int64_t> lengths;  // the number that holds them, by the name of the value
  for (const model::Call& call : description.calls) {
    if (!call.find<bool>("are-lengths").value_or(false)) continue;
    lengths[call.name] = call.get<std::int64_t>("first");
  }
  std::map<std::int64_t, std::set<std::int64_t>> lengths_of;  // values: lengths, by the first number of an input
  for (const model::Call& call : description.calls) {
    if (call.from.size() != 2 || !lengths.contains(call.from[1])) continue;
    for (const std::int64_t first : origins.of(call.from[0])) lengths_of[first].insert(lengths[call.from[1]]);
  }
  std::vector<SeriesPadding> padded;
  for (const io::FieldRange& input : info.inputs) {
    const auto found = lengths_of.find(input.first);
    const std::vector<std::int64_t>& shape = input.field.sample_shape;
    if (found == lengths_of.end() || found->second.size() != 1 || shape.size() < 2) continue;
    padded.push_back({.first = input.first, .steps = shape[0], .lengths = *found->second.begin()});
  }
  return padded;
}

}  // namespace lockstep::app
