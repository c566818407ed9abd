/// \file
/// Image files in a folder as samples without labels, decoded when they are read. For predictions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "io/formats/image_sample.hpp"

namespace lockstep::io {

/// True for a folder with images and without HDF5 files, which was not packed. Looks only at names and stops at the
/// first image.
bool is_image_folder(const std::filesystem::path& folder);

class ImageDataset final : public Dataset {
 public:
  /// All images below `folder`, in the order of their names. They become samples like those that `learnt` describes:
  /// scaled as by `pack --size`, with the centre cut out if samples are square. Throws FileError for images of another
  /// depth, and if `learnt` is not an image (another shape, floats).
  ImageDataset(const std::filesystem::path& folder, const Field& learnt);

  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<ShardInfo>& shards() const noexcept override { return shards_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override;
  FileType x_type() const noexcept override;
  std::size_t x_bytes() const noexcept override;
  std::size_t y_bytes() const noexcept override { return 0; }
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override;
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override { return info_.x.bytes(); }
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t, std::int64_t, std::int64_t) const noexcept override {}
  std::uint64_t verify(int, int) const override { return 0; }
  void check_unchanged(int, int) override {}

 private:
  std::string path_below(const ListedImage& image) const;

  std::filesystem::path folder_;
  std::unique_ptr<ImageSamples> samples_;
  DatasetInfo info_;
  std::vector<ShardInfo> shards_;  ///< always empty
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::io
