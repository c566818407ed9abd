/// \file
/// The networks of users' files. Their options become rows of the table, so a file is read before the command line is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/options/option_table.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Throws UsageError for a file that cannot be read or describes no network, "net.yaml:14: ...".
std::shared_ptr<const model::NetworkKind> read_network_file(const std::string& file);

/// The network of a stored run; nullptr: a shipped one. Throws UsageError.
std::shared_ptr<const model::NetworkKind> stored_network(const StoredRun& run);

/// A command line, and the network of the file that it names.
struct NamedNetwork {
  std::shared_ptr<const model::NetworkKind> source = {};  ///< nullptr: a shipped network
  std::vector<std::string> arguments;  ///< without --model FILE, if a resumed run has brought its network
  std::string note = {};               ///< such a file differs from the run's network
};
/// Looks for --model FILE among the arguments and in the file of --config; a run that is resumed has its own text.
/// Throws UsageError.
NamedNetwork find_network(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of = {});

/// The same network under another name of its file; a shipped network as it is.
model::NetworkOptions with_file(const model::NetworkOptions& network, const std::string& file);

/// Throws UsageError if options of the user's file have names of other options, or if its training defaults are none.
void require_fitting_names(const OptionTable& table, const model::NetworkKind& kind);

/// The value of `model` in a configuration; "" if there is none.
std::string model_in(const std::string& configuration);
/// The configuration without options that only its network has, for a table with the rows of another network.
std::string without_options_of(const model::NetworkKind& kind, const std::string& configuration,
                               const OptionTable& table);

}  // namespace lockstep::app
