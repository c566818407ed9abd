/// \file
/// Windows over series of numbers, by index arithmetic, without copies. The steps of a series are the samples of other
/// data in their order (the rows of a table or an array: one series), or lie within each sample (samples of steps x
/// numbers: as many series). Window i of a series has its steps [i, i + W) as x and what is to be forecast at the H
/// steps behind them as y. A step's x are all its numbers: those of the rows' x and then their targets, which are known
/// of the past. What is forecast are the targets, or all numbers if there are none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"
#include "io/datasets/split_dataset.hpp"

namespace lockstep::io {

struct WindowOptions {
  std::int64_t window = 0, horizon = 0;  ///< steps that a forecast sees, and steps of the forecast
  /// Windows up to the end of each series, without y: what comes behind it is forecast, too.
  bool to_the_end = false;
};

class WindowDataset final : public DatasetView {
 public:
  /// path: of the data, for messages. Throws FileError: a series that is shorter than window + horizon, classes in
  /// place of targets, samples of three extents or more, rows that were drawn by chance.
  WindowDataset(std::shared_ptr<Dataset> data, const WindowOptions& options, const std::filesystem::path& path);

  const DatasetInfo& info() const noexcept override { return info_; }
  std::string fingerprint() const override;
  FileType x_type() const noexcept override { return x_type_; }
  FileType y_type() const noexcept override { return y_type_; }
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  bool has_weights() const noexcept override { return false; }
  /// The step, of the data's first series or of "SERIES:STEP", at which a forecast begins; counted from 0.
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override;
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override;
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;

 private:
  /// Steps [first, first + count) of a series, as the data have them: numbers of x, and targets.
  struct Steps;
  std::vector<std::string> names_of_forecasts() const;
  Steps read_steps(std::int64_t series, std::int64_t first, std::int64_t count, std::int64_t epoch) const;

  WindowOptions options_;
  bool within_;  ///< series lie within samples
  bool has_targets_;
  std::int64_t numbers_, targets_;  ///< numbers of a step: in the rows' x; forecast
  FileType x_type_, y_type_;
  DatasetInfo info_;
};

/// A part of windows, split by time: the windows that are all before the cut of their series, which is for training, or
/// those whose forecasts begin behind it, though they may see steps before it. No step is forecast in both.
class WindowPart final : public DatasetView {
 public:
  using Part = SplitDataset::Part;
  /// `share` of the steps of each series are for validation. `windows`: of a WindowDataset. Throws FileError if a part
  /// would have no window.
  WindowPart(std::shared_ptr<Dataset> windows, double share, Part part);

  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<std::string>& warnings() const noexcept override;
  std::string fingerprint() const override;
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override {
    data().read(in_all(samples), epoch, x, y);
  }
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override {
    data().read_ids(in_all(samples), ids);
  }
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;
  /// The training part answers for the files of both.
  std::uint64_t verify(int part, int parts) const override;
  void check_unchanged(int part, int parts) override;

 private:
  std::int64_t in_all(std::int64_t sample) const noexcept;
  std::vector<std::int64_t> in_all(std::span<const std::int64_t> samples) const;

  Part part_;
  DatasetInfo info_;
  std::int64_t of_series_, all_of_series_, first_;  ///< windows of a series: in the part, in all; the part's first one
};

}  // namespace lockstep::io
