#include "app/runs/report_runs_options.hpp"

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kReportUsage =
    "Usage: lockstep report RUN... --out FILE.html\n"
    "\n"
    "Writes one HTML page about one or several runs, finished or still training: results, loss, metric,\n"
    "learning rate, gradient norm, throughput, where the time went, launches, plan and options. Ranks\n"
    "several runs, in groups with the same metric on the same data, and shows the options in which they\n"
    "differ. The page needs no network and no other file.\n";
constexpr std::string_view kReportExamples =
    "\n"
    "Examples\n"
    "  lockstep report runs/adam --out adam.html\n"
    "  lockstep report runs/adam runs/sgd --out compared.html\n"
    "  lockstep report runs/sweep --out sweep.html\n"
    "      include all runs in that folder\n"
    "  lockstep report runs/adam runs/sgd --along time\n"
    "      draw curves over training time in seconds\n";
constexpr std::string_view kPlotUsage =
    "Usage: lockstep plot RUN... --svg FILE.svg\n"
    "\n"
    "Draws the charts of `lockstep report` in one SVG file, one below the other.\n";
constexpr std::string_view kPlotExamples =
    "\n"
    "Examples\n"
    "  lockstep plot runs/adam runs/sgd --svg compared.svg\n";

void add_runs(OptionTable& table, std::vector<std::filesystem::path>& runs) {
  table.group("Runs and output");
  table
      .add_free(
          "run", Option::Shape::value, "RUN",
          "run folder, or a folder of runs; give several one after another, without --run",
          [&runs](const Option&, const std::string& text) {
            if (!text.empty()) runs.emplace_back(text);
            return std::string();
          },
          [&runs] { return runs.empty() ? std::string() : runs.back().string(); })
      .positional()
      .several();
}

void add_along(OptionTable& table, Progress& along) {
  table.add_choice(
      "along", along, "AXIS",
      "horizontal axis of the curves; auto: step, or epoch if the runs' epochs differ in their number of steps",
      {{"auto", Progress::automatic},
       {"step", Progress::steps},
       {"epoch", Progress::epochs},
       {"time", Progress::time}});
}

}  // namespace

ReportRunsOptions parse_report(const std::vector<std::string>& arguments) {
  ReportRunsOptions options;
  OptionTable table("lockstep report");
  add_runs(table, options.runs);
  add_along(table, options.along);
  table.add("out", options.out, "FILE", "HTML file to write");
  read_options(table, arguments, kReportUsage, kReportExamples);
  table.require("run", "name the folder of a run");
  return options;
}

PlotOptions parse_plot(const std::vector<std::string>& arguments) {
  PlotOptions options;
  OptionTable table("lockstep plot");
  add_runs(table, options.runs);
  add_along(table, options.along);
  table.add("svg", options.svg, "FILE", "SVG file to write");
  read_options(table, arguments, kPlotUsage, kPlotExamples);
  table.require("run", "name the folder of a run");
  return options;
}

}  // namespace lockstep::app
