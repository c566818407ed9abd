#include "app/runs/sweep_options.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kSweepUsage =
    "Usage: lockstep sweep SETTINGS --run FOLDER [options of train]\n"
    "\n"
    "Trains once with each line of the file SETTINGS. A line has options of `lockstep train`, separated\n"
    "by blanks. All options of train are also accepted on the command line, for all lines; those in a\n"
    "line win. Line N trains in FOLDER/N; empty lines and lines that begin with # do not count. The sweep\n"
    "ends with a ranking. The same command continues an interrupted sweep. Several sweeps with the same\n"
    "FOLDER, also on several machines that share it, divide the lines among them.\n";
constexpr std::string_view kSweepExamples =
    "\n"
    "Examples\n"
    "  lockstep sweep settings.txt --data shards/fashion --epochs 10 --run runs/sweep\n"
    "  lockstep sweep settings.txt --data shards/fashion --epochs 16 --run runs/halved --halving\n"
    "      with 8 lines, train 8 for 2 epochs, the best 4 for 4, the best 2 for 8, and one for 16\n"
    "  lockstep sweep settings.txt --data shards/fashion --run runs/sweep --launch \"mpirun -np 4\"\n"
    "  lockstep report runs/sweep --out sweep.html\n";

/// Options that the sweep sets for each of its trainings.
constexpr std::array<std::string_view, 4> kOwnOfSweep{"run", "resume", "stop-at", "force"};

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<std::string> lines_of_settings(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream || std::filesystem::is_directory(file)) {
    throw UsageError(fmt::format("the settings {} cannot be read: a text file with a line of options for each training",
                                 file.string()));
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    const std::string_view text = trimmed(line);
    if (!text.empty() && text.front() != '#') lines.emplace_back(text);
  }
  if (lines.empty()) throw UsageError(fmt::format("{} has no line of options", file.string()));
  return lines;
}

}  // namespace

SweepOptions parse_sweep(const std::vector<std::string>& arguments) {
  SweepOptions options;
  std::string launch;
  const auto add_own = [&](OptionTable& table) {
    table.group("Sweep");
    table
        .add("settings", options.settings, "FILE",
             "file with one line of options per training; the name --settings may be omitted")
        .positional();
    table.add("launch", launch, "COMMAND",
              "command to start each training with: \"mpirun -np 4\", \"srun\"; default: none, for one rank");
    table.add("halving", options.halving,
              "successive halving: train all lines for a part of the steps, continue the better half for twice as "
              "many, and so on until one line has made all steps");
  };
  OptionTable own("lockstep sweep"), all("lockstep sweep");
  TrainOptions train;
  train.network.source = find_network(arguments).source;
  add_own(own);
  own.add("run", train.run.folder, "FOLDER", "folder for the runs: line N trains in FOLDER/N");
  add_own(all);
  add_train_options(all, train);
  const CommandLine line = read_command_line(all, arguments, true);
  if (line.help) throw HelpRequested(make_help(own, kSweepUsage, kSweepExamples, true));
  std::vector<CommandLine::Given> common;
  for (const CommandLine::Given& given : line.options) {
    if (Option* const option = own.find(given.name)) {
      option->assign(given.value, OptionSource::command_line, given.spelled);
    } else if (std::find(kOwnOfSweep.begin(), kOwnOfSweep.end(), given.name) != kOwnOfSweep.end()) {
      throw UsageError(fmt::format("{} is no option of a sweep: it goes on by itself", given.spelled));
    } else {
      common.push_back(given);
    }
  }
  own.require("settings", "name a file with a line of options for each training");
  own.require("run", "name a folder for the runs");
  options.run = train.run.folder;
  std::error_code none;
  const bool is_program = std::filesystem::is_regular_file(launch, none);  // its path may contain blanks
  options.launch = is_program ? std::vector{launch} : words_in(launch);
  for (const std::string& text : lines_of_settings(options.settings)) {
    SweepSetting& setting = options.lines.emplace_back();
    setting.line = text;
    const std::string where = fmt::format("{}, setting {}", options.settings.string(), options.lines.size());
    try {
      TrainOptions its_train;  // a line may name its own network
      its_train.network.source = find_network(words_in(text)).source;
      if (its_train.network.source == nullptr) its_train.network.source = train.network.source;
      OptionTable its_table("lockstep sweep");
      add_own(its_table);
      add_train_options(its_table, its_train);
      const CommandLine its = read_command_line(its_table, words_in(text), false);
      for (const CommandLine::Given& given : its.options) {
        const bool of_sweep = own.find(given.name) != nullptr ||
                              std::find(kOwnOfSweep.begin(), kOwnOfSweep.end(), given.name) != kOwnOfSweep.end();
        if (of_sweep) throw UsageError(fmt::format("{} is not for a single line of a sweep", given.spelled));
      }
      if (!line.config.empty()) setting.arguments.push_back("--config=" + line.config);
      for (const CommandLine::Given& given : common) {
        const bool wins = std::none_of(its.options.begin(), its.options.end(),
                                       [&](const CommandLine::Given& other) { return other.name == given.name; });
        if (wins) setting.arguments.push_back(fmt::format("--{}={}", given.name, given.value));
      }
      for (const CommandLine::Given& given : its.options) {
        setting.arguments.push_back(fmt::format("--{}={}", given.name, given.value));
      }
      setting.options = parse_train(setting.arguments);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{} ({}): {}", where, text, error.what()));
    }
  }
  return options;
}

}  // namespace lockstep::app
