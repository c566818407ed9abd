#include "app/engine/chosen_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/task.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

void read_best(const fs::path& folder, ChosenCheckpoint& chosen) {
  const fs::path best = io::best_checkpoint(folder);
  if (best.empty()) return;
  if (std::error_code unknown; !fs::exists(best, unknown)) {
    chosen.warnings.push_back(fmt::format("{} points at {}, which is gone: taking the newest checkpoint instead",
                                          (folder / "best").string(), best.filename().string()));
    return;
  }
  try {
    chosen.checkpoint = io::read_checkpoint(best);
    chosen.file = best;
    chosen.is_best = true;
  } catch (const io::FileError& error) {
    chosen.warnings.emplace_back(error.what());
  }
}

void read_named(const fs::path& folder, const std::string& name, ChosenCheckpoint& chosen) {
  chosen.file = folder / name;
  if (!fs::is_regular_file(chosen.file)) {
    std::vector<std::string> names;
    for (const io::FoundCheckpoint& found : io::list_checkpoints(folder)) {
      names.insert(names.begin(), found.file.filename().string());
    }
    throw io::FileError(fmt::format("{} has no checkpoint {}: there {} {}", folder.string(), name,
                                    names.size() == 1 ? "is" : "are",
                                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  chosen.checkpoint = io::read_checkpoint(chosen.file);
}

}  // namespace

std::string ChosenCheckpoint::description(bool average) const {
  return fmt::format("{} (step {}{}{})", file.string(), checkpoint.record.step, is_best ? ", the best of its run" : "",
                     average ? ", averaged weights" : "");
}

ChosenCheckpoint read_chosen_checkpoint(const CheckpointChoice& choice) {
  const fs::path& path = choice.path;
  if (!fs::exists(path))
    throw io::FileError(fmt::format("{}: no such checkpoint, run folder or checkpoints folder", path.string()));
  if (!fs::is_directory(path) && !choice.name.empty()) {
    throw io::FileError(
        fmt::format("{} is no folder of checkpoints: leave out --checkpoint {}", path.string(), choice.name));
  }
  if (!fs::is_directory(path)) return {.checkpoint = io::read_checkpoint(path), .file = path, .warnings = {}};
  ChosenCheckpoint chosen;
  const fs::path folder = fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
  if (!choice.name.empty()) return read_named(folder, choice.name, chosen), chosen;
  if (choice.which == CheckpointChoice::Which::best) read_best(folder, chosen);
  if (chosen.is_best) return chosen;
  auto newest = io::newest_checkpoint(folder, chosen.warnings);
  if (!newest) {
    throw io::FileError(chosen.warnings.empty() ? fmt::format("{} holds no checkpoint", folder.string())
                                                : fmt::format("{}: no checkpoint verifies ({})", folder.string(),
                                                              fmt::join(chosen.warnings, "; ")));
  }
  chosen.checkpoint = std::move(*newest);
  for (const io::FoundCheckpoint& found : io::list_checkpoints(folder)) {
    if (found.step == chosen.checkpoint.record.step) chosen.file = found.file;
  }
  return chosen;
}

std::string metric_key_of(const io::TrainingRecord& record) {
  for (const char* key : Task::metric_keys()) {
    if (!io::numbers_by_step(record.metrics, "validation", key).empty()) return key;
  }
  return "";
}

}  // namespace lockstep::app
