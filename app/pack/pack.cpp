#include "app/pack/pack.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/open_dataset.hpp"
#include "app/pack/pack_ranks.hpp"
#include "app/pack/table_encoding.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/machine.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "io/datasets/dataset_source.hpp"
#include "io/datasets/hdf5_token_source.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/formats/image_listing.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

/// Stops the writer, which then removes its unfinished files.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

io::TextOptions text_options(const PackOptions& options) {
  io::TextOptions text{.tokenizer = options.tokenizer.empty() ? "char" : options.tokenizer,
                       .vocabulary = options.vocabulary};
  if (!options.tokenizer_files.empty()) text.from = io::read_tokenizer_files(options.tokenizer_files);
  if (options.vocabulary_from.empty()) return text;
  text.from = io::read_vocabulary(options.vocabulary_from);
  if (!options.tokenizer.empty() && options.tokenizer != text.from->kind) {
    throw UsageError(
        fmt::format("--tokenizer {} and --vocabulary-from {} contradict each other: its tokens are of kind {}",
                    options.tokenizer, options.vocabulary_from.string(), text.from->kind));
  }
  return text;
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return words;
}

/// Files may have no labels, unless the user names a dataset of labels.
io::Unlabelled unlabelled(const PackOptions& options) {
  return options.y_name == PackOptions{}.y_name ? io::Unlabelled::accepted : io::Unlabelled::refused;
}

io::Gaps gaps_of(const PackOptions& options) {
  return {.accept_unwritten = options.allow_fill, .deliver_missing = options.missing != io::CsvOptions::Missing::error};
}

io::ImageFolderOptions image_options(const PackOptions& options) {
  const ImageSize size = options.size.value_or(ImageSize{.crop = true});
  return {.height = size.height,
          .width = size.width,
          .crop = size.crop,
          .channels = options.channels,
          .threads = processors()};
}

io::LabelMeaning label_meaning(const PackOptions& options) {
  return options.regression ? io::LabelMeaning::numbers
         : options.mask     ? io::LabelMeaning::masks
                            : io::LabelMeaning::automatic;
}

io::ArrayLabels array_labels(const PackOptions& options) {
  return {.meaning = label_meaning(options), .ignored = options.ignore_label};
}

bool is_hdf5(const std::filesystem::path& file) {
  constexpr std::string_view kSignature = "\x89HDF";
  std::ifstream in(file, std::ios::binary);
  std::string begin(kSignature.size(), ' ');
  return in.read(begin.data(), std::ssize(begin)) && begin == kSignature;
}

/// True if the tokens are in an HDF5 file, or in a folder of such files.
bool holds_hdf5(const PackOptions& options) {
  std::error_code unknown;
  return options.inputs.size() == 1 && (std::filesystem::is_directory(options.x, unknown) || is_hdf5(options.x));
}

/// Corpora have the usual name of `train`, unless the user names another dataset.
std::string token_dataset(const PackOptions& options) {
  return options.x_name == PackOptions{}.x_name ? io::kTokensName : options.x_name;
}

/// parse_pack() has set options.format.
std::unique_ptr<io::SampleSource> open_source(const PackOptions& options,
                                              const std::optional<io::TableEncoding>& encoding) {
  switch (options.format.value()) {
    case PackFormat::idx:
      return io::open_idx(options.x, options.y, array_labels(options));
    case PackFormat::npy:
      return io::open_npy(options.x, options.y, array_labels(options));
    case PackFormat::npz:
      return io::open_npz(options.x, options.x_name, options.y_name, array_labels(options));
    case PackFormat::csv:
      return io::open_csv(options.x, {.header = options.header,
                                      .numbers_may_be_names = options.header_is_said,
                                      .separator = options.separator,
                                      .decimal = options.decimal,
                                      .thousands = options.thousands,
                                      .label_column = options.label_column,
                                      .label_is_class = !options.regression,
                                      .weight_column = options.sample_weight,
                                      .ignored = words_of(options.ignore_columns),
                                      .categories = words_of(options.categories),
                                      .id_column = options.id_column,
                                      .text = options.text_columns,
                                      .missing = options.missing,
                                      .encoding = encoding,
                                      .unknown = options.unknown_categories});
    case PackFormat::hdf5:
      return io::open_hdf5({.path = options.x,
                            .x = options.x_name,
                            .y = options.y_name,
                            .unlabelled = unlabelled(options),
                            .gaps = gaps_of(options),
                            .layout = options.layout,
                            .labels = label_meaning(options),
                            .ignored_label = options.ignore_label},
                           options.missing);
    case PackFormat::cifar10:
      return io::open_cifar(options.inputs, io::CifarKind::cifar10);
    case PackFormat::cifar100:
      return io::open_cifar(options.inputs, io::CifarKind::cifar100);
    case PackFormat::images:
      return io::open_image_folder(options.x, image_options(options));
    case PackFormat::text:
      return io::open_text(options.inputs, text_options(options));
    case PackFormat::tokens:
      if (!holds_hdf5(options)) return io::open_tokens(options.inputs, options.vocabulary);
      return io::open_hdf5_tokens(options.x, token_dataset(options), options.vocabulary);
    case PackFormat::synthetic:
      return io::make_synthetic({.task = options.task,
                                 .samples = options.samples,
                                 .features = options.features,
                                 .classes = options.classes,
                                 .noise = options.noise,
                                 .seed = options.seed,
                                 .first = options.first});
  }
  throw std::logic_error("a format that nobody reads");
}

std::string describe(const io::Field& field) {
  return field.sample_shape.empty()
             ? fmt::format("{} {}", field.name, name_of(field.type))
             : fmt::format("{} {} [{}]", field.name, name_of(field.type), fmt::join(field.sample_shape, ", "));
}

/// Opens images that are already split. All parts get the size, channels, depth and classes of the first part.
std::vector<io::NamedSource> open_image_parts(const PackOptions& options, const std::vector<io::ImagePart>& parts) {
  std::vector<io::NamedSource> sources;
  io::ImageFolderOptions like_first = image_options(options);
  for (const io::ImagePart& part : parts) {
    sources.push_back({part.name, io::open_image_folder(part.folder, like_first)});
    const io::SampleSource &first = *sources.front().source, &one = *sources.back().source;
    const io::Field x = first.fields()[0];
    if (like_first.height == 0) {
      like_first.height = x.sample_shape[0], like_first.width = x.sample_shape[1], like_first.scale = false;
    }
    if (x.sample_shape[2] == 3) like_first.channels = 3;
    if (one.class_names() != first.class_names()) {
      throw io::FileError(fmt::format("{} and {} have different classes ({} and {}): give both the same sub-folders",
                                      parts.front().folder.string(), part.folder.string(),
                                      fmt::join(first.class_names(), ", "), fmt::join(one.class_names(), ", ")));
    }
    if (one.fields()[0] != x) {
      throw io::FileError(fmt::format("{} and {} have images of different kinds, {} and {}: convert them to one",
                                      parts.front().folder.string(), part.folder.string(), describe(x),
                                      describe(one.fields()[0])));
    }
  }
  return sources;
}

/// Opens parts with names, or a single part without a name.
std::vector<io::NamedSource> open_parts(const PackOptions& options, const std::optional<io::TableEncoding>& encoding) {
  if (options.format == PackFormat::images) {
    if (const std::vector<io::ImagePart> parts = io::image_parts(options.x); !parts.empty()) {
      if (options.validation == 0) return open_image_parts(options, parts);
      throw UsageError(
          fmt::format("{} is split already, into {}/ and others: leave --validation out, or name the "
                      "folder of one part with --x",
                      options.x.string(), parts.front().name));
    }
  }
  std::vector<io::NamedSource> all;
  all.push_back({"", open_source(options, encoding)});
  if (options.regression && options.format == PackFormat::hdf5 && all[0].source->labels_are_classes()) {
    throw UsageError(
        fmt::format("--regression: the labels in {} are names of classes, not numbers to predict: leave it out, or "
                    "store the numbers",
                    options.x.string()));
  }
  return all;
}

std::string describe(const io::SampleSource& source) {
  if (const auto tokens = source.token_info()) {
    return fmt::format("{} ({}); vocabulary of {}", counted(source.count(), "token"), tokens->kind,
                       with_commas(tokens->vocabulary));
  }
  std::string text = counted(source.count(), "sample");
  for (const io::Field& field : source.fields()) text += "; " + describe(field);
  const std::vector<io::FieldRole> roles = source.roles();
  const bool has_targets =
      roles.empty() ? source.fields().size() > 1 : std::ranges::find(roles, io::FieldRole::target) != roles.end();
  if (has_targets) {
    text += !source.labels_are_classes()        ? " (numbers to predict)"
            : source.fields()[1].elements() > 1 ? " (masks: a class for each position)"
                                                : " (class labels)";
  }
  return text;
}

/// Returns the number of samples for validation. It splits like nanoGPT: of N samples, floor((1 - fraction) N) are for
/// training.
std::int64_t validation_count(const PackOptions& options, std::int64_t samples) {
  if (options.validation >= 1) return static_cast<std::int64_t>(options.validation);
  return samples - static_cast<std::int64_t>(static_cast<double>(samples) * (1 - options.validation));
}

/// Describes the content of a folder that was just written.
void describe_written(Console& console, const std::filesystem::path& folder) {
  if (io::holds_tokens(folder)) {
    const io::TokenInfo tokens = io::read_vocabulary(folder);
    if (tokens.bytes_per_token > 0)
      console.info(fmt::format("text     {:.3f} bytes per token", tokens.bytes_per_token));
    return;
  }
  const io::ShardedDataset written({.path = folder});
  const io::DatasetInfo& info = written.info();
  if (info.labels_are_classes && info.classes > 0) console.info(fmt::format("classes  {}", info.classes));
  console.info(fmt::format("values   {:.6g} to {:.6g}, mean {:.6g}, deviation {:.6g}", info.value_min, info.value_max,
                           info.mean, info.standard_deviation));
}

/// Limits texts to one process, because a process cannot begin reading in their middle.
void require_parts(const PackOptions& options, int ranks, Console& console) {
  if (ranks == 1) return;
  if (options.format == PackFormat::text || options.format == PackFormat::tokens) {
    throw UsageError(
        fmt::format("a corpus is packed by one process, and {} were started: start it without mpirun or "
                    "srun",
                    ranks));
  }
  if (options.shards >= ranks) return;
  console.warn(fmt::format("only {} of {} ranks have something to write: --shards {} gives each of them a file",
                           options.shards, ranks, ranks));
}

}  // namespace

int run_pack(comm::MpiSession* session, const PackOptions& options, StopSignals& signals) {
  const auto communicator = session != nullptr ? comm::make_communicator(*session, {}) : nullptr;
  std::optional<PackRanks> ranks;
  if (communicator) ranks.emplace(*communicator);
  io::PackPeers alone;
  io::PackPeers& peers = ranks ? *ranks : alone;
  const bool speaks = peers.rank() == 0;
  Console console(speaks);
  if (speaks) console.set_progress(options.progress);
  require_parts(options, peers.size(), console);

  if (options.format == PackFormat::tokens && holds_hdf5(options)) {
    inspect_data({.x = token_dataset(options), .y = "", .unlabelled = io::Unlabelled::accepted}, options.x);
  }
  if (options.format == PackFormat::hdf5) {
    peers.all_succeed([&] {
      if (!speaks) return;
      inspect_data(
          {.x = options.x_name, .y = options.y_name, .unlabelled = unlabelled(options), .gaps = gaps_of(options)},
          options.x);
    });
  }
  std::vector<io::NamedSource> parts;
  std::optional<io::TableEncoding> encoding;
  peers.all_succeed([&] {
    if (!options.columns_from.empty()) encoding = read_table_encoding(options.columns_from);
    parts = open_parts(options, encoding);
    for (const io::NamedSource& part : parts) part.source->verify(peers.rank(), peers.size());
  });
  const io::SampleSource& first = *parts.front().source;
  const std::string noun = first.token_info() ? "token" : "sample";
  const std::int64_t validation = options.validation > 0 ? validation_count(options, first.count()) : 0;
  for (const io::NamedSource& part : parts) {
    console.info(fmt::format("reading  {}\n         {}{}{}", io::visible_line(part.source->description()), part.name,
                             part.name.empty() ? "" : ": ", io::visible_line(describe(*part.source))));
    for (const std::string& remark : part.source->remarks()) console.info("         " + io::visible_line(remark));
  }
  console.info(fmt::format("writing  {} ({}{})", options.out.string(), counted(options.shards, "shard"),
                           peers.size() > 1 ? fmt::format(" by {} ranks", peers.size()) : ""));

  std::size_t sample_bytes = 0;
  for (const io::Field& field : first.fields()) sample_bytes += field.bytes();
  const StopWatch watch;
  signals.note();  // from now on, a stop must remove files
  const io::PackProgress progress = [&](std::int64_t done, std::int64_t of) {
    if (signals.stop_requested()) throw Cancelled(fmt::format("stopped by {}", signals.name()));
    if (ranks) ranks->note_progress();
    const double bytes = static_cast<double>(done) * static_cast<double>(sample_bytes);
    console.progress(of > 0 ? static_cast<double>(done) / static_cast<double>(of) : 1,
                     fmt::format("{} {}s  {}", with_commas(done), noun, format_byte_rate(bytes, watch.seconds())));
  };
  const io::ShardWriterOptions writing{
      .folder = options.out,
      .shards = options.shards,
      .overwrite = options.force,
      .classes = encoding && encoding->class_names.empty() && first.labels_are_classes() ? encoding->classes : 0,
      .peers = &peers};
  std::vector<std::pair<std::filesystem::path, io::PackSummary>> folders;
  const auto cancelled = [&] {
    console.clear_progress();
    console.warn(fmt::format("stopped by {}; {} is as it was before", signals.name(), options.out.string()));
    return 1;
  };
  try {
    if (parts.size() > 1) {
      std::vector<std::string> names;
      for (const io::NamedSource& part : parts) names.push_back(part.name);
      const auto written = io::write_parts([&] { return std::move(parts); }, writing, progress);
      for (std::size_t i = 0; i < names.size(); ++i) folders.emplace_back(options.out / names[i], written[i]);
    } else if (options.validation > 0) {
      std::unique_ptr<io::SampleSource> begun = std::move(parts.front().source);
      const io::OpenSource open = [&] { return begun ? std::move(begun) : open_source(options, encoding); };
      const io::SplitSummary split =
          io::write_split(open, {.validation = validation, .seed = options.seed}, writing, progress);
      folders = {{options.out / io::kTrainName, split.train}, {options.out / io::kValidationName, split.validation}};
    } else {
      folders = {{options.out, io::write_shards(*parts.front().source, writing, progress)}};
    }
  } catch (const Cancelled&) {
    return cancelled();
  } catch (const comm::ConsensusError&) {  // another rank received the same signal
    if (signals.stop_requested()) return cancelled();
    throw;
  }
  signals.ignore();
  console.clear_progress();
  if (!speaks) return 0;
  const double seconds = watch.seconds();
  for (const auto& [folder, summary] : folders) {
    const double bytes = static_cast<double>(summary.bytes);
    const std::string where = folders.size() > 1 ? folder.filename().string() + ": " : "";
    console.info(fmt::format("packed   {}{}, {} in {}, {:.1f} s ({})", where, counted(summary.samples, noun),
                             format_bytes(bytes), counted(summary.shards, "shard"), seconds,
                             format_byte_rate(bytes, seconds)));
    describe_written(console, folder);
    if (summary.first_class > 0) {
      console.info(
          fmt::format("labels   begin at {}: the classes below have no samples, and outputs of the network all "
                      "the same; labels from 0 on have none such",
                      summary.first_class));
    }
  }
  console.mention_lost_output();
  return 0;
}

}  // namespace lockstep::app
