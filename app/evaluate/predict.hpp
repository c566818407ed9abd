/// \file
/// `lockstep predict`: writes the predictions of a checkpoint's network for every sample of a dataset to one HDF5 file
/// (prediction_file.hpp).
#pragma once

#include "app/evaluate/trained_model_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Returns the exit code. The file has the same bytes at any number of ranks.
int run_predict(comm::MpiSession& session, const PredictOptions& options);

}  // namespace lockstep::app
