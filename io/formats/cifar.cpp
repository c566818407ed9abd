// CIFAR-10 and CIFAR-100 binary versions (cs.toronto.edu/~kriz/cifar.html): records of 1 label byte (CIFAR-100: coarse,
// then fine) and 3072 bytes of pixels: the 32 x 32 red plane, then green, then blue, row by row. No header.
#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;
constexpr std::size_t kPixels = 3 * kPlane;
constexpr unsigned kCoarseClasses = 20;

struct Layout {
  const char* name;
  std::size_t label_bytes;
  unsigned classes;
  const char* names_file;
};
constexpr Layout kLayouts[] = {{"cifar10", 1, 10, "batches.meta.txt"}, {"cifar100", 2, 100, "fine_label_names.txt"}};

/// The training batches of a folder, in order: data_batch_1.bin … or train.bin.
std::vector<std::filesystem::path> training_batches(const std::filesystem::path& folder, CifarKind kind) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool batch =
        kind == CifarKind::cifar10 ? name.starts_with("data_batch_") && name.ends_with(".bin") : name == "train.bin";
    if (batch) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw FileError(fmt::format("{}: holds no {}; name the files, or the folder that the archive unpacked into",
                                folder.string(), kind == CifarKind::cifar10 ? "data_batch_*.bin" : "train.bin"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// One name per line; empty if the file is missing or has another number of names.
std::vector<std::string> read_class_names(const std::filesystem::path& batch, const Layout& layout) {
  std::ifstream stream(batch.parent_path() / layout.names_file);
  std::vector<std::string> names;
  for (std::string line; std::getline(stream, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    if (names.size() == layout.classes) return {};
    if (first_not_utf8(line)) {
      throw FileError(fmt::format("{}: class name {} is \"{}\", which is no UTF-8; convert the file (iconv -t UTF-8)",
                                  (batch.parent_path() / layout.names_file).string(), names.size(), readable(line)));
    }
    names.push_back(line);
  }
  return names.size() == layout.classes ? names : std::vector<std::string>{};
}

class CifarSource final : public SampleSource {
 public:
  CifarSource(std::vector<std::filesystem::path> files, CifarKind kind)
      : files_(std::move(files)), layout_(kLayouts[static_cast<int>(kind)]), record_(layout_.label_bytes + kPixels) {
    for (const std::filesystem::path& file : files_) {
      const ByteReader readable(file);
      const std::uint64_t bytes = std::filesystem::file_size(file);
      if (bytes == 0 || bytes % record_.size() != 0) {
        throw FileError(
            fmt::format("{}: {} bytes are no whole number of {} records of {}; it is cut off, or of another "
                        "format",
                        file.string(), bytes, layout_.name, record_.size()));
      }
      counts_.push_back(static_cast<std::int64_t>(bytes / record_.size()));
      count_ += counts_.back();
    }
    class_names_ = read_class_names(files_[0], layout_);
    if (class_names_.empty()) {
      for (unsigned i = 0; i < layout_.classes; ++i) class_names_.push_back(fmt::format("{}", i));
    }
  }

  std::vector<Field> fields() const override {
    return {{"x", FileType::uint8, {kSide, kSide, 3}}, {"y", FileType::uint8, {}}};
  }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return describe_files(layout_.name, files_); }
  bool labels_are_classes() const override { return true; }
  std::vector<std::string> class_names() const override { return class_names_; }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const auto count = static_cast<std::size_t>(samples);
    if (samples < 0 || buffers.size() != 2 || buffers[0].size() != count * kPixels || buffers[1].size() != count) {
      throw std::invalid_argument("the buffers of CIFAR samples have the wrong size");
    }
    for (std::size_t i = 0; i < count; ++i) {
      read_record();
      buffers[1][i] = label();
      const std::byte* planes = record_.data() + layout_.label_bytes;
      std::byte* pixel = buffers[0].data() + i * kPixels;
      for (std::size_t p = 0; p < kPlane; ++p) {
        for (std::size_t colour = 0; colour < 3; ++colour) *pixel++ = planes[colour * kPlane + p];
      }
    }
  }

 private:
  void read_record() {
    if (!reader_ || done_ == counts_[file_]) {
      if (reader_) {
        reader_->expect_end();
        ++file_;
      }
      if (file_ == files_.size()) throw std::invalid_argument("more samples asked for than the batches have");
      reader_.emplace(files_[file_]);
      done_ = 0;
    }
    reader_->read(record_);
    ++done_;
  }

  /// The record's label, for CIFAR-100 the fine one; both are checked.
  std::byte label() const {
    const bool coarse_and_fine = layout_.label_bytes == 2;
    if (coarse_and_fine) check_label(record_[0], kCoarseClasses, "coarse label");
    check_label(record_[layout_.label_bytes - 1], layout_.classes, "label");
    return record_[layout_.label_bytes - 1];
  }
  void check_label(std::byte label, unsigned classes, const char* what) const {
    if (std::to_integer<unsigned>(label) < classes) return;
    throw FileError(fmt::format("{}: record {} has {} {}, outside [0, {}); is it a batch of {}?",
                                files_[file_].string(), done_ - 1, what, std::to_integer<unsigned>(label), classes,
                                layout_.name));
  }

  std::vector<std::filesystem::path> files_;
  Layout layout_;
  std::vector<std::byte> record_;
  std::vector<std::int64_t> counts_;  ///< number of records in each file
  std::int64_t count_ = 0;
  std::vector<std::string> class_names_;
  std::size_t file_ = 0;
  std::int64_t done_ = 0;  ///< number of records read from files_[file_]
  std::optional<ByteReader> reader_;
};

}  // namespace

std::unique_ptr<SampleSource> open_cifar(const std::vector<std::filesystem::path>& paths, CifarKind kind) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    if (std::filesystem::is_directory(path)) {
      const auto batches = training_batches(path, kind);
      files.insert(files.end(), batches.begin(), batches.end());
    } else {
      files.push_back(path);
    }
  }
  if (files.empty()) throw std::invalid_argument("CIFAR samples need a file");
  return std::make_unique<CifarSource>(std::move(files), kind);
}

}  // namespace lockstep::io
