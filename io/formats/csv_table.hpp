/// \file
/// The first pass over a table: finds its columns, its inputs and labels, and its faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/formats/csv_classes.hpp"
#include "io/formats/csv_column.hpp"
#include "io/formats/csv_records.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

class CsvTable {
 public:
  /// Reads the whole file. `complaints`, if given, collects errors as long as reading can continue. Otherwise throws
  /// FileError.
  CsvTable(const std::filesystem::path& file, const CsvOptions& options,
           std::vector<std::string>* complaints = nullptr);
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  std::int64_t count() const noexcept { return count_; }
  bool has_gaps() const noexcept { return has_gaps_; }  ///< lines were left out
  std::size_t width() const noexcept { return columns_.size(); }
  bool label_is_class() const noexcept { return label_is_class_; }
  /// Columns in the order of the features, and of the targets.
  const std::vector<std::size_t>& inputs() const noexcept { return inputs_; }
  const std::vector<std::size_t>& labels() const noexcept { return labels_; }
  const CsvColumn& column(std::size_t index) const { return columns_.at(index); }
  const CsvClasses& classes() const noexcept { return classes_; }
  const NumberStyle& style() const noexcept { return style_; }
  /// The column of sample weights, which is not an input.
  std::optional<std::size_t> weight() const noexcept { return weight_; }
  std::optional<std::size_t> id() const noexcept { return id_; }
  std::optional<SampleId> sample_id() const;
  TableSchema schema() const;
  const std::vector<std::string>& remarks() const noexcept { return remarks_; }
  /// Reads the file once more if missing cells get means, for the means of the lines that do not validate. All columns
  /// get theirs: tables that follow this one may miss other cells. Throws FileError if a column has no number in these
  /// lines.
  void fill_from_training(ValidationDraw draw);
  /// True if --missing drop leaves the record out, because a cell that is used is missing.
  bool left_out(const CsvRecords& record) const;

 private:
  void complain(std::string text);
  void read_header(CsvRecords& records);
  void begin_columns(std::size_t count);
  void choose_columns();
  void follow_encoding();
  void require_names();
  std::size_t find(const std::string& wanted, std::string_view what) const;
  void scan(CsvRecords& records);
  void add_label(const CsvRecords& records, std::size_t column);
  void check_weight(const CsvRecords& records) const;
  void remark(std::int64_t dropped);
  std::string separator_hint() const;

  std::filesystem::path file_;
  CsvOptions options_;
  std::vector<std::string>* complaints_;
  NumberStyle style_;
  bool label_is_class_;
  std::vector<std::string> names_;  ///< names in the header; empty: no header
  std::vector<CsvColumn> columns_;
  std::vector<std::size_t> inputs_, labels_;
  std::optional<std::size_t> id_, weight_;
  std::size_t id_bytes_ = 1;
  CsvClasses classes_;
  std::vector<std::pair<std::size_t, std::size_t>> twins_;  ///< inputs and labels that have had the same cells so far
  std::vector<std::string> remarks_;
  std::int64_t count_ = 0;
  bool has_gaps_ = false;
};

/// True for a header that names nothing: pandas writes and reads an index without a name so.
bool names_nothing(std::string_view header);

/// The separator that divides the first lines into equal numbers of cells; nullopt: none of , ; | and tabs.
std::optional<char> likely_separator(const std::filesystem::path& file);

}  // namespace lockstep::io
