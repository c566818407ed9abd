#include "io/checkpoint_file.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "io/checkpoint_record.hpp"

namespace lockstep::io {
namespace {

constexpr const char* kFormatAttribute = "lockstep_checkpoint_format";
constexpr const char* kState = "/state";
constexpr const char* kChecksum = "xxh3_64";

std::string path_of(std::string_view group, std::string_view name) { return fmt::format("{}/{}", group, name); }

/// Values go to and from the file in pieces that a cache holds: the checksum then takes no pass of its own.
constexpr std::size_t kPieceElements = std::size_t{1} << 18;

/// Room for the tensor by the library, its values past it. Returns its checksum.
std::uint64_t write_tensor(Hdf5File& file, const Descriptor& bytes, const std::string& path, const TensorView& tensor) {
  const std::string dataset = "/" + path;
  file.create_dataset(dataset, FileType::float32, tensor.shape);
  const std::optional<std::uint64_t> offset = file.layout(dataset).offset;
  if (!offset && !tensor.values.empty()) {
    throw FileError({.file = file.path(), .what = fmt::format("the HDF5 library made no room for {}", path)});
  }
  Canonical checksum = tensor_checksum(path, tensor.shape);
  for (std::size_t first = 0; first < tensor.values.size(); first += kPieceElements) {
    const auto piece = tensor.values.subspan(first, std::min(kPieceElements, tensor.values.size() - first));
    checksum.add(piece);
    write_at(bytes, std::as_bytes(piece), *offset + first * sizeof(float), file.path());
  }
  file.set_text(dataset, kChecksum, to_hex(checksum.value()));
  return checksum.value();
}

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
  explicit CheckpointFileReader(const std::filesystem::path& path)
      : path_(path), file_(path, Hdf5File::Access::read), bytes_(open_file(path, O_RDONLY, "open")) {
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
      if (kept != nullptr) kept->emplace_back();
      state.add_tensor(path, read_tensor(path, kept != nullptr ? &kept->back() : nullptr));
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
    for (const IntegerField& field : fields_of(integer_fields(), format)) {
      field.set(record, required(file_.integer(kState, field.name), kState, field.name));
    }
    record.best_metric = required(file_.real(kState, "best_metric"), kState, "best_metric");
    for (const TextField& field : fields_of(text_fields(), format)) {
      field.set(record, required(file_.text(kState, field.name), kState, field.name));
    }
    for (const TextField& field : fields_of(long_text_fields(), format)) {
      const std::string dataset = fmt::format("{}/{}", kState, field.name);
      std::string text(checked_elements(dataset, FileType::uint8, file_.layout(dataset)), '\0');
      file_.read(dataset, FileType::uint8, std::as_writable_bytes(std::span(text)));
      field.set(record, std::move(text));
    }
  }

  /// Returns its checksum, which has been compared. `kept`: nullptr: nothing is.
  std::uint64_t read_tensor(const std::string& path, StoredTensor* kept) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos) damaged(fmt::format("its list of tensors holds '{}'", path));
    const std::string dataset = "/" + path;
    if (!file_.has(dataset)) damaged(fmt::format("tensor {} is missing", path));
    const DatasetLayout layout = file_.layout(dataset);
    const std::size_t elements = checked_elements(path, FileType::float32, layout);
    std::vector<float> all;
    if (kept != nullptr) all.resize(elements);
    Canonical checksum = tensor_checksum(path, layout.shape);
    read_values(dataset, layout, elements, all, checksum);
    const std::string stored = required(file_.text(dataset, kChecksum), path, kChecksum);
    const std::string computed = to_hex(checksum.value());
    if (stored != computed) {
      damaged(fmt::format("tensor {} does not match its checksum (stored {}, computed {})", path, stored, computed));
    }
    if (kept != nullptr) *kept = {path.substr(0, slash), path.substr(slash + 1), layout.shape, std::move(all)};
    return checksum.value();
  }

  /// Adds the values to the checksum, and leaves them in `all` where that has room for them.
  void read_values(const std::string& dataset, const DatasetLayout& layout, std::size_t elements,
                   std::vector<float>& all, Canonical& checksum) {
    if (!layout.offset || !layout.native_order) {  // as other programs may have stored them
      all.resize(elements);
      file_.read(dataset, FileType::float32, std::as_writable_bytes(std::span(all)));
      return checksum.add(all);
    }
    if (*layout.offset > file_bytes_ || elements > (file_bytes_ - *layout.offset) / sizeof(float)) {
      damaged(fmt::format("{} lies beyond the end of the file", dataset));
    }
    const bool keep = !all.empty();
    if (!keep) piece_.resize(std::min(elements, kPieceElements));
    for (std::size_t first = 0; first < elements; first += kPieceElements) {
      const std::size_t count = std::min(kPieceElements, elements - first);
      const std::span<float> piece = keep ? std::span(all).subspan(first, count) : std::span(piece_).first(count);
      read_at(bytes_, std::as_writable_bytes(piece), *layout.offset + first * sizeof(float), path_);
      checksum.add(piece);
    }
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
  Descriptor bytes_;
  std::uint64_t file_bytes_ = 0;
  std::vector<float> piece_;
};

}  // namespace

std::string to_text(const NetworkIdentity& network) {
  return fmt::format("{} -> {}: {}", network.features, network.outputs, network.signature);
}

void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors) {
  if (record.step < 0) throw std::invalid_argument(fmt::format("a checkpoint of step {}", record.step));
  for (const TextField& field : text_fields()) {
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
  for (const TextField& field : text_fields()) bytes += field.get(record).size();
  for (const TextField& field : long_text_fields()) bytes += field.get(record).size();
  // Object headers, links and the group blocks of a tensor: 0.5 to 1 KiB were seen; the list of names has fixed width.
  std::uint64_t widest = 0;
  for (const TensorView& tensor : tensors) {
    bytes += tensor.values.size_bytes() + 2048;
    widest = std::max<std::uint64_t>(widest, tensor.group.size() + tensor.name.size() + 1);
  }
  return bytes + 2 * widest * tensors.size();
}

std::uint64_t fill_checkpoint_file(Hdf5File& file, const Descriptor& bytes, const TrainingRecord& record,
                                   std::span<const TensorView> tensors) {
  file.set_integer("/", kFormatAttribute, kCheckpointFormat);
  StateChecksum state(record, kCheckpointFormat);
  std::vector<std::string> paths;
  for (const TensorView& tensor : tensors) {
    paths.push_back(path_of(tensor.group, tensor.name));
    state.add_tensor(paths.back(), write_tensor(file, bytes, paths.back(), tensor));
  }
  file.create_group(kState);
  for (const IntegerField& field : integer_fields()) file.set_integer(kState, field.name, field.get(record));
  file.set_real(kState, "best_metric", record.best_metric);
  for (const TextField& field : text_fields()) file.set_text(kState, field.name, field.get(record));
  for (const TextField& field : long_text_fields()) {
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
