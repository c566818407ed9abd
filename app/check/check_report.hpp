/// \file
/// Findings of a check, and their output: one line for each subject, then a numbered list of remedies.
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
  std::string where;                    ///< ranks, hosts, files
  std::string remedy;                   ///< action to take
  std::vector<std::string> hosts = {};  ///< hosts at fault: without them the finding disappears; empty: none
  bool busy = false;                    ///< other processes use the machine, so measurements are unreliable
};

struct Subject {
  std::string name;     ///< "network"
  std::string summary;  ///< a few words; or the reason why the subject was not examined
  std::vector<Finding> findings = {};
  bool looked_at = true;
};

/// "network       ok       6 pairs of hosts …"
std::string format_subject(const Subject& subject);
/// Formats errors, then warnings, numbered, each with location and remedy. Then the line for Slurm, if single hosts are
/// at fault, and the verdict: OK, BUSY, or the number of problems. `hosts`: all hosts.
std::string format_verdict(std::span<const Subject> subjects, std::span<const std::string> hosts);
/// "--exclude=node7,node9": the hosts at fault in errors and, if enough remain, in warnings; the busy ones only if
/// enough remain without them, too. Empty if there are none, or if they are half of all hosts or more.
std::string exclude_line(std::span<const Subject> subjects, std::span<const std::string> hosts);
bool has_errors(std::span<const Subject> subjects);
/// The text of the first error, preceded by the number of errors if there are several; empty: no error.
std::string first_error(std::span<const Subject> subjects);
/// One record for each subject and each finding.
std::vector<io::MetricRecord> to_records(std::span<const Subject> subjects);

/// "node1", "node1 and node2", "node1, node2, node3 and 5 more".
std::string list_some(std::span<const std::string> names, std::size_t most = 8);

}  // namespace lockstep::app
