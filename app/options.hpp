/// \file
/// Every option of every subcommand: declared once, in options.cpp, with its name, default, check and help text.
/// Boost.Program_options lives there and nowhere else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::app {

/// The user's mistake: exit code 2. The text names the option and, for an unknown one, the nearest valid name.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown for --help: `what()` is the text to print on stdout; exit code 0.
class HelpRequested : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where and how a command that computes does so.
struct ExecutionOptions {
  std::string device = "auto";     ///< auto | cpu | gpu
  std::string precision = "auto";  ///< auto (bf16 on GPUs that have it, else fp32) | fp32 | tf32 | bf16
  int threads = 1;                 ///< per rank, on the CPU
  std::string transport = "auto";  ///< between hosts' memories: auto | shared-memory | two-level | ring
  double deadline = 60;            ///< seconds
  bool ring = false;               ///< NCCL: the ring algorithm and no other
  std::string wire = "fp32";       ///< how gradients travel between GPUs and hosts: fp32 | bf16 | bf16-feedback
  bool graphs = true;              ///< record a step once and replay it
  bool tune = false;               ///< choose the algorithms of matrix products by timing
  bool share_gpu = false;          ///< several ranks may use one GPU (for tests)
  bool operator==(const ExecutionOptions&) const = default;
};

struct TrainOptions {
  // data
  std::filesystem::path
      data;  ///< shard folder, HDF5 folder or file; a folder with train/ (and test/ or validation/) inside also works
  std::filesystem::path validation;  ///< "" = data's sibling test/ or validation/, if any
  std::string x = "x", y = "y";
  std::string normalize = "auto";  ///< auto (range for uint8, none for floats) | none | range (value range -> [0,1]) |
                                   ///< standard (mean 0, deviation 1) | per-image | affine(SCALE,SHIFT)
  std::string augment = "none";    ///< of images: comma-separated crop=N, pad=N, flip … (augmentation.hpp)
  std::string verify = "auto";     ///< auto (checksums where all shards together are < 4 GiB) | all | none
  bool shuffle = true;
  // network
  std::string model = "mlp";
  // 0, none and auto stand for the network's own choice
  std::vector<std::int64_t> hidden;
  std::int64_t depth = 0, layers = 0, width = 0, heads = 0;
  std::int64_t unroll = 20, context = 64;  ///< tokens of a sample: of lstm, of gpt
  double dropout = 0;
  std::string tied = "auto";  ///< auto | yes | no
  bool sync_batch_norm = false;
  std::string activation = "relu";
  std::string weight_init = "auto", bias_init = "auto";
  std::string loss = "auto";  ///< auto | softmax-cross-entropy | mean-squared-error
  double label_smoothing = 0;
  // optimiser
  std::string optimizer = "sgd";
  double momentum = 0.9, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double l2 = 0, weight_decay = 0, clip_norm = 0, clip_value = 0;
  double trust = 0.001;  ///< lars
  double average_decay = 0;
  bool evaluate_average = false;  ///< validation and best/target metric use the averaged weights
  // learning rate
  double learning_rate = 0.1;
  std::string schedule = "constant";
  double decay_rate = 0.96, final_learning_rate = 0, power = 1;
  std::int64_t decay_steps = 1000;
  bool staircase = false;
  std::vector<std::int64_t> boundaries;
  std::int64_t warmup_steps = 0;
  std::int64_t reference_batch = 0;  ///< > 0: learning_rate is for this global batch; scaled linearly
  // amount of work
  std::int64_t batch = 128;  ///< samples per rank and micro-step
  std::int64_t global_batch =
      0;  ///< > 0: samples per step over all ranks and micro-steps; contradicts an explicit batch
  std::int64_t accumulate = 1;
  double epochs = 1;  ///< may be fractional; contradicts an explicit steps
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  // validation
  std::int64_t evaluate_every = 0;  ///< steps; 0 = once per epoch; -1 = only at the end
  std::int64_t evaluation_batch =
      250;  ///< samples per evaluation chunk: part of the definition of the result's last bits
  std::optional<double> target_metric;  ///< stop when validation reaches it (accuracy >=; error, perplexity <=)
  // run folder
  std::filesystem::path run;          ///< "" = runs/MODEL-DATE-TIME
  std::string resume;                 ///< "" = no; "auto" (also plain --resume) = newest that verifies; or a file
  bool force = false;                 ///< start over in an existing run folder
  std::int64_t checkpoint_every = 0;  ///< steps; 0 = once per epoch; -1 = only at the end
  int keep = 3;
  std::string time_limit = "auto";  ///< auto | none | seconds or [D-]HH:MM[:SS], of this launch
  // reports
  std::int64_t report_every = 0;      ///< steps; 0 = about every second
  std::int64_t histograms_every = 0;  ///< steps; 0 = never
  bool tensorboard = true;
  std::string progress = "auto";  ///< auto | on | off
  // execution
  ExecutionOptions execution;
  std::int64_t bucket_size = 0;  ///< elements; 0 = static rule
  bool shard_optimizer = false;  ///< each rank keeps and updates its share
  bool dry_run = false;

  std::vector<std::string> explicitly_set;  ///< long names given on the command line or in the file
  bool was_set(const std::string& name) const;
  bool operator==(const TrainOptions&) const = default;
  /// The effective configuration as an INI file that --config reads back to an equal object (but for explicitly_set,
  /// which then names all of them). Every option once; those without effect (the momentum of Adam) as comments.
  std::string to_ini() const;
};

struct EvalOptions {
  std::filesystem::path checkpoint;   ///< a file, a run folder or a checkpoints folder (newest that verifies)
  std::filesystem::path data;         ///< "" = the validation data of the run
  bool average = false;               ///< evaluate the averaged weights
  bool average_set = false;           ///< given explicitly; otherwise what training used
  std::int64_t evaluation_batch = 0;  ///< 0 = the run's
  std::filesystem::path json;         ///< also write the result there, in full precision
  ExecutionOptions execution;
};

struct PackOptions {
  std::string format;  ///< idx | npy | csv | cifar10 | cifar100 | images | text | tokens | synthetic; "" = by name
  std::filesystem::path
      x;  ///< a file; cifar: or a folder; cifar, text, tokens: or several with commas; images: a folder
  std::filesystem::path y;
  std::filesystem::path out;
  std::int64_t shards = 1;
  bool force = false;
  double validation = 0;  ///< of the samples: below 1 a fraction, otherwise a count; 0: no split
  std::uint64_t seed = 1;
  // csv
  bool header = true;
  std::string separator = ",";
  std::string label_column;
  bool regression = false;  ///< the label is a number to predict, not a class
  // images
  std::string size;  ///< N or HEIGHTxWIDTH; "": as they are
  // text, tokens
  std::string tokenizer;                  ///< byte | char | word; "" = that of vocabulary_from, or char
  std::int64_t vocabulary = 0;            ///< text: 0 = every piece has a token
  std::filesystem::path vocabulary_from;  ///< a corpus packed before
  // synthetic
  std::string task = "classification";
  std::int64_t samples = 10000, features = 784, classes = 10;
  std::int64_t first = 0;  ///< index of the first sample: a test set continues its training set
  double noise = 0.1;
  std::string progress = "auto";

  /// x as the files it names.
  std::vector<std::filesystem::path> inputs() const;
  /// Of `size`; {0, 0} for "".
  std::pair<std::int64_t, std::int64_t> height_and_width() const;
};

struct InfoOptions {
  std::filesystem::path path;
  std::string x = "x", y = "y";  ///< dataset names, for files made by others
  bool verify = true;            ///< recompute checksums
};

struct GenerateOptions {
  std::filesystem::path checkpoint;  ///< a file, a run folder or a checkpoints folder (newest that verifies)
  std::string prompt = "\n";
  std::int64_t tokens = 500;
  double temperature = 1;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;  ///< > 0: only among so many likeliest
  std::uint64_t seed = 1;
  bool average = false;  ///< the averaged weights
  ExecutionOptions execution;
};

/// The steps that a benchmark times: network, optimiser, batch and execution as in train, and where samples come from.
struct StepWork {
  TrainOptions train;
  std::string input =
      "memory";  ///< memory: resident random batches, as the PyTorch peer; data: --data through the prefetcher
  std::int64_t features = 784, outputs = 10;
  std::string image;  ///< "HxWxC": samples are images of this shape; "" = plain features
  bool regression = false;
};

struct BenchStepOptions {
  StepWork work;
  std::int64_t warmup = 20, repeat = 200;  ///< steps
  bool sweep_buckets = false;              ///< also with other bucket sizes
  std::filesystem::path json;              ///< also write the figures there
  std::filesystem::path plan;              ///< write the layers there instead of timing anything
};

/// argv without the program name and the subcommand. Throws UsageError or HelpRequested. Nothing is read but the file
/// that --config names, and the names in the folder that pack is to read.
TrainOptions parse_train(const std::vector<std::string>& arguments);
EvalOptions parse_eval(const std::vector<std::string>& arguments);
GenerateOptions parse_generate(const std::vector<std::string>& arguments);
PackOptions parse_pack(const std::vector<std::string>& arguments);
InfoOptions parse_info(const std::vector<std::string>& arguments);
BenchStepOptions parse_bench_step(const std::vector<std::string>& arguments);
/// A TrainOptions from the configuration text stored in a run or a checkpoint. Throws UsageError.
TrainOptions train_options_from_ini(const std::string& ini);
/// The program's own help: subcommands and where to go on.
std::string program_help();
std::string program_version();

}  // namespace lockstep::app
