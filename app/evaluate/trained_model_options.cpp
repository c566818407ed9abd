#include "app/evaluate/trained_model_options.hpp"

#include "app/options/train_rows.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kEvalUsage =
    "Usage: mpirun -np RANKS lockstep eval RUN [options]\n"
    "\n"
    "Evaluates a checkpoint. The result is the same, to the last bit, at any number of ranks.\n";
constexpr std::string_view kEvalExamples =
    "\n"
    "Examples\n"
    "  lockstep eval runs/adam\n"
    "      evaluate the best checkpoint of a run on its validation data\n"
    "  lockstep eval runs/adam --report --svg confusion.svg\n"
    "      add a table of the classes and a picture of their confusion\n"
    "  mpirun -np 4 lockstep eval runs/adam/checkpoints/step-0000004690.h5 --data shards/fashion/train\n";

constexpr std::string_view kPredictUsage =
    "Usage: mpirun -np RANKS lockstep predict RUN --out FILE [options]\n"
    "\n"
    "Writes a checkpoint's prediction for every sample, in the order of the data, to one HDF5 file. The\n"
    "file has the same bytes at any number of ranks. A killed job continues when it is started again.\n";
constexpr std::string_view kPredictExamples =
    "\n"
    "Examples\n"
    "  lockstep predict runs/adam --out predictions.h5 --csv predictions.csv\n"
    "  mpirun -np 4 lockstep predict runs/adam --data shards/unlabelled --out predictions.h5\n";

/// Option rows of a trained network and its data.
class TrainedModelRows {
 public:
  /// `data`, `average`: help texts of these options; `batch`: name of the option for the number of samples at once.
  TrainedModelRows(OptionTable& table, TrainedModelOptions& options, std::string data, std::string average,
                   std::string batch)
      : table_(table), options_(options), checkpoint_(table) {
    table.add("data", options.data, "PATH", std::move(data));
    add_data_names(table, options.x, options.y);
    add_allow_fill(table, options.allow_fill);
    table.add("average", average_, std::move(average));
    table.add(std::move(batch), options.batch, "SAMPLES", "samples evaluated at once; 0: as in the run's validation")
        .at_least(0);
    add_input_option(table, normalize_);
    add_verify_option(table, options.verify);
    add_unknown_categories_option(table, options.unknown_categories);
  }
  TrainedModelRows(const TrainedModelRows&) = delete;
  TrainedModelRows& operator=(const TrainedModelRows&) = delete;
  /// Call after the command line has been read. Throws UsageError if no checkpoint is named.
  void choose() {
    const auto is_given = [this](const char* name) {
      return table_.find(name)->source() != OptionSource::default_value;
    };
    options_.checkpoint = checkpoint_.chosen();
    if (is_given("average")) options_.average = average_;
    if (is_given("normalize")) options_.normalize = normalize_;
  }

 private:
  OptionTable& table_;
  TrainedModelOptions& options_;
  CheckpointRows checkpoint_;
  bool average_ = false;
  Normalization normalize_;
};

}  // namespace

EvalOptions parse_eval(const std::vector<std::string>& arguments) {
  EvalOptions options;
  OptionTable table("lockstep eval");
  table.group("Model and data");
  TrainedModelRows model(
      table, options,
      "data to evaluate on: a shard folder, HDF5 folder or file, or a folder with validation/ or test/ beside "
      "train/; default: the run's validation data",
      "use the averaged weights; default: the weights that the run validated with", "evaluation-batch");
  table.group("Results");
  table.add("report", options.report,
            "also report quality by class: precision, recall, F1, confusions and calibration of the probabilities; for "
            "predicted numbers MAE, RMSE and R2");
  table.add("json", options.json, "FILE", "also write the result to FILE as lines of JSON, in full precision");
  table.add("svg", options.svg, "FILE", "draw the confusion of the classes and the calibration in FILE")
      .needs("report");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kEvalUsage, kEvalExamples);
  table.check_relations();
  model.choose();
  return options;
}

PredictOptions parse_predict(const std::vector<std::string>& arguments) {
  PredictOptions options;
  OptionTable table("lockstep predict");
  table.group("Model and data");
  TrainedModelRows model(
      table, options,
      "samples to predict: a shard folder, HDF5 folder or file, with or without labels; default: the run's "
      "validation data",
      "use the averaged weights; default: the weights that the run validated with", "batch");
  table.group("Results");
  table.add("out", options.out, "FILE", "HDF5 file for the predictions: scores, class, target, index");
  table.add("csv", options.csv, "FILE", "also write the predictions to FILE as text, with the names of the classes");
  table.add("force", options.force, "replace --out and --csv if they exist");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kPredictUsage, kPredictExamples);
  table.check_relations();
  model.choose();
  table.require("out", "name the file for the predictions");
  if (options.csv == options.out) throw UsageError("--csv and --out name the same file: give each its own");
  return options;
}

}  // namespace lockstep::app
