#include "io/datasets/delivered_numbers.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "io/files/element_cast.hpp"

namespace lockstep::io {
namespace {

/// Position of the first element that is NaN or infinite, found by the exponent's bits: one compare and one or per
/// element, which vectorises under any floating-point flags.
template <class Float, class Bits>
std::optional<std::size_t> first_not_finite(std::span<const std::byte> data, Bits exponent) {
  const std::size_t count = data.size() / sizeof(Float);
  Bits found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof(Float), sizeof(Float));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    Float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(Float), sizeof(Float));
    if (!std::isfinite(value)) return i;
  }
}

template <class Number>
void to_type(FileType type, std::span<const std::byte> raw, std::byte* out) {
  with_elements(type, raw, [&](auto elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto value = static_cast<Number>(elements[i]);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  });
}

}  // namespace

void convert(FileType type, std::span<const std::byte> raw, FileType wanted, std::byte* out) {
  if (wanted == FileType::float64) return to_type<double>(type, raw, out);
  to_type<float>(type, raw, out);
}

bool is_wide(FileType type) {
  return type == FileType::float64 || type == FileType::int64 || type == FileType::uint64 || type == FileType::int32 ||
         type == FileType::uint32;
}

FileType delivered_type(const Field& stored, bool has_range, double low, double high) {
  constexpr double kMaxExact = 1 << 24;  // largest range in which float32 holds all whole numbers
  if (stored.type == FileType::uint8) return stored.type;
  const bool exact = stored.type != FileType::float64 && has_range && -kMaxExact <= low && high <= kMaxExact;
  return is_wide(stored.type) && !exact ? FileType::float64 : FileType::float32;
}

std::optional<std::size_t> first_unusable(FileType type, std::span<const std::byte> data) {
  if (type == FileType::float32) return first_not_finite<float>(data, std::uint32_t{0x7F800000});
  if (type != FileType::float64) return std::nullopt;
  const auto unusable = [&](std::size_t i) {
    double value = 0;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    return !(std::abs(value) <= std::numeric_limits<float>::max());
  };
  const std::size_t count = data.size() / sizeof(double);
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= static_cast<unsigned>(unusable(i));
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    if (unusable(i)) return i;
  }
}

void to_channels_last(const Field& field, std::span<const std::byte> samples, std::size_t element,
                      std::span<std::byte> out) {
  const auto channels = static_cast<std::size_t>(field.sample_shape.back());
  const auto pixels = static_cast<std::size_t>(field.elements()) / channels;
  for (std::size_t at = 0; at < samples.size(); at += pixels * channels * element) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        std::memcpy(&out[at + (pixel * channels + c) * element], &samples[at + (c * pixels + pixel) * element],
                    element);
      }
    }
  }
}

}  // namespace lockstep::io
