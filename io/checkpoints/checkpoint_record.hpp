/// \file
/// The fields of a checkpoint's record, and the checksums over them; internal to io. The format is in
/// checkpoint_format.md.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>

#include "io/checkpoints/checkpoint.hpp"
#include "io/files/checksum.hpp"

namespace lockstep::io {

static_assert(std::endian::native == std::endian::little, "checksums are over little-endian bytes");

/// A member of the record as it is stored. `since`: the first format that has it.
struct IntegerField {
  const char* name;
  std::int64_t since;
  std::int64_t (*get)(const TrainingRecord&);
  void (*set)(TrainingRecord&, std::int64_t);
};
struct TextField {
  const char* name;
  std::int64_t since;
  const std::string& (*get)(const TrainingRecord&);
  void (*set)(TrainingRecord&, std::string);
};

/// The first format with the text of a network.
inline constexpr std::int64_t kFormatWithNetworkText = 7;

// Tables that list each member once: writing, reading and the checksum all follow them, in this order.
std::span<const IntegerField> integer_fields() noexcept;
std::span<const TextField> text_fields() noexcept;       ///< short texts: attributes
std::span<const TextField> long_text_fields() noexcept;  ///< texts that may have megabytes: datasets of bytes

/// The fields of a format.
template <class Field>
auto fields_of(std::span<const Field> fields, std::int64_t format) {
  return fields | std::views::filter([format](const Field& field) { return field.since <= format; });
}

/// Converts formats 1 and 2, which store text for people: `network` is "784 -> 10: mlp 784-512-10 relu", and only the
/// history shows if a step was validated. No other code parses such text.
void understand_text_of_older_format(TrainingRecord& record);

// Names in the file. For parts: their files and checksums, and the tensors in them with their shapes.
inline constexpr const char* kFormatAttribute = "lockstep_checkpoint_format";
inline constexpr const char* kState = "/state";
inline constexpr const char* kParts = "parts";
inline constexpr const char* kPartChecksums = "part_checksums";
inline constexpr const char* kSplitTensors = "split_tensors";
inline constexpr const char* kSplitShapes = "split_shapes";

/// Number of values per piece read or written. A piece fits the cache, so the checksum needs no pass of its own.
inline constexpr std::size_t kPieceElements = std::size_t{1} << 18;

/// "GROUP/NAME".
std::string path_of(std::string_view group, std::string_view name);
/// Parses a number that consists of decimal digits alone; nullopt for any other text.
std::optional<std::int64_t> whole_number(std::string_view digits);
/// Number of elements of a shape; nullopt: negative extents, or more than memory can address.
std::optional<std::size_t> elements_of(std::span<const std::int64_t> shape);

/// Hashes numbers as 8 bytes, and texts after their length: different sequences never give the same bytes.
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

/// Starts the checksum of one tensor with its path and shape; the caller adds its values. A tensor under another
/// tensor's name thus fails verification.
inline Canonical tensor_checksum(std::string_view path, std::span<const std::int64_t> shape) {
  Canonical sum;
  sum.add(path);
  sum.add(static_cast<std::int64_t>(shape.size()));
  for (const std::int64_t extent : shape) sum.add(extent);
  return sum;
}

/// Checksum of the record and of the list of tensors with their checksums. It detects lost, added and exchanged
/// tensors.
class StateChecksum {
 public:
  StateChecksum(const TrainingRecord& record, std::int64_t format) {
    sum_.add(format);
    for (const IntegerField& field : fields_of(integer_fields(), format)) sum_.add(field.get(record));
    sum_.add(record.best_metric);
    for (const TextField& field : fields_of(text_fields(), format)) sum_.add(std::string_view(field.get(record)));
    for (const TextField& field : fields_of(long_text_fields(), format)) sum_.add(std::string_view(field.get(record)));
  }
  void add_tensor(std::string_view path, std::uint64_t checksum) {
    sum_.add(path);
    sum_.add(static_cast<std::int64_t>(checksum));
  }
  /// Adds nothing without parts, as in formats that have none.
  void add_split(const SplitState& split) {
    for (const WrittenPart& part : split.parts) {
      sum_.add(std::string_view(part.file));
      sum_.add(static_cast<std::int64_t>(part.checksum));
    }
    for (const SplitTensor& tensor : split.tensors) {
      sum_.add(std::string_view(path_of(tensor.group, tensor.name)));
      sum_.add(static_cast<std::int64_t>(tensor.shape.size()));
      for (const std::int64_t extent : tensor.shape) sum_.add(extent);
    }
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Canonical sum_;
};

}  // namespace lockstep::io
