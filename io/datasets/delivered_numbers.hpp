/// \file
/// The types in which networks receive the numbers of datasets, and the conversions to them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// True if float32 cannot hold all numbers of the type.
bool is_wide(FileType type);
/// The type in which a network receives numbers: uint8, float32, or float64 if float32 may not hold them.
FileType delivered_type(const Field& stored, bool has_range, double low, double high);
/// Converts elements of `type` to `wanted`, float32 or float64.
void convert(FileType type, std::span<const std::byte> raw, FileType wanted, std::byte* out);
/// Index of the first NaN, infinity, or float64 beyond the range of float32.
std::optional<std::size_t> first_unusable(FileType type, std::span<const std::byte> data);
/// Rearranges samples of a field from channels first to channels last. `element`: bytes of a number.
void to_channels_last(const Field& field, std::span<const std::byte> samples, std::size_t element,
                      std::span<std::byte> out);

}  // namespace lockstep::io
