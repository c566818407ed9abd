/// \file
/// Mean, deviation and range of every feature of a data set, gathered by all ranks together.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

struct FeatureStatistics {
  std::vector<io::FeatureSpread> x;  ///< of each feature
  std::vector<io::FeatureSpread> y;  ///< of each target; empty where y are classes, or not there
  double least = 0, greatest = 0;    ///< of all x
};

/// Columns of tables, channels of images: what an element's mean is taken over. One where nothing tells elements apart.
std::int64_t features_of(const io::Field& x);

/// Collective. Each rank reads a part; of more than 4 GiB an even sample. The same bits at any number of ranks: the
/// data are cut into sections that do not depend on it, and the sections' sums are added in their order. Throws
/// comm::AgreedError: what reading throws.
FeatureStatistics gather_statistics(comm::Communicator& communicator, const io::Dataset& data);

}  // namespace lockstep::app
