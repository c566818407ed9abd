#include "io/formats/array_source.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::io {
namespace {

template <std::size_t kSize>
void swap_bytes(std::span<std::byte> data) {
  for (auto at = data.begin(); at != data.end(); at += kSize) std::reverse(at, at + kSize);
}

void to_native_order(std::span<std::byte> data, std::size_t element) {
  switch (element) {
    case 2:
      return swap_bytes<2>(data);
    case 4:
      return swap_bytes<4>(data);
    case 8:
      return swap_bytes<8>(data);
    default:
      return;
  }
}

class ArraySource final : public SampleSource {
 public:
  ArraySource(std::string format, std::vector<ArrayFile> files) : format_(std::move(format)), files_(std::move(files)) {
    constexpr const char* kNames[] = {"x", "y"};
    for (std::size_t f = 0; f < files_.size(); ++f) {
      check_shape(files_[f]);
      fields_.push_back({kNames[f], files_[f].type, {files_[f].shape.begin() + 1, files_[f].shape.end()}});
    }
    if (files_.size() == 2 && files_[0].shape[0] != files_[1].shape[0]) {
      throw FileError(fmt::format("{} has {} samples but {} has {} labels; they do not belong together",
                                  files_[0].bytes.path().string(), files_[0].shape[0], files_[1].bytes.path().string(),
                                  files_[1].shape[0]));
    }
  }

  std::vector<Field> fields() const override { return fields_; }
  std::int64_t count() const override { return files_[0].shape[0]; }
  std::string description() const override {
    std::vector<std::filesystem::path> paths;
    for (const ArrayFile& file : files_) paths.push_back(file.bytes.path());
    return describe_files(format_, paths);
  }
  bool labels_are_classes() const override {
    return fields_.size() == 2 && fields_[1].elements() == 1 && fields_[1].type != FileType::float32 &&
           fields_[1].type != FileType::float64;
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    if (samples < 0 || done_ + samples > count() || buffers.size() != files_.size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    done_ += samples;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      if (buffers[f].size() != static_cast<std::size_t>(samples) * fields_[f].bytes()) {
        throw std::invalid_argument(fmt::format("the buffer of field {} has the wrong size", fields_[f].name));
      }
      files_[f].bytes.read(buffers[f]);
      if (files_[f].big_endian != (std::endian::native == std::endian::big)) {
        to_native_order(buffers[f], size_of(fields_[f].type));
      }
      if (done_ == count()) files_[f].bytes.expect_end();
    }
  }

 private:
  std::string format_;
  std::vector<ArrayFile> files_;
  std::vector<Field> fields_;
  std::int64_t done_ = 0;
};

}  // namespace

void check_shape(const ArrayFile& file) {
  const std::string name = file.bytes.path().string();
  if (file.shape.empty()) throw FileError(fmt::format("{}: holds a single number, not an array of samples", name));
  if (file.shape[0] == 0) throw FileError(fmt::format("{}: holds no samples", name));
  __extension__ using Wide = __int128;
  Wide bytes = static_cast<Wide>(size_of(file.type));
  for (const std::int64_t extent : file.shape) {
    if (extent <= 0) throw FileError(fmt::format("{}: its header has an impossible extent {}", name, extent));
    bytes *= extent;
    if (bytes > (Wide{1} << 62)) throw FileError(fmt::format("{}: its header promises impossibly many bytes", name));
  }
  file.bytes.expect_room(static_cast<std::uint64_t>(bytes));
}

std::unique_ptr<SampleSource> make_array_source(std::string format, ArrayFile (*open)(const std::filesystem::path&),
                                                const std::filesystem::path& x, const std::filesystem::path& y) {
  std::vector<ArrayFile> files;
  if (!y.empty()) files.push_back(open(y));
  files.insert(files.begin(), open(x));
  return std::make_unique<ArraySource>(std::move(format), std::move(files));
}

}  // namespace lockstep::io
