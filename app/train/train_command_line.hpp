/// \file
/// The command line of `lockstep train`, and of the commands that take its options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/options/stored_options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {

/// Support of --config by a command.
enum class ConfigFile { none, taken };
/// Reads the command line and the file that it names (by --config or to resume from) into a table that has these
/// options, then calls settle(). Without `configuration_of` a checkpoint brings no options. Throws the exceptions of
/// `configuration_of`, UsageError and HelpRequested.
void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file,
                        const StoredConfiguration& configuration_of = {});

/// Parses argv without the program name and the subcommand. Reads the file that --config names, and the configuration
/// of the checkpoint that --resume names through `configuration_of`. Throws UsageError or HelpRequested.
TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of);
/// The same without options from a checkpoint.
TrainOptions parse_train(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
