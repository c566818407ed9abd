#include <fmt/format.h>

#include "app/bench/bench_options.hpp"
#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kStepUsage =
    "Usage: mpirun -np RANKS lockstep bench step [options]\n"
    "\n"
    "Times training steps: shows samples per second and where the time goes.\n";
constexpr std::string_view kStepExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 2 lockstep bench step --hidden 100 --batch 100 --optimizer adam\n"
    "  mpirun -np 2 lockstep bench step --input data --data shards/fashion/train\n"
    "  mpirun -np 8 lockstep bench step --model gpt --sweep-buckets\n"
    "  lockstep bench step --model resnet --depth 50 --image 224x224x3 --plan plan.jsonl\n";

constexpr std::string_view kScaleUsage =
    "Usage: mpirun -np RANKS lockstep bench scale [options]\n"
    "\n"
    "Times training steps on the first 1, 2, 4 ... RANKS ranks of this job, in turn, while the others\n"
    "wait. Shows the speed-up with the same work per rank (weak scaling) and with the same total work\n"
    "(strong scaling), where the lost time goes, and which rank keeps the others waiting.\n";
constexpr std::string_view kScaleExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 8 lockstep bench scale --model resnet --image 32x32x3 --batch 64 --svg scale.svg\n"
    "  mpirun -np 8 lockstep bench scale --scaling strong --global-batch 1024 --worlds 2,4,8\n"
    "  mpirun -np 4 lockstep bench scale --input data --data shards/fashion/train --csv scale.csv\n";

constexpr std::string_view kCheckpointUsage =
    "Usage: mpirun -np RANKS lockstep bench checkpoint [options]\n"
    "\n"
    "Times checkpoints that are written during training steps: how long training pauses and how long a\n"
    "checkpoint takes until it is safe. Compares with plain writes of the same bytes to the same folder.\n";
constexpr std::string_view kCheckpointExamples =
    "\n"
    "Examples\n"
    "  lockstep bench checkpoint --state-mb 1000 --folder /scratch/me\n"
    "  mpirun -np 8 lockstep bench checkpoint --state-mb 0 --model gpt --optimizer adamw --folder runs\n"
    "      write the state of the network that is named\n";

void add_input_options(OptionTable& table, StepWork& work) {
  table.add_choice(
      "input", work.input, "FROM",
      "source of the samples: memory (random batches that stay in memory) or data (--data through the prefetcher)");
  table.add("features", work.features, "N", "numbers per sample (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  table.add("outputs", work.outputs, "N", "classes, words of the vocabulary, or numbers to predict (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  add_image_option(
      table, work.image,
      "shape of samples that are images, for networks that read them; instead of --features (--input memory)")
      .only_with("input", {"memory"});
  table.add("regression", work.regression, "predict numbers instead of a class (--input memory)")
      .only_with("input", {"memory"});
}

void add_work_options(OptionTable& table, StepWork& work) {
  add_data_options(table, work.train.data);
  add_network_options(table, work.train.network);
  add_loss_options(table, work.train.loss);
  add_optimizer_options(table, work.train.optimizer);
  add_learning_rate_options(table, work.train.schedule, work.train.work);
  add_tuning_options(table, work.train.tuning);
}

/// Parses and checks the arguments, after all rows are declared.
void parse(OptionTable& table, const std::vector<std::string>& arguments, std::string_view usage,
           std::string_view examples, StepWork& work) {
  add_execution_options(table, work.train.execution);
  add_step_options(table, work.train.execution);
  read_train_options(table, work.train, arguments, usage, examples, ConfigFile::none);
  if (work.input == InputFrom::data) {
    table.require("data", "--input data reads a shard folder");
  } else if (!work.train.data.path.empty()) {
    throw UsageError("--data has an effect only with --input data");
  }
}

}  // namespace

template <>
std::vector<Choice<InputFrom>> choices() {
  return {{"memory", InputFrom::memory}, {"data", InputFrom::data}};
}

template <>
std::vector<Choice<Scaling>> choices() {
  return {{"weak", Scaling::weak}, {"strong", Scaling::strong}, {"both", Scaling::both}};
}

BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments) {
  BenchStepOptions options;
  options.work.train.network.source = find_network(arguments).source;
  OptionTable table("lockstep bench step");
  table.group("Measurement");
  table.add("warmup", options.warmup, "STEPS", "steps before the clock starts").at_least(0);
  table.add("repeat", options.repeat, "STEPS", "steps to time").at_least(1);
  table.add("roof", options.roof,
            "also time a large matrix multiplication, and show the time of the step at that rate (roofline)");
  table
      .add("sweep-buckets", options.sweep_buckets,
           "also time other bucket sizes, in turn, and show what the fixed rule loses; training keeps the rule")
      .contradicts("bucket-size");
  table.add("json", options.json, "FILE", "also write the results to FILE, one JSON object per line");
  table.add("plan", options.plan, "FILE",
            "time nothing and allocate nothing; write the network's layers to FILE in the order of the backward pass, "
            "one JSON object per line (FLOPs per sample, ends of the gradients' slices)");
  add_input_options(table, options.work);
  add_work_options(table, options.work);
  add_batch_options(table, options.work.train.work);
  parse(table, arguments, kStepUsage, kStepExamples, options.work);
  return options;
}

BenchCheckpointOptions parse_bench_checkpoint(const std::vector<std::string>& arguments) {
  BenchCheckpointOptions options;
  options.work.train.network.source = find_network(arguments).source;
  options.work.train.work.batch = 16;
  OptionTable table("lockstep bench checkpoint");
  table.group("Measurement");
  table
      .add("state-mb", options.state_mb, "MB",
           "size of the state in 10^6 bytes: a linear network of that size; 0: the network of --model")
      .at_least(0)
      .at_most(1'000'000);
  table.add("repeat", options.repeat, "N", "checkpoints to time, in turn with plain writes; the table shows medians")
      .at_least(1)
      .at_most(1000);
  add_writers_option(table, options.work.train.run);
  table.add("folder", options.folder, "FOLDER",
            "folder to write in, in a subfolder that is removed afterwards; default: .");
  table.add("csv", options.csv, "FILE", "also write the rows to FILE");
  table.add("json", options.json, "FILE", "also write the rows to FILE, one JSON object per line");
  add_input_options(table, options.work);
  add_work_options(table, options.work);
  add_batch_options(table, options.work.train.work);
  parse(table, arguments, kCheckpointUsage, kCheckpointExamples, options.work);
  return options;
}

BenchScaleOptions parse_bench_scale(const std::vector<std::string>& arguments) {
  BenchScaleOptions options;
  options.work.train.network.source = find_network(arguments).source;
  WorkOptions& work = options.work.train.work;
  OptionTable table("lockstep bench scale");
  table.group("Measurement");
  table.add_choice(
      "scaling", options.scaling, "KIND",
      "kind of scaling: weak (--batch samples per rank) or strong (--global-batch samples, shared by the ranks)");
  table
      .add("worlds", options.worlds, "RANKS",
           "numbers of ranks to measure, comma-separated; default: 1, 2, 4 ... and all")
      .at_least(1);
  table.add("rounds", options.rounds, "N", "measurements at each number of ranks, in turn; the tables show the median")
      .at_least(1)
      .at_most(1000);
  table.add("warmup", options.warmup, "STEPS", "steps of each measurement before the clock starts").at_least(1);
  table
      .add("repeat", options.repeat, "STEPS",
           "steps to time in each measurement; 0: about a second's worth, at least 10")
      .at_least(0)
      .at_most(100000);
  table.add("csv", options.csv, "FILE", "also write the rows to FILE");
  table.add("json", options.json, "FILE", "also write the rows to FILE, one JSON object per line");
  table.add("svg", options.svg, "FILE", "draw the efficiency and the parts of a step's time in FILE");
  add_input_options(table, options.work);
  add_work_options(table, options.work);
  table.group("Amount of work");
  table.add("batch", work.batch, "SAMPLES", "weak scaling: samples per rank and micro-step").at_least(1);
  table
      .add("global-batch", options.global_batch, "SAMPLES",
           "strong scaling: samples per step, over all ranks and micro-steps; 0: those of weak scaling at the fewest "
           "ranks")
      .at_least(0);
  add_micro_step_options(table, work);
  parse(table, arguments, kScaleUsage, kScaleExamples, options.work);
  require_own_files(options.csv, options.json, options.svg);
  if (options.global_batch > 0 && options.scaling == Scaling::weak) {
    throw UsageError("--global-batch is for strong scaling: give --scaling strong or both, or --batch");
  }
  return options;
}

}  // namespace lockstep::app
