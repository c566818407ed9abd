#include "app/check/check_storage.hpp"

#include <algorithm>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "app/check/check_ranks.hpp"
#include "app/report/figures.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Adds an error for each distinct text, with its ranks.
void judge_texts(std::vector<Finding>& findings, std::span<const RankFacts> facts, const std::string& what,
                 const std::string& remedy, const FactOf& text) {
  const std::vector<HostGroup> hosts = hosts_of(facts);
  for (const ValueGroup& group : group_by(facts, text)) {
    if (group.value.empty()) continue;
    const bool everywhere = group.ranks.size() == facts.size();
    findings.push_back({.severity = Severity::error,
                        .what = fmt::format("{}: {}", what, group.value),
                        .where = everywhere && facts.size() > 1 ? "all ranks" : name_places(hosts, group.ranks),
                        .remedy = remedy,
                        .hosts = everywhere ? std::vector<std::string>() : whole_hosts(hosts, group.ranks)});
  }
}

/// Ranks that share the same memory.
struct Sharers {
  std::vector<int> ranks;
  std::uint64_t wanted = 0, free = 0, in_all = 0;
  std::string host;
};

void judge_sharers(std::vector<Finding>& findings, const Sharers& sharers, const std::string& whose, bool blame_host) {
  if (sharers.in_all == 0 || sharers.wanted <= sharers.free) return;
  Finding finding{.severity = Severity::error,
                  .what = fmt::format("{} for {}, and {} has {} free of {}", format_bytes(sharers.wanted),
                                      counted(sharers.ranks.size(), "rank"), whose, format_bytes(sharers.free),
                                      format_bytes(sharers.in_all)),
                  .where = sharers.host,
                  .remedy =
                      "a smaller --batch, network or --evaluation-batch, fewer ranks per host, or more memory "
                      "for the job (Slurm: --mem)"};
  if (blame_host) finding.hosts = {sharers.host};
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<Finding> judge_data(std::span<const RankFacts> facts) {
  std::vector<Finding> findings;
  judge_texts(findings, facts, "the data cannot be used",
              "make it readable under this path on every host: a shared file system, or a copy on each",
              [](const RankFacts& f) { return f.data.opened ? "" : f.data.error; });
  judge_texts(findings, facts, "the training cannot be planned", "correct the options, or name other data",
              [](const RankFacts& f) { return f.data.misfit; });
  judge_texts(findings, facts, "the data is damaged", "pack or copy it again",
              [](const RankFacts& f) { return f.data.damage; });
  judge_texts(findings, facts, "training refuses the data", "correct the values, or the options that say what they are",
              [](const RankFacts& f) { return f.data.refused; });

  if (!facts.empty() && !facts[0].data.leak.empty()) {
    findings.push_back({.severity = Severity::warning,
                        .what = facts[0].data.leak,
                        .where = "training and validation data",
                        .remedy = "a validation of samples that a network has learnt says nothing about others: take "
                                  "them out of one of the two"});
  }
  std::vector<RankFacts> opened;
  std::copy_if(facts.begin(), facts.end(), std::back_inserter(opened), [](const auto& f) { return f.data.opened; });
  if (opened.empty()) return findings;
  const std::vector<HostGroup> hosts = hosts_of(facts);
  const auto add = [&](Severity severity, const std::vector<ValueGroup>& groups, const std::string& what,
                       const std::string& remedy) {
    findings.push_back(
        {.severity = severity,
         .what = what,
         .where = fmt::format("{} as against {}", name_places(hosts, ranks_of(std::span(groups).subspan(1))),
                              name_places(hosts, groups[0].ranks)),
         .remedy = remedy,
         .hosts = minority(groups, hosts, opened.size())});
  };
  const std::vector<ValueGroup> contents =
      group_by(opened, [](const RankFacts& f) { return f.data.fingerprint + " " + f.data.sizes; });
  const std::vector<ValueGroup> times = group_by(opened, [](const RankFacts& f) { return f.data.times; });
  const bool all_compared = std::all_of(hosts.begin(), hosts.end(), [&](const HostGroup& host) {
    return std::any_of(host.ranks.begin(), host.ranks.end(), [&](int rank) { return facts[rank].data.verified > 0; });
  });
  if (contents.size() > 1) {
    const RankFacts& most = facts[contents[0].ranks[0]];
    const RankFacts& other = facts[contents[1].ranks[0]];
    add(Severity::error, contents,
        fmt::format("the data under one path is not the same: {} of {} in {}, {} of {} in {}",
                    counted(other.data.files, "file"), format_bytes(other.data.bytes),
                    other.data.fingerprint.substr(0, 8), counted(most.data.files, "file"),
                    format_bytes(most.data.bytes), most.data.fingerprint.substr(0, 8)),
        "copy the data again to the hosts that differ");
  } else if (times.size() > 1 && !all_compared) {
    add(Severity::warning, times,
        "the data files have the same sizes, and other times of change: copies whose contents nobody has compared",
        "--verify all recomputes their checksums on every host");
  }
  return findings;
}

std::vector<Finding> judge_memory(std::span<const RankFacts> facts) {
  std::vector<Finding> findings;
  const std::vector<HostGroup> hosts = hosts_of(facts);
  for (const HostGroup& host : hosts) {
    Sharers of_host;
    of_host.host = host.name;
    std::map<std::string, Sharers> of_groups;
    for (const int rank : host.ranks) {
      const RankFacts& f = facts[rank];
      const auto join = [&](Sharers& sharers, std::uint64_t free, std::uint64_t in_all) {
        sharers.free = sharers.ranks.empty() ? free : std::min(sharers.free, free);
        sharers.in_all = in_all;
        sharers.wanted += f.memory_wanted;
        sharers.ranks.push_back(rank);
      };
      join(of_host, f.memory_available, f.memory_total);
      if (f.group.empty()) continue;
      Sharers& group = of_groups[f.group];
      group.host = host.name;
      join(group, f.group_free, f.group_limit);
    }
    judge_sharers(findings, of_host, "the host", hosts.size() > 1);
    for (const auto& [name, group] : of_groups) {
      judge_sharers(findings, group, fmt::format("the job's control group ({})", name), false);
    }
  }
  return findings;
}

std::string describe_memory(std::span<const RankFacts> facts) {
  std::uint64_t rank_wants = 0, host_wants = 0, least_free = kNoLimit;
  for (const HostGroup& host : hosts_of(facts)) {
    std::uint64_t wanted = 0;
    for (const int rank : host.ranks) {
      const RankFacts& f = facts[rank];
      wanted += f.memory_wanted;
      rank_wants = std::max(rank_wants, f.memory_wanted);
      if (f.memory_total > 0) least_free = std::min(least_free, f.memory_available);
      if (!f.group.empty()) least_free = std::min(least_free, f.group_free);
    }
    host_wants = std::max(host_wants, wanted);
  }
  return fmt::format("{} a rank, {} a host; {}", format_bytes(rank_wants), format_bytes(host_wants),
                     least_free == kNoLimit ? "what is free is not known" : format_bytes(least_free) + " free there");
}

RunFolderFacts look_at_run_folder(const fs::path& folder) {
  RunFolderFacts facts{.folder = folder};
  std::error_code unknown;
  facts.lowest = fs::absolute(folder, unknown);
  while (!fs::exists(facts.lowest, unknown) && facts.lowest.has_relative_path()) {
    facts.lowest = facts.lowest.parent_path();
  }
  facts.holds_run = fs::exists(folder / "config.ini", unknown) || fs::exists(folder / "owner", unknown);
  fs::path trial;
  try {
    if (!fs::is_directory(facts.lowest, unknown)) {
      throw io::FileError(fmt::format("{} is not a folder", facts.lowest.string()));
    }
    if (facts.holds_run) io::require_writable_run(folder);
    facts.kept = io::list_checkpoints(folder / "checkpoints").size();
    facts.free = io::free_bytes(facts.lowest).value_or(kNoLimit);
    trial = io::temporary_beside(facts.lowest / "check");
    io::write_all(io::open_file(trial, O_WRONLY | O_CREAT | O_EXCL, "create"), std::string(4096, '\n'), trial);
    io::sync_file(trial);
  } catch (const std::exception& error) {
    facts.error = error.what();
  }
  if (!trial.empty()) ::unlink(trial.c_str());
  return facts;
}

std::vector<Finding> judge_run_folder(const RunFolderFacts& facts) {
  std::vector<Finding> findings;
  if (!facts.error.empty()) {
    findings.push_back({.severity = Severity::error,
                        .what = fmt::format("the run folder cannot be written to: {}", facts.error),
                        .where = fmt::format("{} on the host of rank 0", facts.folder.string()),
                        .remedy = "name another with --run, or make this one writable"});
  } else if (facts.free < facts.wanted()) {
    findings.push_back(
        {.severity = Severity::error,
         .what = fmt::format("{} for checkpoints of {} ({} kept, and the one being written), and {} free",
                             format_bytes(facts.wanted()), format_bytes(facts.checkpoint), facts.keep,
                             format_bytes(facts.free)),
         .where = fmt::format("{} on the host of rank 0", facts.folder.string()),
         .remedy = "free some space there, keep fewer (--keep, --keep-best), or name another folder with --run"});
  }
  if (facts.holds_run && !facts.continues) {
    findings.push_back({.severity = Severity::warning,
                        .what = "the run folder holds a run already: `train` will refuse it",
                        .where = facts.folder.string(),
                        .remedy = "--resume goes on with that run, --force starts it over, --run names another"});
  }
  return findings;
}

}  // namespace lockstep::app
