/// \file
/// The record of a run: its folder, its metrics and what the console shows.
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

/// Every rank calls it alike, and rank 0 writes. A failure to write is kept until the next step.
class RunLog {
 public:
  /// All must outlive the log. `first_step`: steps done before.
  RunLog(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, PendingError& error,
         std::int64_t first_step);

  /// On rank 0. Creates the folder, or continues in it if `continues`, with `from` a checkpoint of the same run.
  /// `taken`: the folder if this process owns it already. `deadline` outlives the log. Throws io::FileError.
  void open(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
            io::IoDeadline& deadline);
  /// Null on ranks other than 0.
  const std::shared_ptr<io::RunFolder>& folder() const noexcept { return folder_; }
  /// Lines of the validations and the events so far: the history that checkpoints contain; rank 0.
  const std::string& history() const noexcept { return reporter_.history(); }

  /// A launch with steps to make.
  void start(double epoch) {
    on_rank0([&] { reporter_.start(first_step_, epoch); });
  }
  /// An event besides the steps (app/plan/origin.hpp).
  void add_event(const io::MetricRecord& record) {
    on_rank0([&] { reporter_.add_event(record); });
  }
  /// Steps made; `time` since the first one.
  void steps(const StepFigures& figures, const TimeSplit& time);
  /// Collective. Weights and gradients after this step.
  void histograms(std::int64_t step);
  /// The backend's notes on its choices, once, after the first step.
  void backend_notes();
  void validation(std::int64_t step, double epoch, const Score& score, const Reporter::EvaluationTime& time) {
    on_rank0([&] { reporter_.evaluation(step, epoch, score, plan_.settings.validation.average, time); });
  }
  void checkpoint(const WrittenCheckpoint& written) { reporter_.checkpoint(written); }
  /// Appends bytes to a file of the run's folder; `anew`: the file begins with them.
  void append(const std::string& file, const std::string& bytes, bool anew);
  /// The steps that no line has shown yet.
  void remaining_steps(const TimeSplit& time);
  /// The end of the steps: a table of the results, the parts of the time, and a line for each advice. `warning` and an
  /// advice: "" for none.
  void results(const std::string& warning, const TimeSplit& time, const std::vector<std::string>& advice);
  /// The end of the run, after its last checkpoint.
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
