#include "comm/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::comm {
namespace {

/// "rank 1", "ranks 0,2-5": ascending ranks, runs folded.
std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i >= 2) {
      parts.push_back(fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    } else {
      parts.push_back(fmt::format("{}", ranks[i]));
    }
    i = end;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, ","));
}

struct Group {
  std::string text;
  std::vector<int> ranks;
};

/// Equal texts together, in the order of the lowest rank that has each.
std::vector<Group> grouped(std::vector<std::string> texts) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.text == texts[rank]; });
    if (same != groups.end()) {
      same->ranks.push_back(static_cast<int>(rank));
    } else {
      groups.push_back({std::move(texts[rank]), {static_cast<int>(rank)}});
    }
  }
  return groups;
}

/// FNV-1a, 64 bits: equality of long values without sending them.
std::uint64_t hash(std::uint64_t state, std::string_view text) {
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return (state ^ text.size()) * 0x100000001b3;
}

std::uint64_t hash(std::span<const FingerprintItem> items) {
  std::uint64_t state = 0xcbf29ce484222325;
  for (const FingerprintItem& item : items) state = hash(hash(state, item.name), item.value);
  return state;
}

/// A value for a message: short ones whole, of long ones the line in which the groups begin to differ.
std::string excerpt(const std::string& value, std::size_t first_difference) {
  constexpr std::size_t kShort = 80;
  if (value.size() <= kShort && value.find('\n') == std::string::npos) return fmt::format("\"{}\"", value);
  const std::size_t at = std::min(first_difference, value.size());
  const std::size_t line_start = at == 0 ? 0 : value.rfind('\n', at - 1) + 1;  // npos + 1 = 0
  const std::size_t start = at - line_start > kShort / 2 ? at - kShort / 2 : line_start;
  const std::size_t line_end = std::min(value.find('\n', at), value.size());
  const std::size_t end = std::min(line_end, start + kShort);
  return fmt::format("{}\"{}\"{}", start > 0 ? "… " : "", value.substr(start, end - start),
                     end < value.size() ? " …" : "");
}

std::size_t first_difference(const std::vector<Group>& groups) {
  std::size_t shortest = std::string::npos;
  for (const Group& group : groups) {
    const std::string& first = groups.front().text;
    const std::size_t length = std::min(first.size(), group.text.size());
    std::size_t same = 0;
    while (same < length && first[same] == group.text[same]) ++same;
    if (&group != &groups.front()) shortest = std::min(shortest, same);
  }
  return shortest;
}

/// A sentence about values that differ.
std::string difference(const std::string& name, const std::vector<Group>& groups) {
  const std::size_t where = first_difference(groups);
  std::vector<std::string> parts;
  for (const Group& group : groups) {
    parts.push_back(fmt::format("{} {} {}", ranks_text(group.ranks), group.ranks.size() == 1 ? "has" : "have",
                                excerpt(group.text, where)));
  }
  return fmt::format("the {} differs between ranks: {}", name, fmt::join(parts, ", "));
}

}  // namespace

void require_equal(Communicator& communicator, std::span<const FingerprintItem> items) {
  if (grouped(communicator.all_gather_text(fmt::format("{:016x}", hash(items)))).size() == 1) return;

  std::string names;
  for (const FingerprintItem& item : items) names += item.name + '\n';
  std::vector<std::string> differences;
  const std::vector<Group> name_groups = grouped(communicator.all_gather_text(names));
  if (name_groups.size() > 1) {
    differences.push_back(difference("list of things compared", name_groups));
  } else {
    for (const FingerprintItem& item : items) {
      const std::vector<Group> groups = grouped(communicator.all_gather_text(item.value));
      if (groups.size() > 1) differences.push_back(difference(item.name, groups));
    }
  }
  throw AgreedError(fmt::format("{}", fmt::join(differences, "\n")));
}

void all_succeed(Communicator& communicator, const std::function<void()>& work) {
  std::string error;
  try {
    const LongOperation long_operation(communicator);  // opening a thousand shards may take a while
    work();
  } catch (const std::exception& failure) {
    error = failure.what();
    if (error.empty()) error = "an error without a text";
  } catch (...) {
    error = "an error of unknown kind";
  }
  const std::vector<std::string> errors = gather_distinct(communicator, error);
  if (!errors.empty()) throw AgreedError(fmt::format("{}", fmt::join(errors, "\n")));
}

std::vector<std::string> gather_distinct(Communicator& communicator, std::string_view text) {
  std::vector<std::string> result;
  for (const Group& group : grouped(communicator.all_gather_text(text))) {
    if (group.text.empty()) continue;
    result.push_back(communicator.size() == 1 ? group.text
                                              : fmt::format("{}: {}", ranks_text(group.ranks), group.text));
  }
  return result;
}

namespace {
// Two counters in one double, each of 26 bits.
constexpr double kRadix = 1 << 26;
}  // namespace

Ballot ballot_of(const StepVote& own) {
  // Tags are equal when their sum is p times this rank's and the sum of their squares p times its square: the variance
  // about this rank's tag, (sum of squares) - 2 tag (sum) + p tag^2, is then zero. Halves of 16 bits keep it exact.
  const double low = own.schedule_tag & 0xffff, high = own.schedule_tag >> 16;
  const double failed = own.failed ? 1 : 0;
  return {0, 0, failed, own.samples, failed + kRadix * (own.stop_requested ? 1 : 0), low, low * low, high, high * high};
}

StepVerdict count_ballots(std::span<const double, kBallotSize> sums, const StepVote& own, int ranks) {
  const Ballot mine = ballot_of(own);
  const auto counters = static_cast<std::uint64_t>(sums[4]);
  constexpr auto kWholeRadix = static_cast<std::uint64_t>(kRadix);
  const int failed = static_cast<int>(counters % kWholeRadix);
  bool diverged = false;
  for (std::size_t i = 5; i < kBallotSize; ++i) diverged = diverged || sums[i] != ranks * mine[i];
  return {.loss_sum = sums[kBallotLoss],
          .metric_sum = sums[kBallotMetric],
          .samples = sums[3],
          .failed_ranks = failed,
          .not_finite_ranks = static_cast<int>(sums[kBallotObstacles]) - failed,
          .stop_requests = static_cast<int>(counters / kWholeRadix),
          .diverged = diverged};
}

}  // namespace lockstep::comm
