#include "app/evaluate/evaluate.hpp"

#include <cmath>

#include <fmt/format.h>

#include "app/engine/evaluation.hpp"
#include "app/engine/file_watch.hpp"
#include "app/evaluate/evaluation_report.hpp"
#include "app/evaluate/trained_model.hpp"
#include "app/place/placement.hpp"
#include "app/plan/constant_predictor.hpp"
#include "app/report/console.hpp"
#include "app/report/result_file.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

/// Collective. Adds the score of a predictor that ignores the sample, if the checkpoint contains the labels that the
/// network was trained on.
void compare_with_constant(TrainedModel& subject, comm::Communicator& communicator, Console& console,
                           const Score& result, io::MetricRecord& record) {
  const ConstantPredictor& constant = subject.constant();
  if (constant.empty()) return;
  const Task& task = subject.task();
  const Score reached = score_of(communicator, constant, subject.dataset_as_learnt(), subject.loss(), task);
  add_constant(reached, task, record);
  console.info(format_constant(constant, reached, task));
  if (const std::string text = beaten_by(constant, compared(result, task), reached, task); !text.empty())
    console.warn(text);
}

}  // namespace

int run_eval(comm::MpiSession& session, const EvalOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto communicator = communicator_of(session, execution);
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  ResultFile json(*communicator, options.json, &io_deadline), svg(*communicator, options.svg, &io_deadline);
  TrainedModel subject(*communicator, console, options, TrainedModel::Labels::required, execution, io_deadline);
  if (options.report) require_reportable(subject);
  if (svg.wanted() && !model::chooses_class(subject.loss())) {
    throw UsageError(
        "--svg draws which classes are confused, and this network does not choose one of several: leave it out");
  }
  const Score result = evaluate(subject.model(), subject.dataset_as_learnt(), *communicator, subject.weights(),
                                subject.batch(), subject.task());
  if (!std::isfinite(result.loss)) {  // the same on all ranks
    throw comm::ConsensusError(
        fmt::format("{}: the loss on {} is not finite: {}", subject.source().file().string(), subject.data().string(),
                    subject.finite().all()
                        ? "the weights are too large for these data, or the data hold numbers that are not finite"
                        : subject.finite().text()));
  }
  if (std::isnan(result.best)) {
    console.warn(fmt::format("{} is not defined: all samples of {} are of one class", subject.task().metric_words(),
                             subject.data().string()));
  }
  io::MetricRecord record{{"kind", "evaluation"},
                          {"checkpoint", subject.source().file().string()},
                          {"step", subject.source().record().step},
                          {"data", subject.data().string()},
                          {"weights", std::string(subject.average() ? "average" : "current")}};
  for (auto& entry : subject.task().record(result)) record.push_back(std::move(entry));
  record.emplace_back("samples", result.samples);
  compare_with_constant(subject, *communicator, console, result, record);
  console.info(fmt::format("{}: {}", subject.description(), subject.task().format_evaluation(result)));
  json.write_record(record);
  if (options.report) {
    const EvaluationReport report = judge(subject, *communicator);
    console.info(format_report(report));
    for (const io::MetricRecord& line : records_of(report)) json.write_record(line);
    if (svg.wanted()) svg.write(format_svg(report));
  }
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
