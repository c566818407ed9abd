#include "app/plan/constant_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "comm/agreement.hpp"

namespace lockstep::app {

namespace {

constexpr std::uint64_t kMaxRead = std::uint64_t{4} << 30;
constexpr std::uint64_t kMaxTokensRead = std::uint64_t{1} << 28;
constexpr std::size_t kBlockOfLabels = std::size_t{1} << 20;  ///< bytes of labels read at once
constexpr std::int64_t kMaxSections = 64, kMaxSums = std::int64_t{1} << 18;
constexpr std::size_t kMaxStored = 65'536;  ///< classes or targets: a checkpoint says them all

bool has_classes(const io::DatasetInfo& info) { return info.labels_are_classes || info.tokens.has_value(); }

/// Adds over the samples up, in sections: each is added by one rank, in order, so that the sums have the same bits at
/// any number of ranks. add(y of some samples, sums of the section).
template <class Add>
std::vector<double> add_up(comm::Communicator& communicator, const io::Dataset& data, std::size_t width,
                           std::int64_t stride, const Add& add) {
  const std::int64_t samples = data.info().samples;
  const std::size_t of_sample = data.y_bytes() + (data.info().tokens ? data.x_bytes() : 0);
  const auto rows =
      static_cast<std::int64_t>(std::max<std::size_t>(1, kBlockOfLabels / std::max<std::size_t>(1, of_sample)));
  const std::int64_t sections =
      std::min(samples, std::clamp<std::int64_t>(kMaxSums / static_cast<std::int64_t>(width), 1, kMaxSections));
  std::vector<double> sums(static_cast<std::size_t>(sections) * width);  // zeros where another rank adds
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation reading(communicator, "reading the labels");
    std::vector<std::int64_t> block;
    std::vector<std::byte> y;
    const std::int64_t rank = communicator.rank(), size = communicator.size();
    for (std::int64_t k = sections * rank / size; k < sections * (rank + 1) / size; ++k) {
      const std::int64_t end = samples * (k + 1) / sections;
      for (std::int64_t at = samples * k / sections; at < end; at += rows * stride) {
        block.resize(static_cast<std::size_t>(std::min(rows, end - at)));
        std::iota(block.begin(), block.end(), at);
        y.resize(block.size() * data.y_bytes());
        data.read_y(block, y);
        add(std::span<const std::byte>(y), std::span(sums).subspan(static_cast<std::size_t>(k) * width, width));
      }
    }
  });
  communicator.all_reduce(std::span<double>(sums));
  communicator.wait("reading the labels");
  std::vector<double> total(width);
  for (std::size_t i = 0; i < sums.size(); ++i) total[i % width] += sums[i];
  return total;
}

template <class Number>
std::span<const Number> numbers_in(std::span<const std::byte> y) {
  return {reinterpret_cast<const Number*>(y.data()), y.size() / sizeof(Number)};
}

/// Classes in the order of their counts, of equal ones the first first.
std::vector<std::size_t> by_count(const std::vector<double>& counts) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  return order;
}

std::string words_of(const ConstantPredictor& constant, model::LossKind loss, bool tokens,
                     const std::vector<std::string>& names) {
  if (tokens) return "the frequencies of the training tokens";
  if (!constant.counts.empty()) {
    const auto most = static_cast<std::size_t>(std::max_element(constant.counts.begin(), constant.counts.end()) -
                                               constant.counts.begin());
    return fmt::format("the most frequent class of the training data, {}",
                       most < names.size() ? names[most] : fmt::format("{}", most));
  }
  return loss == model::LossKind::binary_cross_entropy ? "what most training samples have of each label"
                                                       : "the mean of the training targets";
}

}  // namespace

ConstantPredictor find_constant(comm::Communicator& communicator, const io::Dataset& training, model::LossKind loss) {
  const io::DatasetInfo& info = training.info();
  const std::uint64_t bytes = static_cast<std::uint64_t>(info.samples) * training.y_bytes();
  const std::uint64_t most = info.tokens ? kMaxTokensRead : kMaxRead;
  const auto stride = static_cast<std::int64_t>(std::max<std::uint64_t>(1, (bytes + most - 1) / most));
  ConstantPredictor constant;
  if (has_classes(info)) {
    const auto classes = static_cast<std::size_t>(info.tokens ? info.tokens->vocabulary : info.classes);
    constant.counts = add_up(communicator, training, classes, stride, [](auto y, std::span<double> sums) {
      for (const std::int32_t label : numbers_in<std::int32_t>(y)) sums[static_cast<std::size_t>(label)] += 1;
    });
  } else {
    const auto targets = static_cast<std::size_t>(info.y.elements());
    const std::vector<double> sums =
        add_up(communicator, training, targets + 1, stride, [&](auto y, std::span<double> sums_here) {
          const auto numbers = numbers_in<float>(y);
          for (std::size_t i = 0; i < numbers.size(); ++i) sums_here[i % targets] += static_cast<double>(numbers[i]);
          sums_here[targets] += static_cast<double>(numbers.size() / targets);
        });
    for (std::size_t i = 0; i < targets; ++i) constant.means.push_back(static_cast<float>(sums[i] / sums[targets]));
  }
  constant.words = words_of(constant, loss, info.tokens.has_value(), info.class_names);
  return constant;
}

ConstantPredictor stored_constant(const io::DataDescription& description, model::LossKind loss) {
  ConstantPredictor constant{.means = description.target_means};
  constant.counts.assign(description.class_counts.begin(), description.class_counts.end());
  if (!constant.empty()) constant.words = words_of(constant, loss, false, description.class_names);
  return constant;
}

void store_constant(const ConstantPredictor& constant, io::DataDescription& description) {
  if (description.labels == io::Labels::classes && constant.counts.size() <= kMaxStored) {
    description.class_counts.assign(constant.counts.begin(), constant.counts.end());
  }
  if (description.labels == io::Labels::targets && constant.means.size() <= kMaxStored) {
    description.target_means = constant.means;
  }
}

Score score_of(comm::Communicator& communicator, const ConstantPredictor& constant, const io::Dataset& data,
               model::LossKind loss, const Task& task) {
  constexpr std::size_t kSums = 3;  // loss, metric, found
  constexpr std::size_t kTop = 5;
  std::vector<double> sums;
  if (!constant.counts.empty()) {
    const double more = task.is_language() ? 1 : 0;
    double all = 0;
    for (const double count : constant.counts) all += count + more;
    std::vector<double> losses;
    for (const double count : constant.counts) losses.push_back(std::log(all) - std::log(count + more));
    std::vector<std::size_t> order = by_count(constant.counts);
    order.resize(std::min(order.size(), kTop));
    sums = add_up(communicator, data, kSums, 1, [&](auto y, std::span<double> here) {
      for (const std::int32_t label : numbers_in<std::int32_t>(y)) {
        const auto at = static_cast<std::size_t>(label);
        here[0] += losses.at(at);
        here[1] += at == order[0] ? 1 : 0;
        here[2] += std::find(order.begin(), order.end(), at) != order.end() ? 1 : 0;
      }
    });
  } else {
    const auto outputs = constant.means.size();
    const bool labels = loss == model::LossKind::binary_cross_entropy;
    sums = add_up(communicator, data, kSums, 1, [&](auto y, std::span<double> here) {
      const auto targets = numbers_in<float>(y);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const double mean = static_cast<double>(constant.means[i % outputs]), target = static_cast<double>(targets[i]);
        if (labels) {
          const bool there = target > 0.5, said = mean > 0.5;
          here[0] -= std::log(there ? mean : 1 - mean);
          here[1] += there == said ? 1 : 0;
          here[2] += there && said ? 1 : 0;
        } else {
          const double error = std::abs(mean - target);
          here[0] += loss == model::LossKind::mean_absolute_error ? error
                     : loss != model::LossKind::huber             ? error * error
                     : error <= 1                                 ? error * error / 2
                                                                  : error - 0.5;
          here[1] += error;
        }
      }
    });
    for (double& sum : sums) sum /= static_cast<double>(outputs);
  }
  return task.score({.loss = sums[0], .metric = sums[1], .found = sums[2]}, static_cast<double>(data.info().samples),
                    false);
}

std::string format_constant(const ConstantPredictor& constant, const Score& reached, const Task& task) {
  const std::string loss = std::isfinite(reached.loss) ? fmt::format("loss {:.6g}  ", reached.loss) : "";
  return fmt::format("a constant ({}) reaches {}{}", constant.words, loss, task.format(reached));
}

std::string beaten_by(const ConstantPredictor& constant, double metric, const Score& reached, const Task& task) {
  const bool perfect = !task.has_better_metric(task.best_possible(), reached.metric);
  if (perfect || task.has_better_metric(metric, reached.metric)) return "";
  return fmt::format("{} {} is no better than the {} of a constant ({})", task.metric_words(),
                     task.format_metric(metric), task.format_metric(reached.metric), constant.words);
}

void add_constant(const Score& reached, const Task& task, io::MetricRecord& record) {
  for (auto& [key, value] : task.record(reached)) {
    if (key != "loss" || std::isfinite(reached.loss)) record.emplace_back("constant_" + key, value);
  }
}

}  // namespace lockstep::app
