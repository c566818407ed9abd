#include "io/checkpoint_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <new>
#include <ranges>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "io/checksum.hpp"

namespace lockstep::io {
namespace {

static_assert(std::endian::native == std::endian::little, "checksums are over little-endian bytes");

constexpr const char* kFormatAttribute = "lockstep_checkpoint_format";
constexpr const char* kState = "/state";
constexpr const char* kChecksum = "xxh3_64";

// Each member of the record once: writing, reading and the checksum all walk these tables, in this order. `since`: the
// format that has it first.
struct IntegerField {
  const char* name;
  std::int64_t since;
  std::int64_t (*get)(const TrainingRecord&);
  void (*set)(TrainingRecord&, std::int64_t);
};
template <std::size_t index>
constexpr IntegerField image_extent(const char* name) {
  return {name, 3, [](const TrainingRecord& r) { return r.network.image.empty() ? 0 : r.network.image.at(index); },
          [](TrainingRecord& r, std::int64_t v) {
            if (v > 0) r.network.image.resize(3), r.network.image[index] = v;
          }};
}
constexpr std::array<IntegerField, 12> kIntegers = {{
    {"step", 1, [](const TrainingRecord& r) { return r.step; }, [](TrainingRecord& r, std::int64_t v) { r.step = v; }},
    {"epoch", 1, [](const TrainingRecord& r) { return r.epoch; },
     [](TrainingRecord& r, std::int64_t v) { r.epoch = v; }},
    {"position", 1, [](const TrainingRecord& r) { return r.position; },
     [](TrainingRecord& r, std::int64_t v) { r.position = v; }},
    {"seed", 1, [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.seed); },
     [](TrainingRecord& r, std::int64_t v) { r.seed = static_cast<std::uint64_t>(v); }},
    {"world_size", 1, [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.world_size); },
     [](TrainingRecord& r, std::int64_t v) { r.world_size = static_cast<int>(v); }},
    {"validated_step", 3, [](const TrainingRecord& r) { return r.validated_step; },
     [](TrainingRecord& r, std::int64_t v) { r.validated_step = v; }},
    {"features", 3, [](const TrainingRecord& r) { return r.network.features; },
     [](TrainingRecord& r, std::int64_t v) { r.network.features = v; }},
    {"outputs", 3, [](const TrainingRecord& r) { return r.network.outputs; },
     [](TrainingRecord& r, std::int64_t v) { r.network.outputs = v; }},
    image_extent<0>("image_height"),
    image_extent<1>("image_width"),
    image_extent<2>("image_channels"),
    {"tokens", 3, [](const TrainingRecord& r) { return r.network.tokens ? std::int64_t{1} : std::int64_t{0}; },
     [](TrainingRecord& r, std::int64_t v) { r.network.tokens = v != 0; }},
}};

struct TextField {
  const char* name;
  std::int64_t since;
  const std::string& (*get)(const TrainingRecord&);
  void (*set)(TrainingRecord&, std::string);
};
template <std::string TrainingRecord::*member>
constexpr TextField of_record(const char* name, std::int64_t since = 1) {
  return {name, since, [](const TrainingRecord& r) -> const std::string& { return r.*member; },
          [](TrainingRecord& r, std::string text) { r.*member = std::move(text); }};
}
template <std::string NetworkIdentity::*member>
constexpr TextField of_network(const char* name, std::int64_t since = 1) {
  return {name, since, [](const TrainingRecord& r) -> const std::string& { return r.network.*member; },
          [](TrainingRecord& r, std::string text) { r.network.*member = std::move(text); }};
}
/// Short: attributes.
constexpr std::array<TextField, 5> kTexts = {{
    of_network<&NetworkIdentity::signature>("network"),
    of_record<&TrainingRecord::optimizer>("optimizer"),
    of_record<&TrainingRecord::dataset>("dataset"),
    of_record<&TrainingRecord::program_version>("program_version"),
    of_network<&NetworkIdentity::kind>("network_kind", 3),
}};
/// May be megabytes: datasets of bytes.
constexpr std::array<TextField, 3> kLongTexts = {{
    of_record<&TrainingRecord::configuration>("configuration"),
    of_record<&TrainingRecord::metrics>("metrics"),
    of_record<&TrainingRecord::vocabulary>("vocabulary", 2),
}};

/// The fields that a format has.
template <class Fields>
auto fields_of(const Fields& fields, std::int64_t format) {
  return fields | std::views::filter([format](const auto& field) { return field.since <= format; });
}

/// Formats 1 and 2 tell people, not programs: `network` is "784 -> 10: mlp 784-512-10 relu", and that a step was
/// validated stands in the history. This is the one place that reads such text.
void understand_text_of_older_format(TrainingRecord& record) {
  NetworkIdentity& network = record.network;
  const std::string text = network.signature;
  const char* const end = text.data() + text.size();
  constexpr std::string_view kArrow = " -> ", kColon = ": ";
  const auto features = std::from_chars(text.data(), end, network.features);
  const bool has_arrow = features.ec == std::errc() && std::string_view(features.ptr, end).starts_with(kArrow);
  if (has_arrow) {
    const auto outputs = std::from_chars(features.ptr + kArrow.size(), end, network.outputs);
    if (outputs.ec == std::errc() && std::string_view(outputs.ptr, end).starts_with(kColon)) {
      network.signature.assign(outputs.ptr + kColon.size(), end);
    }
  }
  network.kind = network.signature.substr(0, network.signature.find(' '));
  network.tokens = !record.vocabulary.empty();
  const bool validated = record.metrics.find(fmt::format("\"step\":{},", record.step)) != std::string::npos;
  record.validated_step = validated ? record.step : -1;
}

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
    for (const IntegerField& field : fields_of(kIntegers, format)) sum_.add(field.get(record));
    sum_.add(record.best_metric);
    for (const TextField& field : fields_of(kTexts, format)) sum_.add(std::string_view(field.get(record)));
    for (const TextField& field : fields_of(kLongTexts, format)) sum_.add(std::string_view(field.get(record)));
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
    if (format < 3) understand_text_of_older_format(result.record);
    return result;
  }

  [[noreturn]] void damaged(std::string_view what) const {
    throw FileError(
        fmt::format("{} is corrupted: {}; use an older checkpoint (--resume takes the newest that verifies)",
                    path_.string(), what));
  }
  /// The library's complaints about the open file, "PATH: cannot …", as one of ours, "PATH is corrupted: cannot …".
  [[noreturn]] void in_our_words(const FileError& error) const {
    if (error.parts().file != path_) throw error;
    damaged(error.parts().what);
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
    for (const IntegerField& field : fields_of(kIntegers, format)) {
      field.set(record, required(file_.integer(kState, field.name), kState, field.name));
    }
    record.best_metric = required(file_.real(kState, "best_metric"), kState, "best_metric");
    for (const TextField& field : fields_of(kTexts, format)) {
      field.set(record, required(file_.text(kState, field.name), kState, field.name));
    }
    for (const TextField& field : fields_of(kLongTexts, format)) {
      const std::string dataset = fmt::format("{}/{}", kState, field.name);
      std::string text(checked_elements(dataset, FileType::uint8, file_.layout(dataset)), '\0');
      file_.read(dataset, FileType::uint8, std::as_writable_bytes(std::span(text)));
      field.set(record, std::move(text));
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

std::string to_text(const NetworkIdentity& network) {
  return fmt::format("{} -> {}: {}", network.features, network.outputs, network.signature);
}

void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors) {
  if (record.step < 0) throw std::invalid_argument(fmt::format("a checkpoint of step {}", record.step));
  for (const TextField& field : kTexts) {
    if (field.get(record).find('\0') != std::string::npos) {
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
  for (const TextField& field : kTexts) bytes += field.get(record).size();
  for (const TextField& field : kLongTexts) bytes += field.get(record).size();
  // Object headers, links and the group blocks of a tensor: 0.5 to 1 KiB were seen; the list of names has fixed width.
  std::uint64_t widest = 0;
  for (const TensorView& tensor : tensors) {
    bytes += tensor.values.size_bytes() + 2048;
    widest = std::max<std::uint64_t>(widest, tensor.group.size() + tensor.name.size() + 1);
  }
  return bytes + 2 * widest * tensors.size();
}

std::uint64_t fill_checkpoint_file(Hdf5File& file, const TrainingRecord& record, std::span<const TensorView> tensors) {
  file.set_integer("/", kFormatAttribute, kCheckpointFormat);
  StateChecksum state(record, kCheckpointFormat);
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
  for (const TextField& field : kTexts) file.set_text(kState, field.name, field.get(record));
  for (const TextField& field : kLongTexts) {
    const std::string dataset = fmt::format("{}/{}", kState, field.name);
    const std::string& text = field.get(record);
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
