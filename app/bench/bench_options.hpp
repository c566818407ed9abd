/// \file
/// The options of the benchmarks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/choices.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

/// Source of the samples of a timed step.
enum class InputFrom {
  memory,  ///< random batches that stay in memory, as in the PyTorch comparison
  data,    ///< --data through the prefetcher
};

/// The steps that a benchmark times: network, optimiser, batch and execution as in train, and the source of the
/// samples.
struct StepWork {
  TrainOptions train;
  InputFrom input = InputFrom::memory;
  std::int64_t features = 784, outputs = 10;
  std::optional<model::ImageShape> image = {};  ///< samples are images of this shape; nullopt: plain features
  bool regression = false;
};

struct BenchStepOptions {
  StepWork work;
  std::int64_t warmup = 20, repeat = 200;  ///< steps
  bool roof = true;                        ///< also measure a large GEMM for the roofline
  bool sweep_buckets = false;              ///< also measure other bucket sizes
  std::filesystem::path json;              ///< file for the figures; "": none
  std::filesystem::path plan;              ///< file for a description of the layers; if given, nothing is timed
};

/// The quantity that stays the same as ranks are added.
enum class Scaling {
  weak,    ///< number of samples per rank
  strong,  ///< number of samples of all ranks
  both,    ///< weak, then strong
};

struct BenchScaleOptions {
  StepWork work;
  Scaling scaling = Scaling::both;
  std::vector<std::int64_t> worlds;  ///< numbers of ranks; empty: 1, 2, 4 … and all
  /// Samples per step of strong scaling; 0: as in weak scaling with the fewest ranks.
  std::int64_t global_batch = 0;
  std::int64_t rounds = 3;               ///< visits to each number of ranks
  std::int64_t warmup = 5;               ///< untimed steps at the beginning of a visit
  std::int64_t repeat = 0;               ///< timed steps in a visit; 0: as many as take about a second
  std::filesystem::path csv, json, svg;  ///< files for the rows
};

struct BenchInputOptions {
  TrainOptions train;       ///< data, network and batch as in train
  std::int64_t steps = 0;   ///< steps per part; 0: 256 MiB over all ranks; with `cold`, at most an epoch
  std::int64_t repeat = 5;  ///< parts for each way of reading; the ways take turns
  double compute_ms = 0;    ///< if > 0, also measure with a computation of this length after each batch
  bool cold = false;        ///< drop the files from the page cache before each part
  std::filesystem::path csv, json;
};

struct BenchCheckpointOptions {
  StepWork work;
  /// If > 0, use a linear network with a state of this number of 10^6 bytes instead of work's.
  std::int64_t state_mb = 256;
  std::int64_t repeat = 5;       ///< number of checkpoints, and of plain writes between them
  std::filesystem::path folder;  ///< parent of the scratch folder, which is removed at the end
  std::filesystem::path csv, json;
};

/// Algorithm that sums over all ranks.
enum class AllReduceAlgorithm { ring, two_level, shared_memory, mpi, iallreduce, nccl, doubling, halving, ring_only };

template <>
std::vector<Choice<InputFrom>> choices();
template <>
std::vector<Choice<Scaling>> choices();
template <>
std::vector<Choice<AllReduceAlgorithm>> choices();

/// Parses names separated by commas, in any order; a repeated name counts once. Throws std::invalid_argument that says
/// what is wrong with `text` and lists all valid names.
std::vector<AllReduceAlgorithm> parse_algorithms(const std::string& text);

/// Repetitions of each size and algorithm.
struct Repetitions {
  std::int64_t warmup = 5;  ///< untimed all-reduces first; at most as many as fit in a second
  std::int64_t repeat = 0;  ///< timed batches; 0: as many as fit in a second, 3 to 100
};

struct BenchAllReduceOptions {
  std::int64_t min = 2, max = 67'108'864;  ///< elements
  bool max_given = false;                  ///< the user gave `max`; otherwise memory limits it
  std::int64_t factor = 4;                 ///< ratio of neighbouring sizes
  Repetitions repetitions;
  std::vector<AllReduceAlgorithm> algorithms;  ///< empty: all algorithms that these ranks support
  std::optional<double> link_gbps;             ///< speed of a host's link in each direction
  std::filesystem::path csv, json, svg;        ///< files for the rows and for a chart
  ExecutionOptions execution;
};

/// Parse argv without the program name and the subcommand. Throw UsageError or HelpRequested.
BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments);
BenchScaleOptions parse_bench_scale(const std::vector<std::string>& arguments);
BenchInputOptions parse_bench_input(const std::vector<std::string>& arguments);
BenchCheckpointOptions parse_bench_checkpoint(const std::vector<std::string>& arguments);
BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
