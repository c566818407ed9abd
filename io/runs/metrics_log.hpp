/// \file
/// Reads and writes metrics.jsonl: one JSON object per line with stable keys, for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

/// Keys stay in the given order; NaN and infinities become null.
using MetricValue = std::variant<double, std::int64_t, std::string>;
using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

std::string to_json_line(const MetricRecord& record);  ///< without the newline

/// Every record of a metrics.jsonl, in order; empty if the file is missing. Skips lines that are not a JSON object with
/// a kind (torn by a crash). null becomes NaN; values of types that our records never have are left out. Throws
/// FileError if the file cannot be read.
std::vector<MetricRecord> all_records(const std::filesystem::path& file);

/// The most recent records of a metrics.jsonl.
struct LastRecords {
  std::map<std::string, MetricRecord, std::less<>> of_kind;
  std::string kind;  ///< kind of the very last record; "": none
};

/// The last record of each kind in all_records().
LastRecords last_records(const std::filesystem::path& file);

/// The steps of the records of this kind in `file`; empty without such a file. Throws FileError.
std::set<std::int64_t> recorded_steps(const std::filesystem::path& file, std::string_view kind);

/// The numbers under `key` in the records of this kind, by step. `lines`: content of a metrics.jsonl. If a step has
/// several records, the last one counts.
std::map<std::int64_t, double> numbers_by_step(std::string_view lines, std::string_view kind, std::string_view key);

/// The lines of a metrics.jsonl without those of later steps.
std::string lines_up_to(std::string_view lines, std::int64_t step);

/// Appends whole lines. The operating system has a line before write() returns, or the line is not written at all. On
/// resume, first removes records with a "step" beyond `resume_step`, because they will be produced again, and lines
/// that are not a JSON object (torn by a crash). A negative resume_step removes no record.
class MetricsLog {
 public:
  /// append = false empties an existing file. `deadline` applies to each write, and outlives the log.
  MetricsLog(const std::filesystem::path& file, bool append, std::int64_t resume_step = -1,
             IoDeadline* deadline = nullptr);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  void write(const MetricRecord& record);  ///< throws FileError (disk full …)

 private:
  std::filesystem::path path_;
  IoDeadline* deadline_;
  Descriptor descriptor_;
};

}  // namespace lockstep::io
