#include <algorithm>
#include <charconv>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/checkpoints/checkpoint_file.hpp"
#include "io/checkpoints/checkpoint_record.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/hdf5_file.hpp"

namespace lockstep::io {
namespace {

/// Parses a shape such as "784,512"; "": a single number.
std::optional<std::vector<std::int64_t>> shape_from(std::string_view text) {
  std::vector<std::int64_t> shape;
  while (!text.empty()) {
    const std::string_view extent = text.substr(0, text.find(','));
    const std::optional<std::int64_t> value = whole_number(extent);
    if (!value) return std::nullopt;
    shape.push_back(*value);
    text.remove_prefix(std::min(text.size(), extent.size() + 1));
  }
  return shape;
}

std::optional<std::uint64_t> from_hex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse_as_corrupted(const std::filesystem::path& file, std::string_view what) {
  throw FileError(fmt::format("{} is corrupted: {}; use an older checkpoint (--resume takes the newest that verifies)",
                              file.string(), what));
}

class CheckpointFileReader {
 public:
  explicit CheckpointFileReader(const std::filesystem::path& path)
      : path_(path), file_(open_plain(path)), bytes_(open_file(path, O_RDONLY, "open")) {
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
      const ReadTensor tensor = read_tensor(path, kept != nullptr ? &kept->back() : nullptr);
      state.add_tensor(path, tensor.checksum);
      result.tensors.emplace_back(path, tensor.elements);
    }
    if (has_parts(format)) result.split = read_split();
    state.add_split(result.split);
    result.checksum = state.value();
    if (required(file_.text(kState, kChecksumAttribute), "/state", kChecksumAttribute) != to_hex(result.checksum)) {
      damaged("its state record does not match its checksum");
    }
    if (format < 3) understand_text_of_older_format(result.record);
    return result;
  }

  /// The parts alone. Verifies nothing.
  std::vector<WrittenPart> parts() const {
    return has_parts(read_format()) ? read_parts() : std::vector<WrittenPart>{};
  }
  TrainingRecord record() {
    TrainingRecord record;
    const std::int64_t format = read_format();
    read_record(record, format);
    if (format < 3) understand_text_of_older_format(record);
    return record;
  }
  std::string checksum() const {
    return file_.has(kState) ? required(file_.text(kState, kChecksumAttribute), "/state", kChecksumAttribute) : "";
  }

  [[noreturn]] void damaged(std::string_view what) const { refuse_as_corrupted(path_, what); }
  /// Rethrows the library's error about the open file, "PATH: cannot …", as "PATH is corrupted: cannot …".
  [[noreturn]] void rethrow_in_our_words(const FileError& error) const {
    if (error.parts().file != path_) throw error;
    damaged(error.parts().what);
  }

 private:
  static Hdf5File open_plain(const std::filesystem::path& path) {
    require_checksummed_structure(path);
    return {path, Hdf5File::Access::read};
  }

  std::int64_t read_format() const {
    const auto format = file_.integer("/", kFormatAttribute);
    if (!format) {
      throw FileError(fmt::format("{} is not a Lockstep checkpoint (an HDF5 file without the attribute {})",
                                  path_.string(), kFormatAttribute));
    }
    if (*format > kNewestCheckpointFormat) {
      throw FileError(
          fmt::format("{} was written by a newer format ({}); this program reads up to {}: use the version "
                      "of Lockstep that wrote it, or a later one",
                      path_.string(), *format, kNewestCheckpointFormat));
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
    file_.require_plain(kState);
    for (const IntegerField& field : fields_of(integer_fields(), format)) {
      field.set(record, required(file_.integer(kState, field.name), kState, field.name));
    }
    record.best_metric = required(file_.real(kState, "best_metric"), kState, "best_metric");
    for (const TextField& field : fields_of(text_fields(), format)) {
      field.set(record, required(file_.text(kState, field.name), kState, field.name));
    }
    for (const TextField& field : fields_of(long_text_fields(), format)) {
      const std::string dataset = fmt::format("{}/{}", kState, field.name);
      std::string text(checked_elements(dataset, FileType::uint8, plain_layout(dataset)), '\0');
      file_.read(dataset, FileType::uint8, std::as_writable_bytes(std::span(text)));
      field.set(record, std::move(text));
    }
  }

  std::vector<WrittenPart> read_parts() const {
    const auto files = required(file_.texts(kState, kParts), kState, kParts);
    const auto checksums = required(file_.texts(kState, kPartChecksums), kState, kPartChecksums);
    std::vector<WrittenPart> parts;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::optional<std::uint64_t> checksum = i < checksums.size() ? from_hex(checksums[i]) : std::nullopt;
      if (!checksum) damaged(fmt::format("the checksum of its part {} is missing", files[i]));
      parts.push_back({.file = files[i], .checksum = *checksum});
    }
    return parts;
  }

  SplitState read_split() const {
    SplitState split{.tensors = {}, .parts = read_parts()};
    const auto paths = required(file_.texts(kState, kSplitTensors), kState, kSplitTensors);
    const auto shapes = required(file_.texts(kState, kSplitShapes), kState, kSplitShapes);
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::size_t slash = paths[i].find('/');
      const auto shape = i < shapes.size() ? shape_from(shapes[i]) : std::nullopt;
      if (slash == std::string::npos || !shape || !elements_of(*shape)) {
        damaged(fmt::format("its list of tensors in parts holds '{}'", paths[i]));
      }
      split.tensors.push_back(
          {.group = paths[i].substr(0, slash), .name = paths[i].substr(slash + 1), .shape = *shape});
    }
    return split;
  }

  struct ReadTensor {
    std::uint64_t checksum;  ///< verified
    std::size_t elements;
  };
  /// Verifies a tensor, and stores it in `kept` unless that is nullptr.
  ReadTensor read_tensor(const std::string& path, StoredTensor* kept) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos) damaged(fmt::format("its list of tensors holds '{}'", path));
    const std::string dataset = "/" + path;
    if (!file_.has(dataset)) damaged(fmt::format("tensor {} is missing", path));
    const DatasetLayout layout = plain_layout(dataset);
    const std::size_t elements = checked_elements(path, FileType::float32, layout);
    std::vector<float> all;
    if (kept != nullptr) all.resize(elements);
    Canonical checksum = tensor_checksum(path, layout.shape);
    read_values(dataset, layout, elements, all, checksum);
    const std::string stored = required(file_.text(dataset, kChecksumAttribute), path, kChecksumAttribute);
    const std::string computed = to_hex(checksum.value());
    if (stored != computed) {
      damaged(fmt::format("tensor {} does not match its checksum (stored {}, computed {})", path, stored, computed));
    }
    if (kept != nullptr) *kept = {path.substr(0, slash), path.substr(slash + 1), layout.shape, std::move(all)};
    return {.checksum = checksum.value(), .elements = elements};
  }

  /// Adds the values to the checksum, and copies them to `all` unless that is empty.
  void read_values(const std::string& dataset, const DatasetLayout& layout, std::size_t elements,
                   std::vector<float>& all, Canonical& checksum) {
    if (elements == 0) return;
    if (!layout.offset || !layout.native_order) damaged(fmt::format("{} is not stored as it was written", dataset));
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

  /// Requires the storage that we write: external storage could hold other data, and compressed data could take any
  /// amount of memory.
  DatasetLayout plain_layout(const std::string& dataset) const {
    file_.require_plain(dataset);
    return file_.layout(dataset);
  }

  /// Checks the size before memory is allocated: the file must be large enough for all values read so far, once each.
  std::size_t checked_elements(const std::string& dataset, FileType type, const DatasetLayout& layout) {
    if (layout.type != type) damaged(fmt::format("{} holds {}, not {}", dataset, name_of(layout.type), name_of(type)));
    const std::optional<std::size_t> elements = elements_of(layout.shape);
    if (!elements || *elements > (file_bytes_ - value_bytes_) / size_of(type)) {
      damaged(fmt::format("{} has the impossible shape ({})", dataset, fmt::join(layout.shape, ", ")));
    }
    value_bytes_ += *elements * size_of(type);
    return *elements;
  }

  std::filesystem::path path_;
  Hdf5File file_;
  Descriptor bytes_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t value_bytes_ = 0;  ///< bytes of all values read so far
  std::vector<float> piece_;
};

/// Assembles the tensors that are in parts, and checks that each value occurs once.
class SplitReader {
 public:
  SplitReader(const std::filesystem::path& file, const SplitState& split) : file_(file), split_(split) {
    for (const SplitTensor& tensor : split.tensors) covered_[path_of(tensor.group, tensor.name)];
  }

  /// Appends the tensors to `kept` unless that is nullptr; verifies in any case.
  void read(std::vector<StoredTensor>* kept) {
    const std::size_t first = kept != nullptr ? kept->size() : 0;
    check_promise();
    if (kept != nullptr) {
      for (const SplitTensor& tensor : split_.tensors) {
        kept->push_back({tensor.group, tensor.name, tensor.shape, std::vector<float>(*elements_of(tensor.shape))});
      }
    }
    for (const WrittenPart& part : split_.parts) {
      const std::filesystem::path path = file_.parent_path() / part.file;
      std::vector<StoredTensor> pieces;
      const VerifiedRecord read = read_checkpoint_file(path, kept != nullptr ? &pieces : nullptr, Parts::left_out);
      if (read.checksum != part.checksum) damaged(fmt::format("its part {} is of another checkpoint", part.file));
      for (std::size_t i = 0; i < read.tensors.size(); ++i) {
        const auto& [piece, elements] = read.tensors[i];
        const Place place = cover(part.file, piece, elements);
        if (kept == nullptr) continue;
        std::copy(pieces[i].values.begin(), pieces[i].values.end(),
                  (*kept)[first + place.tensor].values.begin() + place.first);
      }
    }
    check_coverage();
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const { refuse_as_corrupted(file_, what); }

  struct Place {
    std::size_t tensor;  ///< index in the split state
    std::ptrdiff_t first;
  };
  /// The position of "GROUP/NAME/FIRST" with this number of elements. Marks the range as covered.
  Place cover(const std::string& part, const std::string& piece, std::size_t elements) {
    const std::size_t slash = piece.rfind('/');
    const std::string path = piece.substr(0, slash);
    const auto found = std::find_if(split_.tensors.begin(), split_.tensors.end(), [&](const SplitTensor& tensor) {
      return path_of(tensor.group, tensor.name) == path;
    });
    const std::optional<std::int64_t> first = whole_number(std::string_view(piece).substr(slash + 1));
    if (found == split_.tensors.end() || !first || static_cast<std::size_t>(*first) > *elements_of(found->shape) ||
        elements > *elements_of(found->shape) - static_cast<std::size_t>(*first)) {
      damaged(fmt::format("its part {} holds {}, which is no part of it", part, piece));
    }
    covered_[path].emplace_back(static_cast<std::size_t>(*first), elements);
    return {.tensor = static_cast<std::size_t>(found - split_.tensors.begin()), .first = *first};
  }

  /// Checks before memory is allocated that the parts are as large as the listed shapes need.
  void check_promise() const {
    std::uint64_t left = 0;
    for (const WrittenPart& part : split_.parts) {
      std::error_code error;
      const std::filesystem::path path = file_.parent_path() / part.file;
      const std::uintmax_t bytes = std::filesystem::file_size(path, error);
      if (error) read_checkpoint_file(path, nullptr, Parts::left_out);  // throws the precise error
      left += bytes;
    }
    for (const SplitTensor& tensor : split_.tensors) {
      const std::uint64_t bytes = *elements_of(tensor.shape) * sizeof(float);
      if (bytes > left) {
        damaged(fmt::format("{}/{} should have the shape ({}), and its parts have too few bytes", tensor.group,
                            tensor.name, fmt::join(tensor.shape, ", ")));
      }
      left -= bytes;
    }
  }

  void check_coverage() {
    for (const SplitTensor& tensor : split_.tensors) {
      auto& pieces = covered_[path_of(tensor.group, tensor.name)];
      std::sort(pieces.begin(), pieces.end());
      std::size_t next = 0;
      for (const auto& [first, count] : pieces) {
        if (first != next) break;
        next += count;
      }
      std::size_t sum = 0;
      for (const auto& piece : pieces) sum += piece.second;
      if (next != *elements_of(tensor.shape) || sum != next) {
        damaged(fmt::format("its parts do not hold every value of {}/{} once", tensor.group, tensor.name));
      }
    }
  }

  std::filesystem::path file_;
  const SplitState& split_;
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> covered_;  ///< first, count
};

/// Runs work(reader) on the file, and converts its errors to FileError.
template <class Work>
auto with_reader(const std::filesystem::path& path, const Work& work) {
  CheckpointFileReader reader(path);
  try {
    return work(reader);
  } catch (const FileError& error) {
    reader.rethrow_in_our_words(error);
  } catch (const std::bad_alloc&) {
    reader.damaged("it asks for more memory than there is");
  } catch (const std::length_error&) {
    reader.damaged("it asks for more memory than there is");
  }
}

}  // namespace

VerifiedRecord read_checkpoint_file(const std::filesystem::path& path, std::vector<StoredTensor>* kept, Parts parts) {
  VerifiedRecord result = with_reader(path, [&](CheckpointFileReader& reader) { return reader.read(kept); });
  if (parts == Parts::read && !result.split.parts.empty()) {
    with_reader(path, [&](CheckpointFileReader&) { return SplitReader(path, result.split).read(kept), 0; });
  }
  return result;
}

std::vector<WrittenPart> parts_of_checkpoint(const std::filesystem::path& file) {
  return with_reader(file, [](const CheckpointFileReader& reader) { return reader.parts(); });
}

TrainingRecord stored_record(const std::filesystem::path& file) {
  return with_reader(file, [](CheckpointFileReader& reader) { return reader.record(); });
}

std::string stored_checksum(const std::filesystem::path& file) {
  return with_reader(file, [](const CheckpointFileReader& reader) { return reader.checksum(); });
}

bool is_checkpoint(const std::filesystem::path& file) {
  return Hdf5File(file, Hdf5File::Access::read).integer("/", kFormatAttribute).has_value();
}

}  // namespace lockstep::io
