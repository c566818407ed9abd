/// \file
/// The rows of TrainOptions by subject, so that other commands can share them. Private to the code that reads options.
#pragma once

#include "app/options/checkpoint_choice.hpp"
#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

void add_data_options(OptionTable& table, DataOptions& options);
void add_layout_option(OptionTable& table, io::Layouts& layout);
void add_verify_option(OptionTable& table, VerifyData& verify);
/// Adds the names of datasets, for data that may differ from those of the run.
void add_data_names(OptionTable& table, std::string& x, std::string& y);
void add_allow_fill(OptionTable& table, bool& allow_fill);
void add_ignore_label(OptionTable& table, std::optional<std::int64_t>& label);
/// Adds the conversion of stored numbers to inputs, for data that may differ from those of the run. `normalize` counts
/// only if the user gives it.
void add_input_option(OptionTable& table, Normalization& normalize);
/// Adds the treatment of categories that were not in the training data.
void add_unknown_categories_option(OptionTable& table, io::UnknownCategories& unknown);
/// Adds a row for each option of any kind of network and of the user's network `options.source`.
void add_network_options(OptionTable& table, model::NetworkOptions& options);
/// Adds only the rows of a user's network, for commands that have no other network options.
void add_options_of_file(OptionTable& table, model::NetworkOptions& options);
/// Adds --image, whose value is "HxWxC".
Option& add_image_option(OptionTable& table, std::optional<model::ImageShape>& image, std::string help);
/// Call after add_network_options().
void add_loss_options(OptionTable& table, LossOptions& options);
void add_optimizer_options(OptionTable& table, model::OptimizerOptions& options);
void add_learning_rate_options(OptionTable& table, model::ScheduleOptions& options, WorkOptions& work);
void add_amount_options(OptionTable& table, WorkOptions& options);
void add_batch_options(OptionTable& table, WorkOptions& options);
/// Adds the options of micro-steps, without the size of the batch.
void add_micro_step_options(OptionTable& table, WorkOptions& options);
void add_agree_options(OptionTable& table, AgreeOptions& options);
void add_validation_options(OptionTable& table, ValidationOptions& options);
void add_writers_option(OptionTable& table, RunOptions& options);
void add_start_options(OptionTable& table, StartOptions& options);
void add_tuning_options(OptionTable& table, TuningOptions& options);
void add_run_options(OptionTable& table, RunOptions& options);
/// The rows for a run and its --checkpoint, for commands that use a trained network. The table writes into this object,
/// which must outlive it.
class CheckpointRows {
 public:
  explicit CheckpointRows(OptionTable& table);
  CheckpointRows(const CheckpointRows&) = delete;
  CheckpointRows& operator=(const CheckpointRows&) = delete;
  /// Returns the user's choice. Call after the command line has been read. Throws UsageError if nothing is named.
  CheckpointChoice chosen() const;

 private:
  OptionTable& table_;
  std::filesystem::path run_;
  std::string checkpoint_ = "best";
};
void add_report_options(OptionTable& table, ReportOptions& options);
void add_progress_option(OptionTable& table, std::optional<bool>& progress);
void add_deadline_options(OptionTable& table, ExecutionOptions& options);
void add_nvls_option(OptionTable& table, ExecutionOptions& options);
/// Adds the device and threads of a command.
void add_execution_options(OptionTable& table, ExecutionOptions& options);
/// Adds options for the execution of training steps. Call after add_execution_options().
void add_step_options(OptionTable& table, ExecutionOptions& options);

/// Adds all rows of `lockstep train`, in the order of its help.
void add_train_options(OptionTable& table, TrainOptions& options);
/// Returns the table of `lockstep train`, whose rows write into `options`. The present values of `options` become the
/// defaults.
OptionTable train_table(TrainOptions& options);

/// Assigns the network's default training options, except those that the user has given. Returns the names of the
/// options assigned. Call after all options are read.
std::vector<std::string> apply_network_defaults(OptionTable& table, const model::NetworkOptions& network);
/// Checks the user's options of the chosen network, and adds the network's defaults. Throws UsageError.
void settle_network_options(const OptionTable& table, model::NetworkOptions& options);
/// Returns the help of a command that trains or times a network. It lists all networks, or the options and defaults of
/// the network that `line` names.
HelpPage network_help(OptionTable& table, const model::NetworkOptions& network, const CommandLine& line,
                      std::string_view usage, std::string_view examples, bool takes_config);
/// Applies the network's defaults, checks contradictions and records sources; call after all options are read. Throws
/// UsageError.
void settle(OptionTable& table, TrainOptions& options);

/// Throws UsageError if two results would go to the same file.
void require_own_files(const std::filesystem::path& csv, const std::filesystem::path& json,
                       const std::filesystem::path& svg);
/// Check for text options that must not be empty. Returns "", or the error.
std::string reject_empty(const std::string& text);

}  // namespace lockstep::app
