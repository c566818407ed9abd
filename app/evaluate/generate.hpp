/// \file
/// `lockstep generate`: a language model writes text.
#pragma once

#include <cstdint>
#include <span>

#include "app/engine/signals.hpp"
#include "app/options/options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// A token drawn with probability proportional to exp(logit / temperature) among the `top_k` greatest logits (0: all;
/// of equal ones the first). temperature 0: the first greatest. The draw is a function of (seed, position) alone.
/// Throws std::invalid_argument where a logit is not a number.
std::int32_t draw_token(std::span<const float> logits, double temperature, std::int64_t top_k, std::uint64_t seed,
                        std::int64_t position);

/// Writes to stdout; a stop signal ends the text. Throws io::FileError where stdout does not take it.
int run_generate(comm::MpiSession& session, const GenerateOptions& options, StopSignals& signals);

}  // namespace lockstep::app
