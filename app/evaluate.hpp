/// \file
/// The loss and metric of a network on a dataset: the same bits at any world size.
#pragma once

#include <cstdint>
#include <string>

#include "app/options.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi_session.hpp"
#include "io/sharded_dataset.hpp"
#include "model/model.hpp"

namespace lockstep::app {

struct Evaluation {
  double loss = 0;    ///< mean over the samples, without the L2 term
  double metric = 0;  ///< accuracy in [0, 1], or mean absolute error
  std::int64_t samples = 0;
};

/// Collective. The dataset is cut into chunks of `chunk` samples in file order, whatever the world size; chunk k is
/// computed by rank k mod world, and the sums are added in the order of the chunks. Every sample counts once.
/// Throws comm::AgreedError when a rank cannot read its samples.
Evaluation evaluate(model::Model& model, const io::ShardedDataset& dataset, comm::Communicator& communicator,
                    model::Weights weights, std::int64_t chunk);

/// "loss 0.3312  accuracy 88.41 %  (10,000 samples)"
std::string format_evaluation(const Evaluation& evaluation, model::LossKind loss);
/// "accuracy" or "mean_absolute_error": the metric's key in metrics.jsonl.
const char* metric_key(model::LossKind loss) noexcept;

/// `lockstep eval`.
int run_eval(comm::MpiSession& session, const EvalOptions& options);

}  // namespace lockstep::app
