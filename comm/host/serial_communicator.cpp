#include "comm/host/serial_communicator.hpp"

#include "comm/host/reduction_memory.hpp"

namespace lockstep::comm {

std::unique_ptr<std::pmr::memory_resource> SerialCommunicator::do_reduction_memory(std::size_t bytes, MemoryUse) {
  return plain_reduction_memory(bytes);
}

}  // namespace lockstep::comm
