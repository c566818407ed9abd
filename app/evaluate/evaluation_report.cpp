#include "app/evaluate/evaluation_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "app/evaluate/scorer.hpp"
#include "app/options/option_table.hpp"
#include "app/plan/work_plan.hpp"
#include "app/report/chart.hpp"
#include "app/report/chart_matrix.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

namespace {

constexpr std::size_t kConfusionsShown = 5;
constexpr std::size_t kMaxCells = 12;  ///< cells per row of the matrix on a terminal

std::int64_t outputs_of(const TrainedModel& subject) { return subject.source().record().network.outputs; }

std::vector<std::string> names_of(const TrainedModel& subject) {
  std::vector<std::string> names;
  const bool classes = model::chooses_class(subject.loss());
  const bool labels = subject.loss() == model::LossKind::binary_cross_entropy;
  const bool is_field = !subject.field_shape().empty();
  if (!classes) names = subject.target_names();
  if (classes && subject.trained_on()) names = subject.trained_on()->class_names;
  if (names.empty() && classes) names = subject.dataset().info().class_names;
  for (std::int64_t i = std::ssize(names); i < outputs_of(subject); ++i) {
    names.push_back(classes ? fmt::format("{}", i)
                            : fmt::format("{}_{}",
                                          labels     ? "label"
                                          : is_field ? "channel"
                                                     : "target",
                                          i));
  }
  if (!is_field || !subject.trained_on()) return names;
  const std::vector<std::string>& units = subject.trained_on()->target_units;
  for (std::size_t i = 0; i < std::min(names.size(), units.size()); ++i) {
    if (!units[i].empty()) names[i] += fmt::format(" [{}]", units[i]);
  }
  return names;
}

/// Adds the errors of the scores to `errors`, which has one element per output. If `scale` is not empty, scores and
/// targets are standardised with it.
void add_targets(std::span<const float> scores, std::span<const std::byte> targets, const io::FeatureScale& scale,
                 std::span<TargetErrors> errors) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    float target = 0;
    std::memcpy(&target, targets.data() + i * sizeof(float), sizeof(float));
    const std::size_t output = i % errors.size();
    const double mean = scale.empty() ? 0 : scale.mean[output % scale.mean.size()],
                 deviation = scale.empty() ? 1 : scale.deviation[output % scale.mean.size()];
    errors[output].add(scores[i] * deviation + mean, target * deviation + mean);
  }
}

void add_classes(std::span<const float> scores, std::span<const std::byte> targets, ClassCounts& counts) {
  const auto classes = static_cast<std::size_t>(counts.classes());
  for (std::size_t row = 0; row * classes < scores.size(); ++row) {
    std::int32_t target = 0;
    std::memcpy(&target, targets.data() + row * sizeof(target), sizeof(target));
    if (target == io::kIgnored) continue;  // a position of a mask without a class
    counts.add(scores.subspan(row * classes, classes), target);
  }
}

void add_labels(std::span<const float> scores, std::span<const std::byte> targets, LabelCounts& counts) {
  const auto labels = static_cast<std::size_t>(counts.labels());
  std::vector<float> wanted(labels);
  for (std::size_t row = 0; row * labels < scores.size(); ++row) {
    std::memcpy(wanted.data(), targets.data() + row * labels * sizeof(float), labels * sizeof(float));
    counts.add(scores.subspan(row * labels, labels), wanted);
  }
}

/// Formats a share; "-" if there is none.
std::string format_share(double share) { return std::isnan(share) ? "-" : fmt::format("{:.4f}", share); }

std::size_t widest(const std::vector<std::string>& names, std::size_t least) {
  for (const std::string& name : names) least = std::max(least, name.size());
  return least;
}

std::string format_matrix(const ClassCounts& counts, const std::vector<std::string>& names) {
  const std::size_t first = widest(names, 5);
  std::string text = fmt::format("{:{}}  taken for\n{:{}}", "is", first, "", first);
  std::vector<std::size_t> widths;
  for (std::int64_t column = 0; column < counts.classes(); ++column) {
    std::size_t width = std::max<std::size_t>(names[static_cast<std::size_t>(column)].size(), 5);
    for (std::int64_t row = 0; row < counts.classes(); ++row) {
      width = std::max(width, with_commas(counts.confused(row, column)).size());
    }
    widths.push_back(width);
    text += fmt::format("  {:>{}}", names[static_cast<std::size_t>(column)], width);
  }
  for (std::int64_t row = 0; row < counts.classes(); ++row) {
    text += fmt::format("\n{:{}}", names[static_cast<std::size_t>(row)], first);
    for (std::int64_t column = 0; column < counts.classes(); ++column) {
      text +=
          fmt::format("  {:>{}}", with_commas(counts.confused(row, column)), widths[static_cast<std::size_t>(column)]);
    }
  }
  return text + "\n";
}

/// One line for each class or label, and one for each mean.
using NamedScore = std::pair<std::string, ClassScore>;
std::string format_scores(const char* title, const std::vector<std::string>& names,
                          const std::vector<ClassScore>& scores, const std::vector<NamedScore>& means,
                          bool of_masks = false) {
  const std::size_t width = widest(names, 13);
  std::string text =
      fmt::format("{:{}}  {:>11}  {:>9}  {:>9}  {:>9}{}\n", title, width, of_masks ? "positions" : "samples",
                  "precision", "recall", "F1", of_masks ? fmt::format("  {:>9}", "IoU") : "");
  const auto line = [&](const std::string& name, const ClassScore& score) {
    text += fmt::format("{:{}}  {:>11}  {:>9}  {:>9}  {:>9}{}\n", name, width, with_commas(score.samples),
                        format_share(score.precision), format_share(score.recall), format_share(score.f1),
                        of_masks ? fmt::format("  {:>9}", format_share(score.iou)) : "");
  };
  for (std::size_t i = 0; i < names.size(); ++i) line(names[i], scores[i]);
  for (const auto& [name, score] : means) line(name, score);
  return text;
}

std::string format_labels(const LabelCounts& counts, const std::vector<std::string>& names) {
  const LabelReport report = report_of(counts);
  const auto samples = std::max<std::int64_t>(1, counts.samples());
  return format_scores("label", names, report.labels, {{"macro mean", report.macro}, {"all together", report.micro}}) +
         fmt::format("of {} {:.2f} % have all their labels right", counted(counts.samples(), "sample"),
                     100 * static_cast<double>(counts.right()) / static_cast<double>(samples));
}

std::string format_classes(const ClassCounts& counts, const std::vector<std::string>& names, bool of_masks) {
  const ClassReport report = report_of(counts);
  std::string text = format_scores("class", names, report.classes,
                                   {{"macro mean", report.macro}, {"weighted mean", report.weighted}}, of_masks);
  if (names.size() <= kMaxCells) text += "\n" + format_matrix(counts, names);
  if (!report.confusions.empty()) {
    text += "\nmost often confused:";
    for (std::size_t i = 0; i < std::min(kConfusionsShown, report.confusions.size()); ++i) {
      const ClassReport::Confusion& pair = report.confusions[i];
      text += fmt::format("{} {} for {} ({})", i == 0 ? "" : ",", names[static_cast<std::size_t>(pair.target)],
                          names[static_cast<std::size_t>(pair.predicted)], with_commas(pair.samples));
    }
    text += "\n";
  }
  return text +
         fmt::format(
             "calibration: expected error {:.4f} (greatest {:.4f}) over {} bins; {:.2f} % right at a mean "
             "confidence of {:.2f} %",
             report.calibration_error, report.greatest_calibration_error, ClassCounts::kBins,
             100 * static_cast<double>(report.right) / static_cast<double>(std::max<std::int64_t>(1, report.samples)),
             100 * report.confidence);
}

std::string format_targets(const EvaluationReport& report, const std::vector<std::string>& names) {
  const std::vector<TargetErrors>&errors = report.targets, &constant = report.constant;
  const std::size_t width = widest(names, 8);
  const std::string of_constant = fmt::format("MAE of the training {}", report.medians ? "median" : "mean");
  std::string text = fmt::format("{:{}}  {:>11}  {:>11}  {:>11}  {:>9}{}", "target", width,
                                 report.of_positions ? "positions" : "samples", "MAE", "RMSE", "R2",
                                 constant.empty() ? "" : "  " + of_constant);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    text +=
        fmt::format("\n{:{}}  {:>11}  {:>11.5g}  {:>11.5g}  {:>9}", names[i], width,
                    with_commas(static_cast<std::int64_t>(errors[i].samples)), shown(errors[i].mean_absolute_error()),
                    shown(errors[i].root_mean_squared_error()), format_share(errors[i].r_squared()));
    if (!constant.empty()) text += fmt::format("  {:>{}.5g}", constant[i].mean_absolute_error(), of_constant.size());
  }
  return text;
}

}  // namespace

void require_reportable(const TrainedModel& subject) {
  if (subject.task().is_language()) {
    throw UsageError(
        "--report is for classes, labels and numbers, and this network writes text: without it eval tells loss, "
        "perplexity "
        "and bits per byte");
  }
  const bool classes = model::chooses_class(subject.loss());
  if (classes && outputs_of(subject) > ClassCounts::kMaxClasses) {
    throw UsageError(fmt::format("--report counts the pairs of up to {} classes, and this network has {}",
                                 with_commas(ClassCounts::kMaxClasses), with_commas(outputs_of(subject))));
  }
}

EvaluationReport judge(TrainedModel& subject, comm::Communicator& communicator) {
  const io::Dataset& data = subject.dataset();
  const std::int64_t samples = data.info().samples;
  const std::int64_t chunk = std::min(subject.batch(), samples);
  const std::int64_t chunks = divide_up(samples, chunk);
  const auto outputs = static_cast<std::size_t>(outputs_of(subject));
  EvaluationReport report{.network = fmt::format("{}, {}", subject.description(), subject.data().string()),
                          .of_positions = !subject.network().sample_shape().grid.empty(),
                          .medians = subject.constant().medians,
                          .names = names_of(subject)};
  if (model::chooses_class(subject.loss())) report.classes.emplace_back(outputs_of(subject));
  if (subject.loss() == model::LossKind::binary_cross_entropy) report.labels.emplace_back(outputs_of(subject));
  const bool counted = !report.classes.empty() || !report.labels.empty();
  // One rank fills the errors of each chunk, and the others leave zeros: adding is exact.
  std::vector<float> constant = counted ? std::vector<float>{} : subject.constant().values;
  subject.target_scale().undo(constant);
  // Outputs of the network and of the constant predictor.
  const std::size_t columns = counted ? 0 : outputs + constant.size();
  std::vector<TargetErrors> of_chunks(static_cast<std::size_t>(chunks) * columns);
  comm::all_succeed(communicator, [&] {
    // float32 cannot represent some targets: scores and targets stay standardised and are converted in double.
    const bool standardized = subject.target_scale().needs_double();
    const io::FeatureScale scale = standardized ? subject.target_scale() : io::FeatureScale{};
    Scorer scorer(subject, chunk, standardized ? Scorer::Units::as_learnt : Scorer::Units::of_data);
    std::vector<float> scores(static_cast<std::size_t>(chunk) * scorer.outputs());
    std::vector<std::byte> targets(static_cast<std::size_t>(chunk) * scorer.target_bytes());
    for (std::int64_t k = communicator.rank(); k < chunks; k += communicator.size()) {
      const auto count = static_cast<std::size_t>(std::min(chunk, samples - k * chunk));
      const std::span<float> own = std::span(scores).first(count * scorer.outputs());
      const std::span<std::byte> wanted = std::span(targets).first(count * scorer.target_bytes());
      scorer.score(k * chunk, own, wanted);
      if (!report.classes.empty()) {
        add_classes(own, wanted, report.classes.front());
      } else if (!report.labels.empty()) {
        add_labels(own, wanted, report.labels.front());
      } else {
        const std::span<TargetErrors> errors =
            std::span(of_chunks).subspan(static_cast<std::size_t>(k) * columns, columns);
        add_targets(own, wanted, scale, errors.first(outputs));
        if (constant.empty()) continue;
        for (std::size_t i = 0; i < own.size(); ++i) own[i] = constant[i % outputs];
        add_targets(own, wanted, scale, errors.subspan(outputs));
      }
    }
  });
  static_assert(sizeof(TargetErrors) == 5 * sizeof(double));
  communicator.all_reduce(!report.classes.empty()  ? report.classes.front().numbers()
                          : !report.labels.empty() ? report.labels.front().numbers()
                                                   : std::span(&of_chunks.data()->samples, 5 * of_chunks.size()));
  communicator.wait("adding up the report");
  report.targets.resize(counted ? 0 : outputs);
  report.constant.resize(constant.size());
  for (std::size_t i = 0; i < of_chunks.size(); ++i) {
    const std::size_t column = i % columns;
    (column < outputs ? report.targets[column] : report.constant[column - outputs]).add(of_chunks[i]);
  }
  return report;
}

std::string format_report(const EvaluationReport& report) {
  const std::vector<std::string> names = io::visible_lines(report.names);
  if (!report.classes.empty()) return format_classes(report.classes.front(), names, report.of_positions);
  if (!report.labels.empty()) return format_labels(report.labels.front(), names);
  return format_targets(report, names);
}

std::vector<io::MetricRecord> records_of(const EvaluationReport& report) {
  std::vector<io::MetricRecord> records;
  for (std::size_t i = 0; i < report.targets.size(); ++i) {
    const TargetErrors& errors = report.targets[i];
    records.push_back({{"kind", "target"},
                       {"index", static_cast<std::int64_t>(i)},
                       {"name", report.names[i]},
                       {"samples", static_cast<std::int64_t>(errors.samples)},
                       {"mean_absolute_error", errors.mean_absolute_error()},
                       {"root_mean_squared_error", errors.root_mean_squared_error()},
                       {"r_squared", errors.r_squared()}});
    if (report.constant.empty()) continue;
    records.back().emplace_back("constant_mean_absolute_error", report.constant[i].mean_absolute_error());
    records.back().emplace_back("constant_root_mean_squared_error", report.constant[i].root_mean_squared_error());
  }
  const auto add = [&](io::MetricRecord record, const ClassScore& score) {
    record.insert(record.end(), {{"samples", score.samples},
                                 {"predicted", score.predicted},
                                 {"precision", score.precision},
                                 {"recall", score.recall},
                                 {"f1", score.f1}});
    if (report.of_positions) record.emplace_back("iou", score.iou);
    records.push_back(std::move(record));
  };
  if (!report.labels.empty()) {
    const LabelCounts& counts = report.labels.front();
    const LabelReport figures = report_of(counts);
    for (std::size_t i = 0; i < report.names.size(); ++i) {
      add({{"kind", "label"}, {"index", static_cast<std::int64_t>(i)}, {"name", report.names[i]}}, figures.labels[i]);
    }
    add({{"kind", "mean"}, {"over", "labels"}}, figures.macro);
    add({{"kind", "mean"}, {"over", "answers"}}, figures.micro);
    records.push_back({{"kind", "exact"}, {"samples", counts.samples()}, {"right", counts.right()}});
  }
  if (report.classes.empty()) return records;
  const ClassCounts& counts = report.classes.front();
  const ClassReport figures = report_of(counts);
  for (std::size_t i = 0; i < report.names.size(); ++i) {
    add({{"kind", "class"}, {"index", static_cast<std::int64_t>(i)}, {"name", report.names[i]}}, figures.classes[i]);
  }
  add({{"kind", "mean"}, {"over", "classes"}}, figures.macro);
  add({{"kind", "mean"}, {"over", "samples"}}, figures.weighted);
  for (std::int64_t target = 0; target < counts.classes(); ++target) {
    for (std::int64_t predicted = 0; predicted < counts.classes(); ++predicted) {
      const std::int64_t samples = counts.confused(target, predicted);
      if (samples == 0) continue;
      records.push_back({{"kind", "confusion"}, {"target", target}, {"predicted", predicted}, {"samples", samples}});
    }
  }
  records.push_back({{"kind", "calibration"},
                     {"expected_error", figures.calibration_error},
                     {"greatest_error", figures.greatest_calibration_error},
                     {"confidence", figures.confidence}});
  for (int index = 0; index < ClassCounts::kBins; ++index) {
    const ClassCounts::Bin bin = counts.bin(index);
    records.push_back({{"kind", "bin"},
                       {"from", static_cast<double>(index) / ClassCounts::kBins},
                       {"to", static_cast<double>(index + 1) / ClassCounts::kBins},
                       {"samples", bin.samples},
                       {"confidence", bin.confidence},
                       {"accuracy", bin.accuracy()}});
  }
  return records;
}

std::string format_svg(const EvaluationReport& report) {
  const ClassCounts& counts = report.classes.front();
  const ClassReport figures = report_of(counts);
  MatrixChart matrix{.title = "Confusion",
                     .subtitle = report.network,
                     .row_title = "is",
                     .column_title = "taken for",
                     .names = report.names};
  for (std::int64_t target = 0; target < counts.classes(); ++target) {
    for (std::int64_t predicted = 0; predicted < counts.classes(); ++predicted) {
      matrix.values.push_back(static_cast<double>(counts.confused(target, predicted)));
    }
  }
  ChartSeries measured{.name = "measured"};
  for (int index = 0; index < ClassCounts::kBins; ++index) {
    const ClassCounts::Bin bin = counts.bin(index);
    if (bin.samples > 0) measured.points.push_back({100 * bin.confidence, 100 * bin.accuracy()});
  }
  const Chart calibration{
      .title = "Calibration",
      .subtitle = fmt::format("expected error {:.4f}, greatest {:.4f}", figures.calibration_error,
                              figures.greatest_calibration_error),
      .x = {.title = "confidence: probability of the likeliest class", .numbers = AxisNumbers::percent},
      .y = {.title = "right", .numbers = AxisNumbers::percent},
      .series = {std::move(measured), {.name = "believable", .points = {{0, 0}, {100, 100}}, .reference = true}}};
  const std::vector<std::string> pictures{to_svg(matrix), draw(calibration)};
  return stack_pictures(pictures);
}

}  // namespace lockstep::app
