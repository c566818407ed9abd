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
    "      the best checkpoint of a run on the validation data of that run\n"
    "  lockstep eval runs/adam --report --svg confusion.svg\n"
    "      class by class\n"
    "  mpirun -np 4 lockstep eval runs/adam/checkpoints/step-0000004690.h5 --data shards/fashion/train\n";

constexpr std::string_view kPredictUsage =
    "Usage: mpirun -np RANKS lockstep predict RUN --out FILE [options]\n"
    "\n"
    "Writes what a checkpoint's network says of every sample, in the order of the data, into one HDF5 file. It has\n"
    "the same bytes at any number of ranks. A job that was killed goes on where it was when it is started again.\n";
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
    table.add(std::move(batch), options.batch, "SAMPLES", "samples at once; 0: as the run evaluated").at_least(0);
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
  table.group("What");
  TrainedModelRows model(table, options,
                         "shard folder, HDF5 folder or file, or a folder with validation/ or test/ beside train/; "
                         "default: the validation data of the run",
                         "evaluate the averaged weights; default: what the run validated with", "evaluation-batch");
  table.add("report", options.report,
            "also tell how good it is class by class: precision, recall, F1, what is taken for what, and whether its "
            "probabilities can be believed; of predicted numbers MAE, RMSE and R2");
  table.add("json", options.json, "FILE", "also write the result there, in full precision: lines of JSON");
  table.add("svg", options.svg, "FILE", "draw there which classes are confused, and the calibration").needs("report");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kEvalUsage, kEvalExamples);
  table.check_relations();
  model.choose();
  return options;
}

PredictOptions parse_predict(const std::vector<std::string>& arguments) {
  PredictOptions options;
  OptionTable table("lockstep predict");
  table.group("What");
  TrainedModelRows model(table, options,
                         "shard folder, HDF5 folder or file, with labels or without; default: the validation data of "
                         "the run",
                         "predict with the averaged weights; default: what the run validated with", "batch");
  table.add("out", options.out, "FILE", "HDF5 file for the predictions: scores, class, target, index");
  table.add("csv", options.csv, "FILE", "also write them as text there, classes by their names");
  table.add("force", options.force, "replace an --out and a --csv that are there already");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kPredictUsage, kPredictExamples);
  table.check_relations();
  model.choose();
  table.require("out", "name the file for the predictions");
  if (options.csv == options.out) throw UsageError("--csv and --out name the same file: give each its own");
  return options;
}

}  // namespace lockstep::app
