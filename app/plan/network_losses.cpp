#include "app/plan/network_losses.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/choices.hpp"
#include "app/options/usage_error.hpp"
#include "io/datasets/class_targets_dataset.hpp"

namespace lockstep::app {

namespace {

using model::DeclaredLoss;
using model::LossKind;
using Columns = model::Network::Columns;

struct Target {
  std::string name;
  Columns columns;
};

/// Returns the targets of the data: their fields, or the label columns of a table. Returns all numbers as one target if
/// no loss names a target.
std::vector<Target> targets_of(std::span<const DeclaredLoss> losses, const io::DatasetInfo& info,
                               const model::Network& network) {
  const std::int64_t outputs = network.sample_shape().outputs;
  std::vector<Target> targets;
  const bool are_named = std::ranges::any_of(losses, [](const DeclaredLoss& loss) { return !loss.target.empty(); });
  for (const io::FieldRange& target : info.targets) {
    targets.push_back({target.field.name, {.first = target.first, .count = target.field.elements()}});
  }
  const bool has_columns = targets.empty() && info.table && !info.labels_are_classes && !info.windows &&
                           std::ssize(info.table->labels) == outputs;
  for (std::int64_t i = 0; has_columns && i < outputs; ++i) {
    targets.push_back({info.table->labels[static_cast<std::size_t>(i)], {.first = i, .count = 1}});
  }
  if (!are_named || targets.empty()) targets.assign(1, {info.y.name, {.first = 0, .count = outputs}});
  return targets;
}

/// True if the only target has no name of its own: packed data call a single target y.
bool is_unnamed(const std::vector<Target>& targets) {
  return targets.size() == 1 && (targets[0].name.empty() || targets[0].name == "y");
}

const Target& target_of(const DeclaredLoss& loss, const std::vector<Target>& targets) {
  if (targets.size() == 1 && (loss.target.empty() || is_unnamed(targets))) return targets[0];
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(target.name);
  const auto found = std::ranges::find(names, loss.target);
  if (found != names.end()) return targets[static_cast<std::size_t>(found - names.begin())];
  throw UsageError(loss.target.empty()
                       ? fmt::format("{}: losses: {} says not which target it judges: `with:` one of {}", loss.place,
                                     loss.word, fmt::join(names, ", "))
                       : fmt::format("{}: losses: the data have no target {}, but {}", loss.place, loss.target,
                                     fmt::join(names, ", ")));
}

void require_columns(const DeclaredLoss& loss, const Target& target, const model::Network& network) {
  if (loss.of.empty()) return;
  const std::optional<Columns> columns = network.columns_of(loss.of);
  if (!columns) {
    throw UsageError(
        fmt::format("{}: losses: {} is no output of the network: give the name of its last layer, or of a "
                    "value that its last `concatenate` joins",
                    loss.place, loss.of));
  }
  const std::int64_t outputs = network.sample_shape().outputs;
  if (columns->first == target.columns.first && columns->count == target.columns.count) return;
  const auto text = [outputs](const Columns& range) {
    return fmt::format("{} to {} of {}", range.first + 1, range.first + range.count, outputs);
  };
  throw UsageError(fmt::format(
      "{}: losses: {} is columns {} of the output, and the target{}{} columns {}: --y names the "
      "targets in the order of the outputs, each as wide as its own",
      loss.place, loss.of, text(*columns), target.name.empty() ? "" : " ", target.name, text(target.columns)));
}

/// Throws UsageError if losses use several names for a single target.
void require_targets_for_names(std::span<const DeclaredLoss> losses, const std::vector<Target>& targets,
                               bool are_windows) {
  if (targets.size() > 1) return;
  const DeclaredLoss* named = nullptr;
  for (const DeclaredLoss& loss : losses) {
    if (loss.target.empty()) continue;
    if (named == nullptr) named = &loss;
    if (loss.target == named->target) continue;
    throw UsageError(fmt::format("{}: losses: {} judges {} and {} judges {}, and the data have one target: {}",
                                 loss.place, named->word, named->target, loss.word, loss.target,
                                 are_windows
                                     ? "with --window all that is forecast is judged together: leave `with:` out"
                                     : "--y names several"));
  }
}

/// Sets the shares of the losses in the metrics. The metric is that of the main loss; for numbers it is the mean over
/// all columns of numbers. The accuracy beside numbers is the mean over the targets with classes.
void share_metric(LossKind main, std::vector<model::LossTerm>& terms) {
  std::vector<model::LossTerm*> counted;
  double columns = 0;
  for (model::LossTerm& term : terms) {
    const bool fits = term.kind == main || (model::is_of_numbers(main) && model::is_of_numbers(term.kind));
    if (!fits || std::ranges::any_of(counted, [&](const auto* other) { return other->first == term.first; })) continue;
    counted.push_back(&term);
    columns += static_cast<double>(term.columns);
  }
  for (model::LossTerm* term : counted) term->share.metric = static_cast<double>(term->columns) / columns;
  if (!model::is_of_numbers(main)) return;
  std::vector<model::LossTerm*> chosen;
  for (model::LossTerm& term : terms) {
    if (model::chooses_class(term.kind)) chosen.push_back(&term);
  }
  for (model::LossTerm* term : chosen) term->share.accuracy = 1 / static_cast<double>(chosen.size());
}

/// Throws UsageError for a loss of labels or classes if the data hold fields.
void require_numbers_of_fields(const DeclaredLoss& loss, const io::DatasetInfo& info) {
  if (info.field.empty() || model::is_of_numbers(loss.kind)) return;
  throw UsageError(
      fmt::format("{}: losses: {} judges labels or classes, and the data hold fields, numbers at each position: leave "
                  "it out",
                  loss.place, loss.word));
}

/// Returns the loss that options and data request, for a network that declares none.
LossKind fitting_loss(const LossOptions& options, const io::DatasetInfo& info) {
  using enum model::LossKind;
  const bool classes = info.labels_are_classes;
  if (options.kind == softmax_cross_entropy && !classes) {
    throw UsageError("--loss softmax-cross-entropy needs class labels, and the data holds numbers to predict");
  }
  if (options.kind && model::is_of_numbers(*options.kind) && classes) {
    throw UsageError(
        fmt::format("--loss {} needs numbers to predict, and the data holds class labels; pack it with --regression",
                    word_of(options.kind)));
  }
  if (options.kind == binary_cross_entropy && !info.targets_are_binary) {
    throw UsageError(fmt::format("--loss binary-cross-entropy needs labels of 0 and 1, and the data holds {}",
                                 classes ? "classes" : "other numbers"));
  }
  if (options.kind == soft_cross_entropy && (classes || info.tokens || info.y.elements() < 2)) {
    throw UsageError(fmt::format(
        "--loss soft-cross-entropy needs a probability for each of two classes or more, and the data hold {}",
        info.tokens ? "text"
        : classes   ? "class labels: --loss softmax-cross-entropy learns them"
                    : "one number for each sample"));
  }
  if (options.kind == soft_cross_entropy && !info.field.empty()) {
    throw UsageError(
        "--loss soft-cross-entropy needs probabilities of the classes of a sample, and the data hold fields: masks "
        "hold "
        "a class for each position");
  }
  if (options.kind == soft_dice) {
    if (!info.has_masks()) {
      throw UsageError("--loss dice needs masks, a class for each position of a sample, and the data hold none");
    }
    if (options.class_weights.any() || options.label_smoothing > 0) {
      throw UsageError(
          fmt::format("--{} is for cross-entropy, and --loss dice counts each class of a sample alike: "
                      "leave it out",
                      options.class_weights.any() ? "class-weight" : "label-smoothing"));
    }
  }
  if (options.kind) return *options.kind;
  if (classes) return softmax_cross_entropy;
  return info.targets_are_binary && info.y.elements() > 1 ? binary_cross_entropy : mean_squared_error;
}

}  // namespace

LossKind meaning_of(LossKind loss) noexcept {
  if (model::is_of_numbers(loss)) return LossKind::mean_squared_error;
  return model::takes_classes(loss) ? LossKind::softmax_cross_entropy : loss;
}

LossKind main_loss(std::span<const DeclaredLoss> losses, std::optional<LossKind> option) {
  const auto first_of = [&](auto is) {
    return std::ranges::find_if(losses, [&](const DeclaredLoss& loss) { return is(loss.kind); });
  };
  const auto other = [&](const DeclaredLoss& one) {
    return std::ranges::find_if(losses, [&](const DeclaredLoss& loss) {
      return model::takes_classes(loss.kind) != model::takes_classes(one.kind);
    });
  };
  if (const auto found = other(losses[0]); found != losses.end()) {
    throw UsageError(
        fmt::format("{}: losses: {} wants classes and {} numbers: `classes: N` of a loss says how many "
                    "classes a target beside numbers has",
                    found->place, model::takes_classes(found->kind) ? found->word : losses[0].word,
                    model::takes_classes(found->kind) ? losses[0].word : found->word));
  }
  auto main = first_of(model::is_of_numbers);
  if (main == losses.end()) main = first_of([](LossKind kind) { return kind == LossKind::softmax_cross_entropy; });
  if (main == losses.end()) main = losses.begin();
  if (option && *option != main->kind) {
    throw UsageError(fmt::format("--loss {}: {} names its losses itself: leave --loss out", word_of(option),
                                 losses[0].place.substr(0, losses[0].place.rfind(':'))));
  }
  return main->kind;
}

LossKind loss_kind(const LossOptions& options, std::span<const DeclaredLoss> losses, const io::DatasetInfo& info) {
  if (losses.empty()) return fitting_loss(options, info);
  const LossKind main = main_loss(losses, options.kind);
  for (const DeclaredLoss& loss : losses) {
    LossOptions one = options;
    one.kind = loss.kind;
    require_numbers_of_fields(loss, info);
    if (loss.classes > 0) continue;  // one of several targets, which losses_for() checks
    // The data do not record which of several targets are 0 and 1, so require_targets() checks them. Class weights and
    // label smoothing belong to the other losses.
    if (loss.kind == LossKind::binary_cross_entropy && !info.labels_are_classes) continue;
    if (main != LossKind::soft_dice) one.class_weights = {}, one.label_smoothing = 0;
    try {
      fitting_loss(one, info);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: losses: {}", loss.place, error.what()));
    }
  }
  return main;
}

NetworkLosses losses_for(std::span<const DeclaredLoss> losses, LossKind main, const io::DatasetInfo& info,
                         const model::Network& network) {
  NetworkLosses result;
  if (losses.empty()) return result;
  const bool has_targets = !info.y.name.empty();
  const std::vector<Target> targets = targets_of(losses, info, network);
  require_targets_for_names(losses, targets, info.windows.has_value());
  for (const DeclaredLoss& loss : losses) {
    if (has_targets && loss.ignored && info.ignored_label != loss.ignored) {
      throw UsageError(
          fmt::format("{}: losses: {} ignores the label {}, and the data {}: --ignore-label says it once, "
                      "for `pack`, or for `train` with files that are not packed",
                      loss.place, loss.word, *loss.ignored,
                      info.ignored_label ? fmt::format("have {} for that", *info.ignored_label)
                                         : std::string("know of no such label")));
    }
    const Target& target = target_of(loss, targets);
    if (has_targets && loss.classes > 0 && target.columns.count != loss.classes) {
      throw UsageError(
          fmt::format("{}: losses: {} is no data set of class labels beside others: --y names several data sets, "
                      "one for each target",
                      loss.place, loss.target));
    }
    if (has_targets) require_columns(loss, target, network);
    result.terms.push_back({.kind = loss.kind,
                            .first = target.columns.first,
                            .columns = target.columns.count,
                            .share = {.loss = loss.weight, .metric = 0}});
    result.names.push_back(targets.size() == 1 ? loss.word : fmt::format("{} {}", target.name, loss.word));
    if (std::ranges::count(result.names, result.names.back()) > 1) {
      throw UsageError(
          fmt::format("{}: losses: {} is there twice: give it one weight", loss.place, result.names.back()));
    }
    if (loss.kind == LossKind::soft_cross_entropy && target.columns.count < 2) {
      throw UsageError(
          fmt::format("{}: losses: soft-cross-entropy needs a probability for each of two classes or more, "
                      "and {} has one number",
                      loss.place, target.name));
    }
    const auto is_beside = [&](const model::LossTerm& term) {
      return term.first != target.columns.first && !model::is_of_numbers(term.kind) &&
             !model::is_of_numbers(loss.kind) && meaning_of(term.kind) != meaning_of(loss.kind);
    };
    if (const auto found = std::ranges::find_if(result.terms, is_beside); found != result.terms.end()) {
      throw UsageError(
          fmt::format("{}: losses: {} and {} judge targets of two kinds, of which a sample has one, and "
                      "numbers beside it: leave one of them out",
                      loss.place, word_of(std::optional(found->kind)), loss.word));
    }
    const auto is_other = [&](const model::LossTerm& term) {
      return term.first == target.columns.first && meaning_of(term.kind) != meaning_of(loss.kind);
    };
    if (const auto found = std::ranges::find_if(result.terms, is_other); found != result.terms.end()) {
      throw UsageError(
          fmt::format("{}: losses: {} and {} judge one target, and the outputs mean one thing or the other", loss.place,
                      word_of(std::optional(found->kind)), loss.word));
    }
    if (main == LossKind::soft_cross_entropy && targets.size() > 1) {
      throw UsageError(
          fmt::format("{}: losses: soft-cross-entropy judges the only target, or one beside numbers that "
                      "another loss judges, and the data have {}",
                      loss.place, targets.size()));
    }
  }
  for (const Target& target : targets) {
    const auto is_of = [&](const model::LossTerm& term) { return term.first == target.columns.first; };
    if (has_targets && std::ranges::none_of(result.terms, is_of)) {
      throw UsageError(fmt::format("{}: losses: no loss judges the target {}: add one, or name the targets with --y",
                                   losses[0].place, target.name));
    }
  }
  share_metric(main, result.terms);
  return result;
}

io::DatasetInfo with_targets(const io::DatasetInfo& info, std::span<const std::string> names,
                             std::span<const DeclaredLoss> losses) {
  io::DatasetInfo known = info;
  for (std::size_t i = 0; i < names.size();) {
    const auto is_of = [&](const std::string& target, std::size_t at) {
      return names[at] == target || names[at] == fmt::format("{}_{}", target, at - i);
    };
    const auto loss = std::ranges::find_if(
        losses, [&](const DeclaredLoss& each) { return !each.target.empty() && is_of(each.target, i); });
    if (loss == losses.end()) return info;
    std::size_t end = i + 1;
    while (names[i] != loss->target && end < names.size() && is_of(loss->target, end)) ++end;
    io::FieldRange target{.field = {}, .first = static_cast<std::int64_t>(i)};
    target.field.name = loss->target;
    if (names[i] != loss->target) target.field.sample_shape = {static_cast<std::int64_t>(end - i)};
    known.targets.push_back(std::move(target));
    i = end;
  }
  if (!known.targets.empty()) known.y.name = "y";
  return known;
}

std::unique_ptr<io::Dataset> with_class_targets(std::unique_ptr<io::Dataset> data, std::span<const DeclaredLoss> losses,
                                                const std::filesystem::path& path) {
  std::vector<io::ClassTarget> targets;
  for (const DeclaredLoss& loss : losses) {
    if (loss.classes > 0) targets.push_back({.name = loss.target, .classes = loss.classes});
    if (loss.classes > 0) require_numbers_of_fields(loss, data->info());
  }
  if (targets.empty() || data->info().targets.empty()) return data;
  return std::make_unique<io::ClassTargetsDataset>(std::move(data), targets, path);
}

std::string losses_text(std::span<const DeclaredLoss> losses) {
  std::string text;
  for (const DeclaredLoss& loss : losses) {
    text += fmt::format("{}{}{}{}", text.empty() ? "" : " + ", loss.weight == 1 ? "" : fmt::format("{} ", loss.weight),
                        loss.word, loss.target.empty() ? "" : " of " + loss.target);
  }
  return text;
}

}  // namespace lockstep::app
