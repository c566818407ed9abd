#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "app/info.hpp"
#include "app/plan.hpp"

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

/// The last line of a JSON Lines file that has `needle`, as words: {"step":3,"loss":0.5} -> "step 3  loss 0.5".
std::string last_record(const fs::path& file, std::string_view needle) {
  std::ifstream stream(file);
  std::string line, last;
  while (std::getline(stream, line)) {
    if (line.find(needle) != std::string::npos) last = line;
  }
  std::string words;
  for (const char c : last) {
    if (c == ',') {
      words += "  ";
    } else if (c == ':') {
      words += ' ';
    } else if (c != '{' && c != '}' && c != '"') {
      words += c;
    }
  }
  return words;
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
    const std::string hidden =
        options.model == "linear" ? "" : fmt::format(", hidden {}", fmt::join(options.hidden, ","));
    const std::string batch = options.global_batch > 0 ? fmt::format("{} per step", options.global_batch)
                                                       : fmt::format("{} per rank and micro-step", options.batch);
    const std::string amount = options.steps > 0 ? fmt::format("{} steps", with_commas(options.steps))
                                                 : fmt::format("{} epochs", options.epochs);
    console.info(fmt::format(
        "  data           {}\n  validation     {}\n  network        {}{}\n  optimizer      {}, learning rate {} ({})\n"
        "  work           {}, batch {}, seed {}",
        options.data.string(), options.validation.empty() ? "none" : options.validation.string(), options.model, hidden,
        options.optimizer, options.learning_rate, options.schedule, amount, batch, options.seed));
  } catch (const UsageError& error) {
    console.warn(fmt::format("{} cannot be read back: {}", file.string(), error.what()));
  }
}

}  // namespace

bool describe_run(Console& console, const fs::path& folder, bool verify) {
  console.info(fmt::format("{}: run folder", folder.string()));
  describe_configuration(console, folder / "config.ini");
  for (const char* kind : {"train", "validation"}) {
    const std::string record = last_record(folder / "metrics.jsonl", fmt::format("\"kind\":\"{}\"", kind));
    if (!record.empty()) console.info(fmt::format("  last report    {}", record));
  }
  const std::string owner = owner_in_words(folder / "owner");
  if (!owner.empty()) console.info(fmt::format("  owner          {}", owner));
  console.info("checkpoints");
  return describe_checkpoints(console, folder / "checkpoints", verify);
}

}  // namespace lockstep::app
