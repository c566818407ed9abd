/// \file
/// The command line of `lockstep train`, and of the commands that take its options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/options/stored_options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {

/// Says whether a command takes --config.
enum class ConfigFile { none, taken };
/// Reads the command line into `table`, which is bound to `options`, together with the file of --config and the stored
/// options of the run that it resumes; then calls settle(). `configuration_of` reads the options of a checkpoint file;
/// without it, --resume FILE takes no options from the file. Throws UsageError, HelpRequested and the exceptions of
/// `configuration_of`.
void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file,
                        const StoredConfiguration& configuration_of = {});

/// Parses argv without the program name and the subcommand. Reads the file that --config names, and calls
/// `configuration_of` for the checkpoint that --resume names. Throws UsageError or HelpRequested.
TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of);
/// The same, without options from a checkpoint file.
TrainOptions parse_train(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
