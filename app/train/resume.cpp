#include "app/train/resume.hpp"

#include <cstdint>
#include <ctime>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/agreement.hpp"
#include "app/plan/configuration.hpp"
#include "app/report/figures.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

/// A run that goes on from an older checkpoint than its newest: a later --resume would go back to the branch left here.
void warn_of_later_checkpoints(Console& console, const CheckpointOnRank0& checkpoint, const fs::path& run) {
  if (!console.speaks() || !checkpoint.warnings().empty() || !is_of_run(checkpoint.file(), run)) return;
  const std::int64_t newest = io::list_checkpoints(run / "checkpoints").front().step;
  if (newest <= checkpoint.record().step) return;
  console.warn(fmt::format(
      "{} has checkpoints of later steps, up to {}: they stay, and --resume without a FILE takes the newest of all",
      run.string(), newest));
}

}  // namespace

Origin find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                   const std::string& network) {
  const Resume& resume = options.resume;
  Origin origin{.checkpoint = {}, .folder = options.folder, .takes_folder_over = false};
  if (resume.from == Resume::From::nothing) {
    if (origin.folder.empty()) {
      origin.folder =
          fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", network, fmt::localtime(std::time(nullptr)));
    }
    origin.folder = broadcast_text(communicator, origin.folder.string());
    return origin;
  }
  if (resume.from == Resume::From::file && options.folder.empty()) {
    throw UsageError("--resume FILE needs --run: name the folder of the run that continues from it");
  }
  if (options.folder.empty()) throw UsageError("--resume needs --run: name the run folder to continue");
  if (resume.from == Resume::From::newest) {
    std::uint8_t found = 0;
    comm::all_succeed(communicator, [&] {
      found = communicator.rank() == 0 && !io::list_checkpoints(options.folder / "checkpoints").empty();
    });
    communicator.broadcast(std::as_writable_bytes(std::span(&found, 1)), 0);
    communicator.wait();
    if (found == 0) {
      console.info(fmt::format("{} has no checkpoint yet: starting at step 0", options.folder.string()));
      origin.takes_folder_over = true;
      return origin;
    }
  }
  origin.checkpoint.emplace(communicator, resume.from == Resume::From::newest ? options.folder : resume.file);
  for (const std::string& warning : origin.checkpoint->warnings())
    console.warn(fmt::format("{}; going on from the one before", warning));
  warn_of_later_checkpoints(console, *origin.checkpoint, options.folder);
  return origin;
}

bool is_of_run(const fs::path& file, const fs::path& run) {
  std::error_code unknown;  // a folder that is not there yet
  return fs::equivalent(fs::absolute(file).parent_path(), run / "checkpoints", unknown);
}

void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan) {
  const TrainOptions& options = plan.settings;
  const Workload& workload = plan.workload;
  all_succeed_or_usage(communicator, [&] {
    const io::NetworkIdentity network = network_identity(options.network.name, *workload.network);
    if (!same_network(record.network, network)) {
      throw std::runtime_error(
          fmt::format("the checkpoint is of another network ({}) than this one ({}): give the same --model options, or "
                      "start a new run",
                      io::to_text(record.network), io::to_text(network)));
    }
    const std::string_view optimizer = model::name_of(options.optimizer.kind);
    if (record.optimizer != optimizer) {
      throw std::runtime_error(
          fmt::format("the checkpoint was trained with --optimizer {}, not {}: give the same, or start a new run",
                      record.optimizer, optimizer));
    }
    if (record.dataset != workload.training->fingerprint()) {
      throw std::runtime_error(
          fmt::format("{} is not the data that the checkpoint was trained on: its place in the epoch means nothing "
                      "there. Give the same --data, or start a new run",
                      options.data.path.string()));
    }
    if (options.optimizer.average_decay > 0 &&
        train_options_from_ini(record.configuration).optimizer.average_decay == 0) {
      throw UsageError("the checkpoint keeps no average of the weights: leave out --average-decay, or start a new run");
    }
    if (record.seed != options.work.seed) {
      throw std::runtime_error(
          fmt::format("the checkpoint was trained with --seed {}, not {}: the order of the samples would change",
                      record.seed, options.work.seed));
    }
  });
  const std::vector<std::string> changed = changed_options(record.configuration, options);
  console.info(
      fmt::format("continuing after step {} (epoch {}, sample {}){}", with_commas(record.step), record.epoch,
                  with_commas(record.position),
                  changed.empty() ? "" : fmt::format("; options that differ now: {}", fmt::join(changed, ", "))));
}

}  // namespace lockstep::app
