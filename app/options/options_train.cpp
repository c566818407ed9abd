#include <algorithm>

#include <fmt/format.h>

#include "app/options/train_options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kTrainUsage =
    "Usage: mpirun -np RANKS lockstep train --data FOLDER [options]\n"
    "\n"
    "Trains a network on RANKS processes that act as one: each computes its part of every batch, the\n"
    "gradients are summed, and all make the same step. Without mpirun it is a world of one rank.\n";

constexpr std::string_view kTrainExamples =
    "\n"
    "Examples\n"
    "  lockstep train --data shards/fashion\n"
    "      the whole job on one core: a multi-layer perceptron, one epoch, into a new folder under runs/\n"
    "  mpirun -np 4 lockstep train --data shards/fashion --hidden 512,256 --optimizer adam \\\n"
    "      --learning-rate 0.001 --epochs 10 --run runs/adam\n"
    "      four ranks, 128 samples each per step, ten epochs\n"
    "  mpirun -np 4 lockstep train --resume --run runs/adam\n"
    "      goes on where that run stopped\n"
    "  mpirun -np 8 lockstep train --config runs/adam/config.ini --run runs/again --seed 2\n"
    "      the same run with another seed\n"
    "  mpirun -np 8 lockstep train --data shards/fashion --dry-run\n"
    "      prints parameters, memory and work per step, and stops\n";

OptionTable train_table(TrainOptions& options) {
  OptionTable table("lockstep train");
  add_train_options(table, options);
  return table;
}

/// `--resume --run FOLDER` alone continues with that run's configuration: its file, or "" when the run has none or the
/// user describes the whole job anew.
std::filesystem::path configuration_to_continue(const CommandLine& line) {
  const auto value_of = [&](std::string_view name) -> const std::string* {
    const auto given =
        std::find_if(line.options.begin(), line.options.end(), [&](const auto& o) { return o.name == name; });
    return given == line.options.end() ? nullptr : &given->value;
  };
  const std::string* const run = value_of("run");
  if (run == nullptr || value_of("resume") == nullptr || value_of("data") != nullptr) return {};
  const std::filesystem::path file = std::filesystem::path(*run) / "config.ini";
  return std::filesystem::exists(file) ? file : std::filesystem::path();
}

}  // namespace

void add_train_options(OptionTable& table, TrainOptions& options) {
  add_data_options(table, options.data);
  add_network_options(table, options.network);
  add_loss_options(table, options.loss);
  add_optimizer_options(table, options.optimizer);
  add_learning_rate_options(table, options.schedule, options.work);
  add_amount_options(table, options.work);
  add_batch_options(table, options.work);
  add_agree_options(table, options.agree);
  add_validation_options(table, options.validation);
  add_start_options(table, options.start);
  add_run_options(table, options.run);
  add_report_options(table, options.reports);
  add_execution_options(table, options.execution);
  add_step_options(table, options.execution);
  table.add("dry-run", options.dry_run, "print the plan (parameters, memory, work per step, buckets) and stop");
}

void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file) {
  const bool takes_file = file == ConfigFile::taken;
  const CommandLine line = read_command_line(table, arguments, takes_file);
  if (line.help) throw HelpRequested(format_network_help(table, options, line, usage, examples, takes_file));
  const std::filesystem::path stored =
      line.config.empty() ? configuration_to_continue(line) : std::filesystem::path(line.config);
  if (!stored.empty()) apply_ini_file(stored, table);
  apply(line, table);
  settle(table, options);
  if (options.validation.patience > 0 && options.validation.every < 0) {
    throw UsageError(
        fmt::format("--patience {} needs validations before the end, and --evaluate-every -1 makes none: give "
                    "--evaluate-every STEPS, or leave out one of the two",
                    options.validation.patience));
  }
}

void settle(OptionTable& table, TrainOptions& options) {
  apply_network_defaults(table, options);
  table.check_relations();
  settle_network_options(table, options.network);
  if (options.schedule.kind == model::ScheduleOptions::Kind::step && options.schedule.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  options.explicitly_set = table.given();
}

TrainOptions parse_train(const std::vector<std::string>& arguments) {
  TrainOptions options;
  OptionTable table = train_table(options);
  read_train_options(table, options, arguments, kTrainUsage, kTrainExamples, ConfigFile::taken);
  table.require("data", options.run.resume.from == Resume::From::newest && !options.run.folder.empty()
                            ? fmt::format("{} has no config.ini to take it from; name the data of the run",
                                          options.run.folder.string())
                            : "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

TrainOptions train_options_from_ini(const std::string& ini) {
  TrainOptions options;
  OptionTable table = train_table(options);
  apply_ini(ini, "stored configuration", table);
  settle(table, options);
  return options;
}

bool TrainOptions::was_set(const std::string& name) const {
  return std::find(explicitly_set.begin(), explicitly_set.end(), name) != explicitly_set.end();
}

std::string option_text(const TrainOptions& options, const std::string& name) {
  TrainOptions copy;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(copy);
  copy = options;
  return table.find(name)->text();
}

std::string TrainOptions::to_ini() const {
  TrainOptions options;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(options);
  options = *this;
  return format_ini(table);
}

}  // namespace lockstep::app
