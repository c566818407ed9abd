#include <algorithm>

#include <fmt/format.h>

#include "app/bench_all_reduce.hpp"
#include "app/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kAllReduceUsage =
    "Usage: mpirun -np RANKS lockstep bench all-reduce [options]\n"
    "\n"
    "Times sums over all ranks, of growing size, through every way the ranks have: shared memory and the\n"
    "ring between CPUs, NCCL between GPUs. Checks every element.\n";
constexpr std::string_view kAllReduceExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 4 lockstep bench all-reduce\n"
    "  mpirun -np 8 lockstep bench all-reduce --device gpu --min 1024 --max 268435456 --csv nccl.csv\n"
    "  mpirun -np 2 lockstep bench all-reduce --device cpu --transport ring --factor 2\n";

}  // namespace

BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments) {
  BenchAllReduceOptions options;
  ExecutionOptions& execution = options.execution;
  OptionTable table("lockstep bench all-reduce");
  table.group("What is timed");
  table.add("min", options.min, "ELEMENTS", "the smallest sum").at_least(1);
  table.add("max", options.max, "ELEMENTS", "the largest").at_least(1).at_most(4e9);
  table.add("factor", options.factor, "N", "from one size to the next").at_least(2);
  table.add("warmup", options.warmup, "SUMS", "sums of each size before the clock starts").at_least(0);
  table.add("repeat", options.repeat, "BATCHES", "batches of sums timed of each size; the table has their median")
      .at_least(1)
      .at_most(10000);
  table.add("csv", options.csv, "FILE", "also write the rows there");
  table.add("json", options.json, "FILE", "also write the rows there, one JSON object a line");
  table.group("Where");
  table
      .add("device", execution.device, "WHERE",
           "cpu: between host memories; gpu: between GPUs, or fail; auto: both, where every rank has a GPU")
      .one_of({"auto", "cpu", "gpu"});
  table
      .add("transport", execution.transport, "NAME",
           "between host memories; auto: each that these ranks have, shared memory where all share a host")
      .one_of({"auto", "shared-memory", "ring"});
  table.add("ring", execution.ring, "GPUs: NCCL's ring and no other algorithm").only_with("device", {"auto", "gpu"});
  table.add("graph", execution.graphs, "GPUs: record a batch of sums once (CUDA graphs) and replay it")
      .only_with("device", {"auto", "gpu"});
  table.add("share-gpu", execution.share_gpu, "let several ranks use one GPU: slow, for tests")
      .only_with("device", {"auto", "gpu"});
  table
      .add("deadline", execution.deadline, "SECONDS",
           "a rank that is silent for longer is called dead and ends the job")
      .above(0);

  const CommandLine line = read_command_line(table, arguments, false);
  if (line.help) throw HelpRequested(format_help(table, kAllReduceUsage, kAllReduceExamples, false));
  apply(line, table);
  table.check_relations();
  if (table.find("min")->source() == OptionSource::default_value) options.min = std::min(options.min, options.max);
  if (options.min > options.max) {
    throw UsageError(fmt::format("--min {} is more than --max {}", options.min, options.max));
  }
  if (!options.csv.empty() && options.csv == options.json) {
    throw UsageError(fmt::format("--csv and --json are both {}: give them files of their own", options.csv.string()));
  }
  return options;
}

}  // namespace lockstep::app
