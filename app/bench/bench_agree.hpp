/// \file
/// `lockstep bench agree`: the same training under several ways to agree, in one job.
///
/// HONEST. All modes have the same ranks that train, the same global batches and, but for what a mode does to it, the
/// same order of samples; each has the best of the same learning rates, chosen with the first seed. Trainings come in
/// turns. Seconds are those of training: no start, no validation, no checkpoint.
#pragma once

#include "app/engine/signals.hpp"
#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Throws UsageError, comm::AgreedError, also where `signals` asked to stop: then nothing is reported.
int run_bench_agree(comm::MpiSession& session, const BenchAgreeOptions& options, StopSignals& signals);

}  // namespace lockstep::app
