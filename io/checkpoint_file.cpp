#include "io/checkpoint_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/checksum.hpp"

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "checksums are over little-endian bytes");

constexpr const char* kFormatAttribute = "lockstep_checkpoint_format";
constexpr const char* kState = "/state";
constexpr const char* kChecksum = "xxh3_64";

// Each member of the record once: writing, reading and the checksum all walk these tables, in this order.
struct IntegerField {
  const char* name;
  std::int64_t (*get)(const TrainingRecord&);
  void (*set)(TrainingRecord&, std::int64_t);
};
constexpr std::array<IntegerField, 5> kIntegers = {{
    {"step", [](const TrainingRecord& r) { return r.step; }, [](TrainingRecord& r, std::int64_t v) { r.step = v; }},
    {"epoch", [](const TrainingRecord& r) { return r.epoch; }, [](TrainingRecord& r, std::int64_t v) { r.epoch = v; }},
    {"position", [](const TrainingRecord& r) { return r.position; },
     [](TrainingRecord& r, std::int64_t v) { r.position = v; }},
    {"seed", [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.seed); },
     [](TrainingRecord& r, std::int64_t v) { r.seed = static_cast<std::uint64_t>(v); }},
    {"world_size", [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.world_size); },
     [](TrainingRecord& r, std::int64_t v) { r.world_size = static_cast<int>(v); }},
}};

struct TextField {
  const char* name;
  std::string TrainingRecord::*member;
};
/// Short: attributes.
constexpr std::array<TextField, 4> kTexts = {{
    {"network", &TrainingRecord::network},
    {"optimizer", &TrainingRecord::optimizer},
    {"dataset", &TrainingRecord::dataset},
    {"program_version", &TrainingRecord::program_version},
}};
/// May be megabytes: datasets of bytes. Of format 1, all but the vocabulary.
constexpr std::array<TextField, 3> kLongTexts = {{
    {"configuration", &TrainingRecord::configuration},
    {"metrics", &TrainingRecord::metrics},
    {"vocabulary", &TrainingRecord::vocabulary},
}};
std::span<const TextField> long_texts(std::int64_t format) {
  return std::span(kLongTexts).first(format == 1 ? kLongTexts.size() - 1 : kLongTexts.size());
}

std::int64_t format_of(const TrainingRecord& record) { return record.vocabulary.empty() ? 1 : kCheckpointFormat; }

/// Numbers as 8 bytes, texts after their length: no two different sequences give the same bytes.
class Canonical {
 public:
  void add(std::int64_t value) { sum_.add(std::as_bytes(std::span(&value, 1))); }
  void add(double value) {
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    add(std::bit_cast<std::int64_t>(value));
  }
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    sum_.add(std::as_bytes(std::span(text)));
  }
  void add(std::span<const float> values) { sum_.add(std::as_bytes(values)); }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Checksum sum_;
};

std::string path_of(std::string_view group, std::string_view name) { return fmt::format("{}/{}", group, name); }

/// Of one tensor: where it belongs, its shape, its bytes. A tensor under another's name fails.
std::uint64_t tensor_checksum(std::string_view path, std::span<const std::int64_t> shape,
                              std::span<const float> values) {
  Canonical sum;
  sum.add(path);
  sum.add(static_cast<std::int64_t>(shape.size()));
  for (const std::int64_t extent : shape) sum.add(extent);
  sum.add(values);
  return sum.value();
}

/// Of the record and the list of tensors with their checksums: nothing can be lost, added or exchanged.
class StateChecksum {
 public:
  StateChecksum(const TrainingRecord& record, std::int64_t format) {
    sum_.add(format);
    for (const IntegerField& field : kIntegers) sum_.add(field.get(record));
    sum_.add(record.best_metric);
    for (const TextField& field : kTexts) sum_.add(std::string_view(record.*field.member));
    for (const TextField& field : long_texts(format)) sum_.add(std::string_view(record.*field.member));
  }
  void add_tensor(std::string_view path, std::uint64_t checksum) {
    sum_.add(path);
    sum_.add(static_cast<std::int64_t>(checksum));
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Canonical sum_;
};

/// Elements of a shape; nullopt: negative extents, or more than memory can address.
std::optional<std::size_t> elements_of(std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(float));
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && elements > kMost / extent)) return std::nullopt;
    elements *= extent;
  }
  return static_cast<std::size_t>(elements);
}

void check_tensor(const TensorView& tensor) {
  const std::string path = path_of(tensor.group, tensor.name);
  if (tensor.group.find('/') != std::string::npos || tensor.group == "state") {
    throw std::invalid_argument(fmt::format("'{}' is no name for a group of tensors", tensor.group));
  }
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos ||
        rest.ends_with('/')) {
      throw std::invalid_argument(fmt::format("'{}' is no name for a tensor", path));
    }
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  if (elements_of(tensor.shape) != tensor.values.size()) {
    throw std::invalid_argument(fmt::format("tensor {}: {} values do not fill the shape ({})", path,
                                            tensor.values.size(), fmt::join(tensor.shape, ", ")));
  }
}

class CheckpointFileReader {
 public:
  explicit CheckpointFileReader(const std::filesystem::path& path) : path_(path), file_(path, Hdf5File::Access::read) {
    std::error_code error;
    file_bytes_ = std::filesystem::file_size(path, error);
    if (error) throw FileError(fmt::format("cannot read {}: {}", path_.string(), error.message()));
  }

  VerifiedRecord read(std::vector<StoredTensor>* kept) {
    const std::int64_t format = read_format();
    VerifiedRecord result;
    read_record(result.record, format);
    StateChecksum state(result.record, format);
    for (const std::string& path : file_.texts(kState, "tensors").value_or(std::vector<std::string>{})) {
      StoredTensor tensor = read_tensor(path);
      state.add_tensor(path, tensor_checksum(path, tensor.shape, tensor.values));
      if (kept != nullptr) kept->push_back(std::move(tensor));
    }
    result.checksum = state.value();
    if (required(file_.text(kState, kChecksum), "/state", kChecksum) != to_hex(result.checksum)) {
      damaged("its state record does not match its checksum");
    }
    return result;
  }

  [[noreturn]] void damaged(std::string_view what) const {
    throw FileError(
        fmt::format("{} is corrupted: {}; use an older checkpoint (--resume takes the newest that verifies)",
                    path_.string(), what));
  }
  /// The library's complaints about an open file, "PATH: cannot …", as one of ours, "PATH is corrupted: cannot …".
  [[noreturn]] void in_our_words(const FileError& error) const {
    std::string_view text = error.what();
    const std::string prefix = path_.string() + ": ";
    if (!text.starts_with(prefix)) throw error;
    text.remove_prefix(prefix.size());
    damaged(text);
  }

 private:
  std::int64_t read_format() const {
    const auto format = file_.integer("/", kFormatAttribute);
    if (!format) {
      throw FileError(fmt::format("{} is not a Lockstep checkpoint (an HDF5 file without the attribute {})",
                                  path_.string(), kFormatAttribute));
    }
    if (*format > kCheckpointFormat) {
      throw FileError(
          fmt::format("{} was written by a newer format ({}); this program reads up to {}: use the version "
                      "of Lockstep that wrote it, or a later one",
                      path_.string(), *format, kCheckpointFormat));
    }
    if (*format < 1) damaged(fmt::format("its format version is {}", *format));
    return *format;
  }

  template <class Value>
  Value required(std::optional<Value> value, std::string_view object, std::string_view attribute) const {
    if (!value) damaged(fmt::format("attribute {} of {} is missing", attribute, object));
    return *std::move(value);
  }

  void read_record(TrainingRecord& record, std::int64_t format) {
    if (!file_.has(kState)) damaged("its state record is missing");
    for (const IntegerField& field : kIntegers) {
      field.set(record, required(file_.integer(kState, field.name), kState, field.name));
    }
    record.best_metric = required(file_.real(kState, "best_metric"), kState, "best_metric");
    for (const TextField& field : kTexts) {
      record.*field.member = required(file_.text(kState, field.name), kState, field.name);
    }
    for (const TextField& field : long_texts(format)) {
      const std::string dataset = fmt::format("{}/{}", kState, field.name);
      std::string& text = record.*field.member;
      text.resize(checked_elements(dataset, FileType::uint8, file_.layout(dataset)));
      file_.read(dataset, FileType::uint8, std::as_writable_bytes(std::span(text)));
    }
  }

  StoredTensor read_tensor(const std::string& path) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos) damaged(fmt::format("its list of tensors holds '{}'", path));
    const std::string dataset = "/" + path;
    if (!file_.has(dataset)) damaged(fmt::format("tensor {} is missing", path));
    StoredTensor tensor;
    tensor.group = path.substr(0, slash);
    tensor.name = path.substr(slash + 1);
    DatasetLayout layout = file_.layout(dataset);
    tensor.values.resize(checked_elements(path, FileType::float32, layout));
    tensor.shape = std::move(layout.shape);
    file_.read(dataset, FileType::float32, std::as_writable_bytes(std::span(tensor.values)));
    const std::string stored = required(file_.text(dataset, kChecksum), path, kChecksum);
    const std::string computed = to_hex(tensor_checksum(path, tensor.shape, tensor.values));
    if (stored != computed) {
      damaged(fmt::format("tensor {} does not match its checksum (stored {}, computed {})", path, stored, computed));
    }
    return tensor;
  }

  /// Before memory is taken for it.
  std::size_t checked_elements(const std::string& dataset, FileType type, const DatasetLayout& layout) const {
    if (layout.type != type) damaged(fmt::format("{} holds {}, not {}", dataset, name_of(layout.type), name_of(type)));
    const std::optional<std::size_t> elements = elements_of(layout.shape);
    const bool contiguous = layout.chunk.empty();
    if (!elements || (contiguous && *elements > file_bytes_ / size_of(type))) {
      damaged(fmt::format("{} has the impossible shape ({})", dataset, fmt::join(layout.shape, ", ")));
    }
    return *elements;
  }

  std::filesystem::path path_;
  Hdf5File file_;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace

void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors) {
  if (record.step < 0) throw std::invalid_argument(fmt::format("a checkpoint of step {}", record.step));
  for (const TextField& field : kTexts) {
    if ((record.*field.member).find('\0') != std::string::npos) {
      throw std::invalid_argument(fmt::format("the record's {} holds a NUL character", field.name));
    }
  }
  std::vector<std::string> paths;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor);
    paths.push_back(path_of(tensor.group, tensor.name) + "/");
  }
  // Sorted, a name is followed at once by its twin or by a name for which it would have to be a group.
  std::sort(paths.begin(), paths.end());
  for (std::size_t i = 1; i < paths.size(); ++i) {
    if (paths[i].starts_with(paths[i - 1])) {
      throw std::invalid_argument(fmt::format("the tensors '{}' and '{}' cannot lie in one checkpoint",
                                              paths[i - 1].substr(0, paths[i - 1].size() - 1),
                                              paths[i].substr(0, paths[i].size() - 1)));
    }
  }
}

std::uint64_t checkpoint_bytes_needed(const TrainingRecord& record, std::span<const TensorView> tensors) {
  std::uint64_t bytes = 64 * 1024;
  for (const TextField& field : kTexts) bytes += (record.*field.member).size();
  for (const TextField& field : kLongTexts) bytes += (record.*field.member).size();
  // Object headers, links and the group blocks of a tensor: 0.5 to 1 KiB were seen; the list of names has fixed width.
  std::uint64_t widest = 0;
  for (const TensorView& tensor : tensors) {
    bytes += tensor.values.size_bytes() + 2048;
    widest = std::max<std::uint64_t>(widest, tensor.group.size() + tensor.name.size() + 1);
  }
  return bytes + 2 * widest * tensors.size();
}

std::uint64_t fill_checkpoint_file(Hdf5File& file, const TrainingRecord& record, std::span<const TensorView> tensors) {
  const std::int64_t format = format_of(record);
  file.set_integer("/", kFormatAttribute, format);
  StateChecksum state(record, format);
  std::vector<std::string> paths;
  for (const TensorView& tensor : tensors) {
    const std::string path = path_of(tensor.group, tensor.name);
    const std::string dataset = "/" + path;
    const std::uint64_t checksum = tensor_checksum(path, tensor.shape, tensor.values);
    file.create_dataset(dataset, FileType::float32, tensor.shape);
    file.write(dataset, FileType::float32, std::as_bytes(tensor.values));
    file.set_text(dataset, kChecksum, to_hex(checksum));
    state.add_tensor(path, checksum);
    paths.push_back(path);
  }
  file.create_group(kState);
  for (const IntegerField& field : kIntegers) file.set_integer(kState, field.name, field.get(record));
  file.set_real(kState, "best_metric", record.best_metric);
  for (const TextField& field : kTexts) file.set_text(kState, field.name, record.*field.member);
  for (const TextField& field : long_texts(format)) {
    const std::string dataset = fmt::format("{}/{}", kState, field.name);
    const std::string& text = record.*field.member;
    const auto size = static_cast<std::int64_t>(text.size());
    file.create_dataset(dataset, FileType::uint8, std::span(&size, 1));
    file.write(dataset, FileType::uint8, std::as_bytes(std::span(text)));
  }
  file.set_texts(kState, "tensors", paths);
  file.set_text(kState, kChecksum, to_hex(state.value()));
  return state.value();
}

VerifiedRecord read_checkpoint_file(const std::filesystem::path& path, std::vector<StoredTensor>* kept) {
  CheckpointFileReader reader(path);
  try {
    return reader.read(kept);
  } catch (const FileError& error) {
    reader.in_our_words(error);
  } catch (const std::bad_alloc&) {
    reader.damaged("it asks for more memory than there is");
  } catch (const std::length_error&) {
    reader.damaged("it asks for more memory than there is");
  }
}

}  // namespace lockstep::io
