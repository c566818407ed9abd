/// \file
/// eval --report: detailed figures about the quality of a network.
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

/// Counts and errors over all ranks. Exactly one of `classes`, `labels` and `targets` is filled, as the network
/// predicts.
struct EvaluationReport {
  std::string network = {};               ///< names of the network and the data, for titles
  bool of_positions = false;              ///< the samples of `classes` or `targets` are positions of masks or fields
  std::vector<ClassCounts> classes = {};  ///< one element, or none
  std::vector<LabelCounts> labels = {};   ///< one element, or none
  std::vector<TargetErrors> targets = {};
  std::vector<TargetErrors> constant = {};  ///< errors of a constant predictor; empty: not known
  bool medians = false;                     ///< the constant predictor gives medians of the training targets, not means
  std::vector<std::string> names = {};      ///< names of the classes, the labels or the targets
};

/// Throws UsageError if there is no report for such a network: a language model, or too many classes.
void require_reportable(const TrainedModel& subject);

/// Collective. Scores all samples. The chunks do not depend on the ranks, so the result has the same bits at any number
/// of ranks. Throws comm::ConsensusError if a rank cannot read its samples.
EvaluationReport judge(TrainedModel& subject, comm::Communicator& communicator);

/// Formats the report as a table for people.
std::string format_report(const EvaluationReport& report);
/// Returns a record for each class, for each pair of confused classes and for the calibration; or for each label and
/// for all labels; or for each number.
std::vector<io::MetricRecord> records_of(const EvaluationReport& report);
/// Draws the confusion matrix and the calibration of the probabilities. `report` must contain classes.
std::string format_svg(const EvaluationReport& report);

}  // namespace lockstep::app
