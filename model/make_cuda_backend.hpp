/// \file
/// The door to the CUDA backend, the same whether it was compiled or not: without it, asking is a DeviceError.
#pragma once

#include <memory>

#include "model/backend.hpp"

namespace lockstep::model {

/// One GPU: options.device, precision, graphs and reserved_processors. Makes the process's context on that device.
/// Throws DeviceError where there is no such device or it cannot be used, std::invalid_argument for a precision that
/// the device has no units for.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace lockstep::model
