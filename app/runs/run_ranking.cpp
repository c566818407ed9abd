#include "app/runs/run_ranking.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

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

std::vector<std::size_t> ranking_of(const std::vector<RunHistory>& runs) {
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::vector<std::string> kinds;
  for (const RunHistory& run : runs) {
    if (!run.metric.empty() && std::find(kinds.begin(), kinds.end(), run.metric) == kinds.end()) {
      kinds.push_back(run.metric);
    }
  }
  const auto kind_of = [&](const RunHistory& run) { return std::find(kinds.begin(), kinds.end(), run.metric); };
  std::vector<std::optional<double>> best;
  for (const RunHistory& run : runs) best.push_back(summary_of(run).best);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (best[a].has_value() != best[b].has_value()) return best[a].has_value();
    if (!best[a]) return false;
    if (runs[a].metric != runs[b].metric) return kind_of(runs[a]) < kind_of(runs[b]);
    return is_better_metric(runs[a].metric, *best[a], *best[b]);
  });
  return order;
}

std::string state_words(const RunSummary& summary) { return summary.state.empty() ? "not ended" : summary.state; }

std::string format_ranking(const std::vector<RunHistory>& runs) {
  const std::vector<DifferentOption> different = differences_of(runs);
  const std::set<std::string> kinds = [&] {
    std::set<std::string> all;
    for (const RunHistory& run : runs) {
      if (!run.metric.empty()) all.insert(run.metric);
    }
    return all;
  }();
  std::vector<std::vector<std::string>> rows{{"", "run", kinds.size() == 1 ? metric_words(*kinds.begin()) : "metric",
                                              "at step", "loss", "steps", "time", "state"}};
  for (const DifferentOption& option : different) rows[0].push_back("--" + option.name);
  std::size_t place = 0;
  for (const std::size_t i : ranking_of(runs)) {
    const RunSummary summary = summary_of(runs[i]);
    std::vector<std::string> row{
        fmt::format("{}.", ++place),
        runs[i].name,
        summary.best ? format_metric(runs[i].metric, *summary.best) : "-",
        summary.best ? with_commas(summary.best_step) : "-",
        summary.validation_loss ? fmt::format("{:.5g}", *summary.validation_loss) : "-",
        with_commas(summary.steps),
        format_duration(summary.split.total + summary.validation_seconds + summary.checkpoint_seconds),
        state_words(summary)};
    for (const DifferentOption& option : different) row.push_back(option.values[i]);
    rows.push_back(std::move(row));
  }
  return format_table(rows, {2, 3, 4, 5, 6});
}

}  // namespace lockstep::app
