#include "app/check/check_report.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"

namespace lockstep::app {
namespace {

const char* name_of(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

std::string state_of(const Subject& subject) {
  if (!subject.looked_at) return "-";
  Severity worst = Severity::warning;
  for (const Finding& finding : subject.findings) worst = std::max(worst, finding.severity);
  return subject.findings.empty() ? "ok" : name_of(worst);
}

std::vector<const Finding*> all_of(std::span<const Subject> subjects, Severity severity) {
  std::vector<const Finding*> found;
  for (const Subject& subject : subjects) {
    for (const Finding& finding : subject.findings) {
      if (finding.severity == severity) found.push_back(&finding);
    }
  }
  return found;
}

using Counts = bool (*)(const Finding&);

/// Returns the hosts at fault in findings that count, in the order of `hosts`.
std::vector<std::string> at_fault(std::span<const Subject> subjects, std::span<const std::string> hosts,
                                  Counts counts) {
  std::set<std::string> named;
  for (const Subject& subject : subjects) {
    for (const Finding& finding : subject.findings) {
      if (counts(finding)) named.insert(finding.hosts.begin(), finding.hosts.end());
    }
  }
  std::vector<std::string> guilty;
  std::copy_if(hosts.begin(), hosts.end(), std::back_inserter(guilty),
               [&](const std::string& host) { return named.contains(host); });
  return guilty;
}

}  // namespace

std::string format_subject(const Subject& subject) {
  return fmt::format("{:<13} {:<8} {}", subject.name, state_of(subject), subject.summary);
}

std::string exclude_line(std::span<const Subject> subjects, std::span<const std::string> hosts) {
  constexpr Counts kAll = [](const Finding&) { return true; };
  constexpr Counts kUnlessBusy = [](const Finding& finding) { return !finding.busy; };
  constexpr Counts kErrors = [](const Finding& finding) { return finding.severity == Severity::error; };
  for (const Counts counts : {kAll, kUnlessBusy, kErrors}) {
    const std::vector<std::string> guilty = at_fault(subjects, hosts, counts);
    if (!guilty.empty() && 2 * guilty.size() < hosts.size()) {
      return fmt::format("--exclude={}", fmt::join(guilty, ","));
    }
  }
  return "";
}

bool has_errors(std::span<const Subject> subjects) { return !all_of(subjects, Severity::error).empty(); }

std::string first_error(std::span<const Subject> subjects) {
  const std::vector<const Finding*> errors = all_of(subjects, Severity::error);
  if (errors.empty()) return "";
  if (errors.size() == 1) return errors[0]->what;
  return fmt::format("{} things to fix, listed above, the first: {}", errors.size(), errors[0]->what);
}

std::string format_verdict(std::span<const Subject> subjects, std::span<const std::string> hosts) {
  std::string text;
  std::size_t number = 0, errors = 0;
  for (const Severity severity : {Severity::error, Severity::warning}) {
    for (const Finding* finding : all_of(subjects, severity)) {
      text += fmt::format("{}. {}: {}\n   where: {}\n   do:    {}\n", ++number, name_of(severity), finding->what,
                          finding->where, finding->remedy);
    }
    if (severity == Severity::error) errors = number;
  }
  if (const std::string exclude = exclude_line(subjects, hosts); !exclude.empty()) {
    text += fmt::format("To leave out the hosts at fault, tell Slurm:\n{}\n", exclude);
  }
  const std::size_t warnings = number - errors;
  const std::string also = warnings == 0 ? "" : counted(warnings, "warning");
  if (errors == 0) {
    const std::vector<const Finding*> found = all_of(subjects, Severity::warning);
    const bool busy = std::any_of(found.begin(), found.end(), [](const Finding* finding) { return finding->busy; });
    return text + (also.empty() ? "OK" : fmt::format("{}, with {}", busy ? "BUSY" : "OK", also));
  }
  return text + fmt::format("NOT OK: {} to fix{}{}", counted(errors, "error"), also.empty() ? "" : ", ", also);
}

std::vector<io::MetricRecord> to_records(std::span<const Subject> subjects) {
  std::vector<io::MetricRecord> records;
  for (const Subject& subject : subjects) {
    records.push_back({{"kind", "subject"},
                       {"subject", subject.name},
                       {"state", subject.looked_at ? state_of(subject) : "not looked at"},
                       {"summary", subject.summary}});
    for (const Finding& finding : subject.findings) {
      records.push_back({{"kind", "finding"},
                         {"subject", subject.name},
                         {"severity", std::string(name_of(finding.severity))},
                         {"what", finding.what},
                         {"where", finding.where},
                         {"do", finding.remedy},
                         {"hosts", fmt::format("{}", fmt::join(finding.hosts, ","))}});
    }
  }
  return records;
}

std::string list_some(std::span<const std::string> names, std::size_t most) {
  if (names.size() > most) {
    return fmt::format("{} and {} more", fmt::join(names.first(most), ", "), names.size() - most);
  }
  if (names.size() < 2) return names.empty() ? "" : names[0];
  return fmt::format("{} and {}", fmt::join(names.first(names.size() - 1), ", "), names.back());
}

}  // namespace lockstep::app
