// Two passes over the file: the first counts rows, checks their width and learns the classes, the second turns cells
// into numbers. Memory: one record and the class names, whatever the file's size.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "io/formats/byte_reader.hpp"
#include "io/formats/csv_column.hpp"
#include "io/formats/csv_records.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// More different texts than this in the label column are no classes (and would need unbounded memory).
constexpr std::size_t kMostTextualClasses = 65'536;

/// A class number as it stands in the file: 0, 1, …
std::optional<std::int32_t> class_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// The label column learnt in the first pass: numbers as they are, or, as soon as one cell is no class number, texts.
class ClassColumn {
 public:
  void add(std::string_view text) {
    if (index_.size() <= kMostTextualClasses && !index_.contains(std::string(text))) {
      names_.emplace_back(text);
      index_.emplace(text, static_cast<std::int32_t>(index_.size()));
    }
    textual_ = textual_ || !class_number(text);
  }
  bool textual() const noexcept { return textual_; }
  bool too_many() const noexcept { return textual_ && index_.size() > kMostTextualClasses; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  std::int32_t index(std::string_view text) const {
    return textual_ ? index_.at(std::string(text)) : class_number(text).value();
  }

 private:
  bool textual_ = false;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int32_t> index_;
};

class CsvSource final : public SampleSource {
 public:
  CsvSource(const std::filesystem::path& file, const CsvOptions& options)
      : options_(options), records_(file, options.separator) {
    CsvRecords first_pass(file, options.separator);
    if (options.header) {
      if (!first_pass.next()) throw FileError(fmt::format("{}: is empty", file.string()));
      std::vector<std::string> names;
      for (std::size_t i = 0; i < first_pass.cells(); ++i) names.emplace_back(csv_trimmed(first_pass.cell(i)));
      begin_columns(names.size(), names);
      records_.next();
    }
    scan(first_pass);
  }

  std::vector<Field> fields() const override {
    std::int64_t features = 0;
    for (const std::size_t column : inputs_) features += columns_[column].features();
    std::vector<Field> result{{"x", FileType::float32, {features}}};
    if (labels_.empty()) return result;
    const auto targets = static_cast<std::int64_t>(labels_.size());
    result.push_back({"y", options_.label_is_class ? FileType::int32 : FileType::float32,
                      targets == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{targets}});
    if (weight_) result.push_back({kWeightName, FileType::float32, {}});
    return result;
  }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return describe_files("csv", {records_.path()}); }
  bool labels_are_classes() const override { return !labels_.empty() && options_.label_is_class; }
  std::vector<std::string> class_names() const override {
    return classes_.textual() ? classes_.names() : std::vector<std::string>{};
  }
  std::vector<std::string> remarks() const override { return remarks_; }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::vector<Field> all = fields();
    if (samples < 0 || done_ + samples > count_ || buffers.size() != all.size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    for (std::size_t f = 0; f < all.size(); ++f) {
      if (buffers[f].size() != static_cast<std::size_t>(samples) * all[f].bytes()) {
        throw std::invalid_argument(fmt::format("the buffer of field {} has the wrong size", all[f].name));
      }
    }
    done_ += samples;
    std::byte* x = buffers[0].data();
    std::byte* y = labels_.empty() ? nullptr : buffers[1].data();
    std::byte* weight = weight_ ? buffers[2].data() : nullptr;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      do {
        if (!records_.next() || records_.cells() != columns_.size()) changed();
      } while (left_out(records_));
      for (const std::size_t column : inputs_) store_input(x, columns_[column]);
      for (const std::size_t column : labels_) {
        const std::string_view text = csv_trimmed(records_.cell(column));
        if (options_.label_is_class) {
          store(y, classes_.index(text));
        } else {
          store(y, csv_number(text).value_or(0));
        }
      }
      if (weight_) store(weight, csv_number(csv_trimmed(records_.cell(*weight_))).value_or(0));
    }
  }

 private:
  std::string path() const { return records_.path().string(); }
  [[noreturn]] void changed() const {
    throw FileError(fmt::format("{}:{}: the file changed while it was read", path(), records_.line()));
  }

  template <class Value>
  static void store(std::byte*& out, Value value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  }

  void store_input(std::byte*& x, const CsvColumn& column) {
    const std::string_view text = csv_trimmed(records_.cell(column.index()));
    if (column.is_text()) {
      const std::size_t category = column.category(text);  // none of them where it is missing
      for (std::size_t i = 0; i < column.categories().size(); ++i) store(x, i == category ? 1.0F : 0.0F);
    } else if (csv_missing(text)) {
      store(x, static_cast<float>(column.mean()));
    } else if (const std::optional<float> number = csv_number(text)) {
      store(x, *number);
    } else {
      changed();
    }
  }

  /// Of --missing drop: a cell that is used is missing.
  bool left_out(const CsvRecords& record) const {
    if (options_.missing != CsvOptions::Missing::drop) return false;
    const auto missing = [&](std::size_t column) { return csv_missing(csv_trimmed(record.cell(column))); };
    const auto no_label = [&](std::size_t column) {  // "none" may be a class
      return options_.label_is_class ? csv_trimmed(record.cell(column)).empty() : missing(column);
    };
    return std::any_of(inputs_.begin(), inputs_.end(), missing) || (weight_ && missing(*weight_)) ||
           std::any_of(labels_.begin(), labels_.end(), no_label);
  }

  void begin_columns(std::size_t count, const std::vector<std::string>& names) {
    names_ = names;
    for (std::size_t i = 0; i < count; ++i) {
      columns_.emplace_back(
          i, names.empty() ? fmt::format("column {}", i) : fmt::format("column {} ({})", i, readable(names[i])));
    }
    for (const std::string& wanted : options_.label_columns()) labels_.push_back(find(wanted, "label"));
    if (!options_.weight_column.empty()) weight_ = find(options_.weight_column, "weight");
    std::vector<std::size_t> ignored;
    for (const std::string& wanted : options_.ignored) ignored.push_back(find(wanted, "such"));
    for (std::size_t i = 0; i < count; ++i) {
      const auto is_in = [i](const std::vector<std::size_t>& list) {
        return std::find(list.begin(), list.end(), i) != list.end();
      };
      if (!is_in(labels_) && !is_in(ignored) && weight_ != i) inputs_.push_back(i);
    }
  }

  /// A column by its name or its number.
  std::size_t find(const std::string& wanted, std::string_view what) const {
    const auto columns = static_cast<std::int64_t>(columns_.size());
    const auto name = std::find(names_.begin(), names_.end(), wanted);
    std::int64_t index = 0;
    const auto [stop, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
    if (name != names_.end()) {
      index = name - names_.begin();
    } else if (error != std::errc() || stop != wanted.data() + wanted.size()) {
      index = columns;
    } else if (index < 0) {
      index += columns;
    }
    if (index >= 0 && index < columns) return static_cast<std::size_t>(index);
    throw FileError(fmt::format("{}: has no {} column {}; it has {} columns{}{}", path(), what, wanted, columns,
                                names_.empty() ? "" : ": ", fmt::join(names_, ", ")));
  }

  /// The first pass: counts the samples, collects classes and categories, and sees what each column holds.
  void scan(CsvRecords& records) {
    std::int64_t dropped = 0, filled = 0;
    while (records.next()) {
      if (columns_.empty()) begin_columns(records.cells(), {});
      if (records.cells() != columns_.size()) {
        throw FileError(fmt::format("{}:{}: has {} columns, the lines before have {}", path(), records.line(),
                                    records.cells(), columns_.size()));
      }
      if (left_out(records)) {
        ++dropped;
        continue;
      }
      ++count_;
      for (const std::size_t column : inputs_) {
        const std::string_view text = csv_trimmed(records.cell(column));
        if (csv_missing(text) && options_.missing == CsvOptions::Missing::mean) {
          ++filled;
        } else {
          columns_[column].add(text, records.line());
        }
      }
      for (const std::size_t column : labels_) see_label(records, column);
      if (weight_) see_weight(records);
    }
    if (count_ == 0) throw FileError(fmt::format("{}: holds no samples", path()));
    if (inputs_.empty()) throw FileError(fmt::format("{}: has a label column and nothing else", path()));
    for (const std::size_t column : inputs_)
      columns_[column].require_usable(path(), options_.text == CsvOptions::Text::one_hot);
    remark(dropped, filled);
  }

  void remark(std::int64_t dropped, std::int64_t filled) {
    for (const std::size_t column : inputs_) {
      const CsvColumn& one = columns_[column];
      if (!one.is_text()) continue;
      remarks_.push_back(fmt::format("{} holds {} different texts: one input of 0 or 1 for each", one.text(),
                                     one.categories().size()));
    }
    if (dropped > 0) remarks_.push_back(fmt::format("{} lines with missing cells are left out", dropped));
    if (filled > 0)
      remarks_.push_back(fmt::format("{} missing cells get the mean of their column (texts: none)", filled));
  }

  void see_weight(const CsvRecords& records) const {
    const std::string_view text = csv_trimmed(records.cell(*weight_));
    const std::optional<float> number = csv_number(text);
    if (number && *number >= 0) return;
    throw FileError(fmt::format("{}:{}: the weight in {} is \"{}\": a weight is a number of 0 or more", path(),
                                records.line(), columns_[*weight_].text(), readable(text.substr(0, 40))));
  }

  void see_label(const CsvRecords& records, std::size_t column) {
    const std::string_view text = csv_trimmed(records.cell(column));
    const std::string where = columns_[column].text();
    if (!options_.label_is_class) {
      if (!csv_number(text)) refuse_number(path(), records.line(), where, text);
      return;
    }
    if (text.empty()) throw FileError(fmt::format("{}:{}: the label in {} is empty", path(), records.line(), where));
    if (first_not_utf8(text)) {
      throw FileError(
          fmt::format("{}:{}: {} holds \"{}\", which is no UTF-8, as the names of classes are; convert the "
                      "file (iconv -f LATIN1 -t UTF-8, or from what it is in)",
                      path(), records.line(), where, readable(text.substr(0, 40))));
    }
    classes_.add(text);
    if (classes_.too_many()) {
      throw FileError(
          fmt::format("{}:{}: {} has more than {} different texts; choose another label column, or "
                      "regression for numbers",
                      path(), records.line(), where, kMostTextualClasses));
    }
  }

  CsvOptions options_;
  CsvRecords records_;  ///< the second pass
  std::vector<std::string> names_;
  std::vector<CsvColumn> columns_;
  std::vector<std::size_t> inputs_, labels_;
  std::optional<std::size_t> weight_;
  ClassColumn classes_;
  std::vector<std::string> remarks_;
  std::int64_t count_ = 0, done_ = 0;
};

}  // namespace

std::vector<std::string> CsvOptions::label_columns() const {
  std::vector<std::string> all;
  if (label_is_class && !label_column.empty()) return {label_column};  // a name may hold commas
  for (std::size_t begin = 0; begin < label_column.size();) {
    const std::size_t comma = std::min(label_column.find(',', begin), label_column.size());
    all.push_back(label_column.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return all;
}

std::unique_ptr<SampleSource> open_csv(const std::filesystem::path& file, const CsvOptions& options) {
  if (std::string_view("\"\r\n").find(options.separator) != std::string_view::npos) {
    throw std::invalid_argument("the CSV separator cannot be a quote or a line end");
  }
  return std::make_unique<CsvSource>(file, options);
}

}  // namespace lockstep::io
