#include "io/datasets/shard_set.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include "io/datasets/sample_order.hpp"
#include "io/files/allocation.hpp"
#include "io/files/checksum.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// Blocks that go through the library; above the working set of the sample order (64 partitions x 16 blocks x 256 KiB).
constexpr std::size_t kBlockCacheBytes = std::size_t{384} << 20;
constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

constexpr const char* kExpected =
    "expected a folder of shards made by lockstep pack, a folder of HDF5 files (.h5, .hdf5), or one such file";

std::string shape_text(const StoredField& stored) {
  return fmt::format(
      "{} of shape ({}{})", name_of(stored.field.type), stored.count,
      stored.field.sample_shape.empty() ? "" : fmt::format(", {}", fmt::join(stored.field.sample_shape, ", ")));
}

/// One descriptor per shard stays open: raises this process's soft limit where the hard one allows.
void allow_descriptors(std::size_t count) {
  constexpr rlim_t kOthers = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + kOthers);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // if not, opening says "too many open files"
}

void require_as_listed(const ShardFile& file, const ShardManifest& manifest, const ManifestShard& shard) {
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

void require_like_first(const ShardFile& first, const ShardFile& file) {
  if (file.fields().size() != first.fields().size()) {
    throw FileError(fmt::format("{}: has {}, unlike its sibling {}", file.path().string(),
                                file.fields().size() > 1 ? "labels" : "no labels", first.path().filename().string()));
  }
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

/// About `bytes`, in whole chunks.
std::int64_t block_rows(const StoredField& stored, std::size_t bytes) {
  const auto rows = static_cast<std::int64_t>(bytes / stored.field.bytes());
  const std::int64_t multiple = stored.offset ? 1 : stored.chunk_rows();
  return std::max<std::int64_t>(1, (rows + multiple - 1) / multiple) * multiple;
}

}  // namespace

std::vector<std::filesystem::path> hdf5_files_in(const std::filesystem::path& path) {
  const auto status = std::filesystem::status(path);
  if (!std::filesystem::exists(status)) {
    throw FileError(fmt::format("{}: does not exist; {}", path.string(), kExpected));
  }
  if (!std::filesystem::is_directory(status)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool hdf5 = extension == ".h5" || extension == ".hdf5" || extension == ".hdf";
    if (hdf5 && !name.starts_with('.') && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw FileError(fmt::format("{}: holds no HDF5 file; {}", path.string(), kExpected));
  return files;
}

bool is_packed(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown) && std::filesystem::exists(path / kManifestName, unknown);
}

ShardSet::ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline)
    : cache_(kBlockCacheBytes) {
  allow_descriptors(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    const std::filesystem::path path = folder / shard.file;
    if (!std::filesystem::exists(path)) {
      throw FileError(
          fmt::format("{}: is missing, though the manifest lists it; copy it again, or pack again", path.string()));
    }
    files_.emplace_back(path, manifest.fields[0].name, manifest.fields.size() > 1 ? manifest.fields[1].name : "",
                        deadline);
    require_as_listed(files_.back(), manifest, shard);
  }
  list_shards();
  explain_layouts();
}

ShardSet::ShardSet(const std::filesystem::path& path, const std::string& x, const std::string& y, IoDeadline* deadline,
                   Unlabelled unlabelled)
    : cache_(kBlockCacheBytes) {
  const std::vector<std::filesystem::path> paths = hdf5_files_in(path);
  const bool folder = std::filesystem::is_directory(path);
  allow_descriptors(paths.size());
  for (const auto& file : paths) {
    files_.emplace_back(file, x, y, deadline, unlabelled);
    require_like_first(files_.front(), files_.back());
  }
  if (!files_.front().chosen().empty()) {
    warnings_.push_back(fmt::format("{} has no x and y: {} (--x and --y say otherwise)", files_.front().path().string(),
                                    files_.front().chosen()));
  }
  number_texts();
  list_shards();
  if (rows_ == 0) throw FileError(fmt::format("{}: holds no samples", path.string()));
  if (folder) {
    warnings_.push_back(
        fmt::format("{} has no {}: types and classes are taken from the files, mean and deviation are "
                    "unknown, and a missing file goes unnoticed",
                    path.string(), kManifestName));
  }
  explain_layouts();
}

/// Labels that are texts: a name has one number in all files.
void ShardSet::number_texts() {
  constexpr std::size_t kMostNames = 65'536;
  std::set<std::string> names;
  for (const ShardFile& file : files_) {
    names.insert(file.texts().begin(), file.texts().end());
    if (names.size() <= kMostNames) continue;
    throw FileError(
        fmt::format("{}: its labels are more than {} different texts, which are no names of classes: choose "
                    "another data set with --y",
                    file.path().string(), kMostNames));
  }
  text_classes_.assign(names.begin(), names.end());
  for (const std::string& name : text_classes_) {
    if (!first_not_utf8(name)) continue;
    throw FileError(fmt::format("{}: the label {} is no UTF-8, as the names of classes are", files_[0].path().string(),
                                readable(name)));
  }
  for (ShardFile& file : files_) file.number_texts(text_classes_);
}

void ShardSet::list_shards() {
  for (const ShardFile& file : files_) {
    const auto& fields = file.fields();
    const bool by_offset =
        std::all_of(fields.begin(), fields.end(), [](const StoredField& stored) { return stored.offset.has_value(); });
    shards_.push_back({file.path(), rows_, file.count(), file.bytes(), by_offset, fields[0].checksum,
                       fields.size() > 1 ? fields[1].checksum : ""});
    firsts_.push_back(rows_);
    rows_ += file.count();
    if (!fields[0].offset) block_multiple_ = std::max(block_multiple_, fields[0].chunk_rows());
    for (const StoredField& stored : fields) {
      if (!stored.offset && !stored.text) in_blocks_ += static_cast<std::size_t>(file.count()) * stored.field.bytes();
    }
  }
}

std::size_t ShardSet::cache_bytes() const noexcept { return std::min(in_blocks_, kBlockCacheBytes); }

/// One warning per field; of the reasons, the one that costs most.
void ShardSet::explain_layouts() {
  for (std::size_t f = 0; f < files_[0].fields().size(); ++f) {
    for (const ShardFile& file : files_) {
      const StoredField& stored = file.fields()[f];
      if (stored.offset || stored.count == 0 || stored.text) continue;
      std::string reason;
      if (stored.splits_samples()) {
        reason = fmt::format(
            "is stored in chunks of ({}), so that one sample lies in several chunks and reading one "
            "means reading {}",
            fmt::join(stored.chunk, ", "), stored.chunk_rows());
      } else if (stored.compressed) {
        reason = "is compressed, so that reading it costs about a second of computing per 200 MB";
      } else if (!stored.native_order) {
        reason = "is stored in the other byte order or as float16, so that every element is converted";
      } else {
        reason = "is not stored contiguously, so that reading it goes through the HDF5 library";
      }
      warnings_.push_back(
          fmt::format("{}: {} {}. `lockstep pack` or `h5repack -l {}:CONTI -f {}:NONE IN OUT` makes a "
                      "copy that is read at full speed",
                      file.path().string(), stored.dataset, reason, stored.dataset, stored.dataset));
      break;
    }
  }
}

std::size_t ShardSet::shard_of(std::int64_t row) const {
  if (row < 0 || row >= rows_) {
    throw std::invalid_argument(fmt::format("there is no sample {}: the data has {}", row, rows_));
  }
  return static_cast<std::size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), row) - firsts_.begin()) - 1;
}

void ShardSet::read(std::size_t shard, std::size_t f, std::int64_t first, std::int64_t rows,
                    std::span<std::byte> out) const {
  const ShardFile& file = files_[shard];
  const StoredField& stored = file.fields()[f];
  if (stored.offset) return file.read_rows(f, first, rows, out);
  const std::size_t row_bytes = stored.field.bytes();
  const std::int64_t per_block = block_rows(stored, kBlockBytes);
  while (rows > 0) {
    const std::int64_t block = first / per_block;
    const std::int64_t begin = block * per_block;
    const std::int64_t end = std::min(begin + per_block, file.count());
    const auto data = cache_.get({shard, f, block}, [&] {
      const std::size_t size = static_cast<std::size_t>(end - begin) * row_bytes;
      return allocating(file.path(), fmt::format("a block of field {}", stored.field.name), size, [&] {
        std::vector<std::byte> bytes(size);
        file.read_rows(f, begin, end - begin, bytes);
        return bytes;
      });
    });
    const std::int64_t taken = std::min(rows, end - first);
    std::memcpy(out.data(), data->data() + static_cast<std::size_t>(first - begin) * row_bytes,
                static_cast<std::size_t>(taken) * row_bytes);
    out = out.subspan(static_cast<std::size_t>(taken) * row_bytes);
    first += taken;
    rows -= taken;
  }
}

void ShardSet::will_need(std::int64_t first, std::int64_t count) const noexcept {
  for (std::size_t s = 0; s < files_.size(); ++s) {
    const std::int64_t begin = std::max(first, firsts_[s]);
    const std::int64_t end = std::min(first + count, firsts_[s] + files_[s].count());
    if (begin < end) files_[s].will_need(0, begin - firsts_[s], end - begin);
  }
}

void ShardSet::stream(std::size_t shard, std::size_t field, const RowsWork& work) const {
  const ShardFile& file = files_[shard];
  const StoredField& stored = file.fields()[field];
  const std::int64_t rows = block_rows(stored, kStreamBytes);
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(rows, file.count())) * stored.field.bytes());
  for (std::int64_t at = 0; at < file.count(); at += rows) {
    const std::int64_t count = std::min(rows, file.count() - at);
    file.will_need(field, at + count, std::min(rows, file.count() - at - count));
    const auto block = std::span(buffer).first(static_cast<std::size_t>(count) * stored.field.bytes());
    file.read_rows(field, at, count, block);
    work(at, block);
  }
}

std::uint64_t ShardSet::verify(int part, int parts, const BlockWork& look) const {
  if (parts < 1 || part < 0 || part >= parts) {
    throw std::invalid_argument(fmt::format("there is no part {} of {}", part, parts));
  }
  std::uint64_t bytes = 0;
  for (std::size_t s = static_cast<std::size_t>(part); s < files_.size(); s += static_cast<std::size_t>(parts)) {
    for (std::size_t f = 0; f < files_[s].fields().size(); ++f) {
      const StoredField& stored = files_[s].fields()[f];
      if (stored.checksum.empty() && !look) continue;
      Checksum sum;
      stream(s, f, [&](std::int64_t first, std::span<const std::byte> block) {
        sum.add(block);
        bytes += block.size();
        if (look) look(s, f, first, block);
      });
      if (!stored.checksum.empty() && to_hex(sum.value()) != stored.checksum) {
        throw FileError(
            fmt::format("{}: {} is damaged: its checksum is {}, it was packed with {}; copy or pack it again",
                        files_[s].path().string(), stored.dataset, to_hex(sum.value()), stored.checksum));
      }
    }
  }
  return bytes;
}

void ShardSet::check_unchanged(int part, int parts) {
  const int files = static_cast<int>(files_.size());
  for (int s = part; s < files; s += parts) {
    if (files_[static_cast<std::size_t>(s)].check_unchanged()) verify(s, files, {});
  }
}

std::string ShardSet::identity() const {
  std::string text;
  for (const ShardInfo& shard : shards_) {
    text += fmt::format("{} {} {} {} {}\n", shard.file.filename().string(), shard.count, shard.bytes, shard.checksum_x,
                        shard.checksum_y);
  }
  return text;
}

}  // namespace lockstep::io
