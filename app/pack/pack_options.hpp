/// \file
/// The options of `lockstep pack`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/datasets/sharded_dataset.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::app {

enum class PackFormat { idx, npy, npz, csv, hdf5, cifar10, cifar100, images, text, tokens, synthetic };

/// Size of scaled images, in pixels.
struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool crop = false;  ///< true: scales the shorter side and cuts out the centre; false: scales both sides
  bool operator==(const ImageSize&) const = default;
};

struct PackOptions {
  std::optional<PackFormat> format;           ///< set by parse_pack(), from the name of x unless the user gives one
  std::filesystem::path x;                    ///< the files and folders as given, with commas between them
  std::vector<std::filesystem::path> inputs;  ///< the files that `x` names: one, but for cifar, text and tokens
  std::filesystem::path y;
  std::filesystem::path out;
  std::int64_t shards = 1;
  bool force = false;
  double validation = 0;  ///< below 1: share of the samples; otherwise their number; 0: no split
  std::uint64_t seed = 1;
  // csv
  bool header = true;
  bool header_is_said = false;  ///< the user gave `header`
  char separator = ',';
  char decimal = '.', thousands = 0;  ///< 0: no separator of thousands
  std::string label_column;
  std::string sample_weight;                      ///< column of sample weights
  bool regression = false;                        ///< the label is a number to predict, not a class
  bool mask = false;                              ///< each position of a sample has a label
  std::optional<std::int64_t> ignore_label = {};  ///< masks: the label of positions that belong to no class
  std::string ignore_columns;                     ///< names or indices, separated by commas
  /// Likewise: columns that are categories, whatever their cells contain.
  std::string categories;
  std::string id_column;               ///< "": none
  std::filesystem::path columns_from;  ///< packed data, a run or a checkpoint; "": nothing
  io::UnknownCategories unknown_categories = io::UnknownCategories::error;
  io::CsvOptions::Text text_columns = io::CsvOptions::Text::one_hot;
  io::CsvOptions::Missing missing = io::CsvOptions::Missing::error;
  // hdf5
  std::string x_name = "x", y_name = "y";  ///< names of datasets
  bool allow_fill = false;                 ///< accept unwritten elements, with their fill value
  io::Layouts layout = {};
  // images
  std::optional<ImageSize> size;  ///< nullopt: not scaled
  std::int64_t channels = 0;      ///< 1 or 3; 0: 1 if all images are grey
  // text, tokens
  std::string tokenizer;                  ///< byte | char | word | bpe; "" = as in vocabulary_from, or char
  std::filesystem::path tokenizer_files;  ///< bpe: a folder (tokenizer_files.hpp)
  std::int64_t vocabulary = 0;            ///< text: maximum number of tokens; 0 = every piece has one
  std::filesystem::path vocabulary_from;  ///< a packed corpus
  // synthetic
  io::SyntheticOptions::Task task = io::SyntheticOptions::Task::classification;
  std::int64_t samples = 10000, features = 784, classes = 10;
  std::int64_t first = 0;  ///< index of the first sample, so that a test set can continue its training set
  double noise = 0.1;
  std::optional<bool> progress = {};  ///< the progress bar; nullopt: on a terminal
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested. Reads no file, but
/// lists the input folder.
PackOptions parse_pack(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
