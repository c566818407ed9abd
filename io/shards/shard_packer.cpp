#include "io/shards/shard_packer.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/shards/target_values.hpp"

namespace lockstep::io {
namespace {

/// Large enough that a call into HDF5 costs little, small enough for the second-level cache.
constexpr std::size_t kPackedBlockBytes = std::size_t{1} << 20;

/// Throws FileError if the file system of `folder` has less than `bytes` free.
void require_space(const std::filesystem::path& folder, std::uint64_t bytes) {
  const auto available = free_bytes(folder);
  if (!available || *available >= bytes) return;
  throw FileError(fmt::format("cannot pack into {}: {}", folder.string(), no_space_text(ENOSPC, folder, bytes)));
}

/// Throws FileError if the disk cannot hold a shard of `bytes`.
void reserve_shard(const std::filesystem::path& file, std::uint64_t bytes) {
  const int refusal = reserve_space(open_file(file, O_WRONLY, "open"), bytes);
  if (refusal == 0) return;
  throw FileError(fmt::format("cannot pack into {}: {}", file.string(), no_space_text(refusal, file, bytes)));
}

}  // namespace

ShardPacker::ShardPacker(SampleSource& source, std::int64_t shards, std::int64_t classes, std::filesystem::path folder,
                         const PackProgress& progress)
    : source_(source), shard_count_(shards), folder_(std::move(folder)), progress_(progress) {
  manifest_.samples = source.count();
  manifest_.fields = source.fields();
  for (const FieldRole role : source.roles()) manifest_.details.push_back({.role = role});
  manifest_.source = source.description();
  manifest_.class_names = source.class_names();
  manifest_.ignored_label = source.ignored_label();
  manifest_.tokens = source.token_info();
  manifest_.table = source.table();
  manifest_.id = source.sample_id();
  stored_ = source.stored_fields();
  if (manifest_.samples < 1) {
    throw FileError(fmt::format("{}: holds no {}", manifest_.source, manifest_.tokens ? "tokens" : "samples"));
  }
  if (shards < 1 || shards > manifest_.samples) {
    throw std::invalid_argument(fmt::format("{} {} cannot be cut into {} shards", manifest_.samples,
                                            manifest_.tokens ? "tokens" : "samples", shards));
  }
  const bool has_targets =
      manifest_.has_several_fields() ? !manifest_.names(FieldRole::target).empty() : manifest_.fields.size() > 1;
  manifest_.labels = !has_targets ? Labels::none : source.labels_are_classes() ? Labels::classes : Labels::targets;
  class_limit_ = !manifest_.class_names.empty() ? static_cast<std::int64_t>(manifest_.class_names.size())
                 : classes > 0                  ? classes
                                                : std::numeric_limits<std::int32_t>::max();
  classes_known_ = !manifest_.class_names.empty() || classes > 0;
  for (const Field& field : stored_) sample_bytes_ += field.bytes();
  block_samples_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kPackedBlockBytes / sample_bytes_));
  for (const Field& field : stored_) {
    buffers_.emplace_back(field.bytes() * static_cast<std::size_t>(block_samples_));
  }
  // Checks the space for all processes before any of them has used a part of it.
  require_space(folder_.parent_path(), sample_bytes_ * static_cast<std::uint64_t>(manifest_.samples));
}

void ShardPacker::write(int part, int parts) {
  const std::int64_t first = shard_count_ * part / parts, end = shard_count_ * (part + 1) / parts;
  first_ = boundary(first);
  end_ = boundary(end);
  require_space(folder_.parent_path(), sample_bytes_ * static_cast<std::uint64_t>(end_ - first_));
  if (first_ > 0) source_.skip(first_);
  done_ = first_;
  report(true);
  for (std::int64_t shard = first; shard < end; ++shard) {
    try {
      write_shard(shard);
    } catch (const FileError&) {  // reports "disk full" if that is the reason in spite of the reservation
      require_space(folder_.parent_path(), sample_bytes_ * static_cast<std::uint64_t>(end_ - boundary(shard)));
      throw;
    }
  }
}

std::string ShardPacker::found() const {
  static_assert(std::is_trivially_copyable_v<Measured> && std::is_trivially_copyable_v<MeasuredField>);
  const std::size_t fields = manifest_.details.size();
  std::string found;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    found.append(reinterpret_cast<const char*>(&own_[i]), sizeof(Measured));
    if (fields == 0) continue;
    found.append(reinterpret_cast<const char*>(&own_fields_[i * fields]), fields * sizeof(MeasuredField));
  }
  return found;
}

void ShardPacker::know(std::span<const std::string> found) {
  RunningStatistics statistics;
  std::vector<RunningStatistics> of_fields(manifest_.details.size());
  TargetPattern targets(manifest_.fields.size() > 1 ? manifest_.fields[1].elements() : 1);
  std::uint64_t source_bytes = 0;
  for (const std::string& of_one : found) {
    for (std::size_t at = 0; at < of_one.size(); at += sizeof(Measured) + of_fields.size() * sizeof(MeasuredField)) {
      Measured measured;
      std::memcpy(&measured, of_one.data() + at, sizeof measured);
      const std::int64_t index = measured.index;
      manifest_.shards.push_back({shard_file_name(index), boundary(index), boundary(index + 1) - boundary(index), 0,
                                  to_hex(measured.checksum_x),
                                  manifest_.fields.size() > 1 ? to_hex(measured.checksum_y) : "",
                                  manifest_.id ? to_hex(measured.checksum_id) : ""});
      for (std::size_t f = 0; f < of_fields.size(); ++f) {
        MeasuredField field;
        std::memcpy(&field, of_one.data() + at + sizeof measured + f * sizeof field, sizeof field);
        manifest_.shards.back().checksums.push_back(to_hex(field.checksum));
        of_fields[f].add(field.statistics);
      }
      if (!manifest_.tokens) statistics.add(measured.statistics);
      smallest_label_ = std::min(smallest_label_, measured.smallest_label);
      largest_label_ = std::max(largest_label_, measured.largest_label);
      targets.add(measured.targets);
      source_bytes = measured.source_bytes;
    }
  }
  const bool one_target = !manifest_.has_several_fields() || manifest_.names(FieldRole::target).size() == 1;
  if (manifest_.labels == Labels::targets) targets_ = one_target ? targets.values() : TargetValues::any;
  if (manifest_.has_several_fields()) return know_fields(of_fields);
  if (manifest_.tokens) {
    manifest_.value_max = static_cast<double>(manifest_.tokens->vocabulary - 1);
    manifest_.tokens->tokens = manifest_.samples;
    manifest_.tokens->bytes_per_token = static_cast<double>(source_bytes) / static_cast<double>(manifest_.samples);
    return;
  }
  const bool bytes = manifest_.fields[0].type == FileType::uint8;
  manifest_.value_min = bytes ? 0 : statistics.low();
  manifest_.value_max = bytes ? 255 : statistics.high();
  manifest_.mean = statistics.mean();
  manifest_.standard_deviation = statistics.standard_deviation();
  if (!std::isfinite(manifest_.standard_deviation)) {
    throw FileError(fmt::format("{}: the values of x are too large to take their standard deviation; scale them first",
                                manifest_.source));
  }
}

/// Statistics of several fields, and of all inputs together.
void ShardPacker::know_fields(std::span<const RunningStatistics> statistics) {
  RunningStatistics inputs;
  for (std::size_t f = 0; f < statistics.size(); ++f) {
    FieldDetail& detail = manifest_.details[f];
    const bool bytes = manifest_.fields[f].type == FileType::uint8;
    detail.value_min = bytes ? 0 : statistics[f].low();
    detail.value_max = bytes ? 255 : statistics[f].high();
    detail.mean = statistics[f].mean();
    detail.standard_deviation = statistics[f].standard_deviation();
    if (!std::isfinite(detail.standard_deviation)) {
      throw FileError(
          fmt::format("{}: the values of {} are too large to take their standard deviation; scale them first",
                      manifest_.source, manifest_.fields[f].name));
    }
    if (detail.role == FieldRole::target) continue;
    const bool is_first = f == 0;
    manifest_.value_min = is_first ? detail.value_min : std::min(manifest_.value_min, detail.value_min);
    manifest_.value_max = is_first ? detail.value_max : std::max(manifest_.value_max, detail.value_max);
    inputs.add(statistics[f]);
  }
  manifest_.mean = inputs.mean();
  manifest_.standard_deviation = inputs.standard_deviation();
}

LabelsOfWhole together(const LabelsOfWhole& a, const LabelsOfWhole& b) noexcept {
  TargetPattern targets(2);
  targets.add(a.targets);
  targets.add(b.targets);
  return {.classes = std::max(a.classes, b.classes), .targets = targets.values()};
}

LabelsOfWhole ShardPacker::labels() const noexcept {
  const bool classes = manifest_.labels == Labels::classes;
  return {.classes = !classes ? 0 : classes_known_ ? class_limit_ : largest_label_ + 1, .targets = targets_};
}

std::string ShardPacker::describe(const LabelsOfWhole& labels) {
  manifest_.classes = labels.classes;
  manifest_.target_values = labels.targets;
  std::vector<std::uint64_t> bytes;
  for (const Measured& measured : own_) {
    bytes.push_back(describe(manifest_.shards[static_cast<std::size_t>(measured.index)], measured.checksum_weight));
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size() * sizeof(std::uint64_t)};
}

PackSummary ShardPacker::finish(std::span<const std::string> described) {
  PackSummary summary{manifest_.samples, shard_count_, 0};
  if (!classes_known_ && smallest_label_ != kNoLabel) summary.first_class = smallest_label_;
  auto shard = manifest_.shards.begin();
  for (const std::string& of_one : described) {
    for (std::size_t at = 0; at < of_one.size(); at += sizeof(std::uint64_t), ++shard) {
      std::memcpy(&shard->bytes, of_one.data() + at, sizeof(std::uint64_t));
      summary.bytes += shard->bytes;
    }
  }
  write_manifest(folder_, manifest_);
  sync_folder(folder_);
  report(true);
  return summary;
}

std::int64_t ShardPacker::boundary(std::int64_t shard) const noexcept {  // in two steps: samples * shards may overflow
  return manifest_.samples / shard_count_ * shard + manifest_.samples % shard_count_ * shard / shard_count_;
}

void ShardPacker::report(bool always) {
  const auto now = std::chrono::steady_clock::now();
  if (!progress_ || (!always && now - reported_ < std::chrono::milliseconds(200))) return;
  reported_ = now;
  progress_(done_ - first_, end_ - first_);
}

void ShardPacker::write_shard(std::int64_t index) {
  const std::int64_t count = boundary(index + 1) - boundary(index);
  const std::filesystem::path path = folder_ / shard_file_name(index);
  Hdf5File file(path, Hdf5File::Access::create);
  reserve_shard(path, sample_bytes_ * static_cast<std::uint64_t>(count));
  for (const Field& field : stored_) {
    std::vector<std::int64_t> shape{count};
    shape.insert(shape.end(), field.sample_shape.begin(), field.sample_shape.end());
    file.create_dataset(field.name, field.type, shape);
  }
  std::vector<Checksum> checksums(stored_.size());
  Measured measured;
  measured.index = index;
  std::vector<MeasuredField> fields(manifest_.details.size());
  TargetPattern targets(manifest_.fields.size() > 1 ? manifest_.fields[1].elements() : 1);
  for (std::int64_t at = 0; at < count; at += block_samples_) {
    const std::int64_t samples = std::min(block_samples_, count - at);
    const auto blocks = read_block(samples, measured, targets, fields);
    for (std::size_t f = 0; f < blocks.size(); ++f) {
      checksums[f].add(blocks[f]);
      file.write_rows(stored_[f].name, stored_[f].type, at, samples, blocks[f]);
    }
    done_ += samples;
    report(false);
  }
  file.close();
  measured.checksum_x = checksums[0].value();
  if (manifest_.fields.size() > 1) measured.checksum_y = checksums[1].value();
  if (manifest_.fields.size() > 2) measured.checksum_weight = checksums[2].value();
  for (std::size_t f = 0; f < fields.size(); ++f) fields[f].checksum = checksums[f].value();
  own_fields_.insert(own_fields_.end(), fields.begin(), fields.end());
  if (manifest_.id) measured.checksum_id = checksums.back().value();
  measured.targets = targets.values();
  if (manifest_.tokens) measured.source_bytes = source_.source_bytes();
  own_.push_back(measured);
}

std::vector<std::span<std::byte>> ShardPacker::read_block(std::int64_t samples, Measured& measured,
                                                          TargetPattern& targets, std::span<MeasuredField> fields) {
  std::vector<std::span<std::byte>> blocks;
  for (std::size_t f = 0; f < buffers_.size(); ++f) {
    blocks.push_back(std::span(buffers_[f]).first(stored_[f].bytes() * static_cast<std::size_t>(samples)));
  }
  source_.read(samples, blocks);
  if (manifest_.tokens) {
    check_tokens(blocks[0]);
  } else if (!fields.empty()) {
    for (std::size_t f = 0; f < fields.size(); ++f) measure(f, blocks[f], fields[f].statistics);
  } else {
    measure(0, blocks[0], measured.statistics);
  }
  if (manifest_.labels == Labels::classes) check_labels(blocks[1], measured);
  if (manifest_.labels == Labels::targets) {
    if (fields.empty()) measure(1, blocks[1], target_statistics_);
    targets.add(manifest_.fields[1].type, blocks[1]);
  }
  return blocks;
}

void ShardPacker::measure(std::size_t f, std::span<const std::byte> block, RunningStatistics& statistics) {
  const Field& field = manifest_.fields[f];
  with_elements(field.type, block, [&](auto elements) {
    if (const auto bad = statistics.add(elements)) {
      const std::int64_t sample = done_ + static_cast<std::int64_t>(*bad) / field.elements();
      throw FileError(fmt::format("{}: sample {} holds NaN or infinity in {}; clean the data first", manifest_.source,
                                  sample, field.name));
    }
    if constexpr (std::is_same_v<typename decltype(elements)::value_type, double>) {
      constexpr double kMax = std::numeric_limits<float>::max();
      const auto large = std::ranges::find_if(elements, [](double number) { return std::abs(number) > kMax; });
      if (large == elements.end()) return;
      throw FileError(
          fmt::format("{}: sample {} holds {:.6g} in {}, which is beyond the range of float32, in which "
                      "networks compute; scale the data first",
                      manifest_.source, done_ + (large - elements.begin()) / field.elements(), *large, field.name));
    }
  });
}

void ShardPacker::check_labels(std::span<const std::byte> block, Measured& measured) {
  const Field& field = manifest_.fields[1];
  const auto place = [&](std::size_t index) {
    const auto at = static_cast<std::int64_t>(index);
    return fmt::format("sample {}{}", done_ + at / field.elements(),
                       place_text(field.sample_shape, at % field.elements()));
  };
  with_elements(field.type, block, [&](auto labels) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (manifest_.ignored_label && static_cast<std::int64_t>(labels[i]) == *manifest_.ignored_label) continue;
      // Unsigned 64-bit labels beyond the signed range turn negative here, which is out of range, too.
      const auto label = static_cast<std::int64_t>(labels[i]);
      if (label < 0 || label >= class_limit_) {
        throw FileError(fmt::format("{}: {} has label {}, outside [0, {})", manifest_.source, place(i),
                                    label_text(labels[i]), class_limit_));
      }
      measured.smallest_label = std::min(measured.smallest_label, label);
      measured.largest_label = std::max(measured.largest_label, label);
      if (!classes_known_ && !plausible_classes(label + 1, manifest_.samples)) {
        throw FileError(
            fmt::format("{}: {} has label {}, which {} samples do not explain: it is damaged, or the "
                        "labels are no class numbers (--regression takes them as numbers to predict)",
                        manifest_.source, place(i), label, manifest_.samples));
      }
    }
  });
}

void ShardPacker::check_tokens(std::span<const std::byte> block) const {
  with_elements(manifest_.fields[0].type, block, [&](auto tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto token = static_cast<std::int64_t>(tokens[i]);
      if (token < 0 || token >= manifest_.tokens->vocabulary) {
        throw FileError(fmt::format("{}: token {} is {}, outside the vocabulary of {}", manifest_.source,
                                    done_ + static_cast<std::int64_t>(i), token, manifest_.tokens->vocabulary));
      }
    }
  });
}

/// Writes the attributes that are known only after all samples. Each file gets range and classes of the whole set, so
/// it can be used alone.
std::uint64_t ShardPacker::describe(const ManifestShard& shard, std::uint64_t checksum_weight) const {
  const std::filesystem::path path = folder_ / shard.file;
  Hdf5File file(path, Hdf5File::Access::modify);
  file.set_integer("/", shard_attribute::kVersion, manifest_.schema_version());
  file.set_integer("/", shard_attribute::kFirst, shard.first);
  file.set_integer("/", shard_attribute::kCount, shard.count);
  file.set_text("/", shard_attribute::kLabels, name_of(manifest_.labels));
  file.set_integer("/", shard_attribute::kClasses, manifest_.classes);
  file.set_texts("/", shard_attribute::kClassNames, manifest_.class_names);
  if (manifest_.ignored_label) file.set_integer("/", shard_attribute::kIgnoredLabel, *manifest_.ignored_label);
  file.set_real("/", shard_attribute::kValueMin, manifest_.value_min);
  file.set_real("/", shard_attribute::kValueMax, manifest_.value_max);
  if (manifest_.has_several_fields()) {
    for (std::size_t f = 0; f < manifest_.fields.size(); ++f) {
      file.set_text(manifest_.fields[f].name, kChecksumAttribute, shard.checksums[f]);
    }
  } else {
    file.set_text(manifest_.fields[0].name, kChecksumAttribute, shard.checksum_x);
    if (manifest_.fields.size() > 1) file.set_text("y", kChecksumAttribute, shard.checksum_y);
    if (manifest_.fields.size() > 2) file.set_text(kWeightName, kChecksumAttribute, to_hex(checksum_weight));
  }
  if (manifest_.id) file.set_text(kIdName, kChecksumAttribute, shard.checksum_id);
  file.close();
  sync_file(path);
  return std::filesystem::file_size(path);
}

}  // namespace lockstep::io
