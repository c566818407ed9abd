/// \file
/// Sources of samples for `pack`. A source is read once from front to back, in blocks: the fields of samples, or the
/// tokens of a corpus.
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
#include "io/shards/validation_draw.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {

/// One field of a sample ("x" or "y"), or the tokens of a corpus ("tokens").
struct Field {
  std::string name;
  FileType type = FileType::uint8;
  std::vector<std::int64_t> sample_shape;  ///< {} for a scalar
  std::string unit = {};                   ///< "kelvin", as the file says; "": unknown
  std::int64_t elements() const noexcept;  ///< elements per sample
  std::size_t bytes() const noexcept;      ///< bytes per sample
  bool operator==(const Field&) const = default;
};

inline constexpr const char* kWeightName = "weight";
/// The names of samples: cells of a column of a table, or names of files.
struct SampleId {
  std::string name;        ///< name of the column; "file" for names of files
  std::int64_t bytes = 0;  ///< length of the longest name, at least 1; shorter ones are padded with zeros
  bool operator==(const SampleId&) const = default;
};
inline constexpr const char* kIdName = "id";  ///< name of the dataset of names

/// Role of a field if samples have several inputs or targets.
enum class FieldRole { input, target };

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// x; y with labels or targets; and optionally kWeightName, a float32 >= 0 that multiplies a sample's loss. A corpus
  /// has only "tokens", one integer each.
  virtual std::vector<Field> fields() const = 0;
  /// The role of each field if there are several inputs or targets. The order is: first input, first target (if any),
  /// other inputs, other targets. Empty: the fields are as described above.
  virtual std::vector<FieldRole> roles() const { return {}; }
  virtual std::int64_t count() const = 0;       ///< number of samples, known before the first read
  virtual std::string description() const = 0;  ///< for the manifest: "idx train-images-idx3-ubyte.gz"
  /// True if labels are class indices (cross-entropy), false for regression targets.
  virtual bool labels_are_classes() const = 0;
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Masks: the label of positions that belong to no class; nullopt: all positions have a class.
  virtual std::optional<std::int64_t> ignored_label() const { return std::nullopt; }
  /// Columns of a table; nullopt: not a table.
  virtual std::optional<TableSchema> table() const { return std::nullopt; }
  /// Description of the samples' names; nullopt: samples have no names.
  virtual std::optional<SampleId> sample_id() const { return std::nullopt; }
  /// Remarks for users about the interpretation of the samples, one sentence each.
  virtual std::vector<std::string> remarks() const { return {}; }
  /// Vocabulary of a corpus; nullopt: not a corpus. At the end of a pass the reader sets tokens and bytes_per_token.
  virtual std::optional<TokenInfo> token_info() const { return std::nullopt; }
  /// Bytes of a corpus's text for the tokens read or skipped so far; 0: unknown.
  virtual std::uint64_t source_bytes() const { return 0; }
  /// Makes means that replace missing numbers those of the training part: validation samples are as unknown as the
  /// future. `draw`: the choice of the samples for validation. Sources without such means do nothing.
  virtual void fill_from_training(ValidationDraw draw);
  /// Recomputes the checksums of the files part, part + parts, ..., if they have any. Packed data get new checksums,
  /// which would hide earlier damage. Throws FileError at the first checksum that differs.
  virtual void verify(int part, int parts);
  /// fields(), then the names of the samples, if they have names.
  std::vector<Field> stored_fields() const;
  /// Reads the next `samples` samples; buffers[f] has samples * stored_fields()[f].bytes(). Throws FileError naming
  /// file and position if the file ends early or has invalid content.
  virtual void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) = 0;
  /// Skips the next `samples`. The default reads them.
  virtual void skip(std::int64_t samples);
};

/// Labels of arrays.
struct ArrayLabels {
  LabelMeaning meaning = LabelMeaning::automatic;
  std::optional<std::int64_t> ignored = {};  ///< masks: the label of positions that belong to no class
};
/// IDX (yann.lecun.com format), plain or .gz: x images, y labels or masks (may be empty: no labels).
std::unique_ptr<SampleSource> open_idx(const std::filesystem::path& x, const std::filesystem::path& y,
                                       const ArrayLabels& labels = {});
/// NumPy .npy, C order. An empty y: no labels.
std::unique_ptr<SampleSource> open_npy(const std::filesystem::path& x, const std::filesystem::path& y,
                                       const ArrayLabels& labels = {});

/// NumPy .npz: arrays of one file, by name. Several inputs, or several numeric targets, have commas between them. There
/// are no labels if y is "y" and the file has no such array.
std::unique_ptr<SampleSource> open_npz(const std::filesystem::path& file, const std::string& x, const std::string& y,
                                       const ArrayLabels& labels = {});

/// Encoding of one table's cells as numbers, for another table with the same columns.
struct TableEncoding {
  TableSchema table;
  bool labels_are_classes = true;
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty: classes are numbered
  std::string from = {};                      ///< name of the table, for messages
};

struct CsvOptions {
  bool header = true;
  bool numbers_may_be_names = false;  ///< the header may consist of numbers
  char separator = ',';
  char decimal = '.';
  char thousands = 0;              ///< separator of groups of three digits; 0: none
  std::string label_column = {};   ///< a header name, or a 0-based index, "" = no label; a negative index counts from
                                   ///< the end. Regression takes several, separated by commas
  bool label_is_class = true;      ///< false: regression target
  std::string weight_column = {};  ///< column of a labelled sample's weight, named in the same way; "": none
  std::vector<std::string> ignored = {};     ///< columns left out, named in the same way
  std::vector<std::string> categories = {};  ///< columns of categories, with any cells, named in the same way
  std::string id_column = {};                ///< column of the samples' names, named in the same way; "": none
  enum class Text { one_hot, error };
  Text text = Text::one_hot;  ///< columns of texts: one input of 0 or 1 per different text
  enum class Missing { error, drop, mean };
  Missing missing = Missing::error;  ///< missing cells: an error, drop the line, or use the column's mean
  /// Takes columns, categories, means and classes from another table. `label_is_class`, `ignored`, `categories` and
  /// `text` then have no effect. Without `label_column` the labels are the columns of that table's labels, if present.
  std::optional<TableEncoding> encoding = {};
  UnknownCategories unknown = UnknownCategories::error;  ///< with `encoding`

  std::vector<std::string> label_columns() const;
};
/// Throws FileError for every fault of the table that the options do not allow.
std::unique_ptr<SampleSource> open_csv(const std::filesystem::path& file, const CsvOptions& options);

/// Artificial samples; every number is a function of (seed, sample index). Classification: Gaussian clusters around
/// centres that depend on the seed. The nearest two centres are 8 standard deviations apart, so a linear model can
/// separate the clusters. Regression: y = 2x + 1 as in tutorials, averaged over features: y = sum_j (2 x_j + 1) /
/// features + noise, x uniform in [-1, 1).
struct SyntheticOptions {
  enum class Task { classification, regression };
  Task task = Task::classification;
  std::int64_t samples = 10000;
  std::int64_t features = 784;
  std::int64_t classes = 10;  ///< classification
  double noise = 0.1;         ///< regression: standard deviation of the noise in y
  std::uint64_t seed = 1;
  std::int64_t first = 0;  ///< index of the first sample: a test set of the same problem starts where training ends
};
std::unique_ptr<SampleSource> make_synthetic(const SyntheticOptions& options);

struct TextOptions {
  std::string tokenizer = "char";      ///< byte | char | word | bpe (tokenizer.hpp)
  std::int64_t vocabulary = 0;         ///< char, word: maximum number of tokens, including <unk>; 0: all, no <unk>
  std::optional<TokenInfo> from = {};  ///< existing vocabulary for encoding; always set for bpe
};
/// UTF-8 text (for byte and bpe tokens, any bytes), plain or .gz: the files, one after another, are the corpus. Each
/// file is read twice.
std::unique_ptr<SampleSource> open_text(const std::vector<std::filesystem::path>& files, const TextOptions& options);
/// Learns a byte pair vocabulary of at most `vocabulary` tokens from text (byte_pair_training.hpp), plain or .gz.
/// <|endoftext|> in the text is one token and not part of a word. Throws FileError.
TokenInfo learn_byte_pairs(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary);
/// The vocabulary of a packed corpus: FOLDER or FOLDER/train. Throws FileError.
TokenInfo read_vocabulary(const std::filesystem::path& folder);

/// Tokens made by other programs: NumPy .npy of whole numbers, files of llm.c for GPT-2 or Llama 3, or flat files of
/// little-endian uint16, and uint32 if the vocabulary has more than 65,536 tokens. The caller must know the
/// vocabulary's size. Throws FileError for files of other formats, and for flat files whose numbers seem to have more
/// bytes.
std::unique_ptr<SampleSource> open_tokens(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary);

/// CIFAR-10 and CIFAR-100 binary batches: a folder (its training batches) or files. x becomes uint8 [32, 32, 3]; y is
/// the label, for CIFAR-100 the fine one. Names of classes come from batches.meta.txt or fine_label_names.txt beside
/// the files.
enum class CifarKind { cifar10, cifar100 };
std::unique_ptr<SampleSource> open_cifar(const std::vector<std::filesystem::path>& paths, CifarKind kind);

struct ImageFolderOptions {
  /// Size of all samples; 0: the size of the images, which must all be equal.
  std::int64_t height = 0, width = 0;
  /// true: scales until the shorter side fits, then cuts out the centre; false: scales to exactly this size.
  bool crop = true;
  bool scale = true;          ///< false: all images have this size already
  std::int64_t channels = 0;  ///< 1: grey, 3: colours, 0: grey if all images are grey
  int threads = 1;            ///< decoding threads
};
/// A folder with one sub-folder of image files per class, at any depth: x is uint8 [height, width, channels], or uint16
/// if images have more than 8 bits per channel; y is the class. Palettes become RGB, opacity is dropped, images are
/// turned upright by their EXIF orientation, no gamma is applied. Classes and files are in the order of their names.
std::unique_ptr<SampleSource> open_image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options);
/// True if this program was built with the libraries for JPEG and PNG, at least.
bool can_decode_images() noexcept;

/// The smallest type that holds tokens of a vocabulary: uint8, uint16 or int32.
FileType token_type(std::int64_t vocabulary) noexcept;
/// "FORMAT a.bin b.bin and 3 more", for SampleSource::description(): UTF-8, even for names that are not.
std::string describe_files(const std::string& format, const std::vector<std::filesystem::path>& files);

}  // namespace lockstep::io
