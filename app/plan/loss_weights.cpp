#include "app/plan/loss_weights.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "app/data/training_labels.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

std::int32_t label_in(std::span<const std::byte> labels, std::size_t index) {
  std::int32_t label = 0;
  std::memcpy(&label, &labels[index * sizeof label], sizeof label);
  return label;
}

/// Returns the user's weights, or balanced weights from the counts of the classes.
std::vector<double> chosen_weights(const ClassWeights& options, std::span<const std::int64_t> counts) {
  return options.balanced ? balanced_weights(counts) : options.given;
}

void require_class_weights(const ClassWeights& options, const io::DatasetInfo& info) {
  require_classes("class-weight", info);
  if (options.balanced || std::ssize(options.given) == info.classes) return;
  throw UsageError(
      fmt::format("--class-weight names {}, and the data have {}: give one for each class, in the order "
                  "of their numbers",
                  counted(options.given.size(), "weight"),
                  info.classes == 1 ? "1 class" : fmt::format("{} classes", info.classes)));
}

}  // namespace

void LossWeights::write(std::span<const std::int64_t> samples, std::span<const std::byte> labels,
                        std::span<float> to) const {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const float of_class = of_classes_.empty() ? 1 : of_classes_.at(static_cast<std::size_t>(label_in(labels, i)));
    const float of_sample = of_samples_.empty() ? 1 : of_samples_.at(static_cast<std::size_t>(samples[i]));
    to[i] = of_class * of_sample;
  }
}

namespace {

/// Collective. Returns the sum of the sample weights of each class, one sum for data without classes, and for masks the
/// number of positions of each class. Empty `weights` count as 1. The result has the same bits at any number of ranks:
/// the data are cut into sections independently of it.
std::vector<double> sum_by_class(comm::Communicator& communicator, const io::Dataset& data,
                                 std::span<const float> weights) {
  constexpr std::int64_t kParts = 64, kSamplesRead = 65'536;  // samples per read, at most
  constexpr std::size_t kReadBytes = std::size_t{1} << 24;
  const auto fit = static_cast<std::int64_t>(kReadBytes / std::max<std::size_t>(1, data.y_bytes()));
  const std::int64_t read = std::clamp<std::int64_t>(fit, 1, kSamplesRead);
  const bool by_class = data.info().labels_are_classes;
  const auto classes = static_cast<std::size_t>(by_class ? data.info().classes : 1);
  std::vector<double> sums(kParts * classes, 0.0);  // zeros for sections of other ranks
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation counting(communicator, "counting the samples of each class");
    const std::int64_t samples = data.info().samples, rank = communicator.rank(), size = communicator.size();
    std::vector<std::int64_t> numbers;
    std::vector<std::byte> labels;
    for (std::int64_t section = kParts * rank / size; section < kParts * (rank + 1) / size; ++section) {
      const std::span<double> own = std::span(sums).subspan(static_cast<std::size_t>(section) * classes, classes);
      const std::int64_t end = samples * (section + 1) / kParts;
      for (std::int64_t at = samples * section / kParts; at < end; at += read) {
        numbers.resize(static_cast<std::size_t>(std::min(read, end - at)));
        std::iota(numbers.begin(), numbers.end(), at);
        if (by_class) {
          labels.resize(numbers.size() * data.y_bytes());
          data.read(numbers, io::kNoEpoch, {}, labels);
        }
        if (data.info().has_masks()) {
          for (std::size_t i = 0; i < labels.size() / sizeof(std::int32_t); ++i) {
            if (const std::int32_t label = label_in(labels, i); label != io::kIgnored) {
              own[static_cast<std::size_t>(label)] += 1;
            }
          }
          continue;
        }
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const std::size_t of_class = by_class ? static_cast<std::size_t>(label_in(labels, i)) : 0;
          own[of_class] += weights.empty() ? 1 : static_cast<double>(weights[static_cast<std::size_t>(numbers[i])]);
        }
      }
    }
  });
  communicator.all_reduce(std::span<double>(sums));
  communicator.wait("counting the samples of each class");
  for (std::size_t at = classes; at < sums.size(); ++at) sums[at % classes] += sums[at];
  sums.resize(classes);
  return sums;
}

}  // namespace

std::vector<std::int64_t> count_classes(comm::Communicator& communicator, const io::Dataset& data) {
  const std::vector<double> counts = sum_by_class(communicator, data, {});
  return {counts.begin(), counts.end()};
}

std::vector<double> balanced_weights(std::span<const std::int64_t> samples_of_classes) {
  const auto samples =
      static_cast<double>(std::accumulate(samples_of_classes.begin(), samples_of_classes.end(), std::int64_t{0}));
  const auto classes = static_cast<double>(std::ranges::count_if(samples_of_classes, [](auto n) { return n > 0; }));
  std::vector<double> weights;
  for (const std::int64_t own : samples_of_classes) {
    weights.push_back(own > 0 ? samples / (classes * static_cast<double>(own)) : 0);
  }
  return weights;
}

LossWeights gather_loss_weights(comm::Communicator& communicator, const LossOptions& options,
                                const io::Dataset& training) {
  const bool of_classes = options.class_weights.any(), of_samples = !options.sample_weight.empty();
  if (!of_classes && !of_samples) return {};
  all_succeed_or_usage(communicator, [&] {
    if (of_classes) require_class_weights(options.class_weights, training.info());
    if (of_samples && training.info().tokens) {
      throw UsageError("--sample-weight needs samples, and the data are a corpus of tokens");
    }
    if (of_samples && !training.info().field.empty()) {
      throw UsageError(
          "--sample-weight is for samples with one label or a row of numbers, and the data hold fields: leave it out");
    }
    if (of_samples && training.info().has_masks()) {
      throw UsageError(
          "--sample-weight is for samples with one label, and the data hold masks: --class-weight weighs the classes "
          "of "
          "their positions, --ignore-label leaves positions out");
    }
  });
  std::vector<double> factors(1, 1.0);
  if (of_classes) factors = chosen_weights(options.class_weights, count_classes(communicator, training));
  std::vector<float> weights;
  if (of_samples) {
    weights = read_everywhere<float>(
        communicator, training.info().samples, "reading the samples' weights",
        [&](std::span<const std::int64_t> numbers, std::span<float> to) { training.read_weights(numbers, to); });
  }
  const std::vector<double> sums = sum_by_class(communicator, training, weights);
  double sum = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) sum += factors[of_classes ? i : 0] * sums[i];
  const double labels = training.info().has_masks() ? std::accumulate(sums.begin(), sums.end(), 0.0)
                                                    : static_cast<double>(training.info().samples);
  const double mean = sum / labels;
  if (!(mean > 0)) {
    throw UsageError(fmt::format("--{}: every training sample has the weight 0: nothing would be learnt",
                                 of_classes ? "class-weight" : "sample-weight",
                                 training.info().has_masks() ? "position" : "sample"));
  }
  if (!of_classes) {
    for (float& weight : weights) weight = static_cast<float>(static_cast<double>(weight) / mean);
    return {{}, std::move(weights)};
  }
  std::vector<float> scaled;
  for (const double factor : factors) scaled.push_back(static_cast<float>(factor / mean));
  return {std::move(scaled), std::move(weights)};
}

}  // namespace lockstep::app
