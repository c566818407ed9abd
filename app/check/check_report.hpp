/// \file
/// What a check has found and how it is told: a line for each subject, then the numbered list of what to do.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// An error stands in the way of the job; a warning makes it slow or hard to understand.
enum class Severity { warning, error };

struct Finding {
  Severity severity = Severity::warning;
  std::string what;
  std::string where;                    ///< ranks, hosts, files
  std::string remedy;                   ///< what to do
  std::vector<std::string> hosts = {};  ///< without these the job would not have it; empty: no host is at fault
  bool busy = false;                    ///< others use the machine: nothing measured now is OK
};

struct Subject {
  std::string name;     ///< "network"
  std::string summary;  ///< in a few words; of what was not looked at, why
  std::vector<Finding> findings = {};
  bool looked_at = true;
};

/// "network       ok       6 pairs of hosts …"
std::string format_subject(const Subject& subject);
/// Errors, then warnings, numbered, each with where and what to do; the line for Slurm where single hosts are at fault;
/// the verdict: OK, BUSY, or how much there is to fix. `hosts`: all of them.
std::string format_verdict(std::span<const Subject> subjects, std::span<const std::string> hosts);
/// "--exclude=node7,node9": the hosts at fault in errors and, where those leave enough, in warnings. Empty where there
/// are none, or half of all hosts or more.
std::string exclude_line(std::span<const Subject> subjects, std::span<const std::string> hosts);
bool has_errors(std::span<const Subject> subjects);
/// The first error's what; of several, how many there are before it. Empty: none.
std::string first_error(std::span<const Subject> subjects);
/// One record for each subject and each finding.
std::vector<io::MetricRecord> to_records(std::span<const Subject> subjects);

/// "node1", "node1 and node2", "node1, node2, node3 and 5 more".
std::string list_some(std::span<const std::string> names, std::size_t most = 8);

}  // namespace lockstep::app
