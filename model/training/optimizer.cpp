#include "model/training/optimizer.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

bool looks_at_whole_parameters(OptimizerKind kind) {
  return kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
}

}  // namespace

Optimizer::Optimizer(Backend& backend, ParameterState& parameters, StepStatusBuffer& status,
                     const OptimizerOptions& options)
    : backend_(backend),
      parameters_(parameters),
      status_(status),
      options_(options),
      rule_(Arena::of_zeros(backend, ElementType::uint8, sizeof(UpdateRule))),
      l2_squares_(backend, 1) {
  if (!parameters.has_gradients()) throw std::invalid_argument("an optimiser needs gradients");
  if (!looks_at_whole_parameters(options.kind)) return;
  if (is_partitioned()) {
    throw std::invalid_argument(
        fmt::format("{} looks at whole parameters: their update cannot be shared", name_of(options.kind)));
  }
  norms_ = Arena::of_zeros(backend, ElementType::float64, 2 * parameters.owned().parts().front().slices.size());
}

void Optimizer::prepare(const UpdateRule& rule) { backend_.write(std::as_bytes(std::span(&rule, 1)), rule_.tensor()); }

void Optimizer::finish_gradients() {
  if (options_.l2 > 0) {
    for (const OwnedParts::Part& part : parameters_.owned().parts()) {
      const Slice& range = part.range;
      if (range.count == 0) continue;
      backend_.add_l2_gradient(parameters_.parameters().slice(range), parameters_.gradients().slice(range),
                               static_cast<float>(options_.l2), part.slices);
    }
  }
  sum_squares();
}

void Optimizer::sum_squares() {
  const Tensor squares = status_.number(&StepStatus::gradient_squares);
  Accumulate accumulate = Accumulate::no;
  for (const OwnedParts::Part& part : parameters_.owned().parts()) {
    const Slice& range = part.range;
    if (range.count == 0) continue;
    backend_.sum_of_squares(parameters_.gradients().slice({range.offset, part.trained}), squares, accumulate);
    accumulate = Accumulate::yes;
  }
  if (accumulate == Accumulate::no) backend_.fill_zero(squares);
}

void Optimizer::update(const PartUpdated& updated) {
  const UpdateGate gate{.non_finite = status_.number(&StepStatus::non_finite),
                        .gradient_squares = status_.number(&StepStatus::gradient_squares)};
  const auto& parts = parameters_.owned().parts();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].range.count > 0) {
      UpdateArenas arenas = parameters_.part_of_arenas(parts[i]);
      arenas.norms = norms_.tensor();
      const Averaging averaging = options_.average_decay > 0 ? Averaging::yes : Averaging::no;
      backend_.update(arenas, options_.kind, averaging, rule_.tensor(), parts[i].slices, gate);
    }
    if (updated && is_partitioned()) updated(i);
  }
}

double Optimizer::l2_loss() {
  if (options_.l2 <= 0) return 0;
  backend_.fill_zero(l2_squares_.tensor());
  for (const Parameter& parameter : parameters_.table().all()) {
    if (parameter.decay == Decay::no || parameter.frozen) continue;
    backend_.sum_of_squares(parameters_.parameters().slice(parameter.slice()), l2_squares_.tensor(), Accumulate::yes);
  }
  return options_.l2 / 2 * l2_squares_.read_now()[0];
}

}  // namespace lockstep::model
