/// \file
/// Makes all ranks start from equal settings, and fail with the same error.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// A text that is equal on some ranks.
struct RankText {
  std::vector<int> ranks;  ///< ascending
  std::string text;
  bool all = false;  ///< `ranks` is every rank of the world
  bool operator==(const RankText&) const = default;
};
/// "rank 1: text", "ranks 0,2-5: text"; only the text in a world of one.
std::string with_ranks(const RankText& said);
/// As with_ranks(), but only the text if all ranks have it.
std::string with_ranks_unless_all(const RankText& said);

/// An error that every rank knows and throws with the same text: rank 0 prints it once, all exit with the same code,
/// without an abort.
class ConsensusError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// Writes one line per entry, as with_ranks() does.
  explicit ConsensusError(std::span<const RankText> said);
};

/// An item that must be equal on all ranks at start.
struct FingerprintItem {
  std::string name;   ///< name for users: "configuration", "dataset manifest", "program"
  std::string value;  ///< compared as text; short values are quoted in the message
};

/// Compares the items over all ranks; throws ConsensusError on every rank naming item, ranks (grouped by value) and
/// values.
void require_equal(Communicator& communicator, std::span<const FingerprintItem> items);

/// Runs `work` on every rank. If it throws on any, throws ConsensusError on every rank with each distinct text once and
/// the ranks it came from ("rank 1: …", "ranks 0-3: …"; no prefix in a world of one). `work` must not communicate, and
/// never needs to throw a ConsensusError itself.
void all_succeed(Communicator& communicator, const std::function<void()>& work);

/// The distinct texts of all ranks, in the order of the lowest rank with each. Empty texts are dropped. Same result on
/// every rank.
std::vector<RankText> gather_distinct(Communicator& communicator, std::string_view text);

}  // namespace lockstep::comm
