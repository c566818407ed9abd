/// \file
/// Computes mean, standard deviation and range of the features of a dataset. All ranks share the work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "app/data/series_padding.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/feature_scale.hpp"

namespace lockstep::app {

struct FeatureStatistics {
  std::vector<io::FeatureSpread> x;  ///< spread of each feature
  std::vector<io::FeatureSpread> y;  ///< spread of each target; empty if y is missing or holds classes
  double least = 0, greatest = 0;    ///< range over all x
};

/// Collective. `x`: parts of a sample, which give the features. Each rank reads a part of the data; beyond 4 GiB evenly
/// spread blocks are read. The result has the same bits at any number of ranks: the data are cut into sections
/// independently of the number of ranks, and the sums of the sections are added in order. The steps of `padding` do not
/// count. Throws comm::ConsensusError if reading fails.
FeatureStatistics gather_statistics(comm::Communicator& communicator, const io::Dataset& data,
                                    std::span<const io::FeaturePart> x, std::span<const SeriesPadding> padding = {});

/// As above, of up to 256 samples that are spread evenly over the data. Only the calling rank reads, about 16 MiB at
/// most. Throws io::FileError.
FeatureStatistics sample_statistics(const io::Dataset& data, std::span<const io::FeaturePart> x);

}  // namespace lockstep::app
