#include "app/evaluate/label_counts.hpp"

#include <cmath>
#include <stdexcept>

namespace lockstep::app {

LabelCounts::LabelCounts(std::int64_t labels)
    : labels_(labels), numbers_(2 + 3 * static_cast<std::size_t>(labels), 0.0) {}

void LabelCounts::add(std::span<const float> probabilities, std::span<const float> targets) {
  if (std::ssize(probabilities) != labels_ || std::ssize(targets) != labels_) {
    throw std::invalid_argument("a sample with labels has a probability and a target for each of them");
  }
  bool all_right = true;
  for (std::size_t label = 0; label < probabilities.size(); ++label) {
    const float probability = probabilities[label];
    if (!(probability >= 0 && probability <= 1)) {
      throw std::invalid_argument("what the network says of a sample is not a number: its weights are not all finite");
    }
    const bool there = targets[label] > 0.5f, said = probability > 0.5f;
    double* const counts = &numbers_[2 + 3 * label];
    counts[0] += there ? 1 : 0;
    counts[1] += said ? 1 : 0;
    counts[2] += there && said ? 1 : 0;
    all_right = all_right && there == said;
  }
  ++numbers_[0];
  numbers_[1] += all_right ? 1 : 0;
}

std::int64_t LabelCounts::count(std::int64_t label, std::size_t which) const {
  return static_cast<std::int64_t>(numbers_.at(2 + 3 * static_cast<std::size_t>(label) + which));
}

LabelReport report_of(const LabelCounts& counts) {
  LabelReport report;
  std::int64_t there = 0, said = 0, found = 0;
  std::vector<ClassScore> present;
  for (std::int64_t label = 0; label < counts.labels(); ++label) {
    const ClassScore score = class_score(counts.there(label), counts.said(label), counts.found(label));
    report.labels.push_back(score);
    if (score.samples + score.predicted > 0) present.push_back(score);
    there += score.samples, said += score.predicted, found += counts.found(label);
  }
  report.micro = class_score(there, said, found);
  report.macro = {.samples = there, .predicted = said};
  for (const auto figure : {&ClassScore::precision, &ClassScore::recall, &ClassScore::f1}) {
    for (const ClassScore& score : present) {
      report.macro.*figure += (std::isnan(score.*figure) ? 0 : score.*figure) / static_cast<double>(present.size());
    }
  }
  return report;
}

}  // namespace lockstep::app
