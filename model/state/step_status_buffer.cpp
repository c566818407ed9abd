#include "model/state/step_status_buffer.hpp"

#include <cstring>

namespace lockstep::model {

void StepStatusBuffer::write(const StepStatus& own) {
  backend_.write(std::as_bytes(std::span(&own, 1)), numbers_.tensor());
}

void StepStatusBuffer::report_loss(const Tensor& loss_sums) { backend_.report_loss(loss_sums, numbers_.tensor()); }

std::span<double> StepStatusBuffer::summed() {
  return numbers_.tensor().elements<double>().first(options_.sums_gradient_squares ? kStepStatusSize
                                                                                   : kStepStatusSize - 1);
}

StepStatus StepStatusBuffer::posted() const {
  StepStatus status;
  std::memcpy(static_cast<void*>(&status), numbers_.posted().data(), sizeof status);
  return status;
}

}  // namespace lockstep::model
