#include "app/bench/bench_options.hpp"
#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kBenchInputUsage =
    "Usage: mpirun -np RANKS lockstep bench input --data FOLDER [options]\n"
    "\n"
    "Times the reading of shards in training order, and raw reads of the same bytes by all ranks at once.\n"
    "Shows the training rate above which a job would wait for its input.\n";

constexpr std::string_view kBenchInputExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 4 lockstep bench input --data shards/fashion --batch 256\n"
    "  mpirun -np 8 lockstep bench input --data shards/imagenet --model resnet --cold --compute-ms 80\n"
    "      read from disk, not from the cache, and see if 80 ms of computation per batch hide the reading\n"
    "  mpirun -np 4 lockstep bench input --data shards/text --model gpt --context 256 --csv input.csv\n";

}  // namespace

BenchInputOptions parse_bench_input(const std::vector<std::string>& arguments) {
  BenchInputOptions options;
  options.train.network.source = find_network(arguments).source;
  OptionTable table("lockstep bench input");
  table.group("Measurement");
  table
      .add("steps", options.steps, "STEPS",
           "steps per part; 0: as many as read 256 MiB over all ranks, but for about 2 s at most; with --cold at most "
           "an epoch")
      .at_least(0);
  table
      .add("repeat", options.repeat, "PARTS", "parts to time for each way of reading, in turn; the table shows medians")
      .at_least(1)
      .at_most(1000);
  table.add("compute-ms", options.compute_ms, "MS", "keep the core busy for this long after each batch; 0: off")
      .at_least(0);
  table.add("cold", options.cold, "ask the system to drop the files from its cache before each part (posix_fadvise)");
  table.add("csv", options.csv, "FILE", "also write the rows to FILE");
  table.add("json", options.json, "FILE", "also write the rows to FILE, one JSON object per line");
  add_data_options(table, options.train.data);
  add_network_options(table, options.train.network);
  add_loss_options(table, options.train.loss);
  add_batch_options(table, options.train.work);
  table.group("Execution");
  add_deadline_options(table, options.train.execution);
  read_train_options(table, options.train, arguments, kBenchInputUsage, kBenchInputExamples, ConfigFile::none);
  table.require("data", "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

}  // namespace lockstep::app
