#include "app/bench_input.hpp"
#include "app/options_train.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kUsage =
    "Usage: mpirun -np RANKS lockstep bench input --data FOLDER [options]\n"
    "\n"
    "Times the reading of shards in the order of training, beside raw reads of the same bytes by all ranks\n"
    "at once, and says from which rate on a job would wait for its input.\n";

constexpr std::string_view kExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 4 lockstep bench input --data shards/fashion --batch 256\n"
    "  mpirun -np 8 lockstep bench input --data shards/imagenet --model resnet --cold --compute-ms 80\n"
    "      the files out of memory before each part; do 80 ms a batch hide the reading?\n"
    "  mpirun -np 4 lockstep bench input --data shards/text --model gpt --context 256 --csv input.csv\n";

}  // namespace

BenchInputOptions parse_bench_input(const std::vector<std::string>& arguments) {
  BenchInputOptions options;
  TrainOptions& train = options.train;
  OptionTable table("lockstep bench input");
  table.group("What is timed");
  table.add("steps", options.steps, "STEPS", "read in a part; 0: 256 MiB over all ranks, cold an epoch at most")
      .at_least(0);
  table.add("repeat", options.repeat, "PARTS", "parts of each way of reading, in turn; the table has their medians")
      .at_least(1)
      .at_most(1000);
  table.add("compute-ms", options.compute_ms, "MS", "also keep the core busy for so long after each batch; 0: do not")
      .at_least(0);
  table.add("cold", options.cold, "ask the system to forget the files before each part (posix_fadvise)");
  table.add("csv", options.csv, "FILE", "also write the rows there");
  table.add("json", options.json, "FILE", "also write the rows there, one JSON object a line");
  add_data_options(table, train);
  add_network_options(table, train);
  add_batch_options(table, train);
  table.group("Execution");
  table
      .add("deadline", train.execution.deadline, "SECONDS",
           "a rank that is silent for longer is called dead and ends the job")
      .above(0);
  const CommandLine line = read_command_line(table, arguments, false);
  if (line.help) throw HelpRequested(format_help(table, kUsage, kExamples, false));
  apply(line, table);
  apply_network_defaults(train, table);
  table.check_relations();
  table.require("data", "name a shard folder that `lockstep pack` made, or an HDF5 file");
  train.explicitly_set = table.given();
  return options;
}

}  // namespace lockstep::app
