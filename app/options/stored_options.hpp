/// \file
/// The options that a run or a checkpoint holds, and how a run goes on with them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::io {
struct TrainingRecord;
}

namespace lockstep::app {

/// The network of a user's file, in the folder of a run.
inline constexpr const char* kNetworkFile = "network.yaml";

/// The options that a run was trained with, as an INI file, and the text of its network (YAML) if a user's file
/// describes it.
struct StoredRun {
  std::string configuration;
  std::string network = {};
};
/// Returns them for a checkpoint. Throws UsageError if it cannot.
using StoredConfiguration = std::function<StoredRun(const std::filesystem::path& checkpoint)>;
/// A TrainOptions from the configuration text stored in a run or a checkpoint; `network`: the text of its network, if a
/// user's file describes it. Throws UsageError.
TrainOptions train_options_from_ini(const std::string& ini, const std::string& network = {});
/// The options that a checkpoint was trained with. Throws UsageError.
TrainOptions train_options_of(const io::TrainingRecord& record);

/// Text for --config that repeats the run from any folder, for config.ini and every checkpoint: absolute paths, no
/// options of a single launch.
std::string stored_configuration(const TrainOptions& settings);
/// Options of `settings` that differ in `before`, a configuration stored earlier: "name = value" with the present
/// values. Paths differ if they name different files, in whatever spelling. Throws UsageError on text that is no
/// configuration.
std::vector<std::string> changed_options(const StoredRun& before, const TrainOptions& settings);

/// The options of a run that resumes a checkpoint with this configuration: options that the user of this launch has not
/// given come from the checkpoint, including automatic decisions. parse_train() has done so already if it found the
/// run's configuration. Execution stays as this launch has begun it. Throws UsageError.
TrainOptions going_on(const TrainOptions& given, const StoredRun& before);
/// The options of a run that begins with the weights of such a checkpoint: network and input normalisation come from
/// the checkpoint unless the user gives others. Throws UsageError.
TrainOptions with_network_of(const TrainOptions& given, const StoredRun& before);

/// The options of the run that is resumed, or that provides the initial weights.
struct EarlierOptions {
  std::string configuration;
  std::string name;  ///< name of the configuration in messages
  OptionSource source = OptionSource::checkpoint;
  std::filesystem::path run = {};  ///< folder of the run that is resumed; "": a new run begins
  std::string network = {};        ///< text of its network, if a user's file describes it
};
/// The one rule of every run that goes on: what `give` does not assign is as it was before. A value that leaves a
/// decision open (auto) does not undo it. Validation data go with the data that they were beside. Throws UsageError.
void go_on_with(OptionTable& table, const EarlierOptions& before, const std::function<void()>& give);

}  // namespace lockstep::app
