// Reads the file in two passes. The first (csv_table.hpp) counts rows, checks their width and finds columns and
// classes. The second converts cells to numbers. Needs memory for one record and the class names, for any file size.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "io/formats/csv_table.hpp"
#include "io/shards/left_out.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

class CsvSource final : public SampleSource {
 public:
  CsvSource(const std::filesystem::path& file, const CsvOptions& options)
      : table_(file, options), records_(file, options.separator) {
    if (options.header) records_.next();
    fields_.push_back({"x", type_of(table_.inputs()), {table_.schema().features()}});
    const auto targets = static_cast<std::int64_t>(table_.labels().size());
    if (targets == 0) return;
    fields_.push_back({"y", table_.label_is_class() ? FileType::int32 : type_of(table_.labels()),
                       targets == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{targets}});
    if (table_.weight()) fields_.push_back({kWeightName, FileType::float32, {}});
  }

  std::vector<Field> fields() const override { return fields_; }
  std::int64_t count() const override { return table_.count(); }
  std::string description() const override {
    return describe_files("csv", {records_.path()}) + (table_.has_gaps() ? kLeftOut : "");
  }
  bool labels_are_classes() const override { return !table_.labels().empty() && table_.label_is_class(); }
  std::vector<std::string> class_names() const override {
    return labels_are_classes() ? table_.classes().names() : std::vector<std::string>();
  }
  std::optional<TableSchema> table() const override { return table_.schema(); }
  std::optional<SampleId> sample_id() const override { return table_.sample_id(); }
  std::vector<std::string> remarks() const override { return table_.remarks(); }
  void fill_from_training(ValidationDraw draw) override { table_.fill_from_training(draw); }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::vector<Field> all = stored_fields();
    if (samples < 0 || done_ + samples > table_.count() || buffers.size() != all.size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    for (std::size_t f = 0; f < all.size(); ++f) {
      if (buffers[f].size() != static_cast<std::size_t>(samples) * all[f].bytes()) {
        throw std::invalid_argument(fmt::format("the buffer of field {} has the wrong size", all[f].name));
      }
    }
    done_ += samples;
    std::byte* x = buffers[0].data();
    std::byte* y = table_.labels().empty() ? nullptr : buffers[1].data();
    std::byte* weight = y != nullptr && table_.weight() ? buffers[2].data() : nullptr;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      do {
        if (!records_.next() || records_.cells() != table_.width()) changed();
      } while (table_.left_out(records_));
      for (const std::size_t column : table_.inputs()) store_input(x, all[0].type, table_.column(column));
      for (const std::size_t column : table_.labels()) {
        const std::string_view text = csv_trimmed(records_.cell(column));
        if (table_.label_is_class()) {
          store(y, table_.classes().index(text));
        } else {
          store_number(y, all[1].type, csv_number(text, table_.style()).value_or(0));
        }
      }
      if (weight != nullptr) {
        const std::string_view text = csv_trimmed(records_.cell(*table_.weight()));
        store(weight, static_cast<float>(csv_number(text, table_.style()).value_or(0)));
      }
      if (table_.id()) {
        const std::size_t bytes = all.back().bytes();
        store_id(buffers.back().subspan(static_cast<std::size_t>(sample) * bytes, bytes));
      }
    }
  }

 private:
  [[noreturn]] void changed() const {
    throw FileError(
        fmt::format("{}:{}: the file changed while it was read", records_.path().string(), records_.line()));
  }

  template <class Value>
  static void store(std::byte*& out, Value value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  }

  /// float32, or float64 if the numbers of a column need it.
  FileType type_of(const std::vector<std::size_t>& columns) const {
    const auto needs_double = [this](std::size_t column) { return table_.column(column).needs_double(); };
    return std::any_of(columns.begin(), columns.end(), needs_double) ? FileType::float64 : FileType::float32;
  }
  static void store_number(std::byte*& out, FileType type, double number) {
    if (type == FileType::float64) return store(out, number);
    store(out, static_cast<float>(number));
  }

  void store_input(std::byte*& x, FileType type, const CsvColumn& column) {
    const std::string_view text = csv_trimmed(records_.cell(column.index()));
    if (column.holds_categories()) {
      const std::size_t category = column.category(text);  // no category if the cell is missing
      for (std::size_t i = 0; i < column.categories().size(); ++i) store_number(x, type, i == category ? 1 : 0);
    } else if (csv_missing(text)) {
      store_number(x, type, column.mean());
    } else if (const std::optional<double> number = csv_number(text, table_.style())) {
      store_number(x, type, *number);
    } else {
      changed();
    }
  }

  void store_id(std::span<std::byte> out) const {
    const std::string text = readable(csv_trimmed(records_.cell(*table_.id())));
    if (text.size() > out.size()) changed();
    std::memset(out.data(), 0, out.size());
    std::memcpy(out.data(), text.data(), text.size());
  }

  CsvTable table_;
  CsvRecords records_;  ///< the second pass
  std::vector<Field> fields_;
  std::int64_t done_ = 0;
};

}  // namespace

std::vector<std::string> CsvOptions::label_columns() const {
  std::vector<std::string> all;
  const bool classes = encoding ? encoding->labels_are_classes : label_is_class;
  if (classes && !label_column.empty()) return {label_column};  // one name, even with commas
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
