#include <fmt/format.h>

#include "app/bench_scale.hpp"
#include "app/option_table.hpp"
#include "app/options_train.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kStepUsage =
    "Usage: mpirun -np RANKS lockstep bench step [options]\n"
    "\n"
    "Times training steps: samples per second, and where the time goes.\n";
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
    "Times training steps on the first 1, 2, 4 ... RANKS ranks of this job, in turns, while the others\n"
    "wait: how much faster more ranks are, with as much work for each (weak scaling) and with as much in\n"
    "all (strong scaling), what the lost time goes to, and which rank keeps the others waiting.\n";
constexpr std::string_view kScaleExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 8 lockstep bench scale --model resnet --image 32x32x3 --batch 64 --svg scale.svg\n"
    "  mpirun -np 8 lockstep bench scale --scaling strong --global-batch 1024 --worlds 2,4,8\n"
    "  mpirun -np 4 lockstep bench scale --input data --data shards/fashion/train --csv scale.csv\n";

void add_input_options(OptionTable& table, StepWork& work) {
  table
      .add("input", work.input, "FROM",
           "memory: random batches that stay in memory; data: --data through the prefetcher")
      .one_of({"memory", "data"});
  table.add("features", work.features, "N", "numbers per sample (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  table.add("outputs", work.outputs, "N", "classes, words of a vocabulary, or numbers to predict (--input memory)")
      .at_least(1)
      .only_with("input", {"memory"});
  table
      .add("image", work.image, "HxWxC",
           "samples are images, for cnn and resnet; instead of --features (--input memory)")
      .only_with("input", {"memory"});
  table.add("regression", work.regression, "predict numbers, not a class (--input memory)")
      .only_with("input", {"memory"});
}

void add_work_options(OptionTable& table, StepWork& work) {
  add_data_options(table, work.train);
  add_network_options(table, work.train);
  add_optimizer_options(table, work.train);
  add_learning_rate_options(table, work.train);
}

/// All that is left once the rows are declared.
void parse(OptionTable& table, const std::vector<std::string>& arguments, std::string_view usage,
           std::string_view examples, StepWork& work) {
  add_execution_options(table, work.train.execution);
  add_step_options(table, work.train);
  const CommandLine line = read_command_line(table, arguments, false);
  if (line.help) throw HelpRequested(format_help(table, usage, examples, false));
  apply(line, table);
  apply_network_defaults(work.train, table);
  table.check_relations();
  if (work.input == "data") {
    table.require("data", "--input data reads a shard folder");
  } else if (!work.train.data.empty()) {
    throw UsageError("--data has an effect only with --input data");
  }
  if (work.train.schedule == "step" && work.train.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  work.train.explicitly_set = table.given();
}

}  // namespace

BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments) {
  BenchStepOptions options;
  OptionTable table("lockstep bench step");
  table.group("What is timed");
  table.add("warmup", options.warmup, "STEPS", "steps before the clock starts").at_least(0);
  table.add("repeat", options.repeat, "STEPS", "steps timed").at_least(1);
  table
      .add("sweep-buckets", options.sweep_buckets,
           "also with other bucket sizes, in turns: what the fixed rule gives away. Training goes on by the rule")
      .contradicts("bucket-size");
  table.add("json", options.json, "FILE", "also write the figures there, one JSON object a line");
  table.add("plan", options.plan, "FILE",
            "time nothing and take no memory: write there what the network is made of, a JSON object a line for each "
            "layer in the order of the backward pass (FLOPs per sample, where the slices of its gradients end)");
  add_input_options(table, options.work);
  add_work_options(table, options.work);
  add_batch_options(table, options.work.train);
  parse(table, arguments, kStepUsage, kStepExamples, options.work);
  return options;
}

BenchScaleOptions parse_bench_scale(const std::vector<std::string>& arguments) {
  BenchScaleOptions options;
  TrainOptions& train = options.work.train;
  OptionTable table("lockstep bench scale");
  table.group("What is timed");
  table
      .add("scaling", options.scaling, "KIND",
           "weak: --batch samples per rank; strong: --global-batch samples, shared by the ranks")
      .one_of({"weak", "strong", "both"});
  table.add("worlds", options.worlds, "RANKS", "numbers of ranks, comma-separated; default: 1, 2, 4 ... and all")
      .at_least(1);
  table.add("rounds", options.rounds, "N", "visits to each number of ranks, in turns; the tables have the median")
      .at_least(1)
      .at_most(1000);
  table.add("warmup", options.warmup, "STEPS", "steps of a visit before the clock starts").at_least(1);
  table.add("repeat", options.repeat, "STEPS", "steps timed in a visit; 0: as many as take about a second, at least 10")
      .at_least(0)
      .at_most(100000);
  table.add("csv", options.csv, "FILE", "also write the rows there");
  table.add("json", options.json, "FILE", "also write the rows there, one JSON object a line");
  table.add("svg", options.svg, "FILE", "also draw them there: efficiency, and what a step's time goes to");
  add_input_options(table, options.work);
  add_work_options(table, options.work);
  table.group("Amount of work");
  table.add("batch", train.batch, "SAMPLES", "weak scaling: per rank and micro-step").at_least(1);
  table
      .add("global-batch", options.global_batch, "SAMPLES",
           "strong scaling: per step, over all ranks and micro-steps; 0: what weak scaling has at the fewest ranks")
      .at_least(0);
  table.add("accumulate", train.accumulate, "N", "micro-steps per step: gradients are summed over N batches")
      .at_least(1)
      .at_most(1000000);
  table.add("seed", train.seed, "N", "of initial weights and sample order; the same at any number of ranks");
  parse(table, arguments, kScaleUsage, kScaleExamples, options.work);
  const auto clash = [](const std::filesystem::path& a, const std::filesystem::path& b) {
    return !a.empty() && a == b;
  };
  if (clash(options.csv, options.json) || clash(options.csv, options.svg) || clash(options.json, options.svg)) {
    throw UsageError("--csv, --json and --svg need files of their own");
  }
  if (options.global_batch > 0 && options.scaling == "weak") {
    throw UsageError("--global-batch is for strong scaling: give --scaling strong or both, or --batch");
  }
  return options;
}

}  // namespace lockstep::app
