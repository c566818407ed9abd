#include "io/formats/csv_table.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/files/unknown_name.hpp"
#include "io/text/shell_word.hpp"
#include "io/text/utf8.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::io {
namespace {

bool contains_index(const std::vector<std::size_t>& list, std::size_t index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

/// True for a word that means a missing number, but may be the name of a class.
bool is_none(std::string_view text) { return text == "none" || text == "None"; }

std::string separator_word(char separator) { return separator == '\t' ? "tab" : fmt::format("\"{}\"", separator); }

/// Words that options and their lists take for the columns: the name, or the index from the front or from the end,
/// which must be no name.
std::vector<std::string> column_words(const std::vector<std::string>& names, std::size_t columns) {
  std::unordered_map<std::string_view, int> times;
  for (const std::string& name : names) ++times[name];
  std::vector<std::string> words;
  for (std::size_t i = 0; i < columns; ++i) {
    const std::string index = std::to_string(i);
    const bool by_name = !names.empty() && !names_nothing(names[i]) && names[i].find(',') == std::string::npos &&
                         visible_line(names[i]) == names[i] && times[names[i]] == 1;
    words.push_back(by_name ? names[i] : times.contains(index) ? fmt::format("-{}", columns - i) : index);
  }
  return words;
}

}  // namespace

bool names_nothing(std::string_view header) { return header.empty() || header.starts_with("Unnamed: "); }

std::optional<char> likely_separator(const std::filesystem::path& file) {
  constexpr int kLines = 20;
  std::optional<char> best;
  std::size_t most = 1;
  for (const char separator : {',', ';', '\t', '|'}) {
    try {
      CsvRecords records(file, separator);
      std::size_t cells = 0;
      bool even = true;
      for (int line = 0; line < kLines && even && records.next(); ++line) {
        even = line == 0 || records.cells() == cells;
        cells = records.cells();
      }
      if (even && cells > most) {
        most = cells;
        best = separator;
      }
    } catch (const FileError&) {  // this separator causes an unterminated quoted cell
    }
  }
  return best;
}

CsvTable::CsvTable(const std::filesystem::path& file, const CsvOptions& options, std::vector<std::string>* complaints)
    : file_(file),
      options_(options),
      complaints_(complaints),
      style_{.decimal = options.decimal, .thousands = options.thousands},
      label_is_class_(options.encoding ? options.encoding->labels_are_classes : options.label_is_class),
      classes_(style_) {
  if (options_.encoding && label_is_class_) {
    classes_.follow({.names = options_.encoding->class_names,
                     .classes = options_.encoding->classes,
                     .from = options_.encoding->from});
  }
  CsvRecords records(file, options.separator);
  if (options.header) read_header(records);
  scan(records);
}

void CsvTable::complain(std::string text) {
  if (complaints_ == nullptr) throw FileError(std::move(text));
  complaints_->push_back(std::move(text));
}

std::string CsvTable::separator_hint() const {
  const std::optional<char> separator = likely_separator(file_);
  if (!separator || *separator == options_.separator) return "";
  return fmt::format(". Its cells look separated by {}: --separator {}",
                     *separator == '\t' ? "tabs" : std::string(1, *separator), separator_word(*separator));
}

void CsvTable::read_header(CsvRecords& records) {
  if (!records.next()) throw FileError(fmt::format("{}: is empty", file_.string()));
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < records.cells(); ++i) {
    const std::string_view cell = csv_trimmed(records.cell(i));
    names_.push_back(readable(cell));
    numbers += csv_number(cell, style_) || csv_number(cell) ? 1 : 0;
  }
  if (records.cells() == 1) {
    if (const std::string hint = separator_hint(); !hint.empty()) {
      throw FileError(fmt::format("{}: has a single column{}", file_.string(), hint));
    }
  }
  if (!options_.numbers_may_be_names && 2 * numbers >= records.cells() && numbers > 0) {
    complain(
        fmt::format("{}: its first line, which names the columns, holds numbers ({}): --no-header takes it for data, "
                    "--header for names",
                    file_.string(), csv_listed(names_)));
  }
  begin_columns(names_.size());
}

void CsvTable::begin_columns(std::size_t count) {
  const std::vector<std::string> words = column_words(names_, count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string number = fmt::format("column {}", i);
    columns_.emplace_back(i, names_.empty() ? number : names_[i],
                          names_.empty() ? number : fmt::format("{} ({})", number, names_[i]), words[i], style_);
  }
  if (!options_.id_column.empty()) id_ = find(options_.id_column, "such");
  if (!options_.weight_column.empty()) weight_ = find(options_.weight_column, "weight");
  if (options_.encoding) {
    follow_encoding();
  } else {
    choose_columns();
  }
  if (!names_.empty()) require_names();
  if (options_.encoding) return;
  for (const std::size_t label : labels_) {
    for (const std::size_t input : inputs_) twins_.emplace_back(input, label);
  }
}

void CsvTable::choose_columns() {
  for (const std::string& wanted : options_.label_columns()) labels_.push_back(find(wanted, "label"));
  std::vector<std::size_t> left_out;
  for (const std::string& wanted : options_.ignored) left_out.push_back(find(wanted, "such"));
  if (id_) left_out.push_back(*id_);
  if (weight_) left_out.push_back(*weight_);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!contains_index(labels_, i) && !contains_index(left_out, i)) inputs_.push_back(i);
  }
  for (const std::string& wanted : options_.categories) columns_[find(wanted, "such")].hold_categories();
}

/// Matches columns by name if both tables have names, otherwise by position.
void CsvTable::follow_encoding() {
  const TableEncoding& known = *options_.encoding;
  if (known.table.named != !names_.empty()) {
    throw FileError(
        fmt::format("{}: has {} header, and {} was made of a table with{} one: give both of them one, or none",
                    file_.string(), names_.empty() ? "no" : "a", known.from, names_.empty() ? "" : "out"));
  }
  std::vector<std::string> present, wanted;
  for (const CsvColumn& column : columns_) present.push_back(column.name());
  for (const TableColumn& column : known.table.columns) wanted.push_back(column.name);
  PairedNames inputs = pair_names(wanted, present);
  if (!known.table.named && present.size() == wanted.size()) {  // inputs only
    inputs.missing.clear();
    for (std::size_t i = 0; i < wanted.size(); ++i) inputs.places[i] = i;
  }
  if (!inputs.missing.empty()) {
    throw FileError(fmt::format("{}: lacks {}, which {} has: {}; it has {}{}", file_.string(),
                                inputs.missing.size() == 1 ? "a column" : "columns", known.from,
                                csv_listed(inputs.missing), csv_listed(present), separator_hint()));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    inputs_.push_back(*inputs.places[i]);
    columns_[inputs_.back()].follow(known.table.columns[i], options_.unknown);
  }
  if (!options_.label_column.empty()) {
    for (const std::string& label : options_.label_columns()) labels_.push_back(find(label, "label"));
    if (labels_.size() != known.table.labels.size()) {
      throw FileError(fmt::format("{}: {} has {} labels ({}), --label-column names {}", file_.string(), known.from,
                                  known.table.labels.size(), csv_listed(known.table.labels), labels_.size()));
    }
  } else {
    const PairedNames labels = pair_names(known.table.labels, present);
    if (!labels.missing.empty() && labels.missing.size() < known.table.labels.size()) {
      throw FileError(
          fmt::format("{}: lacks labels that {} has: {}", file_.string(), known.from, csv_listed(labels.missing)));
    }
    if (labels.missing.empty()) {
      for (const auto& place : labels.places) labels_.push_back(*place);
    } else if (!known.table.labels.empty()) {
      remarks_.push_back(fmt::format("without labels: there is no column {}", csv_listed(known.table.labels)));
    }
  }
  std::vector<std::string> surplus;
  for (const CsvColumn& column : columns_) {
    const bool used = contains_index(inputs_, column.index()) || contains_index(labels_, column.index()) ||
                      id_ == column.index() || weight_ == column.index();
    if (!used) surplus.push_back(column.name());
  }
  if (!surplus.empty()) {
    remarks_.push_back(fmt::format("not used, for {} has no such {}: {}", known.from,
                                   surplus.size() == 1 ? "column" : "columns", csv_listed(surplus)));
  }
}

/// Requires distinct names for the columns that are used.
void CsvTable::require_names() {
  const auto used = [&](std::size_t i) { return contains_index(inputs_, i) || contains_index(labels_, i); };
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (used(i) && names_nothing(names_[i])) {
      complain(
          fmt::format("{}: column {} has no name{}; pandas writes its index so: leave it out with --ignore-columns {}, "
                      "make it the name of each sample with --id-column {}, or name it",
                      file_.string(), i, names_[i].empty() ? "" : fmt::format(" (\"{}\")", names_[i]),
                      shell_word(columns_[i].word()), shell_word(columns_[i].word())));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (names_[i] != names_[j] || names_[i].empty() || !(used(i) || used(j))) continue;
      const bool both_matter = options_.encoding ? true : used(i) && used(j);
      if (!both_matter) continue;
      complain(fmt::format(
          "{}: columns {} and {} are both called {}: rename one of them{}", file_.string(), j, i, names_[i],
          options_.encoding ? "" : fmt::format(", or leave it out with --ignore-columns {}", columns_[i].word())));
      break;
    }
  }
}

/// Finds a column by its name or its number.
std::size_t CsvTable::find(const std::string& wanted, std::string_view what) const {
  const auto columns = static_cast<std::int64_t>(columns_.size());
  const std::string name = readable(wanted);
  const auto named = std::find(names_.begin(), names_.end(), name);
  std::int64_t index = 0;
  const auto [stop, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  if (named != names_.end()) {
    index = named - names_.begin();
    if (std::find(named + 1, names_.end(), name) != names_.end()) {
      throw FileError(
          fmt::format("{}: two columns are called {}: rename one of them, or name it by its index ({} for "
                      "the first)",
                      file_.string(), name, index));
    }
  } else if (error != std::errc() || stop != wanted.data() + wanted.size()) {
    index = columns;
  } else if (index < 0) {
    index += columns;
  }
  if (index >= 0 && index < columns) return static_cast<std::size_t>(index);
  throw UnknownName(fmt::format("{}: has no {} column {}; it has {} columns{}{}{}", file_.string(), what, wanted,
                                columns, names_.empty() ? "" : ": ", csv_listed(names_), separator_hint()));
}

bool CsvTable::left_out(const CsvRecords& record) const {
  if (options_.missing != CsvOptions::Missing::drop) return false;
  const auto missing = [&](std::size_t column) { return csv_missing(csv_trimmed(record.cell(column))); };
  const auto no_label = [&](std::size_t column) {
    return missing(column) && !(label_is_class_ && is_none(csv_trimmed(record.cell(column))));
  };
  return std::any_of(inputs_.begin(), inputs_.end(), missing) || (weight_ && missing(*weight_)) ||
         std::any_of(labels_.begin(), labels_.end(), no_label);
}

/// Counts the samples, collects classes and categories, and inspects each column.
void CsvTable::scan(CsvRecords& records) {
  std::int64_t dropped = 0;
  while (records.next()) {
    if (columns_.empty()) begin_columns(records.cells());
    if (records.cells() != columns_.size()) {
      throw FileError(fmt::format("{}:{}: has {} columns, the lines before have {}{}", file_.string(), records.line(),
                                  records.cells(), columns_.size(), separator_hint()));
    }
    if (left_out(records)) {
      ++dropped;
      continue;
    }
    ++count_;
    for (const std::size_t column : inputs_) {
      const std::string_view text = csv_trimmed(records.cell(column));
      if (csv_missing(text) && options_.missing == CsvOptions::Missing::mean) {
        columns_[column].fill();
      } else {
        columns_[column].add(text, records.line());
      }
    }
    for (const std::size_t column : labels_) add_label(records, column);
    std::erase_if(twins_, [&](const auto& twin) {
      return csv_trimmed(records.cell(twin.first)) != csv_trimmed(records.cell(twin.second));
    });
    if (weight_) check_weight(records);
    if (id_) id_bytes_ = std::max(id_bytes_, readable(csv_trimmed(records.cell(*id_))).size());
  }
  if (count_ == 0) throw FileError(fmt::format("{}: holds no samples", file_.string()));
  if (inputs_.empty()) throw FileError(fmt::format("{}: has a label column and nothing else", file_.string()));
  for (const std::size_t column : inputs_) {
    columns_[column].finish();
    if (auto text = columns_[column].complaint(file_.string(), options_.text == CsvOptions::Text::one_hot)) {
      complain(std::move(*text));
    }
  }
  if (label_is_class_ && !labels_.empty()) {
    classes_.finish(count_);
    if (auto text = classes_.complaint(file_.string(), columns_[labels_[0]].text())) complain(std::move(*text));
  }
  has_gaps_ = dropped > 0;
  remark(dropped);
}

void CsvTable::fill_from_training(ValidationDraw draw) {
  struct Mean {
    std::size_t column = 0;
    double sum = 0;
    std::int64_t numbers = 0;
  };
  if (options_.missing != CsvOptions::Missing::mean || options_.encoding) return;
  std::vector<Mean> means;
  for (const std::size_t column : inputs_) {
    if (!columns_[column].holds_categories()) means.push_back({.column = column});
  }
  if (means.empty()) return;
  CsvRecords records(file_, options_.separator);
  if (options_.header) records.next();
  while (records.next()) {
    if (records.cells() != width()) {
      throw FileError(fmt::format("{}:{}: the file changed while it was read", file_.string(), records.line()));
    }
    if (draw.next()) continue;
    for (Mean& mean : means) {
      const std::string_view text = csv_trimmed(records.cell(mean.column));
      const std::optional<double> number = csv_missing(text) ? std::nullopt : csv_number(text, style_);
      if (!number) continue;
      mean.sum += *number;
      ++mean.numbers;
    }
  }
  for (const Mean& mean : means) {
    if (mean.numbers == 0) {
      throw FileError(
          fmt::format("{}: {} is empty in every line of the training part: leave it out with --ignore-columns, or "
                      "choose other lines with --seed",
                      file_.string(), columns_[mean.column].text()));
    }
    columns_[mean.column].set_mean(mean.sum / static_cast<double>(mean.numbers));
  }
}

void CsvTable::remark(std::int64_t dropped) {
  std::int64_t filled = 0, unknown = 0;
  for (const std::size_t column : inputs_) {
    const CsvColumn& one = columns_[column];
    filled += one.filled();
    unknown += one.unknown();
    if (one.holds_categories()) {
      remarks_.push_back(fmt::format("{} holds {} different texts: one input of 0 or 1 for each", one.text(),
                                     one.categories().size()));
    } else if (one.counts_lines() && !options_.encoding) {
      remarks_.push_back(
          fmt::format("{} counts the lines: --id-column {} makes it the name of each sample instead "
                      "of an input",
                      one.text(), shell_word(one.word())));
    } else if (one.padded_number() && !options_.encoding) {
      remarks_.push_back(
          fmt::format("{} holds {}, taken as a number: --categories {} takes such cells as categories, "
                      "--ignore-columns leaves the column out",
                      one.text(), *one.padded_number(), shell_word(one.word())));
    }
  }
  constexpr std::int64_t kFew = 10;
  for (const auto& [input, label] : twins_) {
    if (count_ < kFew) break;
    remarks_.push_back(
        fmt::format("{} holds the very cells of {}, which is to be learnt: --ignore-columns {} leaves it out",
                    columns_[input].text(), columns_[label].text(), shell_word(columns_[input].word())));
  }
  if (label_is_class_ && !labels_.empty()) {
    if (std::string text = classes_.remark(columns_[labels_[0]].text()); !text.empty()) {
      remarks_.push_back(std::move(text));
    }
  }
  if (dropped > 0) remarks_.push_back(fmt::format("{} lines with missing cells are left out", dropped));
  if (filled > 0) {
    remarks_.push_back(fmt::format("{} missing cells get the mean of their column{} (texts: none)", filled,
                                   options_.encoding ? " in " + options_.encoding->from : ""));
  }
  if (unknown > 0) {
    remarks_.push_back(
        fmt::format("{} cells with categories that {} does not know get none", unknown, options_.encoding->from));
  }
}

void CsvTable::check_weight(const CsvRecords& records) const {
  const std::string_view text = csv_trimmed(records.cell(*weight_));
  const std::optional<double> number = csv_number(text, style_);
  if (number && *number >= 0) return;
  throw FileError(fmt::format("{}:{}: the weight in {} is \"{}\": a weight is a number of 0 or more", file_.string(),
                              records.line(), columns_[*weight_].text(), csv_shown(text)));
}

void CsvTable::add_label(const CsvRecords& records, std::size_t column) {
  const std::string_view text = csv_trimmed(records.cell(column));
  const std::string& where = columns_[column].text();
  if (!label_is_class_) {
    if (!csv_number(text, style_)) throw FileError(number_refusal(file_.string(), records.line(), where, text, style_));
    columns_[column].add(text, records.line());
    return;
  }
  if (text.empty()) {
    throw FileError(fmt::format("{}:{}: the label in {} is empty", file_.string(), records.line(), where));
  }
  if (first_not_utf8(text)) {
    throw FileError(
        fmt::format("{}:{}: {} holds \"{}\", which is no UTF-8, as the names of classes are; convert the "
                    "file (iconv -f LATIN1 -t UTF-8, or from what it is in)",
                    file_.string(), records.line(), where, csv_shown(text)));
  }
  classes_.add(text, records.line());
  if (classes_.too_many()) {
    throw FileError(
        fmt::format("{}:{}: {} has more than {} different texts; choose another label column, or "
                    "regression for numbers",
                    file_.string(), records.line(), where, CsvClasses::kMaxClasses));
  }
}

std::optional<SampleId> CsvTable::sample_id() const {
  if (!id_) return std::nullopt;
  return SampleId{.name = columns_[*id_].name(), .bytes = static_cast<std::int64_t>(id_bytes_)};
}

TableSchema CsvTable::schema() const {
  TableSchema table{.named = !names_.empty(), .columns = {}, .labels = {}};
  for (const std::size_t column : inputs_) table.columns.push_back(columns_[column].schema());
  if (options_.encoding) {
    if (!labels_.empty()) table.labels = options_.encoding->table.labels;
  } else {
    for (const std::size_t column : labels_) table.labels.push_back(columns_[column].name());
  }
  return table;
}

}  // namespace lockstep::io
