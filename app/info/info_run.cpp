#include <string>
#include <variant>

#include <fmt/format.h>

#include "app/info/info.hpp"
#include "app/report/figures.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Numbers to six digits: "step 3  loss 0.512346". `kind` is said by the caller, and the split of a step's seconds is
/// for machines.
std::string in_words(const io::MetricRecord& record) {
  std::string words;
  for (const auto& [key, value] : record) {
    if (key == "kind" || key.ends_with("_seconds")) continue;
    words += (words.empty() ? "" : "  ") + key + " ";
    if (const double* real = std::get_if<double>(&value)) {
      words += fmt::format("{:.6g}", *real);
    } else {
      std::visit([&](const auto& whole) { words += fmt::format("{}", whole); }, value);
    }
  }
  return words;
}

void describe_configuration(Console& console, const fs::path& file) {
  const std::string ini = io::read_whole(file).value_or("");
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
  const io::LastRecords last = io::last_records(folder / "metrics.jsonl");
  const auto describe_last = [&](std::string_view title, std::string_view kind) {
    const auto record = last.of_kind.find(kind);
    if (record != last.of_kind.end()) console.info(fmt::format("  {:<14} {}", title, in_words(record->second)));
  };
  describe_last("last report", "train");
  describe_last("last validated", "validation");
  if (last.kind == "end") describe_last("ended", "end");  // else it has gone on since, or was killed
  const std::string owner = io::owner_of(folder);
  if (!owner.empty()) console.info(fmt::format("  owner          {}", owner));
  console.info("checkpoints");
  return describe_checkpoints(console, folder / "checkpoints", verify);
}

}  // namespace lockstep::app
