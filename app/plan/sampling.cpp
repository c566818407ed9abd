#include "app/plan/sampling.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/network_input.hpp"
#include "app/data/training_labels.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "app/report/figures.hpp"
#include "io/datasets/balanced_dataset.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kOption = "sampling balanced";

/// Throws UsageError if the data do not suit balanced sampling. Does not read the labels.
void require_drawable(const Workload& workload) {
  const io::DatasetInfo& info = workload.training->info();
  require_classes(kOption, info);
  if (info.has_masks()) {
    throw UsageError(
        fmt::format("--{} draws samples by their class, and the data hold masks with a class for each "
                    "position: --class-weight balanced weighs those",
                    kOption));
  }
  if (is_recurrent(*workload.network)) {
    throw UsageError(fmt::format("--{} does not go with --model {}: its sequences go on from step to step", kOption,
                                 workload.options.network.name));
  }
  constexpr std::int64_t kMinOfAClass = 2;  // draws per epoch
  if (info.classes > info.samples / kMinOfAClass) {
    throw UsageError(
        fmt::format("--{}: the training data have {} of {}: an epoch would not draw {} of each: leave it out", kOption,
                    counted(info.samples, "sample"), counted(info.classes, "class"), kMinOfAClass));
  }
  if (info.samples > io::BalancedDataset::kMaxSamples) {
    throw UsageError(fmt::format("--{} keeps the class of each sample, and goes up to {} of them: leave it out",
                                 kOption, with_commas(io::BalancedDataset::kMaxSamples)));
  }
}

void require_samples_of_each(const std::vector<std::int32_t>& labels, const io::DatasetInfo& info) {
  std::vector<bool> seen(static_cast<std::size_t>(info.classes));
  for (const std::int32_t label : labels) seen.at(static_cast<std::size_t>(label)) = true;
  constexpr std::size_t kFew = 5;
  std::vector<std::string> missing;
  for (std::size_t number = 0; number < seen.size(); ++number) {
    if (seen[number]) continue;
    missing.push_back(number < info.class_names.size() ? info.class_names[number] : fmt::format("{}", number));
  }
  if (missing.empty()) return;
  const std::size_t all = missing.size();
  if (all > kFew) missing = {missing.begin(), missing.begin() + kFew}, missing.emplace_back("...");
  throw UsageError(fmt::format(
      "--{}: {} of the {} has no training sample that could be drawn ({}): pack the data with labels of those that are "
      "there, or leave it out",
      kOption, with_commas(static_cast<std::int64_t>(all)), counted(info.classes, "class"), fmt::join(missing, ", ")));
}

}  // namespace

void apply_sampling(comm::Communicator& communicator, Workload& workload) {
  if (workload.options.data.sampling == ClassSampling::uniform) return;
  all_succeed_or_usage(communicator, [&] { require_drawable(workload); });
  std::vector<std::int32_t> labels = read_labels(communicator, *workload.training);
  require_samples_of_each(labels, workload.training->info());
  workload.training = std::make_unique<io::BalancedDataset>(std::move(workload.training), std::move(labels),
                                                            workload.options.work.seed);
}

}  // namespace lockstep::app
