/// \file
/// The options stored in a run or a checkpoint, and the options of a run that continues from them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::io {
struct TrainingRecord;
}

namespace lockstep::app {

/// Name of the copy of a user's network in the folder of a run.
inline constexpr const char* kNetworkFile = "network.yaml";

/// The options that a run was trained with, as an INI file, and the text of its network (YAML) if a user's file
/// describes it.
struct StoredRun {
  std::string configuration;
  std::string network = {};
};
/// Reads the stored options of a checkpoint. Throws UsageError on failure.
using StoredConfiguration = std::function<StoredRun(const std::filesystem::path& checkpoint)>;
/// Parses the configuration text stored in a run or a checkpoint. `network`: the text of its network, if a user's file
/// describes it. Throws UsageError.
TrainOptions train_options_from_ini(const std::string& ini, const std::string& network = {});
/// Returns the options that a checkpoint was trained with. Throws UsageError.
TrainOptions train_options_of(const io::TrainingRecord& record);

/// The options of a training that inference with its network depends on: evaluation, prediction, text, export.
struct InferenceOptions : LearningProblem {
  model::OptimizerOptions optimizer;  ///< with average_decay > 0, a checkpoint has an average of the weights
  ValidationOptions validation;
  std::filesystem::path run;  ///< folder of the run
};
/// Returns the options of a stored run or a checkpoint. Throws UsageError.
InferenceOptions inference_options_of(const StoredRun& run);
InferenceOptions inference_options_of(const io::TrainingRecord& record);
/// Returns the names and values of the options of a stored run that have an effect, in the user's notation and the
/// order of the help. Throws UsageError.
std::vector<std::pair<std::string, std::string>> effective_options(const StoredRun& run);

/// Returns the text for --config that repeats the run from any working folder. It has absolute paths, and no options of
/// a single launch. config.ini and every checkpoint contain it.
std::string stored_configuration(const TrainOptions& settings);
/// Returns the lines of the configuration that define the network and the preparation of its samples.
std::string network_configuration(const LearningProblem& problem);
/// Returns the options of `settings` that differ from `before`, a configuration stored earlier, as "name = value" with
/// the present values. Compares paths in absolute form. Throws UsageError if the text is not a configuration.
std::vector<std::string> changed_options(const StoredRun& before, const TrainOptions& settings);

/// Returns the options of a run that resumes a checkpoint with the configuration `before`. Options that this launch
/// does not give come from the checkpoint, including automatic decisions. Returns `given` unchanged if parse_train()
/// has already found the run's configuration. Takes the execution options from `given`, because the ranks are already
/// connected with them. Throws UsageError.
TrainOptions going_on(const TrainOptions& given, const StoredRun& before);
/// Returns the options of a run that begins with the weights of a checkpoint with the configuration `before`. The
/// network and the normalisation of inputs and targets come from the checkpoint, unless the user gives others. Throws
/// UsageError.
TrainOptions with_network_of(const TrainOptions& given, const StoredRun& before);

/// The stored options of the run that resumes, or that provides the initial weights.
struct EarlierOptions {
  std::string configuration;
  std::string name;  ///< name of the configuration in messages
  OptionSource source = OptionSource::checkpoint;
  std::filesystem::path run = {};  ///< folder of the run that resumes; "": a new run begins
  std::string network = {};        ///< text of its network, if a user's file describes it
};
/// Sets the options of a run that continues: assigns those in `before`, then calls `give` to assign the user's options.
/// A value that leaves a decision open (auto) does not override a stored decision. If the user gives other training
/// data, the stored path of the validation data does not apply. Throws UsageError.
void go_on_with(OptionTable& table, const EarlierOptions& before, const std::function<void()>& give);

}  // namespace lockstep::app
