/// \file
/// One of two parts of an unsplit dataset: most samples for training, the others for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// One of every N/V consecutive samples is for validation; a hash of the block's number selects it. So the part of a
/// sample depends only on N and V, not on a seed or rank, and data sorted by class are split evenly. Takes no memory.
class SampleSplit {
 public:
  /// Requires 0 < validation < samples.
  SampleSplit(std::int64_t samples, std::int64_t validation);

  std::int64_t training() const noexcept { return samples_ - validation_; }
  std::int64_t validation() const noexcept { return validation_; }
  /// Index, among all samples, of sample `index` of the training part.
  std::int64_t training_sample(std::int64_t index) const noexcept;
  std::int64_t validation_sample(std::int64_t index) const noexcept;
  /// Number of validation samples among the first `samples` of all.
  std::int64_t validation_before(std::int64_t samples) const noexcept;
  std::int64_t training_before(std::int64_t samples) const noexcept { return samples - validation_before(samples); }

 private:
  std::int64_t begin(std::int64_t block) const noexcept;

  std::int64_t samples_, validation_;
};

class SplitDataset final : public DatasetView {
 public:
  enum class Part { training, validation };
  /// `share` of the samples are for validation: at least one, and at least one remains. Throws FileError if there are
  /// too few samples. Both parts may share `data`.
  SplitDataset(std::shared_ptr<Dataset> data, double share, Part part);

  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override;
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override;
  std::vector<std::int64_t> shard_counts() const override;
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;
  /// Only the training part checks the files, which both parts share.
  std::uint64_t verify(int part, int parts) const override;
  void check_unchanged(int part, int parts) override;

 private:
  /// Index among all samples. Throws std::invalid_argument.
  std::int64_t sample(std::int64_t index) const noexcept {
    return part_ == Part::training ? split_.training_sample(index) : split_.validation_sample(index);
  }

  std::vector<std::int64_t> in_all(std::span<const std::int64_t> samples) const;

  SampleSplit split_;
  Part part_;
  DatasetInfo info_;
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::io
