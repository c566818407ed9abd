#include "io/exchange/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "io/files/json_text.hpp"

namespace lockstep::io {

namespace {

constexpr std::string_view kIndexEnd = ".safetensors.index.json";  ///< list of the files of a model

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string padded_header(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const NamedTensor& tensor : tensors) {
    const std::uint64_t end = begin + tensor.values.size() * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = to_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::vector<NamedTensor> by_name(std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> sorted(tensors.begin(), tensors.end());
  std::ranges::sort(sorted, {}, &NamedTensor::name);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const NamedTensor& tensor = sorted[i];
    const std::int64_t elements =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    if (static_cast<std::size_t>(elements) != tensor.values.size()) {
      throw std::invalid_argument(
          fmt::format("{}: {} values for a shape of {}", tensor.name, tensor.values.size(), elements));
    }
    if (tensor.name == "__metadata__" || (i > 0 && sorted[i - 1].name == tensor.name)) {
      throw std::invalid_argument(fmt::format("a tensor cannot be called {} (again)", tensor.name));
    }
  }
  return sorted;
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata, IfThere if_there) {
  const std::vector<NamedTensor> sorted = by_name(tensors);
  const std::string header = padded_header(sorted, metadata);
  const std::uint64_t length = header.size();
  std::uint64_t bytes = sizeof length + length;
  for (const NamedTensor& tensor : sorted) bytes += tensor.values.size_bytes();
  OutputFile out(file, if_there, bytes);
  out.write(std::as_bytes(std::span(&length, 1)));
  out.write(header);
  for (const NamedTensor& tensor : sorted) out.write(std::as_bytes(tensor.values));
  out.finish();
}

std::size_t SafetensorsEntry::elements() const noexcept {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

SafetensorsFile::SafetensorsFile(std::filesystem::path file)
    : file_(std::move(file)), descriptor_(open_file(file_, O_RDONLY, "read")) {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw FileError({.file = file_, .what = "is no file of tensors: it is not a regular file"});
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length) {
    throw FileError({.file = file_, .what = fmt::format("is no safetensors file: it has {} bytes", size)});
  }
  read_at(descriptor_, std::as_writable_bytes(std::span(&length, 1)), 0, file_);
  if (file_.filename().string().ends_with(kIndexEnd)) {
    throw FileError({.file = file_,
                     .what = "is the index of a model in several files: save the model in one, with "
                             "model.save_pretrained(FOLDER, max_shard_size='100GB')"});
  }
  if (length > kMaxHeaderBytes || length > size - sizeof length) {
    throw FileError({.file = file_,
                     .what = fmt::format("is no safetensors file, or is cut off: it says that its header has {} bytes, "
                                         "and the file has {}",
                                         length, size)});
  }
  std::string text(static_cast<std::size_t>(length), ' ');
  read_at(descriptor_, std::as_writable_bytes(std::span(text)), sizeof length, file_);
  data_begin_ = sizeof length + length;
  try {
    header_ = parse_safetensors_header(text, size - data_begin_);
  } catch (const FileError& error) {
    throw FileError({.file = file_, .what = fmt::format("is no sound safetensors file: {}", error.what())});
  }
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(header_.entries, name, &SafetensorsEntry::name);
  return found == header_.entries.end() ? nullptr : &*found;
}

std::vector<float> SafetensorsFile::read(const SafetensorsEntry& entry) const {
  const bool whole = entry.dtype == "F32";
  if (!whole && entry.dtype != "F16" && entry.dtype != "BF16") {
    throw FileError({.file = file_,
                     .what = fmt::format("{} is of type {}: F32, F16 and BF16 are read; convert it with "
                                         "tensor.to(torch.float32)",
                                         entry.name, entry.dtype)});
  }
  std::vector<float> values(entry.elements());
  const std::uint64_t begin = data_begin_ + entry.begin;
  if (whole) {
    read_at(descriptor_, std::as_writable_bytes(std::span(values)), begin, file_);
    return values;
  }
  constexpr std::size_t kAtOnce = std::size_t{1} << 16;
  std::vector<std::uint16_t> halves(std::min(kAtOnce, values.size()));
  for (std::size_t first = 0; first < values.size(); first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, values.size() - first);
    const std::span<std::uint16_t> some = std::span(halves).first(count);
    read_at(descriptor_, std::as_writable_bytes(some), begin + first * sizeof(std::uint16_t), file_);
    const bool brain = entry.dtype == "BF16";
    std::transform(
        some.begin(), some.end(), values.begin() + static_cast<std::ptrdiff_t>(first), [brain](std::uint16_t bits) {
          return brain ? std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16) : float_from_half(bits);
        });
  }
  return values;
}

bool is_safetensors_name(const std::filesystem::path& file) {
  return file.extension() == ".safetensors" || file.filename().string().ends_with(kIndexEnd);
}

float float_from_half(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
                      mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace lockstep::io
