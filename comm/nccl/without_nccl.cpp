/// \file
/// Replaces the communicator of GPUs in a program that was built without CUDA and NCCL.
#include "comm/consensus.hpp"
#include "comm/device_communicator.hpp"

namespace lockstep::comm {

std::unique_ptr<Communicator> make_device_communicator(MpiSession&, Communicator&, const DeviceCommunicatorOptions&) {
  throw ConsensusError("this lockstep was built without CUDA and NCCL: it sums in host memory only (--device cpu)");
}

std::string nccl_build() { return ""; }

}  // namespace lockstep::comm
