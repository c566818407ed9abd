/// \file
/// eval --report: detailed figures of a network's quality.
#pragma once

#include <string>
#include <vector>

#include "app/evaluate/class_counts.hpp"
#include "app/evaluate/label_counts.hpp"
#include "app/evaluate/target_errors.hpp"
#include "app/evaluate/trained_model.hpp"
#include "comm/communicator.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// The result of all ranks together. One of classes, labels and targets is filled, by the kind of the network.
struct EvaluationReport {
  std::string network = {};               ///< network and data, for titles
  std::vector<ClassCounts> classes = {};  ///< one element, or none
  std::vector<LabelCounts> labels = {};   ///< one element, or none
  std::vector<TargetErrors> targets = {};
  std::vector<TargetErrors> constant = {};  ///< errors of the mean of the training targets; empty: unknown
  std::vector<std::string> names = {};      ///< names of the classes, the labels or the targets
};

/// Throws UsageError if there is nothing to report: a language model, too many classes.
void require_reportable(const TrainedModel& subject);

/// Collective. Scores all samples, in chunks that do not depend on the ranks: the same bits at any number of them.
/// Throws comm::AgreedError if a rank cannot read its samples.
EvaluationReport judge(TrainedModel& subject, comm::Communicator& communicator);

/// A table, for people.
std::string format_report(const EvaluationReport& report);
/// A record for each class and each pair of confused classes, and for the calibration; or for each label and for all;
/// or for each target.
std::vector<io::MetricRecord> records_of(const EvaluationReport& report);
/// The confusion matrix and the calibration of the probabilities; `report` is of classes.
std::string format_svg(const EvaluationReport& report);

}  // namespace lockstep::app
