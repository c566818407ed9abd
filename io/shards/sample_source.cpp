#include "io/shards/sample_source.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep::io {

std::int64_t Field::elements() const noexcept {
  return std::accumulate(sample_shape.begin(), sample_shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<Field> SampleSource::stored_fields() const {
  std::vector<Field> all = fields();
  if (const std::optional<SampleId> id = sample_id()) all.push_back({kIdName, FileType::uint8, {id->bytes}});
  return all;
}

void SampleSource::skip(std::int64_t samples) {
  constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  const std::vector<Field> all = stored_fields();
  std::size_t sample_bytes = 1;
  for (const Field& field : all) sample_bytes = std::max(sample_bytes, field.bytes());
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(1, kBytesAtOnce / sample_bytes));
  std::vector<std::vector<std::byte>> nowhere(all.size());
  std::vector<std::span<std::byte>> buffers(all.size());
  for (std::int64_t count = 0; samples > 0; samples -= count) {
    count = std::min(samples, most);
    for (std::size_t f = 0; f < all.size(); ++f) {
      nowhere[f].resize(all[f].bytes() * static_cast<std::size_t>(count));
      buffers[f] = nowhere[f];
    }
    read(count, buffers);
  }
}

void SampleSource::fill_from_training(ValidationDraw) {}

void SampleSource::verify(int, int) {}

std::size_t Field::bytes() const noexcept { return static_cast<std::size_t>(elements()) * size_of(type); }

}  // namespace lockstep::io
