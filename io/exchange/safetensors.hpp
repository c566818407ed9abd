/// \file
/// Files of tensors in Hugging Face's safetensors format: the length of the header (uint64, little-endian), the header
/// (JSON: {"NAME": {"dtype", "shape", "data_offsets"}, "__metadata__": {texts}}), then the tensors' bytes, row-major,
/// little-endian, without gaps (https://github.com/huggingface/safetensors, "Format").
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

/// A tensor to write; the values are borrowed.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< row-major
  std::span<const float> values;
};

using Metadata = std::map<std::string, std::string>;

/// Writes float32 tensors in the order of their names. Blanks pad the header to a multiple of 8 bytes. Equal content
/// gives equal bytes. Throws FileError, or std::invalid_argument for duplicate names and for shapes that do not match
/// the values.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata, IfThere if_there);

/// A tensor in a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< "F32", "BF16", "I64" …
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< byte offsets from the end of the header
  std::size_t elements() const noexcept;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the file's bytes
  Metadata metadata;
};

/// Parses the header `text`; `data_bytes` follow it in the file. Strict: duplicate keys, unknown keys and types,
/// extents that do not fit, gaps, overlaps and bytes after the last tensor are errors. Throws FileError without a file
/// name.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes);

/// Reads a file tensor by tensor. Every size in the file is checked against the file's length first.
class SafetensorsFile {
 public:
  /// Longest accepted header, the limit of the reference implementation.
  static constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

  /// Throws FileError that names the file.
  explicit SafetensorsFile(std::filesystem::path file);

  const std::filesystem::path& file() const noexcept { return file_; }
  const std::vector<SafetensorsEntry>& entries() const noexcept { return header_.entries; }
  const Metadata& metadata() const noexcept { return header_.metadata; }
  /// nullptr: no such tensor.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  /// The values as float32; F16 and BF16 convert exactly. Throws FileError for other types.
  std::vector<float> read(const SafetensorsEntry& entry) const;

 private:
  std::filesystem::path file_;
  Descriptor descriptor_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

/// True for names that end with .safetensors.
bool is_safetensors_name(const std::filesystem::path& file);

/// Converts IEEE 754 half precision to single precision, exactly.
float float_from_half(std::uint16_t bits) noexcept;

}  // namespace lockstep::io
