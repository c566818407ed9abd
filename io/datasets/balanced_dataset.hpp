/// \file
/// Training samples drawn so that each class comes equally often, however many samples it has.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// An epoch draws as many samples as there are. Draw g of a run, counted over the epochs, is of class g mod C: so an
/// epoch has floor(N / C) or one more of each class. The draws of a class go through all of its samples, in an order
/// that (seed, class, pass) gives, before any of them comes again: in a run its samples come equally often, or once
/// more.
///
/// In an epoch, index i is the draw that is number i in the order of the files: a pure function of labels, seed and
/// epoch. What lies together on the disk has indices that do, and the sample order mixes them like any others. In
/// kNoEpoch index i is sample i, and so it is for weights and names.
///
/// Keeps 8 bytes for each sample. The first read of an epoch takes about 0.1 s more for each million of them.
class BalancedDataset final : public DatasetView {
 public:
  static constexpr std::int64_t kMaxSamples = (std::int64_t{1} << 32) - 1;

  /// `labels`: of all samples of `data`. Throws std::invalid_argument: a label that is no class of `data`, a class
  /// without samples, more than kMaxSamples.
  BalancedDataset(std::shared_ptr<Dataset> data, std::vector<std::int32_t> labels, std::uint64_t seed);

  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  /// One: a shard has as many draws as an epoch gives it.
  std::vector<std::int64_t> shard_counts() const override { return {info().samples}; }
  /// With what it keeps of all samples.
  std::size_t cache_bytes() const noexcept override;
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;

  /// The samples of an epoch's draws, ascending: one entry a draw.
  std::vector<std::uint32_t> draws(std::int64_t epoch) const;

 private:
  using Draws = std::shared_ptr<const std::vector<std::uint32_t>>;
  Draws kept_draws(std::int64_t epoch) const;

  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> counts_;  ///< samples of each class
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::int64_t kept_epoch_ = kNoEpoch;
  mutable Draws kept_;  ///< draws of kept_epoch_
};

}  // namespace lockstep::io
