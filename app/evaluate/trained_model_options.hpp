/// \file
/// The options of `lockstep eval` and `predict`: a trained network, and its input data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/checkpoint_choice.hpp"
#include "app/options/train_options.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::app {

/// A trained network, and its input data.
struct TrainedModelOptions {
  CheckpointChoice checkpoint = {};
  std::filesystem::path data = {};  ///< "" = the validation data of the run
  /// Names of the HDF5 datasets; "" = as in training, or the names in packed data.
  std::string x = {}, y = {};
  bool allow_fill = false;                      ///< accept parts that were never written, with their fill value
  std::optional<bool> average = {};             ///< use the averaged weights; nullopt: as the run validated
  std::int64_t batch = 0;                       ///< samples at once; 0 = as the run evaluated
  std::optional<Normalization> normalize = {};  ///< nullopt: as in training
  VerifyData verify = VerifyData::automatic;
  io::UnknownCategories unknown_categories = io::UnknownCategories::error;
};

struct EvalOptions : TrainedModelOptions {
  std::filesystem::path json;  ///< file for the result in full precision
  bool report = false;         ///< also report results by class or by target
  std::filesystem::path svg;   ///< file for a drawing of the report
  ExecutionOptions execution;
};

struct PredictOptions : TrainedModelOptions {
  std::filesystem::path out;  ///< HDF5
  std::filesystem::path csv;  ///< "" = none
  bool force = false;         ///< `out` may exist already
  ExecutionOptions execution;
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
EvalOptions parse_eval(const std::vector<std::string>& arguments);
PredictOptions parse_predict(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
