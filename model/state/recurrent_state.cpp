#include "model/state/recurrent_state.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace lockstep::model {

RecurrentState::RecurrentState(Backend& backend, const Network& network, std::int64_t sequences, Purpose purpose)
    : backend_(backend),
      network_(network),
      layout_(network.recurrent_state(), sequences,
              {.compute = backend.compute_type(), .master = backend.master_type()}),
      training_(Arena::of_zeros(backend, ElementType::uint8, purpose == Purpose::training ? layout_.bytes() : 0)),
      evaluation_(Arena::of_zeros(backend, ElementType::uint8, layout_.bytes())) {}

std::size_t RecurrentState::bytes(const Network& network, std::int64_t sequences, const OperationTypes& types) {
  return ActivationLayout(network.recurrent_state(), sequences, types).bytes();
}

void RecurrentState::reset(Purpose purpose, std::int64_t first, std::int64_t count) {
  if (arena(purpose).empty()) return;
  for (std::size_t i = 0; i < network_.recurrent_state().all().size(); ++i) {
    backend_.fill_zero(layout_.at(i, data(purpose), count, first));
  }
}

void RecurrentState::download(std::int64_t sequences, std::span<float> out) const {
  for_each(sequences, [&](const Tensor& tensor, std::int64_t first) {
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    backend_.download(tensor, values);
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      std::copy_n(values.begin() + sequence * tensor.columns, tensor.columns,
                  out.begin() + sequence * elements() + first);
    }
  });
}

void RecurrentState::upload(std::int64_t sequences, std::span<const float> in) {
  for_each(sequences, [&](const Tensor& tensor, std::int64_t first) {
    std::vector<float> values;
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      const auto from = in.begin() + sequence * elements() + first;
      values.insert(values.end(), from, from + tensor.columns);
    }
    backend_.upload(values, tensor);
  });
}

/// Calls work(tensor [sequences, columns], index of the tensor's first element within a sequence's state).
template <class Work>
void RecurrentState::for_each(std::int64_t sequences, const Work& work) const {
  if (elements() > 0 && training_.empty()) {
    throw std::invalid_argument("this state is for evaluation: no training goes on from it");
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < network_.recurrent_state().all().size(); ++i) {
    const Tensor tensor = layout_.at(i, training_.data(), sequences);
    work(tensor, first);
    first += tensor.columns;
  }
}

}  // namespace lockstep::model
