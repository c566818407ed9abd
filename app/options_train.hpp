/// \file
/// The rows of TrainOptions by theme, so that other commands share them. Private to options*.cpp.
#pragma once

#include "app/option_table.hpp"

namespace lockstep::app {

void add_data_options(OptionTable& table, TrainOptions& options);
void add_network_options(OptionTable& table, TrainOptions& options);
void add_optimizer_options(OptionTable& table, TrainOptions& options);
void add_learning_rate_options(OptionTable& table, TrainOptions& options);
void add_amount_options(OptionTable& table, TrainOptions& options);
void add_batch_options(OptionTable& table, TrainOptions& options);
void add_validation_options(OptionTable& table, TrainOptions& options);
void add_run_options(OptionTable& table, TrainOptions& options);
void add_report_options(OptionTable& table, TrainOptions& options);
/// Where a command computes.
void add_execution_options(OptionTable& table, ExecutionOptions& options);
/// How the steps of training are carried out there; after add_execution_options.
void add_step_options(OptionTable& table, TrainOptions& options);

/// All of the above, as train takes them.
void add_train_options(OptionTable& table, TrainOptions& options);
/// The command line and the file that it names into a table that has them. Throws UsageError, HelpRequested.
void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples);

/// What options.model is usually trained with, for all that the user has said nothing about; once all has been said.
void apply_network_defaults(const TrainOptions& options, OptionTable& table);

/// For text options that may not be empty.
std::string reject_empty(const std::string& text);

}  // namespace lockstep::app
