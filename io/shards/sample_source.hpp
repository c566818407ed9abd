/// \file
/// Where `pack` reads samples from: one forward pass over fields x and y, or over the tokens of a corpus, in blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/hdf5_file.hpp"
#include "io/shards/table_schema.hpp"
#include "io/shards/target_values.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

/// One field of a sample ("x" or "y"), or the tokens of a corpus ("tokens").
struct Field {
  std::string name;
  FileType type = FileType::uint8;
  std::vector<std::int64_t> sample_shape;  ///< {} for a scalar
  std::int64_t elements() const noexcept;  ///< per sample
  std::size_t bytes() const noexcept;      ///< per sample
  bool operator==(const Field&) const = default;
};

inline constexpr const char* kWeightName = "weight";
/// The names of samples: of the column of a table that holds them, or of files.
struct SampleId {
  std::string name;        ///< of the column; "file" of files
  std::int64_t bytes = 0;  ///< of the longest, at least 1; shorter ones end in zeros
  bool operator==(const SampleId&) const = default;
};
inline constexpr const char* kIdName = "id";  ///< the dataset

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// x, and y where there are labels or targets, and beside them perhaps kWeightName, a float32 of 0 or more, what a
  /// sample's loss is multiplied by; or "tokens" alone, one integer each.
  virtual std::vector<Field> fields() const = 0;
  virtual std::int64_t count() const = 0;       ///< samples in all, known before the first read
  virtual std::string description() const = 0;  ///< for the manifest: "idx train-images-idx3-ubyte.gz"
  /// Labels are class indices (cross-entropy) rather than regression targets.
  virtual bool labels_are_classes() const = 0;
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Of a table: its columns.
  virtual std::optional<TableSchema> table() const { return std::nullopt; }
  /// What samples are called, where each has a name of its own.
  virtual std::optional<SampleId> sample_id() const { return std::nullopt; }
  /// What the user should know about how the samples were understood, a sentence each.
  virtual std::vector<std::string> remarks() const { return {}; }
  /// Of a corpus: its vocabulary (tokens and bytes_per_token are filled in by who reads it to the end).
  virtual std::optional<TokenInfo> token_info() const { return std::nullopt; }
  /// Of a corpus: bytes of text behind the tokens read or skipped so far; 0: unknown.
  virtual std::uint64_t source_bytes() const { return 0; }
  /// Recomputes the checksums of part, part + parts, ... of the files, where they have any: what is packed gets new
  /// ones, which would hide their damage. Throws FileError at the first that differs.
  virtual void verify(int part, int parts);
  /// fields(), and behind them the names of the samples, where they have some.
  std::vector<Field> stored_fields() const;
  /// Reads the next `samples` samples; buffers[f] has samples * stored_fields()[f].bytes(). Throws FileError naming
  /// file and position when the file ends early or holds nonsense.
  virtual void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) = 0;
  /// Passes over the next `samples`. Reads them, unless the source knows better.
  virtual void skip(std::int64_t samples);
};

/// IDX (yann.lecun.com format), plain or .gz: x images, y labels (may be empty: no labels).
std::unique_ptr<SampleSource> open_idx(const std::filesystem::path& x, const std::filesystem::path& y,
                                       LabelMeaning labels = LabelMeaning::automatic);
/// NumPy .npy, C order; y may be empty.
std::unique_ptr<SampleSource> open_npy(const std::filesystem::path& x, const std::filesystem::path& y,
                                       LabelMeaning labels = LabelMeaning::automatic);

/// How the cells of one table became numbers, for another one of the same columns.
struct TableEncoding {
  TableSchema table;
  bool labels_are_classes = true;
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty: classes are numbered
  std::string from = {};                      ///< for messages
};

struct CsvOptions {
  bool header = true;
  bool numbers_may_be_names = false;  ///< a header of numbers is meant
  char separator = ',';
  char decimal = '.';
  char thousands = 0;              ///< between groups of three digits; 0: none
  std::string label_column = {};   ///< a header name, or a 0-based index, "" = no label; negative index counts from the
                                   ///< end. Of regression several with commas between them
  bool label_is_class = true;      ///< false: regression target
  std::string weight_column = {};  ///< of a labelled sample's weight, named in the same way; "": none
  std::vector<std::string> ignored = {};     ///< columns that are left out, named in the same way
  std::vector<std::string> categories = {};  ///< likewise: columns of categories, whatever their cells look like
  std::string id_column = {};                ///< likewise: the names of the samples; "": none
  enum class Text { one_hot, error };
  Text text = Text::one_hot;  ///< of columns of texts: one input of 0 or 1 for each different text
  enum class Missing { error, drop, mean };
  Missing missing = Missing::error;  ///< of cells that hold nothing: a line is left out, or gets its column's mean
  /// Columns, categories, means and classes are those of another table: then `label_is_class`, `ignored`, `categories`
  /// and `text` say nothing, and without `label_column` the labels are the columns of its labels, where there are any.
  std::optional<TableEncoding> encoding = {};
  UnknownCategories unknown = UnknownCategories::error;  ///< with `encoding`

  std::vector<std::string> label_columns() const;
};
/// Throws FileError: everything that the table has and the options do not allow for.
std::unique_ptr<SampleSource> open_csv(const std::filesystem::path& file, const CsvOptions& options);

/// Classification: Gaussian clusters around centres that the seed decides, so far apart (8 standard deviations between
/// the nearest two) that a linear model tells them apart. Regression: the tutorials' y = 2x + 1, averaged over
/// features: y = sum_j (2 x_j + 1) / features + noise, x uniform in [-1, 1). Every number is a function of (seed,
/// sample index).
struct SyntheticOptions {
  enum class Task { classification, regression };
  Task task = Task::classification;
  std::int64_t samples = 10000;
  std::int64_t features = 784;
  std::int64_t classes = 10;  ///< classification
  double noise = 0.1;         ///< regression: standard deviation of what is added to y
  std::uint64_t seed = 1;
  std::int64_t first = 0;  ///< index of the first sample: a test set of the same problem begins where training ends
};
std::unique_ptr<SampleSource> make_synthetic(const SyntheticOptions& options);

struct TextOptions {
  std::string tokenizer = "char";      ///< byte | char | word | bpe (tokenizer.hpp)
  std::int64_t vocabulary = 0;         ///< char, word: so many tokens at most, <unk> among them; 0: all, no <unk>
  std::optional<TokenInfo> from = {};  ///< encode with this one instead; bpe: always
};
/// UTF-8 text (bytes: anything), plain or .gz, several files one after another: a corpus. Each file is read twice.
std::unique_ptr<SampleSource> open_text(const std::vector<std::filesystem::path>& files, const TextOptions& options);
/// A byte pair vocabulary of at most so many tokens, learnt from text (byte_pair_training.hpp), plain or .gz. Where
/// <|endoftext|> stands in it, it is one token and no part of a word. Throws FileError.
TokenInfo learn_byte_pairs(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary);
/// Of a corpus packed before: FOLDER or FOLDER/train. Throws FileError.
TokenInfo read_vocabulary(const std::filesystem::path& folder);

/// Tokens made elsewhere: flat files of little-endian uint16, with or without the 1024-byte header of llm.c (magic
/// 20240520). The vocabulary's size must be known.
std::unique_ptr<SampleSource> open_tokens(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary);

/// CIFAR-10 and CIFAR-100 binary batches: a folder (its training batches) or files. x becomes uint8 [32, 32, 3]; of
/// CIFAR-100, y is the fine label. Names of classes from batches.meta.txt or fine_label_names.txt beside the files.
enum class CifarKind { cifar10, cifar100 };
std::unique_ptr<SampleSource> open_cifar(const std::vector<std::filesystem::path>& paths, CifarKind kind);

struct ImageFolderOptions {
  /// Every image becomes so large; 0: as they are, all of one size.
  std::int64_t height = 0, width = 0;
  /// Scaled until the shorter side fits, then the centre; false: scaled to exactly this size.
  bool crop = true;
  bool scale = true;          ///< false: all images have this size already
  std::int64_t channels = 0;  ///< 1: grey, 3: colours, 0: grey where all images are
  int threads = 0;            ///< that decode; 0: one per core
};
/// A folder with one sub-folder of image files per class, at any depth: x uint8 [height, width, channels], uint16 where
/// images have more than 8 bits a channel (palette becomes RGB, opacity is left out, images are upright as their EXIF
/// orientation says, no gamma is applied), y the class. Classes and files in the order of their names.
std::unique_ptr<SampleSource> open_image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options);
/// Whether this program was built with the libraries for JPEG and PNG, at least.
bool can_decode_images() noexcept;

/// The smallest type that holds tokens of a vocabulary: uint8, uint16 or int32.
FileType token_type(std::int64_t vocabulary) noexcept;
/// "FORMAT a.bin b.bin and 3 more", for SampleSource::description(): UTF-8, whatever bytes the names are of.
std::string describe_files(const std::string& format, const std::vector<std::filesystem::path>& files);

}  // namespace lockstep::io
