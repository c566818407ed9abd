// For builds without cuDNN: convolutions are matrix multiplications, and attention runs in our own kernels.
#include "model/cuda/attention_library.hpp"
#include "model/cuda/convolution_library.hpp"
#include "model/device.hpp"

namespace lockstep::model {

std::string cudnn_error() { return "this lockstep was built without cuDNN"; }

namespace cuda {

std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory&, std::function<void()>, Tuning) {
  return nullptr;
}
std::unique_ptr<AttentionLibrary> make_attention_library(DeviceMemory&, std::function<void()>,
                                                         const AttentionLibraryOptions&) {
  return nullptr;
}

}  // namespace cuda

}  // namespace lockstep::model
