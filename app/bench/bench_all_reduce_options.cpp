#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/bench/bench_options.hpp"
#include "app/options/all_reduce_option.hpp"
#include "app/options/train_rows.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kAllReduceUsage =
    "Usage: mpirun -np RANKS lockstep bench all-reduce [options]\n"
    "\n"
    "Times all-reduces of growing size with every algorithm that the ranks can use: ring, two-level,\n"
    "shared memory and MPI's own between CPUs, NCCL between GPUs. Checks every element.\n"
    "Reports the fastest --transport and --all-reduce.\n";
constexpr std::string_view kAllReduceExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 4 lockstep bench all-reduce\n"
    "  mpirun -np 8 lockstep bench all-reduce --link-gbps 100 --csv all-reduce.csv --svg all-reduce.svg\n"
    "  mpirun -np 2 lockstep bench all-reduce --algorithms ring,mpi --min 1024 --max 1048576 --factor 2\n"
    "  mpirun -np 4 lockstep bench all-reduce --algorithms doubling,halving,ring-only,mpi\n"
    "  mpirun -np 8 lockstep bench all-reduce --device gpu --max 268435456\n";

/// There is no bf16-feedback: error feedback needs a sequence of sums of related values.
const std::vector<Choice<comm::WireFormat>> kWires{{"fp32", comm::WireFormat::fp32}, {"bf16", comm::WireFormat::bf16}};

std::string algorithms_of_text(const std::string& text, std::vector<AllReduceAlgorithm>& value) {
  try {
    value = text == "auto" ? std::vector<AllReduceAlgorithm>() : parse_algorithms(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::string to_text(const std::vector<AllReduceAlgorithm>& value) {
  std::vector<std::string> words;
  for (const AllReduceAlgorithm kind : value) words.push_back(word_of(kind));
  return words.empty() ? "auto" : fmt::format("{}", fmt::join(words, ","));
}

}  // namespace

template <>
std::vector<Choice<AllReduceAlgorithm>> choices() {
  return {{"ring", AllReduceAlgorithm::ring},
          {"two-level", AllReduceAlgorithm::two_level},
          {"shared-memory", AllReduceAlgorithm::shared_memory},
          {"mpi", AllReduceAlgorithm::mpi},
          {"iallreduce", AllReduceAlgorithm::iallreduce},
          {"nccl", AllReduceAlgorithm::nccl},
          {"doubling", AllReduceAlgorithm::doubling},
          {"halving", AllReduceAlgorithm::halving},
          {"ring-only", AllReduceAlgorithm::ring_only}};
}

std::vector<AllReduceAlgorithm> parse_algorithms(const std::string& text) {
  std::vector<std::string> words;
  for (const Choice<AllReduceAlgorithm>& choice : choices<AllReduceAlgorithm>()) words.push_back(choice.word);
  std::vector<AllReduceAlgorithm> kinds;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string word = text.substr(start, end - start);
    const auto known = std::find(words.begin(), words.end(), word);
    if (known == words.end()) {
      throw std::invalid_argument(fmt::format("names no all-reduce algorithm '{}'; the algorithms are {}{}", word,
                                              model::list_names(words, "and"), model::did_you_mean(word, words)));
    }
    const AllReduceAlgorithm kind = choices<AllReduceAlgorithm>()[known - words.begin()].value;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    start = end + 1;
  }
  return kinds;
}

BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments) {
  BenchAllReduceOptions options;
  ExecutionOptions& execution = options.execution;
  OptionTable table("lockstep bench all-reduce");
  table.group("Measurement");
  table.add("min", options.min, "ELEMENTS", "size of the smallest all-reduce").at_least(1);
  table.add("max", options.max, "ELEMENTS", "size of the largest all-reduce").at_least(1).at_most(1e12);
  table.add("factor", options.factor, "N", "ratio of each size to the one before").at_least(2);
  table.add_parsed("algorithms", options.algorithms, "NAMES",
                   "algorithms to time, comma-separated: ring, two-level, shared-memory, mpi (MPI_Allreduce), "
                   "iallreduce (--transport mpi), nccl; doubling, halving and ring-only compare the ring's schedules "
                   "(--all-reduce); auto: all transports that are possible",
                   algorithms_of_text, to_text);
  table
      .add("warmup", options.repetitions.warmup, "N",
           "all-reduces of each size before the clock starts, for at most one second")
      .at_least(0);
  table
      .add("repeat", options.repetitions.repeat, "BATCHES",
           "batches to time for each size and algorithm; 0: 3 to 100, in about one second")
      .at_least(0)
      .at_most(10000);
  table
      .add("link-gbps", options.link_gbps, "GBIT/S",
           "bandwidth of a host's link in each direction: shows the resulting bound and the part of it that is reached")
      .above(0);
  table.add("csv", options.csv, "FILE", "also write the rows to FILE");
  table.add("json", options.json, "FILE", "also write the rows to FILE, one JSON object per line");
  table.add("svg", options.svg, "FILE", "draw the bus bandwidth by size in FILE");
  table.group("Execution");
  table.add_choice(
      "device", execution.device, "WHERE",
      "memory that holds the data: cpu (of hosts); gpu, else an error; auto: both if every rank has a GPU");
  table.add_choice("wire", execution.wire, "NAME",
                   "format of the elements in transit, except MPI's: fp32, or bf16 (half the bytes, rounded)", kWires);
  add_all_reduce_option(table, execution);
  table.add("ring", execution.ring, "GPUs: let NCCL use only its ring algorithm").only_with("device", {"auto", "gpu"});
  add_nvls_option(table, execution);
  table.add("graph", execution.graphs, "GPUs: record a batch of all-reduces once as a CUDA graph and replay it")
      .only_with("device", {"auto", "gpu"});
  table.add("share-gpu", execution.share_gpu, "let several ranks share a GPU: slow, for tests")
      .only_with("device", {"auto", "gpu"});
  add_deadline_options(table, execution);

  read_options(table, arguments, kAllReduceUsage, kAllReduceExamples);
  table.check_relations();
  if (table.find("min")->source() == OptionSource::default_value) options.min = std::min(options.min, options.max);
  if (options.min > options.max) {
    throw UsageError(fmt::format("--min {} is more than --max {}", options.min, options.max));
  }
  options.max_given = table.find("max")->source() != OptionSource::default_value;
  require_own_files(options.csv, options.json, options.svg);
  const std::vector<AllReduceAlgorithm>& algorithms = options.algorithms;
  if (!algorithms.empty()) {
    const bool nccl = std::find(algorithms.begin(), algorithms.end(), AllReduceAlgorithm::nccl) != algorithms.end();
    if (nccl && execution.device == DeviceChoice::cpu) {
      throw UsageError("--algorithms nccl is between GPUs, and --device is cpu");
    }
    if (execution.device == DeviceChoice::gpu && algorithms != std::vector{AllReduceAlgorithm::nccl}) {
      throw UsageError(fmt::format("--device gpu leaves nothing but --algorithms nccl, and --algorithms is {}",
                                   to_text(algorithms)));
    }
    if (!nccl && execution.device == DeviceChoice::automatic)
      execution.device = DeviceChoice::cpu;  // avoids the search for GPUs
  }
  return options;
}

}  // namespace lockstep::app
