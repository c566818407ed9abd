#include "app/bench/bench_options.hpp"
#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kBenchInputUsage =
    "Usage: mpirun -np RANKS lockstep bench input --data FOLDER [options]\n"
    "\n"
    "Times the reading of shards in the order of training, beside raw reads of the same bytes by all ranks\n"
    "at once, and says from which rate on a job would wait for its input.\n";

constexpr std::string_view kBenchInputExamples =
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
  train.network.source = find_network(arguments).source;
  OptionTable table("lockstep bench input");
  table.group("What is timed");
  table.add("steps", options.steps, "STEPS", "steps per part; 0: 256 MiB over all ranks, with --cold one epoch at most")
      .at_least(0);
  table.add("repeat", options.repeat, "PARTS", "parts timed of each way of reading, in turns; the table shows medians")
      .at_least(1)
      .at_most(1000);
  table.add("compute-ms", options.compute_ms, "MS", "keep the core busy for this long after each batch; 0: off")
      .at_least(0);
  table.add("cold", options.cold, "ask the system to forget the files before each part (posix_fadvise)");
  table.add("csv", options.csv, "FILE", "also write the rows there");
  table.add("json", options.json, "FILE", "also write the rows there, one JSON object a line");
  add_data_options(table, train.data);
  add_network_options(table, train.network);
  add_loss_options(table, train.loss);
  add_batch_options(table, train.work);
  table.group("Execution");
  add_deadline_options(table, train.execution);
  read_train_options(table, train, arguments, kBenchInputUsage, kBenchInputExamples, ConfigFile::none);
  table.require("data", "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

}  // namespace lockstep::app
