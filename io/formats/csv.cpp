// Two passes over the file: the first counts rows, checks their width and learns the classes, the second turns cells
// into numbers. Memory: one record and the class names, whatever the file's size.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

/// More different texts than this in the label column are no classes (and would need unbounded memory).
constexpr std::size_t kMostTextualClasses = 65'536;

/// RFC 4180 records: quoted cells may hold separators, line ends and doubled quotes; CR before LF belongs to the line
/// end. Lines that hold nothing at all are skipped.
class RecordReader {
 public:
  RecordReader(const std::filesystem::path& path, char separator)
      : bytes_(path), separator_(separator), buffer_(std::size_t{1} << 18) {
    if (available() && size_ >= 3 && std::memcmp(buffer_.data(), "\xEF\xBB\xBF", 3) == 0) at_ = 3;  // byte order mark
  }

  /// false at the end of the file.
  bool next() {
    do {
      if (!read_record()) return false;
    } while (ends_.size() == 1 && text_.empty() && !quoted_any_);
    return true;
  }
  std::size_t cells() const noexcept { return ends_.size(); }
  std::string_view cell(std::size_t column) const noexcept {
    const std::size_t begin = column == 0 ? 0 : ends_[column - 1];
    return std::string_view(text_).substr(begin, ends_[column] - begin);
  }
  /// 1-based line on which the current record began.
  std::int64_t line() const noexcept { return line_; }
  const std::filesystem::path& path() const noexcept { return bytes_.path(); }

 private:
  bool available() {
    if (at_ < size_) return true;
    size_ = bytes_.read_some(buffer_);
    at_ = 0;
    return size_ > 0;
  }

  bool read_record() {
    text_.clear();
    ends_.clear();
    quoted_any_ = false;
    line_ = next_line_;
    bool quoted = false;
    bool any = false;
    while (available()) {
      any = true;
      const char c = static_cast<char>(buffer_[at_++]);
      if (c == '\n') ++next_line_;
      if (quoted) {
        if (c != '"') {
          text_.push_back(c);
        } else if (available() && static_cast<char>(buffer_[at_]) == '"') {
          text_.push_back('"');
          ++at_;
        } else {
          quoted = false;
        }
      } else if (c == '"' && text_.size() == (ends_.empty() ? 0 : ends_.back())) {
        quoted = quoted_any_ = true;
      } else if (c == separator_) {
        ends_.push_back(text_.size());
      } else if (c == '\n') {
        if (!text_.empty() && text_.back() == '\r') text_.pop_back();
        ends_.push_back(text_.size());
        return true;
      } else {
        text_.push_back(c);
      }
    }
    if (quoted) {
      throw FileError(fmt::format("{}:{}: a quoted cell that begins here never ends", path().string(), line_));
    }
    if (any) ends_.push_back(text_.size());
    return any;
  }

  ByteReader bytes_;
  char separator_;
  std::vector<std::byte> buffer_;
  std::size_t at_ = 0, size_ = 0;
  std::string text_;               ///< the cells of the current record, one after another
  std::vector<std::size_t> ends_;  ///< where each cell ends in text_
  bool quoted_any_ = false;
  std::int64_t line_ = 1, next_line_ = 1;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

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
    RecordReader first_pass(file, options.separator);
    if (options.header) {
      if (!first_pass.next()) throw FileError(fmt::format("{}: is empty", file.string()));
      read_names(first_pass);
      records_.next();
    }
    scan(first_pass);
  }

  std::vector<Field> fields() const override {
    std::vector<Field> result{{"x", FileType::float32, {static_cast<std::int64_t>(columns_ - (label_ ? 1 : 0))}}};
    if (label_) result.push_back({"y", options_.label_is_class ? FileType::int32 : FileType::float32, {}});
    return result;
  }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return describe_files("csv", {records_.path()}); }
  bool labels_are_classes() const override { return label_.has_value() && options_.label_is_class; }
  std::vector<std::string> class_names() const override {
    return classes_.textual() ? classes_.names() : std::vector<std::string>{};
  }

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
    std::byte* y = label_ ? buffers[1].data() : nullptr;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      if (!records_.next() || records_.cells() != columns_) {
        throw FileError(fmt::format("{}:{}: the file changed while it was read", path(), records_.line()));
      }
      for (std::size_t column = 0; column < columns_; ++column) {
        if (column != label_) {
          store(x, number(column));
        } else if (options_.label_is_class) {
          store(y, classes_.index(trimmed(records_.cell(column))));
        } else {
          store(y, number(column));
        }
      }
    }
  }

 private:
  std::string path() const { return records_.path().string(); }

  template <class Value>
  static void store(std::byte*& out, Value value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  }

  std::string column_text(std::size_t column) const {
    return names_.empty() ? fmt::format("column {}", column)
                          : fmt::format("column {} ({})", column, readable(names_[column]));
  }

  float number(std::size_t column) const {
    const std::string_view text = trimmed(records_.cell(column));
    const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    float value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && stop == digits.data() + digits.size() && std::isfinite(value)) return value;
    if (error == std::errc::result_out_of_range && tiny(digits)) return 0;
    throw FileError(fmt::format("{}:{}: {} holds \"{}\", which is no finite number", path(), records_.line(),
                                column_text(column), readable(text.substr(0, 40))));
  }
  /// from_chars calls 1e-60 out of range for float; so is 1e60, which is an error.
  static bool tiny(std::string_view digits) {
    double value = 1;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return std::abs(value) < 1;
  }

  void read_names(const RecordReader& record) {
    for (std::size_t column = 0; column < record.cells(); ++column) {
      names_.emplace_back(trimmed(record.cell(column)));
    }
    find_label(names_.size());
  }

  void find_label(std::size_t columns) {
    columns_ = columns;
    const std::string& wanted = options_.label_column;
    if (wanted.empty()) return;
    const auto name = std::find(names_.begin(), names_.end(), wanted);
    std::int64_t index = 0;
    const auto [stop, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
    if (name != names_.end()) {
      index = name - names_.begin();
    } else if (error != std::errc() || stop != wanted.data() + wanted.size()) {
      index = std::numeric_limits<std::int64_t>::max();
    } else if (index < 0) {
      index += static_cast<std::int64_t>(columns);
    }
    if (index < 0 || index >= static_cast<std::int64_t>(columns)) {
      throw FileError(fmt::format("{}: has no label column {}; it has {} columns{}{}", path(), wanted, columns,
                                  names_.empty() ? "" : ": ", fmt::join(names_, ", ")));
    }
    label_ = static_cast<std::size_t>(index);
  }

  /// The first pass: counts the samples and collects the classes.
  void scan(RecordReader& records) {
    while (records.next()) {
      if (columns_ == 0) find_label(records.cells());
      if (records.cells() != columns_) {
        throw FileError(fmt::format("{}:{}: has {} columns, the lines before have {}", path(), records.line(),
                                    records.cells(), columns_));
      }
      ++count_;
      if (!label_ || !options_.label_is_class) continue;
      const std::string_view text = trimmed(records.cell(*label_));
      if (text.empty()) {
        throw FileError(fmt::format("{}:{}: the label in {} is empty", path(), records.line(), column_text(*label_)));
      }
      if (first_not_utf8(text)) {
        throw FileError(
            fmt::format("{}:{}: {} holds \"{}\", which is no UTF-8, as the names of classes are; convert the "
                        "file (iconv -f LATIN1 -t UTF-8, or from what it is in)",
                        path(), records.line(), column_text(*label_), readable(text.substr(0, 40))));
      }
      classes_.add(text);
      if (classes_.too_many()) {
        throw FileError(
            fmt::format("{}:{}: {} has more than {} different texts; choose another label column, or "
                        "regression for numbers",
                        path(), records.line(), column_text(*label_), kMostTextualClasses));
      }
    }
    if (count_ == 0) throw FileError(fmt::format("{}: holds no samples", path()));
    if (columns_ == 1 && label_) throw FileError(fmt::format("{}: has a label column and nothing else", path()));
  }

  CsvOptions options_;
  RecordReader records_;  ///< the second pass
  std::vector<std::string> names_;
  std::size_t columns_ = 0;
  std::optional<std::size_t> label_;
  ClassColumn classes_;
  std::int64_t count_ = 0, done_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> open_csv(const std::filesystem::path& file, const CsvOptions& options) {
  if (std::string_view("\"\r\n").find(options.separator) != std::string_view::npos) {
    throw std::invalid_argument("the CSV separator cannot be a quote or a line end");
  }
  return std::make_unique<CsvSource>(file, options);
}

}  // namespace lockstep::io
