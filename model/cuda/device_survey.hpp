/// \file
/// Describes a device as the CUDA runtime sees it.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "model/device.hpp"

namespace lockstep::model::cuda {

/// "0000:1b:00.0"
std::string pci_of(const cudaDeviceProp& properties);
/// Describes a device, without its free memory, which would need a context.
Device describe(int index, const cudaDeviceProp& properties);

}  // namespace lockstep::model::cuda
