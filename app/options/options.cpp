#include "app/options/options.hpp"

#include <fmt/format.h>

#include "app/options/train_rows.hpp"

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

constexpr std::string_view kInfoUsage =
    "Usage: lockstep info PATH [options]\n"
    "\n"
    "Says what a shard folder, an HDF5 data file, a checkpoint or a run folder holds, and verifies its\n"
    "checksums. Exit code 1 when something is damaged.\n";

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
  read_options(table, arguments, kEvalUsage, kEvalExamples);
  table.check_relations();
  table.require("checkpoint", "name a checkpoint file or a run folder");
  options.average_set = table.find("average")->source() != OptionSource::default_value;
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
  read_options(table, arguments, kInfoUsage, "");
  table.require("path", "name a shard folder, a checkpoint or a run folder");
  return options;
}

std::string program_version() { return LOCKSTEP_VERSION; }

std::string program_help() {
  return fmt::format(
      "lockstep {} trains neural networks on many processes as if they were one.\n"
      "Start it with mpirun for many ranks, without for one: the numbers are the same.\n"
      "\n"
      "  lockstep pack              turn raw data (images, text, tables) into HDF5 shards\n"
      "  lockstep train             train a network on shards; checkpoint and resume\n"
      "  lockstep eval              evaluate a checkpoint on a dataset\n"
      "  lockstep generate          let a trained language model write text\n"
      "  lockstep bench step        time training steps and say where the time goes\n"
      "  lockstep bench scale       time them on 1, 2, 4 ... ranks of the job: how well it scales\n"
      "  lockstep bench checkpoint  time checkpoints, beside plain writes of the same bytes\n"
      "  lockstep bench input       time the reading of shards beside raw reads of the same bytes\n"
      "  lockstep bench all-reduce  time all-reduces over all ranks, and check them\n"
      "  lockstep check             before a job: hosts, network, data, memory and disk, in seconds\n"
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
