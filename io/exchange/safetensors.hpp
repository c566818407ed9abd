/// \file
/// Files of tensors as Hugging Face's safetensors has them: the length of the header (uint64, little-endian), the
/// header (JSON: {"NAME": {"dtype", "shape", "data_offsets"}, "__metadata__": {texts}}), the tensors' bytes, row-major,
/// little-endian, without a hole between them (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/exchange/output_file.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::io {

/// A tensor to write; the values are somebody else's.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< row-major
  std::span<const float> values;
};

using Metadata = std::map<std::string, std::string>;

/// Writes float32 tensors in the order of their names, the header padded to 8 bytes with blanks; equal content, equal
/// bytes. Throws FileError, and std::invalid_argument for twins and shapes that do not match the values.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata, IfThere if_there);

/// A tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", "I64" …
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< bytes, from the end of the header on
  std::size_t elements() const noexcept;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the file's bytes
  Metadata metadata;
};

/// `text`: the header alone; `data_bytes`: what follows it in the file. Strict: keys twice, unknown keys and types,
/// extents that do not fit, holes, overlaps and bytes behind the last tensor are errors. Throws FileError, without the
/// name of a file.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes);

/// A file that is read tensor by tensor. Nothing that it says is believed before it is compared with its size.
class SafetensorsFile {
 public:
  /// The longest header that is read: as long as the reference implementation allows.
  static constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

  /// Throws FileError naming the file.
  explicit SafetensorsFile(std::filesystem::path file);

  const std::filesystem::path& file() const noexcept { return file_; }
  const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }
  const Metadata& metadata() const noexcept { return header_.metadata; }
  /// nullptr: there is none.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  /// The values as float32; F16 and BF16 are converted, which is exact. Throws FileError for other types.
  std::vector<float> read(const SafetensorsEntry& entry) const;

 private:
  std::filesystem::path file_;
  Descriptor descriptor_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

/// A file whose name ends with .safetensors.
bool is_safetensors_name(const std::filesystem::path& file);

/// IEEE 754 half precision to single, exactly.
float float_from_half(std::uint16_t bits) noexcept;

}  // namespace lockstep::io
