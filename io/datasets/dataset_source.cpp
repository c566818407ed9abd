#include "io/datasets/dataset_source.hpp"

#include <numeric>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::io {
namespace {

class DatasetSource final : public SampleSource {
 public:
  explicit DatasetSource(const DatasetOptions& options) : data_(options), path_(options.path) {}

  std::vector<Field> fields() const override {
    const DatasetInfo& info = data_.info();
    std::vector<Field> fields{{"x", data_.x_type(), info.x.sample_shape}};
    if (info.y.name.empty()) return fields;
    fields.push_back({"y", info.labels_are_classes ? FileType::int32 : FileType::float32, info.y.sample_shape});
    return fields;
  }
  std::int64_t count() const override { return data_.info().samples; }
  std::string description() const override { return fmt::format("hdf5 {}", path_.filename().string()); }
  bool labels_are_classes() const override { return data_.info().labels_are_classes; }
  std::vector<std::string> class_names() const override { return data_.info().class_names; }
  std::optional<TableSchema> table() const override {
    std::optional<TableSchema> table = data_.info().table;
    // Columns with a single 1 in each row have become one of classes.
    if (table && labels_are_classes() && table->labels.size() > 1) {
      table->labels = {fmt::format("{}", fmt::join(table->labels, "|"))};
    }
    return table;
  }
  std::optional<SampleId> sample_id() const override { return data_.info().id; }
  std::vector<std::string> remarks() const override { return data_.warnings(); }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    if (samples < 0 || done_ + samples > count() || buffers.size() != stored_fields().size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    indices_.resize(static_cast<std::size_t>(samples));
    std::iota(indices_.begin(), indices_.end(), done_);
    const bool labelled = !data_.info().y.name.empty();
    data_.read(indices_, kNoEpoch, buffers[0], labelled ? buffers[1] : std::span<std::byte>{});
    if (data_.info().id) data_.read_ids(indices_, buffers.back());
    done_ += samples;
  }
  void skip(std::int64_t samples) override { done_ += samples; }
  void verify(int part, int parts) override { data_.verify(part, parts); }

 private:
  ShardedDataset data_;
  std::filesystem::path path_;
  std::vector<std::int64_t> indices_;
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> open_hdf5(const DatasetOptions& options) {
  return std::make_unique<DatasetSource>(options);
}

}  // namespace lockstep::io
