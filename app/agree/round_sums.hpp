/// \file
/// Numbers that the ranks add up at the end of a round: its figures, and the requests of the ranks.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "app/agree/agreement.hpp"
#include "comm/communicator.hpp"
#include "model/step_status.hpp"

namespace lockstep::app {

/// Each field is a sum over the ranks. A rank without a contribution leaves zeros.
struct RoundSums {
  double loss = 0, metric = 0, samples = 0;
  std::array<double, model::kMaxLosses> losses = {};
  double learning_rate = 0, gradient_norm = 0;  ///< at the last update; only one rank may contribute
  double updates = 0;                           ///< updates on servers; only one rank may contribute
  // Numbers of ranks:
  double stop_requests = 0, save_requests = 0, saves_due = 0;
  double failed = 0;    ///< ranks with a StepRequest::error
  double diverged = 0;  ///< ranks whose training has diverged

  void add(const StepFigures& figures) {
    loss += figures.loss_sum;
    metric += figures.metric_sum;
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += figures.losses[i];
    samples += figures.samples;
    learning_rate += figures.learning_rate;
    gradient_norm += figures.gradient_norm;
  }
  void add(const StepRequest& request) {
    stop_requests += request.stop ? 1 : 0;
    save_requests += request.save ? 1 : 0;
    saves_due += request.save_due ? 1 : 0;
    failed += request.error.empty() ? 0 : 1;
  }
  StepFigures figures(std::int64_t step) const {
    return {.step = step,
            .loss_sum = loss,
            .metric_sum = metric,
            .losses = losses,
            .samples = samples,
            .learning_rate = learning_rate,
            .gradient_norm = gradient_norm};
  }
  StepResult result(const StepFigures& figures) const {
    return {.figures = figures,
            .stop_requests = static_cast<int>(stop_requests),
            .save_requests = static_cast<int>(save_requests),
            .save_due = saves_due > 0};
  }
};

/// Collective: returns the sums over all ranks. All fields of `Sums` must be of type double.
template <class Sums>
Sums sum_over_ranks(comm::Communicator& communicator, const Sums& own, const char* what, std::int64_t step = -1) {
  auto numbers = std::bit_cast<std::array<double, sizeof(Sums) / sizeof(double)>>(own);
  communicator.all_reduce(std::span(numbers));
  communicator.wait(what, step);
  return std::bit_cast<Sums>(numbers);
}

}  // namespace lockstep::app
