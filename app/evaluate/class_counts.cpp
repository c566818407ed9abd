#include "app/evaluate/class_counts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace lockstep::app {

namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

double or_zero(double value) { return std::isnan(value) ? 0 : value; }

}  // namespace

ClassCounts::ClassCounts(std::int64_t classes)
    : classes_(classes), numbers_(static_cast<std::size_t>(classes * classes) + 3 * kBins, 0.0) {}

std::size_t ClassCounts::bin_at(int index) const {
  return static_cast<std::size_t>(classes_ * classes_) + 3 * static_cast<std::size_t>(index);
}

void ClassCounts::add(std::span<const float> probabilities, std::int32_t target) {
  if (std::ssize(probabilities) != classes_ || target < 0 || target >= classes_) {
    throw std::invalid_argument("a classified sample has a probability for each class, and is of one of them");
  }
  const auto likeliest = std::ranges::max_element(probabilities);
  const std::int64_t predicted = likeliest - probabilities.begin();
  const double confidence = *likeliest;
  if (!(confidence >= 0 && confidence <= 1)) {
    throw std::invalid_argument("what the network says of a sample is not a number: its weights are not all finite");
  }
  ++numbers_[static_cast<std::size_t>(target * classes_ + predicted)];
  const std::size_t at = bin_at(std::clamp(static_cast<int>(std::ceil(confidence * kBins)) - 1, 0, kBins - 1));
  ++numbers_[at];
  if (predicted == target) ++numbers_[at + 1];
  numbers_[at + 2] += std::round(confidence / kConfidenceUnit);
}

std::int64_t ClassCounts::confused(std::int64_t target, std::int64_t predicted) const {
  return static_cast<std::int64_t>(numbers_[static_cast<std::size_t>(target * classes_ + predicted)]);
}

ClassCounts::Bin ClassCounts::bin(int index) const {
  const std::size_t at = bin_at(index);
  Bin bin{.samples = static_cast<std::int64_t>(numbers_[at]), .right = static_cast<std::int64_t>(numbers_[at + 1])};
  if (bin.samples > 0) bin.confidence = numbers_[at + 2] * kConfidenceUnit / numbers_[at];
  return bin;
}

ClassScore class_score(std::int64_t samples, std::int64_t predicted, std::int64_t right) {
  return {.samples = samples,
          .predicted = predicted,
          .precision = ratio(right, predicted),
          .recall = ratio(right, samples),
          .f1 = ratio(2 * right, samples + predicted),
          .iou = ratio(right, samples + predicted - right)};
}

ClassReport report_of(const ClassCounts& counts) {
  ClassReport report;
  report.classes.resize(static_cast<std::size_t>(counts.classes()));
  for (std::int64_t target = 0; target < counts.classes(); ++target) {
    for (std::int64_t predicted = 0; predicted < counts.classes(); ++predicted) {
      const std::int64_t samples = counts.confused(target, predicted);
      report.classes[static_cast<std::size_t>(target)].samples += samples;
      report.classes[static_cast<std::size_t>(predicted)].predicted += samples;
      if (target == predicted) report.right += samples;
      if (target != predicted && samples > 0) report.confusions.push_back({target, predicted, samples});
      report.samples += samples;
    }
  }
  std::ranges::stable_sort(report.confusions, std::greater{}, &ClassReport::Confusion::samples);
  double present = 0;
  for (std::int64_t i = 0; i < counts.classes(); ++i) {
    ClassScore& one = report.classes[static_cast<std::size_t>(i)];
    one = class_score(one.samples, one.predicted, counts.confused(i, i));
    if (one.samples + one.predicted == 0) continue;
    ++present;
    const double share = ratio(one.samples, report.samples);
    for (const auto figure : {&ClassScore::precision, &ClassScore::recall, &ClassScore::f1, &ClassScore::iou}) {
      report.macro.*figure += or_zero(one.*figure);
      report.weighted.*figure += share * or_zero(one.*figure);
    }
  }
  for (const auto figure : {&ClassScore::precision, &ClassScore::recall, &ClassScore::f1, &ClassScore::iou}) {
    report.macro.*figure /= std::max(present, 1.0);
  }
  report.macro.samples = report.weighted.samples = report.samples;
  report.macro.predicted = report.weighted.predicted = report.samples;
  for (int index = 0; index < ClassCounts::kBins; ++index) {
    const ClassCounts::Bin bin = counts.bin(index);
    if (bin.samples == 0) continue;
    const double share = ratio(bin.samples, report.samples), error = std::abs(bin.accuracy() - bin.confidence);
    report.confidence += share * bin.confidence;
    report.calibration_error += share * error;
    report.greatest_calibration_error = std::max(report.greatest_calibration_error, error);
  }
  return report;
}

}  // namespace lockstep::app
