/// \file
/// `lockstep predict`: what a checkpoint's network says of every sample of a data set, in one HDF5 file
/// (prediction_file.hpp).
#pragma once

#include "app/options/options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Returns the exit code. The file has the same bytes at any number of ranks.
int run_predict(comm::MpiSession& session, const PredictOptions& options);

}  // namespace lockstep::app
