/// \file
/// `lockstep eval`: evaluates a checkpoint's network on a dataset.
#pragma once

#include "app/evaluate/trained_model_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Returns the exit code.
int run_eval(comm::MpiSession& session, const EvalOptions& options);

}  // namespace lockstep::app
