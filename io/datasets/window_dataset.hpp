/// \file
/// Windows over series of numbers, computed from the index, without copies. The data hold one series whose steps are
/// the samples (rows of a table or an array), or one series within each sample ([steps, numbers]). Window i of a series
/// has steps [i, i + W) as x, and the forecast numbers of the next H steps as y. A step's x has all its numbers: x of
/// the row, then its targets, because past targets are known. Targets are forecast; without targets, all numbers are.
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
  std::int64_t window = 0, horizon = 0;  ///< steps of x, and steps of the forecast
  /// True: windows without y up to the end of each series, for forecasts beyond it.
  bool to_the_end = false;
};

class WindowDataset final : public DatasetView {
 public:
  /// `path`: path of the data, for messages. Throws FileError for series shorter than window + horizon, classes instead
  /// of targets, samples with three or more extents, and rows that are not consecutive in time.
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
  /// Names the step at which the forecast begins, from 0 on: "STEP", or "SERIES:STEP" for several series.
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override;
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override;
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override;

 private:
  /// Steps [first, first + count) of a series, as stored: the numbers of x, and the targets.
  struct Steps;
  std::vector<std::string> names_of_forecasts() const;
  Steps read_steps(std::int64_t series, std::int64_t first, std::int64_t count, std::int64_t epoch) const;

  WindowOptions options_;
  bool within_;  ///< true: each sample is a series
  bool has_targets_;
  std::int64_t numbers_, targets_;  ///< numbers of a step in the rows' x; forecast numbers of a step
  FileType x_type_, y_type_;
  DatasetInfo info_;
};

/// A part of the windows, split by time. Training windows end before the cut of their series. Validation windows have
/// all forecast steps behind the cut, but x may begin before it. No step is forecast in both parts.
class WindowPart final : public DatasetView {
 public:
  using Part = SplitDataset::Part;
  /// The last `share` of each series' steps is for validation. `windows`: a WindowDataset. Throws FileError if a part
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
  /// Only the training part checks the files, which both parts share.
  std::uint64_t verify(int part, int parts) const override;
  void check_unchanged(int part, int parts) override;

 private:
  std::int64_t in_all(std::int64_t sample) const noexcept;
  std::vector<std::int64_t> in_all(std::span<const std::int64_t> samples) const;

  Part part_;
  DatasetInfo info_;
  std::int64_t of_series_, all_of_series_,
      first_;  ///< windows per series in this part and in all; index of this part's first window in a series
};

}  // namespace lockstep::io
