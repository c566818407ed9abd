/// \file
/// Networks that users describe in files. The options of such a network become rows of the table, so its file is read
/// before the command line is parsed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/options/option_table.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Reads a network from a file. Throws UsageError ("net.yaml:14: ...") if the file cannot be read or describes no
/// network.
std::shared_ptr<const model::NetworkKind> read_network_file(const std::string& file);

/// Returns the network of a stored run; nullptr for a shipped network. Throws UsageError.
std::shared_ptr<const model::NetworkKind> stored_network(const StoredRun& run);

/// A command line and the user's network that it names.
struct NamedNetwork {
  std::shared_ptr<const model::NetworkKind> source = {};  ///< nullptr: a shipped network
  std::vector<std::string> arguments;                     ///< without --model FILE if a resumed run has its own network
  std::string note = {};                                  ///< warning if such a FILE differs from the run's network
};
/// Finds --model FILE in the arguments or in the file of --config, and reads the network. A run that resumes uses the
/// network stored in its checkpoint or folder instead. Throws UsageError.
NamedNetwork find_network(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of = {});

/// Returns the network with another name of its file. Returns a shipped network unchanged.
model::NetworkOptions with_file(const model::NetworkOptions& network, const std::string& file);

/// Throws UsageError if an option of the user's file has the name of another option of the table, or if its training
/// defaults name options that a network may not set.
void require_fitting_names(const OptionTable& table, const model::NetworkKind& kind);

/// Returns the value of `model` in a configuration; "" if there is none.
std::string model_in(const std::string& configuration);
/// Returns the configuration without the options of its network `kind` that `table`, built for another network, lacks.
std::string without_options_of(const model::NetworkKind& kind, const std::string& configuration,
                               const OptionTable& table);

}  // namespace lockstep::app
