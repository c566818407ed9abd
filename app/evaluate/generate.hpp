/// \file
/// `lockstep generate`: a language model writes text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "app/engine/signals.hpp"
#include "app/options/options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

struct Sampling {
  double temperature = 1;  ///< 0: the first greatest logit
  std::int64_t top_k = 0;  ///< among so many greatest logits (of equal ones the first); 0: all
  double top_p = 1;        ///< of those, the fewest greatest that have this probability together (Holtzman et al. 2020)
  std::uint64_t seed = 1;  ///< with the sample, the key of all draws
  std::int64_t sample = 0;  ///< which of several texts
};
/// A token drawn with probability proportional to exp(logit / temperature). The draw is a function of (seed, sample,
/// position) alone. Throws std::invalid_argument where a logit is not a number.
std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position);

/// A text as it grows, which ends before a stop text. What may be the beginning of the stop text is held back.
class StoppedText {
 public:
  /// "": never.
  explicit StoppedText(std::string stop) : stop_(std::move(stop)) {}
  /// What can be written now. Nothing more comes once has_ended().
  std::string add(std::string_view part);
  bool has_ended() const noexcept { return ended_; }
  /// What was held back, at the end of the text.
  std::string rest();

 private:
  std::string stop_;
  std::string held_;
  bool ended_ = false;
};

/// Writes to stdout; a stop signal ends the text. Throws io::FileError where stdout does not take it.
int run_generate(comm::MpiSession& session, const GenerateOptions& options, StopSignals& signals);

}  // namespace lockstep::app
