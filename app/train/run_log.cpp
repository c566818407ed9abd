#include "app/train/run_log.hpp"

#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "app/data/data_contents.hpp"
#include "app/options/stored_options.hpp"
#include "app/train/resume.hpp"
#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace {

/// Returns a text that is equal for equal data. `text`: a dataset's fingerprint.
std::string identity_of(const std::string& text) { return io::to_hex(io::checksum(std::as_bytes(std::span(text)))); }

}  // namespace

RunLog::RunLog(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine,
               PendingError& error, std::int64_t first_step)
    : plan_(plan),
      console_(console),
      engine_(engine),
      error_(error),
      reporter_(console, plan.settings.reports, plan.workload.work, *plan.workload.task, communicator.size(),
                first_step),
      first_step_(first_step) {
  const Workload& workload = plan.workload;
  reporter_.compare_with(workload.constant_score);
  if (workload.validation) {
    reporter_.validates_on(identity_of(workload.validation->fingerprint()),
                           identity_of(fingerprint_without_contents(*workload.validation)));
  }
}

void RunLog::open(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
                  io::IoDeadline& deadline) {
  deadline_ = &deadline;
  reporter_.set_history(from.metrics);
  if (taken) {
    folder_ = std::make_shared<io::RunFolder>(std::move(*taken));
    if (!continues) folder_->start_over();
  } else {
    const RunOptions& run = plan_.settings.run;
    folder_ = std::make_shared<io::RunFolder>(
        run.folder, continues ? io::RunFolder::Open::resume : io::RunFolder::Open::fresh, run.force, &deadline);
  }
  const std::filesystem::path& path = folder_->path();
  console_.attach_log(path / "log.txt", continues);
  folder_->write_text("config.ini", plan_.record.configuration);
  if (const std::string& network = plan_.record.network_text; !network.empty()) {
    folder_->write_text(kNetworkFile, network);
  }
  LogFiles files;
  files.metrics = std::make_unique<io::MetricsLog>(path / "metrics.jsonl", continues, from.step, &deadline);
  if (continues) record_unrecorded_checkpoints(*files.metrics, path, from, deadline);
  if (plan_.settings.reports.tensorboard)
    files.tensorboard = std::make_unique<io::TensorboardLog>(path, continues ? from.step : -1, &deadline);
  files.still_owner = [this] { folder_->still_owner(); };
  reporter_.attach(std::move(files));
}

void RunLog::steps(const StepFigures& figures, const TimeSplit& time) {
  on_rank0([&] {
    last_ = figures;
    reporter_.step(figures, time, [this] { return engine_.training().optimizer.l2_loss(); });
  });
}

void RunLog::histograms(std::int64_t step) {
  model::ParameterState& state = engine_.training().parameters;
  engine_.bring_together(state.gradient_elements());
  on_rank0([&] {
    std::vector<float> parameters(state.elements());
    state.download_group("parameters", parameters);
    std::vector<float> gradients(state.updated_elements());
    state.download_gradients(gradients);
    for (const model::Parameter& parameter : plan_.workload.network->parameters().all()) {
      const auto values_in = [&](std::span<const float> all) { return all.subspan(parameter.offset, parameter.count); };
      reporter_.histogram("weights/" + parameter.name, step, values_in(parameters));
      if (!parameter.frozen) reporter_.histogram("gradients/" + parameter.name, step, values_in(gradients));
    }
  });
}

void RunLog::backend_notes() {
  if (std::exchange(notes_shown_, true)) return;
  for (const std::string& note : engine_.backend().notes()) console_.warn(note);
}

void RunLog::append(const std::string& file, const std::string& bytes, bool anew) {
  on_rank0([&] {
    const std::filesystem::path path = folder_->path() / file;
    const io::IoDeadline::Operation writing(deadline_, io::IoDeadline::Kind::writing, path);
    const int flags = O_WRONLY | O_CREAT | O_APPEND | (anew ? O_TRUNC : 0);
    io::append_whole(io::open_own_file(path, flags, "write"), bytes, path);
  });
}

void RunLog::remaining_steps(const TimeSplit& time) {
  on_rank0([&] { reporter_.remaining(last_, time, [this] { return engine_.training().optimizer.l2_loss(); }); });
}

void RunLog::results(const std::string& warning, const TimeSplit& time, const std::vector<std::string>& advice) {
  on_rank0([&] {
    if (const std::string table = reporter_.summary(); !table.empty()) console_.info(table);
    if (!warning.empty()) console_.warn(warning);
    console_.info(fmt::format("time in steps: {}", format_split(time)));
    for (const std::string& sentence : advice) {
      if (!sentence.empty()) console_.info(sentence);
    }
  });
}

}  // namespace lockstep::app
