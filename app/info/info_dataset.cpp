#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "app/data/network_input.hpp"
#include "app/info/describe_columns.hpp"
#include "app/info/info.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/shards/running_statistics.hpp"
#include "io/shards/shard_file.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

/// Maximum number of labels to count: more would take minutes.
constexpr std::int64_t kMaxLabelsCounted = 200'000'000;
constexpr std::int64_t kMaxClassesCounted = 1 << 24;
constexpr std::int64_t kLabelsAtOnce = 1 << 20;
constexpr std::size_t kMaxClassesShown = 100;
constexpr std::size_t kMaxShardsShown = 64;
constexpr std::size_t kMaxTextsShown = 20;
constexpr std::int64_t kTokensShown = 60;

std::string describe(const io::Field& field) {
  const std::string unit = field.unit.empty() ? "" : " in " + io::visible_line(field.unit);
  return field.sample_shape.empty()
             ? fmt::format("{}, one number{}", name_of(field.type), unit)
             : fmt::format("{} [{}]{}", name_of(field.type), fmt::join(field.sample_shape, ", "), unit);
}

/// Calls use(numbers of some samples, index of the first sample) over all shards. Reads the label datasets directly.
template <class Number, class Use>
void for_each_label(const io::ShardedDataset& dataset, const Use& use) {
  const std::int64_t columns = dataset.info().y.elements();
  const std::int64_t most = std::max<std::int64_t>(1, kLabelsAtOnce / columns);
  std::vector<std::int64_t> samples;
  std::vector<Number> labels;
  for (std::int64_t first = 0; first < dataset.info().samples; first += most) {
    samples.resize(static_cast<std::size_t>(std::min(most, dataset.info().samples - first)));
    std::iota(samples.begin(), samples.end(), first);
    labels.resize(samples.size() * static_cast<std::size_t>(columns));
    dataset.read_y(samples, std::as_writable_bytes(std::span(labels)));
    use(std::span<const Number>(labels), first);
  }
}

/// Counts the samples, or positions of masks, of each class, or the samples that have each label. Missing labels are
/// not counted.
std::vector<std::int64_t> count_labels(const io::ShardedDataset& dataset, bool can_be_missing) {
  const io::DatasetInfo& info = dataset.info();
  const auto count = static_cast<std::size_t>(info.labels_are_classes ? info.classes : info.y.elements());
  std::vector<std::int64_t> counts(count);
  if (info.labels_are_classes) {
    for_each_label<std::int32_t>(dataset, [&](std::span<const std::int32_t> labels, std::int64_t first) {
      const std::int64_t each = std::max<std::int64_t>(1, info.y.elements());
      const std::vector<bool> missing =
          can_be_missing ? dataset.missing_labels(first, std::ssize(labels) / each) : std::vector<bool>(labels.size());
      for (std::size_t i = 0; i < labels.size(); ++i) {
        if (!missing[i] && labels[i] != io::kIgnored) ++counts[static_cast<std::size_t>(labels[i])];
      }
    });
  } else {
    for_each_label<float>(dataset, [&](std::span<const float> labels, std::int64_t) {
      for (std::size_t i = 0; i < labels.size(); ++i) counts[i % count] += labels[i] > 0 ? 1 : 0;
    });
  }
  return counts;
}

void warn_of_missing_labels(Console& console, const io::ShardedDataset& dataset) {
  const std::int64_t samples = dataset.info().samples;
  const auto each = static_cast<std::size_t>(std::max<std::int64_t>(1, dataset.info().y.elements()));
  const std::int64_t most = std::max<std::int64_t>(1, kLabelsAtOnce / static_cast<std::int64_t>(each));
  std::int64_t incomplete = 0;
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::vector<bool> missing = dataset.missing_labels(first, std::min(most, samples - first));
    for (auto row = missing.begin(); row != missing.end(); row += static_cast<std::ptrdiff_t>(each)) {
      incomplete +=
          std::find(row, row + static_cast<std::ptrdiff_t>(each), true) != row + static_cast<std::ptrdiff_t>(each);
    }
  }
  if (incomplete == 0) return;
  console.warn(
      fmt::format("{} of {} samples miss their label: train refuses them, `lockstep pack --missing drop` leaves "
                  "them out",
                  with_commas(incomplete), with_commas(samples)));
}

std::string class_table(const io::DatasetInfo& info, const std::vector<std::int64_t>& counts) {
  const std::int64_t most = std::max<std::int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  constexpr std::int64_t kLongestBar = 30;
  std::string text = info.has_masks()          ? "classes of the masks' positions\n"
                     : info.labels_are_classes ? "classes\n"
                                               : "samples that have a label\n";
  for (std::size_t i = 0; i < std::min(counts.size(), kMaxClassesShown); ++i) {
    const std::string name = i < info.class_names.size() ? io::visible_line(info.class_names[i]) : fmt::format("{}", i);
    text += fmt::format("  {:<16} {:>12}  {:#<{}}\n", name, with_commas(counts[i]), "", counts[i] * kLongestBar / most);
  }
  if (counts.size() > kMaxClassesShown)
    text += fmt::format("  … and {} more {}\n", counts.size() - kMaxClassesShown,
                        info.labels_are_classes ? "classes" : "labels");
  return text;
}

/// "data/mnist: 60,000 samples in 2 files, 45.0 MiB"
std::string first_line(const std::filesystem::path& path, const io::Dataset& dataset, const std::string& amount) {
  std::uint64_t bytes = 0;
  for (const io::ShardInfo& shard : dataset.shards()) bytes += shard.bytes;
  return fmt::format("{}: {} in {}, {}\n", io::visible_line(path.string()), amount,
                     counted(dataset.shards().size(), "file"), format_bytes(bytes));
}

struct Values {
  io::RunningStatistics statistics;
  bool all = true;           ///< true: all values; false: an even sample of them
  std::int64_t missing = 0;  ///< number of values that are NaN or missing according to the attributes of a dataset
  std::int64_t seen = 0;

  template <class Number>
  void add(std::span<const Number> numbers) {
    seen += std::ssize(numbers);
    if constexpr (std::is_floating_point_v<Number>) {
      std::vector<Number> there;
      std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(there),
                   [](Number one) { return !std::isnan(one); });
      missing += std::ssize(numbers) - std::ssize(there);
      if (!there.empty()) static_cast<void>(statistics.add(std::span<const Number>(there)));
    } else {
      static_cast<void>(statistics.add(numbers));
    }
  }
};

/// Examines the numbers of data that do not record their range.
Values look_at_values(const io::ShardedDataset& dataset) {
  constexpr std::int64_t kMaxBytes = std::int64_t{4} << 30, kBlock = std::int64_t{1} << 20;
  const std::int64_t samples = dataset.info().samples;
  const std::int64_t rows = std::max<std::int64_t>(1, kBlock / static_cast<std::int64_t>(dataset.x_bytes()));
  // Reads one block out of every `stride`.
  const std::int64_t stride = 1 + samples * static_cast<std::int64_t>(dataset.stored_bytes()) / kMaxBytes;
  Values values{.statistics = {}, .all = stride == 1};
  std::vector<std::int64_t> wanted;
  std::vector<std::byte> x, y;
  for (std::int64_t first = 0; first < samples; first += rows * stride) {
    wanted.resize(static_cast<std::size_t>(std::min(rows, samples - first)));
    std::iota(wanted.begin(), wanted.end(), first);
    x.resize(wanted.size() * dataset.x_bytes());
    y.resize(wanted.size() * dataset.y_bytes());
    dataset.read(wanted, io::kNoEpoch, x, y);
    io::with_elements(dataset.x_type(), x, [&](auto elements) { values.add(elements); });
  }
  return values;
}

std::string storage_of(const io::StoredField& stored) {
  if (stored.offset) return "contiguous";
  if (!stored.in_this_file) return "in other files, read through the HDF5 library";
  if (stored.text) return stored.members ? "members of an enumeration, which are names of classes" : "texts";
  return fmt::format("{}{}",
                     stored.chunk.empty() ? std::string("read through the HDF5 library")
                                          : fmt::format("chunks of [{}]", fmt::join(stored.chunk, ", ")),
                     stored.compressed ? ", compressed" : "");
}

constexpr std::int64_t kMaxColours = 4;

/// Describes how `train` would read these data, if another program wrote them.
std::string training_text(const io::DatasetInfo& info) {
  const std::vector<std::int64_t>& shape = info.x.sample_shape;
  const std::string sees =
      !info.inputs.empty() ? fmt::format("{} side by side, {}", counted(info.inputs.size(), "input"),
                                         counted(info.x.elements(), "number"))
      : shape.size() == 4
          ? fmt::format("volumes of {} x {} x {}, {}", shape[0], shape[1], shape[2], counted(shape[3], "channel"))
      : shape.size() == 3
          ? fmt::format(
                "images of {} x {} pixels, {}{}", shape[0], shape[1], counted(shape[2], "channel"),
                shape[2] > kMaxColours ? " (as volumes: `inputs: {x: [any, any, any, any]}` in a network's file)" : "")
      : shape.size() == 2 ? fmt::format("grey images of {} x {} pixels", shape[0], shape[1])
                          : counted(info.x.elements(), "feature");
  const std::string learns =
      info.y.name.empty()       ? std::string("cannot learn from them: there are no labels (--y)")
      : info.labels_are_classes ? fmt::format("learns {} by cross-entropy", counted(info.classes, "class"))
      : info.targets_are_binary && info.y.elements() > 1
          ? fmt::format("learns {} by binary cross-entropy", counted(info.y.elements(), "label"))
      : !info.field.empty() ? fmt::format("predicts {} by squared error", fields_text(info.field, info.target_count()))
                            : fmt::format("predicts {} by squared error", counted(info.y.elements(), "number"));
  return fmt::format("  train    sees {}; {}\n", sees, learns);
}

/// Returns a line for each of several inputs or targets.
std::string describe_fields(const std::vector<io::FieldRange>& fields) {
  std::string text;
  for (const io::FieldRange& range : fields) {
    text += fmt::format("    {:<12} {}", io::visible_line(range.field.name), describe(range.field));
    if (range.has_statistics) {
      text += fmt::format(", {:.6g} to {:.6g}, mean {:.6g}, deviation {:.6g}", range.value_min, range.value_max,
                          range.mean, range.standard_deviation);
    }
    text += "\n";
  }
  return text;
}

std::string heading(const std::filesystem::path& path, const io::ShardedDataset& dataset,
                    const io::DatasetOptions& data) {
  const io::DatasetInfo& info = dataset.info();
  std::string text = first_line(path, dataset, counted(info.samples, "sample"));
  if (!info.source.empty()) text += fmt::format("  source   {}\n", io::visible_line(info.source));
  text += fmt::format("  {:<8} {}, ", io::visible_line(info.x.name), describe(info.x));
  const std::string fields = describe_fields(info.inputs) + describe_fields(info.targets);
  std::string missing;
  if (info.has_statistics) {
    text += fmt::format("{:.6g} to {:.6g}, mean {:.6g}, deviation {:.6g}", info.value_min, info.value_max, info.mean,
                        info.standard_deviation);
  } else {
    const Values values = look_at_values(dataset);
    text += fmt::format("{:.6g} to {:.6g}, mean {:.6g}, deviation {:.6g}{}", values.statistics.low(),
                        values.statistics.high(), values.statistics.mean(), values.statistics.standard_deviation(),
                        values.all ? "" : " (of some of them)");
    if (values.missing > 0) {
      missing = fmt::format(
          "  missing  {} of {} numbers of x: train refuses them; `lockstep pack --missing drop` leaves "
          "their samples out, --missing mean fills them\n",
          with_commas(values.missing), with_commas(values.seen));
    }
  }
  const std::string labels =
      info.has_masks()          ? fmt::format("masks of {}{}", counted(info.classes, "class"),
                                     info.ignored_label ? fmt::format(", {} belongs to none", *info.ignored_label) : "")
      : info.labels_are_classes ? "labels of " + counted(info.classes, "class")
      : !info.field.empty()     ? fields_text(info.field, info.target_count())
      : info.targets_are_binary ? fmt::format("{} of 0 or 1", counted(info.y.elements(), "label"))
                                : std::string("numbers to predict");
  if (!info.y.name.empty())
    text += fmt::format("\n  {:<8} {}, {}", io::visible_line(info.y.name), describe(info.y), labels);
  text += "\n" + fields;
  if (info.table) text += describe_columns(*info.table, 11);
  if (info.id) text += fmt::format("  names    of the samples: {}\n", io::visible_line(info.id->name));
  if (info.has_statistics) return text;
  const io::ShardFile first(dataset.shards()[0].file, data.x, data.y, nullptr, data.unlabelled, data.gaps);
  for (const io::StoredField& stored : first.fields()) {
    text += fmt::format("  {:<8} data set {}, {}\n", io::visible_line(stored.field.name),
                        io::visible_line(stored.dataset), storage_of(stored));
    if (stored.text || !stored.meaning.matters()) continue;
    const std::string converted =
        stored.meaning.stored == stored.field.type
            ? std::string()
            : fmt::format("{} as {}: ", io::name_of(stored.meaning.stored), io::name_of(stored.field.type));
    text += fmt::format("  {:<8} {}{}\n", "", converted, io::visible_line(stored.meaning.in_words()));
  }
  for (const std::filesystem::path& other : first.other_files())
    text += fmt::format("  {:<8} data of {}\n", "", io::visible_line(other.string()));
  text += missing;
  return text + training_text(info);
}

/// The first tokens of the corpus as text, up to a limit.
std::string beginning(const io::TokenDataset& dataset, const io::Tokenizer& tokenizer) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(std::min(dataset.info().samples, kTokensShown)));
  std::iota(windows.begin(), windows.end(), 0);
  std::vector<std::int32_t> tokens(windows.size()), next(windows.size());
  dataset.read(windows, io::kNoEpoch, std::as_writable_bytes(std::span(tokens)),
               std::as_writable_bytes(std::span(next)));
  return tokenizer.decode(tokens);
}

std::string heading(const std::filesystem::path& path, const io::TokenDataset& dataset) {
  const io::TokenInfo& tokens = *dataset.info().tokens;
  std::string text = first_line(path, dataset, counted(tokens.tokens, "token"));
  if (!dataset.info().source.empty())
    text += fmt::format("  source      {}\n", io::visible_line(dataset.info().source));
  text += fmt::format("  vocabulary  {} of kind {}, {} stored per token{}\n", with_commas(tokens.vocabulary),
                      io::visible_line(tokens.kind), counted(static_cast<std::int64_t>(dataset.stored_bytes()), "byte"),
                      tokens.unknown < 0 ? "" : fmt::format(", {} is <unk>", tokens.unknown));
  if (tokens.bytes_per_token > 0) text += fmt::format("  text        {:.3f} bytes per token\n", tokens.bytes_per_token);
  if (!tokens.texts.empty()) {
    text += "  tokens     ";
    for (std::size_t i = 0; i < std::min(tokens.texts.size(), kMaxTextsShown); ++i) {
      text += fmt::format(" '{}'", io::visible_line(tokens.texts[i]));
    }
    text += tokens.texts.size() > kMaxTextsShown ? " …\n" : "\n";
    for (std::size_t i = 0; i < std::min(tokens.added.size(), kMaxTextsShown); ++i) {
      const std::int64_t token = tokens.added[i];
      text += fmt::format("  added       token {} is '{}'\n", token,
                          io::visible_line(tokens.texts.at(static_cast<std::size_t>(token))));
    }
  }
  if (tokens.kind == "ids") return text;
  return text + fmt::format("  begins      {} …\n", io::visible_line(beginning(dataset, io::Tokenizer(tokens))));
}

/// Prints one line per shard, and verifies it if requested. Returns false if one is damaged.
bool describe_shards(Console& console, const io::Dataset& dataset, bool verify) {
  const bool corpus = dataset.info().tokens.has_value();
  const auto& shards = dataset.shards();
  const int parts = static_cast<int>(shards.size());
  std::vector<std::string> problems;
  std::uint64_t verified = 0;
  const StopWatch watch;
  const auto row = [&console](const std::array<std::string, 7>& cells) {
    std::string line = fmt::format("{:<28} {:>12} {:>12} {:>8}  {:<16}  {:<16}  {}", cells[0], cells[1], cells[2],
                                   cells[3], cells[4], cells[5], cells[6]);
    line.erase(line.find_last_not_of(' ') + 1);
    console.info(line);
  };
  row({"file", corpus ? "tokens" : "samples", "size", "read by", corpus ? "checksum" : "checksum x",
       corpus ? "" : "checksum y", verify ? "state" : ""});
  for (int i = 0; i < parts; ++i) {
    const io::ShardInfo& shard = shards[i];
    std::string state;
    if (verify && shard.checksum_x.empty() && !corpus) {
      state = "no checksum";
    } else if (verify) {
      console.progress(static_cast<double>(i) / parts, fmt::format("verifying {}", shard.file.filename().string()));
      try {
        verified += dataset.verify(i, parts);
        state = "ok";
      } catch (const io::FileError& error) {
        state = "DAMAGED";
        problems.emplace_back(error.what());
      }
    }
    const bool shown =
        shards.size() <= kMaxShardsShown || state == "DAMAGED" || static_cast<std::size_t>(i) < kMaxShardsShown / 2;
    if (!shown) continue;
    row({io::visible_line(shard.file.filename().string()), with_commas(shard.count), format_bytes(shard.bytes),
         shard.by_offset ? "offset" : "HDF5", shard.checksum_x, shard.checksum_y, state});
  }
  console.clear_progress();
  if (shards.size() > kMaxShardsShown)
    console.info(fmt::format("({} files; those not shown {})", shards.size(), verify ? "are sound" : "are alike"));
  if (verify && verified > 0) {
    const double seconds = watch.seconds();
    console.info(fmt::format("verified {} in {:.2f} s ({})", format_bytes(verified), seconds,
                             format_byte_rate(verified, seconds)));
  }
  for (const std::string& problem : problems) console.warn(problem);
  return problems.empty();
}

}  // namespace

bool describe_dataset(Console& console, const io::DatasetOptions& data, bool verify) {
  if (io::holds_tokens(data.path)) {
    const io::TokenDataset corpus({.path = data.path, .context = 1});
    console.info(heading(data.path, corpus));
    return describe_shards(console, corpus, verify);
  }
  const io::ShardedDataset dataset(data);
  console.info(heading(data.path, dataset, data));
  for (const std::string& warning : dataset.warnings()) console.warn(warning);
  if (!describe_shards(console, dataset, verify)) return false;
  const io::DatasetInfo& info = dataset.info();
  const std::int64_t each = std::max<std::int64_t>(1, info.y.elements());
  const bool labels = info.labels_are_classes ? info.classes > 0 : info.targets_are_binary && each > 1;
  if (!verify || info.samples > kMaxLabelsCounted / each) return true;
  // Packed shards miss no label, and masks may.
  const bool can_be_missing =
      !info.y.name.empty() && info.targets.empty() && !info.has_statistics && dataset.labels_can_be_missing();
  if (labels && info.classes <= kMaxClassesCounted) {
    console.info(class_table(info, count_labels(dataset, can_be_missing)));
  }
  if (can_be_missing && !info.has_masks()) warn_of_missing_labels(console, dataset);
  return true;
}

}  // namespace lockstep::app
