#include "app/runs/report_runs_options.hpp"

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kReportUsage =
    "Usage: lockstep report RUN... --out FILE.html\n"
    "\n"
    "Writes one page of one or several runs, ended or still training: what they have come to, loss, metric,\n"
    "learning rate, gradient norm, throughput, where the time went, launches, plan and options. Several runs\n"
    "are ranked, those with one metric on the same data together, and it shows the options in which they\n"
    "differ. The page needs no network and no other file.\n";
constexpr std::string_view kReportExamples =
    "\n"
    "Examples\n"
    "  lockstep report runs/adam --out adam.html\n"
    "  lockstep report runs/adam runs/sgd --out compared.html\n"
    "  lockstep report runs/sweep --out sweep.html\n"
    "      all runs in that folder\n"
    "  lockstep report runs/adam runs/sgd --along time\n"
    "      curves over the seconds that the steps took\n";
constexpr std::string_view kPlotUsage =
    "Usage: lockstep plot RUN... --svg FILE.svg\n"
    "\n"
    "Draws the pictures of `lockstep report` into one SVG file, below each other.\n";
constexpr std::string_view kPlotExamples =
    "\n"
    "Examples\n"
    "  lockstep plot runs/adam runs/sgd --svg compared.svg\n";

void add_runs(OptionTable& table, std::vector<std::filesystem::path>& runs) {
  table.group("What");
  table
      .add_free(
          "run", Option::Shape::value, "RUN",
          "a run's folder, or a folder of runs; several are given one after another",
          [&runs](const Option&, const std::string& text) {
            if (!text.empty()) runs.emplace_back(text);
            return std::string();
          },
          [&runs] { return runs.empty() ? std::string() : runs.back().string(); })
      .positional()
      .several();
}

void add_along(OptionTable& table, Progress& along) {
  table.add_choice("along", along, "AXIS",
                   "what curves are drawn along; auto: steps, or epochs where runs have different ones",
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
  table.add("out", options.out, "FILE", "the HTML file to write");
  read_options(table, arguments, kReportUsage, kReportExamples);
  table.require("run", "name the folder of a run");
  return options;
}

PlotOptions parse_plot(const std::vector<std::string>& arguments) {
  PlotOptions options;
  OptionTable table("lockstep plot");
  add_runs(table, options.runs);
  add_along(table, options.along);
  table.add("svg", options.svg, "FILE", "the SVG file to write");
  read_options(table, arguments, kPlotUsage, kPlotExamples);
  table.require("run", "name the folder of a run");
  return options;
}

}  // namespace lockstep::app
