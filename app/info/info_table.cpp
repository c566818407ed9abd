#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/info/info.hpp"
#include "app/report/figures.hpp"
#include "app/report/text_table.hpp"
#include "io/formats/csv_table.hpp"
#include "io/text/shell_word.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kMaxCategoriesListed = 8;

struct Survey {
  io::CsvOptions options;
  std::vector<std::string> words;       ///< these options for `pack`
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

/// If the first line holds numbers, chooses whether these are names or data.
void interpret_first_line(const std::filesystem::path& file, Survey& found) {
  if (found.complaints.empty()) return;
  io::CsvOptions names = found.options, data = found.options;
  names.numbers_may_be_names = true;
  data.header = false;
  std::vector<std::string> of_names = complaints_of(file, names);
  if (of_names.size() == found.complaints.size()) return;
  std::vector<std::string> of_data = complaints_of(file, data);
  const bool is_data = of_data.size() <= of_names.size();
  found.options = is_data ? data : names;
  found.complaints = std::move(is_data ? of_data : of_names);
  found.words.emplace_back(is_data ? "--no-header" : "--header");
}

/// Finds the options of `pack` with the fewest complaints. Counts missing cells.
Survey survey(const std::filesystem::path& file) {
  Survey found;
  found.options.missing = io::CsvOptions::Missing::mean;
  if (file.extension() == ".tsv") found.options.separator = '\t';
  if (const std::optional<char> separator = io::likely_separator(file);
      separator && *separator != found.options.separator) {
    found.options.separator = *separator;
    found.words = {"--separator", *separator == '\t' ? "tab" : std::string(1, *separator)};
  }
  found.complaints = complaints_of(file, found.options);
  struct Try {
    std::vector<std::string> words;
    io::CsvOptions options;
  };
  std::vector<Try> tries;
  for (const auto& [words, decimal, thousands] :
       {std::tuple{std::vector<std::string>{"--decimal", ","}, ',', '\0'},
        std::tuple{std::vector<std::string>{"--thousands", ","}, '.', ','},
        std::tuple{std::vector<std::string>{"--decimal", ",", "--thousands", "."}, ',', '.'}}) {
    tries.push_back({words, found.options});
    tries.back().options.decimal = decimal;
    tries.back().options.thousands = thousands;
  }
  for (const Try& one : tries) {
    if (found.complaints.empty()) break;
    std::vector<std::string> complaints = complaints_of(file, one.options);
    if (complaints.size() >= found.complaints.size()) continue;
    found.options = one.options;
    found.words.insert(found.words.end(), one.words.begin(), one.words.end());
    found.complaints = std::move(complaints);
  }
  interpret_first_line(file, found);
  return found;
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

struct Uses {
  std::vector<std::size_t> inputs;   ///< the label among them
  std::vector<std::size_t> refused;  ///< columns that `pack` refuses
  std::optional<std::size_t> id;
};

Uses uses_of(const io::CsvTable& table, const std::filesystem::path& file, bool header) {
  Uses uses;
  std::set<std::string> names;  // the inputs have them
  for (const std::size_t index : table.inputs()) {
    const io::CsvColumn& column = table.column(index);
    const bool is_sound = !column.complaint(file.string(), true);
    const bool has_name = !header || !io::names_nothing(column.name());
    if (is_sound && !uses.id && column.counts_lines()) {
      uses.id = index;
    } else if (is_sound && has_name && names.insert(column.name()).second) {
      uses.inputs.push_back(index);
    } else {
      uses.refused.push_back(index);
    }
  }
  if (uses.id && uses.inputs.size() < 2 &&
      names.insert(table.column(*uses.id).name()).second) {  // it may be the label, or the only input
    uses.inputs.push_back(*uses.id);
    uses.id.reset();
  }
  return uses;
}

/// The command that packs the table, or the reason why there is none.
std::string proposal(const std::filesystem::path& file, const Survey& found, const io::CsvTable& table,
                     const Uses& uses, bool fills) {
  if (uses.inputs.size() < 2) return "`lockstep pack` needs an input and a label: fewer than two columns can be used";
  if (io::visible_line(file.string()) != file.string()) {
    return "`lockstep pack` takes the table; its name holds characters that cannot be shown: rename it first";
  }
  io::CsvOptions options = found.options;
  for (const std::size_t index : uses.refused) options.ignored.push_back(table.column(index).word());
  if (uses.id) options.id_column = table.column(*uses.id).word();
  if (!found.complaints.empty() && !complaints_of(file, options).empty()) {
    return "`lockstep pack` takes the table when the above is mended in it";
  }
  std::string command = "lockstep pack --x " + io::shell_path(file);
  for (const std::string& word : found.words) command += " " + io::shell_word(word);
  if (!options.ignored.empty()) {
    command += " --ignore-columns " + io::shell_word(fmt::format("{}", fmt::join(options.ignored, ",")));
  }
  if (uses.id) command += " --id-column " + io::shell_word(options.id_column);
  return fmt::format("{} --label-column COLUMN{} --out FOLDER", command, fills ? " --missing mean" : "");
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
  for (const std::size_t index : table.inputs()) {
    const io::CsvColumn& column = table.column(index);
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
  const Uses uses = uses_of(table, file, found.options.header);
  std::size_t features = 0;
  for (const std::size_t index : uses.inputs) features += features_of(table.column(index));
  console.info(fmt::format("  these columns make {}; those of the label are no input:\n  {}",
                           counted(features, "feature"), proposal(file, found, table, uses, missing > 0)));
  console.info("  (--regression where the label is a number to predict)");
}

}  // namespace lockstep::app
