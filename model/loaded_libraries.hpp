/// \file
/// Finds the NVIDIA libraries that this process has loaded. A machine may have several versions of each, and the loader
/// takes the first that it finds.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace lockstep::model {

/// Files of the CUDA driver, cuBLASLt, cuDNN and NCCL in the text of /proc/PID/maps, each once, in the order of the
/// text. File names end in the version: "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13.1.0.3".
std::vector<std::string> gpu_libraries_in(std::istream& maps);
/// GPU libraries that this process has loaded so far; each is loaded at first use. Empty without /proc.
std::vector<std::string> loaded_gpu_libraries();

}  // namespace lockstep::model
