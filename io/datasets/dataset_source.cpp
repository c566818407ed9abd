#include "io/datasets/dataset_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/element_cast.hpp"
#include "io/shards/left_out.hpp"

namespace lockstep::io {
namespace {

DatasetOptions with_wide_targets(DatasetOptions options) {
  options.wide_targets = true;
  return options;
}

class DatasetSource final : public SampleSource {
 public:
  DatasetSource(const DatasetOptions& options, CsvOptions::Missing missing)
      : data_(with_wide_targets(options)), path_(options.path), count_(data_.info().samples) {
    if (missing == CsvOptions::Missing::drop) leave_out();
    if (missing == CsvOptions::Missing::mean) take_means(std::nullopt);
  }

  std::vector<Field> fields() const override {
    const DatasetInfo& info = data_.info();
    if (has_several_fields()) {
      std::vector<Field> fields = data_.stored_fields();
      if (has_small_masks()) fields[1].type = FileType::uint8;
      return fields;
    }
    std::vector<Field> fields{{"x", data_.x_type(), info.x.sample_shape, info.x.unit}};
    if (info.y.name.empty()) return fields;
    fields.push_back({"y", has_small_masks() ? FileType::uint8 : data_.y_type(), info.y.sample_shape, info.y.unit});
    return fields;
  }
  std::vector<FieldRole> roles() const override {
    if (!has_several_fields()) return {};
    const DatasetInfo& info = data_.info();
    std::vector<FieldRole> roles{FieldRole::input};
    if (!info.y.name.empty()) roles.push_back(FieldRole::target);
    roles.insert(roles.end(), std::max<std::size_t>(info.inputs.size(), 1) - 1, FieldRole::input);
    roles.insert(roles.end(), std::max<std::size_t>(info.targets.size(), 1) - 1, FieldRole::target);
    return roles;
  }
  std::optional<std::int64_t> ignored_label() const override {
    if (!data_.info().ignored_label) return std::nullopt;
    return has_small_masks() ? kSmallIgnored : kIgnored;
  }
  std::int64_t count() const override { return count_; }
  std::string description() const override {
    return fmt::format("hdf5 {}{}", (path_ / "").parent_path().filename().string(), kept_.empty() ? "" : kLeftOut);
  }
  bool labels_are_classes() const override { return data_.info().labels_are_classes; }
  std::vector<std::string> class_names() const override { return data_.info().class_names; }
  std::optional<TableSchema> table() const override {
    std::optional<TableSchema> table = data_.info().table;
    // One-hot columns have become a single column of classes.
    if (table && labels_are_classes() && table->labels.size() > 1) {
      table->labels = {fmt::format("{}", fmt::join(table->labels, "|"))};
    }
    return table;
  }
  std::optional<SampleId> sample_id() const override { return data_.info().id; }
  std::vector<std::string> remarks() const override {
    std::vector<std::string> all = data_.warnings();
    if (!remark_.empty()) all.push_back(remark_);
    return all;
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    if (samples < 0 || done_ + samples > count() || buffers.size() != stored_fields().size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    indices_.resize(static_cast<std::size_t>(samples));
    std::iota(indices_.begin(), indices_.end(), done_);
    if (!kept_.empty()) {
      for (std::int64_t& index : indices_) index = kept_[static_cast<std::size_t>(index)];
    }
    const bool labelled = !data_.info().y.name.empty();
    const bool small = labelled && has_small_masks();
    std::vector<std::span<std::byte>> delivered(buffers.begin(), buffers.end());
    if (small) {
      labels_.resize(buffers[1].size());
      delivered[1] = std::as_writable_bytes(std::span(labels_));
    }
    if (has_several_fields()) {
      data_.read_fields(indices_, delivered);
    } else {
      data_.read(indices_, kNoEpoch, delivered[0], labelled ? delivered[1] : std::span<std::byte>{});
    }
    if (small) {
      std::ranges::transform(labels_, buffers[1].begin(), [](std::int32_t label) {
        return static_cast<std::byte>(label == kIgnored ? kSmallIgnored : label);
      });
    }
    if (data_.info().id) data_.read_ids(indices_, buffers.back());
    if (!means_.empty()) fill_all(buffers);
    done_ += samples;
  }
  void fill_from_training(ValidationDraw draw) override {
    if (!means_.empty()) take_means(draw);
  }
  void skip(std::int64_t samples) override { done_ += samples; }
  void verify(int part, int parts) override { data_.verify(part, parts); }

 private:
  bool has_several_fields() const { return !data_.info().inputs.empty() || !data_.info().targets.empty(); }
  /// Masks of few classes are packed as bytes.
  static constexpr std::uint8_t kSmallIgnored = 255;
  bool has_small_masks() const noexcept { return data_.info().has_masks() && data_.info().classes <= kSmallIgnored; }

  /// Calls use(first sample, flags of the samples that miss a number).
  template <class Use>
  void for_each_block(const Use& use) const {
    constexpr std::size_t kBytes = std::size_t{1} << 22;
    const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBytes / data_.x_bytes()));
    for (const ShardInfo& shard : data_.shards()) {
      for (std::int64_t first = 0; first < shard.count; first += most) {
        const std::int64_t rows = std::min(most, shard.count - first);
        use(shard.first + first, data_.missing(shard.first + first, rows));
      }
    }
  }

  void leave_out() {
    for_each_block([this](std::int64_t first, const ShardedDataset::MissingRows& missing) {
      for (std::size_t i = 0; i < missing.x.size(); ++i) {
        if (!missing.x[i] && (missing.y.empty() || !missing.y[i]))
          kept_.push_back(first + static_cast<std::int64_t>(i));
      }
    });
    if (kept_.empty()) throw FileError({.file = path_, .what = "every sample misses a number: nothing is left"});
    const std::int64_t all = count_;
    count_ = std::ssize(kept_);
    if (count_ == all) return kept_.clear();
    remark_ = fmt::format("{} of {} samples miss a number and are left out", all - count_, all);
  }

  /// `draw`: the choice of samples that validate, which do not count; nullopt: all samples count.
  void take_means(std::optional<ValidationDraw> draw) {
    const auto elements = static_cast<std::size_t>(data_.info().x.elements());
    std::vector<double> sums(elements);
    std::vector<std::int64_t> counts(elements), fractions(elements);
    std::int64_t missing_numbers = 0;
    std::vector<std::byte> x, y;
    for_each_block([&](std::int64_t first, const ShardedDataset::MissingRows& missing) {
      if (const auto at = std::find(missing.y.begin(), missing.y.end(), true); at != missing.y.end()) {
        throw FileError(
            {.file = path_,
             .what = fmt::format("sample {} misses its label, which is never guessed: --missing drop leaves "
                                 "such samples out",
                                 first + (at - missing.y.begin()))});
      }
      indices_.resize(missing.x.size());
      std::iota(indices_.begin(), indices_.end(), first);
      x.resize(indices_.size() * data_.x_bytes());
      y.resize(indices_.size() * data_.y_bytes());
      data_.read(indices_, kNoEpoch, x, y);
      with_elements(data_.x_type(), x, [&](auto numbers) {
        bool validates = false;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          if (i % elements == 0) validates = draw && draw->next();
          const auto number = static_cast<double>(numbers[i]);
          if (std::isnan(number)) {
            ++missing_numbers;
          } else if (!validates) {
            sums[i % elements] += number;
            ++counts[i % elements];
            if (number != std::floor(number)) ++fractions[i % elements];
          }
        }
      });
    });
    if (missing_numbers == 0) return;
    means_.clear();
    if (!draw) {
      for (const FieldRange& input : data_.info().inputs) require_numbers(input, counts, fractions);
    }
    for (std::size_t i = 0; i < elements; ++i) {
      if (counts[i] == 0) {
        throw FileError({.file = path_,
                         .what = fmt::format("number {} of the samples is missing in all of {}: leave it out", i,
                                             draw ? "those for training" : "them")});
      }
      means_.push_back(sums[i] / static_cast<double>(counts[i]));
    }
    remark_ = fmt::format("{} missing numbers get the mean of their place in the samples", missing_numbers);
  }

  /// Refuses to fill whole numbers with means: beside other inputs they may be ids.
  void require_numbers(const FieldRange& input, std::span<const std::int64_t> counts,
                       std::span<const std::int64_t> fractions) const {
    const auto first = static_cast<std::size_t>(input.first), size = static_cast<std::size_t>(input.field.elements());
    const auto is_missing = [&](std::int64_t count) { return count < data_.info().samples; };
    const auto own = counts.subspan(first, size);
    if (std::ranges::none_of(own, is_missing)) return;
    if (std::ranges::any_of(fractions.subspan(first, size), [](std::int64_t count) { return count > 0; })) return;
    throw FileError({.file = path_,
                     .what = fmt::format("{} holds whole numbers, which may be ids: a mean would mean nothing. "
                                         "--missing drop leaves out the samples that miss one",
                                         input.field.name)});
  }

  void fill_all(std::span<const std::span<std::byte>> buffers) const {
    const std::vector<FieldRange>& inputs = data_.info().inputs;
    if (inputs.empty()) return fill(buffers[0], data_.x_type(), means_);
    const std::vector<Field> stored = fields();
    const std::vector<FieldRole> all = roles();
    auto range = inputs.begin();
    for (std::size_t f = 0; f < stored.size(); ++f) {
      if (all[f] != FieldRole::input) continue;
      const auto means = std::span(means_).subspan(static_cast<std::size_t>(range->first),
                                                   static_cast<std::size_t>(stored[f].elements()));
      fill(buffers[f], stored[f].type, means);
      ++range;
    }
  }

  static void fill(std::span<std::byte> x, FileType type, std::span<const double> means) {
    const auto put = [&]<class Number>(Number) {
      for (std::size_t i = 0; i < x.size() / sizeof(Number); ++i) {
        Number number{};
        std::memcpy(&number, &x[i * sizeof number], sizeof number);
        if (!std::isnan(number)) continue;
        number = static_cast<Number>(means[i % means.size()]);
        std::memcpy(&x[i * sizeof number], &number, sizeof number);
      }
    };
    if (type == FileType::float64) put(double{});
    if (type == FileType::float32) put(float{});
  }

  ShardedDataset data_;
  std::filesystem::path path_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> kept_;  ///< samples without missing numbers; empty: all
  std::vector<double> means_;       ///< mean of each element; empty: nothing is missing
  std::string remark_;
  std::vector<std::int64_t> indices_;
  std::vector<std::int32_t> labels_;
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> open_hdf5(const DatasetOptions& options, CsvOptions::Missing missing) {
  return std::make_unique<DatasetSource>(options, missing);
}

}  // namespace lockstep::io
