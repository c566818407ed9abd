/// \file
/// The rows of TrainOptions by theme, so that other commands share them. Private to the readers of options.
#pragma once

#include "app/options/checkpoint_choice.hpp"
#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

void add_data_options(OptionTable& table, DataOptions& options);
void add_layout_option(OptionTable& table, io::Layouts& layout);
void add_verify_option(OptionTable& table, VerifyData& verify);
/// Names of datasets, for data that need not be the run's.
void add_data_names(OptionTable& table, std::string& x, std::string& y);
void add_allow_fill(OptionTable& table, bool& allow_fill);
void add_ignore_label(OptionTable& table, std::optional<std::int64_t>& label);
/// Conversion of stored numbers to inputs, for data that need not be the run's; `normalize` counts only if given.
void add_input_option(OptionTable& table, Normalization& normalize);
/// Treatment of categories that a network does not know.
void add_unknown_categories_option(OptionTable& table, io::UnknownCategories& unknown);
/// A row for each option that a kind of network declares, and for those of `options.source`.
void add_network_options(OptionTable& table, model::NetworkOptions& options);
/// The rows of a user's network alone, for commands that know no other.
void add_options_of_file(OptionTable& table, model::NetworkOptions& options);
/// "HxWxC".
Option& add_image_option(OptionTable& table, std::optional<model::ImageShape>& image, std::string help);
/// Call after add_network_options().
void add_loss_options(OptionTable& table, LossOptions& options);
void add_optimizer_options(OptionTable& table, model::OptimizerOptions& options);
void add_learning_rate_options(OptionTable& table, model::ScheduleOptions& options, WorkOptions& work);
void add_amount_options(OptionTable& table, WorkOptions& options);
void add_batch_options(OptionTable& table, WorkOptions& options);
/// Options of micro-steps, without the size of the batch.
void add_micro_step_options(OptionTable& table, WorkOptions& options);
/// Mode of agreement.
void add_agree_options(OptionTable& table, AgreeOptions& options);
void add_validation_options(OptionTable& table, ValidationOptions& options);
void add_writers_option(OptionTable& table, RunOptions& options);
void add_start_options(OptionTable& table, StartOptions& options);
void add_tuning_options(OptionTable& table, TuningOptions& options);
void add_run_options(OptionTable& table, RunOptions& options);
/// The rows for a run and its --checkpoint, for commands that use a trained network. The table writes into the object.
class CheckpointRows {
 public:
  explicit CheckpointRows(OptionTable& table);
  CheckpointRows(const CheckpointRows&) = delete;
  CheckpointRows& operator=(const CheckpointRows&) = delete;
  /// Call after the command line has been read. Throws UsageError if nothing is named.
  CheckpointChoice chosen() const;

 private:
  OptionTable& table_;
  std::filesystem::path run_;
  std::string checkpoint_ = "best";
};
void add_report_options(OptionTable& table, ReportOptions& options);
void add_progress_option(OptionTable& table, std::optional<bool>& progress);
void add_deadline_options(OptionTable& table, ExecutionOptions& options);
/// NVLS, for GPUs.
void add_nvls_option(OptionTable& table, ExecutionOptions& options);
/// Device and threads of a command.
void add_execution_options(OptionTable& table, ExecutionOptions& options);
/// Execution of training steps; call after add_execution_options().
void add_step_options(OptionTable& table, ExecutionOptions& options);

/// All of the above in train's order.
void add_train_options(OptionTable& table, TrainOptions& options);
/// The table of `lockstep train`, whose rows write into `options`. It takes their values as defaults when it is built.
OptionTable train_table(TrainOptions& options);

/// Applies the network's usual training options unless the user has given others; call after all options are read.
/// Returns their names.
std::vector<std::string> apply_network_defaults(OptionTable& table, const model::NetworkOptions& network);
/// Combines the user's options of the chosen network with the network's own defaults. Throws UsageError.
void settle_network_options(const OptionTable& table, model::NetworkOptions& options);
/// The help of a command that trains or times a network: the list of all networks, or, for one that `line` names, its
/// options and its defaults.
HelpPage network_help(OptionTable& table, const model::NetworkOptions& network, const CommandLine& line,
                      std::string_view usage, std::string_view examples, bool takes_config);
/// Applies the network's defaults, checks contradictions and records sources; call after all options are read. Throws
/// UsageError.
void settle(OptionTable& table, TrainOptions& options);

/// Throws UsageError if two results would go to the same file.
void require_own_files(const std::filesystem::path& csv, const std::filesystem::path& json,
                       const std::filesystem::path& svg);
/// Check for text options that may not be empty.
std::string reject_empty(const std::string& text);

}  // namespace lockstep::app
