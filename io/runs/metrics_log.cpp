#include "io/runs/metrics_log.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

nlohmann::ordered_json to_json(const MetricValue& value) {
  if (const double* real = std::get_if<double>(&value)) {
    return std::isfinite(*real) ? nlohmann::ordered_json(*real) : nlohmann::ordered_json(nullptr);
  }
  if (const std::int64_t* integer = std::get_if<std::int64_t>(&value)) return *integer;
  return readable(std::get<std::string>(value));  // JSON is UTF-8, and paths are bytes
}

MetricRecord to_record(const nlohmann::ordered_json& object) {
  MetricRecord record;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number_float()) record.emplace_back(key, value.get<double>());
    if (value.is_number_integer()) record.emplace_back(key, value.get<std::int64_t>());
    if (value.is_string()) record.emplace_back(key, value.get<std::string>());
    if (value.is_null()) record.emplace_back(key, std::numeric_limits<double>::quiet_NaN());
  }
  return record;
}

/// Calls `visit` with each line that is a JSON object, newline included, and with that object. Torn lines are skipped.
template <class Visit>
void for_each_record(std::string_view text, const Visit& visit) {
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(line.size());
    const auto record = nlohmann::ordered_json::parse(line, nullptr, false);
    if (record.is_object()) visit(line, record);
  }
}

/// Removes the records beyond `resume_step` (negative: none). Rewrites nothing if all records stay.
void cut_beyond(const std::filesystem::path& file, std::int64_t resume_step) {
  const std::string text = read_whole(file).value_or("");
  const std::string kept = lines_up_to(text, resume_step < 0 ? std::numeric_limits<std::int64_t>::max() : resume_step);
  if (kept.size() != text.size()) replace_file(file, kept);
}

}  // namespace

std::string to_json_line(const MetricRecord& record) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  for (const auto& [key, value] : record) {
    if (line.contains(key)) throw std::invalid_argument(fmt::format("a metrics record has two values of '{}'", key));
    line[key] = to_json(value);
  }
  return line.dump();
}

std::vector<MetricRecord> all_records(const std::filesystem::path& file) {
  std::vector<MetricRecord> records;
  const std::string text = read_whole(file).value_or("");
  for_each_record(text, [&](std::string_view, const nlohmann::ordered_json& record) {
    const auto kind = record.find("kind");
    if (kind != record.end() && kind->is_string()) records.push_back(to_record(record));
  });
  return records;
}

LastRecords last_records(const std::filesystem::path& file) {
  LastRecords last;
  for (MetricRecord& record : all_records(file)) {
    for (const auto& [key, value] : record) {
      if (key == "kind") last.kind = std::get<std::string>(value);
    }
    last.of_kind[last.kind] = std::move(record);
  }
  return last;
}

std::set<std::int64_t> recorded_steps(const std::filesystem::path& file, std::string_view kind) {
  std::set<std::int64_t> steps;
  const std::string text = read_whole(file).value_or("");
  for_each_record(text, [&](std::string_view, const nlohmann::ordered_json& record) {
    const auto its_kind = record.find("kind"), step = record.find("step");
    if (its_kind == record.end() || *its_kind != kind || step == record.end() || !step->is_number()) return;
    steps.insert(step->get<std::int64_t>());
  });
  return steps;
}

std::map<std::int64_t, double> numbers_by_step(std::string_view lines, std::string_view kind, std::string_view key) {
  std::map<std::int64_t, double> numbers;
  for_each_record(lines, [&](std::string_view, const nlohmann::ordered_json& record) {
    const auto its_kind = record.find("kind"), step = record.find("step"), number = record.find(key);
    if (its_kind == record.end() || *its_kind != kind || step == record.end() || !step->is_number()) return;
    if (number != record.end() && number->is_number()) numbers[step->get<std::int64_t>()] = number->get<double>();
  });
  return numbers;
}

std::string lines_up_to(std::string_view lines, std::int64_t last) {
  std::string kept;
  for_each_record(lines, [&](std::string_view line, const nlohmann::ordered_json& record) {
    const auto step = record.find("step");
    const bool later = step != record.end() && step->is_number() && step->get<double>() > static_cast<double>(last);
    if (!later) kept += line;
  });
  return kept;
}

MetricsLog::MetricsLog(const std::filesystem::path& file, bool append, std::int64_t resume_step, IoDeadline* deadline)
    : path_(file), deadline_(deadline) {
  const IoDeadline::Operation opening(deadline_, IoDeadline::Kind::writing, path_);
  if (append) cut_beyond(path_, resume_step);
  descriptor_ = open_own_file(path_, O_WRONLY | O_CREAT | O_APPEND | (append ? 0 : O_TRUNC), "open");
}

MetricsLog::~MetricsLog() = default;

void MetricsLog::write(const MetricRecord& record) {
  const IoDeadline::Operation writing(deadline_, IoDeadline::Kind::writing, path_);
  append_whole(descriptor_, to_json_line(record) + '\n', path_);
}

}  // namespace lockstep::io
