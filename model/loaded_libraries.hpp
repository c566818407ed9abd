/// \file
/// Finds the NVIDIA libraries that this process has loaded: a machine may have several of each, and the loader takes
/// the first one that it finds.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace lockstep::model {

/// Files of CUDA's driver, cuBLASLt, cuDNN and NCCL in /proc/PID/maps, each once, in order. Their names end in their
/// versions: "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13.1.0.3".
std::vector<std::string> gpu_libraries_in(std::istream& maps);
/// The GPU libraries loaded by this process so far; each is loaded at first use. Empty without /proc.
std::vector<std::string> loaded_gpu_libraries();

}  // namespace lockstep::model
