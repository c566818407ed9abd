/// \file
/// The options of the commands that do not train; those of `train` are in train_options.hpp, of the benchmarks and of
/// `check` in bench_options.hpp. Every option is declared once, with its name, default, check and help text, in the
/// sources of this folder, where Boost.Program_options lives and nowhere else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/options/checkpoint_choice.hpp"
#include "app/options/progress.hpp"
#include "app/options/train_options.hpp"
#include "app/options/usage_error.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::app {

/// A trained network, and the data that it is to see.
struct TrainedModelOptions {
  CheckpointChoice checkpoint = {};
  std::filesystem::path data = {};              ///< "" = the validation data of the run
  std::string x = {}, y = {};                   ///< names of its HDF5 datasets; "" = as in training, or of packed data
  bool allow_fill = false;                      ///< parts that were never written count as their fill value
  std::optional<bool> average = {};             ///< the averaged weights; nullopt: as the run validated
  std::int64_t batch = 0;                       ///< samples at once; 0 = as the run evaluated
  std::optional<Normalization> normalize = {};  ///< nullopt: as in training
  VerifyData verify = VerifyData::automatic;
  io::UnknownCategories unknown_categories = io::UnknownCategories::error;
};

struct EvalOptions : TrainedModelOptions {
  std::filesystem::path json;  ///< file for the result in full precision
  bool report = false;         ///< results by class or by target, too
  std::filesystem::path svg;   ///< file for a drawing of the report
  ExecutionOptions execution;
};

struct PredictOptions : TrainedModelOptions {
  std::filesystem::path out;  ///< HDF5
  std::filesystem::path csv;  ///< "" = none
  bool force = false;         ///< `out` may be there already
  ExecutionOptions execution;
};

enum class ExportFormat { onnx, safetensors };

struct ExportOptions {
  CheckpointChoice checkpoint;
  std::optional<ExportFormat> format;  ///< set by parse_export(), from the name of `out` unless the user gives one
  std::filesystem::path out;
  std::optional<bool> average;  ///< use the averaged weights; nullopt: as in training
  bool force = false;           ///< an existing `out` may be replaced
};

enum class ImportFormat { gpt2, safetensors };

struct ImportOptions {
  std::filesystem::path file;
  std::optional<ImportFormat> format;  ///< nullopt: decided by the names of the tensors
  std::filesystem::path out;
  std::int64_t heads = 0;  ///< gpt2: 0 = the width / 64
  bool force = false;      ///< an existing `out` may be replaced
};

enum class PackFormat { idx, npy, csv, hdf5, cifar10, cifar100, images, text, tokens, synthetic };

/// Size of scaled images, in pixels.
struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool crop = false;  ///< the shorter side is scaled and the centre cut out; false: both sides are scaled
  bool operator==(const ImageSize&) const = default;
};

struct PackOptions {
  std::optional<PackFormat> format;  ///< set by parse_pack(), from the name of x unless the user gives one
  std::filesystem::path
      x;  ///< a file; cifar: or a folder; cifar, text, tokens: or several with commas; images: a folder
  std::filesystem::path y;
  std::filesystem::path out;
  std::int64_t shards = 1;
  bool force = false;
  double validation = 0;  ///< share of the samples if below 1, else a count; 0: no split
  std::uint64_t seed = 1;
  // csv
  bool header = true;
  bool header_is_said = false;  ///< true if the user has given `header`
  char separator = ',';
  char decimal = '.', thousands = 0;  ///< 0: no separator of thousands
  std::string label_column;
  std::string sample_weight;           ///< a column
  bool regression = false;             ///< the label is a number to predict, not a class
  std::string ignore_columns;          ///< names or indices with commas
  std::string categories;              ///< likewise: columns of categories, whatever their cells contain
  std::string id_column;               ///< "": none
  std::filesystem::path columns_from;  ///< packed data, a run or a checkpoint; "": nothing
  io::UnknownCategories unknown_categories = io::UnknownCategories::error;
  io::CsvOptions::Text text_columns = io::CsvOptions::Text::one_hot;
  io::CsvOptions::Missing missing = io::CsvOptions::Missing::error;
  // hdf5
  std::string x_name = "x", y_name = "y";  ///< names of datasets
  bool allow_fill = false;                 ///< unwritten elements count as the fill value
  io::Layout layout = io::Layout::automatic;
  // images
  std::optional<ImageSize> size;  ///< nullopt: not scaled
  std::int64_t channels = 0;      ///< 1 or 3; 0: 1 if all images are grey
  // text, tokens
  std::string tokenizer;                  ///< byte | char | word | bpe; "" = that of vocabulary_from, or char
  std::filesystem::path tokenizer_files;  ///< bpe: a folder (tokenizer_files.hpp)
  std::int64_t vocabulary = 0;            ///< text: 0 = every piece has a token
  std::filesystem::path vocabulary_from;  ///< a packed corpus
  // synthetic
  io::SyntheticOptions::Task task = io::SyntheticOptions::Task::classification;
  std::int64_t samples = 10000, features = 784, classes = 10;
  std::int64_t first = 0;  ///< index of the first sample: a test set continues its training set
  double noise = 0.1;
  std::optional<bool> progress = {};  ///< the progress bar; nullopt: on a terminal

  /// `x` split into the files that it names.
  std::vector<std::filesystem::path> inputs() const;
};

struct InfoOptions {
  std::filesystem::path path;
  std::string x = "x", y = "y";                 ///< dataset names, for files made by other programs
  bool allow_fill = false;                      ///< unwritten elements count as the fill value
  bool verify = true;                           ///< recompute checksums
  model::NetworkOptions network = {};           ///< a network from a file, and its options
  std::int64_t features = 784, outputs = 10;    ///< samples for that network
  std::optional<model::ImageShape> image = {};  ///< instead of features
  std::filesystem::path svg = {};               ///< file for a picture of that network
};

/// `lockstep report`.
struct ReportRunsOptions {
  std::vector<std::filesystem::path> runs;  ///< run folders, and folders of them
  Progress along = Progress::automatic;
  std::filesystem::path out = "report.html";
};

/// `lockstep plot`.
struct PlotOptions {
  std::vector<std::filesystem::path> runs;  ///< as in ReportRunsOptions
  Progress along = Progress::automatic;
  std::filesystem::path svg = "plot.svg";
};

/// One training of a sweep.
struct SweepSetting {
  std::string line{};                    ///< line of the file
  std::vector<std::string> arguments{};  ///< arguments for `lockstep train`, including those common to all settings
};

/// `lockstep sweep`.
struct SweepOptions {
  std::filesystem::path settings, run;
  std::vector<std::string> launch;  ///< arguments before the program's name
  bool halving = false;
  std::vector<SweepSetting> lines;  ///< not empty
};

/// `lockstep tokenizer train`.
struct TokenizerOptions {
  std::vector<std::filesystem::path> texts;
  std::int64_t vocabulary = 0;  ///< maximum number of tokens
  std::filesystem::path out;    ///< a folder
  bool force = false;           ///< existing tokenizer files may be replaced
};

enum class Shell { bash, zsh, fish };

/// `lockstep help`.
struct HelpOptions {
  std::string command;               ///< "bench step"; "": the program
  bool manual = false;               ///< as a manual page
  std::optional<Shell> shell = {};   ///< the completion for this shell instead
  std::filesystem::path write = {};  ///< folder for all manual pages and completions, which are then written instead
};

struct GenerateOptions {
  CheckpointChoice checkpoint;
  std::string prompt = "\n";
  std::int64_t tokens = 500;
  double temperature = 1;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;  ///< > 0: draw only among this many likeliest tokens
  double top_p = 1;        ///< draw only among the likeliest tokens that together have this probability
  std::int64_t samples = 1;
  std::string stop;  ///< the text ends before it; "": after `tokens` tokens
  std::uint64_t seed = 1;
  std::filesystem::path tokenizer_files;  ///< "": the checkpoint's own vocabulary
  bool average = false;                   ///< the averaged weights
  ExecutionOptions execution;
};

/// Parse argv without the program name and the subcommand. Throw UsageError or HelpRequested. They read no files; only
/// pack looks at the names in its input folder.
EvalOptions parse_eval(const std::vector<std::string>& arguments);
PredictOptions parse_predict(const std::vector<std::string>& arguments);
GenerateOptions parse_generate(const std::vector<std::string>& arguments);
ExportOptions parse_export(const std::vector<std::string>& arguments);
ImportOptions parse_import(const std::vector<std::string>& arguments);
TokenizerOptions parse_tokenizer_train(const std::vector<std::string>& arguments);
PackOptions parse_pack(const std::vector<std::string>& arguments);
InfoOptions parse_info(const std::vector<std::string>& arguments);
ReportRunsOptions parse_report(const std::vector<std::string>& arguments);
/// Also reads the file of settings.
SweepOptions parse_sweep(const std::vector<std::string>& arguments);
PlotOptions parse_plot(const std::vector<std::string>& arguments);
HelpOptions parse_help(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
