#include "model/state/scalars.hpp"

namespace lockstep::model {

Scalars::Scalars(Backend& backend, std::size_t count)
    : backend_(backend),
      arena_(Arena::of_zeros(backend, ElementType::float64, count)),
      host_(count, 0.0, backend.host_memory()) {}

void Scalars::post() { backend_.read(tensor(), std::as_writable_bytes(std::span(host_))); }

std::span<const double> Scalars::read_now() {
  post();
  backend_.synchronize();
  return host_;
}

}  // namespace lockstep::model
