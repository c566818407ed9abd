#include "io/shards/shard_file.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/checksum.hpp"
#include "io/files/unknown_name.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

std::string datasets_in(const Hdf5File& file) {
  constexpr std::size_t kMaxShown = 20;
  std::vector<std::string> all = file.datasets("/");
  for (const std::string& name : file.children("/")) {
    if (std::string why = file.dangling(name); !why.empty()) all.push_back(fmt::format("{}, which {}", name, why));
  }
  if (all.empty()) return "no dataset";
  const auto shown = std::span(all).first(std::min(all.size(), kMaxShown));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     all.size() > shown.size() ? fmt::format(" and {} more", all.size() - shown.size()) : "");
}

/// The only dataset of that name in any group.
std::optional<std::string> alone_of_name(const std::vector<std::string>& datasets, const std::string& name) {
  const auto has_name = [&](const std::string& path) { return path.ends_with("/" + name); };
  const auto first = std::find_if(datasets.begin(), datasets.end(), has_name);
  if (first == datasets.end() || std::any_of(first + 1, datasets.end(), has_name)) return std::nullopt;
  return *first;
}

/// Splits a text into names of datasets, unless the whole text is a name.
std::vector<std::string> datasets_named(const Hdf5File& file, const std::string& text) {
  if (text.find(',') == std::string::npos || file.has(text)) {
    return text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text};
  }
  return names_in(text);
}

/// The attribute `units`, of netCDF and CF; "" if there is none, or if it is no text.
std::string stored_unit(const Hdf5File& file, const std::string& dataset) {
  constexpr std::string_view kBlanks(" \t\n\r\0", 5);
  try {
    const std::string text = file.text(dataset, "units").value_or("");
    const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
    return readable(std::string_view(text).substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
  } catch (const FileError&) {
    return "";
  }
}

std::optional<ShardAttributes> read_attributes(const Hdf5File& file) {
  const auto version = file.integer("/", shard_attribute::kVersion);
  if (!version) return std::nullopt;
  const std::string path = file.path().string();
  if (*version > kShardSchemaVersion) {
    throw FileError(
        fmt::format("{}: was written with schema version {}, this program knows up to {}; use a newer "
                    "lockstep or pack again",
                    path, *version, kShardSchemaVersion));
  }
  const auto count = file.integer("/", shard_attribute::kCount);
  const auto labels = labels_of_name(file.text("/", shard_attribute::kLabels).value_or(""));
  const auto classes = file.integer("/", shard_attribute::kClasses);
  const auto names = file.texts("/", shard_attribute::kClassNames);
  const auto low = file.real("/", shard_attribute::kValueMin);
  const auto high = file.real("/", shard_attribute::kValueMax);
  if (!count || !labels || !classes || !names || !low || !high) {
    throw FileError(fmt::format("{}: calls itself a lockstep shard but lacks attributes of one; pack again", path));
  }
  return ShardAttributes{
      *count, *labels, *classes, *names, *low, *high, file.integer("/", shard_attribute::kIgnoredLabel)};
}

}  // namespace

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

std::vector<std::string> short_names(const std::vector<std::string>& datasets) {
  std::vector<std::string> names;
  std::set<std::string> all;
  for (const std::string& dataset : datasets) {
    names.push_back(dataset.substr(dataset.rfind('/') + 1));
    all.insert(names.back());
  }
  if (all.size() == names.size() && !all.contains("")) return names;
  names = datasets;
  for (std::string& name : names) {
    name.erase(0, name.find_first_not_of('/'));
    std::ranges::replace(name, '/', '_');
  }
  return names;
}

bool StoredField::splits_samples() const noexcept {
  for (std::size_t axis = 1; axis < chunk.size(); ++axis) {
    if (chunk[axis] < field.sample_shape[axis - 1]) return true;
  }
  return false;
}

ShardFile::ShardFile(const std::filesystem::path& path, const std::string& wanted_x, const std::string& wanted_y,
                     IoDeadline* deadline, Unlabelled unlabelled, Gaps gaps)
    : path_(path), deadline_(deadline), gaps_(gaps) {
  const IoDeadline::Operation opening(deadline_, IoDeadline::Kind::reading, path_);
  Hdf5File file(path, Hdf5File::Access::read);
  descriptor_ = open_file(path, O_RDONLY, "open");
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) {
    throw FileError(fmt::format("{}: {}", path.string(), std::generic_category().message(errno)));
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = identity_of(status);
  attributes_ = read_attributes(file);
  std::string x = wanted_x, y = wanted_y;
  if (!attributes_ && datasets_named(file, x).size() == 1) choose(file, x, y, unlabelled);
  const std::vector<std::string> inputs = datasets_named(file, x), targets = datasets_named(file, y);
  const auto is_there = [&](const std::string& name) { return file.has(name) || !file.dangling(name).empty(); };
  const bool labelled =
      !targets.empty() && (unlabelled == Unlabelled::refused || std::ranges::all_of(targets, [&](const auto& name) {
                             return is_there(name) && std::ranges::find(inputs, name) == inputs.end();
                           }));
  describe_all(file, inputs, labelled ? targets : std::vector<std::string>{});
  file.close();
  for (const StoredField& stored : fields_) {
    if (stored.count == count()) continue;
    throw FileError(fmt::format("{}: {} has {} samples but {} has {}", path.string(), fields_[0].dataset, count(),
                                stored.dataset, stored.count));
  }
  if (attributes_ && attributes_->count != count()) {
    throw FileError(fmt::format("{}: {} has {} samples, the file's own count is {}; pack again", path.string(), x,
                                count(), attributes_->count));
  }
  const bool by_offset = std::any_of(fields_.begin(), fields_.end(), [](const auto& f) { return f.offset; });
  if (!by_offset) descriptor_ = Descriptor();
}

ShardFile::Identity ShardFile::identity_of(const struct stat& status) noexcept {
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {.inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .changed = nanoseconds(status.st_mtim),
          .inode_changed = nanoseconds(status.st_ctim)};
}

std::string ShardFile::change(const Identity& before, const Identity& now) {
  if (now.inode != before.inode) return "another file has taken its place";
  if (now.bytes != before.bytes) {
    return fmt::format("it had {} bytes when the run opened it and has {}", before.bytes, now.bytes);
  }
  return now.changed != before.changed ? "it was written to" : "";
}

bool ShardFile::check_unchanged() {
  const auto require = [](const std::filesystem::path& file, const std::string& what) {
    if (what.empty()) return;
    throw FileError(
        {.file = file,
         .what = fmt::format("has changed since the run opened it: {}. Put the data back as they were, then --resume "
                             "goes on from the last checkpoint; or start a new run with the new data",
                             what)});
  };
  struct stat status {};
  for (const OtherFile& other : others_) {
    const bool there = ::stat(other.path.c_str(), &status) == 0;
    require(other.path, there ? change(other.identity, identity_of(status))
                              : fmt::format("it is gone, and {} takes data from it", path_.string()));
  }
  if (::stat(path_.c_str(), &status) != 0) return false;
  const Identity now = identity_of(status);
  require(path_, change(identity_, now));
  return std::exchange(identity_.inode_changed, now.inode_changed) != now.inode_changed;
}

std::vector<std::filesystem::path> ShardFile::other_files() const {
  std::vector<std::filesystem::path> files;
  for (const OtherFile& other : others_) files.push_back(other.path);
  return files;
}

/// Compares a header with the file's size before memory is allocated: a damaged header may claim anything.
void ShardFile::check_promise(const StoredField& stored, const DatasetLayout& layout) const {
  /// Largest ratio of data to bytes in the file: deflate reaches 1032, and no filter in use exceeds this limit.
  constexpr std::uint64_t kMaxPacked = std::uint64_t{1} << 16;
  const std::uint64_t promised = static_cast<std::uint64_t>(stored.field.elements()) * layout.stored_size *
                                 static_cast<std::uint64_t>(stored.count);
  const bool fills = gaps_.accept_unwritten && !layout.chunk.empty();  // has more elements than the file holds
  if (stored.offset || !layout.in_this_file || promised == 0 || fills) {
    if (!stored.offset || (*stored.offset <= bytes_ && promised <= bytes_ - *stored.offset)) return;
    throw FileError(
        fmt::format("{}: is truncated: the {} bytes of {} begin at byte {}, the file has {}; copy or pack "
                    "it again",
                    path_.string(), promised, stored.dataset, *stored.offset, bytes_));
  }
  std::uint64_t chunk = layout.stored_size;
  for (const std::int64_t extent : layout.chunk) {
    if (static_cast<std::uint64_t>(extent) > std::numeric_limits<std::uint64_t>::max() / chunk) {
      chunk = std::numeric_limits<std::uint64_t>::max();
      break;
    }
    chunk *= static_cast<std::uint64_t>(extent);
  }
  const std::uint64_t most = layout.compressed ? bytes_ * kMaxPacked : bytes_;
  if (promised <= most && chunk <= most) return;
  throw FileError(fmt::format(
      "{}: {} should be {} bytes{}, the file has {}: its header is damaged, or not all of it was written; copy or make "
      "it again",
      path_.string(), stored.dataset, promised,
      layout.chunk.empty() ? "" : fmt::format(" in chunks of {}{}", chunk, layout.compressed ? ", compressed" : ""),
      bytes_));
}

namespace {

/// "has no x: takes data for the samples"; an empty name was not searched, or not found.
std::string choice_text(const std::string& x, const std::string& y) {
  if (x.empty() && y.empty()) return "";
  if (y.empty()) return fmt::format("has no x: takes {} for the samples", x);
  if (x.empty()) return fmt::format("has no y: takes {} for the labels", y);
  return fmt::format("has no x and y: takes {} for the samples and {} for the labels", x, y);
}

}  // namespace

/// Replaces the default names x and y, if the file does not have them, by other datasets that fit.
void ShardFile::choose(const Hdf5File& file, std::string& x, std::string& y, Unlabelled unlabelled) {
  if (!file.dangling(x).empty() || (!y.empty() && !file.dangling(y).empty())) return;  // describe() reports it
  const bool wants_x = x == "x" && !file.has(x), wants_y = y == "y" && !file.has(y);
  if (!wants_x && !wants_y) return;
  struct Candidate {
    std::string name;
    std::int64_t count = 0, elements = 0;
    bool text = false;
  };
  std::vector<Candidate> candidates;
  const std::vector<std::string> datasets = file.datasets("/");
  const std::optional<std::string> named_x = wants_x ? alone_of_name(datasets, x) : x,
                                   named_y = wants_y ? alone_of_name(datasets, y) : y;
  if (named_x && named_y) {
    x = *named_x, y = *named_y;
    chosen_ = choice_text(wants_x ? x : "", wants_y ? y : "");
    return;
  }
  for (const std::string& name : datasets) {
    if ((!wants_x && name == x) || (!wants_y && name == y)) continue;
    const DatasetLayout layout = file.layout(name);
    if (layout.shape.empty() || layout.dimension || (layout.type == FileType::other && !layout.text)) continue;
    Candidate& candidate = candidates.emplace_back(Candidate{.name = name, .count = layout.shape[0], .elements = 1});
    candidate.text = layout.text;
    for (std::size_t axis = 1; axis < layout.shape.size(); ++axis) candidate.elements *= layout.shape[axis];
  }
  if (!wants_x) {
    const std::vector<std::int64_t> shape = file.layout(x).shape;
    std::erase_if(candidates, [&](const Candidate& one) { return shape.empty() || one.count != shape[0]; });
    if (candidates.size() == 1) y = candidates[0].name;
  } else if (!wants_y && !y.empty()) {
    if (candidates.size() == 1 && !candidates[0].text) x = candidates[0].name;
  } else if (candidates.size() == 1 && !candidates[0].text && unlabelled == Unlabelled::accepted) {
    x = candidates[0].name;
  } else if (wants_y && candidates.size() == 2 && candidates[0].count == candidates[1].count) {
    const auto is_smaller = [](const Candidate& a, const Candidate& b) {
      return a.text != b.text ? a.text : a.elements < b.elements;
    };
    if (is_smaller(candidates[1], candidates[0])) std::swap(candidates[0], candidates[1]);
    if (!is_smaller(candidates[0], candidates[1]) || candidates[1].text) return;  // nothing distinguishes them
    x = candidates[1].name;
    y = candidates[0].name;
  }
  if (file.has(x)) chosen_ = choice_text(wants_x ? x : "", wants_y && file.has(y) ? y : "");
}

void ShardFile::number_texts(const std::vector<std::string>& names) {
  numbers_.clear();
  for (const std::string& text : texts_) {
    numbers_.push_back(static_cast<std::int32_t>(std::lower_bound(names.begin(), names.end(), text) - names.begin()));
  }
}

/// A single input is named "x" and a single target "y"; several keep their own names.
void ShardFile::describe_all(const Hdf5File& file, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& targets) {
  std::vector<std::string> all = inputs;
  all.insert(all.end(), targets.begin(), targets.end());
  const bool several = inputs.size() > 1 || targets.size() > 1;
  std::set<std::string> seen;
  for (const std::string& one : all) {
    if (seen.insert(one).second || !several) continue;
    throw FileError({.file = path_, .what = fmt::format("{} is named twice: a field has one name", one)});
  }
  const std::vector<std::string> names = several ? short_names(all) : std::vector<std::string>{"x", "y"};
  const auto add = [&](std::size_t i) {
    const bool is_input = i < inputs.size();
    fields_.push_back(describe(file, is_input ? "x" : "y", names[i], all[i], !is_input && targets.size() == 1));
  };
  inputs_ = inputs.size();
  add(0);
  if (!targets.empty()) add(inputs.size());
  for (std::size_t i = 1; i < inputs.size(); ++i) add(i);
  for (std::size_t i = 1; i < targets.size(); ++i) add(inputs.size() + i);
}

StoredField ShardFile::describe(const Hdf5File& file, const std::string& role, const std::string& name,
                                const std::string& dataset, bool may_be_text) {
  if (const std::string why = file.dangling(dataset); !why.empty()) {
    throw FileError({.file = path_, .what = fmt::format("{} {}", dataset, why)});
  }
  if (!file.has(dataset)) {
    throw UnknownName(fmt::format("{}: has no dataset {}; it holds {}: choose with --{} (`pack`: --{}-name)",
                                  path_.string(), dataset, datasets_in(file), role, role));
  }
  if (attributes_) file.require_plain(dataset);
  const DatasetLayout layout = file.layout(dataset);
  const auto is_one = [](std::int64_t extent) { return extent == 1; };
  const auto has = [&](const char* attribute) { return file.has_attribute(dataset, attribute); };
  // Missing numbers of an enumeration are found as those of other numbers.
  const bool has_names = layout.text || (layout.named && !attributes_ && !has("_FillValue") && !has("missing_value"));
  const bool names_classes = has_names && may_be_text && !layout.shape.empty() &&
                             std::all_of(layout.shape.begin() + 1, layout.shape.end(), is_one);
  if (layout.type == FileType::other && !names_classes) {
    throw FileError(fmt::format("{}: the elements of {} are {}", path_.string(), dataset,
                                layout.text ? "texts: only labels may be, one for each sample" : layout.other));
  }
  if (layout.shape.empty()) {
    throw FileError(
        fmt::format("{}: {} is a single number; its first dimension should count samples", path_.string(), dataset));
  }
  if (!layout.in_this_file) note_other_files(file, dataset);
  StoredField stored;
  stored.dataset = dataset;
  stored.field = {name, layout.type, {layout.shape.begin() + 1, layout.shape.end()}};
  stored.count = layout.shape[0];
  stored.text = names_classes;
  stored.members = names_classes && layout.named;
  if (names_classes) {
    stored.field.type = FileType::int32;
    stored.chunk = layout.chunk;
    read_labels(file, dataset);
    return stored;
  }
  stored.native_order = layout.native_order;
  stored.in_this_file = layout.in_this_file;
  if (layout.native_order) stored.offset = layout.offset;
  stored.chunk = layout.chunk;
  stored.compressed = layout.compressed;
  if (attributes_) stored.checksum = file.text(dataset, kChecksumAttribute).value_or("");
  if (!attributes_) {
    stored.meaning = meaning_of(file, dataset, layout.type);
    if (gaps_.deliver_missing && role == "x") stored.meaning.deliver_missing();
    stored.field.unit = stored_unit(file, dataset);
    stored.field.type = stored.meaning.numbers;
  }
  if (stored.field.elements() < 1) {
    throw FileError(fmt::format("{}: the samples of {} are empty", path_.string(), dataset));
  }
  check_promise(stored, layout);
  return stored;
}

void ShardFile::note_other_files(const Hdf5File& file, const std::string& dataset) {
  for (const std::filesystem::path& other : file.other_files(dataset, gaps_.accept_unwritten)) {
    struct stat status {};
    if (::stat(other.c_str(), &status) != 0) {
      throw FileError({.file = path_,
                       .what = fmt::format("{} takes data from {}: {}", dataset, other.string(),
                                           std::generic_category().message(errno)),
                       .error_number = errno});
    }
    others_.push_back({.path = other, .identity = identity_of(status)});
  }
}

void ShardFile::read_labels(const Hdf5File& file, const std::string& dataset) {
  texts_ = file.read_texts(dataset);
  const auto empty = std::count(texts_.begin(), texts_.end(), "");
  if (empty > 0 && !gaps_.accept_unwritten) {
    throw FileError({.file = path_,
                     .what = fmt::format(
                         "{} of the {} labels in {} are empty texts, that of sample {} first: they were never "
                         "written. Write them, or give --allow-fill if they are a class of their own",
                         empty, texts_.size(), dataset, std::find(texts_.begin(), texts_.end(), "") - texts_.begin())});
  }
  std::vector<std::string> names = texts_;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  number_texts(names);
}

void ShardFile::read_rows(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const {
  const StoredField& stored = fields_[field];
  if (stored.text || !stored.meaning.matters()) return read_stored(field, first, rows, out);
  std::vector<std::byte> elements(stored.stored_bytes() * static_cast<std::size_t>(rows));
  read_stored(field, first, rows, elements);
  const auto missing = stored.meaning.apply(elements, out);
  if (!missing || gaps_.deliver_missing) return;
  throw FileError(
      {.file = path_,
       .what = fmt::format("sample {} of {} holds {}: it is missing. `lockstep pack` with --missing drop leaves such "
                           "samples out{}",
                           first + static_cast<std::int64_t>(missing->element) / stored.field.elements(),
                           stored.dataset, missing->why, field == 0 ? ", with --missing mean fills them" : "")});
}

std::vector<bool> ShardFile::missing_numbers(std::size_t field, std::int64_t first, std::int64_t rows) const {
  const StoredField& stored = fields_[field];
  if (stored.text) return std::vector<bool>(static_cast<std::size_t>(rows * stored.field.elements()), false);
  std::vector<std::byte> elements(stored.stored_bytes() * static_cast<std::size_t>(rows));
  read_stored(field, first, rows, elements);
  StoredMeaning meaning = stored.meaning;
  if (meaning.meant == FileType::other) meaning.meant = stored.field.type;
  return meaning.missing(elements);
}

void ShardFile::read_stored(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const {
  const IoDeadline::Operation reading(deadline_, IoDeadline::Kind::reading, path_);
  const StoredField& stored = fields_[field];
  if (stored.text) {
    const auto bytes =
        std::as_bytes(std::span(numbers_)).subspan(static_cast<std::size_t>(first) * sizeof(std::int32_t));
    std::copy_n(bytes.begin(), static_cast<std::size_t>(rows) * sizeof(std::int32_t), out.begin());
    return;
  }
  if (!stored.offset) {
    const FileType type = stored.meaning.matters() ? stored.meaning.stored : stored.field.type;
    Hdf5File(path_, Hdf5File::Access::read).read_rows(stored.dataset, type, first, rows, out);
    return;
  }
  std::uint64_t at = *stored.offset + stored.stored_bytes() * static_cast<std::uint64_t>(first);
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw FileError(fmt::format(
          "{}: cannot read {} at sample {}: {}", path_.string(), stored.dataset, first,
          got < 0 ? std::generic_category().message(errno) : "the file has become shorter since it was opened"));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
}

void ShardFile::will_need(std::size_t field, std::int64_t first, std::int64_t rows) const noexcept {
  const StoredField& stored = fields_[field];
  if (!stored.offset) return;
  const std::size_t row = stored.stored_bytes();
  ::posix_fadvise(descriptor_.get(), static_cast<off_t>(*stored.offset + row * static_cast<std::uint64_t>(first)),
                  static_cast<off_t>(row * static_cast<std::uint64_t>(rows)), POSIX_FADV_WILLNEED);
}

}  // namespace lockstep::io
