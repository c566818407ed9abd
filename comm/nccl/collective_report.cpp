#include "comm/nccl/collective_report.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::comm {
namespace {

/// Parses a line from the front, piece by piece; a missing piece ends the parsing.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}

  Line& skip(std::string_view piece) {
    good_ = good_ && text_.starts_with(piece);
    if (good_) text_.remove_prefix(piece.size());
    return *this;
  }
  Line& skip_spaces() {
    text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size()));
    return *this;
  }
  Line& number(std::int64_t& value) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    good_ = good_ && error == std::errc();
    if (good_) text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return *this;
  }
  Line& word(std::string& value) {
    const std::string_view found = text_.substr(0, text_.find(' '));
    good_ = good_ && !found.empty();
    if (good_) value = found, text_.remove_prefix(found.size());
    return *this;
  }
  bool good() const { return good_; }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
  bool good_ = true;
};

/// "Channel 00/16 : 0 1 2 3": a ring; long ones end in "...".
std::optional<std::vector<std::string>> ring_of(std::string_view text) {
  std::int64_t number = 0;
  Line line(text);
  if (!line.skip("Channel ").number(number).skip("/").number(number).skip(" :").good()) return std::nullopt;
  std::vector<std::string> ranks;
  for (line.skip_spaces(); !line.rest().empty(); line.skip_spaces()) {
    std::string rank;
    if (!line.word(rank).good()) return std::nullopt;
    const bool whole = rank.find_first_not_of("0123456789") == std::string::npos;
    if (!whole && !rank.ends_with("...")) return std::nullopt;  // "0[0] -> 1[1] via …" is another kind of line
    ranks.push_back(whole ? rank : "...");
  }
  if (ranks.size() < 2) return std::nullopt;
  return ranks;
}

/// "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0/GDRDMA" gives "NET/Socket".
std::optional<std::string> transport_of(std::string_view text) {
  constexpr std::string_view kVia = " via ";
  const std::size_t via = text.find(kVia);
  if (!text.starts_with("Channel ") || via == std::string_view::npos) return std::nullopt;
  const std::string_view way = text.substr(via + kVia.size());
  const std::size_t kind_end = way.find('/');
  const std::string_view kind = way.substr(0, kind_end);
  if (kind == "SHM" || kind_end == std::string_view::npos) return std::string(kind);
  const std::string_view detail = way.substr(kind_end + 1);
  return fmt::format("{}/{}", kind, detail.substr(0, detail.find('/')));
}

/// "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}"
std::optional<CollectiveChoice> choice_of(std::string_view text) {
  CollectiveChoice choice;
  Line line(text);
  line.skip("AllReduce: ").number(choice.bytes).skip(" Bytes -> Algo ").word(choice.algorithm);
  if (!line.skip(" proto ").word(choice.protocol).good()) return std::nullopt;
  return choice;
}

/// "16 coll channels, 16 collnet channels, 0 nvls channels, …"
std::optional<int> channels_of(std::string_view text) {
  std::int64_t channels = 0;
  if (!Line(text).number(channels).skip(" coll channels").good()) return std::nullopt;
  return static_cast<int>(channels);
}

std::string size_text(std::int64_t bytes) {
  if (bytes > 0 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes > 0 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

/// "RING" becomes "Ring", "COLLNET_DIRECT" "Collnet direct"; names that are short or have a digit ("LL128", "NVLS")
/// stay.
std::string spoken(std::string name) {
  if (name.size() <= 2 || name.starts_with("LL") || name.starts_with("NVLS") || name == "PAT") return name;
  for (std::size_t i = 1; i < name.size(); ++i) {
    name[i] =
        name[i] == '_' ? ' ' : static_cast<char>(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
  }
  return name;
}

}  // namespace

CollectiveReport parse_nccl_log(std::string_view log) {
  constexpr std::string_view kInfo = " NCCL INFO ";
  CollectiveReport report;
  std::set<std::string> transports;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    const std::size_t info = line.find(kInfo);
    if (info == std::string_view::npos) continue;
    const std::string_view text = line.substr(info + kInfo.size());
    if (auto ring = ring_of(text)) {
      if (std::find(report.rings.begin(), report.rings.end(), *ring) == report.rings.end())
        report.rings.push_back(std::move(*ring));
    } else if (auto transport = transport_of(text)) {
      transports.insert(std::move(*transport));
    } else if (auto choice = choice_of(text)) {
      if (std::find(report.choices.begin(), report.choices.end(), *choice) == report.choices.end())
        report.choices.push_back(std::move(*choice));
    } else if (const auto channels = channels_of(text)) {
      report.channels = *channels;
    }
  }
  report.transports.assign(transports.begin(), transports.end());
  return report;
}

std::string describe(const CollectiveReport& report, bool ring_wanted) {
  std::vector<std::string> parts;
  if (!report.rings.empty()) {
    const auto& first = report.rings.front();
    parts.push_back(fmt::format("ring {} -> {}{}", fmt::join(first, " -> "), first.front(),
                                report.rings.size() == 1 ? "" : fmt::format(" and {} more", report.rings.size() - 1)));
  }
  if (report.channels > 0) {
    parts.push_back(fmt::format("{} channel{}", report.channels, report.channels == 1 ? "" : "s"));
  }
  if (!report.transports.empty()) parts.push_back(fmt::format("over {}", fmt::join(report.transports, ", ")));
  const auto largest = std::max_element(report.choices.begin(), report.choices.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (largest == report.choices.end()) {
    parts.emplace_back("its log did not say which algorithm it runs");
  } else {
    parts.push_back(fmt::format("algorithm {} for {} ({})", spoken(largest->algorithm), size_text(largest->bytes),
                                spoken(largest->protocol)));
    if (ring_wanted && largest->algorithm != "RING") {
      parts.emplace_back("NOT the ring that was asked for (is NCCL_ALGO set?)");
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace lockstep::comm
