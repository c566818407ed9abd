#include "app/report/record_file.hpp"

#include <ctime>
#include <string>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "app/report/machine.hpp"
#include "app/report/program_build.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::app {
namespace {

io::MetricValue text_or_null(const std::string& text) {
  return text.empty() ? io::MetricValue(kNotKnown) : io::MetricValue(text);
}

}  // namespace

io::MetricRecord provenance() {
  return {{"version", program_version()},
          {"commit", text_or_null(program_commit())},
          {"build", program_compiler()},
          {"host", text_or_null(comm::host_name())},
          {"cpu", text_or_null(own_processor().model)},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"load", load_average().value_or(kNotKnown)}};
}

void RecordFile::write(std::span<const io::MetricRecord> records) {
  std::string lines;
  for (io::MetricRecord record : records) {
    record.insert(record.end(), provenance_.begin(), provenance_.end());
    lines += io::to_json_line(record) + "\n";
  }
  file_.write(lines);
}

}  // namespace lockstep::app
