#include "app/train/train_command_line.hpp"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "app/options/network_files.hpp"
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

namespace fs = std::filesystem;

constexpr std::string_view kTrainUsage =
    "Usage: mpirun -np RANKS lockstep train PATH [options]\n"
    "\n"
    "Trains a network on RANKS processes that act as one: each rank computes its part of every batch, the\n"
    "gradients are summed, and all ranks make the same step. Without mpirun there is one rank.\n"
    "PATH is the training data (--data).\n";

constexpr std::string_view kTrainExamples =
    "\n"
    "Examples\n"
    "  lockstep train shards/fashion\n"
    "      train a multilayer perceptron on one core, in a new run folder under runs/\n"
    "  mpirun -np 4 lockstep train --data shards/fashion --hidden 512,256 --optimizer adam \\\n"
    "      --learning-rate 0.001 --epochs 10 --run runs/adam\n"
    "      train on four ranks, with 128 samples per rank and step, for ten epochs\n"
    "  mpirun -np 4 lockstep train --resume --run runs/adam\n"
    "      continue that run from its newest checkpoint\n"
    "  mpirun -np 4 lockstep train --resume runs/adam/checkpoints/step-0000000500.h5 --run runs/slower \\\n"
    "      --learning-rate 0.0001\n"
    "      start a new run from a checkpoint, with the same options except the learning rate\n"
    "  mpirun -np 8 lockstep train --config runs/adam/config.ini --run runs/again --seed 2\n"
    "      repeat a run with another seed\n"
    "  mpirun -np 8 lockstep train --data shards/fashion --dry-run\n"
    "      print parameters, memory and work per step, and exit\n";

/// Returns handlers that end this process if the file system stalls before the ranks are connected. The launcher then
/// ends the other processes.
io::IoDeadline::Handlers exit_before_start(double seconds) {
  return {.expired = [seconds](const io::IoDeadline::Pending& pending) {
    comm::write_stderr(fmt::format("lockstep train: error on rank {} (host {}, pid {}): {}\n",
                                   comm::launched_rank().value_or(0), comm::host_name(), getpid(),
                                   describe_stall(pending, seconds)));
    std::_Exit(kExitFailed);
  }};
}

/// Returns the value of --io-deadline in arguments that no table has parsed yet, or its default; in seconds.
double io_deadline_in(const std::vector<std::string>& arguments) {
  constexpr std::string_view kName = "--io-deadline";
  double seconds = ExecutionOptions{}.io_deadline;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view value = arguments[i];
    if (!value.starts_with(kName)) continue;
    value.remove_prefix(kName.size());
    if (value.starts_with('=')) value.remove_prefix(1);
    if (value.empty() && i + 1 < arguments.size()) value = arguments[i + 1];
    std::from_chars(value.data(), value.data() + value.size(), seconds);  // the table reports invalid numbers
  }
  return seconds > 0 ? seconds : ExecutionOptions{}.io_deadline;
}

/// Returns the options of the run in `folder`, which resumes from its newest checkpoint. If it has none, the command
/// line describes the whole job, and the folder's configuration counts only if the command line names no data.
std::optional<EarlierOptions> before_in_folder(const fs::path& folder, bool names_data, double io_deadline) {
  const fs::path file = folder / "config.ini", checkpoints = folder / "checkpoints";
  if (folder.empty()) return std::nullopt;
  io::IoDeadline deadline(io_deadline, exit_before_start(io_deadline));
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
  return EarlierOptions{.configuration = std::move(*configuration),
                        .name = file.string(),
                        .source = has_checkpoint ? OptionSource::checkpoint : OptionSource::file,
                        .run = folder};
}

std::optional<EarlierOptions> before_in_file(const fs::path& checkpoint, bool names_data,
                                             const StoredConfiguration& configuration_of) {
  if (!configuration_of) return std::nullopt;
  try {
    return EarlierOptions{.configuration = configuration_of(checkpoint).configuration,
                          .name = fmt::format("the configuration in {}", checkpoint.string())};
  } catch (const UsageError&) {
    if (!names_data) throw;
    return std::nullopt;  // the code that resumes from it reports the error
  }
}

}  // namespace

void read_train_options(OptionTable& table, TrainOptions& options, const std::vector<std::string>& arguments,
                        std::string_view usage, std::string_view examples, ConfigFile file,
                        const StoredConfiguration& configuration_of) {
  if (options.network.source != nullptr) require_fitting_names(table, *options.network.source);
  const bool takes_file = file == ConfigFile::taken;
  const CommandLine line = read_command_line(table, arguments, takes_file);
  if (line.help) throw HelpRequested(network_help(table, options.network, line, usage, examples, takes_file));
  const auto give = [&] {
    if (!line.config.empty()) apply_ini_file(line.config, table);
    apply(line, table);
  };
  give();
  const Resume resume = options.run.resume;
  if (resume.from != Resume::From::nothing) {
    const bool names_data = table.find("data")->source() != OptionSource::default_value;
    const std::optional<EarlierOptions> before =
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

TrainOptions parse_train(const std::vector<std::string>& arguments, const StoredConfiguration& read_configuration) {
  std::optional<io::IoDeadline> deadline;
  StoredConfiguration configuration_of;
  if (read_configuration) {
    deadline.emplace(io_deadline_in(arguments), exit_before_start(io_deadline_in(arguments)));
    configuration_of = [&](const fs::path& checkpoint) {
      const io::IoDeadline::Operation reading(&*deadline, io::IoDeadline::Kind::reading, checkpoint);
      return read_configuration(checkpoint);
    };
  }
  const NamedNetwork named = find_network(arguments, configuration_of);
  TrainOptions options;
  options.network.source = named.source;
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

}  // namespace lockstep::app
