#include "app/runs/run_ranking.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "app/report/text_table.hpp"

namespace lockstep::app {
std::vector<DifferentOption> differences_of(const std::vector<RunHistory>& runs) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [name, value] : runs[i].options) {
      const auto [place, is_new] = values.try_emplace(name, runs.size());
      if (is_new) names.push_back(name);
      place->second[i] = value;
    }
  }
  std::vector<DifferentOption> different;
  for (const std::string& name : names) {
    const std::vector<std::string>& all = values[name];
    const bool equal = std::all_of(all.begin(), all.end(), [&](const std::string& value) { return value == all[0]; });
    if (!equal && name != "run") different.push_back({name, all});
  }
  return different;
}

namespace {

/// True if the record of an older version, which has no contents, is of the files of `run`.
bool are_files_of(const RunHistory& run, const RunHistory& older) {
  return older.validation_files.empty() && older.validation_data == run.validation_files;
}

/// True if both runs have the same metric on the same data. A run without records has every metric.
bool are_alike(const RunHistory& a, const RunHistory& b) {
  if (!a.metric.empty() && !b.metric.empty() && a.metric != b.metric) return false;
  if (a.validation_data.empty() || b.validation_data.empty()) return a.validation_path == b.validation_path;
  return a.validation_data == b.validation_data || are_files_of(a, b) || are_files_of(b, a);
}

/// The index of each run's group.
std::vector<std::size_t> group_numbers(const std::vector<RunHistory>& runs) {
  std::vector<const RunHistory*> first;
  std::vector<std::size_t> numbers;
  for (const RunHistory& run : runs) {
    const auto found = std::find_if(first.begin(), first.end(), [&](const auto* of) { return are_alike(*of, run); });
    numbers.push_back(static_cast<std::size_t>(found - first.begin()));
    if (found == first.end()) {
      first.push_back(&run);
    } else if ((*found)->metric.empty()) {
      *found = &run;
    }
  }
  return numbers;
}

}  // namespace

std::vector<RunGroup> groups_of(const std::vector<RunHistory>& runs) {
  std::vector<RunGroup> groups;
  const std::vector<std::size_t> numbers = group_numbers(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    groups.resize(std::max(groups.size(), numbers[i] + 1));
    RunGroup& group = groups[numbers[i]];
    if (!runs[i].metric.empty()) {
      group.title = fmt::format("{} on {}", metric_words(runs[i].metric), runs[i].validation_path);
    }
    group.runs.push_back(runs[i]);
  }
  for (RunGroup& group : groups) {
    if (group.title.empty()) group.title = fmt::format("nothing reported yet on {}", group.runs[0].validation_path);
  }
  std::map<std::string, int> titles;
  for (const RunGroup& group : groups) ++titles[group.title];
  constexpr std::size_t kDigits = 8;  // beginning of the identity
  for (RunGroup& group : groups) {
    if (titles[group.title] == 1) continue;
    group.title += fmt::format(", recorded as {}", group.runs[0].validation_data.substr(0, kDigits));
  }
  return groups;
}

std::vector<std::size_t> ranking_of(const std::vector<RunHistory>& runs) {
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::vector<std::size_t> group = group_numbers(runs);
  std::vector<std::optional<double>> best;
  for (const RunHistory& run : runs) best.push_back(summary_of(run).best);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (best[a].has_value() != best[b].has_value()) return best[a].has_value();
    if (!best[a]) return false;
    if (group[a] != group[b]) return group[a] < group[b];
    return is_better_metric(runs[a].metric, *best[a], *best[b]);
  });
  return order;
}

std::string different_options(const std::vector<DifferentOption>& different, std::size_t index) {
  std::string text;
  for (const DifferentOption& option : different) {
    if (option.values[index].empty()) continue;
    text += fmt::format("{}--{} {}", text.empty() ? "" : " ", option.name, option.values[index]);
  }
  return text;
}

std::string state_words(const RunSummary& summary) { return summary.state.empty() ? "not ended" : summary.state; }

namespace {

std::string table_of(const std::vector<RunHistory>& runs) {
  const std::vector<DifferentOption> different = differences_of(runs);
  const auto with_metric =
      std::find_if(runs.begin(), runs.end(), [](const RunHistory& r) { return !r.metric.empty(); });
  std::vector<std::vector<std::string>> rows{
      {"", "run", with_metric == runs.end() ? "metric" : metric_words(with_metric->metric)}};
  for (const DifferentOption& option : different) rows[0].push_back("--" + option.name);
  for (const char* name : {"at step", "loss", "steps", "steps/s", "time", "state"}) rows[0].emplace_back(name);
  std::size_t place = 0;
  for (const std::size_t i : ranking_of(runs)) {
    const RunSummary summary = summary_of(runs[i]);
    std::vector<std::string> row{fmt::format("{}.", ++place), runs[i].name,
                                 summary.best ? format_metric(runs[i].metric, *summary.best) : "-"};
    for (const DifferentOption& option : different) row.push_back(option.values[i]);
    row.insert(
        row.end(),
        {summary.best ? with_commas(summary.best_step) : "-",
         summary.best_validation_loss ? fmt::format("{:.5g}", *summary.best_validation_loss) : "-",
         with_commas(summary.steps), summary.split.total > 0 ? fmt::format("{:.4g}", summary.steps_per_second) : "-",
         format_duration(summary.split.total + summary.validation_seconds + summary.checkpoint_seconds),
         state_words(summary)});
    rows.push_back(std::move(row));
  }
  const std::size_t after = 3 + different.size();
  return format_table(rows, {2, after, after + 1, after + 2, after + 3, after + 4});
}

}  // namespace

std::string format_ranking(const std::vector<RunHistory>& runs) {
  const std::vector<RunGroup> groups = groups_of(runs);
  std::string text;
  for (const RunGroup& group : groups) {
    if (groups.size() > 1) text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", group.title);
    text += table_of(group.runs);
  }
  return text;
}

}  // namespace lockstep::app
