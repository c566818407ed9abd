#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "app/options/moved_path.hpp"
#include "app/options/network_files.hpp"
#include "app/options/train_options.hpp"
#include "app/options/train_rows.hpp"
#include "app/options/usage_error.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/stalled_file.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/io_deadline.hpp"

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

namespace fs = std::filesystem;

/// The options of the run that is resumed, or that provides the initial weights.
struct Before {
  std::string configuration;
  std::string name;  ///< name of the configuration in messages
  OptionSource source = OptionSource::checkpoint;
  fs::path run = {};         ///< folder of the run that is resumed; "": a new run begins
  std::string network = {};  ///< text of its network, if a user's file describes it
};

/// Options with the network of a user's file, for a table with its rows.
TrainOptions with_network_file(const std::shared_ptr<const model::NetworkKind>& source) {
  TrainOptions options;
  options.network.source = source;
  return options;
}

/// True if training data at `a` are those at `b`, which may be the train/ inside.
bool same_data(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  std::error_code unknown;
  const auto training = [&](const fs::path& path) {
    return fs::is_directory(path / "train", unknown) ? path / "train" : path;
  };
  if (fs::equivalent(training(a), training(b), unknown)) return true;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

/// True if --validation is a share of the training data.
bool is_share(const std::string& text) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  return error == std::errc() && end == text.data() + text.size();
}

/// The configuration without the line of an option.
std::string without_line_of(std::string_view name, const std::string& configuration) {
  std::istringstream lines(configuration);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (trimmed(std::string_view(line).substr(0, line.find('='))) != name) rest += line + "\n";
  }
  return rest;
}

struct Remembered {
  std::string configuration;
  bool compensated = false;
};

/// Runs of before could compensate gradients for their delay (--stale-rate compensate, --compensation LAMBDA).
Remembered without_compensation(const std::string& configuration) {
  Remembered remembered;
  std::istringstream lines(configuration);
  for (std::string line; std::getline(lines, line); remembered.configuration += '\n') {
    if (line.starts_with("compensation =")) continue;
    const bool compensates = line == "stale-rate = compensate";
    remembered.compensated = remembered.compensated || compensates;
    remembered.configuration += compensates ? "stale-rate = keep" : line;
  }
  return remembered;
}

/// The one rule of every run that goes on: what `give` does not assign is as it was before. What leaves a decision open
/// (auto) does not undo it. Validation data go with the data that they were beside.
template <class Give>
void go_on_with(OptionTable& table, const Before& before, Give give) {
  const Remembered remembered = without_compensation(before.configuration);
  apply_ini(remembered.configuration, before.name, table, before.source);
  Option &data = *table.find("data"), &validation = *table.find("validation");
  if (!before.run.empty()) {
    for (Option* const path : {&data, &validation}) {
      const fs::path there = moved_along(path->text(), table.find("run")->text(), before.run);
      if (there != path->text()) path->assign(there.string(), before.source, path->name());
    }
  }
  table.find("run")->reset();  // the present run's folder is always given
  const std::string data_before = data.text();
  give();
  if (remembered.compensated && table.find("stale-rate")->source() == before.source) {
    throw UsageError(
        fmt::format("{}: this run compensated its gradients for their delay (stale-rate = compensate), "
                    "which is gone: give --stale-rate keep or scale to go on without it",
                    before.name));
  }
  const bool others = data.source() != before.source && !same_data(data.text(), data_before);
  if (others && validation.source() == before.source && !is_share(validation.text())) validation.reset();
}

/// Before the ranks are connected, a stalled file system ends this process; the launcher then ends the others.
io::IoDeadline deadline_before_start(double seconds) {
  return io::IoDeadline(seconds, {.expired = [seconds](const io::IoDeadline::Pending& pending) {
                          comm::write_stderr(fmt::format("lockstep train: error on rank {} (host {}, pid {}): {}\n",
                                                         comm::launched_rank().value_or(0), comm::host_name(), getpid(),
                                                         describe_stall(pending, seconds)));
                          std::_Exit(kExitFailed);
                        }});
}

/// Options of the run in `folder`, which is resumed from its newest checkpoint. Without a checkpoint the job is
/// described anew, and the folder's configuration counts only if the command line names no data.
std::optional<Before> before_in_folder(const fs::path& folder, bool names_data, double io_deadline) {
  const fs::path file = folder / "config.ini", checkpoints = folder / "checkpoints";
  if (folder.empty()) return std::nullopt;
  io::IoDeadline deadline = deadline_before_start(io_deadline);
  std::optional<std::string> configuration;
  try {
    const io::IoDeadline::Operation reading(&deadline, io::IoDeadline::Kind::reading, file);
    configuration = io::read_whole(file);
  } catch (const io::FileError& error) {
    throw UsageError(error.what());
  }
  if (!configuration) return std::nullopt;
  const bool has_checkpoint = [&] {
    try {
      const io::IoDeadline::Operation reading(&deadline, io::IoDeadline::Kind::reading, checkpoints);
      return !io::list_checkpoints(checkpoints).empty();
    } catch (const io::FileError&) {  // the code that resumes from it reports the error
      return false;
    }
  }();
  if (!has_checkpoint && names_data) return std::nullopt;
  return Before{.configuration = std::move(*configuration),
                .name = file.string(),
                .source = has_checkpoint ? OptionSource::checkpoint : OptionSource::file,
                .run = folder};
}

std::optional<Before> before_in_file(const fs::path& checkpoint, bool names_data,
                                     const StoredConfiguration& configuration_of) {
  if (!configuration_of) return std::nullopt;
  try {
    return Before{.configuration = configuration_of(checkpoint).configuration,
                  .name = fmt::format("the configuration in {}", checkpoint.string())};
  } catch (const UsageError&) {
    if (!names_data) throw;
    return std::nullopt;  // the code that resumes from it reports the error
  }
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
  if (options.network.source != nullptr) require_fitting_names(table, *options.network.source);
  const bool takes_file = file == ConfigFile::taken;
  const CommandLine line = read_command_line(table, arguments, takes_file);
  if (line.help) throw HelpRequested(network_help(table, options, line, usage, examples, takes_file));
  const auto give = [&] {
    if (!line.config.empty()) apply_ini_file(line.config, table);
    apply(line, table);
  };
  give();
  const Resume resume = options.run.resume;
  if (resume.from != Resume::From::nothing) {
    const bool names_data = table.find("data")->source() != OptionSource::default_value;
    const std::optional<Before> before =
        resume.from == Resume::From::newest
            ? before_in_folder(options.run.folder, names_data, options.execution.io_deadline)
            : before_in_file(resume.file, names_data, configuration_of);
    if (before) {
      for (Option& option : table.options()) option.reset();
      go_on_with(table, *before, give);
    }
  }
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
  options.from_checkpoint = table.from_checkpoint();
}

TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of) {
  const NamedNetwork named = find_network(arguments, configuration_of);
  TrainOptions options = with_network_file(named.source);
  options.network_note = named.note;
  OptionTable table = train_table(options);
  read_train_options(table, options, named.arguments, kTrainUsage, kTrainExamples, ConfigFile::taken, configuration_of);
  table.require("data", options.run.resume.from == Resume::From::newest && !options.run.folder.empty()
                            ? fmt::format("{} has no config.ini to take it from; name the data of the run",
                                          options.run.folder.string())
                            : "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

TrainOptions parse_train(const std::vector<std::string>& arguments) { return parse_train(arguments, {}); }

TrainOptions train_options_of(const io::TrainingRecord& record) {
  return train_options_from_ini(record.configuration, record.network_text);
}

TrainOptions train_options_from_ini(const std::string& ini, const std::string& network) {
  TrainOptions options = with_network_file(stored_network({ini, network}));
  OptionTable table = train_table(options);
  apply_ini(without_compensation(ini).configuration, "stored configuration", table);
  settle(table, options);
  return options;
}

namespace {

/// The options of `before`, overridden by those given now.
TrainOptions with_what_is_given(const TrainOptions& given, Before before, bool network_alone) {
  const auto stored = stored_network({before.configuration, before.network});
  const bool other_file = network_alone && given.is_given("model");
  TrainOptions values = with_network_file(given.network.source);
  TrainOptions options = with_network_file(other_file || stored == nullptr ? given.network.source : stored);
  const OptionTable given_table =
      train_table(values);  // the table takes the fields' values as defaults when it is built
  values = given;
  OptionTable table = train_table(options);
  const std::string name_before = stored != nullptr ? stored->name : model_in(before.configuration);
  if (stored != nullptr && other_file) {
    before.configuration = without_options_of(*stored, before.configuration, table);
    before.configuration = without_line_of("model", before.configuration);
  }
  const auto give = [&] {
    if (network_alone) {
      const bool other = given.is_given("model") && model::network_kind(given.network).name != name_before;
      for (Option& option : table.options()) {
        const bool of_network =
            option.group() == "Network" || option.name() == "normalize" || option.name() == "normalize-targets";
        if (other || !of_network) option.reset();
      }
    }
    for (const Option& option : given_table.options()) {
      const bool is_stored = option.name() == "model" && stored != nullptr && !other_file;
      if (is_stored && model::is_network_file(option.text())) continue;
      if (given.is_given(option.name())) {
        table.find(option.name())->assign(option.text(), OptionSource::command_line, "--" + option.name());
      }
    }
  };
  go_on_with(table, before, give);
  settle(table, options);
  options.execution = given.execution;  // ranks communicate and compute already before a checkpoint is read
  return options;
}

}  // namespace

TrainOptions going_on(const TrainOptions& given, const StoredRun& before) {
  if (!given.from_checkpoint.empty())
    return given;  // the run's configuration, which has the last launch's options, counts
  const bool newest = given.run.resume.from == Resume::From::newest;
  const TrainOptions options = with_what_is_given(given,
                                                  {.configuration = before.configuration,
                                                   .name = "the checkpoint's configuration",
                                                   .run = newest ? given.run.folder : fs::path(),
                                                   .network = before.network},
                                                  false);
  if (options.agree.uses_servers() != given.agree.uses_servers()) {
    throw UsageError(fmt::format("the run that goes on was made with --agree {}: give it again, or another",
                                 option_text(options, "agree")));
  }
  return options;
}

TrainOptions with_network_of(const TrainOptions& given, const StoredRun& before) {
  return with_what_is_given(given,
                            {.configuration = before.configuration,
                             .name = "the configuration of --initialize-from",
                             .network = before.network},
                            true);
}

bool TrainOptions::is_given(const std::string& name) const {
  return was_set(name) && std::find(from_checkpoint.begin(), from_checkpoint.end(), name) == from_checkpoint.end();
}

bool TrainOptions::was_set(const std::string& name) const {
  return std::find(explicitly_set.begin(), explicitly_set.end(), name) != explicitly_set.end();
}

void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names) {
  TrainOptions copy =
      with_network_file(options.network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(copy);
  copy = options;
  for (const std::string& name : names) {
    table.find(name)->reset();
    std::erase(copy.from_network, name);
  }
  options = copy;
}

std::string option_text(const TrainOptions& options, const std::string& name) {
  TrainOptions copy =
      with_network_file(options.network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(copy);
  copy = options;
  return table.find(name)->text();
}

std::vector<std::pair<std::string, std::string>> effective_options(const TrainOptions& options) {
  TrainOptions copy = with_network_file(options.network.source);  // as above
  OptionTable table = train_table(copy);
  copy = options;
  std::vector<std::pair<std::string, std::string>> effective;
  for (const Option& option : std::as_const(table).options()) {
    if (table.in_use(option)) effective.emplace_back(option.name(), option.text());
  }
  return effective;
}

std::string TrainOptions::to_ini() const {
  TrainOptions options =
      with_network_file(network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(options);
  options = *this;
  return format_ini(table);
}

}  // namespace lockstep::app
