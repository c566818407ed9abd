#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "app/info/info.hpp"
#include "app/options/stored_options.hpp"
#include "app/report/figures.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/run_folder.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

/// Formats a record with six digits: "step 3  loss 0.512346  learning rate 0.1". Leaves out `kind`, which the caller
/// prints, and the split of a step's seconds, which is for programs. NaN and infinity become "-", and an empty text
/// "none".
std::string in_words(const io::MetricRecord& record) {
  std::string words;
  for (const auto& [key, value] : record) {
    if (key == "kind" || key.ends_with("_seconds")) continue;
    std::string name = io::visible_line(key);
    std::replace(name.begin(), name.end(), '_', ' ');
    words += (words.empty() ? "" : "  ") + name + " ";
    if (const double* real = std::get_if<double>(&value)) {
      words += std::isfinite(*real) ? fmt::format("{:.6g}", *real) : "-";
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      words += io::visible_line(or_none(*text));
    } else {
      words += with_commas(std::get<std::int64_t>(value));
    }
  }
  return words;
}

void describe_configuration(Console& console, const fs::path& file) {
  const std::string ini = io::read_whole(file).value_or("");
  if (ini.empty()) return console.warn(fmt::format("{} is missing or empty", file.string()));
  try {
    const TrainOptions options =
        train_options_from_ini(ini, io::read_whole(file.parent_path() / kNetworkFile).value_or(""));
    std::string network = options.network.name;
    for (const auto& [option, value] : options.network.values) {
      network += fmt::format(", {} {}", option, io::visible_line(or_none(model::to_text(value))));
    }
    const std::string batch = options.work.global_batch > 0
                                  ? fmt::format("{} per step", options.work.global_batch)
                                  : fmt::format("{} per rank and micro-step", options.work.batch);
    const std::string amount =
        options.work.steps > 0 ? counted(options.work.steps, "step")
                               : fmt::format("{} epoch{}", options.work.epochs, options.work.epochs == 1 ? "" : "s");
    console.info(fmt::format(
        "  data           {}\n  validation     {}\n  network        {}\n  optimizer      {}, learning rate {} ({})\n"
        "  work           {}, batch {}, seed {}",
        io::visible_line(or_none(options.data.path.string())),
        options.data.validation_share > 0 ? fmt::format("{} of the data", options.data.validation_share)
                                          : io::visible_line(or_none(options.data.validation.string())),
        network, model::name_of(options.optimizer.kind), options.schedule.base, model::name_of(options.schedule.kind),
        amount, batch, options.work.seed));
    if (const std::string agreement = agreement_text(options); !agreement.empty()) {
      console.info(fmt::format("  agreement      {}", agreement));
    }
  } catch (const UsageError& error) {
    console.warn(fmt::format("{} cannot be read back: {}", file.string(), error.what()));
  }
}

}  // namespace

bool describe_run(Console& console, const fs::path& folder, bool verify) {
  console.info(fmt::format("{}: run folder", io::visible_line(folder.string())));
  describe_configuration(console, folder / "config.ini");
  const io::LastRecords last = io::last_records(folder / "metrics.jsonl");
  const auto describe_last = [&](std::string_view title, std::string_view kind) {
    const auto record = last.of_kind.find(kind);
    if (record != last.of_kind.end()) console.info(fmt::format("  {:<14} {}", title, in_words(record->second)));
  };
  describe_last("last report", "train");
  describe_last("last validated", "validation");
  if (last.kind == "end") describe_last("ended", "end");  // otherwise the run has continued since, or was killed
  const std::string owner = io::owner_of(folder);
  if (!owner.empty()) console.info(fmt::format("  owner          {}", io::visible_line(owner)));
  console.info("checkpoints");
  return describe_checkpoints(console, folder / "checkpoints", verify);
}

}  // namespace lockstep::app
