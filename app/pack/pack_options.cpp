#include "app/pack/pack_options.hpp"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "app/options/train_rows.hpp"
#include "io/datasets/hdf5_listing.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPackUsage =
    "Usage: lockstep pack --x FILE [--y FILE] --out FOLDER [options]\n"
    "\n"
    "Writes samples, or the tokens of a text, to a folder of HDF5 shards for `lockstep train`.\n"
    "Runs as one process, or on several ranks, each of which writes a part of the shards.\n";
constexpr std::string_view kPackExamples =
    "\n"
    "Examples\n"
    "  lockstep pack --x train-images-idx3-ubyte.gz --y train-labels-idx1-ubyte.gz \\\n"
    "      --out shards/fashion/train\n"
    "  lockstep pack --x cifar-10-batches-bin --out shards/cifar10/train\n"
    "  lockstep pack --x cifar-10-batches-bin/test_batch.bin --out shards/cifar10/test\n"
    "  lockstep pack --x pictures --size 224 --shards 16 --validation 0.05 --out shards/pictures\n"
    "      pack images from pictures/, which has a folder of JPEG and PNG files for each class\n"
    "  mpirun -np 4 lockstep pack --x measured.h5 --shards 64 --out shards/measured\n"
    "      pack with four ranks; the shards have the same bytes as with one process\n"
    "  lockstep pack volumes/*.txt --validation 0.1 --out shards/novels\n"
    "  lockstep pack --x ptb.train.txt --tokenizer word --vocabulary 10000 --out shards/ptb/train\n"
    "  lockstep pack --x ptb.valid.txt --vocabulary-from shards/ptb/train --out shards/ptb/validation\n"
    "  lockstep pack --x input.txt --tokenizer bpe --tokenizer-files gpt2 --out shards/shakespeare-bpe\n"
    "  lockstep pack --x train_1.bin,train_2.bin --format tokens --vocabulary 50257 --out shards/fineweb\n"
    "  lockstep pack --x features.npy --y targets.npy --out shards/mine --shards 8\n"
    "  lockstep pack houses.csv --label-column price --regression --out shards/houses\n"
    "  lockstep pack new_houses.csv --columns-from shards/houses --out shards/new_houses\n"
    "  lockstep pack --format synthetic --task regression --features 600 --out shards/synthetic\n";

const std::vector<Choice<std::optional<PackFormat>>>& formats() {
  static const std::vector<Choice<std::optional<PackFormat>>> all{{"idx", PackFormat::idx},
                                                                  {"npy", PackFormat::npy},
                                                                  {"npz", PackFormat::npz},
                                                                  {"csv", PackFormat::csv},
                                                                  {"hdf5", PackFormat::hdf5},
                                                                  {"cifar10", PackFormat::cifar10},
                                                                  {"cifar100", PackFormat::cifar100},
                                                                  {"images", PackFormat::images},
                                                                  {"text", PackFormat::text},
                                                                  {"tokens", PackFormat::tokens},
                                                                  {"synthetic", PackFormat::synthetic}};
  return all;
}

std::optional<PackFormat> format_of_folder(const fs::path& folder) {
  bool has_folders = false, has_hdf5 = false;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (name == "data_batch_1.bin") return PackFormat::cifar10;
    if (name == "fine_label_names.txt") return PackFormat::cifar100;
    has_folders = has_folders || entry.is_directory(unreadable);
    has_hdf5 = has_hdf5 || io::has_hdf5_name(name);
  }
  if (has_folders) return PackFormat::images;
  return has_hdf5 ? std::optional(PackFormat::hdf5) : std::nullopt;
}

/// The format for the name of a file or folder; nullopt if the name does not decide it.
std::optional<PackFormat> format_of(const fs::path& file) {
  std::error_code unknown;
  if (fs::is_directory(file, unknown)) return format_of_folder(file);
  std::string name = file.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with("-ubyte") || name.ends_with(".idx")) return PackFormat::idx;
  if (name.ends_with(".npy")) return PackFormat::npy;
  if (name.ends_with(".npz")) return PackFormat::npz;
  if (name.ends_with(".csv") || name.ends_with(".tsv")) return PackFormat::csv;
  if (io::has_hdf5_name(name)) return PackFormat::hdf5;
  if (name.ends_with(".txt")) return PackFormat::text;
  if ((name.starts_with("data_batch_") || name == "test_batch.bin") && name.ends_with(".bin"))
    return PackFormat::cifar10;
  if ((name == "train.bin" || name == "test.bin") && fs::exists(file.parent_path() / "fine_label_names.txt", unknown)) {
    return PackFormat::cifar100;
  }
  return std::nullopt;
}

std::string parse_separator(const std::string& text, char& separator) {
  if (text.size() != 1 && text != "tab") return "is not one character; write tab for a tabulator";
  separator = text == "tab" ? '\t' : text[0];
  return "";
}

std::string separator_text(const char& separator) { return separator == '\t' ? "tab" : std::string(1, separator); }

constexpr std::string_view kThousands = ",.'_ ";

std::string parse_thousands(const std::string& text, char& thousands) {
  const std::string mark = text == "blank" ? " " : text;
  if (mark.size() != 1 || kThousands.find(mark[0]) == std::string_view::npos) {
    return "is none of , . ' _ and blank";
  }
  thousands = mark[0];
  return "";
}

std::string thousands_text(const char& thousands) {
  return thousands == 0 ? "" : thousands == ' ' ? "blank" : std::string(1, thousands);
}

/// Parses "224" or "240x320".
std::string parse_size(const std::string& text, std::optional<ImageSize>& size) {
  constexpr std::int64_t kMax = 16384;
  const auto number = [](std::string_view digits) -> std::int64_t {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value <= kMax ? value : 0;
  };
  const std::size_t cross = text.find('x');
  const bool crop = cross == std::string::npos;
  const std::int64_t height = number(std::string_view(text).substr(0, cross));
  const std::int64_t width = crop ? height : number(std::string_view(text).substr(cross + 1));
  if (height < 1 || width < 1) return "is neither a number of pixels such as 224 nor a size such as 240x320";
  size = ImageSize{.height = height, .width = width, .crop = crop};
  return "";
}

std::string size_text(const std::optional<ImageSize>& size) {
  if (!size) return "";
  return size->crop ? fmt::format("{}", size->height) : fmt::format("{}x{}", size->height, size->width);
}

std::string check_validation(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value < 1 || value == std::floor(value) ? "" : "is neither a fraction below 1 nor a whole number of samples";
}

void add_table_options(OptionTable& table, PackOptions& options) {
  table.group("Tables (csv)");
  table
      .add("header", options.header,
           "the first line names the columns, even if the names are numbers; default: it does unless they are numbers")
      .only_with("format", {"csv"});
  table
      .add_parsed("separator", options.separator, "CHARACTER", "character between columns, or tab; .tsv files: tab",
                  parse_separator, separator_text)
      .only_with("format", {"csv"});
  static const std::vector<Choice<char>> decimals{{".", '.'}, {",", ','}};
  table.add_choice("decimal", options.decimal, "CHARACTER", "decimal mark of numbers", decimals)
      .only_with("format", {"csv"});
  table
      .add_parsed("thousands", options.thousands, "CHARACTER",
                  "mark between groups of three digits: , . ' _ or blank; default: none", parse_thousands,
                  thousands_text)
      .only_with("format", {"csv"});
  table
      .add("label-column", options.label_column, "COLUMN",
           "column of the label: a name from the header, or an index from 0 (-1 is the last column); default: no label")
      .only_with("format", {"csv"});
  table
      .add("sample-weight", options.sample_weight, "COLUMN",
           "column of weights, numbers of 0 or more; named like --label-column and not an input. `train "
           "--sample-weight weight` multiplies the samples' losses by them")
      .only_with("format", {"csv"})
      .needs("label-column");
  table
      .add("regression", options.regression,
           "labels are numbers to predict, not classes; csv: --label-column may name several: a,b,c. Also for npy, "
           "npz, idx and hdf5, which take whole numbers as classes")
      .only_with("format", {"csv", "npy", "npz", "idx", "hdf5"});
  table
      .add("ignore-columns", options.ignore_columns, "COLUMNS",
           "columns to leave out: names or indices, comma-separated")
      .only_with("format", {"csv"});
  table
      .add("categories", options.categories, "COLUMNS",
           "columns to read as categories, whatever their cells look like (codes, ranges, dates)")
      .only_with("format", {"csv"});
  table
      .add("id-column", options.id_column, "COLUMN",
           "column that names the samples; it is not an input, and `predict --csv` writes it beside the predictions")
      .only_with("format", {"csv"});
  table
      .add("columns-from", options.columns_from, "PATH",
           "packed data, a run or a checkpoint that defines the columns: matched by name, with its order, categories, "
           "means for missing cells and classes; its label columns, if present, are the labels")
      .only_with("format", {"csv"})
      .contradicts("regression")
      .contradicts("ignore-columns")
      .contradicts("categories")
      .contradicts("text-columns");
  add_unknown_categories_option(table, options.unknown_categories);
  table.find("unknown-categories")->needs("columns-from");
  using Text = io::CsvOptions::Text;
  static const std::vector<Choice<Text>> texts{{"one-hot", Text::one_hot}, {"error", Text::error}};
  table
      .add_choice("text-columns", options.text_columns, "HOW",
                  "columns of text: one-hot (an input of 0 or 1 for each different text) or error", texts)
      .only_with("format", {"csv"});
  using Missing = io::CsvOptions::Missing;
  static const std::vector<Choice<Missing>> missing{
      {"error", Missing::error}, {"drop", Missing::drop}, {"mean", Missing::mean}};
  table
      .add_choice("missing", options.missing, "HOW",
                  "missing values: cells that are empty, NA, NaN, null, none or ?; in HDF5 files NaN, _FillValue and "
                  "numbers outside the valid range. error, drop (leave out the line or sample) or mean (fill in that "
                  "of the column or feature)",
                  missing)
      .only_with("format", {"csv", "hdf5"});
}

void add_hdf5_options(OptionTable& table, PackOptions& options) {
  table.group("HDF5 files from other programs and NumPy archives (hdf5, npz)");
  table
      .add("x-name", options.x_name, "NAME",
           "dataset or array of the samples; default: x, or the one that fits, and tokens for tokens; several inputs: "
           "NAME,NAME")
      .check(reject_empty)
      .only_with("format", {"hdf5", "npz", "tokens"});
  table
      .add("y-name", options.y_name, "NAME",
           "dataset or array of the labels; default: y, or the one that fits; several targets of numbers: NAME,NAME")
      .check(reject_empty)
      .only_with("format", {"hdf5", "npz"});
  add_allow_fill(table, options.allow_fill);
  table.find("allow-fill")->only_with("format", {"hdf5"});
  add_layout_option(table, options.layout);
  table.find("layout")->only_with("format", {"hdf5"});
}

void add_text_options(OptionTable& table, PackOptions& options) {
  table.group("Text (text, tokens)");
  table
      .add("tokenizer", options.tokenizer, "NAME",
           "unit of a token: byte; char (UTF-8); word (between blanks; the end of a line is the word <eos>); bpe (part "
           "of a word, as in GPT-2; needs --tokenizer-files); default: that of --vocabulary-from, else char")
      .one_of({"byte", "char", "word", "bpe"})
      .only_with("format", {"text"});
  table
      .add("tokenizer-files", options.tokenizer_files, "FOLDER",
           "bpe: folder with tokenizer.json, or vocab.json and merges.txt, of a tokenizer that works like GPT-2's")
      .only_with("tokenizer", {"bpe"})
      .contradicts("vocabulary-from");
  table
      .add("vocabulary", options.vocabulary, "N",
           "text: keep the N - 1 most frequent tokens, and <unk> for all others (default: keep all); tokens: number of "
           "different tokens (GPT-2: 50257)")
      .at_least(2)
      .at_most(2147483647)
      .only_with("format", {"text", "tokens"});
  table
      .add("vocabulary-from", options.vocabulary_from, "FOLDER",
           "encode with the vocabulary of text packed before, so that both can be used together")
      .only_with("format", {"text"})
      .contradicts("vocabulary");
}

void add_synthetic_options(OptionTable& table, PackOptions& options) {
  table.group("Synthetic samples (synthetic)");
  using Task = io::SyntheticOptions::Task;
  static const std::vector<Choice<Task>> tasks{{"classification", Task::classification},
                                               {"regression", Task::regression}};
  table.add_choice("task", options.task, "NAME", "task to learn", tasks).only_with("format", {"synthetic"});
  table.add("samples", options.samples, "N", "number of samples").at_least(1).only_with("format", {"synthetic"});
  table
      .add("first", options.first, "N",
           "index of the first sample: with the same seed, later samples of the same problem")
      .at_least(0)
      .only_with("format", {"synthetic"});
  table.add("features", options.features, "N", "numbers per sample").at_least(1).only_with("format", {"synthetic"});
  table.add("classes", options.classes, "N", "classification: number of classes")
      .at_least(2)
      .only_with("format", {"synthetic"})
      .only_with("task", {"classification"});
  table.add("noise", options.noise, "DEVIATION", "standard deviation of the noise")
      .at_least(0)
      .only_with("format", {"synthetic"});
}

/// Adds the files of a value of --x: itself if it exists, otherwise the parts between commas.
void add_inputs(PackOptions& options, const std::string& text) {
  options.x = options.x.empty() ? text : options.x.string() + "," + text;
  std::error_code unknown;
  if (fs::exists(text, unknown)) {
    options.inputs.emplace_back(text);
    return;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) options.inputs.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// The format that all names tell. Throws UsageError if one tells none, or another one than the first.
PackFormat format_of_names(const PackOptions& options) {
  std::optional<PackFormat> first;
  for (const fs::path& file : options.inputs) {
    const std::optional<PackFormat> format = format_of(file);
    std::error_code unknown;
    if (!format && !fs::exists(file, unknown)) {
      throw UsageError(fmt::format("--x: there is no file or folder {}{}", file.string(),
                                   options.inputs.size() > 1 ? "; commas separate files" : ""));
    }
    if (&file == &options.inputs.front()) first = format;
    if (format != first) {
      throw UsageError(
          fmt::format("--x: {} and {}: their names do not tell the same format; name files of one format, or add "
                      "--format",
                      options.inputs.front().string(), file.string()));
    }
  }
  if (first) return *first;
  throw UsageError(
      fmt::format("--x: the name {} does not tell the format; add --format idx, npy, npz, csv, hdf5, "
                  "cifar10, cifar100, images, text or tokens",
                  options.x.string()));
}

bool takes_several(PackFormat format) {
  return format == PackFormat::cifar10 || format == PackFormat::cifar100 || format == PackFormat::text ||
         format == PackFormat::tokens;
}

/// Checks that the option table cannot express.
void check_format(const OptionTable& table, const PackOptions& options) {
  const auto given = [&](std::string_view name) { return table.find(name)->source() != OptionSource::default_value; };
  if (options.format == PackFormat::synthetic) {
    if (!options.x.empty())
      throw UsageError("--x and --format synthetic contradict each other: synthetic samples come from no file");
  } else {
    table.require("x", "name the file with the samples");
  }
  if (given("seed") && options.format != PackFormat::synthetic && options.validation == 0) {
    throw UsageError("--seed has an effect only with --format synthetic or with --validation");
  }
  if (options.inputs.size() > 1 && !takes_several(*options.format)) {
    throw UsageError(
        fmt::format("--x: {} and {}: this format takes one file or folder; cifar, text and tokens take several",
                    options.inputs[0].string(), options.inputs[1].string()));
  }
  if (options.tokenizer == "byte" && given("vocabulary")) {
    throw UsageError("--vocabulary has no effect on --tokenizer byte: there are 256 bytes");
  }
  if (options.tokenizer == "bpe" && given("vocabulary")) {
    throw UsageError("--vocabulary has no effect on --tokenizer bpe: its files say how many tokens there are");
  }
  if (options.tokenizer == "bpe" && options.tokenizer_files.empty() && options.vocabulary_from.empty()) {
    throw UsageError(
        "--tokenizer-files is missing: name the folder with tokenizer.json, or with vocab.json and merges.txt");
  }
  if (options.format == PackFormat::tokens && !given("vocabulary")) {
    throw UsageError(
        "--vocabulary is missing: how many different tokens there are, those that do not occur included (GPT-2: "
        "50257)");
  }
  if (options.regression && options.format == PackFormat::csv && options.label_column.empty()) {
    throw UsageError("--regression needs --label-column: the column to predict");
  }
}

}  // namespace

PackOptions parse_pack(const std::vector<std::string>& arguments) {
  PackOptions options;
  OptionTable table("lockstep pack");
  table.group("Input");
  table.add_choice("format", options.format, "NAME", "input format; default: by the name of --x", formats());
  table
      .add_free(
          "x", Option::Shape::value, "FILE",
          "samples: IDX (also .gz), NumPy .npy or .npz, a table with samples and labels (.csv, .tsv), HDF5 (.h5, or a "
          "folder of such files), CIFAR batches (.bin, or their folder for the training batches), a folder with a "
          "folder of images per class, text (.txt, also .gz), or tokens (.bin, .npy, .h5). CIFAR, text and tokens: "
          "also "
          "several files, comma-separated, or one after another without --x",
          [&options](const Option&, const std::string& text) {
            add_inputs(options, text);
            return std::string();
          },
          [&options] { return options.x.string(); })
      .positional()
      .several();
  table.add("y", options.y, "FILE", "labels or targets, for idx and npy").only_with("format", {"idx", "npy"});
  table
      .add("mask", options.mask,
           "labels are masks: each position of a sample has a class (npy, npz, idx, hdf5). Default if labels and "
           "samples both have two or more dimensions, unless --regression is given")
      .only_with("format", {"npy", "npz", "idx", "hdf5"})
      .contradicts("regression");
  add_ignore_label(table, options.ignore_label);
  table.find("ignore-label")->only_with("format", {"npy", "npz", "idx", "hdf5"});
  table.group("Output");
  table.add("out", options.out, "FOLDER", "shard folder to write");
  table.add("shards", options.shards, "N", "number of files to spread the samples over").at_least(1).at_most(100000);
  table.add("force", options.force, "replace the folder if it exists");
  table
      .add("validation", options.validation, "PART",
           "write FOLDER/train and FOLDER/validation, with this number of samples (below 1: this fraction) for "
           "validation: chosen at random, for text and tokens the last ones; 0: do not split")
      .at_least(0)
      .check(check_validation);
  table.add("seed", options.seed, "N", "random seed of the choice for --validation and of synthetic samples");
  table.group("Folders of images (images)");
  table
      .add_parsed("size", options.size, "PIXELS",
                  "size of the images: N: scale the shorter side to N and cut out the central N x N; HxW: scale to "
                  "this size; default: as they are, if all have one size",
                  parse_size, size_text)
      .only_with("format", {"images"});
  table
      .add("channels", options.channels, "N",
           "1: grey, 3: colour; 0: 1 if all images that are looked at are grey, else 3")
      .at_least(0)
      .at_most(3)
      .check([](const std::string& text) { return text == "2" ? "is none of 0, 1 and 3" : ""; })
      .only_with("format", {"images"});
  add_table_options(table, options);
  add_hdf5_options(table, options);
  add_text_options(table, options);
  add_synthetic_options(table, options);
  table.group("Reports");
  add_progress_option(table, options.progress);

  read_options(table, arguments, kPackUsage, kPackExamples);
  if (!options.format) {
    table.require("x", "name the file with the samples, or ask for synthetic ones with --format synthetic");
    options.format = format_of_names(options);
  }
  table.check_relations();
  check_format(table, options);
  table.require("out", "name the shard folder to make");
  options.header_is_said = table.find("header")->source() != OptionSource::default_value;
  if (options.decimal == options.thousands) {
    throw UsageError(fmt::format("--decimal and --thousands are both {}: a mark has one meaning", options.decimal));
  }
  const bool separator_given = table.find("separator")->source() != OptionSource::default_value;
  if (!separator_given && options.x.extension() == ".tsv") options.separator = '\t';
  return options;
}

}  // namespace lockstep::app
