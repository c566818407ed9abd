#include "app/data/field_axes.hpp"

#include <cstddef>
#include <functional>
#include <numeric>

#include "app/data/network_input.hpp"
#include "model/input_extents.hpp"

namespace lockstep::app {

namespace {

/// Returns the axes of extents whose last one is the channels.
FieldAxes channels_last(std::vector<std::int64_t> extents) {
  FieldAxes axes{.positions = std::move(extents)};
  axes.channels = axes.positions.back();
  axes.positions.pop_back();
  return axes;
}

/// Returns the axes of a field that the network reads as a row of numbers.
FieldAxes axes_as_stored(const io::Field& field) {
  std::vector<std::int64_t> extents = field.sample_shape;
  while (extents.size() > 1 && extents.back() == 1) extents.pop_back();
  if (extents.empty()) return {};
  if (extents.size() == 2) extents.push_back(1);
  return channels_last(std::move(extents));
}

}  // namespace

std::int64_t FieldAxes::elements() const noexcept {
  return std::accumulate(positions.begin(), positions.end(), channels, std::multiplies<>());
}

std::vector<FieldAxes> axes_of_inputs(const io::DatasetInfo& info, const model::NetworkOptions& network) {
  if (info.tokens) return {};
  if (info.windows) return {channels_last(info.x.sample_shape)};
  std::vector<FieldAxes> axes;
  const std::vector<std::vector<std::int64_t>> extents = model::input_extents(network, sample_shape(info, {}));
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const bool declared = extents[i].size() > 1;
    axes.push_back(declared ? channels_last(extents[i])
                            : axes_as_stored(info.inputs.empty() ? info.x : info.inputs[i].field));
  }
  return axes;
}

std::vector<io::FeaturePart> feature_parts(const std::vector<FieldAxes>& inputs) {
  std::vector<io::FeaturePart> parts;
  for (const FieldAxes& axes : inputs) parts.push_back({.elements = axes.elements(), .features = axes.channels});
  return parts;
}

std::int64_t features_of(const std::vector<FieldAxes>& inputs) {
  std::int64_t features = 0;
  for (const FieldAxes& axes : inputs) features += axes.channels;
  return features;
}

}  // namespace lockstep::app
