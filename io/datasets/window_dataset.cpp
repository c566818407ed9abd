#include "io/datasets/window_dataset.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"
#include "io/shards/left_out.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, std::string what) {
  throw FileError({.file = path, .what = std::move(what)});
}

/// The number of series, and the number of steps of each. Refuses data without series.
WindowInfo series_in(const DatasetInfo& data, const WindowOptions& options, const std::filesystem::path& path) {
  const std::vector<std::int64_t>& shape = data.x.sample_shape;
  if (data.tokens) refuse(path, "holds tokens, and --window is for series of numbers");
  if (shape.size() > 2) {
    refuse(path, fmt::format("has samples of {} extents: --window reads rows of numbers, or series of steps x numbers",
                             shape.size()));
  }
  WindowInfo info{.window = options.window, .horizon = options.horizon};
  if (shape.size() == 2) {
    info.series = data.samples;
    info.steps = shape[0];
    return info;
  }
  info.steps = data.samples;
  if (data.source.find(kLeftOut) != std::string::npos) {
    refuse(
        path,
        "was packed with --missing drop, which left lines out, and windows need rows that follow each other in time: "
        "pack it with --missing mean, or fill the gaps");
  }
  for (const char* part : {kTrainName, kValidationName}) {
    if (!data.source.ends_with(fmt::format(" ({})", part))) continue;
    refuse(path,
           "holds rows that `pack --validation` drew by chance, and windows need rows that follow each other in "
           "time: pack them without --validation, and give --validation SHARE to train");
  }
  return info;
}

}  // namespace

struct WindowDataset::Steps {
  std::vector<std::byte> x, y;  ///< as x_type() and y_type() of the data
};

WindowDataset::WindowDataset(std::shared_ptr<Dataset> given, const WindowOptions& options,
                             const std::filesystem::path& path)
    : DatasetView(std::move(given)),
      options_(options),
      within_(data().info().x.sample_shape.size() == 2),
      info_(data().info()) {
  if (options.window < 1 || options.horizon < 1) throw std::invalid_argument("a window without steps");
  if (!info_.inputs.empty()) {
    refuse(path, fmt::format("has {} inputs, and --window makes windows of one: --x names it", info_.inputs.size()));
  }
  WindowInfo windows = series_in(info_, options, path);
  has_targets_ = !info_.y.name.empty() && !within_;
  if (!info_.y.name.empty() && within_) {
    refuse(path,
           "has a label for each series, and --window forecasts the series themselves: leave the labels out "
           "(--y \"\")");
  }
  if (has_targets_ && info_.labels_are_classes) {
    refuse(path, "holds classes, and --window forecasts numbers: pack it with --regression");
  }
  if (!info_.field.empty()) {
    refuse(path, "has numbers at each position of its samples, and --window forecasts rows of numbers");
  }
  numbers_ = within_ ? info_.x.sample_shape[1] : info_.x.elements();
  targets_ = has_targets_ ? info_.y.elements() : numbers_;
  const bool wide = data().x_type() == FileType::float64 || (has_targets_ && data().y_type() == FileType::float64);
  x_type_ = wide ? FileType::float64 : has_targets_ ? FileType::float32 : data().x_type();
  y_type_ = has_targets_ ? data().y_type() : wide ? FileType::float64 : FileType::float32;

  if (options.window > windows.steps || options.horizon > windows.steps ||
      (!options.to_the_end && options.window + options.horizon > windows.steps)) {
    refuse(path,
           fmt::format("has series of {} steps, which is too short for a window of {} and a horizon of {}: give a "
                       "smaller --window or --horizon",
                       windows.steps, options.window, options.horizon));
  }
  const std::int64_t needed = options.window + (options.to_the_end ? 0 : options.horizon);
  const std::vector<std::string> names = names_of_forecasts();
  for (std::int64_t h = 1; std::ssize(names) == targets_ && h <= options.horizon; ++h) {
    for (const std::string& name : names) windows.target_names.push_back(fmt::format("{}+{}", name, h));
  }
  info_.targets.clear();  // they are adjacent in y
  info_.samples = windows.series * (windows.steps - needed + 1);
  const std::string unit = info_.x.unit, forecast = has_targets_ ? info_.y.unit : unit;
  const bool two_units = !unit.empty() && !forecast.empty() && unit != forecast;  // a window has numbers of both
  info_.x = {info_.x.name,
             x_type_,
             {options.window, numbers_ + (has_targets_ ? targets_ : 0)},
             two_units ? unit + ", " + forecast : unit + (unit.empty() ? forecast : "")};
  info_.y = {options.to_the_end ? "" : "y", y_type_, {options.horizon * targets_}, forecast};
  info_.labels_are_classes = false;
  info_.classes = 0;
  info_.class_names.clear();
  info_.targets_are_binary = info_.holds_weights = false;
  info_.has_statistics = info_.has_statistics && !has_targets_;
  constexpr std::int64_t kDigits = 20;  // decimal digits of a 64-bit number
  info_.id = SampleId{.name = windows.series > 1 ? "series:step" : "step", .bytes = 2 * kDigits + 1};
  info_.windows = std::move(windows);
}

/// Names of the numbers that are forecast at a step: the columns of a table, or the numbers of fields.
std::vector<std::string> WindowDataset::names_of_forecasts() const {
  if (info_.table && has_targets_) return info_.table->labels;
  if (!has_targets_) {
    if (!info_.table) return names_of_numbers(std::array{FieldRange{.field = {info_.x.name, x_type_, {numbers_}}}});
    std::vector<std::string> names;
    for (const auto& column : info_.table->columns) names.push_back(column.name);
    return names;
  }
  return info_.targets.empty() ? names_of_numbers(std::array{FieldRange{.field = info_.y}})
                               : names_of_numbers(info_.targets);
}

std::string WindowDataset::fingerprint() const {
  return fmt::format("{}, windows of {}, {} behind them{}", data().fingerprint(), options_.window, options_.horizon,
                     options_.to_the_end ? ", to the end" : "");
}

std::size_t WindowDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info_.x.elements()) * size_of(x_type_);
}
std::size_t WindowDataset::y_bytes() const noexcept {
  return options_.to_the_end ? 0 : static_cast<std::size_t>(info_.y.elements()) * size_of(y_type_);
}
std::size_t WindowDataset::stored_bytes() const noexcept {
  const auto steps = static_cast<std::size_t>(options_.window + options_.horizon);
  const std::size_t stored = data().stored_bytes();
  return within_ ? stored / static_cast<std::size_t>(info_.windows->steps) * steps : stored * steps;
}

WindowDataset::Steps WindowDataset::read_steps(std::int64_t series, std::int64_t first, std::int64_t count,
                                               std::int64_t epoch) const {
  Steps steps;
  if (within_) {
    std::vector<std::byte> whole(data().x_bytes());
    data().read(std::span(&series, 1), epoch, whole, {});
    const std::size_t step = data().x_bytes() / static_cast<std::size_t>(info_.windows->steps);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * static_cast<std::int64_t>(step));
    steps.x.assign(begin, begin + static_cast<std::ptrdiff_t>(count * static_cast<std::int64_t>(step)));
    return steps;
  }
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  steps.x.resize(rows.size() * data().x_bytes());
  steps.y.resize(rows.size() * data().y_bytes());
  data().read(rows, epoch, steps.x, steps.y);
  return steps;
}

namespace {

/// Copies columns of rows: out[row, at + i] = in[first + row, i] for i < width.
template <class Out>
void copy_rows(FileType type, std::span<const std::byte> in, std::int64_t first, std::int64_t rows, std::int64_t width,
               std::span<std::byte> out, std::int64_t out_width, std::int64_t at) {
  with_elements(type, in, [&](auto numbers) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const auto number = static_cast<Out>(numbers[static_cast<std::size_t>((first + row) * width + i)]);
        std::memcpy(&out[static_cast<std::size_t>(row * out_width + at + i) * sizeof number], &number, sizeof number);
      }
    }
  });
}

void copy_rows_as(FileType as, FileType type, std::span<const std::byte> in, std::int64_t first, std::int64_t rows,
                  std::int64_t width, std::span<std::byte> out, std::int64_t out_width, std::int64_t at) {
  if (as == FileType::float64) return copy_rows<double>(type, in, first, rows, width, out, out_width, at);
  if (as == FileType::uint8) return copy_rows<std::uint8_t>(type, in, first, rows, width, out, out_width, at);
  copy_rows<float>(type, in, first, rows, width, out, out_width, at);
}

}  // namespace

void WindowDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                         std::span<std::byte> y) const {
  if ((!x.empty() && x.size() != samples.size() * x_bytes()) || y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffers of WindowDataset::read have the wrong size");
  }
  const std::int64_t of_series = info_.samples / info_.windows->series, window = options_.window,
                     columns = info_.x.sample_shape[1];
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] < 0 || samples[i] >= info_.samples) {
      throw std::invalid_argument(fmt::format("there is no window {}: there are {}", samples[i], info_.samples));
    }
    const std::int64_t behind = y.empty() ? 0 : options_.horizon;
    const Steps steps = read_steps(samples[i] / of_series, samples[i] % of_series, window + behind, epoch);
    if (!x.empty()) {
      const auto out = x.subspan(i * x_bytes(), x_bytes());
      copy_rows_as(x_type_, data().x_type(), steps.x, 0, window, numbers_, out, columns, 0);
      if (has_targets_) copy_rows_as(x_type_, data().y_type(), steps.y, 0, window, targets_, out, columns, numbers_);
    }
    if (y.empty()) continue;
    const auto out = y.subspan(i * y_bytes(), y_bytes());
    copy_rows_as(y_type_, has_targets_ ? data().y_type() : data().x_type(), has_targets_ ? steps.y : steps.x, window,
                 behind, targets_, out, targets_, 0);
  }
}

void WindowDataset::read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const {
  const std::int64_t of_series = info_.samples / info_.windows->series;
  const auto bytes = static_cast<std::size_t>(info_.id->bytes);
  std::ranges::fill(ids, std::byte{0});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t step = samples[i] % of_series + options_.window;
    const std::string text =
        info_.windows->series > 1 ? fmt::format("{}:{}", samples[i] / of_series, step) : fmt::format("{}", step);
    std::memcpy(&ids[i * bytes], text.data(), text.size());
  }
}

void WindowDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept {
  const std::int64_t of_series = info_.samples / info_.windows->series;
  if (within_) {
    data().will_need(first / of_series, (first + count - 1) / of_series - first / of_series + 1, epoch);
  } else {
    data().will_need(first, count + options_.window + options_.horizon - 1, epoch);
  }
}

WindowPart::WindowPart(std::shared_ptr<Dataset> windows, double share, Part part)
    : DatasetView(std::move(windows)), part_(part), info_(data().info()) {
  const WindowInfo& all = info_.windows.value();
  all_of_series_ = info_.samples / all.series;
  const auto held = static_cast<std::int64_t>(std::ceil(static_cast<double>(all.steps) * share));
  const std::int64_t cut = all.steps - held;  // first step that validation forecasts
  const std::int64_t training = cut - all.window - all.horizon + 1, first = std::max<std::int64_t>(0, cut - all.window);
  if (training < 1 || first >= all_of_series_) {
    throw FileError(fmt::format(
        "series of {} steps, of which the last {} are for validation: a window of {} with a horizon of {} does not fit "
        "in both parts: give a smaller --window or --horizon, or another --validation",
        all.steps, held, all.window, all.horizon));
  }
  first_ = part == Part::training ? 0 : first;
  of_series_ = part == Part::training ? training : all_of_series_ - first;
  info_.samples = all.series * of_series_;
}

const std::vector<std::string>& WindowPart::warnings() const noexcept {
  static const std::vector<std::string> kNone;
  return part_ == Part::training ? data().warnings() : kNone;
}

std::string WindowPart::fingerprint() const {
  return fmt::format("{}, {} of them for {}", data().fingerprint(), info_.samples,
                     part_ == Part::training ? "training" : "validation");
}

std::int64_t WindowPart::in_all(std::int64_t sample) const noexcept {
  return sample / of_series_ * all_of_series_ + first_ + sample % of_series_;
}

std::vector<std::int64_t> WindowPart::in_all(std::span<const std::int64_t> samples) const {
  std::vector<std::int64_t> all(samples.size());
  std::ranges::transform(samples, all.begin(), [this](std::int64_t index) {
    if (index < 0 || index >= info_.samples) {
      throw std::invalid_argument(fmt::format("there is no window {}: the part has {}", index, info_.samples));
    }
    return in_all(index);
  });
  return all;
}

void WindowPart::will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept {
  if (count < 1) return;
  const std::int64_t begin = in_all(first), last = in_all(std::min(first + count, info_.samples) - 1);
  data().will_need(begin, last - begin + 1, epoch);
}

std::uint64_t WindowPart::verify(int part, int parts) const {
  return part_ == Part::training ? data().verify(part, parts) : 0;
}

void WindowPart::check_unchanged(int part, int parts) {
  if (part_ == Part::training) data().check_unchanged(part, parts);
}

}  // namespace lockstep::io
