/// \file
/// The loss of a network, or the weighted sum of its losses, and their gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/arena.hpp"
#include "model/state/scalars.hpp"

namespace lockstep::model {

class Loss {
 public:
  /// backend and network must outlive the loss. Throws std::invalid_argument for losses that do not fit the network.
  Loss(Backend& backend, const Network& network, const ModelOptions& options);

  /// Adds the loss and metrics of `output` to `sums`, whose layout is that of Model::loss_sums(). With
  /// LossOptions::want_gradient, `output` becomes its gradient. `targets` has a row for each row of the output
  /// (Network::targets).
  void add(const Tensor& output, const Tensor& targets, const LossOptions& options, const Tensor& sums);

  /// Bytes of memory that a Loss allocates.
  static std::size_t bytes(const Network& network, const ModelOptions& options, ElementType compute);

 private:
  void add_one(const LossTerm& term, const Tensor& output, const Tensor& targets, LossOptions options,
               const Tensor& sums);
  void add_all(const Tensor& output, const Tensor& targets, const LossOptions& options, const Tensor& sums);
  Tensor columns_of(const LossTerm& term, const Tensor& targets);

  Backend& backend_;
  std::int64_t outputs_, positions_;
  LossTerm only_;
  std::vector<LossTerm> losses_;
  std::vector<LossShare> shares_;
  std::vector<std::size_t> first_;  ///< for each loss, index of the first loss that reads the same columns
  std::vector<Arena> copies_;       ///< by loss: copy of the output's columns that it reads
  Arena targets_;                   ///< copy of one loss's columns of the targets
  Arena dice_;
  std::optional<Scalars> parts_;  ///< with several losses: LossSums of each
};

}  // namespace lockstep::model
