#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "app/info/info.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/text/tokenizer.hpp"

namespace lockstep::app {
namespace {

/// More labels than this are not counted: it would take minutes.
constexpr std::int64_t kMostLabelsCounted = 200'000'000;
constexpr std::int64_t kMostClassesCounted = 1 << 24;
constexpr std::int64_t kLabelsAtOnce = 1 << 20;
constexpr std::size_t kMostClassesShown = 100;
constexpr std::size_t kMostShardsShown = 64;
constexpr std::size_t kMostTextsShown = 20;
constexpr std::int64_t kTokensShown = 60;

std::string describe(const io::Field& field) {
  return field.sample_shape.empty() ? fmt::format("{}, one number", name_of(field.type))
                                    : fmt::format("{} [{}]", name_of(field.type), fmt::join(field.sample_shape, ", "));
}

/// Samples of each class over all shards, from the label datasets themselves.
std::vector<std::int64_t> count_classes(const io::ShardedDataset& dataset) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(dataset.info().classes));
  std::vector<std::int64_t> labels;
  for (const io::ShardInfo& shard : dataset.shards()) {
    const io::Hdf5File file(shard.file, io::Hdf5File::Access::read);
    for (std::int64_t first = 0; first < shard.count; first += kLabelsAtOnce) {
      const std::int64_t rows = std::min(kLabelsAtOnce, shard.count - first);
      labels.resize(static_cast<std::size_t>(rows));
      file.read_rows(dataset.info().y.name, io::FileType::int64, first, rows,
                     std::as_writable_bytes(std::span(labels)));
      for (const std::int64_t label : labels) {
        if (label < 0 || label >= dataset.info().classes) {
          throw io::FileError(
              fmt::format("{}: label {} lies outside 0 to {}", shard.file.string(), label, dataset.info().classes - 1));
        }
        ++counts[label];
      }
    }
  }
  return counts;
}

std::string class_table(const io::DatasetInfo& info, const std::vector<std::int64_t>& counts) {
  const std::int64_t most = std::max<std::int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  constexpr std::int64_t kLongestBar = 30;
  std::string text = "classes\n";
  for (std::size_t i = 0; i < std::min(counts.size(), kMostClassesShown); ++i) {
    const std::string name = i < info.class_names.size() ? info.class_names[i] : fmt::format("{}", i);
    text += fmt::format("  {:<16} {:>12}  {:#<{}}\n", name, with_commas(counts[i]), "", counts[i] * kLongestBar / most);
  }
  if (counts.size() > kMostClassesShown)
    text += fmt::format("  … and {} more classes\n", counts.size() - kMostClassesShown);
  return text;
}

/// "data/mnist: 60,000 samples in 2 files, 45.0 MiB"
std::string first_line(const std::filesystem::path& path, const io::Dataset& dataset, const std::string& amount) {
  std::uint64_t bytes = 0;
  for (const io::ShardInfo& shard : dataset.shards()) bytes += shard.bytes;
  return fmt::format("{}: {} in {}, {}\n", path.string(), amount, counted(dataset.shards().size(), "file"),
                     format_bytes(bytes));
}

std::string heading(const std::filesystem::path& path, const io::ShardedDataset& dataset) {
  const io::DatasetInfo& info = dataset.info();
  std::string text = first_line(path, dataset, fmt::format("{} samples", with_commas(info.samples)));
  if (!info.source.empty()) text += fmt::format("  source   {}\n", info.source);
  text += fmt::format("  {:<8} {}, {:.6g} to {:.6g}", info.x.name, describe(info.x), info.value_min, info.value_max);
  if (info.has_statistics) text += fmt::format(", mean {:.6g}, deviation {:.6g}", info.mean, info.standard_deviation);
  const std::string labels =
      info.labels_are_classes ? fmt::format("labels of {} classes", info.classes) : "numbers to predict";
  return text + fmt::format("\n  {:<8} {}, {}\n", info.y.name, describe(info.y), labels);
}

std::string shown_text(std::string_view text) {
  std::string shown;
  for (const char letter : text) shown += letter == '\n' ? "\\n" : letter == '\t' ? "\\t" : std::string(1, letter);
  return shown;
}

/// The corpus's first tokens as text, up to a limit.
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
  std::string text = first_line(path, dataset, fmt::format("{} tokens", with_commas(tokens.tokens)));
  if (!dataset.info().source.empty()) text += fmt::format("  source      {}\n", dataset.info().source);
  text += fmt::format("  vocabulary  {} of kind {}, {} bytes stored per token{}\n", with_commas(tokens.vocabulary),
                      tokens.kind, dataset.stored_bytes(),
                      tokens.unknown < 0 ? "" : fmt::format(", {} is <unk>", tokens.unknown));
  if (tokens.bytes_per_token > 0) text += fmt::format("  text        {:.3f} bytes per token\n", tokens.bytes_per_token);
  if (!tokens.texts.empty()) {
    text += "  tokens     ";
    for (std::size_t i = 0; i < std::min(tokens.texts.size(), kMostTextsShown); ++i) {
      text += fmt::format(" '{}'", shown_text(tokens.texts[i]));
    }
    text += tokens.texts.size() > kMostTextsShown ? " …\n" : "\n";
  }
  if (tokens.kind == "ids") return text;
  return text + fmt::format("  begins      {} …\n", shown_text(beginning(dataset, io::Tokenizer(tokens))));
}

/// One line per shard, verified where that is asked for. False when one is damaged.
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
        shards.size() <= kMostShardsShown || state == "DAMAGED" || static_cast<std::size_t>(i) < kMostShardsShown / 2;
    if (!shown) continue;
    row({shard.file.filename().string(), with_commas(shard.count), format_bytes(shard.bytes),
         shard.by_offset ? "offset" : "HDF5", shard.checksum_x, shard.checksum_y, state});
  }
  console.clear_progress();
  if (shards.size() > kMostShardsShown)
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
  console.info(heading(data.path, dataset));
  for (const std::string& warning : dataset.warnings()) console.warn(warning);
  if (!describe_shards(console, dataset, verify)) return false;
  const io::DatasetInfo& info = dataset.info();
  const bool few = info.samples <= kMostLabelsCounted && info.classes <= kMostClassesCounted;
  if (verify && info.labels_are_classes && info.classes > 0 && few) {
    console.info(class_table(info, count_classes(dataset)));
  }
  return true;
}

}  // namespace lockstep::app
