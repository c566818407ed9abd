#include "model/state/step_status_buffer.hpp"

#include <cassert>
#include <cstring>

namespace lockstep::model {

StepStatusBuffer::StepStatusBuffer(Backend& backend, const Options& options)
    : backend_(backend),
      options_(options),
      numbers_(Arena::of_zeros(backend, ElementType::float64, kStepStatusSize)),
      refused_(Arena::of_zeros(backend, ElementType::float64, 1)),
      copies_{std::pmr::vector<double>(kStepStatusSize, 0.0, backend.host_memory()),
              std::pmr::vector<double>(kStepStatusSize, 0.0, backend.host_memory())} {}

void StepStatusBuffer::write(const StepStatus& own) {
  backend_.write(std::as_bytes(std::span(&own, 1)), numbers_.tensor());
}

void StepStatusBuffer::report_loss(const Tensor& loss_sums) {
  backend_.report_loss(loss_sums, numbers_.tensor(), refused_.tensor());
}

std::span<double> StepStatusBuffer::summed() {
  return numbers_.tensor().elements<double>().first(options_.sums_gradient_squares ? kStepStatusSize
                                                                                   : kStepStatusSize - 1);
}

UpdateGate StepStatusBuffer::gate() const {
  return {.non_finite = number(&StepStatus::non_finite),
          .gradient_squares = number(&StepStatus::gradient_squares),
          .refused = refused_.tensor()};
}

void StepStatusBuffer::post() {
  last_ = 1 - last_;
  backend_.read(numbers_.tensor(), std::as_writable_bytes(std::span(copies_[last_])));
}

StepStatus StepStatusBuffer::posted(int later) const {
  assert(later == 0 || later == 1);
  const std::pmr::vector<double>& copy = copies_[later == 0 ? last_ : 1 - last_];
  StepStatus status;
  std::memcpy(static_cast<void*>(&status), copy.data(), sizeof status);
  return status;
}

}  // namespace lockstep::model
