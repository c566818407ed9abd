#include "app/data/target_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "app/data/sections.hpp"
#include "app/options/usage_error.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

constexpr double kRounding = 1e-3;  ///< tolerated error of the sum of probabilities that have few digits
constexpr const char* kChecking = "checking the targets";

/// The first sample of a section with invalid targets. Doubles, so that an all-reduce can sum the entries.
struct Wrong {
  double sample = 0;  ///< sample number + 1; 0: none
  double loss = 0;    ///< index among the checked losses
  double least = 0;   ///< smallest target
  double number = 0;  ///< sum of the probabilities, or a label that is neither 0 nor 1
};
constexpr std::size_t kNumbersOfWrong = sizeof(Wrong) / sizeof(double);

Wrong wrong_in(std::span<const float> targets, const model::LossTerm& loss) {
  const std::span<const float> own =
      targets.subspan(static_cast<std::size_t>(loss.first), static_cast<std::size_t>(loss.columns));
  const double least = *std::ranges::min_element(own);
  if (loss.kind == model::LossKind::binary_cross_entropy) {
    const auto other = std::ranges::find_if(own, [](float target) { return target != 0 && target != 1; });
    return other == own.end() ? Wrong{} : Wrong{.sample = 1, .least = least, .number = *other};
  }
  const double sum = std::accumulate(own.begin(), own.end(), 0.0);
  const bool fits = least >= 0 && std::abs(sum - 1) <= kRounding;
  return fits ? Wrong{} : Wrong{.sample = 1, .least = least, .number = sum};
}

Wrong first_wrong(const io::Dataset& data, std::span<const model::LossTerm> losses, std::int64_t begin,
                  std::int64_t end) {
  constexpr std::size_t kReadBytes = std::size_t{1} << 22;
  const auto targets = static_cast<std::size_t>(data.info().y.elements());
  const auto read = static_cast<std::int64_t>(std::max<std::size_t>(1, kReadBytes / (targets * sizeof(float))));
  std::vector<std::int64_t> samples;
  std::vector<float> y;
  for (std::int64_t at = begin; at < end; at += read) {
    samples.resize(static_cast<std::size_t>(std::min(read, end - at)));
    std::iota(samples.begin(), samples.end(), at);
    y.resize(samples.size() * targets);
    data.read_y(samples, std::as_writable_bytes(std::span(y)));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::size_t loss = 0; loss < losses.size(); ++loss) {
        Wrong wrong = wrong_in(std::span<const float>(y).subspan(i * targets, targets), losses[loss]);
        if (wrong.sample == 0) continue;
        wrong.sample = static_cast<double>(samples[i] + 1);
        wrong.loss = static_cast<double>(loss);
        return wrong;
      }
    }
  }
  return {};
}

std::string sentence_of(const Wrong& wrong, const model::LossTerm& loss, std::int64_t targets) {
  const std::string columns =
      loss.columns == targets ? "" : fmt::format(" {} to {}", loss.first + 1, loss.first + loss.columns);
  const std::string of = fmt::format("the targets{} of sample {:.0f}", columns, wrong.sample - 1);
  if (loss.kind == model::LossKind::binary_cross_entropy) {
    return fmt::format("{} hold {:.6g}, and binary-cross-entropy needs labels of 0 and 1", of, wrong.number);
  }
  return fmt::format(
      "{} {} {:.6g}, and soft-cross-entropy needs probabilities of the classes, which are at least 0 and "
      "sum to 1",
      of, wrong.least < 0 ? "go down to" : "sum to", wrong.least < 0 ? wrong.least : wrong.number);
}

}  // namespace

void require_targets(comm::Communicator& communicator, const model::ModelOptions& options, const io::Dataset& data,
                     const std::filesystem::path& path) {
  std::vector<model::LossTerm> losses;
  if (options.losses.empty() && options.loss == model::LossKind::soft_cross_entropy) {
    losses.push_back({.kind = options.loss, .first = 0, .columns = data.info().y.elements(), .share = {}});
  }
  std::ranges::copy_if(options.losses, std::back_inserter(losses), [&](const model::LossTerm& loss) {
    return loss.kind == model::LossKind::soft_cross_entropy ||
           (loss.kind == model::LossKind::binary_cross_entropy && !data.info().targets_are_binary);
  });
  if (losses.empty()) return;
  const std::int64_t samples = data.info().samples, sections = sections_of(samples, kNumbersOfWrong);
  std::vector<double> found(kNumbersOfWrong * static_cast<std::size_t>(sections),
                            0.0);  // zeros for sections of other ranks
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation reading(communicator, kChecking);
    const std::int64_t rank = communicator.rank(), size = communicator.size();
    for (std::int64_t k = sections * rank / size; k < sections * (rank + 1) / size; ++k) {
      const Wrong wrong = first_wrong(data, losses, samples * k / sections, samples * (k + 1) / sections);
      const std::array numbers{wrong.sample, wrong.loss, wrong.least, wrong.number};
      std::ranges::copy(numbers, found.begin() + static_cast<std::ptrdiff_t>(kNumbersOfWrong) * k);
    }
  });
  communicator.all_reduce(std::span<double>(found));
  communicator.wait(kChecking);
  for (std::size_t k = 0; k < found.size(); k += kNumbersOfWrong) {
    const Wrong wrong{found[k], found[k + 1], found[k + 2], found[k + 3]};
    if (wrong.sample == 0) continue;
    throw UsageError(
        fmt::format("{}: {}", path.string(),
                    sentence_of(wrong, losses[static_cast<std::size_t>(wrong.loss)], data.info().y.elements())));
  }
}

}  // namespace lockstep::app
