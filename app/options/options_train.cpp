#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "app/options/moved_path.hpp"
#include "app/options/train_options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kTrainUsage =
    "Usage: mpirun -np RANKS lockstep train PATH [options]\n"
    "\n"
    "Trains a network on RANKS processes that act as one: each computes its part of every batch, the\n"
    "gradients are summed, and all make the same step. Without mpirun it is a world of one rank.\n"
    "PATH is the data (--data).\n";

constexpr std::string_view kTrainExamples =
    "\n"
    "Examples\n"
    "  lockstep train shards/fashion\n"
    "      the whole job on one core: a multi-layer perceptron, into a new folder under runs/\n"
    "  mpirun -np 4 lockstep train --data shards/fashion --hidden 512,256 --optimizer adam \\\n"
    "      --learning-rate 0.001 --epochs 10 --run runs/adam\n"
    "      four ranks, 128 samples each per step, ten epochs\n"
    "  mpirun -np 4 lockstep train --resume --run runs/adam\n"
    "      goes on where that run stopped\n"
    "  mpirun -np 4 lockstep train --resume runs/adam/checkpoints/step-0000000500.h5 --run runs/slower \\\n"
    "      --learning-rate 0.0001\n"
    "      a new run from there: the same data, network and options but for the learning rate\n"
    "  mpirun -np 8 lockstep train --config runs/adam/config.ini --run runs/again --seed 2\n"
    "      the same run with another seed\n"
    "  mpirun -np 8 lockstep train --data shards/fashion --dry-run\n"
    "      prints parameters, memory and work per step, and stops\n";

OptionTable train_table(TrainOptions& options) {
  OptionTable table("lockstep train");
  add_train_options(table, options);
  table.find("data")->positional();
  return table;
}

/// What the user has not given is as it was in what the run goes on from. With `--resume FILE` that is the
/// configuration in FILE; with `--resume --run FOLDER` alone the one in the folder, if there is one.
void apply_configuration_to_continue(const CommandLine& line, OptionTable& table,
                                     const StoredConfiguration& configuration_of) {
  const auto value_of = [&](std::string_view name) -> const std::string* {
    const auto given =
        std::find_if(line.options.begin(), line.options.end(), [&](const auto& o) { return o.name == name; });
    return given == line.options.end() ? nullptr : &given->value;
  };
  const std::string *const resume = value_of("resume"), *const run = value_of("run");
  if (resume == nullptr) return;
  if (*resume != "auto") {
    if (!configuration_of) return;
    std::string text;
    try {
      text = configuration_of(*resume);
    } catch (const UsageError&) {
      if (value_of("data") == nullptr) throw;
      return;  // whoever goes on from it says it
    }
    apply_ini(text, fmt::format("the configuration in {}", *resume), table);
    if (value_of("data") != nullptr) table.find("validation")->reset();  // goes with the data
    return table.find("run")->reset();                                   // a run of its own
  }
  if (run == nullptr || value_of("data") != nullptr) return;
  const std::filesystem::path file = std::filesystem::path(*run) / "config.ini";
  if (!std::filesystem::exists(file)) return;
  apply_ini_file(file, table);
  for (const char* name : {"data", "validation"}) {
    Option* const path = table.find(name);
    const std::filesystem::path there = moved_along(path->text(), table.find("run")->text(), *run);
    if (there != path->text()) path->assign(there.string(), OptionSource::file, name);
  }
}

/// A run that goes on keeps the limits that were measured at its start: its bits are those of one that never stopped.
void keep_measured_limits(TrainOptions& options) {
  if (!options.execution.all_reduce.measured || options.run.resume.from != Resume::From::newest) return;
  const std::filesystem::path file = options.run.folder / "config.ini";
  if (options.run.folder.empty() || !std::filesystem::exists(file)) return;
  TrainOptions before;
  OptionTable table = train_table(before);
  apply_ini_file(file, table);
  if (before.execution.all_reduce.limits) options.execution.all_reduce = before.execution.all_reduce;
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
  add_tuning_options(table, options.tuning);
  add_run_options(table, options.run);
  add_report_options(table, options.reports);
  add_execution_options(table, options.execution);
  add_step_options(table, options.execution);
  table.add("dry-run", options.dry_run, "print the plan (parameters, memory, work per step, buckets) and stop");
}

void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file,
                        const StoredConfiguration& configuration_of) {
  const bool takes_file = file == ConfigFile::taken;
  const CommandLine line = read_command_line(table, arguments, takes_file);
  if (line.help) throw HelpRequested(network_help(table, options, line, usage, examples, takes_file));
  if (line.config.empty()) {
    apply_configuration_to_continue(line, table, configuration_of);
  } else {
    apply_ini_file(line.config, table);
  }
  apply(line, table);
  keep_measured_limits(options);
  settle(table, options);
  if (options.validation.patience > 0 && options.validation.every < 0) {
    throw UsageError(
        fmt::format("--patience {} needs validations before the end, and --evaluate-every -1 makes none: give "
                    "--evaluate-every STEPS, or leave out one of the two",
                    options.validation.patience));
  }
}

void settle(OptionTable& table, TrainOptions& options) {
  if (options.run.new_optimizer_state && options.run.resume.from != Resume::From::file) {
    throw UsageError("--new-optimizer-state needs --resume FILE: a run that goes on by itself keeps its optimiser");
  }
  apply_network_defaults(table, options);
  table.check_relations();
  settle_network_options(table, options.network);
  if (options.schedule.kind == model::ScheduleOptions::Kind::step && options.schedule.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  options.explicitly_set = table.given();
}

TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of) {
  TrainOptions options;
  OptionTable table = train_table(options);
  read_train_options(table, options, arguments, kTrainUsage, kTrainExamples, ConfigFile::taken, configuration_of);
  table.require("data", options.run.resume.from == Resume::From::newest && !options.run.folder.empty()
                            ? fmt::format("{} has no config.ini to take it from; name the data of the run",
                                          options.run.folder.string())
                            : "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

TrainOptions parse_train(const std::vector<std::string>& arguments) { return parse_train(arguments, {}); }

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

void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names) {
  TrainOptions copy;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(copy);
  copy = options;
  for (const std::string& name : names) {
    table.find(name)->reset();
    std::erase(copy.from_network, name);
  }
  options = copy;
}

std::string option_text(const TrainOptions& options, const std::string& name) {
  TrainOptions copy;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(copy);
  copy = options;
  return table.find(name)->text();
}

std::vector<std::pair<std::string, std::string>> effective_options(const TrainOptions& options) {
  TrainOptions copy;  // as above
  OptionTable table = train_table(copy);
  copy = options;
  std::vector<std::pair<std::string, std::string>> effective;
  for (const Option& option : std::as_const(table).options()) {
    if (table.in_use(option)) effective.emplace_back(option.name(), option.text());
  }
  return effective;
}

std::string TrainOptions::to_ini() const {
  TrainOptions options;  // the table takes the fields' values when it is built for the defaults
  OptionTable table = train_table(options);
  options = *this;
  return format_ini(table);
}

}  // namespace lockstep::app
