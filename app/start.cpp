#include "app/start.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include "app/figures.hpp"
#include "app/plan.hpp"
#include "app/report.hpp"
#include "comm/agreement.hpp"
#include "comm/topology.hpp"
#include "io/checksum.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

std::string describe_buckets(std::span<const comm::Slice> buckets) {
  std::string text;
  for (const comm::Slice& bucket : buckets) text += fmt::format("{}+{} ", bucket.offset, bucket.count);
  return text;
}

/// "name = value" lines of an INI text, sorted.
std::vector<std::string> option_lines(const std::string& ini) {
  std::vector<std::string> lines;
  std::istringstream stream(ini);
  for (std::string line; std::getline(stream, line);) {
    const bool of_one_launch = line.starts_with("resume ") || line.starts_with("force ") || line.starts_with("run ") ||
                               line.starts_with("time-limit ");
    if (!line.empty() && line[0] != '#' && !of_one_launch) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

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

std::string program_fingerprint() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return fmt::format("{} {}", program_version(), io::to_hex(io::checksum(std::as_bytes(std::span(bytes)))));
}

std::vector<std::string> gather_said(comm::Communicator& communicator, const std::string& text) {
  std::vector<std::string> texts = comm::gather_distinct(communicator, text);
  const std::string everybody = fmt::format("ranks 0-{}: ", communicator.size() - 1);
  for (std::string& one : texts) {
    if (one.starts_with(everybody)) one.erase(0, everybody.size());
  }
  return texts;
}

void all_succeed_or_usage(comm::Communicator& communicator, const std::function<void()>& work) {
  std::string misuse;
  comm::all_succeed(communicator, [&] {
    try {
      work();
    } catch (const UsageError& error) {
      misuse = error.what();
    }
  });
  const std::vector<std::string> texts = gather_said(communicator, misuse);
  if (!texts.empty()) throw UsageError(join_lines(texts));
}

std::optional<CheckpointOnRank0> find_checkpoint(comm::Communicator& communicator, Console& console,
                                                 TrainOptions& options) {
  if (options.resume.empty()) {
    if (options.run.empty()) {
      options.run =
          fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", options.model, fmt::localtime(std::time(nullptr)));
    }
    options.run = broadcast_text(communicator, options.run.string());
    return std::nullopt;
  }
  fs::path path = options.resume;
  if (options.resume == "auto") {
    if (options.run.empty()) throw UsageError("--resume needs --run: name the run folder to continue");
    path = options.run;
    std::uint8_t found = 0;
    comm::all_succeed(communicator, [&] {
      found = communicator.rank() == 0 && !io::list_checkpoints(options.run / "checkpoints").empty();
    });
    communicator.broadcast(std::as_writable_bytes(std::span(&found, 1)), 0);
    if (found == 0) {
      console.info(fmt::format("{} has no checkpoint yet: starting at step 0", options.run.string()));
      options.force = true;  // what the run folder holds is a life that ended before its first checkpoint
      return std::nullopt;
    }
  } else if (options.run.empty()) {
    throw UsageError("--resume FILE needs --run: name the folder of the run that continues from it");
  }
  std::optional<CheckpointOnRank0> checkpoint(std::in_place, communicator, path);
  for (const std::string& warning : checkpoint->warnings())
    console.warn(fmt::format("{}; going on from the one before", warning));
  warn_of_later_checkpoints(console, *checkpoint, options.run);
  const TrainOptions before = train_options_from_ini(checkpoint->record().configuration);
  if (!options.was_set("batch") && !options.was_set("global-batch")) {
    options.global_batch = before.global_batch;
  }
  return checkpoint;
}

bool is_of_run(const fs::path& file, const fs::path& run) {
  std::error_code unknown;  // a folder that is not there yet
  return fs::equivalent(fs::absolute(file).parent_path(), run / "checkpoints", unknown);
}

void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const TrainOptions& options, const Workload& workload) {
  all_succeed_or_usage(communicator, [&] {
    const std::string network = network_identity(*workload.network);
    if (record.network != network) {
      throw std::runtime_error(
          fmt::format("the checkpoint is of another network ({}) than this one ({}): give the same --model options, or "
                      "start a new run",
                      record.network, network));
    }
    if (record.optimizer != options.optimizer) {
      throw std::runtime_error(
          fmt::format("the checkpoint was trained with --optimizer {}, not {}: give the same, or start a new run",
                      record.optimizer, options.optimizer));
    }
    if (record.dataset != workload.training->fingerprint()) {
      throw std::runtime_error(
          fmt::format("{} is not the data that the checkpoint was trained on: its place in the epoch means nothing "
                      "there. Give the same --data, or start a new run",
                      options.data.string()));
    }
    if (options.average_decay > 0 && train_options_from_ini(record.configuration).average_decay == 0) {
      throw UsageError("the checkpoint keeps no average of the weights: leave out --average-decay, or start a new run");
    }
    if (record.seed != options.seed) {
      throw std::runtime_error(
          fmt::format("the checkpoint was trained with --seed {}, not {}: the order of the samples would change",
                      record.seed, options.seed));
    }
  });
  const std::vector<std::string> before = option_lines(record.configuration), now = option_lines(options.to_ini());
  std::vector<std::string> changed;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(changed));
  console.info(
      fmt::format("continuing after step {} (epoch {}, sample {}){}", with_commas(record.step), record.epoch,
                  with_commas(record.position),
                  changed.empty() ? "" : fmt::format("; options that differ now: {}", fmt::join(changed, ", "))));
}

void agree_on_start(comm::Communicator& communicator, Console& console, const TrainOptions& options,
                    const Workload& workload, const Place& place, std::span<const comm::Slice> buckets) {
  comm::require_equal(communicator,
                      std::vector<comm::FingerprintItem>{
                          {"program", program_fingerprint()},
                          {"configuration", options.to_ini()},
                          {"network", network_identity(*workload.network) + workload.network->parameters().signature()},
                          {"bucket schedule", describe_buckets(buckets)},
                          {"training data", workload.training->fingerprint()},
                          {"validation data", workload.validation ? workload.validation->fingerprint() : ""}});

  const std::vector<comm::RankPlace> places =
      comm::gather_topology(communicator, device_kind(place, options.execution), device_identity(place));
  std::vector<std::string> notes = workload.training->warnings();
  if (workload.validation)
    notes.insert(notes.end(), workload.validation->warnings().begin(), workload.validation->warnings().end());
  const std::vector<std::string> warnings = gather_said(communicator, join_lines(notes));
  console.info(fmt::format("lockstep {}", program_version()));
  console.info(comm::format_topology(places));
  if (!place.note.empty()) console.info(place.note);
  console.info(format_plan(workload, options, place, communicator, buckets));
  for (const std::string& warning : comm::topology_warnings(places, options.execution.threads)) console.warn(warning);
  for (const std::string& warning : warnings) console.warn(warning);
}

void verify_data(comm::Communicator& communicator, Console& console, const TrainOptions& options,
                 const Workload& workload) {
  std::uint64_t bytes = 0;
  for (const auto* dataset : {workload.training.get(), workload.validation.get()}) {
    if (dataset == nullptr) continue;
    for (const io::ShardInfo& shard : dataset->shards()) bytes += shard.bytes;
  }
  if (options.verify == "none") return;
  if (options.verify == "auto" && bytes > kAlwaysVerifiedBytes) {
    console.info(
        fmt::format("checksums of {} are not verified at the start of a job this large (--verify all does; so does "
                    "`lockstep info`)",
                    format_bytes(static_cast<double>(bytes))));
    return;
  }
  communicator.note_activity("verifying the data", 0);
  StopWatch watch;
  comm::all_succeed(communicator, [&] {
    workload.training->verify(communicator.rank(), communicator.size());
    if (workload.validation) workload.validation->verify(communicator.rank(), communicator.size());
  });
  console.info(
      fmt::format("checksums of {} verified in {:.2f} s", format_bytes(static_cast<double>(bytes)), watch.seconds()));
}

}  // namespace lockstep::app
