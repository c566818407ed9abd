/// \file
/// Stands in for the sums on GPUs in a program that was built without CUDA and NCCL.
#include "comm/agreement.hpp"
#include "comm/reduction.hpp"

namespace lockstep::comm {

std::unique_ptr<Reduction> make_device_reduction(MpiSession&, Communicator&, const DeviceReductionOptions&) {
  throw AgreedError("this lockstep was built without CUDA and NCCL: it sums in host memory only (--device cpu)");
}

std::string nccl_build() { return ""; }

}  // namespace lockstep::comm
