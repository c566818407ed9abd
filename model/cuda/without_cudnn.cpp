// Built without cuDNN: convolutions are matrix multiplications.
#include "model/cuda/convolution_library.hpp"

namespace lockstep::model::cuda {

std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory&, std::function<void()>) { return nullptr; }

}  // namespace lockstep::model::cuda
