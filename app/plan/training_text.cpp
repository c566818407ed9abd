#include "app/plan/training_text.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/choices.hpp"
#include "app/plan/network_losses.hpp"
#include "app/plan/tuning.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

/// Returns "adamw, beta1 0.9, beta2 0.999, epsilon 1e-08, weight decay 0.1".
std::string optimizer_text(const model::OptimizerOptions& options) {
  using enum model::OptimizerKind;
  std::string text(model::name_of(options.kind));
  const bool has_velocity = options.kind == momentum || options.kind == nesterov || options.kind == lars;
  const bool has_moments = options.kind == adam || options.kind == adamw || options.kind == lamb;
  if (has_velocity) text += fmt::format(", momentum {}", options.momentum);
  if (options.kind == lars) text += fmt::format(", trust {}", options.trust);
  if (has_moments) {
    text += fmt::format(", beta1 {}, beta2 {}, epsilon {}", options.beta1, options.beta2, options.epsilon);
  }
  if (options.weight_decay > 0) text += fmt::format(", weight decay {}", options.weight_decay);
  if (options.clip_norm > 0) text += fmt::format(", gradient clipped to norm {}", options.clip_norm);
  if (options.clip_value > 0) text += fmt::format(", gradient clipped to [-{0}, {0}]", options.clip_value);
  if (options.average_decay > 0) text += fmt::format(", moving average of the weights {}", options.average_decay);
  return text;
}

/// Returns "cosine, from 0.1 to 0, warm-up over 100 steps".
std::string schedule_text(const model::ScheduleOptions& options, std::int64_t reference, std::int64_t global_batch) {
  using enum model::ScheduleOptions::Kind;
  const double base = reference > 0 ? model::scale_rate(options.base, global_batch, reference) : options.base;
  std::string text = fmt::format("{}, {}", model::name_of(options.kind), base);
  if (reference > 0) text += fmt::format(" = {} x {} / {}", options.base, global_batch, reference);
  switch (options.kind) {
    case constant:
      break;
    case exponential:
      text += fmt::format(" x {} {} {}", options.decay_rate, options.staircase ? "every" : "per",
                          counted(options.decay_steps, "step"));
      break;
    case step:
      text += fmt::format(" x {} at {} {}", options.decay_rate, options.boundaries.size() == 1 ? "step" : "steps",
                          fmt::join(options.boundaries, ", "));
      break;
    case cosine:
      text += fmt::format(" to {}", options.final_rate);
      break;
    case polynomial:
      text += fmt::format(" to {}, power {}", options.final_rate, options.power);
      break;
  }
  if (options.warmup_steps > 0) text += fmt::format(", warm-up over {}", counted(options.warmup_steps, "step"));
  return text;
}

std::string loss_text(const model::NetworkOptions& network, const LossOptions& loss, double l2) {
  const std::vector<model::DeclaredLoss>& losses = model::network_kind(network).losses;
  std::string text = losses.empty() ? word_of(loss.kind) : losses_text(losses);
  if (loss.label_smoothing > 0) text += fmt::format(", label smoothing {}", loss.label_smoothing);
  if (l2 > 0) text += fmt::format(", L2 {}", l2);
  return text;
}

/// Returns "\nclass weights (…): cat 0.625, dog 2.5"; "" without weights.
std::string weights_text(const Workload& workload) {
  constexpr std::size_t kFewWeights = 20;
  const std::span<const float> classes = workload.weights.of_classes(), samples = workload.weights.of_samples();
  std::vector<std::string> parts;
  if (!samples.empty()) {
    const auto [least, greatest] = std::ranges::minmax(samples);
    parts.push_back(fmt::format("of samples {:.4g} to {:.4g}", least, greatest));
  }
  if (classes.size() > kFewWeights) {
    const auto [least, greatest] = std::ranges::minmax(classes);
    parts.push_back(fmt::format("of {} classes {:.4g} to {:.4g}", classes.size(), least, greatest));
  } else if (!classes.empty()) {
    const std::vector<std::string>& names = workload.training->info().class_names;
    std::vector<std::string> each;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      each.push_back(fmt::format("{} {:.4g}", i < names.size() ? names[i] : fmt::format("{}", i), classes[i]));
    }
    parts.push_back(fmt::format("of classes {}", fmt::join(each, ", ")));
  }
  if (parts.empty()) return "";
  return fmt::format("\nweights of the loss (mean 1 over the training samples; validation has none): {}",
                     fmt::join(parts, "; times "));
}

/// Returns "3 targets" or "2 of 3 targets": the number of scaled targets. Labels and probabilities have mean 0 and
/// deviation 1.
std::string scaled_targets_text(const io::FeatureScale& scale, bool are_channels) {
  const std::size_t all = scale.mean.size();
  std::size_t scaled = 0;
  for (std::size_t i = 0; i < all; ++i) scaled += scale.mean[i] != 0 || scale.deviation[i] != 1 ? 1 : 0;
  const std::string text = counted(all, are_channels ? "channel" : "target");
  return scaled == all ? text : fmt::format("{} of {}", scaled, text);
}

/// Returns "3 features" of a table, "2 channels" of other samples.
std::string scaled_inputs_text(const Workload& workload) {
  const auto scales = static_cast<std::int64_t>(workload.features.mean.size());
  const bool by_channel =
      workload.axes.size() == 1 && !workload.axes[0].is_row() && workload.axes[0].channels == scales;
  return counted(scales, by_channel ? "channel" : "feature");
}

/// Returns how the numbers of a sample become inputs; for a network that reads only tokens, their number.
std::string conversion_text(const Plan& plan) {
  const Workload& workload = plan.workload;
  std::int64_t tokens = 0, lengths = 0;
  for (const model::TokenRange& range : workload.network->token_ranges()) {
    (range.are_lengths ? lengths : tokens) += range.count;
  }
  if (tokens > 0 && tokens + lengths == workload.network->sample_shape().features) return counted(tokens, "token");
  const DataOptions& data = plan.settings.data;
  return fmt::format(
      "normalisation {}{}, augmentation {}", to_text(data.normalize),
      workload.features.empty() ? ""
      : !workload.features.parts.empty()
          ? fmt::format(" ({} of {} inputs, each input by its own scale)",
                        counted(workload.features.mean.size(), "feature"), workload.features.parts.size())
          : fmt::format(" ({} to mean 0, deviation 1)", scaled_inputs_text(workload)),
      to_text(data.augment));
}

std::string input_text(const Plan& plan) {
  const Workload& workload = plan.workload;
  if (workload.network->sample_shape().tokens) {
    return fmt::format("{} of text", counted(workload.network->positions(), "token"));
  }
  return conversion_text(plan) +
         (workload.targets.empty()
              ? ""
              : fmt::format("\ntargets: {} to mean 0, deviation 1; the loss is of those, errors are {}",
                            scaled_targets_text(workload.targets, !workload.training->info().field.empty()),
                            workload.targets.mean.size() > 1 ? "in standard deviations" : "in the units of the data"));
}

/// Returns "sampling: balanced, ...\n"; "" if each sample occurs once per epoch.
std::string sampling_text(const Plan& plan) {
  if (plan.settings.data.sampling == ClassSampling::uniform) return "";
  const io::DatasetInfo& info = plan.workload.training->info();
  const std::int64_t draws = info.samples / info.classes;
  std::string text = fmt::format("sampling: balanced, {}{} of each of {} in an epoch", with_commas(draws),
                                 info.samples % info.classes == 0 ? "" : fmt::format(" or {}", with_commas(draws + 1)),
                                 counted(info.classes, "class"));
  if (const std::vector<double>& counts = plan.workload.constant.counts; !counts.empty()) {
    const auto [least, greatest] = std::ranges::minmax(counts);
    text += fmt::format("; there are {:.0f} to {:.0f}", least, greatest);
  }
  return text + "\n";
}

}  // namespace

std::string format_training(const Plan& plan) {
  const auto& settings = plan.settings;
  std::string text =
      fmt::format("optimiser: {}\nlearning rate: {}\nloss: {}{}\ninput: {}\n{}", optimizer_text(settings.optimizer),
                  schedule_text(settings.schedule, settings.work.reference_batch, plan.workload.work.global_batch),
                  loss_text(settings.network, settings.loss, settings.optimizer.l2), weights_text(plan.workload),
                  input_text(plan), sampling_text(plan));
  text += format_tuning(settings.tuning, *plan.workload.network);
  std::vector<std::string> usual;
  for (const std::string& name : settings.from_network) {
    usual.push_back(fmt::format("--{} {}", name, option_text(settings, name)));
  }
  if (!usual.empty())
    text += fmt::format("defaults of {}: {}\n", model::network_kind(settings.network).name, fmt::join(usual, " "));
  return text;
}

}  // namespace lockstep::app
