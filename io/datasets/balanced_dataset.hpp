/// \file
/// Training samples drawn so that each class occurs equally often, regardless of its size.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// An epoch draws as many samples as the data have. Draw g of a run, counted over all epochs, is of class g mod C, so
/// an epoch has floor(N / C) or one more draws of each class. The draws of a class go through all of its samples, in an
/// order that depends on (seed, class, pass), before a sample is drawn again. So the numbers of draws of its samples in
/// a run differ by at most one.
///
/// In an epoch, index i is the i-th draw in the order of the files: a pure function of labels, seed and epoch.
/// Neighbouring indices are close together on disk, and the sample order mixes them like any others. In kNoEpoch, and
/// for weights and names, index i is sample i.
///
/// Uses 8 bytes per sample. The first read of an epoch takes about 0.1 s longer per million samples.
class BalancedDataset final : public DatasetView {
 public:
  static constexpr std::int64_t kMaxSamples = (std::int64_t{1} << 32) - 1;

  /// `labels`: those of all samples of `data`. Throws std::invalid_argument for a label that is not a class of `data`,
  /// a class without samples, or more than kMaxSamples.
  BalancedDataset(std::shared_ptr<Dataset> data, std::vector<std::int32_t> labels, std::uint64_t seed);

  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  /// One entry, because the number of draws in a shard depends on the epoch.
  std::vector<std::int64_t> shard_counts() const override { return {info().samples}; }
  /// Includes the memory of this object.
  std::size_t cache_bytes() const noexcept override;
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;

  /// The samples drawn in an epoch, ascending, one entry per draw.
  std::vector<std::uint32_t> draws(std::int64_t epoch) const;

 private:
  using Draws = std::shared_ptr<const std::vector<std::uint32_t>>;
  Draws kept_draws(std::int64_t epoch) const;

  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> counts_;  ///< number of samples of each class
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::int64_t kept_epoch_ = kNoEpoch;
  mutable Draws kept_;  ///< draws of kept_epoch_
};

}  // namespace lockstep::io
