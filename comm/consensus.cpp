#include "comm/consensus.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/messages.hpp"

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

/// Groups equal texts, in the order of the lowest rank with each.
std::vector<RankText> grouped(std::vector<std::string> texts, int first_rank = 0) {
  std::vector<RankText> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto same = std::ranges::find(groups, texts[rank], &RankText::text);
    if (same == groups.end()) {
      same = groups.insert(groups.end(), {.ranks = {}, .text = std::move(texts[rank])});
    }
    same->ranks.push_back(first_rank + static_cast<int>(rank));
    same->all = same->ranks.size() == texts.size();
  }
  return groups;
}

/// FNV-1a, 64 bits: compares long values without sending them.
std::uint64_t hash(std::uint64_t state, std::string_view text) {
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return (state ^ text.size()) * 0x100000001b3;
}

std::uint64_t hash(std::span<const FingerprintItem> items) {
  std::uint64_t state = 0xcbf29ce484222325;
  for (const FingerprintItem& item : items) state = hash(hash(state, item.name), item.value);
  return state;
}

/// A value for a message: short ones whole; for long ones, the first line in which the groups differ.
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

std::size_t first_difference(const std::vector<RankText>& groups) {
  std::size_t shortest = std::string::npos;
  for (const RankText& group : groups) {
    const std::string& first = groups.front().text;
    const std::size_t length = std::min(first.size(), group.text.size());
    std::size_t same = 0;
    while (same < length && first[same] == group.text[same]) ++same;
    if (&group != &groups.front()) shortest = std::min(shortest, same);
  }
  return shortest;
}

/// A sentence about differing values.
std::string difference(const std::string& name, const std::vector<RankText>& groups) {
  const std::size_t where = first_difference(groups);
  std::vector<std::string> parts;
  for (const RankText& group : groups) {
    parts.push_back(fmt::format("{} {} {}", ranks_text(group.ranks), group.ranks.size() == 1 ? "has" : "have",
                                excerpt(group.text, where)));
  }
  return fmt::format("the {} differs between ranks: {}", name, fmt::join(parts, ", "));
}

std::string lines_of(std::span<const RankText> said) {
  std::vector<std::string> lines;
  for (const RankText& each : said) lines.push_back(with_ranks(each));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// One rank's text as one line: names of files and data in it may hold ends of lines.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (const char letter : text) line += letter == '\n' ? "\\n" : std::string(1, letter);
  return line;
}

}  // namespace

std::string with_ranks(const RankText& said) {
  const bool alone = said.all && said.ranks.size() == 1;
  return alone ? said.text : fmt::format("{}: {}", ranks_text(said.ranks), said.text);
}

std::string with_ranks_unless_all(const RankText& said) { return said.all ? said.text : with_ranks(said); }

ConsensusError::ConsensusError(std::span<const RankText> said) : std::runtime_error(lines_of(said)) {}

void require_equal(Communicator& communicator, std::span<const FingerprintItem> items) {
  if (grouped(all_gather_text(communicator, fmt::format("{:016x}", hash(items)))).size() == 1) return;

  std::string names;
  for (const FingerprintItem& item : items) names += item.name + '\n';
  std::vector<std::string> differences;
  const std::vector<RankText> name_groups = grouped(all_gather_text(communicator, names), communicator.first_rank());
  if (name_groups.size() > 1) {
    differences.push_back(difference("list of things compared", name_groups));
  } else {
    for (const FingerprintItem& item : items) {
      const std::vector<RankText> groups =
          grouped(all_gather_text(communicator, item.value), communicator.first_rank());
      if (groups.size() > 1) differences.push_back(difference(item.name, groups));
    }
  }
  throw ConsensusError(fmt::format("{}", fmt::join(differences, "\n")));
}

void all_succeed(Communicator& communicator, const std::function<void()>& work) {
  std::string error;
  try {
    const LongOperation long_operation(communicator);  // opening a thousand shards may take a while
    work();
  } catch (const ConsensusError& failure) {  // a line for each group of ranks
    error = failure.what();
  } catch (const std::exception& failure) {
    error = in_one_line(failure.what());
    if (error.empty()) error = "an error without a text";
  } catch (...) {
    error = "an error of unknown kind";
  }
  const std::vector<RankText> errors = gather_distinct(communicator, error);
  if (!errors.empty()) throw ConsensusError(errors);
}

std::vector<RankText> gather_distinct(Communicator& communicator, std::string_view text) {
  std::vector<RankText> groups = grouped(all_gather_text(communicator, text), communicator.first_rank());
  std::erase_if(groups, [](const RankText& group) { return group.text.empty(); });
  return groups;
}

}  // namespace lockstep::comm
