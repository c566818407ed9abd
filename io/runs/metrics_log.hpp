/// \file
/// metrics.jsonl: one JSON object per line with stable keys, for machines.
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

/// Keys in the order given; NaN and infinities become null.
using MetricValue = std::variant<double, std::int64_t, std::string>;
using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

std::string to_json_line(const MetricRecord& record);  ///< without the newline

/// Every record of a metrics.jsonl, in order. Nothing where the file is missing. Lines that are no JSON object with a
/// kind (a crash tore them) are passed over; null becomes NaN, values that no record of ours has are left out. Throws
/// FileError where it cannot be read.
std::vector<MetricRecord> all_records(const std::filesystem::path& file);

/// What a metrics.jsonl says last.
struct LastRecords {
  std::map<std::string, MetricRecord, std::less<>> of_kind;
  std::string kind;  ///< of the last record of all; "" where there is none
};

/// The last record of each kind in all_records().
LastRecords last_records(const std::filesystem::path& file);

/// The steps of the records of this kind in `file`; none where there is no such file. Throws FileError.
std::set<std::int64_t> recorded_steps(const std::filesystem::path& file, std::string_view kind);

/// The numbers under `key` in the records of this kind, by step, where `lines` are those of a metrics.jsonl: the last
/// of a step counts.
std::map<std::int64_t, double> numbers_by_step(std::string_view lines, std::string_view kind, std::string_view key);

/// Of the `lines` of a metrics.jsonl those that are not of later steps.
std::string lines_up_to(std::string_view lines, std::int64_t step);

/// Appends whole lines; each is handed to the operating system before write() returns, or not written at all. On
/// resume, records with a "step" beyond `resume_step` are cut off first (they will be produced again), as are lines
/// that are no JSON object (a crash tore them). A negative resume_step cuts no record.
class MetricsLog {
 public:
  /// append = false empties an existing file. `deadline` is that of each write, and outlives the log.
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
