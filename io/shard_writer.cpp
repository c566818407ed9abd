#include "io/shard_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "io/checksum.hpp"
#include "io/durable_file.hpp"
#include "io/element_cast.hpp"
#include "io/hdf5_file.hpp"
#include "io/shard_manifest.hpp"

namespace lockstep::io {
namespace {

/// Large enough that a call into HDF5 costs nothing, small enough to stay in the second-level caches.
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

/// Count, mean and sum of squared deviations, merged block by block (Chan, Golub, LeVeque 1979), and the range.
class Statistics {
 public:
  /// Returns the position of the first NaN or infinity, or nothing.
  template <class Element>
  std::optional<std::size_t> add(std::span<const Element> block) {
    double sum = 0;
    Element low = block[0];
    Element high = block[0];
    for (const Element value : block) {
      sum += static_cast<double>(value);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (!std::isfinite(sum)) {
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (!std::isfinite(static_cast<double>(block[i]))) return i;
      }
    }
    const auto count = static_cast<double>(block.size());
    const double mean = sum / count;
    double squares = 0;
    for (const Element value : block)
      squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    const double delta = mean - mean_;
    const double total = count_ + count;
    mean_ += delta * count / total;
    squares_ += squares + delta * delta * count_ * count / total;
    count_ = total;
    low_ = std::min(low_, static_cast<double>(low));
    high_ = std::max(high_, static_cast<double>(high));
    return std::nullopt;
  }
  double mean() const noexcept { return mean_; }
  double standard_deviation() const noexcept { return std::sqrt(squares_ / count_); }
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

/// Throws FileError when the file system of `folder` has less than `bytes` free.
void require_space(const std::filesystem::path& folder, std::uint64_t bytes) {
  const auto available = free_bytes(folder);
  if (!available || *available >= bytes) return;
  throw FileError(fmt::format("cannot pack into {}: {}", folder.string(), no_space_text(ENOSPC, folder, bytes)));
}

/// A full disk shows before the first byte instead of half-way. File systems that cannot reserve are left alone.
void reserve_space(const std::filesystem::path& file, std::uint64_t bytes) {
  const Descriptor descriptor = open_file(file, O_WRONLY, "open");
  if (::fallocate(descriptor.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 && means_no_space(errno)) {
    throw FileError(fmt::format("cannot pack into {}: {}", file.string(), no_space_text(errno, file, bytes)));
  }
}

/// The folder that becomes the shard folder, or goes away with everything in it.
class TemporarySibling {
 public:
  explicit TemporarySibling(const std::filesystem::path& folder) {
    const std::filesystem::path parent = folder.parent_path();
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    std::string name = (parent / fmt::format(".{}.packing-XXXXXX", folder.filename().string())).string();
    if (error || ::mkdtemp(name.data()) == nullptr) {
      throw FileError(fmt::format("{}: cannot write there: {}", parent.string(),
                                  error ? error.message() : std::generic_category().message(errno)));
    }
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0755), error);  // mkdtemp's 0700 shuts out colleagues
  }
  ~TemporarySibling() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporarySibling(const TemporarySibling&) = delete;
  TemporarySibling& operator=(const TemporarySibling&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Afterwards `folder` is the new one; what stood there goes away with this object.
  void take_place_of(const std::filesystem::path& folder) {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
      // Nothing there yet, an empty folder, or a file system that cannot exchange: then the old one steps aside first.
      const std::filesystem::path aside = path_.string() + ".old";
      std::error_code missing;
      std::filesystem::rename(folder, aside, missing);
      std::error_code error;
      std::filesystem::rename(path_, folder, error);
      if (error && !missing) std::filesystem::rename(aside, folder, missing);
      if (error) {
        throw FileError(
            fmt::format("{}: cannot rename the finished folder to it: {}", folder.string(), error.message()));
      }
      path_ = aside;
    }
    sync_folder(folder.parent_path());
  }

 private:
  std::filesystem::path path_;
};

void require_replaceable(const std::filesystem::path& folder, bool overwrite) {
  const auto status = std::filesystem::symlink_status(folder);
  if (!std::filesystem::exists(status)) return;
  if (std::filesystem::is_directory(status) && std::filesystem::is_empty(folder)) return;
  if (!overwrite) {
    throw FileError(
        fmt::format("{}: exists already; choose another folder, or --force to replace it", folder.string()));
  }
  if (!std::filesystem::is_directory(status) || !is_shard_folder(folder)) {
    throw FileError(
        fmt::format("{}: is not a folder of nothing but shards and their manifest, so --force does not "
                    "replace it; choose another folder",
                    folder.string()));
  }
}

class ShardPacker {
 public:
  ShardPacker(SampleSource& source, const ShardWriterOptions& options, std::filesystem::path folder,
              const std::function<void(std::int64_t, std::int64_t)>& progress)
      : source_(source), shard_count_(options.shards), folder_(std::move(folder)), progress_(progress) {
    manifest_.samples = source.count();
    manifest_.fields = source.fields();
    manifest_.source = source.description();
    manifest_.class_names = source.class_names();
    if (manifest_.samples < 1) throw FileError(fmt::format("{}: holds no samples", manifest_.source));
    if (options.shards < 1 || options.shards > manifest_.samples) {
      throw std::invalid_argument(
          fmt::format("{} samples cannot be cut into {} shards", manifest_.samples, options.shards));
    }
    manifest_.labels = manifest_.fields.size() < 2   ? Labels::none
                       : source.labels_are_classes() ? Labels::classes
                                                     : Labels::targets;
    class_limit_ = !manifest_.class_names.empty() ? static_cast<std::int64_t>(manifest_.class_names.size())
                   : options.classes > 0          ? options.classes
                                                  : std::numeric_limits<std::int32_t>::max();
    classes_known_ = !manifest_.class_names.empty() || options.classes > 0;
    for (const Field& field : manifest_.fields) sample_bytes_ += field.bytes();
    block_samples_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlockBytes / sample_bytes_));
    for (const Field& field : manifest_.fields) {
      buffers_.emplace_back(field.bytes() * static_cast<std::size_t>(block_samples_));
    }
  }

  PackSummary pack() {
    require_space(folder_.parent_path(), sample_bytes_ * static_cast<std::uint64_t>(manifest_.samples));
    report(true);
    for (std::int64_t shard = 0; shard < shard_count_; ++shard) {
      try {
        write_shard(shard);
      } catch (const FileError&) {  // say "disk full" where that is the reason in spite of the reservation
        require_space(folder_.parent_path(),
                      sample_bytes_ * static_cast<std::uint64_t>(manifest_.samples - boundary(shard)));
        throw;
      }
    }
    finish_manifest();
    PackSummary summary{manifest_.samples, shard_count_, 0};
    for (ManifestShard& shard : manifest_.shards) {
      describe(shard);
      summary.bytes += shard.bytes;
    }
    write_manifest(folder_, manifest_);
    sync_folder(folder_);
    report(true);
    return summary;
  }

 private:
  std::int64_t boundary(std::int64_t shard) const {  // in two parts: samples * shards may not fit
    return manifest_.samples / shard_count_ * shard + manifest_.samples % shard_count_ * shard / shard_count_;
  }

  void report(bool always) {
    const auto now = std::chrono::steady_clock::now();
    if (!progress_ || (!always && now - reported_ < std::chrono::milliseconds(200))) return;
    reported_ = now;
    progress_(done_, manifest_.samples);
  }

  void write_shard(std::int64_t index) {
    ManifestShard shard{shard_file_name(index), boundary(index), boundary(index + 1) - boundary(index), 0, "", ""};
    const std::filesystem::path path = folder_ / shard.file;
    Hdf5File file(path, Hdf5File::Access::create);
    reserve_space(path, sample_bytes_ * static_cast<std::uint64_t>(shard.count));
    for (const Field& field : manifest_.fields) {
      std::vector<std::int64_t> shape{shard.count};
      shape.insert(shape.end(), field.sample_shape.begin(), field.sample_shape.end());
      file.create_dataset(field.name, field.type, shape);
    }
    std::vector<Checksum> checksums(manifest_.fields.size());
    for (std::int64_t at = 0; at < shard.count; at += block_samples_) {
      const std::int64_t samples = std::min(block_samples_, shard.count - at);
      const auto blocks = read_block(samples);
      for (std::size_t f = 0; f < blocks.size(); ++f) {
        checksums[f].add(blocks[f]);
        file.write_rows(manifest_.fields[f].name, manifest_.fields[f].type, at, samples, blocks[f]);
      }
      done_ += samples;
      report(false);
    }
    file.close();
    shard.checksum_x = to_hex(checksums[0].value());
    if (checksums.size() > 1) shard.checksum_y = to_hex(checksums[1].value());
    manifest_.shards.push_back(std::move(shard));
  }

  std::vector<std::span<std::byte>> read_block(std::int64_t samples) {
    std::vector<std::span<std::byte>> blocks;
    for (std::size_t f = 0; f < buffers_.size(); ++f) {
      blocks.push_back(std::span(buffers_[f]).first(manifest_.fields[f].bytes() * static_cast<std::size_t>(samples)));
    }
    source_.read(samples, blocks);
    measure(0, blocks[0], statistics_);
    if (blocks.size() > 1 && manifest_.labels == Labels::classes) check_labels(blocks[1]);
    if (blocks.size() > 1 && manifest_.labels == Labels::targets) measure(1, blocks[1], target_statistics_);
    return blocks;
  }

  void measure(std::size_t f, std::span<const std::byte> block, Statistics& statistics) {
    const Field& field = manifest_.fields[f];
    with_elements(field.type, block, [&](auto elements) {
      if (const auto bad = statistics.add(elements)) {
        const std::int64_t sample = done_ + static_cast<std::int64_t>(*bad) / field.elements();
        throw FileError(fmt::format("{}: sample {} holds NaN or infinity in {}; clean the data first", manifest_.source,
                                    sample, field.name));
      }
    });
  }

  void check_labels(std::span<const std::byte> block) {
    with_elements(manifest_.fields[1].type, block, [&](auto labels) {
      for (std::size_t i = 0; i < labels.size(); ++i) {
        // Unsigned 64-bit labels beyond the signed range turn negative here: out of range either way.
        const auto label = static_cast<std::int64_t>(labels[i]);
        if (label < 0 || label >= class_limit_) {
          throw FileError(fmt::format("{}: sample {} has label {}, outside [0, {})", manifest_.source,
                                      done_ + static_cast<std::int64_t>(i), label, class_limit_));
        }
        largest_label_ = std::max(largest_label_, label);
      }
    });
  }

  void finish_manifest() {
    if (manifest_.labels == Labels::classes) manifest_.classes = classes_known_ ? class_limit_ : largest_label_ + 1;
    const bool bytes = manifest_.fields[0].type == FileType::uint8;
    manifest_.value_min = bytes ? 0 : statistics_.low();
    manifest_.value_max = bytes ? 255 : statistics_.high();
    manifest_.mean = statistics_.mean();
    manifest_.standard_deviation = statistics_.standard_deviation();
    if (!std::isfinite(manifest_.standard_deviation)) {
      throw FileError(fmt::format(
          "{}: the values of x are too large to take their standard deviation; scale them first", manifest_.source));
    }
  }

  /// Only now are range and classes of the whole known: each file gets them too, so that it can stand alone.
  void describe(ManifestShard& shard) {
    const std::filesystem::path path = folder_ / shard.file;
    Hdf5File file(path, Hdf5File::Access::modify);
    file.set_integer("/", shard_attribute::kVersion, kShardSchemaVersion);
    file.set_integer("/", shard_attribute::kFirst, shard.first);
    file.set_integer("/", shard_attribute::kCount, shard.count);
    file.set_text("/", shard_attribute::kLabels, name_of(manifest_.labels));
    file.set_integer("/", shard_attribute::kClasses, manifest_.classes);
    file.set_texts("/", shard_attribute::kClassNames, manifest_.class_names);
    file.set_real("/", shard_attribute::kValueMin, manifest_.value_min);
    file.set_real("/", shard_attribute::kValueMax, manifest_.value_max);
    file.set_text("x", shard_attribute::kChecksum, shard.checksum_x);
    if (manifest_.fields.size() > 1) file.set_text("y", shard_attribute::kChecksum, shard.checksum_y);
    file.close();
    sync_file(path);
    shard.bytes = std::filesystem::file_size(path);
  }

  SampleSource& source_;
  std::int64_t shard_count_;
  std::filesystem::path folder_;
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  ShardManifest manifest_;
  std::int64_t class_limit_ = 0;
  bool classes_known_ = false;
  std::size_t sample_bytes_ = 0;
  std::int64_t block_samples_ = 1;
  std::vector<std::vector<std::byte>> buffers_;
  Statistics statistics_, target_statistics_;
  std::int64_t largest_label_ = 0;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace

PackSummary write_shards(SampleSource& source, const ShardWriterOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (options.folder.empty()) throw std::invalid_argument("write_shards needs the name of a folder");
  std::filesystem::path folder = std::filesystem::absolute(options.folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // a trailing slash
  require_replaceable(folder, options.overwrite);
  TemporarySibling temporary(folder);
  const PackSummary summary = ShardPacker(source, options, temporary.path(), progress).pack();
  require_replaceable(folder, options.overwrite);  // it may have come into being meanwhile
  temporary.take_place_of(folder);
  return summary;
}

}  // namespace lockstep::io
