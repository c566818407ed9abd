#include "app/options.hpp"

#include <fmt/format.h>

#include "app/nearest_name.hpp"
#include "app/option_table.hpp"
#include "app/options_train.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kEvalUsage =
    "Usage: mpirun -np RANKS lockstep eval CHECKPOINT [options]\n"
    "\n"
    "Evaluates a checkpoint. The result is the same, to the last bit, at any number of ranks.\n";
constexpr std::string_view kEvalExamples =
    "\n"
    "Examples\n"
    "  lockstep eval runs/adam\n"
    "      the newest checkpoint of a run on the validation data of that run\n"
    "  mpirun -np 4 lockstep eval runs/adam/checkpoints/step-0000004690.h5 --data shards/fashion/train\n";

constexpr std::string_view kPackUsage =
    "Usage: lockstep pack --x FILE [--y FILE] --out FOLDER [options]\n"
    "\n"
    "Writes samples into a folder of HDF5 shards that `lockstep train` reads. Runs as one process.\n";
constexpr std::string_view kPackExamples =
    "\n"
    "Examples\n"
    "  lockstep pack --x train-images-idx3-ubyte.gz --y train-labels-idx1-ubyte.gz \\\n"
    "      --out shards/fashion/train\n"
    "  lockstep pack --x features.npy --y targets.npy --out shards/mine --shards 8\n"
    "  lockstep pack --x houses.csv --label-column price --regression --out shards/houses\n"
    "  lockstep pack --format synthetic --task regression --features 600 --out shards/made-up\n";

constexpr std::string_view kInfoUsage =
    "Usage: lockstep info PATH [options]\n"
    "\n"
    "Says what a shard folder, an HDF5 data file, a checkpoint or a run folder holds, and verifies its\n"
    "checksums. Exit code 1 when something is damaged.\n";

constexpr std::string_view kBenchStepUsage =
    "Usage: mpirun -np RANKS lockstep bench step [options]\n"
    "\n"
    "Times training steps: samples per second, and where the time goes.\n";
constexpr std::string_view kBenchStepExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 2 lockstep bench step --hidden 100 --batch 100 --optimizer adam\n"
    "  mpirun -np 2 lockstep bench step --input data --data shards/fashion/train\n";

struct ParsedHelp {
  std::string_view usage, ending;
};

/// Command line only. Throws HelpRequested for --help.
void parse(OptionTable& table, const std::vector<std::string>& arguments, const ParsedHelp& help) {
  const CommandLine line = read_command_line(table, arguments, false);
  if (line.help) throw HelpRequested(format_help(table, help.usage, help.ending, false));
  apply(line, table);
}

/// What the name of a file says about its format; "" when it says nothing.
std::string format_of(const std::filesystem::path& file) {
  std::string name = file.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with("-ubyte") || name.ends_with(".idx")) return "idx";
  if (name.ends_with(".npy")) return "npy";
  if (name.ends_with(".csv") || name.ends_with(".tsv")) return "csv";
  return "";
}

std::string check_separator(const std::string& text) {
  return text.size() == 1 || text == "tab" ? "" : "is not one character; write tab for a tabulator";
}

}  // namespace

EvalOptions parse_eval(const std::vector<std::string>& arguments) {
  EvalOptions options;
  OptionTable table("lockstep eval");
  table.group("What");
  table
      .add(
          "checkpoint", options.checkpoint, "PATH",
          "a checkpoint file, or a run folder or checkpoints folder: its newest checkpoint that verifies. --checkpoint "
          "itself may be left out")
      .positional();
  table.add("data", options.data, "PATH",
            "shard folder, HDF5 folder or file, or a folder with validation/ or test/ beside train/; default: the "
            "validation data of the run");
  table.add("average", options.average, "evaluate the averaged weights; default: what the run validated with");
  table.add("evaluation-batch", options.evaluation_batch, "SAMPLES", "samples evaluated at once; 0: as in the run")
      .at_least(0);
  table.add("json", options.json, "FILE", "also write the result there, in full precision");
  add_execution_options(table, options.execution);
  parse(table, arguments, {kEvalUsage, kEvalExamples});
  table.check_relations();
  table.require("checkpoint", "name a checkpoint file or a run folder");
  options.average_set = table.find("average")->source() != OptionSource::default_value;
  return options;
}

PackOptions parse_pack(const std::vector<std::string>& arguments) {
  PackOptions options;
  OptionTable table("lockstep pack");
  table.group("What");
  table.add("format", options.format, "NAME", "of the input; default: by the name of --x")
      .one_of({"idx", "npy", "csv", "synthetic"});
  table.add("x", options.x, "FILE",
            "the samples: IDX (also .gz), NumPy .npy, or a table (.csv, .tsv) with samples and labels");
  table.add("y", options.y, "FILE", "the labels or targets, for idx and npy").only_with("format", {"idx", "npy"});
  table.group("Where");
  table.add("out", options.out, "FOLDER", "the shard folder to make");
  table.add("shards", options.shards, "N", "files to spread the samples over").at_least(1).at_most(100000);
  table.add("force", options.force, "replace the folder if it exists");
  table.group("Tables (csv)");
  table.add("header", options.header, "the first line names the columns").only_with("format", {"csv"});
  table.add("separator", options.separator, "CHARACTER", "between columns; .tsv files: tab")
      .check(check_separator)
      .only_with("format", {"csv"});
  table
      .add("label-column", options.label_column, "COLUMN",
           "the label: a name from the header or an index from 0 (from the end: -1 is the last); default: no label")
      .only_with("format", {"csv"});
  table.add("regression", options.regression, "the label is a number to predict, not a class")
      .only_with("format", {"csv"});
  table.group("Made-up data (synthetic)");
  table.add("task", options.task, "NAME", "what to learn from it")
      .one_of({"classification", "regression"})
      .only_with("format", {"synthetic"});
  table.add("samples", options.samples, "N", "how many").at_least(1).only_with("format", {"synthetic"});
  table
      .add("first", options.first, "N",
           "index of the first sample: with the same seed, the next samples of the same problem")
      .at_least(0)
      .only_with("format", {"synthetic"});
  table.add("features", options.features, "N", "numbers per sample").at_least(1).only_with("format", {"synthetic"});
  table.add("classes", options.classes, "N", "for classification")
      .at_least(2)
      .only_with("format", {"synthetic"})
      .only_with("task", {"classification"});
  table.add("noise", options.noise, "DEVIATION", "standard deviation of the noise")
      .at_least(0)
      .only_with("format", {"synthetic"});
  table.add("seed", options.seed, "N", "of the random numbers").only_with("format", {"synthetic"});
  table.group("Reports");
  table.add("progress", options.progress, "WHEN", "the progress bar; auto: on a terminal")
      .one_of({"auto", "on", "off"});

  parse(table, arguments, {kPackUsage, kPackExamples});
  const bool format_given = !options.format.empty();
  if (!format_given) {
    table.require("x", "name the file with the samples, or ask for made-up ones with --format synthetic");
    options.format = format_of(options.x);
    if (options.format.empty()) {
      throw UsageError(
          fmt::format("--x: the name {} does not tell the format; add --format idx, npy or csv", options.x.string()));
    }
  }
  table.check_relations();
  if (options.format == "synthetic") {
    if (!options.x.empty())
      throw UsageError("--x and --format synthetic contradict each other: made-up data reads no file");
  } else {
    table.require("x", "name the file with the samples");
  }
  table.require("out", "name the shard folder to make");
  const bool separator_given = table.find("separator")->source() != OptionSource::default_value;
  if (options.separator == "tab" || (!separator_given && options.x.extension() == ".tsv")) options.separator = "\t";
  if (options.regression && options.label_column.empty()) {
    throw UsageError("--regression needs --label-column: the column to predict");
  }
  return options;
}

InfoOptions parse_info(const std::vector<std::string>& arguments) {
  InfoOptions options;
  OptionTable table("lockstep info");
  table.group("What");
  table
      .add("path", options.path, "PATH",
           "shard folder, HDF5 file, checkpoint or run folder; --path itself may be left out")
      .positional();
  table.add("x", options.x, "NAME", "HDF5 dataset that holds the samples, for files made by others")
      .check(reject_empty);
  table.add("y", options.y, "NAME", "HDF5 dataset that holds the labels or targets").check(reject_empty);
  table.add("verify", options.verify, "recompute checksums");
  parse(table, arguments, {kInfoUsage, ""});
  table.require("path", "name a shard folder, a checkpoint or a run folder");
  return options;
}

BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments) {
  BenchStepOptions options;
  TrainOptions& train = options.train;
  OptionTable table("lockstep bench step");
  table.group("What is timed");
  table.add("warmup", options.warmup, "STEPS", "steps before the clock starts").at_least(0);
  table.add("repeat", options.repeat, "STEPS", "steps timed").at_least(1);
  table
      .add("input", options.input, "FROM",
           "memory: random batches that stay in memory; data: --data through the prefetcher")
      .one_of({"memory", "data"});
  table.add("json", options.json, "FILE", "also write the figures there");
  table.add("features", options.features, "N", "numbers per sample (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  table.add("outputs", options.outputs, "N", "classes, words of a vocabulary, or numbers to predict (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  table
      .add("image", options.image, "HxWxC",
           "samples are images, for cnn and resnet; instead of --features (--input memory)")
      .only_with("input", {"memory"});
  table.add("regression", options.regression, "predict numbers, not a class (--input memory)")
      .only_with("input", {"memory"});
  add_data_options(table, train);
  add_network_options(table, train);
  add_optimizer_options(table, train);
  add_learning_rate_options(table, train);
  add_batch_options(table, train);
  add_execution_options(table, train.execution);
  add_step_options(table, train);
  parse(table, arguments, {kBenchStepUsage, kBenchStepExamples});
  apply_network_defaults(train, table);
  table.check_relations();
  if (options.input == "data") {
    table.require("data", "--input data reads a shard folder");
  } else if (!train.data.empty()) {
    throw UsageError("--data has an effect only with --input data");
  }
  if (train.schedule == "step" && train.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  train.explicitly_set = table.given();
  return options;
}

std::string program_version() { return LOCKSTEP_VERSION; }

std::string program_help() {
  return fmt::format(
      "lockstep {} trains neural networks on many processes as if they were one.\n"
      "Start it with mpirun for many ranks, without for one: the numbers are the same.\n"
      "\n"
      "  lockstep pack              turn raw data (images, text, tables, made-up) into HDF5 shards\n"
      "  lockstep train             train a network on shards; checkpoint and resume\n"
      "  lockstep eval              evaluate a checkpoint on a dataset\n"
      "  lockstep generate          let a trained language model write text\n"
      "  lockstep bench step        time training steps and say where the time goes\n"
      "  lockstep bench all-reduce  time sums over all ranks, and check them\n"
      "  lockstep info              what a shard folder, a checkpoint or a run holds; verifies checksums\n"
      "\n"
      "  lockstep COMMAND --help   every option of a command, with examples\n"
      "  lockstep --version        the version, what it was built with, and the GPUs it sees\n"
      "\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped on request with a checkpoint (run again with\n"
      "--resume to go on).\n",
      program_version());
}

}  // namespace lockstep::app
