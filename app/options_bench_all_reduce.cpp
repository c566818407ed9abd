#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "app/bench_all_reduce.hpp"
#include "app/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kAllReduceUsage =
    "Usage: mpirun -np RANKS lockstep bench all-reduce [options]\n"
    "\n"
    "Times sums over all ranks, of growing size, through every way the ranks have: the ring, two-level\n"
    "sums and shared memory between CPUs, MPI_Allreduce beside them, NCCL between GPUs. Checks every\n"
    "element.\n";
constexpr std::string_view kAllReduceExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 4 lockstep bench all-reduce\n"
    "  mpirun -np 8 lockstep bench all-reduce --link-gbps 100 --csv sums.csv --svg sums.svg\n"
    "  mpirun -np 2 lockstep bench all-reduce --ways ring,mpi --min 1024 --max 1048576 --factor 2\n"
    "  mpirun -np 8 lockstep bench all-reduce --device gpu --max 268435456\n";

void require_different_files(const BenchAllReduceOptions& options) {
  struct Named {
    const char* option;
    const std::filesystem::path& file;
  };
  const Named files[] = {{"csv", options.csv}, {"json", options.json}, {"svg", options.svg}};
  for (const Named& one : files) {
    for (const Named& other : files) {
      if (&one < &other && !one.file.empty() && one.file == other.file) {
        throw UsageError(fmt::format("--{} and --{} are both {}: give them files of their own", one.option,
                                     other.option, one.file.string()));
      }
    }
  }
}

}  // namespace

BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments) {
  BenchAllReduceOptions options;
  ExecutionOptions& execution = options.execution;
  OptionTable table("lockstep bench all-reduce");
  table.group("What is timed");
  table.add("min", options.min, "ELEMENTS", "the smallest sum").at_least(1);
  table.add("max", options.max, "ELEMENTS", "the largest").at_least(1).at_most(1e12);
  table.add("factor", options.factor, "N", "from one size to the next").at_least(2);
  table
      .add("ways", options.ways, "NAMES",
           "which ways to sum, with commas between: ring, two-level, shared-memory, mpi, nccl; auto: all there are")
      .check([](const std::string& text) -> std::string {
        try {
          if (text != "auto") parse_ways(text);
        } catch (const std::invalid_argument& error) {
          return error.what();
        }
        return "";
      });
  table
      .add("warmup", options.repetitions.warmup, "SUMS",
           "sums of each size before the clock starts, a second of them at most")
      .at_least(0);
  table
      .add("repeat", options.repetitions.repeat, "BATCHES",
           "batches of sums timed of each size and way; 0: a second of them, 3 to 100")
      .at_least(0)
      .at_most(10000);
  table
      .add("link-gbps", options.link_gbps, "GBIT/S",
           "what a host's link carries each way: shows what it allows at best, and how much of that is reached")
      .above(0);
  table.add("csv", options.csv, "FILE", "also write the rows there");
  table.add("json", options.json, "FILE", "also write the rows there, one JSON object a line");
  table.add("svg", options.svg, "FILE", "draw bus bandwidth over size there");
  table.group("Where");
  table
      .add("device", execution.device, "WHERE",
           "cpu: between host memories; gpu: between GPUs, or fail; auto: both, where every rank has a GPU")
      .one_of({"auto", "cpu", "gpu"});
  table
      .add("wire", execution.wire, "NAME",
           "how elements travel by the ways that are not MPI's: fp32, or bf16 (half the bytes, rounded)")
      .one_of({"fp32", "bf16"});
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
  options.max_given = table.find("max")->source() != OptionSource::default_value;
  require_different_files(options);
  if (options.ways != "auto") {
    const std::vector<WayKind> kinds = parse_ways(options.ways);
    const bool nccl = std::find(kinds.begin(), kinds.end(), WayKind::nccl) != kinds.end();
    if (nccl && execution.device == "cpu") throw UsageError("--ways nccl is between GPUs, and --device is cpu");
    if (execution.device == "gpu" && kinds != std::vector{WayKind::nccl}) {
      throw UsageError(fmt::format("--device gpu leaves nothing but --ways nccl, and --ways is {}", options.ways));
    }
    if (!nccl && execution.device == "auto") execution.device = "cpu";  // no GPU is looked for
  }
  return options;
}

}  // namespace lockstep::app
