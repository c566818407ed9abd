/// \file
/// Findings of a check and their output: a line for each subject, then the numbered list of remedies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// An error prevents the job; a warning makes it slow or hard to understand.
enum class Severity { warning, error };

struct Finding {
  Severity severity = Severity::warning;
  std::string what;
  std::string where;   ///< ranks, hosts, files
  std::string remedy;  ///< action to take
  std::vector<std::string> hosts =
      {};             ///< hosts at fault: the job would not have the finding without them; empty: none
  bool busy = false;  ///< other processes use the machine, so that measurements are unreliable
};

struct Subject {
  std::string name;     ///< "network"
  std::string summary;  ///< a few words; the reason if the subject was not examined
  std::vector<Finding> findings = {};
  bool looked_at = true;
};

/// "network       ok       6 pairs of hosts …"
std::string format_subject(const Subject& subject);
/// Errors, then warnings, numbered, each with location and remedy; the line for Slurm if single hosts are at fault; the
/// verdict: OK, BUSY, or the number of problems. `hosts`: all of them.
std::string format_verdict(std::span<const Subject> subjects, std::span<const std::string> hosts);
/// "--exclude=node7,node9": the hosts at fault in errors and, if enough remain, in warnings. Empty if there are none,
/// or if they are half of all hosts or more.
std::string exclude_line(std::span<const Subject> subjects, std::span<const std::string> hosts);
bool has_errors(std::span<const Subject> subjects);
/// The text of the first error; with several, preceded by their number. Empty: none.
std::string first_error(std::span<const Subject> subjects);
/// One record for each subject and each finding.
std::vector<io::MetricRecord> to_records(std::span<const Subject> subjects);

/// "node1", "node1 and node2", "node1, node2, node3 and 5 more".
std::string list_some(std::span<const std::string> names, std::size_t most = 8);

}  // namespace lockstep::app
