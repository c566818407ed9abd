/// \file
/// Targets that are classes, beside others that are numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// A target whose number is that of a class.
struct ClassTarget {
  std::string name;
  std::int64_t classes = 0;
};

/// The data as they are, but for such targets: each becomes a row of zeros with a 1 for its class, as wide as there are
/// classes.
class ClassTargetsDataset final : public DatasetView {
 public:
  /// path: for messages. Throws FileError for a target of several numbers. Targets that the data do not have are left
  /// alone.
  ClassTargetsDataset(std::shared_ptr<Dataset> data, std::span<const ClassTarget> targets, std::filesystem::path path);

  const DatasetInfo& info() const noexcept override { return info_; }
  std::size_t y_bytes() const noexcept override;
  /// Throws FileError naming the target and the label, too.
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  /// A target of the data, and what becomes of it.
  struct Part {
    std::string name;
    std::int64_t from = 0, to = 0;  ///< its first number
    std::int64_t count = 0;
    std::int64_t classes = 0;  ///< 0: numbers
  };

  template <class Number>
  void expand(std::span<const Number> from, std::span<Number> to, std::span<const std::int64_t> samples) const;

  std::vector<Part> parts_;
  DatasetInfo info_;
  std::filesystem::path path_;
};

}  // namespace lockstep::io
