#include "app/runs/run_page.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "app/report/chart_canvas.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "app/runs/run_charts.hpp"
#include "app/runs/run_page_style.hpp"
#include "app/runs/run_ranking.hpp"

namespace lockstep::app {
namespace {

/// Frame of a chart on the page. Telephones get the narrow one, because the wide one would shrink until it is
/// unreadable.
constexpr ChartFrame kCardFrame{.width = 620, .height = 340, .titled = false};
constexpr ChartFrame kNarrowFrame{.width = 350, .height = 300, .titled = false};

/// Escapes lines of text, because escape_xml() does not handle line breaks.
std::string escape_lines(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) result += escape_xml(line) + "\n";
  return result;
}

/// A cell of a table, or its heading.
std::string cell(const std::string& text, bool words = false) {
  return fmt::format("<td{}>{}</td>", words ? " class=\"text\"" : "", escape_xml(text));
}
std::string heading(const std::string& text, bool words = false) {
  return fmt::format("<th scope=\"col\"{}>{}</th>", words ? " class=\"text\"" : "", escape_xml(text));
}

/// A table that scrolls, also with the keyboard.
std::string scrolled(const std::string& label, const std::string& content, bool wide = false) {
  return fmt::format("<div class=\"scroll{}\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{}</div>\n",
                     wide ? " wide" : "", escape_xml(label), content);
}

std::string option_of(const RunHistory& run, std::string_view name) {
  for (const auto& [option, value] : run.options) {
    if (option == name) return value;
  }
  return "";
}

std::string seconds_words(double seconds) {
  return seconds < 60 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
}

std::string rate_words(const RunSummary& summary) {
  return with_commas(static_cast<std::int64_t>(summary.rate)) + (summary.tokens ? " tokens/s" : " samples/s");
}

double total_seconds(const RunSummary& summary) {
  return summary.split.total + summary.validation_seconds + summary.checkpoint_seconds;
}

// Parts of the page ---------------------------------------------------------------------------------------------------

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", escape_xml(name), escape_xml(value),
                     escape_xml(note));
}

std::string tiles_of(const RunHistory& run) {
  const RunSummary summary = summary_of(run);
  std::string text = "<dl class=\"tiles\">\n";
  if (summary.best) {
    text += tile("Best validation " + metric_words(run.metric), format_metric(run.metric, *summary.best),
                 "at step " + with_commas(summary.best_step));
  }
  if (summary.validation_loss) {
    text += tile("Validation loss", fmt::format("{:.4f}", *summary.validation_loss),
                 summary.training_loss ? fmt::format("training {:.4f}", *summary.training_loss) : "");
  } else if (summary.training_loss) {
    text += tile("Training loss", fmt::format("{:.4f}", *summary.training_loss), "of the last report");
  }
  text += tile("Steps", with_commas(summary.steps),
               fmt::format("{:.4g} epoch{}, {}", summary.epochs, summary.epochs == 1 ? "" : "s", state_words(summary)));
  text += tile("Throughput", with_commas(static_cast<std::int64_t>(summary.rate)),
               summary.tokens ? "tokens per second" : "samples per second");
  text += tile("Time", seconds_words(total_seconds(summary)),
               fmt::format("{} in steps{}", seconds_words(summary.split.total),
                           summary.starts > 1 ? fmt::format(", {} launches", summary.starts) : ""));
  return text + "</dl>\n";
}

/// `prefix` makes its id unique in the page.
std::string ranking_table(const std::vector<RunHistory>& runs, const std::string& prefix) {
  const std::vector<DifferentOption> different = differences_of(runs);
  const std::vector<std::string> names = short_names(runs);
  std::string text = fmt::format(
      "<table id=\"{}ranking-table\"><caption>The best validation first, with its step and losses. Options that are "
      "equal "
      "in all runs are left out.</caption>\n<thead><tr>{}{}{}",
      prefix, heading("place"), heading("run", true),
      heading(runs[0].metric.empty() ? "best metric" : "best " + metric_words(runs[0].metric)));
  for (const DifferentOption& option : different) text += heading("--" + option.name, true);
  for (const char* name : {"at step", "validation loss", "training loss", "steps", "throughput", "time"})
    text += heading(name);
  text += heading("state", true);
  text += "</tr></thead>\n<tbody>\n";
  std::size_t place = 0;
  for (const std::size_t i : ranking_of(runs)) {
    const RunSummary summary = summary_of(runs[i]);
    const auto number = [](const std::optional<double>& value) {
      return cell(value ? fmt::format("{:.5g}", *value) : "–");
    };
    text += fmt::format("<tr{}>{}<th scope=\"row\">{}</th>", place == 0 && summary.best ? " class=\"best\"" : "",
                        cell(fmt::format("{}", place + 1)), escape_xml(names[i]));
    text += cell(summary.best ? format_metric(runs[i].metric, *summary.best) : "–");
    for (const DifferentOption& option : different) {
      text += cell(option.values[i].empty() ? "–" : option.values[i], true);
    }
    text += cell(summary.best ? with_commas(summary.best_step) : "–") + number(summary.best_validation_loss) +
            number(summary.best ? summary.best_training_loss : summary.training_loss) +
            cell(with_commas(summary.steps)) + cell(rate_words(summary)) + cell(seconds_words(total_seconds(summary))) +
            cell(state_words(summary), true) + "</tr>\n";
    ++place;
  }
  return scrolled("Ranking of the runs", text + "</tbody></table>", true);
}

/// The values of a line chart: each point in the page's notation, and in full precision for programs.
std::string table_of_lines(const Chart& chart) {
  std::string text =
      fmt::format("<table><thead><tr>{}{}</tr></thead>\n", heading(chart.x.title), heading(chart.y.title));
  for (const ChartSeries& series : chart.series) {
    text += fmt::format("<tbody><tr><th colspan=\"2\" scope=\"rowgroup\">{}</th></tr>\n",
                        escape_xml(series.name.empty() ? chart.title : series.name));
    for (const ChartPoint& point : series.points) {
      const std::string x = point.x == std::floor(point.x) ? with_commas(static_cast<std::int64_t>(point.x))
                                                           : fmt::format("{:.2f}", point.x);
      const std::string y = chart.y.numbers == AxisNumbers::percent ? fmt::format("{:.2f} %", point.y)
                            : std::abs(point.y) >= 1e4              ? with_commas(std::llround(point.y))
                                                                    : fmt::format("{:.5g}", point.y);
      text += fmt::format("<tr data-x=\"{}\" data-y=\"{}\"><td>{}</td><td>{}</td></tr>\n", point.x, point.y, x, y);
    }
    text += "</tbody>\n";
  }
  return text + "</table>";
}

std::string table_of_bars(const Chart& chart) {
  std::string text = "<table><thead><tr>" + heading(chart.x.title, true);
  for (const ChartSeries& part : chart.series) text += heading(part.name);
  text += "</tr></thead>\n<tbody>\n";
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar) {
    text += fmt::format("<tr><th scope=\"row\">{}</th>", escape_xml(chart.bars[bar]));
    for (const ChartSeries& part : chart.series) text += cell(fmt::format("{:.1f} %", part.points[bar].y));
    text += "</tr>\n";
  }
  return text + "</tbody></table>";
}

/// The chart at both widths; the page's style shows one of them.
std::string at_both_widths(const RunChart& picture) {
  std::string text;
  for (const bool narrow : {false, true}) {
    Chart chart = picture.chart;
    if (narrow) chart.frame = kNarrowFrame;
    text += fmt::format("<div class=\"{}\">{}</div>", narrow ? "when-narrow" : "when-wide",
                        draw(chart, picture.id + (narrow ? "-narrow-" : "-")));
  }
  return text;
}

std::string figure_of(const RunChart& picture) {
  const Chart& chart = picture.chart;
  const bool lines = chart.bars.empty();
  const std::string note = chart.y.scale == AxisScale::logarithmic ? "logarithmic axis" : "";
  return fmt::format(
      "<figure id=\"{0}\">\n<figcaption><h3>{1}</h3>{2}</figcaption>\n<div class=\"plot\"{3} role=\"group\" "
      "aria-label=\"{1}{4}\">\n{5}<div class=\"read\" aria-live=\"polite\"></div>\n</div>\n"
      "<details><summary>Values<span class=\"aloud\"> of {1}</span></summary>{6}</details>\n</figure>\n",
      picture.id, escape_xml(chart.title), note.empty() ? "" : "<p>" + note + "</p>", lines ? " tabindex=\"0\"" : "",
      lines ? ": the arrow keys read its values" : "", at_both_widths(picture),
      scrolled("Values of " + chart.title, lines ? table_of_lines(chart) : table_of_bars(chart)));
}

/// Describes an event other than a step; "" if the record is no such event.
std::string event_words(const io::MetricRecord& record) {
  const std::string kind = string_of(record, "kind");
  const auto number = [&](std::string_view key) { return number_of(record, key).value_or(0); };
  if (kind == "start") {
    return fmt::format("launched with {}{}", counted(static_cast<std::int64_t>(number("ranks")), "rank"),
                       number("step") > 0 ? ", going on" : "");
  }
  if (kind == "roll_back") {
    return fmt::format("went back from step {} with {:.4g} times the learning rate", number("failed_step"),
                       number("rate_factor"));
  }
  if (kind == "new_optimizer_state") return "began a new optimiser state: " + string_of(record, "optimizer");
  if (kind == "end") return "ended: " + string_of(record, "how");
  return "";
}

std::string course_table(const std::vector<RunHistory>& runs) {
  const std::vector<std::string> names = short_names(runs);
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const io::MetricRecord& record : runs[i].records) {
      const std::string words = event_words(record);
      if (words.empty()) continue;
      rows += fmt::format("<tr>{}{}{}{}</tr>\n", runs.size() > 1 ? cell(names[i], true) : "",
                          cell(with_commas(static_cast<std::int64_t>(number_of(record, "step").value_or(0)))),
                          cell(words, true), cell(string_of(record, "time"), true));
    }
  }
  if (rows.empty()) return "<p class=\"note\">The records tell of no launch, return or end.</p>\n";
  return scrolled("Course", fmt::format("<table id=\"course-table\"><thead><tr>{}{}{}{}</tr></thead>\n<tbody>\n{}"
                                        "</tbody></table>",
                                        runs.size() > 1 ? heading("run", true) : "", heading("step"),
                                        heading("what happened", true), heading("when", true), rows));
}

std::string unfolded(const std::string& summary, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("<details><summary>{}</summary>{}</details>\n", escape_xml(summary),
                     scrolled(summary, "<pre>" + escape_lines(text) + "</pre>"));
}

std::string lead_of(const RunHistory& run) {
  std::string text = option_of(run, "model");
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : " · ") + words; };
  if (const std::string data = option_of(run, "data"); !data.empty()) {
    const std::filesystem::path path(data);
    add("trained on " + (path.filename() == "train" ? path.parent_path() : path).filename().string());
  }
  if (const std::string optimizer = option_of(run, "optimizer"); !optimizer.empty()) add(optimizer);
  if (const std::string rate = option_of(run, "learning-rate"); !rate.empty()) add("learning rate " + rate);
  for (const io::MetricRecord& record : run.records) {
    if (string_of(record, "kind") != "start") continue;
    if (const std::string time = string_of(record, "time"); !time.empty()) add("began " + time);
    break;
  }
  return text;
}

/// Names the best of several runs, if all can be compared.
std::string best_of(const std::vector<RunHistory>& runs, const std::vector<std::string>& names) {
  if (const std::size_t groups = groups_of(runs).size(); groups > 1) {
    return fmt::format("{} groups: only runs with the same metric on the same data are compared", groups);
  }
  const std::size_t best = ranking_of(runs)[0];
  const RunSummary summary = summary_of(runs[best]);
  if (!summary.best) return "none of them has validated yet";
  return fmt::format("the best is {}: {} {} at step {}", names[best], metric_words(runs[best].metric),
                     format_metric(runs[best].metric, *summary.best), with_commas(summary.best_step));
}

/// Ranking and charts of runs that can be compared. `number`: index of the group; 0: there is only one group.
std::string section_of(const RunGroup& group, std::size_t number, Progress along) {
  const std::string prefix = number > 0 ? fmt::format("group-{}-", number) : "";
  const std::string title = number > 0 ? ": " + group.title : "";
  std::string text;
  if (group.runs.size() > 1) {
    text +=
        fmt::format("<section aria-labelledby=\"{0}ranking\">\n<h2 id=\"{0}ranking\">Ranking{1}</h2>\n{2}</section>\n",
                    prefix, escape_xml(title), ranking_table(group.runs, prefix));
  }
  text += fmt::format(
      "<section aria-labelledby=\"{0}pictures\">\n<h2 id=\"{0}pictures\">Course of training{1}</h2>\n"
      "<div class=\"charts\">\n",
      prefix, escape_xml(group.runs.size() == 1 && number > 0 ? title + ", " + group.runs[0].name : title));
  for (RunChart& picture : charts_of(group.runs, kCardFrame, along)) {
    picture.id = prefix + picture.id;
    text += figure_of(picture);
  }
  return text + "</div>\n</section>\n";
}

}  // namespace

std::string page_of(const std::vector<RunHistory>& runs, Progress along) {
  const bool alone = runs.size() == 1;
  const std::vector<std::string> names = short_names(runs);
  const std::string title = alone ? runs[0].name : fmt::format("{} runs", runs.size());
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"lockstep {}\">\n"
      "<title>{}</title>\n<style>{}@media (prefers-color-scheme:dark){{\n{}{}}}\n</style>\n</head>\n<body>\n"
      "<a class=\"skip\" href=\"#{}pictures\">To the pictures</a>\n<header>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
      program_version(), escape_xml(title), kPageStyle, kDarkPage, dark_colours(),
      groups_of(runs).size() > 1 ? "group-1-" : "", escape_xml(title),
      escape_xml(alone ? lead_of(runs[0]) : best_of(runs, names)));
  if (alone) text += tiles_of(runs[0]);
  text += "</header>\n<main>\n";
  const std::vector<RunGroup> groups = groups_of(runs);
  for (std::size_t i = 0; i < groups.size(); ++i) text += section_of(groups[i], groups.size() > 1 ? i + 1 : 0, along);
  text += "<section aria-labelledby=\"course\">\n<h2 id=\"course\">Launches and ends</h2>\n" + course_table(runs) +
          "</section>\n<section aria-labelledby=\"plan\">\n<h2 id=\"plan\">Plan and options</h2>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string of = alone ? "" : " of " + names[i];
    if (!runs[i].problem.empty()) text += fmt::format("<p class=\"note\">{}</p>\n", escape_xml(runs[i].problem));
    text += unfolded("Plan" + of, runs[i].plan) + unfolded("Options" + of, runs[i].configuration);
  }
  return text + fmt::format(
                    "</section>\n</main>\n<footer><p>Written by lockstep {} from metrics.jsonl, log.txt and config.ini "
                    "of {}.</p></footer>\n<script>{}</script>\n</body>\n</html>\n",
                    program_version(), alone ? "the run" : "the runs", kPageScript);
}

}  // namespace lockstep::app
