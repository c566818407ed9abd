/// \file
/// What the benchmarks and the preflight check are told to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"

namespace lockstep::app {

/// Where the samples of a timed step come from.
enum class InputFrom {
  memory,  ///< resident random batches, as the PyTorch peer
  data,    ///< --data through the prefetcher
};

/// The steps that a benchmark times: network, optimiser, batch and execution as in train, and where samples come from.
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
  bool roof = true;                        ///< also a large GEMM, for the roofline
  bool sweep_buckets = false;              ///< also with other bucket sizes
  std::filesystem::path json;              ///< also write the figures there
  std::filesystem::path plan;              ///< write the layers there instead of timing anything
};

/// What stays the same as ranks are added.
enum class Scaling {
  weak,    ///< each rank's samples
  strong,  ///< all ranks' samples together
  both,    ///< one after the other
};

struct BenchScaleOptions {
  StepWork work;
  Scaling scaling = Scaling::both;
  std::vector<std::int64_t> worlds;      ///< empty: 1, 2, 4 … and all ranks
  std::int64_t global_batch = 0;         ///< of strong scaling; 0: as weak scaling in the smallest world
  std::int64_t rounds = 3;               ///< visits to each world
  std::int64_t warmup = 5;               ///< steps of a visit before the clock starts
  std::int64_t repeat = 0;               ///< steps timed in a visit; 0: about a second's worth
  std::filesystem::path csv, json, svg;  ///< also write the rows there
};

struct BenchInputOptions {
  TrainOptions train;       ///< data, network and batch as in train
  std::int64_t steps = 0;   ///< of a part; 0: as many as read 256 MiB over all ranks; cold: an epoch at most
  std::int64_t repeat = 5;  ///< parts of each way, in turn
  double compute_ms = 0;    ///< > 0: also with so much computing after each batch
  bool cold = false;        ///< forget the page cache before each part
  std::filesystem::path csv, json;
};

struct BenchCheckpointOptions {
  StepWork work;
  std::int64_t state_mb = 256;   ///< > 0: of a linear network of that size instead of work's; 10^6 bytes
  std::int64_t repeat = 5;       ///< checkpoints, and plain writes between them
  std::filesystem::path folder;  ///< where they are written, in a folder of their own that is removed
  std::filesystem::path csv, json;
};

/// One way to agree, as bench agree compares them.
struct AgreeCase {
  std::string name;  ///< as it was given: "async --servers 1"
  TrainOptions train;
};

/// A rank that computes at a part of its speed.
struct SlowRank {
  int rank = 0;
  double speed = 1;  ///< 0 < speed < 1
};

struct BenchAgreeOptions {
  std::vector<AgreeCase> modes;
  /// Learning rates to choose from, for each mode; empty: that of each mode's options.
  std::vector<double> rates;
  /// Of each mode's trainings at the rate that the first of them has chosen.
  std::vector<std::int64_t> seeds = {1, 2, 3};
  std::vector<SlowRank> slow;            ///< each once
  std::filesystem::path folder;          ///< for the runs, in a folder of their own that is removed
  std::filesystem::path csv, json, svg;  ///< also write the validations there, and the curves
};

/// What adds up over all ranks.
enum class AllReduceAlgorithm { ring, two_level, shared_memory, mpi, iallreduce, nccl, doubling, halving, ring_only };

/// Names with commas between them, in any order; a algorithm named twice counts once. Throws std::invalid_argument
/// saying what is wrong with `text`, with all valid names.
std::vector<AllReduceAlgorithm> parse_algorithms(const std::string& text);

/// Of each size and algorithm.
struct Repetitions {
  std::int64_t warmup = 5;  ///< all-reduces before the clock starts; no more than fit in a second
  std::int64_t repeat = 0;  ///< batches timed; 0: as many as fit in a second, 3 to 100
};

struct BenchAllReduceOptions {
  std::int64_t min = 2, max = 67'108'864;  ///< elements
  bool max_given = false;                  ///< else max is what there is memory for, if that is less
  std::int64_t factor = 4;                 ///< from one size to the next
  Repetitions repetitions;
  std::vector<AllReduceAlgorithm> algorithms;  ///< empty: all that these ranks have
  std::optional<double> link_gbps;             ///< of a host's link, each way
  std::filesystem::path csv, json, svg;        ///< also write the rows there, and a chart
  ExecutionOptions execution;
};

struct CheckOptions {
  TrainOptions train;          ///< of the job to come; without data: its data and memory are not looked at
  double seconds = 5;          ///< for the network
  std::filesystem::path json;  ///< also write what was found there
};

/// argv without the program name and the subcommand. Throw UsageError or HelpRequested.
BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments);
BenchScaleOptions parse_bench_scale(const std::vector<std::string>& arguments);
BenchAgreeOptions parse_bench_agree(const std::vector<std::string>& arguments);
BenchInputOptions parse_bench_input(const std::vector<std::string>& arguments);
BenchCheckpointOptions parse_bench_checkpoint(const std::vector<std::string>& arguments);
BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments);
CheckOptions parse_check(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
