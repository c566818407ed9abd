#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/bench_options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kUsage =
    "Usage: mpirun -np RANKS lockstep bench agree --data FOLDER [options]\n"
    "\n"
    "Trains the same network under several ways to agree (--agree of lockstep train), in turns and with as\n"
    "many training ranks each, and compares loss and metric at equal samples and at equal seconds. Each\n"
    "mode gets the best of the same learning rates. Takes the options of lockstep train besides.\n";
constexpr std::string_view kExamples =
    "\n"
    "Examples\n"
    "  mpirun -np 5 lockstep bench agree --data shards/fashion --hidden 100 --optimizer adam \\\n"
    "      --rates 0.0005,0.001,0.002 --modes \"all; quorum=3 --servers 1; async; local=16\" \\\n"
    "      --slow-rank 3=0.2 --target-metric 0.86 --evaluate-every 100 --epochs 20 --svg agree.svg\n"
    "      four ranks that train and one that serves, one of the four at a fifth of its speed\n"
    "  mpirun -np 16 lockstep bench agree --data shards/text --model gpt --modes \"all; local=32\" --steps 2000\n"
    "      what local steps cost at equal samples, and gain in seconds\n";

constexpr std::string_view kModes = "all; async; local=16";

/// Parses numbers between commas; `what` describes them in messages.
template <class Number>
std::string parse_numbers(const std::string& text, std::vector<Number>& values) {
  std::vector<Number> read;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    Number value{};
    const char* const last = word.data() + word.size();
    const auto [end, error] = std::from_chars(word.data(), last, value);
    if (error != std::errc() || end != last || !(value > 0))
      return fmt::format("has no number above 0 in \"{}\"", word);
    read.push_back(value);
  }
  if (read.empty()) return "names none";
  if (std::set<Number>(read.begin(), read.end()).size() != read.size()) return "names one twice";
  values = std::move(read);
  return "";
}
std::string parse_rates(const std::string& text, std::vector<double>& values) {
  if (text.empty()) return values.clear(), "";
  return parse_numbers(text, values);
}
std::string rates_text(const std::vector<double>& values) { return fmt::format("{}", fmt::join(values, ",")); }
std::string parse_seeds(const std::string& text, std::vector<std::int64_t>& values) {
  return parse_numbers(text, values);
}
std::string seeds_text(const std::vector<std::int64_t>& values) { return fmt::format("{}", fmt::join(values, ",")); }

bool parse_slow_rank(const std::string& text, SlowRank& read) {
  const char* const last = text.data() + text.size();
  const auto [equals, rank_error] = std::from_chars(text.data(), last, read.rank);
  if (rank_error != std::errc() || equals == last || *equals != '=') return false;
  const auto [end, error] = std::from_chars(equals + 1, last, read.speed);
  return error == std::errc() && end == last && read.rank >= 0 && read.speed >= 0.001 && read.speed < 1;
}
std::string parse_slow_ranks(const std::string& text, std::vector<SlowRank>& slow) {
  std::vector<SlowRank> ranks;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    SlowRank read;
    if (!parse_slow_rank(word, read)) return "is not RANK=SPEED with a speed from 0.001 to below 1, as 3=0.2";
    if (std::ranges::any_of(ranks, [&](const SlowRank& other) { return other.rank == read.rank; }))
      return fmt::format("names rank {} twice", read.rank);
    ranks.push_back(read);
  }
  slow = std::move(ranks);
  return "";
}
std::string slow_ranks_text(const std::vector<SlowRank>& slow) {
  std::vector<std::string> words;
  for (const SlowRank& one : slow) words.push_back(fmt::format("{}={}", one.rank, one.speed));
  return fmt::format("{}", fmt::join(words, ","));
}

/// Options of each training that the benchmark sets itself.
constexpr std::string_view kDecided[] = {"agree", "seed", "run", "resume", "force", "dry-run", "replay", "progress"};

/// The arguments for train: "quorum=3 --servers 1".
std::vector<std::string> words_of(const std::string& mode) {
  std::vector<std::string> words{"--agree"};
  std::istringstream in(mode);
  for (std::string word; in >> word;) words.push_back(word);
  if (words.size() < 2 || words[1].starts_with("-")) {
    throw UsageError(fmt::format("--modes: \"{}\" does not begin with all, local=STEPS, quorum=RANKS or async", mode));
  }
  return words;
}

/// The options of one mode: those of the file and the user, then its own.
TrainOptions options_of(const std::string& mode, const CommandLine& common) {
  TrainOptions options;
  OptionTable table("lockstep bench agree");
  add_train_options(table, options);
  CommandLine own = read_command_line(table, words_of(mode), false);
  for (const CommandLine::Given& given : own.options) {
    const bool decided = std::ranges::find(kDecided, given.name) != std::end(kDecided) && given.name != "agree";
    if (decided) throw UsageError(fmt::format("--modes: {}: the benchmark decides {}", mode, given.spelled));
  }
  CommandLine line = common;
  std::erase_if(line.options, [&](const CommandLine::Given& given) {
    return std::ranges::any_of(own.options, [&](const CommandLine::Given& its) { return its.name == given.name; });
  });
  line.options.insert(line.options.end(), own.options.begin(), own.options.end());
  try {
    if (!line.config.empty()) apply_ini_file(line.config, table);
    apply(line, table);
    settle(table, options);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} (mode {})", error.what(), mode));
  }
  table.require("data", "name a shard folder that `lockstep pack` made, or an HDF5 file");
  return options;
}

std::string trimmed_text(std::string_view text) { return std::string(trimmed(text)); }

}  // namespace

BenchAgreeOptions parse_bench_agree(const std::vector<std::string>& arguments) {
  BenchAgreeOptions options;
  std::string modes(kModes);
  TrainOptions train;
  OptionTable table("lockstep bench agree");
  table.group("What is compared");
  table
      .add("modes", modes, "LIST",
           "ways to agree, with semicolons between them; each a value of --agree, and options of train that belong to "
           "it alone: \"all; quorum=3 --servers 1; local=16 --islands 4\". Ranks that serve in one mode idle in those "
           "without servers")
      .check(reject_empty);
  table.add_parsed(
      "rates", options.rates, "RATES",
      "learning rates, comma-separated: each mode gets the one that was best with the first seed; default: "
      "--learning-rate alone",
      parse_rates, rates_text);
  table.add_parsed("seeds", options.seeds, "SEEDS", "a training of each mode for each of them", parse_seeds,
                   seeds_text);
  table.add_parsed(
      "slow-rank", options.slow, "RANK=SPEED,...",
      "these ranks compute at so much of their speed: they sleep before every micro-step. All of them, where "
      "there are more ranks than cores",
      parse_slow_ranks, slow_ranks_text);
  table.add("folder", options.folder, "FOLDER", "where to train, in a folder that is removed afterwards; default: .");
  table.add("csv", options.csv, "FILE", "also write all validations there");
  table.add("json", options.json, "FILE", "also write them there, one JSON object a line");
  table.add("svg", options.svg, "FILE", "draw the loss over samples and over seconds there");
  std::vector<std::string> own = table.names();
  own.insert(own.end(), std::begin(kDecided), std::end(kDecided));
  add_train_options(table, train);
  for (const std::string_view name : kDecided) table.find(name)->hide();
  CommandLine line = read_command_line(table, arguments, true);
  if (line.help) throw HelpRequested(network_help(table, train, line, kUsage, kExamples, true));
  CommandLine mine;
  for (const CommandLine::Given& given : line.options) {
    if (std::ranges::find(kDecided, given.name) != std::end(kDecided)) {
      throw UsageError(given.name == "agree"  ? "--agree: name the ways to agree in --modes"
                       : given.name == "seed" ? "--seed: name the seeds in --seeds"
                                              : fmt::format("the benchmark decides {} itself", given.spelled));
    }
    if (std::ranges::find(own, given.name) != own.end()) mine.options.push_back(given);
  }
  apply(mine, table);
  std::erase_if(line.options,
                [&](const CommandLine::Given& given) { return std::ranges::find(own, given.name) != own.end(); });
  std::istringstream list(modes);
  for (std::string mode; std::getline(list, mode, ';');) {
    const std::string name = trimmed_text(mode);
    if (name.empty()) throw UsageError("--modes has an empty one: semicolons stand between the modes");
    if (std::ranges::any_of(options.modes, [&](const AgreeCase& other) { return other.name == name; })) {
      throw UsageError(fmt::format("--modes names {} twice", name));
    }
    options.modes.push_back({.name = name, .train = options_of(name, line)});
  }
  require_own_files(options.csv, options.json, options.svg);
  return options;
}

}  // namespace lockstep::app
