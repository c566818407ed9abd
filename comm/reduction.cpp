#include "comm/reduction.hpp"

#include <stdexcept>

namespace lockstep::comm {

void HostReduction::sum_bf16(std::span<std::uint16_t>) {
  throw std::invalid_argument("sums of bfloat16 are made on GPUs only");
}

void HostReduction::wait(const char*, std::int64_t) {}

}  // namespace lockstep::comm
