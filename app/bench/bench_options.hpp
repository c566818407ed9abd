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
  memory,  ///< resident random batches, like the PyTorch peer
  data,    ///< --data through the prefetcher
};

/// The steps that a benchmark times: network, optimiser, batch and execution as in train, and the source of samples.
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
  bool roof = true;                        ///< measure a large GEMM, too, for the roofline
  bool sweep_buckets = false;              ///< measure with other bucket sizes, too
  std::filesystem::path json;              ///< file for the figures; "": none
  std::filesystem::path plan;              ///< file for the layers, which is then written instead of timing anything
};

/// The quantity that stays the same as ranks are added.
enum class Scaling {
  weak,    ///< each rank's samples
  strong,  ///< all ranks' samples together
  both,    ///< one after the other
};

struct BenchScaleOptions {
  StepWork work;
  Scaling scaling = Scaling::both;
  std::vector<std::int64_t> worlds;      ///< empty: 1, 2, 4 … and all ranks
  std::int64_t global_batch = 0;         ///< samples of strong scaling; 0: as weak scaling in the smallest world
  std::int64_t rounds = 3;               ///< visits to each world
  std::int64_t warmup = 5;               ///< steps of a visit before the clock starts
  std::int64_t repeat = 0;               ///< steps timed in a visit; 0: about a second's worth
  std::filesystem::path csv, json, svg;  ///< files for the rows
};

struct BenchInputOptions {
  TrainOptions train;       ///< data, network and batch as in train
  std::int64_t steps = 0;   ///< steps per part; 0: as many as read 256 MiB over all ranks; cold: an epoch at most
  std::int64_t repeat = 5;  ///< parts of each way of reading, in turns
  double compute_ms = 0;    ///< > 0: also measured with this much computing after each batch
  bool cold = false;        ///< forget the page cache before each part
  std::filesystem::path csv, json;
};

struct BenchCheckpointOptions {
  StepWork work;
  std::int64_t state_mb = 256;   ///< > 0: 10^6 bytes of a linear network that replaces work's
  std::int64_t repeat = 5;       ///< checkpoints, and plain writes between them
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

/// Reads names with commas between them, in any order; a name given twice counts once. Throws std::invalid_argument
/// that says what is wrong with `text` and lists all valid names.
std::vector<AllReduceAlgorithm> parse_algorithms(const std::string& text);

/// Repetitions of each size and algorithm.
struct Repetitions {
  std::int64_t warmup = 5;  ///< all-reduces before the clock starts; at most as many as fit in a second
  std::int64_t repeat = 0;  ///< batches timed; 0: as many as fit in a second, 3 to 100
};

struct BenchAllReduceOptions {
  std::int64_t min = 2, max = 67'108'864;  ///< elements
  bool max_given = false;                  ///< otherwise `max` is limited by memory
  std::int64_t factor = 4;                 ///< ratio of neighbouring sizes
  Repetitions repetitions;
  std::vector<AllReduceAlgorithm> algorithms;  ///< empty: all that these ranks support
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
