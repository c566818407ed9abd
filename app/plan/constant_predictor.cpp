#include "app/plan/constant_predictor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "app/data/sections.hpp"
#include "comm/consensus.hpp"
#include "model/formulas/losses.hpp"

namespace lockstep::app {

namespace {

constexpr std::uint64_t kMaxTokensRead = std::uint64_t{1} << 28;
constexpr std::size_t kBlockOfLabels = std::size_t{1} << 20;  ///< bytes of labels read at once
constexpr const char* kReading = "reading the labels";
constexpr std::size_t kMaxStored = 65'536;  ///< maximum number of classes or targets in a checkpoint

/// True for losses whose best constant is the median of the targets, exactly or nearly.
bool has_medians(model::LossKind loss) {
  return loss == model::LossKind::mean_absolute_error || loss == model::LossKind::huber;
}

bool has_classes(const io::DatasetInfo& info) { return info.labels_are_classes || info.tokens.has_value(); }

/// Collective. Cuts the samples into sections, which do not depend on the number of ranks. One rank reads each section
/// in order and calls use(section, y of a block of samples). Reads one of every `stride` blocks.
template <class Use>
void read_sections(comm::Communicator& communicator, const io::Dataset& data, std::int64_t sections,
                   std::int64_t stride, const Use& use) {
  const std::int64_t samples = data.info().samples;
  const std::size_t of_sample = data.y_bytes() + (data.info().tokens ? data.x_bytes() : 0);
  const auto rows =
      static_cast<std::int64_t>(std::max<std::size_t>(1, kBlockOfLabels / std::max<std::size_t>(1, of_sample)));
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation reading(communicator, kReading);
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
        use(static_cast<std::size_t>(k), std::span<const std::byte>(y));
      }
    }
  });
}

/// Collective. Computes `width` sums over the samples with add(y of a block of samples, sums of the section). Sections
/// are summed separately, so that the sums have the same bits at any number of ranks.
template <class Add>
std::vector<double> add_up(comm::Communicator& communicator, const io::Dataset& data, std::size_t width,
                           std::int64_t stride, const Add& add) {
  const std::int64_t sections = sections_of(data.info().samples, width);
  std::vector<double> sums(static_cast<std::size_t>(sections) * width);  // zeros for sections of other ranks
  read_sections(communicator, data, sections, stride, [&](std::size_t section, std::span<const std::byte> y) {
    add(y, std::span(sums).subspan(section * width, width));
  });
  communicator.all_reduce(std::span<double>(sums));
  communicator.wait(kReading);
  std::vector<double> total(width);
  for (std::size_t i = 0; i < sums.size(); ++i) total[i % width] += sums[i];
  return total;
}

template <class Number>
std::span<const Number> numbers_in(std::span<const std::byte> y) {
  return {reinterpret_cast<const Number*>(y.data()), y.size() / sizeof(Number)};
}

/// Returns the classes by descending count; equal counts stay in the order of the classes.
std::vector<std::size_t> by_count(const std::vector<double>& counts) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  return order;
}

/// Maps a float to an integer key with the same order; number_of() is the inverse.
std::uint32_t key_of(float number) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return bits >> 31 != 0 ? ~bits : bits | std::uint32_t{1} << 31;
}
float number_of(std::uint32_t key) noexcept {
  return std::bit_cast<float>(key >> 31 != 0 ? key & ~(std::uint32_t{1} << 31) : ~key);
}

/// Collective. Returns the median of each target: the mean of the two middle numbers. Radix selection on the bits of
/// the numbers: each pass over the labels counts the numbers that share the known leading digits, which determines the
/// next digit of both middle numbers. Counts are exact, so the result does not depend on the number of ranks.
std::vector<float> find_medians(comm::Communicator& communicator, const io::Dataset& data, std::int64_t stride) {
  struct Search {
    double before = 0;         ///< count of smaller numbers with the same leading digits
    std::uint32_t digits = 0;  ///< known leading digits of the key
  };
  constexpr std::size_t kMaxCounts = std::size_t{1} << 21;
  const auto targets = static_cast<std::size_t>(data.info().target_count());
  std::vector<Search> searches(2 * targets);
  const int bits = searches.size() << 16 <= kMaxCounts ? 16 : searches.size() << 8 <= kMaxCounts ? 8 : 4;
  const std::size_t width = std::size_t{1} << bits;
  const std::int64_t sections = std::min(data.info().samples, kMaxSections);
  std::vector<double> counts;
  for (int shift = 32 - bits; shift >= 0; shift -= bits) {
    const bool first = shift + bits == 32;
    counts.assign(searches.size() * width, 0);
    read_sections(communicator, data, sections, stride, [&](std::size_t, std::span<const std::byte> y) {
      const std::span<const float> numbers = numbers_in<float>(y);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::uint32_t digits = key_of(numbers[i]) >> shift;
        for (std::size_t k = i % targets * 2; k < i % targets * 2 + 2; ++k) {
          if (first || digits >> bits == searches[k].digits) counts[k * width + (digits & (width - 1))] += 1;
        }
      }
    });
    communicator.all_reduce(std::span<double>(counts));
    communicator.wait(kReading);
    for (std::size_t k = 0; k < searches.size(); ++k) {
      Search& search = searches[k];
      const std::span<const double> own = std::span(counts).subspan(k * width, width);
      if (first) {
        const double all = std::accumulate(own.begin(), own.end(), 0.0);
        search.before = std::floor((k % 2 == 0 ? all - 1 : all) / 2);
      }
      std::uint32_t digit = 0;
      for (; digit + 1 < width && search.before >= own[digit]; ++digit) search.before -= own[digit];
      search.digits = first ? digit : search.digits << bits | digit;
    }
  }
  std::vector<float> medians;
  for (std::size_t i = 0; i < targets; ++i) {
    const auto low = static_cast<double>(number_of(searches[2 * i].digits));
    const auto high = static_cast<double>(number_of(searches[2 * i + 1].digits));
    medians.push_back(static_cast<float>((low + high) / 2));
  }
  return medians;
}

std::string words_of(const ConstantPredictor& constant, model::LossKind loss, bool tokens, bool fields,
                     const std::vector<std::string>& names) {
  const std::string_view of = constant.in_part ? "some of the training" : "the training";
  if (tokens) return fmt::format("the frequencies of {} tokens", of);
  if (!constant.counts.empty()) {
    const auto most = static_cast<std::size_t>(std::max_element(constant.counts.begin(), constant.counts.end()) -
                                               constant.counts.begin());
    return fmt::format("the most frequent class of {} data, {}", of,
                       most < names.size() ? names[most] : fmt::format("{}", most));
  }
  if (loss == model::LossKind::binary_cross_entropy) {
    return fmt::format("what most {} samples have of each label", constant.in_part ? "of some training" : "training");
  }
  if (loss == model::LossKind::soft_cross_entropy) return fmt::format("the mean probabilities of {} data", of);
  return fmt::format("the {} of {}{} {}", constant.medians ? "median" : "mean",
                     fields && constant.values.size() > 1 ? "each channel of " : "", of, fields ? "fields" : "targets");
}

}  // namespace

ConstantPredictor find_constant(comm::Communicator& communicator, const io::Dataset& training, model::LossKind loss,
                                std::uint64_t max_bytes) {
  const io::DatasetInfo& info = training.info();
  const std::uint64_t bytes = static_cast<std::uint64_t>(info.samples) * training.y_bytes();
  const std::uint64_t most = info.tokens ? std::min(kMaxTokensRead, max_bytes) : max_bytes;
  const auto stride = static_cast<std::int64_t>(std::max<std::uint64_t>(1, (bytes + most - 1) / most));
  ConstantPredictor constant{.medians = has_medians(loss), .in_part = stride > 1};
  if (has_classes(info)) {
    const auto classes = static_cast<std::size_t>(info.tokens ? info.tokens->vocabulary : info.classes);
    constant.counts = add_up(communicator, training, classes, stride, [](auto y, std::span<double> sums) {
      for (const std::int32_t label : numbers_in<std::int32_t>(y)) {
        if (label != io::kIgnored) sums[static_cast<std::size_t>(label)] += 1;
      }
    });
  } else if (constant.medians) {
    constant.values = find_medians(communicator, training, stride);
  } else {
    const auto targets = static_cast<std::size_t>(info.target_count());
    const std::vector<double> sums =
        add_up(communicator, training, targets + 1, stride, [&](auto y, std::span<double> sums_here) {
          const auto numbers = numbers_in<float>(y);
          for (std::size_t i = 0; i < numbers.size(); ++i) sums_here[i % targets] += static_cast<double>(numbers[i]);
          sums_here[targets] += static_cast<double>(numbers.size() / targets);
        });
    for (std::size_t i = 0; i < targets; ++i) constant.values.push_back(static_cast<float>(sums[i] / sums[targets]));
  }
  constant.words = words_of(constant, loss, info.tokens.has_value(), !info.field.empty(), info.class_names);
  return constant;
}

ConstantPredictor stored_constant(const io::DataDescription& description, model::LossKind loss) {
  ConstantPredictor constant{.medians = !description.target_medians.empty(), .in_part = description.labels_in_part};
  constant.values = constant.medians ? description.target_medians : description.target_means;
  constant.counts.assign(description.class_counts.begin(), description.class_counts.end());
  if (!constant.empty())
    constant.words = words_of(constant, loss, false, !description.field.empty(), description.class_names);
  return constant;
}

ConstantPredictor known_constant(const io::TrainingRecord& record, const io::Dataset& training,
                                 const io::FeatureScale& targets, model::LossKind loss) {
  if (record.data_description.empty() || record.dataset != training.fingerprint()) return {};
  const bool checked =
      std::ranges::all_of(training.shards(), [](const io::ShardInfo& shard) { return !shard.checksum_y.empty(); });
  const io::DataDescription before = io::data_description_from_json(record.data_description);
  if (!checked || before.targets != targets || before.class_names != training.info().class_names) return {};
  ConstantPredictor constant = stored_constant(before, loss);
  const bool fits = has_classes(training.info()) ? std::ssize(constant.counts) == training.info().classes
                                                 : std::ssize(constant.values) == training.info().target_count() &&
                                                       constant.medians == has_medians(loss);
  return fits ? constant : ConstantPredictor{};
}

void store_constant(const ConstantPredictor& constant, io::DataDescription& description) {
  if (description.labels == io::Labels::classes && constant.counts.size() <= kMaxStored) {
    description.class_counts.assign(constant.counts.begin(), constant.counts.end());
  }
  if (description.labels == io::Labels::targets && constant.values.size() <= kMaxStored) {
    (constant.medians ? description.target_medians : description.target_means) = constant.values;
  }
  description.labels_in_part = constant.in_part;
}

namespace {

/// Marks the loss as unknown (infinite) if there are several losses: no constant is the best one for each of them.
void forget_loss(const Task& task, Score& score) {
  if (!task.loss_keys().empty()) score.loss = std::numeric_limits<double>::infinity();
}

/// Returns the soft Dice loss of a sample if class `answer` is predicted at every position. `counts`: the number of
/// positions of each class.
double dice_loss(std::size_t answer, std::span<const double> counts) {
  const double positions = std::accumulate(counts.begin(), counts.end(), 0.0);
  double loss = 0;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const bool is_answer = c == answer;
    loss += model::formulas::dice_class(is_answer ? counts[c] : 0, counts[c] + (is_answer ? positions : 0),
                                        std::ssize(counts))
                .loss;
  }
  return loss;
}

/// Collective. Returns the score on masks if class `answer` is predicted at every position. `losses`: loss of a
/// position of each class.
Score score_of_masks(comm::Communicator& communicator, std::size_t answer, std::span<const double> losses,
                     const io::Dataset& data, model::LossKind kind, const Task& task) {
  const std::size_t all = losses.size();
  const auto positions = static_cast<std::size_t>(data.info().y.elements());
  std::vector<double> of_sample(all);
  const std::vector<double> sums = add_up(communicator, data, all + 1, 1, [&](auto y, std::span<double> here) {
    const std::span<const std::int32_t> labels = numbers_in<std::int32_t>(y);
    for (std::size_t at = 0; at < labels.size(); at += positions) {
      std::ranges::fill(of_sample, 0.0);
      for (const std::int32_t label : labels.subspan(at, positions)) {
        if (label != io::kIgnored) of_sample[static_cast<std::size_t>(label)] += 1;
      }
      for (std::size_t c = 0; c < all; ++c) here[c] += of_sample[c];
      if (kind == model::LossKind::soft_dice) here[all] += dice_loss(answer, of_sample);
    }
  });
  const std::span<const double> counts = std::span(sums).first(all);
  double rows = 0, loss = sums[all] * static_cast<double>(task.positions()), classes = counts[answer] > 0 ? 0 : 1;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    rows += counts[c];
    if (kind != model::LossKind::soft_dice) loss += counts[c] * losses[c];
    classes += 1;
  }
  Score score =
      task.score({.loss = loss, .metric = counts[answer]}, static_cast<double>(data.info().samples), rows, false);
  forget_loss(task, score);
  score.mean_iou = counts[answer] / rows / classes;
  if (task.best_by() == BestBy::mean_iou) score.best = score.mean_iou;
  return score;
}

}  // namespace

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
    if (task.has_masks()) return score_of_masks(communicator, order[0], losses, data, loss, task);
    sums = add_up(communicator, data, kSums, 1, [&](auto y, std::span<double> here) {
      for (const std::int32_t label : numbers_in<std::int32_t>(y)) {
        const auto at = static_cast<std::size_t>(label);
        here[0] += losses.at(at);
        here[1] += at == order[0] ? 1 : 0;
        here[2] += std::find(order.begin(), order.end(), at) != order.end() ? 1 : 0;
      }
    });
  } else if (loss == model::LossKind::soft_cross_entropy) {
    const auto classes = constant.values.size();
    std::vector<double> chances(constant.values.begin(), constant.values.end());
    std::vector<std::size_t> order = by_count(chances);
    order.resize(std::min(order.size(), kTop));
    sums = add_up(communicator, data, kSums, 1, [&](auto y, std::span<double> here) {
      const std::span<const float> targets = numbers_in<float>(y);
      for (std::size_t at = 0; at < targets.size(); at += classes) {
        const std::span<const float> own = targets.subspan(at, classes);
        for (std::size_t o = 0; o < classes; ++o) {
          if (own[o] > 0) here[0] -= static_cast<double>(own[o]) * std::log(chances[o]);
        }
        const auto likeliest = static_cast<std::size_t>(std::ranges::max_element(own) - own.begin());
        here[1] += likeliest == order[0] ? 1 : 0;
        here[2] += std::ranges::find(order, likeliest) != order.end() ? 1 : 0;
      }
    });
  } else {
    const auto outputs = constant.values.size();
    const bool labels = loss == model::LossKind::binary_cross_entropy;
    sums = add_up(communicator, data, kSums, 1, [&](auto y, std::span<double> here) {
      const auto targets = numbers_in<float>(y);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const double value = static_cast<double>(constant.values[i % outputs]),
                     target = static_cast<double>(targets[i]);
        if (!task.counts(i % outputs)) continue;
        if (labels) {
          const bool there = target > 0.5, said = value > 0.5;
          here[0] -= std::log(there ? value : 1 - value);
          here[1] += there == said ? 1 : 0;
          here[2] += there && said ? 1 : 0;
        } else {
          const double error = std::abs(value - target);
          here[0] += loss == model::LossKind::mean_absolute_error ? error
                     : loss != model::LossKind::huber             ? error * error
                     : error <= 1                                 ? error * error / 2
                                                                  : error - 0.5;
          here[1] += error;
        }
      }
    });
    double counted = 0;
    for (std::size_t i = 0; i < outputs; ++i) counted += task.counts(i) ? 1 : 0;
    for (double& sum : sums) sum /= counted;
  }
  Score score = task.score({.loss = sums[0], .metric = sums[1], .found = sums[2]},
                           static_cast<double>(data.info().samples), false);
  forget_loss(task, score);
  // The accuracy of classes beside numbers is not computed for a constant. Among numbers, a metric for which more is
  // better can only be that accuracy.
  if (score.accuracy >= 0 && task.is_better(1, 0)) score.best = std::numeric_limits<double>::quiet_NaN();
  score.accuracy = -1;
  return score;
}

std::string format_constant(const ConstantPredictor& constant, const Score& reached, const Task& task) {
  const std::string loss = std::isfinite(reached.loss) ? fmt::format("loss {:.6g}  ", reached.loss) : "";
  return fmt::format("a constant ({}) reaches {}{}", constant.words, loss, task.format(reached));
}

double compared(const Score& score, const Task& task) noexcept {
  return task.has_masks() ? score.mean_iou : score.metric;
}

std::string beaten_by(const ConstantPredictor& constant, double metric, const Score& reached, const Task& task) {
  const double constantly = compared(reached, task);
  const bool perfect = !task.has_better_metric(task.best_possible(), constantly);
  if (perfect || task.has_better_metric(metric, constantly)) return "";
  // --best-by may have chosen another metric.
  const bool is_chosen = std::string_view(task.best_key()) == task.metric_key();
  const auto text = [&](double value) {
    return task.has_masks() ? fmt::format("{:.4f}", value)
           : is_chosen      ? task.format_metric(value)
                            : fmt::format("{:.6g}", value);
  };
  std::string words = task.has_masks() ? "mean IoU" : is_chosen ? task.metric_words() : task.metric_key();
  std::ranges::replace(words, '_', ' ');
  return fmt::format("{} {} is no better than the {} of a constant ({})", words, text(metric), text(constantly),
                     constant.words);
}

void add_constant(const Score& reached, const Task& task, io::MetricRecord& record) {
  for (auto& [key, value] : task.record(reached)) {
    if (key != "loss" || std::isfinite(reached.loss)) record.emplace_back("constant_" + key, value);
  }
}

}  // namespace lockstep::app
