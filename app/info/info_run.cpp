#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "app/info/info.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// The whole of a small text file; "" when it cannot be read.
std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// One flat JSON object as words, numbers to six digits: {"step":3,"loss":0.512345678} -> "step 3  loss 0.512346".
/// `kind` is said by the caller, and the split of a step's seconds is for machines.
std::string in_words(std::string_view json) {
  std::string words;
  while (!json.empty()) {
    const std::string_view member = json.substr(0, json.find(','));
    json.remove_prefix(std::min(json.size(), member.size() + 1));
    std::string text;
    std::remove_copy_if(member.begin(), member.end(), std::back_inserter(text),
                        [](char c) { return c == '{' || c == '}' || c == '"'; });
    const std::size_t colon = text.find(':');
    const std::string key = text.substr(0, colon);
    if (colon == std::string::npos || key == "kind" || key.ends_with("_seconds")) continue;
    const std::string value = text.substr(colon + 1);
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool fraction = *end == '\0' && value.find_first_of(".e") != std::string::npos;
    words += fmt::format("{}{} {}", words.empty() ? "" : "  ", key, fraction ? fmt::format("{:.6g}", number) : value);
  }
  return words;
}

/// The last line of metrics.jsonl of this kind; "" when there is none.
std::string last_record(const fs::path& file, std::string_view kind) {
  const std::string needle = fmt::format("\"kind\":\"{}\"", kind);
  std::ifstream stream(file);
  std::string line, last;
  while (std::getline(stream, line)) {
    if (line.find(needle) != std::string::npos) last = line;
  }
  return in_words(last);
}

/// "host node7, pid 12, …": the owner file's lines but the token.
std::string owner_in_words(const fs::path& file) {
  std::istringstream lines(read_text(file));
  std::string line, words;
  while (std::getline(lines, line)) {
    if (line.empty() || line.starts_with("token")) continue;
    words += (words.empty() ? "" : ", ") + line;
  }
  return words;
}

void describe_configuration(Console& console, const fs::path& file) {
  const std::string ini = read_text(file);
  if (ini.empty()) return console.warn(fmt::format("{} is missing or empty", file.string()));
  try {
    const TrainOptions options = train_options_from_ini(ini);
    std::string network = options.network.name;
    for (const auto& [option, value] : options.network.values) {
      network += fmt::format(", {} {}", option, model::to_text(value));
    }
    const std::string batch = options.work.global_batch > 0
                                  ? fmt::format("{} per step", options.work.global_batch)
                                  : fmt::format("{} per rank and micro-step", options.work.batch);
    const std::string amount = options.work.steps > 0 ? fmt::format("{} steps", with_commas(options.work.steps))
                                                      : fmt::format("{} epochs", options.work.epochs);
    console.info(fmt::format(
        "  data           {}\n  validation     {}\n  network        {}\n  optimizer      {}, learning rate {} ({})\n"
        "  work           {}, batch {}, seed {}",
        options.data.path.string(), options.data.validation.empty() ? "none" : options.data.validation.string(),
        network, model::name_of(options.optimizer.kind), options.schedule.base, model::name_of(options.schedule.kind),
        amount, batch, options.work.seed));
  } catch (const UsageError& error) {
    console.warn(fmt::format("{} cannot be read back: {}", file.string(), error.what()));
  }
}

}  // namespace

bool describe_run(Console& console, const fs::path& folder, bool verify) {
  console.info(fmt::format("{}: run folder", folder.string()));
  describe_configuration(console, folder / "config.ini");
  const std::string trained = last_record(folder / "metrics.jsonl", "train");
  const std::string validated = last_record(folder / "metrics.jsonl", "validation");
  if (!trained.empty()) console.info(fmt::format("  last report    {}", trained));
  if (!validated.empty()) console.info(fmt::format("  last validated {}", validated));
  const std::string owner = owner_in_words(folder / "owner");
  if (!owner.empty()) console.info(fmt::format("  owner          {}", owner));
  console.info("checkpoints");
  return describe_checkpoints(console, folder / "checkpoints", verify);
}

}  // namespace lockstep::app
