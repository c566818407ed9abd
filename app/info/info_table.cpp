#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/info/info.hpp"
#include "app/report/figures.hpp"
#include "app/report/text_table.hpp"
#include "io/formats/csv_table.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kMaxCategoriesListed = 8;

struct Survey {
  io::CsvOptions options;
  std::vector<std::string> proposals;   ///< options of `pack`
  std::vector<std::string> complaints;  ///< problems that remain
};

std::string separator_name(char separator) {
  switch (separator) {
    case ',':
      return "commas";
    case '\t':
      return "tabs";
    default:
      return fmt::format("\"{}\"", separator);
  }
}

std::vector<std::string> complaints_of(const std::filesystem::path& file, const io::CsvOptions& options) {
  std::vector<std::string> complaints;
  const io::CsvTable table(file, options, &complaints);
  return complaints;
}

/// Finds the options of `pack` with the fewest complaints. Counts missing cells.
Survey survey(const std::filesystem::path& file) {
  Survey found;
  found.options.missing = io::CsvOptions::Missing::mean;
  if (file.extension() == ".tsv") found.options.separator = '\t';
  if (const std::optional<char> separator = io::likely_separator(file);
      separator && *separator != found.options.separator) {
    found.options.separator = *separator;
    found.proposals.push_back(*separator == '\t' ? "--separator tab" : fmt::format("--separator \"{}\"", *separator));
  }
  found.complaints = complaints_of(file, found.options);
  struct Try {
    std::string words;
    io::CsvOptions options;
  };
  std::vector<Try> tries;
  for (const auto& [words, decimal, thousands] :
       {std::tuple{"--decimal ,", ',', '\0'}, std::tuple{"--thousands ,", '.', ','},
        std::tuple{"--decimal , --thousands .", ',', '.'}}) {
    tries.push_back({words, found.options});
    tries.back().options.decimal = decimal;
    tries.back().options.thousands = thousands;
  }
  tries.push_back({"--no-header", found.options});
  tries.back().options.header = false;
  for (const Try& one : tries) {
    if (found.complaints.empty()) break;
    std::vector<std::string> complaints = complaints_of(file, one.options);
    if (complaints.size() >= found.complaints.size()) continue;
    found.options = one.options;
    found.proposals.push_back(one.words);
    found.complaints = std::move(complaints);
  }
  return found;
}

/// Quotes a column's name for a shell.
std::string shell_word(const std::string& name) {
  return name.find_first_of(" \t\"'$`\\&;|<>()*?#") == std::string::npos ? name : fmt::format("\"{}\"", name);
}

std::size_t features_of(const io::CsvColumn& column) {
  return column.holds_categories() ? column.categories().size() : 1;
}

std::string describe_contents(const io::CsvColumn& column) {
  if (column.holds_categories()) {
    const std::vector<std::string>& all = column.categories();
    const std::size_t shown = std::min(kMaxCategoriesListed, all.size());
    return fmt::format("{}: {}{}", all.size() == 1 ? "1 category" : fmt::format("{} categories", all.size()),
                       fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                       shown < all.size() ? " ..." : "");
  }
  if (column.holds_nothing()) return "nothing";
  return fmt::format("numbers, {:.6g} to {:.6g}, mean {:.6g}{}", column.least(), column.greatest(), column.mean(),
                     column.counts_lines() ? ", which count the lines" : "");
}

}  // namespace

void describe_table_file(Console& console, const std::filesystem::path& file) {
  const Survey found = survey(file);
  std::vector<std::string> complaints;
  const io::CsvTable table(file, found.options, &complaints);
  console.info(fmt::format("{}: a table of {} and {}, separated by {}, {} header", io::visible_line(file.string()),
                           counted(table.count(), "line"), counted(static_cast<std::int64_t>(table.width()), "column"),
                           separator_name(found.options.separator), found.options.header ? "with a" : "without"));
  std::vector<std::vector<std::string>> rows;
  std::int64_t missing = 0;
  std::size_t features = static_cast<std::size_t>(table.schema().features());
  std::vector<std::string> refused;
  std::string names_samples;
  for (const std::size_t index : table.inputs()) {
    const io::CsvColumn& column = table.column(index);
    const std::string name = column.name().empty() ? fmt::format("{}", index) : column.name();
    if (column.complaint(file.string(), true)) {
      refused.push_back(name);
      features -= features_of(column);
    } else if (column.counts_lines() && names_samples.empty()) {
      names_samples = name;
      features -= features_of(column);
    }
    missing += column.filled();
    rows.push_back({fmt::format("  {}", index), found.options.header ? column.name() : "",
                    describe_contents(column) +
                        (column.filled() > 0 ? fmt::format("; {} missing", with_commas(column.filled())) : "")});
  }
  std::string listing = format_table(rows, {0});
  listing.pop_back();
  console.info(listing);
  if (missing > 0) {
    console.info(fmt::format("  {} are missing: --missing drop leaves their lines out, --missing mean fills them",
                             counted(missing, "cell")));
  }
  for (const std::string& text : found.complaints) console.warn(text);
  std::string command = fmt::format("lockstep pack --x {}", file.string());
  for (const std::string& words : found.proposals) command += " " + words;
  if (!refused.empty())
    command += fmt::format(" --ignore-columns {}", shell_word(fmt::format("{}", fmt::join(refused, ","))));
  if (!names_samples.empty()) command += fmt::format(" --id-column {}", shell_word(names_samples));
  console.info(
      fmt::format("  these columns make {}; those of the label are no input:\n"
                  "  {} --label-column COLUMN{} --out FOLDER",
                  counted(features, "feature"), command, missing > 0 ? " --missing mean" : ""));
  console.info("  (--regression where the label is a number to predict)");
}

}  // namespace lockstep::app
