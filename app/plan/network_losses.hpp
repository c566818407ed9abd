/// \file
/// Chooses the loss of a job from its options and data. For several losses of a network file, finds the targets and
/// output columns of each one.
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

/// Returns the representative of all losses that interpret outputs in the same way: as numbers, or as logits of
/// classes, of labels or of probabilities. Losses with the same meaning may use the same outputs, and share a metric.
model::LossKind meaning_of(model::LossKind loss) noexcept;

/// Returns the loss that determines the kind of the targets: the first loss for numbers, otherwise softmax
/// cross-entropy, otherwise the first loss. Throws UsageError if some losses need classes and others numbers, or if
/// `option`, the value of --loss, is another loss.
model::LossKind main_loss(std::span<const model::DeclaredLoss> losses, std::optional<model::LossKind> option);

/// Returns the loss that options, data and network request: main_loss() if the network declares `losses`. Throws
/// UsageError if they do not fit.
model::LossKind loss_kind(const LossOptions& options, std::span<const model::DeclaredLoss> losses,
                          const io::DatasetInfo& info);

/// Several losses with their names: "dice", or with several targets "flags huber".
struct NetworkLosses {
  std::vector<model::LossTerm> terms;
  std::vector<std::string> names;
};

/// Finds the targets and output columns of `losses`. `main`: main_loss(). Throws UsageError for an output or target
/// that does not exist, for output columns that differ from those of the target, for a target without a loss, and for a
/// loss that occurs twice. Data without targets (for predictions) fit any losses.
NetworkLosses losses_for(std::span<const model::DeclaredLoss> losses, model::LossKind main, const io::DatasetInfo& info,
                         const model::Network& network);

/// Adds to data without targets the targets that the network has learnt. `names`: a name for each number
/// (names_of_targets()).
io::DatasetInfo with_targets(const io::DatasetInfo& info, std::span<const std::string> names,
                             std::span<const model::DeclaredLoss> losses);

/// Returns `data` with one-hot rows in place of class labels beside numbers. `path` appears in messages.
std::unique_ptr<io::Dataset> with_class_targets(std::unique_ptr<io::Dataset> data,
                                                std::span<const model::DeclaredLoss> losses,
                                                const std::filesystem::path& path);

/// Returns the losses as text: "softmax-cross-entropy + 0.5 dice".
std::string losses_text(std::span<const model::DeclaredLoss> losses);

}  // namespace lockstep::app
