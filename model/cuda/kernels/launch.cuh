/// \file
/// Launches kernels. Only this file enqueues grids and checks the result.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#include "model/device.hpp"

namespace lockstep::model::cuda {

/// Limit of the shared memory of a block: 48 KiB (usual), or Device::shared_bytes.
enum class SharedLimit : bool { usual, of_device };
struct Grid {
  unsigned blocks = 1;
  unsigned parts = 1;  ///< blocks in the second dimension
  unsigned threads = 1;
  std::size_t shared_bytes = 0;  ///< size of shared<T>()
  SharedLimit shared_limit = SharedLimit::usual;
};

/// Threads of a block, unless a kernel uses another number.
inline constexpr unsigned kBlock = 256;
inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

extern __shared__ uint4 shared_memory[];
/// Returns the shared memory of the block as a T. The grid's shared_bytes must be sizeof(T).
template <class T>
__device__ T& shared() {
  static_assert(alignof(T) <= alignof(uint4));
  return *reinterpret_cast<T*>(shared_memory);
}

#if defined(__CUDACC__)
template <class... Parameters>
cudaError_t enqueue(const char*, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                    Parameters... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)...};
  const void* const function = reinterpret_cast<const void*>(kernel);
  if (grid.shared_limit == SharedLimit::of_device) {  // prefers shared memory to cache, for as many blocks as fit
    cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(grid.shared_bytes));
    if (error == cudaSuccess) {
      error = cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   static_cast<int>(cudaSharedmemCarveoutMaxShared));
    }
    if (error != cudaSuccess) return error;
  }
  return cudaLaunchKernel(function, dim3(grid.blocks, grid.parts), dim3(grid.threads), pointers, grid.shared_bytes,
                          stream);
}
inline std::string words_of(cudaError_t error) {
  int device = -1;
  cudaGetDevice(&device);
  cudaGetLastError();  // clears the error, so that the next check does not report it
  return "device " + std::to_string(device) + " says: " + cudaGetErrorString(error);
}
#else
/// In a build as plain C++, a kernel is a function that one thread runs. That build provides the function that runs a
/// grid, in which `thread` has its own copies of the arguments.
struct KernelArgument {
  const void* bytes;
  std::size_t size;
  bool only_read;  ///< a pointer to const
};
cudaError_t run_grid(const char* name, const Grid& grid, cudaStream_t stream, std::span<const KernelArgument> arguments,
                     const std::function<void()>& thread);
/// Clears the padding between the members of an argument. A search for pointers in the argument would otherwise find
/// pointers of earlier calls.
template <class T>
void clear_padding([[maybe_unused]] T& argument) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&argument);
#endif
}
template <class... Parameters>
cudaError_t enqueue(const char* name, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                    Parameters... arguments) {
  (clear_padding(arguments), ...);
  const std::array<KernelArgument, sizeof...(Parameters)> shown{
      {{&arguments, sizeof arguments, std::is_const_v<std::remove_pointer_t<Parameters>>}...}};
  return run_grid(name, grid, stream, shown, [=] { kernel(arguments...); });
}
inline std::string words_of(cudaError_t error) { return "error " + std::to_string(error); }
#endif

/// Throws the error of a kernel that was not enqueued. A function of its own: launch() is compiled for every kernel.
[[noreturn]] inline void throw_not_taken(const char* name, const Grid& grid, cudaError_t error) {
  throw DeviceError(std::string("the GPU did not take the kernel ") + name + " (" + std::to_string(grid.blocks) +
                    " x " + std::to_string(grid.parts) + " blocks of " + std::to_string(grid.threads) + " threads, " +
                    std::to_string(grid.shared_bytes) + " bytes of shared memory): " + words_of(error) +
                    ". Either this GPU is none that the program was built for, or it failed in an earlier kernel: "
                    "CUDA_LAUNCH_BLOCKING=1 shows in which one");
}

/// Enqueues kernel(arguments...) on `stream`. name: for messages. Throws DeviceError if the launch fails or the device
/// has failed before.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
            Arguments&&... arguments) {
  const cudaError_t error = enqueue<Parameters...>(name, kernel, grid, stream,
                                                   static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  if (error != cudaSuccess) throw_not_taken(name, grid, error);
}

}  // namespace lockstep::model::cuda
