#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/network_input.hpp"
#include "app/info/describe_columns.hpp"
#include "app/info/info.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/task.hpp"
#include "app/report/figures.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/checksum.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/shards/data_description.hpp"
#include "io/text/token_info.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

struct Extremes {
  double norm = 0;
  float smallest = std::numeric_limits<float>::infinity();
  float largest = -std::numeric_limits<float>::infinity();
};

Extremes extremes_of(const std::vector<float>& values) {
  Extremes result;
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * value;
    result.smallest = std::min(result.smallest, value);
    result.largest = std::max(result.largest, value);
  }
  result.norm = std::sqrt(squares);
  return result;
}

/// "accuracy 0.914", the result of the validation at this step; "" if there was none before the checkpoint was written.
std::string own_metric(const io::TrainingRecord& record) {
  constexpr auto kUsual = Task::metric_keys();
  std::vector<std::string> keys(kUsual.begin(), kUsual.end());
  try {
    const BestBy by = train_options_of(record).validation.best_by;
    keys.insert(keys.begin(), key_of(by));
    if (by == BestBy::accuracy) keys.insert(keys.begin(), "class_accuracy");  // recorded beside errors of numbers
  } catch (const UsageError&) {  // written by another version of the program: no metric is known
  }
  for (const std::string& key : keys) {
    const std::map<std::int64_t, double> metrics = io::numbers_by_step(record.metrics, "validation", key);
    if (const auto own = metrics.find(record.step); own != metrics.end()) {
      return fmt::format("{} {:.6g}", key, own->second);
    }
  }
  return "";
}

/// "0.00392157 x + 0".
std::string input_text(const io::DataDescription& data) {
  std::string text = fmt::format("{:.9g} x {} {:.9g}", data.scale, data.shift < 0 ? "-" : "+", std::abs(data.shift));
  if (data.per_image) text += ", then every image less its mean, over its deviation";
  if (!data.augmentation.empty() && data.augmentation != "none") {
    text += fmt::format("; augmented in training: {}", io::visible_line(data.augmentation));
  }
  return text;
}

std::string unit_text(const std::string& unit) { return unit.empty() ? "" : " in " + io::visible_line(unit); }

/// Describes the training data, one line for each property.
std::string describe_trained_on(const io::TrainingRecord& record) {
  if (record.network.tokens) {
    if (record.vocabulary.empty()) return "";
    const io::TokenInfo tokens = io::token_info_from_json(record.vocabulary);
    return fmt::format("  trained on     {} of kind {}\n",
                       counted(static_cast<std::size_t>(tokens.vocabulary), "different token"),
                       io::visible_line(tokens.kind));
  }
  if (record.data_description.empty()) return "  trained on     not known: the checkpoint does not say it\n";
  const io::DataDescription data = io::data_description_from_json(record.data_description);
  std::string text = fmt::format(
      "  trained on     {}\n  a sample       {} [{}]{}{}{}\n", io::visible_line(data.source), io::name_of(data.x.type),
      fmt::join(data.x.sample_shape, ", "), unit_text(data.x.unit),
      data.layout.empty() ? "" : fmt::format(" ({})", io::visible_line(data.layout)),
      data.has_range ? fmt::format(", {:.6g} to {:.6g}", data.value_min, data.value_max) : ", of a range not known");
  for (const io::Field& input : data.inputs) {
    text += fmt::format("                 {}: {} [{}]{}\n", io::visible_line(input.name), io::name_of(input.type),
                        fmt::join(input.sample_shape, ", "), unit_text(input.unit));
  }
  if (data.has_statistics) {
    text += fmt::format("                 mean {:.6g}, deviation {:.6g}\n", data.mean, data.standard_deviation);
  }
  text += fmt::format("  input x        {}\n", input_text(data));
  if (data.labels == io::Labels::classes) {
    text += fmt::format("  classes        {}{}\n", data.classes,
                        data.class_names.empty()
                            ? ", without names"
                            : fmt::format(": {}", fmt::join(io::visible_lines(data.class_names), ", ")));
  }
  if (!data.field.empty()) {
    text += fmt::format("  targets        {}\n", fields_text(data.field, record.network.outputs));
  }
  if (data.target_names.empty() && !data.target_units.empty()) {
    text += fmt::format("  target        {}\n", unit_text(data.target_units[0]));
  }
  for (std::size_t i = 0; i < data.target_names.size(); ++i) {
    const bool has_unit = i < data.target_units.size() && data.target_units[i] != io::unit_of(data.target_names[i]);
    text += fmt::format("  target {:<8}{}{}\n", i, io::visible_line(data.target_names[i]),
                        has_unit ? fmt::format(" [{}]", io::visible_line(data.target_units[i])) : "");
  }
  if (data.table) text += describe_columns(*data.table, 17);
  return text;
}

/// Describes the unusual options of the run, one line each.
std::string describe_training(const io::TrainingRecord& record) {
  std::string text;
  try {
    for (const auto& [title, value] : unusual_options(train_options_of(record))) {
      text += fmt::format("  {:<15}{}\n", title, io::visible_line(value));
    }
  } catch (const UsageError&) {  // written by another version of the program; the rest is still useful
  }
  return text;
}

std::string describe_record(const io::TrainingRecord& record) {
  std::string text = fmt::format("  after step     {} (epoch {}, sample {} of it)\n", with_commas(record.step),
                                 record.epoch, with_commas(record.position));
  text += fmt::format("  network        {}\n", io::visible_line(io::to_text(record.network)));
  text += describe_trained_on(record);
  text += fmt::format("  optimizer      {}\n", io::visible_line(record.optimizer));
  text += describe_training(record);
  const std::string own = own_metric(record);
  text += fmt::format("  validation     {}\n", own.empty() ? "not at this step" : own);
  if (!std::isnan(record.best_metric)) text += fmt::format("  best so far    {:.6g}\n", record.best_metric);
  text += fmt::format("  seed           {}\n", record.seed);
  text += fmt::format("  written by     lockstep {} on {}\n", io::visible_line(record.program_version),
                      record.world_size > 0 ? counted(record.world_size, "rank") : "any number of ranks");
  return text;
}

}  // namespace

bool describe_checkpoint(Console& console, const fs::path& file) {
  const io::Checkpoint checkpoint = io::read_checkpoint(file);
  console.info(fmt::format("{}: checkpoint, {}, all checksums verified\n{}", io::visible_line(file.string()),
                           format_bytes(io::checkpoint_bytes(file)), describe_record(checkpoint.record)));
  std::size_t elements = 0;
  console.info(fmt::format("{:<16} {:<24} {:>16} {:>12} {:>12} {:>12} {:>16}", "group", "tensor", "shape", "norm",
                           "smallest", "largest", "checksum"));
  for (const io::StoredTensor& tensor : checkpoint.tensors) {
    const Extremes extremes = extremes_of(tensor.values);
    console.info(fmt::format("{:<16} {:<24} {:>16} {:>12.5g} {:>12.5g} {:>12.5g} {:>16}",
                             io::visible_line(tensor.group), io::visible_line(tensor.name),
                             fmt::format("{}", fmt::join(tensor.shape, " x ")), shown(extremes.norm),
                             shown(extremes.smallest), shown(extremes.largest),
                             io::to_hex(io::checksum(std::as_bytes(std::span(tensor.values))))));
    if (tensor.group == "parameters") elements += tensor.values.size();
  }
  console.info(fmt::format("{} parameters", with_commas(elements)));
  return true;
}

bool describe_checkpoints(Console& console, const fs::path& folder, bool verify) {
  const auto found = io::list_checkpoints(folder);
  if (found.empty()) console.info("  none yet");
  std::error_code error;
  const fs::path latest = fs::read_symlink(folder / "latest", error);
  const fs::path best = io::best_checkpoint(folder);
  bool sound = true;
  for (const io::FoundCheckpoint& checkpoint : found) {
    std::string state, problem;
    if (verify) {
      try {
        const io::TrainingRecord record = io::verify_checkpoint(checkpoint.file);
        const std::string own = own_metric(record);
        state = own.empty() ? "ok" : "ok  " + own;
      } catch (const io::FileError& damage) {
        state = "DAMAGED";
        problem = damage.what();
        sound = false;
      }
    }
    const std::string name = checkpoint.file.filename().string();
    console.info(fmt::format("  {:<24} {:>12} {:>12}  {}{}{}", name, with_commas(checkpoint.step),
                             format_bytes(io::checkpoint_bytes(checkpoint.file)), state,
                             name == best.filename().string() ? "  (best)" : "",
                             name == latest.filename().string() ? "  (latest)" : ""));
    if (!problem.empty()) console.warn(problem);
  }
  return sound;
}

}  // namespace lockstep::app
