/// \file
/// Meaning of the extents of a field: positions in space or time, and the channels at each. The plan decides it once,
/// from the network's declaration and the data; normalisation, augmentation, defaults and reports follow it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "io/shards/feature_scale.hpp"
#include "model/network_options.hpp"

namespace lockstep::app {

/// Extents of a field of numbers, channels last.
struct FieldAxes {
  /// [length] of a series, [height, width] of an image, [depth, height, width] of a volume; empty: a row of features.
  std::vector<std::int64_t> positions;
  std::int64_t channels = 1;  ///< numbers at each position; the features of a row

  bool is_row() const noexcept { return positions.empty(); }
  bool is_series() const noexcept { return positions.size() == 1; }
  bool is_image() const noexcept { return positions.size() == 2; }
  bool is_volume() const noexcept { return positions.size() == 3; }
  std::int64_t elements() const noexcept;
  bool operator==(const FieldAxes&) const = default;
};

/// Returns the axes of each input, in the order of the data. The network says what the extents mean; for networks that
/// read rows of numbers, samples of two extents are images, and the last of more extents is the channels. Empty: the
/// data are tokens.
std::vector<FieldAxes> axes_of_inputs(const io::DatasetInfo& info, const model::NetworkOptions& network);

/// Returns the parts of a sample with a mean and a deviation for each channel.
std::vector<io::FeaturePart> feature_parts(const std::vector<FieldAxes>& inputs);
/// Returns the number of features of all inputs: columns of tables, channels of other inputs.
std::int64_t features_of(const std::vector<FieldAxes>& inputs);

}  // namespace lockstep::app
