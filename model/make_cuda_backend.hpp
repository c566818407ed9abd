/// \file
/// The factory of the CUDA backend. A build without CUDA throws DeviceError.
#pragma once

#include <memory>

#include "model/backend.hpp"

namespace lockstep::model {

/// Makes the backend of one GPU, options.device. Creates the process's context on that device. Throws DeviceError if
/// there is no such device or it cannot be used, std::invalid_argument for a precision that the device has no units
/// for.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace lockstep::model
