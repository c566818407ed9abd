/// \file
/// The rows of TrainOptions by theme, so that other commands share them. Private to options*.cpp.
#pragma once

#include "app/options/checkpoint_choice.hpp"
#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

void add_data_options(OptionTable& table, DataOptions& options);
void add_layout_option(OptionTable& table, io::Layout& layout);
void add_verify_option(OptionTable& table, VerifyData& verify);
/// Names of datasets, of data that need not be those of the run.
void add_data_names(OptionTable& table, std::string& x, std::string& y);
void add_allow_fill(OptionTable& table, bool& allow_fill);
/// How stored numbers become inputs, of data that need not be those of the run; `normalize` counts where the user gives
/// it.
void add_input_option(OptionTable& table, Normalization& normalize);
/// What becomes of categories that a network does not know.
void add_unknown_categories_option(OptionTable& table, io::UnknownCategories& unknown);
/// A row for each option that a kind of network declares.
void add_network_options(OptionTable& table, model::NetworkOptions& options);
/// After add_network_options.
void add_loss_options(OptionTable& table, LossOptions& options);
void add_optimizer_options(OptionTable& table, model::OptimizerOptions& options);
void add_learning_rate_options(OptionTable& table, model::ScheduleOptions& options, WorkOptions& work);
void add_amount_options(OptionTable& table, WorkOptions& options);
void add_batch_options(OptionTable& table, WorkOptions& options);
/// Of a batch of any size.
void add_micro_step_options(OptionTable& table, WorkOptions& options);
/// How often the ranks agree.
void add_agree_options(OptionTable& table, AgreeOptions& options);
void add_validation_options(OptionTable& table, ValidationOptions& options);
void add_writers_option(OptionTable& table, RunOptions& options);
void add_start_options(OptionTable& table, StartOptions& options);
void add_tuning_options(OptionTable& table, TuningOptions& options);
void add_run_options(OptionTable& table, RunOptions& options);
/// The rows for a run and its --checkpoint, as commands take them that use what was trained. The table writes into it.
class CheckpointRows {
 public:
  explicit CheckpointRows(OptionTable& table);
  CheckpointRows(const CheckpointRows&) = delete;
  CheckpointRows& operator=(const CheckpointRows&) = delete;
  /// Once the command line has been read. Throws UsageError where nothing is named.
  CheckpointChoice chosen() const;

 private:
  OptionTable& table_;
  std::filesystem::path run_;
  std::string checkpoint_ = "best";
};
void add_report_options(OptionTable& table, ReportOptions& options);
void add_progress_option(OptionTable& table, std::optional<bool>& progress);
void add_deadline_options(OptionTable& table, ExecutionOptions& options);
/// NVLS, of GPUs.
void add_nvls_option(OptionTable& table, ExecutionOptions& options);
/// Where a command computes.
void add_execution_options(OptionTable& table, ExecutionOptions& options);
/// How the steps of training are carried out there; after add_execution_options.
void add_step_options(OptionTable& table, ExecutionOptions& options);

/// All of the above, as train takes them.
void add_train_options(OptionTable& table, TrainOptions& options);
/// Whether a command takes its options from a file, too.
enum class ConfigFile { none, taken };
/// The command line and the file that it names, with --config or to go on from, into a table that has them, then
/// settle(). Without `configuration_of` a checkpoint brings no options. Throws what it throws, UsageError,
/// HelpRequested.
void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file,
                        const StoredConfiguration& configuration_of = {});

/// What options.network is usually trained with, for all that the user has said nothing about; once all has been said.
void apply_network_defaults(OptionTable& table, TrainOptions& options);
/// What the user sets of the chosen network's options, with the network's own values for the rest. Throws UsageError.
void settle_network_options(const OptionTable& table, model::NetworkOptions& options);
/// The help of a command that trains or times a network: the list of all; of one that `line` names, its options and the
/// defaults that it brings.
HelpPage network_help(OptionTable& table, TrainOptions& options, const CommandLine& line, std::string_view usage,
                      std::string_view examples, bool takes_config);
/// Once all has been said: the network's defaults, what contradicts what, who gave what. Throws UsageError.
void settle(OptionTable& table, TrainOptions& options);

/// Throws UsageError where results would be written over each other.
void require_own_files(const std::filesystem::path& csv, const std::filesystem::path& json,
                       const std::filesystem::path& svg);
/// For text options that may not be empty.
std::string reject_empty(const std::string& text);

}  // namespace lockstep::app
