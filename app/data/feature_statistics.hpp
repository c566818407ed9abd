/// \file
/// Mean, deviation and range of every feature of a dataset, gathered by all ranks together.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

struct FeatureStatistics {
  std::vector<io::FeatureSpread> x;  ///< spread of each feature
  std::vector<io::FeatureSpread> y;  ///< spread of each target; empty if y are classes, or missing
  double least = 0, greatest = 0;    ///< range over all x
};

/// Number of features with a mean of their own: columns of tables, channels of images; otherwise 1.
std::int64_t features_of(const io::Field& x);
/// The parts of a sample with features of their own: its inputs, or all of it.
std::vector<io::FeaturePart> feature_parts(const io::DatasetInfo& info);
/// Number of features of all of them.
std::int64_t features_of(const io::DatasetInfo& info);

/// Collective. Each rank reads a part; more than 4 GiB are sampled evenly. The same bits at any number of ranks: the
/// data are cut into sections that do not depend on it, and the sections' sums are added in order. Throws
/// comm::ConsensusError for errors of reading.
FeatureStatistics gather_statistics(comm::Communicator& communicator, const io::Dataset& data);

}  // namespace lockstep::app
