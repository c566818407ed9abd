#include "io/sharded_dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "io/block_cache.hpp"
#include "io/checksum.hpp"
#include "io/element_cast.hpp"
#include "io/sample_order.hpp"
#include "io/shard_file.hpp"
#include "io/shard_manifest.hpp"

namespace lockstep::io {
namespace {

/// Labels up to this size are held in memory: one read less per sample.
constexpr std::uint64_t kResidentLabelBytes = std::uint64_t{16} << 20;
/// Blocks that go through the library; above the working set of the sample order (64 lanes x 16 blocks x 256 KiB).
constexpr std::size_t kBlockCacheBytes = std::size_t{384} << 20;
constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

constexpr const char* kExpected =
    "expected a folder of shards made by lockstep pack, a folder of HDF5 files (.h5, .hdf5), or one such file";

std::string shape_text(const StoredField& stored) {
  return fmt::format(
      "{} of shape ({}{})", name_of(stored.field.type), stored.count,
      stored.field.sample_shape.empty() ? "" : fmt::format(", {}", fmt::join(stored.field.sample_shape, ", ")));
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool hdf5 = extension == ".h5" || extension == ".hdf5" || extension == ".hdf";
    if (hdf5 && !name.starts_with('.') && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// One descriptor per shard stays open: raises this process's soft limit where the hard one allows.
void allow_descriptors(std::size_t count) {
  constexpr rlim_t kOthers = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + kOthers);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // if not, opening says "too many open files"
}

/// Position of the first element that is NaN or infinite. By the exponent's bits: one compare and or per element, which
/// vectorises, in spite of any floating-point flags.
template <class Float, class Bits>
std::optional<std::size_t> first_not_finite(std::span<const std::byte> data, Bits exponent) {
  const std::size_t count = data.size() / sizeof(Float);
  Bits found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof(Float), sizeof(Float));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    Float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(Float), sizeof(Float));
    if (!std::isfinite(value)) return i;
  }
}

std::optional<std::size_t> first_not_finite(FileType type, std::span<const std::byte> data) {
  if (type == FileType::float32) return first_not_finite<float>(data, std::uint32_t{0x7F800000});
  if (type == FileType::float64) return first_not_finite<double>(data, std::uint64_t{0x7FF0000000000000});
  return std::nullopt;
}

void to_float32(FileType type, std::span<const std::byte> raw, std::byte* out) {
  with_elements(type, raw, [&](auto elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto value = static_cast<float>(elements[i]);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  });
}

}  // namespace

struct ShardedDataset::Files {
  DatasetInfo info;
  std::vector<ShardFile> files;
  std::vector<ShardInfo> shards;
  std::vector<std::int64_t> firsts;            ///< of each shard: the search for a sample's shard
  std::vector<std::vector<std::byte>> labels;  ///< per shard as stored; empty: read on demand
  std::vector<std::string> warnings;
  std::int64_t block_multiple = 1;
  mutable BlockCache cache{kBlockCacheBytes};

  bool has_y() const noexcept { return !info.y.name.empty(); }

  void open(const DatasetOptions& options) {
    const auto status = std::filesystem::status(options.path);
    if (!std::filesystem::exists(status)) {
      throw FileError(fmt::format("{}: does not exist; {}", options.path.string(), kExpected));
    }
    if (std::filesystem::is_directory(status) && std::filesystem::exists(options.path / kManifestName)) {
      open_packed(options);
    } else {
      open_plain(options, std::filesystem::is_directory(status));
    }
    list_shards();
    explain_layouts();
    load_labels();
  }

  void open_packed(const DatasetOptions& options) {
    const ShardManifest manifest = read_manifest(options.path);
    if (options.x != "x" || options.y != "y") {
      throw FileError(fmt::format("{}: was made by lockstep pack, its datasets are x and y; leave --x and --y away",
                                  options.path.string()));
    }
    allow_descriptors(manifest.shards.size());
    const bool labelled = manifest.fields.size() > 1;
    for (const ManifestShard& shard : manifest.shards) {
      const std::filesystem::path path = options.path / shard.file;
      if (!std::filesystem::exists(path)) {
        throw FileError(
            fmt::format("{}: is missing, though the manifest lists it; copy it again, or pack again", path.string()));
      }
      files.emplace_back(path, "x", labelled ? "y" : "");
      compare(files.back(), manifest, shard);
    }
    info.samples = manifest.samples;
    info.x = manifest.fields[0];
    if (labelled) info.y = manifest.fields[1];
    info.labels_are_classes = manifest.labels == Labels::classes;
    info.classes = manifest.classes;
    info.class_names = manifest.class_names;
    info.value_min = manifest.value_min;
    info.value_max = manifest.value_max;
    info.mean = manifest.mean;
    info.standard_deviation = manifest.standard_deviation;
    info.has_statistics = true;
    info.source = manifest.source;
  }

  static void compare(const ShardFile& file, const ShardManifest& manifest, const ManifestShard& shard) {
    const auto differs = [&](std::string_view what, const auto& here, const auto& there) {
      if (here == there) return;
      throw FileError(
          fmt::format("{}: {} is {}, the manifest says {}; it belongs to another folder, or was changed: "
                      "copy or pack it again",
                      file.path().string(), what, here, there));
    };
    if (!file.attributes()) {
      throw FileError(
          fmt::format("{}: is not a shard made by lockstep pack, though the manifest lists it", file.path().string()));
    }
    for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
      const StoredField& stored = file.fields()[f];
      StoredField expected = stored;
      expected.field = manifest.fields[f];
      expected.count = shard.count;
      differs(stored.dataset, shape_text(stored), shape_text(expected));
      differs(fmt::format("the checksum of {}", stored.dataset), stored.checksum,
              f == 0 ? shard.checksum_x : shard.checksum_y);
    }
    differs("the number of classes", file.attributes()->classes, manifest.classes);
    differs("the kind of labels", std::string_view(name_of(file.attributes()->labels)),
            std::string_view(name_of(manifest.labels)));
    differs("the size in bytes", file.bytes(), shard.bytes);
  }

  void open_plain(const DatasetOptions& options, bool folder) {
    const auto paths = folder ? files_in(options.path) : std::vector{options.path};
    if (paths.empty()) throw FileError(fmt::format("{}: holds no HDF5 file; {}", options.path.string(), kExpected));
    allow_descriptors(paths.size());
    for (const auto& path : paths) {
      files.emplace_back(path, options.x, options.y);
      compare(files.front(), files.back());
      info.samples += files.back().count();
    }
    if (info.samples == 0) throw FileError(fmt::format("{}: holds no samples", options.path.string()));
    info.x = files[0].fields()[0].field;
    info.y = files[0].fields()[1].field;
    info.source = options.path.filename().string();
    if (const auto& attributes = files[0].attributes()) {  // shards without their manifest
      info.labels_are_classes = attributes->labels == Labels::classes;
      info.classes = attributes->classes;
      info.class_names = attributes->class_names;
      info.value_min = attributes->value_min;
      info.value_max = attributes->value_max;
    } else {
      info.labels_are_classes =
          info.y.elements() == 1 && info.y.type != FileType::float32 && info.y.type != FileType::float64;
      if (info.x.type == FileType::uint8) info.value_max = 255;
      if (info.x.type == FileType::uint16) info.value_max = 65535;
      if (info.labels_are_classes) count_classes();
    }
    if (folder) {
      warnings.push_back(
          fmt::format("{} has no {}: types and classes are taken from the files, mean and deviation are "
                      "unknown, and a missing file goes unnoticed",
                      options.path.string(), kManifestName));
    }
  }

  static void compare(const ShardFile& first, const ShardFile& file) {
    for (std::size_t f = 0; f < file.fields().size(); ++f) {
      const StoredField& a = first.fields()[f];
      const StoredField& b = file.fields()[f];
      if (a.field.type == b.field.type && a.field.sample_shape == b.field.sample_shape) continue;
      throw FileError(fmt::format("{}: {} is {}, unlike its sibling {}: {}", file.path().string(), b.dataset,
                                  shape_text(b), first.path().filename().string(), shape_text(a)));
    }
    const auto& a = first.attributes();
    const auto& b = file.attributes();
    if (a.has_value() != b.has_value() || (a && (a->classes != b->classes || a->labels != b->labels))) {
      throw FileError(
          fmt::format("{}: its classes or labels are unlike those of its sibling {}; they come from "
                      "different packs",
                      file.path().string(), first.path().filename().string()));
    }
  }

  void count_classes() {
    for (const ShardFile& file : files) {
      stream(file, 1, [&](std::int64_t first, std::span<const std::byte> block) {
        with_elements(info.y.type, block, [&](auto elements) {
          for (std::size_t i = 0; i < elements.size(); ++i) {
            const auto label = static_cast<std::int64_t>(elements[i]);
            if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
              throw FileError(fmt::format("{}: sample {} has label {}, which is no class number", file.path().string(),
                                          first + static_cast<std::int64_t>(i), label));
            }
            info.classes = std::max(info.classes, label + 1);
          }
        });
      });
    }
  }

  /// Calls `work` with the rows of a field as stored, in blocks, in order.
  template <class Work>
  static void stream(const ShardFile& file, std::size_t f, const Work& work) {
    const StoredField& stored = file.fields()[f];
    const std::int64_t rows = block_rows(stored, kStreamBytes);
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(rows, file.count())) * stored.field.bytes());
    for (std::int64_t at = 0; at < file.count(); at += rows) {
      const std::int64_t count = std::min(rows, file.count() - at);
      file.will_need(f, at + count, std::min(rows, file.count() - at - count));
      const auto block = std::span(buffer).first(static_cast<std::size_t>(count) * stored.field.bytes());
      file.read_rows(f, at, count, block);
      work(at, std::span<const std::byte>(block));
    }
  }

  /// About `bytes`, in whole chunks.
  static std::int64_t block_rows(const StoredField& stored, std::size_t bytes) {
    const auto rows = static_cast<std::int64_t>(bytes / stored.field.bytes());
    const std::int64_t multiple = stored.offset ? 1 : stored.chunk_rows();
    return std::max<std::int64_t>(1, (rows + multiple - 1) / multiple) * multiple;
  }

  void list_shards() {
    std::int64_t first = 0;
    for (const ShardFile& file : files) {
      const auto& fields = file.fields();
      const bool by_offset = std::all_of(fields.begin(), fields.end(),
                                         [](const StoredField& stored) { return stored.offset.has_value(); });
      shards.push_back({file.path(), first, file.count(), file.bytes(), by_offset, fields[0].checksum,
                        fields.size() > 1 ? fields[1].checksum : ""});
      firsts.push_back(first);
      first += file.count();
      if (!fields[0].offset) block_multiple = std::max(block_multiple, fields[0].chunk_rows());
    }
  }

  /// One warning per field; of the reasons, the one that costs most.
  void explain_layouts() {
    for (std::size_t f = 0; f < files[0].fields().size(); ++f) {
      for (const ShardFile& file : files) {
        const StoredField& stored = file.fields()[f];
        if (stored.offset || stored.count == 0) continue;
        std::string reason;
        if (stored.splits_samples()) {
          reason = fmt::format(
              "is stored in chunks of ({}), so that one sample lies in several chunks and reading one "
              "means reading {}",
              fmt::join(stored.chunk, ", "), stored.chunk_rows());
        } else if (stored.compressed) {
          reason = "is compressed, so that reading it costs about a second of computing per 200 MB";
        } else if (!stored.native_order) {
          reason = "is stored in the other byte order, so that every element is converted";
        } else {
          reason = "is not stored contiguously, so that reading it goes through the HDF5 library";
        }
        warnings.push_back(
            fmt::format("{}: {} {}. `lockstep pack` or `h5repack -l {}:CONTI -f {}:NONE IN OUT` makes a "
                        "copy that is read at full speed",
                        file.path().string(), stored.dataset, reason, stored.dataset, stored.dataset));
        break;
      }
    }
  }

  void load_labels() {
    labels.resize(files.size());
    if (!has_y() || info.y.bytes() * static_cast<std::uint64_t>(info.samples) > kResidentLabelBytes) return;
    for (std::size_t s = 0; s < files.size(); ++s) {
      labels[s].resize(info.y.bytes() * static_cast<std::size_t>(files[s].count()));
      if (!labels[s].empty()) files[s].read_rows(1, 0, files[s].count(), labels[s]);
    }
  }

  std::size_t shard_of(std::int64_t sample) const {
    if (sample < 0 || sample >= info.samples) {
      throw std::invalid_argument(fmt::format("there is no sample {}: the data has {}", sample, info.samples));
    }
    return static_cast<std::size_t>(std::upper_bound(firsts.begin(), firsts.end(), sample) - firsts.begin()) - 1;
  }

  /// Rows as stored; through the cache where the library has to be asked.
  void read_stored(std::size_t shard, std::size_t f, std::int64_t first, std::int64_t rows,
                   std::span<std::byte> out) const {
    const ShardFile& file = files[shard];
    const StoredField& stored = file.fields()[f];
    if (stored.offset) return file.read_rows(f, first, rows, out);
    const std::size_t row_bytes = stored.field.bytes();
    const std::int64_t per_block = block_rows(stored, kBlockBytes);
    while (rows > 0) {
      const std::int64_t block = first / per_block;
      const std::int64_t begin = block * per_block;
      const std::int64_t end = std::min(begin + per_block, file.count());
      const auto data = cache.get({shard, f, block}, [&] {
        std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin) * row_bytes);
        file.read_rows(f, begin, end - begin, bytes);
        return bytes;
      });
      const std::int64_t taken = std::min(rows, end - first);
      std::memcpy(out.data(), data->data() + static_cast<std::size_t>(first - begin) * row_bytes,
                  static_cast<std::size_t>(taken) * row_bytes);
      out = out.subspan(static_cast<std::size_t>(taken) * row_bytes);
      first += taken;
      rows -= taken;
    }
  }

  [[noreturn]] void not_finite(std::size_t shard, std::int64_t row, std::string_view field) const {
    throw FileError(fmt::format("{}: sample {} holds NaN or infinity in {}; clean the data and pack it again",
                                files[shard].path().string(), row, field));
  }

  void read_x(std::size_t shard, std::int64_t first, std::int64_t rows, FileType type, std::span<std::byte> out,
              std::vector<std::byte>& scratch) const {
    if (type == info.x.type) {
      read_stored(shard, 0, first, rows, out);
    } else {
      scratch.resize(info.x.bytes() * static_cast<std::size_t>(rows));
      read_stored(shard, 0, first, rows, scratch);
      to_float32(info.x.type, scratch, out.data());
    }
    if (const auto bad = first_not_finite(type, out)) {
      not_finite(shard, first + static_cast<std::int64_t>(*bad) / info.x.elements(), "x");
    }
  }

  void read_y(std::size_t shard, std::int64_t first, std::int64_t rows, std::span<std::byte> out,
              std::vector<std::byte>& scratch) const {
    const std::size_t row_bytes = info.y.bytes();
    std::span<const std::byte> raw;
    if (labels[shard].empty()) {
      scratch.resize(row_bytes * static_cast<std::size_t>(rows));
      read_stored(shard, 1, first, rows, scratch);
      raw = scratch;
    } else {
      raw = std::span(labels[shard])
                .subspan(static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(rows) * row_bytes);
    }
    if (!info.labels_are_classes) {
      to_float32(info.y.type, raw, out.data());
      if (const auto bad = first_not_finite(FileType::float32, out)) {
        not_finite(shard, first + static_cast<std::int64_t>(*bad) / info.y.elements(), "y");
      }
      return;
    }
    with_elements(info.y.type, raw, [&](auto elements) {
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto label = static_cast<std::int64_t>(elements[i]);
        if (label < 0 || label >= info.classes) {
          throw FileError(fmt::format("{}: sample {} has label {}, outside [0, {})", files[shard].path().string(),
                                      first + static_cast<std::int64_t>(i), label, info.classes));
        }
        const auto value = static_cast<std::int32_t>(label);
        std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
      }
    });
  }
};

ShardedDataset::ShardedDataset(const DatasetOptions& options) : files_(std::make_unique<Files>()) {
  files_->open(options);
}
ShardedDataset::~ShardedDataset() = default;

const DatasetInfo& ShardedDataset::info() const noexcept { return files_->info; }
const std::vector<ShardInfo>& ShardedDataset::shards() const noexcept { return files_->shards; }
const std::vector<std::string>& ShardedDataset::warnings() const noexcept { return files_->warnings; }
std::int64_t ShardedDataset::block_multiple() const noexcept { return files_->block_multiple; }
std::size_t ShardedDataset::stored_bytes() const noexcept {
  return info().x.bytes() + (files_->has_y() ? info().y.bytes() : 0);
}
std::vector<std::int64_t> ShardedDataset::shard_counts() const {
  std::vector<std::int64_t> counts;
  for (const ShardInfo& shard : shards()) counts.push_back(shard.count);
  return counts;
}

std::string ShardedDataset::fingerprint() const {
  const DatasetInfo& data = info();
  const std::string head =
      fmt::format("{} samples, x {} ({}), y {} ({}), {} classes", data.samples, name_of(data.x.type),
                  fmt::join(data.x.sample_shape, ", "), files_->has_y() ? name_of(data.y.type) : "none",
                  fmt::join(data.y.sample_shape, ", "), data.classes);
  std::string all = fmt::format("{}, range {} {}, mean {} {}, names {}\n", head, data.value_min, data.value_max,
                                data.mean, data.standard_deviation, fmt::join(data.class_names, "|"));
  for (const ShardInfo& shard : shards()) {
    all += fmt::format("{} {} {} {} {}\n", shard.file.filename().string(), shard.count, shard.bytes, shard.checksum_x,
                       shard.checksum_y);
  }
  return fmt::format("{}, {}", head, to_hex(checksum(std::as_bytes(std::span(all)))));
}

FileType ShardedDataset::x_type() const noexcept {
  const FileType stored = info().x.type;
  return stored == FileType::uint8 || stored == FileType::float64 ? stored : FileType::float32;
}
std::size_t ShardedDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info().x.elements()) * size_of(x_type());
}
std::size_t ShardedDataset::y_bytes() const noexcept {
  return files_->has_y() ? static_cast<std::size_t>(info().y.elements()) * sizeof(float) : 0;
}

void ShardedDataset::read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
                          std::span<std::byte> y) const {
  if (x.size() != samples.size() * x_bytes() || y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffers of ShardedDataset::read have the wrong size");
  }
  std::vector<std::byte> scratch;
  for (std::size_t at = 0; at < samples.size();) {
    const std::size_t shard = files_->shard_of(samples[at]);
    const std::int64_t end = files_->firsts[shard] + files_->files[shard].count();
    std::size_t run = 1;  // samples that follow each other in the file take one read
    while (at + run < samples.size() && samples[at + run] == samples[at] + static_cast<std::int64_t>(run) &&
           samples[at + run] < end) {
      ++run;
    }
    const std::int64_t first = samples[at] - files_->firsts[shard];
    const auto rows = static_cast<std::int64_t>(run);
    files_->read_x(shard, first, rows, x_type(), x.subspan(at * x_bytes(), run * x_bytes()), scratch);
    if (files_->has_y()) files_->read_y(shard, first, rows, y.subspan(at * y_bytes(), run * y_bytes()), scratch);
    at += run;
  }
}

void ShardedDataset::will_need(std::int64_t first, std::int64_t count) const noexcept {
  for (std::size_t s = 0; s < files_->files.size(); ++s) {
    const std::int64_t begin = std::max(first, files_->firsts[s]);
    const std::int64_t end = std::min(first + count, files_->firsts[s] + files_->files[s].count());
    if (begin < end) files_->files[s].will_need(0, begin - files_->firsts[s], end - begin);
  }
}

std::uint64_t ShardedDataset::verify(int part, int parts) const {
  if (parts < 1 || part < 0 || part >= parts) {
    throw std::invalid_argument(fmt::format("there is no part {} of {}", part, parts));
  }
  std::uint64_t bytes = 0;
  for (std::size_t s = static_cast<std::size_t>(part); s < files_->files.size(); s += static_cast<std::size_t>(parts)) {
    const ShardFile& file = files_->files[s];
    for (std::size_t f = 0; f < file.fields().size(); ++f) {
      const StoredField& stored = file.fields()[f];
      if (stored.checksum.empty()) continue;
      Checksum sum;
      Files::stream(file, f, [&](std::int64_t, std::span<const std::byte> block) {
        sum.add(block);
        bytes += block.size();
      });
      if (to_hex(sum.value()) != stored.checksum) {
        throw FileError(
            fmt::format("{}: {} is damaged: its checksum is {}, it was packed with {}; copy or pack it again",
                        file.path().string(), stored.dataset, to_hex(sum.value()), stored.checksum));
      }
    }
  }
  return bytes;
}

}  // namespace lockstep::io
