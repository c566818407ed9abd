/// \file
/// Converts targets that are class numbers, beside numeric targets, to one-hot rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// A target that is a class number.
struct ClassTarget {
  std::string name;
  std::int64_t classes = 0;
};

/// Delivers the data unchanged except for these targets: each becomes a row of `classes` zeros with a 1 at its class.
class ClassTargetsDataset final : public DatasetView {
 public:
  /// `path` is for messages. Throws FileError if such a target has several numbers. Names that the data do not have are
  /// ignored.
  ClassTargetsDataset(std::shared_ptr<Dataset> data, std::span<const ClassTarget> targets, std::filesystem::path path);

  const DatasetInfo& info() const noexcept override { return info_; }
  std::size_t y_bytes() const noexcept override;
  /// Also throws FileError for an invalid label; it names the target and the label.
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  /// A target of the data, and its place in the delivered row.
  struct Part {
    std::string name;
    std::int64_t from = 0, to = 0;  ///< first number in the stored and in the delivered row
    std::int64_t count = 0;
    std::int64_t classes = 0;  ///< 0: a numeric target
  };

  template <class Number>
  void expand(std::span<const Number> from, std::span<Number> to, std::span<const std::int64_t> samples) const;

  std::vector<Part> parts_;
  DatasetInfo info_;
  std::filesystem::path path_;
};

}  // namespace lockstep::io
