/// \file
/// `lockstep generate`: writes text with a language model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "app/engine/signals.hpp"
#include "app/evaluate/generate_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

struct Sampling {
  double temperature = 1;   ///< 0: always the greatest logit, the first one among equals
  std::int64_t top_k = 0;   ///< number of greatest logits to draw from (the first ones among equals); 0: all
  double top_p = 1;         ///< probability of the smallest set of greatest logits to draw from (Holtzman et al. 2020)
  std::uint64_t seed = 1;   ///< key of all draws, together with `sample`
  std::int64_t sample = 0;  ///< index of the text among several
};
/// Draws a token with probability proportional to exp(logit / temperature). The draw depends only on (seed, sample,
/// position). Throws std::invalid_argument if a logit is NaN.
std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position);

/// A growing text that ends before a stop text. It holds back text that may be the beginning of the stop text.
class StoppedText {
 public:
  /// `stop` "": the text never ends.
  explicit StoppedText(std::string stop) : stop_(std::move(stop)) {}
  /// Appends `part`. Returns the text that can be written now; "" once has_ended().
  std::string add(std::string_view part);
  bool has_ended() const noexcept { return ended_; }
  /// Returns the text still held back. Call it at the end of the text.
  std::string rest();

 private:
  std::string stop_;
  std::string held_;
  bool ended_ = false;
};

/// Writes the text to stdout. A stop signal ends the text. Throws io::FileError if stdout does not accept it.
int run_generate(comm::MpiSession& session, const GenerateOptions& options, StopSignals& signals);

}  // namespace lockstep::app
