#include "comm/reduction.hpp"

#include <stdexcept>

#include "comm/threaded_reduction.hpp"

namespace lockstep::comm {

void HostReduction::sum_bf16(std::span<std::uint16_t>) {
  throw std::invalid_argument("sums of bfloat16 are made on GPUs only");
}

void HostReduction::wait(const char*, std::int64_t) {}

std::unique_ptr<Reduction> make_host_reduction(Communicator& communicator, std::optional<bool> threaded) {
  if (threaded.value_or(communicator.uses_network())) return std::make_unique<ThreadedReduction>(communicator);
  return std::make_unique<HostReduction>(communicator);
}

}  // namespace lockstep::comm
