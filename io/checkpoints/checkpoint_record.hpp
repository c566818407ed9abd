/// \file
/// What a checkpoint says of itself, field by field, and the checksums over it; internal to io. The format is in
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

/// A member of the record as it is stored. `since`: the format that has it first.
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

// Each member once: writing, reading and the checksum all walk these tables, in this order.
std::span<const IntegerField> integer_fields() noexcept;
std::span<const TextField> text_fields() noexcept;       ///< short: attributes
std::span<const TextField> long_text_fields() noexcept;  ///< may be megabytes: datasets of bytes

/// The fields that a format has.
template <class Field>
auto fields_of(std::span<const Field> fields, std::int64_t format) {
  return fields | std::views::filter([format](const Field& field) { return field.since <= format; });
}

/// Formats 1 and 2 tell people, not programs: `network` is "784 -> 10: mlp 784-512-10 relu", and that a step was
/// validated stands in the history. This is the one place that reads such text.
void understand_text_of_older_format(TrainingRecord& record);

// Names in the file. Of parts: their files and checksums, and the tensors that lie in them with their shapes.
inline constexpr const char* kFormatAttribute = "lockstep_checkpoint_format";
inline constexpr const char* kState = "/state";
inline constexpr const char* kParts = "parts";
inline constexpr const char* kPartChecksums = "part_checksums";
inline constexpr const char* kSplitTensors = "split_tensors";
inline constexpr const char* kSplitShapes = "split_shapes";

/// Values go to and from the file in pieces that a cache holds: the checksum then takes no pass of its own.
inline constexpr std::size_t kPieceElements = std::size_t{1} << 18;

/// "GROUP/NAME".
std::string path_of(std::string_view group, std::string_view name);
/// A number that is written in decimal digits alone; nullopt: it is none.
std::optional<std::int64_t> whole_number(std::string_view digits);
/// Elements of a shape; nullopt: negative extents, or more than memory can address.
std::optional<std::size_t> elements_of(std::span<const std::int64_t> shape);

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

/// Of one tensor: where it belongs, its shape; then its values are added. A tensor under another's name fails.
inline Canonical tensor_checksum(std::string_view path, std::span<const std::int64_t> shape) {
  Canonical sum;
  sum.add(path);
  sum.add(static_cast<std::int64_t>(shape.size()));
  for (const std::int64_t extent : shape) sum.add(extent);
  return sum;
}

/// Of the record and the list of tensors with their checksums: nothing can be lost, added or exchanged.
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
  /// Nothing where there are no parts: as in formats that know none.
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
