#include "app/runs/report_runs.hpp"

#include <fmt/format.h>

#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/runs/run_charts.hpp"
#include "app/runs/run_page.hpp"
#include "app/runs/run_ranking.hpp"
#include "io/exchange/output_file.hpp"

namespace lockstep::app {
namespace {

std::vector<RunHistory> runs_to_show(const std::vector<std::filesystem::path>& folders, Console& console) {
  std::vector<RunHistory> runs = read_runs(folders);
  for (const RunHistory& run : runs) {
    if (!run.problem.empty()) console.warn(run.problem);
    if (run.records.empty()) console.warn(fmt::format("{}: nothing is reported yet", run.folder.string()));
  }
  return runs;
}

void write_output(const std::filesystem::path& file, const std::string& text) {
  io::OutputFile output(file, io::IfThere::replace, text.size());
  output.write(text);
  output.finish();
}

}  // namespace

int run_report(const ReportRunsOptions& options) {
  Console console(true);
  const std::vector<RunHistory> runs = runs_to_show(options.runs, console);
  write_output(options.out, page_of(runs, options.along));
  if (runs.size() > 1) console.info(format_ranking(runs));
  console.info(fmt::format("{}: {}", options.out.string(), counted(static_cast<std::int64_t>(runs.size()), "run")));
  console.mention_lost_output();
  return 0;
}

int run_plot(const PlotOptions& options) {
  Console console(true);
  const std::vector<RunHistory> runs = runs_to_show(options.runs, console);
  std::vector<Chart> charts;
  const std::vector<RunGroup> groups = groups_of(runs);
  for (const RunGroup& group : groups) {
    for (RunChart& picture : charts_of(group.runs, {}, options.along)) {
      if (groups.size() > 1) picture.chart.subtitle += ", " + group.title;
      charts.push_back(std::move(picture.chart));
    }
  }
  if (charts.empty()) throw io::FileError("there is nothing to draw: none of the runs has reported a step yet");
  write_output(options.svg, to_svg(charts));
  console.info(fmt::format("{}: {} of {}", options.svg.string(),
                           counted(static_cast<std::int64_t>(charts.size()), "picture"),
                           counted(static_cast<std::int64_t>(runs.size()), "run")));
  console.mention_lost_output();
  return 0;
}

}  // namespace lockstep::app
