/// \file
/// The GPUs that this process can see, and how this build can use them. A machine without a GPU or a driver is a valid
/// answer, not an error.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// A device failed or is missing: no driver, out of memory, an error in a kernel. The text names the device and says
/// what to do.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Number format of matrix products. Parameters, gradients, statistics and optimiser state are fp32 in every format.
/// Matrix products for weight gradients accumulate in fp32. CPUs have fp32 and bf16 (bf16_unit.hpp); with bf16 they
/// store only some activations in bf16 (Holds::narrow).
enum class Precision {
  fp32,  ///< GEMMs in fp32
  tf32,  ///< GEMMs of fp32 numbers rounded to 10 bits of mantissa, accumulated in fp32
  bf16,  ///< activations on GPUs, and weights as GEMMs read them, in bfloat16
};
Precision parse_precision(std::string_view name);  ///< throws std::invalid_argument listing the valid names
std::string_view name_of(Precision precision) noexcept;

struct Device {
  int index = 0;                 ///< index in CUDA's numbering for this process: 0 to the number of visible devices
  std::string name;              ///< "NVIDIA H200"
  std::string pci;               ///< "0000:1b:00.0"
  std::string uuid;              ///< "GPU-8f3c…"; the same in every process that sees this device
  int major = 0, minor = 0;      ///< compute capability
  int processors = 0;            ///< streaming multiprocessors
  std::size_t shared_bytes = 0;  ///< shared memory available to one block
  std::size_t bytes = 0;         ///< total memory
  std::size_t free_bytes = 0;    ///< free memory now; 0 if not queried
};

struct DeviceSurvey {
  std::vector<Device> devices;
  /// The reason for finding no device, as a clause with its remedy: "no NVIDIA driver is installed here",
  /// "CUDA_VISIBLE_DEVICES is '9' and hides every GPU", "the driver supports CUDA 12.2, this program needs 13.0: …",
  /// "this lockstep was built without CUDA". Empty if there are devices.
  std::string obstacle;
};
/// Queries the devices once, and only their properties.
DeviceSurvey survey_devices();
/// Loads the GPU library of matrix multiplications. Returns why this machine cannot use it, with the remedy; empty on
/// success.
std::string gpu_library_error();
/// Loads cuDNN, which does convolutions and attention on GPUs. Returns why this machine cannot use it; empty on
/// success.
std::string cudnn_error();
/// Free memory of one device, in bytes. Creates the process's context there. Throws DeviceError.
std::size_t free_memory(const Device& device);
/// Returns the default precision of a device: bf16 from compute capability 8.0 on, else fp32.
Precision best_precision(const Device& device) noexcept;
/// Peak FLOP/s of dense GEMMs at a precision, from the vendor's data sheet; 0 if unknown.
struct DevicePeak {
  double flops = 0;
  std::string source;  ///< "NVIDIA H200 data sheet, dense bf16"
};
DevicePeak peak_of(const Device& device, Precision precision);
/// "CUDA 13.0 (sm_80, sm_90, PTX 9.0)" or "without CUDA": for --version and messages.
std::string cuda_build();

}  // namespace lockstep::model
