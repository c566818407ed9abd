/// \file
/// eval --report: more than one number about how good a network is.
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

/// Counts and errors of all ranks together. One of the three is present: classes, labels or numbers, as the network
/// predicts.
struct EvaluationReport {
  std::string network = {};               ///< and the data, for titles
  bool of_masks = false;                  ///< the samples of `classes` are the positions of masks
  std::vector<ClassCounts> classes = {};  ///< one, or none
  std::vector<LabelCounts> labels = {};   ///< one, or none
  std::vector<TargetErrors> targets = {};
  std::vector<TargetErrors> constant = {};  ///< likewise, of a constant predictor; empty: it is not known
  bool medians = false;                     ///< which predicts the median of the training targets, not their mean
  std::vector<std::string> names = {};      ///< names of the classes, the labels or the targets
};

/// Throws UsageError where there is nothing to report: a language model, too many classes.
void require_reportable(const TrainedModel& subject);

/// Collective. All samples are scored, in chunks that do not depend on the ranks: the same bits at any number of them.
/// Throws comm::ConsensusError when a rank cannot read its samples.
EvaluationReport judge(TrainedModel& subject, comm::Communicator& communicator);

/// A table, for people.
std::string format_report(const EvaluationReport& report);
/// A record for each class and each pair of classes that was confused, and of the calibration; or for each label and
/// of all; or for each number.
std::vector<io::MetricRecord> records_of(const EvaluationReport& report);
/// The confusion matrix and how far probabilities can be believed; `report` is of classes.
std::string format_svg(const EvaluationReport& report);

}  // namespace lockstep::app
