#include "io/checkpoints/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint_file.hpp"
#include "io/checkpoints/checkpoint_record.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".h5";
constexpr const char* kLatest = "latest";
constexpr const char* kBest = "best";

std::optional<std::int64_t> step_in(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  return whole_number(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

/// True for ".step-0000000010.h5.PID-HEX.tmp", ".latest.PID-HEX.tmp" and ".best.PID-HEX.tmp".
bool is_temporary(std::string_view name) {
  return is_temporary_of(name, kLatest) || is_temporary_of(name, kBest) ||
         (name.starts_with(".step-") && name.ends_with(".tmp"));
}

void remove_file(const fs::path& file) {
  if (::unlink(file.c_str()) != 0 && errno != ENOENT) {
    throw FileError(fmt::format("cannot remove {}: {}", file.string(), std::generic_category().message(errno)));
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:010}{}", kPrefix, step, kSuffix); }

const StoredTensor* Checkpoint::find(std::string_view group, std::string_view name) const noexcept {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const StoredTensor& tensor) {
    return tensor.group == group && tensor.name == name;
  });
  return found == tensors.end() ? nullptr : &*found;
}

Checkpoint read_checkpoint(const fs::path& file) {
  Checkpoint checkpoint;
  checkpoint.record = read_checkpoint_file(file, &checkpoint.tensors, Parts::read).record;
  return checkpoint;
}

TrainingRecord verify_checkpoint(const fs::path& file) {
  return read_checkpoint_file(file, nullptr, Parts::read).record;
}

std::uintmax_t checkpoint_bytes(const fs::path& file) noexcept {
  try {
    std::uintmax_t bytes = fs::file_size(file);
    for (const WrittenPart& part : parts_of_checkpoint(file)) bytes += fs::file_size(file.parent_path() / part.file);
    return bytes;
  } catch (const std::exception&) {  // damaged: its verification reports that
    return 0;
  }
}

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = step_in(entry->path().filename().string());
    std::error_code unknown;
    if (step && !entry->is_directory(unknown)) found.push_back({entry->path(), *step});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw FileError(fmt::format("cannot list the checkpoints in {}: {}", folder.string(), error.message()));
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return a.step != b.step ? a.step > b.step : a.file < b.file;
  });
  return found;
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& folder, std::vector<std::string>& rejected) {
  for (const FoundCheckpoint& found : list_checkpoints(folder)) {
    try {
      return read_checkpoint(found.file);
    } catch (const FileError& error) {
      rejected.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

fs::path best_checkpoint(const fs::path& folder) {
  std::error_code none;
  const fs::path name = fs::read_symlink(folder / kBest, none);
  return none ? fs::path() : folder / name;
}

void write_checkpoint(const fs::path& file, const TrainingRecord& record, std::span<const TensorView> tensors) {
  check_checkpoint_content(record, tensors);
  const fs::path temporary = temporary_beside(file), folder = file.has_parent_path() ? file.parent_path() : ".";
  const auto disk_full = [&](int error_number) {
    const std::uint64_t needed = checkpoint_bytes_needed(record, tensors);
    return FileError(
        fmt::format("cannot write checkpoint {}: {}", file.string(), no_space_text(error_number, folder, needed)));
  };
  try {
    write_and_verify(temporary, record, tensors, {});
    if (::rename(temporary.c_str(), file.c_str()) != 0) throw std::system_error(errno, std::generic_category());
  } catch (const std::system_error& error) {
    ::unlink(temporary.c_str());
    throw disk_full(error.code().value());
  } catch (const FileError& error) {
    ::unlink(temporary.c_str());
    if (means_no_space(error.parts().error_number)) throw disk_full(error.parts().error_number);
    throw FileError(fmt::format("cannot write checkpoint {}: {}", file.string(), error.what()));
  }
  sync_folder(folder);
}

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options) : options_(std::move(options)) {
  if (options_.keep < 1) throw std::invalid_argument(fmt::format("keep {} checkpoints: at least 1", options_.keep));
  if (options_.keep_best > 0 && !options_.is_better) throw std::invalid_argument("which of two metrics is better?");
  check_owner();
  std::error_code error;
  std::vector<fs::path> stale;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_temporary(entry->path().filename().string())) stale.push_back(entry->path());
  }
  if (error) {
    throw FileError(fmt::format("cannot keep checkpoints in {}: {}", options_.folder.string(), error.message()));
  }
  std::for_each(stale.begin(), stale.end(), remove_file);
  remove_orphaned_parts(std::numeric_limits<std::int64_t>::max());
  if (options_.goes_on_from < 0) return;
  const fs::path newest = options_.folder / checkpoint_name(options_.goes_on_from);
  if (fs::read_symlink(options_.folder / kLatest, error) != newest.filename() && fs::exists(newest)) {
    move_link(kLatest, newest);
  }
  for (const FoundCheckpoint& found : list_checkpoints(options_.folder)) {
    if (lies_behind(found)) own_.insert(found.step);
  }
  const std::vector<fs::path> best = this->best(options_.goes_on_from);
  move_best(best);
  prune(options_.goes_on_from, best);
}

bool CheckpointWriter::lies_behind(const FoundCheckpoint& found) const {
  if (found.step >= options_.goes_on_from || !options_.lies_behind) return found.step <= options_.goes_on_from;
  try {
    return options_.lies_behind(found.step, stored_record(found.file).metrics);
  } catch (const FileError&) {  // damaged: no candidate for the best
    return false;
  }
}

void CheckpointWriter::validated(std::int64_t step, double metric, double loss) {
  const std::lock_guard<std::mutex> lock(metrics_lock_);
  options_.metrics.insert_or_assign(step, metric);
  options_.losses.insert_or_assign(step, loss);
}

/// The best first (ties: the lower loss, then the earlier step), at most keep_best.
std::vector<fs::path> CheckpointWriter::best(std::int64_t last_step) const {
  if (options_.keep_best == 0) return {};
  const std::lock_guard<std::mutex> lock(metrics_lock_);
  struct Known {
    double metric, loss;
    fs::path file;
  };
  std::vector<Known> known;
  std::vector<FoundCheckpoint> found = list_checkpoints(options_.folder);
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    const auto metric = options_.metrics.find(at->step);
    if (at->step > last_step || !own_.contains(at->step)) continue;
    if (metric == options_.metrics.end() || std::isnan(metric->second)) continue;
    const auto loss = options_.losses.find(at->step);
    const bool has_loss = loss != options_.losses.end() && !std::isnan(loss->second);
    known.push_back({metric->second, has_loss ? loss->second : std::numeric_limits<double>::infinity(), at->file});
  }
  std::stable_sort(known.begin(), known.end(), [&](const Known& a, const Known& b) {
    return options_.is_better(a.metric, b.metric) || (!options_.is_better(b.metric, a.metric) && a.loss < b.loss);
  });
  known.resize(std::min(known.size(), static_cast<std::size_t>(options_.keep_best)));
  std::vector<fs::path> files;
  for (Known& one : known) files.push_back(std::move(one.file));
  return files;
}

void CheckpointWriter::check_owner() const {
  if (options_.still_owner) options_.still_owner();
}

fs::path CheckpointWriter::write(const TrainingRecord& record, std::span<const TensorView> tensors,
                                 const SplitState& split) {
  const std::lock_guard<std::mutex> one_at_a_time(writing_);
  check_checkpoint_content(record, tensors);
  check_owner();
  const fs::path file = options_.folder / checkpoint_name(record.step);
  const fs::path temporary = temporary_beside(file);

  const auto disk_full = [&](int error_number) {
    const std::vector<FoundCheckpoint> earlier = list_checkpoints(options_.folder);
    return FileError(fmt::format(
        "cannot write checkpoint {}: {}. {} Then continue with --resume (a smaller --keep needs less space)",
        file.string(), no_space_text(error_number, options_.folder, checkpoint_bytes_needed(record, tensors)),
        earlier.empty()
            ? std::string("There is no earlier checkpoint.")
            : fmt::format("The previous checkpoint {} is intact.", earlier.front().file.filename().string())));
  };
  try {
    require_parts(options_.folder, split.parts);
    write_and_verify(temporary, record, tensors, split);
    check_owner();
    if (::rename(temporary.c_str(), file.c_str()) != 0) {
      throw FileError(fmt::format("cannot rename {} to {}: {}", temporary.string(), file.string(),
                                  std::generic_category().message(errno)));
    }
  } catch (const std::system_error& error) {
    ::unlink(temporary.c_str());
    throw disk_full(error.code().value());
  } catch (const FileError& error) {
    ::unlink(temporary.c_str());
    check_owner();  // if another process has taken over and cleaned up, its error explains more
    if (means_no_space(error.parts().error_number)) throw disk_full(error.parts().error_number);
    throw FileError(fmt::format("cannot write checkpoint {}: {}", file.string(), error.what()));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(options_.folder);
  move_link(kLatest, file);
  own_.insert(record.step);
  const std::vector<fs::path> best = this->best(record.step);
  move_best(best);
  prune(record.step, best);
  return file;
}

/// Removes the link if no best checkpoint remains: a link to a removed file or an abandoned branch is worse than none.
void CheckpointWriter::move_best(std::span<const fs::path> best) const {
  const fs::path linked = best_checkpoint(options_.folder);
  if (!best.empty()) {
    if (linked != best.front()) move_link(kBest, best.front());
  } else if (!linked.empty()) {
    check_owner();
    remove_file(options_.folder / kBest);
  }
}

void CheckpointWriter::move_link(const char* name, const fs::path& file) const {
  check_owner();
  const fs::path link = options_.folder / name;
  const fs::path temporary = temporary_beside(link);
  if (::symlink(file.filename().c_str(), temporary.c_str()) != 0) {
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;  // no links on this file system
    throw FileError(fmt::format("cannot link {}: {}; the checkpoint {} itself is safe", link.string(),
                                no_space_text(errno, options_.folder, 0), file.filename().string()));
  }
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    throw FileError(fmt::format("cannot replace {}: {}; the checkpoint {} itself is safe", link.string(),
                                no_space_text(error_number, options_.folder, 0), file.filename().string()));
  }
}

void CheckpointWriter::prune(std::int64_t written_step, std::span<const fs::path> best) const {
  int kept = 0;
  for (const FoundCheckpoint& found : list_checkpoints(options_.folder)) {
    if (found.step > written_step || kept++ < options_.keep || std::ranges::count(best, found.file) > 0) continue;
    check_owner();
    remove_file(found.file);
  }
  remove_orphaned_parts(written_step);  // keeps parts of later steps: a writer may be writing them
}

void CheckpointWriter::remove_orphaned_parts(std::int64_t last_step) const {
  for (const fs::path& folder : orphaned_part_folders(options_.folder, last_step)) {
    check_owner();
    remove_part_folder(folder);
  }
}

}  // namespace lockstep::io
