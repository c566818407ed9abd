#include "io/datasets/shard_set.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include "io/datasets/hdf5_listing.hpp"
#include "io/datasets/sample_order.hpp"
#include "io/files/allocation.hpp"
#include "io/files/checksum.hpp"
#include "io/text/shell_word.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// Cache for blocks that go through the library; exceeds the working set of the sample order (64 partitions x 16 blocks
/// x 256 KiB).
constexpr std::size_t kBlockCacheBytes = std::size_t{384} << 20;
constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

std::string shape_text(const StoredField& stored) {
  return fmt::format(
      "{} of shape ({}{})", stored.text ? "names" : name_of(stored.field.type), stored.count,
      stored.field.sample_shape.empty() ? "" : fmt::format(", {}", fmt::join(stored.field.sample_shape, ", ")));
}

/// One descriptor per shard stays open, so this raises the process's soft limit as far as the hard one allows.
void allow_descriptors(std::size_t count) {
  constexpr rlim_t kOthers = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + kOthers);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // on failure, opening reports "too many open files"
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
  for (std::size_t f = 0; f < file.fields().size(); ++f) {  // without the weights, which have a set of their own
    const StoredField& stored = file.fields()[f];
    StoredField expected = stored;
    expected.field = manifest.fields[f];
    expected.count = shard.count;
    differs(stored.dataset, shape_text(stored), shape_text(expected));
    differs(fmt::format("the checksum of {}", stored.dataset), stored.checksum,
            manifest.has_several_fields() ? shard.checksums[f]
            : f == 0                      ? shard.checksum_x
                                          : shard.checksum_y);
  }
  differs("the number of classes", file.attributes()->classes, manifest.classes);
  differs("the kind of labels", std::string_view(name_of(file.attributes()->labels)),
          std::string_view(name_of(manifest.labels)));
  differs("the size in bytes", file.bytes(), shard.bytes);
}

void require_like_first(const ShardFile& first, const ShardFile& file) {
  if (file.fields().size() != first.fields().size()) {
    throw FileError(fmt::format("{}: has {}, unlike its sibling {}", file.path().string(),
                                file.targets() > 0 ? "labels" : "no labels", first.path().filename().string()));
  }
  for (std::size_t f = 0; f < file.fields().size(); ++f) {
    const StoredField& a = first.fields()[f];
    const StoredField& b = file.fields()[f];
    if (a.text == b.text && a.field.type == b.field.type && a.field.sample_shape == b.field.sample_shape) continue;
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

using OpenedFiles = std::vector<std::pair<std::filesystem::path, ShardFile>>;
/// Opens all files, except those from which other files of the set take their data; these may have any form.
template <class Open>
OpenedFiles open_foreign(const std::vector<std::filesystem::path>& paths, const Open& open,
                         std::vector<std::filesystem::path>& left_out) {
  OpenedFiles files;
  std::set<std::filesystem::path> parts;
  std::vector<std::pair<std::filesystem::path, FileError>> refused;
  for (const std::filesystem::path& path : paths) {
    try {
      files.emplace_back(path, open(path));
      for (const std::filesystem::path& other : files.back().second.other_files()) parts.insert(same_path(other));
    } catch (const FileError& error) {
      if (paths.size() == 1) throw;
      refused.emplace_back(path, error);
    }
  }
  const auto is_part = [&](const std::filesystem::path& path) { return parts.contains(same_path(path)); };
  for (const auto& [path, error] : refused) {
    if (!is_part(path)) throw error;
    left_out.push_back(path);
  }
  if (parts.empty()) return files;
  for (const auto& [path, file] : files) {
    if (is_part(path)) left_out.push_back(path);
  }
  std::erase_if(files, [&](const auto& one) { return is_part(one.first); });
  std::sort(left_out.begin(), left_out.end());
  return files;
}

/// Rows of about `bytes`, in whole chunks.
std::int64_t block_rows(const StoredField& stored, std::size_t bytes) {
  const auto rows = static_cast<std::int64_t>(bytes / stored.field.bytes());
  const std::int64_t multiple = stored.offset ? 1 : stored.chunk_rows();
  return std::max<std::int64_t>(1, (rows + multiple - 1) / multiple) * multiple;
}

}  // namespace

std::filesystem::path same_path(const std::filesystem::path& file) {
  std::error_code unknown;
  const std::filesystem::path path = std::filesystem::canonical(file, unknown);
  return unknown ? std::filesystem::absolute(file, unknown) : path;
}

bool is_packed(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown) && std::filesystem::exists(path / kManifestName, unknown);
}

ShardSet::ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline)
    : ShardSet(folder, manifest, deadline, 0, 1) {
  manifest_.reset();
  explain_layouts();
}

ShardSet::ShardSet(const std::filesystem::path& folder, const ShardManifest& manifest, IoDeadline* deadline, int part,
                   int parts)
    : manifest_(manifest), deadline_(deadline), slots_(manifest.shards.size()), cache_(kBlockCacheBytes) {
  allow_descriptors(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    list(folder / shard.file, shard.count, shard.bytes, shard.checksum_x, shard.checksum_y);
  }
  for (auto s = static_cast<std::size_t>(part); s < size(); s += static_cast<std::size_t>(parts)) {
    open(s, open_listed(s));
    note_layout(s);
  }
}

ShardSet::ShardSet(const std::filesystem::path& path, const std::string& x, const std::string& y, IoDeadline* deadline,
                   Unlabelled unlabelled, Gaps gaps)
    : cache_(kBlockCacheBytes) {
  const Hdf5Listing listing = list_hdf5_files(path);
  const bool folder = std::filesystem::is_directory(path);
  allow_descriptors(listing.files.size());
  std::vector<std::filesystem::path> left_out;
  const auto open_one = [&](const std::filesystem::path& one) {
    return ShardFile(one, x, y, deadline, unlabelled, gaps);
  };
  for (auto& [one, opened] : open_foreign(listing.files, open_one, left_out)) {
    const std::size_t shard = slots_.size();
    if (shard > 0) require_like_first(file(0), opened);
    note_units(opened);
    const auto& fields = opened.fields();
    list(one, opened.count(), opened.bytes(), fields[0].checksum, opened.targets() > 0 ? fields[1].checksum : "");
    slots_.emplace_back();
    open(shard, std::move(opened));
    note_layout(shard);
  }
  if (!file(0).chosen().empty()) {
    warnings_.push_back(fmt::format("{} {} (--x and --y say otherwise)", path_text(0), file(0).chosen()));
  }
  if (!left_out.empty()) {
    warnings_.push_back(
        fmt::format("{}: {} {} the data that other files of the folder show as theirs, and {} not read "
                    "once more",
                    path.string(), listed_names(left_out), left_out.size() == 1 ? "holds" : "hold",
                    left_out.size() == 1 ? "is" : "are"));
  }
  if (!listing.remark.empty()) warnings_.push_back(listing.remark);
  number_texts();
  if (rows_ == 0) throw FileError(fmt::format("{}: holds no samples", path.string()));
  if (folder) {
    warnings_.push_back(
        fmt::format("{} has no {}: types and classes are taken from the files, mean and deviation are "
                    "unknown, and a missing file goes unnoticed",
                    path.string(), kManifestName));
  }
  explain_layouts();
}

/// Warns if a field of `file` is in another unit than in an earlier file, once for all files.
void ShardSet::note_units(const ShardFile& file) {
  units_.resize(file.fields().size());
  for (std::size_t f = 0; f < units_.size() && !units_differ_; ++f) {
    const std::string& unit = file.fields()[f].field.unit;
    if (unit.empty()) continue;
    if (units_[f].unit.empty()) units_[f] = {unit, file.path().filename().string()};
    units_differ_ = unit != units_[f].unit;
    if (!units_differ_) continue;
    warnings_.push_back(
        fmt::format("{}: {} is in {}, and in its sibling {} in {}: is that meant? The numbers are "
                    "taken as they are",
                    file.path().string(), file.fields()[f].dataset, unit, units_[f].file, units_[f].unit));
  }
}

void ShardSet::complete(ShardLayouts layouts) {
  layouts_ = std::move(layouts);
  for (const ShardLayouts::Slow& slow : layouts_.slow) shards_[slow.shard].by_offset = false;
  explain_layouts();
}

const ShardFile& ShardSet::file(std::size_t shard) const {
  Slot& slot = slots_[shard];
  if (!slot.open.load(std::memory_order_acquire)) {
    const std::lock_guard lock(slot.opening);
    if (!slot.open.load(std::memory_order_relaxed)) open(shard, open_listed(shard));
  }
  return *slot.file;
}

void ShardSet::open(std::size_t shard, ShardFile file) const {
  slots_[shard].file.emplace(std::move(file));
  slots_[shard].open.store(true, std::memory_order_release);
}

ShardFile ShardSet::open_listed(std::size_t shard) const {
  if (!std::filesystem::exists(path(shard))) {
    throw FileError(
        fmt::format("{}: is missing, though the manifest lists it; copy it again, or pack again", path_text(shard)));
  }
  require_checksummed_structure(path(shard));
  const std::vector<Field>& fields = manifest_->fields;
  const auto names = [&](FieldRole role) { return fmt::format("{}", fmt::join(manifest_->names(role), ",")); };
  const std::string x = manifest_->has_several_fields() ? names(FieldRole::input) : fields[0].name;
  const std::string y = manifest_->has_several_fields() ? names(FieldRole::target)
                        : fields.size() > 1             ? fields[1].name
                                                        : "";
  ShardFile file(path(shard), x, y, deadline_);
  require_as_listed(file, *manifest_, manifest_->shards[shard]);
  return file;
}

/// Numbers labels that are texts: a name has one number in all files.
void ShardSet::number_texts() {
  constexpr std::size_t kMaxNames = 65'536;
  std::set<std::string> names;
  for (const Slot& slot : slots_) {
    names.insert(slot.file->texts().begin(), slot.file->texts().end());
    if (names.size() <= kMaxNames) continue;
    throw FileError(
        fmt::format("{}: its labels are more than {} different texts, which are no names of classes: choose "
                    "another data set with --y",
                    slot.file->path().string(), kMaxNames));
  }
  text_classes_.assign(names.begin(), names.end());
  for (const std::string& name : text_classes_) {
    if (!first_not_utf8(name)) continue;
    throw FileError(
        fmt::format("{}: the label {} is no UTF-8, as the names of classes are", path_text(0), readable(name)));
  }
  for (Slot& slot : slots_) slot.file->number_texts(text_classes_);
}

void ShardSet::list(const std::filesystem::path& file, std::int64_t count, std::uint64_t bytes, std::string checksum_x,
                    std::string checksum_y) {
  shards_.push_back({file, rows_, count, bytes, true, std::move(checksum_x), std::move(checksum_y)});
  firsts_.push_back(rows_);
  rows_ += count;
}

/// Records the layout of an open file. If a field is slow for several reasons, the most expensive one counts.
void ShardSet::note_layout(std::size_t shard) {
  const std::vector<StoredField>& fields = file(shard).fields();
  for (std::size_t i = 0; i < file(shard).inputs(); ++i) {
    const StoredField& input = fields[file(shard).input(i)];
    if (!input.offset) layouts_.block_multiple = std::max(layouts_.block_multiple, input.chunk_rows());
  }
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const StoredField& stored = fields[f];
    if (stored.offset) continue;
    shards_[shard].by_offset = false;
    ShardLayouts::Slow& slow = layouts_.slow.emplace_back(ShardLayouts::Slow{.shard = shard, .field = f});
    if (stored.text) continue;
    layouts_.in_blocks += static_cast<std::size_t>(stored.count) * stored.field.bytes();
    if (stored.count == 0) continue;
    std::string reason;
    if (stored.splits_samples()) {
      reason = fmt::format(
          "is stored in chunks of ({}), so that one sample lies in several chunks and reading one "
          "means reading {}",
          fmt::join(stored.chunk, ", "), stored.chunk_rows());
    } else if (stored.compressed) {
      reason = "is compressed, so that reading it costs about a second of computing per 200 MB";
    } else if (!stored.native_order) {
      reason =
          "is stored in the other byte order or another form of numbers (float16), so that every element is converted";
    } else if (!stored.in_this_file) {
      reason = "takes its data from other files, so that reading it goes through the HDF5 library";
    } else {
      reason = "is not stored contiguously, so that reading it goes through the HDF5 library";
    }
    slow.why = fmt::format(
        "{}: {} {}. `lockstep pack` or `h5repack -l {}:CONTI -f {}:NONE IN OUT` makes a "
        "copy that is read at full speed",
        path_text(shard), stored.dataset, reason, stored.dataset, stored.dataset);
  }
}

std::size_t ShardSet::cache_bytes() const noexcept { return std::min(layouts_.in_blocks, kBlockCacheBytes); }

/// Adds one warning per field.
void ShardSet::explain_layouts() {
  std::map<std::size_t, std::string> warnings;
  for (const ShardLayouts::Slow& slow : layouts_.slow) {
    if (!slow.why.empty()) warnings.try_emplace(slow.field, slow.why);
  }
  for (auto& [field, why] : warnings) warnings_.push_back(std::move(why));
}

std::size_t ShardSet::shard_of(std::int64_t row) const {
  if (row < 0 || row >= rows_) {
    throw std::invalid_argument(fmt::format("there is no sample {}: the data has {}", row, rows_));
  }
  return static_cast<std::size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), row) - firsts_.begin()) - 1;
}

void ShardSet::read(std::size_t shard, std::size_t f, std::int64_t first, std::int64_t rows,
                    std::span<std::byte> out) const {
  const ShardFile& file = this->file(shard);
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

void ShardSet::will_need(std::span<const std::size_t> fields, std::int64_t first, std::int64_t count) const noexcept {
  for (std::size_t s = 0; s < size(); ++s) {
    const std::int64_t begin = std::max(first, firsts_[s]);
    const std::int64_t end = std::min(first + count, firsts_[s] + shards_[s].count);
    if (begin >= end) continue;
    try {
      for (const std::size_t field : fields) file(s).will_need(field, begin - firsts_[s], end - begin);
    } catch (const std::exception&) {  // the read reports it
    }
  }
}

void ShardSet::stream(std::size_t shard, std::size_t field, const RowsWork& work) const {
  const ShardFile& file = this->file(shard);
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
  for (std::size_t s = static_cast<std::size_t>(part); s < size(); s += static_cast<std::size_t>(parts)) {
    for (std::size_t f = 0; f < file(s).fields().size(); ++f) {
      const StoredField& stored = file(s).fields()[f];
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
                        path_text(s), stored.dataset, to_hex(sum.value()), stored.checksum));
      }
    }
  }
  return bytes;
}

void ShardSet::check_unchanged(int part, int parts) {
  const int files = static_cast<int>(size());
  for (int s = part; s < files; s += parts) {
    const auto shard = static_cast<std::size_t>(s);
    file(shard);  // compares it with the manifest if it was not open yet
    if (slots_[shard].file->check_unchanged()) verify(s, files, {});
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
