/// \file
/// The loss of a job, from its options and its data; and the losses that a network's file names: which targets and
/// which columns of the output each one reads.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// The loss that stands for all that read the outputs alike: as numbers, as logits of classes, of labels, or of
/// probabilities. Those of one meaning may judge the same outputs, and have one metric.
model::LossKind meaning_of(model::LossKind loss) noexcept;

/// The loss that says what the targets are: the first one of numbers, else of classes, else the first one. Throws
/// UsageError for losses that want targets of several kinds, or if `option`, the value of --loss, is another one.
model::LossKind main_loss(std::span<const model::DeclaredLoss> losses, std::optional<model::LossKind> option);

/// The loss that options, data and network ask for: main_loss() of several, `losses`. Throws UsageError if they do not
/// fit.
model::LossKind loss_kind(const LossOptions& options, std::span<const model::DeclaredLoss> losses,
                          const io::DatasetInfo& info);

/// Several losses, and the name of each: "dice", or with several targets "flags huber".
struct NetworkLosses {
  std::vector<model::LossTerm> terms;
  std::vector<std::string> names;
};

/// main: main_loss(). Throws UsageError for an output or a target that does not exist, for columns of the output that
/// are not those of the target, for a target without a loss, and for a loss that is there twice. Data without targets
/// (of predictions) have any.
NetworkLosses losses_for(std::span<const model::DeclaredLoss> losses, model::LossKind main, const io::DatasetInfo& info,
                         const model::Network& network);

/// Data without targets, with those that the network has learnt: names are of all their numbers (names_of_targets()).
io::DatasetInfo with_targets(const io::DatasetInfo& info, std::span<const std::string> names,
                             std::span<const model::DeclaredLoss> losses);

/// The data, whose class labels beside numbers become rows with a 1 for the class; path: for messages.
std::unique_ptr<io::Dataset> with_class_targets(std::unique_ptr<io::Dataset> data,
                                                std::span<const model::DeclaredLoss> losses,
                                                const std::filesystem::path& path);

/// The losses in words: "softmax-cross-entropy + 0.5 dice".
std::string losses_text(std::span<const model::DeclaredLoss> losses);

}  // namespace lockstep::app
