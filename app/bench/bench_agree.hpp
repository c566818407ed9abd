/// \file
/// `lockstep bench agree`: the same training in several modes of agreement, in one job.
///
/// FAIR COMPARISON. All modes have the same training ranks, the same global batches and, unless the mode itself changes
/// it, the same order of samples. Each mode uses the best of the same learning rates, chosen with the first seed.
/// Trainings alternate between modes. Seconds are those of training: no start, no validation, no checkpoint.
#pragma once

#include "app/engine/signals.hpp"
#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Throws UsageError and comm::AgreedError, the latter also if `signals` asked to stop: then there is no
/// report.
int run_bench_agree(comm::MpiSession& session, const BenchAgreeOptions& options, StopSignals& signals);

}  // namespace lockstep::app
