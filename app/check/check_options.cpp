#include "app/check/check_options.hpp"

#include <fmt/format.h>

#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

/// Options of train without effect on the check. They are accepted, so that a job's command line can stay as it is.
constexpr std::string_view kWithoutEffect[] = {"shuffle",
                                               "label-smoothing",
                                               "momentum",
                                               "trust",
                                               "beta1",
                                               "beta2",
                                               "epsilon",
                                               "l2",
                                               "weight-decay",
                                               "clip-norm",
                                               "clip-value",
                                               "learning-rate",
                                               "decay-rate",
                                               "decay-steps",
                                               "staircase",
                                               "final-learning-rate",
                                               "power",
                                               "seed",
                                               "evaluate-average",
                                               "min-delta",
                                               "roll-back-factor",
                                               "time-limit",
                                               "report-every",
                                               "tensorboard",
                                               "histograms-every",
                                               "progress"};

constexpr std::string_view kCheckUsage =
    "Usage: mpirun -np RANKS lockstep check [PATH] [options of train]\n"
    "\n"
    "Checks hosts, program, cores, devices, network, clocks, data, memory and disk before a job, in\n"
    "seconds. Prints OK, or a list of what to fix (exit code 1). Start it like the job, with the same\n"
    "launcher and options: only `train` becomes `check`. PATH is the training data (--data). The options\n"
    "below have an effect here; the other options of train are accepted and ignored.\n";

constexpr std::string_view kCheckExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 8 lockstep check\n"
    "      check only hosts and network\n"
    "  mpirun -np 8 lockstep check --data shards/fashion --model mlp --run runs/adam\n"
    "  mpirun -np 8 lockstep check --config runs/adam/config.ini --json check.jsonl\n";

}  // namespace

CheckOptions parse_check(const std::vector<std::string>& arguments) {
  CheckOptions options;
  NamedNetwork named = find_network(arguments);
  options.train.network.source = std::move(named.source);
  options.train.execution.deadline = 20;  // in seconds; shorter than that of a job
  OptionTable table("lockstep check");
  table.group("Check");
  table
      .add("seconds", options.seconds, "SECONDS",
           "approximate time to measure the network, all pairs of hosts together")
      .above(0)
      .at_most(3600);
  table.add("json", options.json, "FILE", "also write the results to FILE, one JSON object per line");
  add_train_options(table, options.train);
  table.find("data")->positional();
  for (const std::string_view name : kWithoutEffect) table.find(name)->hide();
  read_train_options(table, options.train, named.arguments, kCheckUsage, kCheckExamples, ConfigFile::taken);
  return options;
}

std::string CheckOptions::to_ini() const {
  return fmt::format("{}seconds = {}\njson = {}\n", train.to_ini(), seconds, json.string());
}

}  // namespace lockstep::app
