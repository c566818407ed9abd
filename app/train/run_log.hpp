/// \file
/// The log of a run: its folder, its metrics and its lines on the console.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/engine/engine.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/step_figures.hpp"
#include "app/train/pending_error.hpp"
#include "app/train/report.hpp"
#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

/// Every rank calls the same methods, and rank 0 writes. A failure to write goes to the PendingError, which the next
/// step reports.
class RunLog {
 public:
  /// All references must outlive the log. `first_step`: number of steps done before.
  RunLog(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, PendingError& error,
         std::int64_t first_step);

  /// Call on rank 0. Creates the folder, or continues in it if `continues`; `from` is then a checkpoint of the same
  /// run. `taken`: the folder, if this process owns it already. `deadline` must outlive the log. Throws io::FileError.
  void open(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
            io::IoDeadline& deadline);
  /// Null on other ranks than 0.
  const std::shared_ptr<io::RunFolder>& folder() const noexcept { return folder_; }
  /// Rank 0: the validations and events so far, as lines. Checkpoints contain this history.
  const std::string& history() const noexcept { return reporter_.history(); }

  /// Records the start of a launch that has steps to make.
  void start(double epoch) {
    on_rank0([&] { reporter_.start(first_step_, epoch); });
  }
  /// Records an event besides the steps (app/plan/origin.hpp).
  void add_event(const io::MetricRecord& record) {
    on_rank0([&] { reporter_.add_event(record); });
  }
  /// Reports finished steps. `time`: time in steps since the loop began.
  void steps(const StepFigures& figures, const TimeSplit& time);
  /// Collective. Writes histograms of the weights and gradients after this step.
  void histograms(std::int64_t step);
  /// Shows the backend's notes on its choices at the first call. Call after the first step.
  void backend_notes();
  void validation(std::int64_t step, double epoch, const Score& score, const Reporter::EvaluationTime& time) {
    on_rank0([&] { reporter_.evaluation(step, epoch, score, plan_.settings.validation.average, time); });
  }
  void checkpoint(const WrittenCheckpoint& written) { reporter_.checkpoint(written); }
  /// Appends bytes to a file in the run's folder; `anew`: replaces the contents of the file.
  void append(const std::string& file, const std::string& bytes, bool anew);
  /// Reports the steps that no line has shown yet.
  void remaining_steps(const TimeSplit& time);
  /// Reports the end of the steps: a table of the results, the parts of the time, and a line for each item of `advice`.
  /// Empty texts are left out.
  void results(const std::string& warning, const TimeSplit& time, const std::vector<std::string>& advice);
  /// Records the end of the run. Call after its last checkpoint.
  void end(std::int64_t step, const std::string& how) {
    on_rank0([&] { reporter_.end(step, how); });
  }

 private:
  template <class Work>
  void on_rank0(Work work) {
    error_.keep_on_rank0(work);
  }

  const Plan& plan_;
  Console& console_;
  Engine& engine_;
  PendingError& error_;
  Reporter reporter_;
  std::int64_t first_step_;
  std::shared_ptr<io::RunFolder> folder_;
  io::IoDeadline* deadline_ = nullptr;
  StepFigures last_;
  bool notes_shown_ = false;
};

}  // namespace lockstep::app
