/// \file
/// Plans of operations with cuDNN: a graph of operations, the engines that cuDNN's heuristics propose for it, and the
/// first acceptable engine. An acceptable engine is deterministic, adds the terms of a direct sum in fp32, fits the
/// workspace, and can be built. The choice is the same in every run on one kind of device, unless the caller takes the
/// fastest of a few.
///
/// A convolution is a graph of one operation. Images are NHWC; filters and their gradients are [out channels, (depth,)
/// height, width, in channels]. All are bfloat16: cuDNN 9 proposes no engine for gradients of filters in float32.
///
/// Plans are made for the device of a handle, or for a described device, which needs no GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cudnn.h>

#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

/// Loads cuDNN. Returns why it cannot be used here; empty on success.
std::string cudnn_obstacle();
/// Throws DeviceError unless `status` is success.
void check_cudnn(cudnnStatus_t status, const std::string& what);

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const noexcept { return descriptor_.get(); }

  /// Sets an attribute of `count` values. Throws DeviceError.
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
                       std::int64_t count = 1) {
    return set_any(name, type, values, count);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  /// Throws DeviceError.
  CudnnDescriptor& finalize();
  bool try_finalize() noexcept { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

 private:
  struct Destroy {
    void operator()(void* descriptor) const noexcept { static_cast<void>(cudnnBackendDestroyDescriptor(descriptor)); }
  };
  CudnnDescriptor& set_any(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
                           std::int64_t count);
  std::unique_ptr<void, Destroy> descriptor_;
};

/// The device that plans are made for.
class CudnnDevice {
 public:
  /// The device of `handle`, which must outlive this object.
  explicit CudnnDevice(cudnnHandle_t handle) : handle_(handle) {}
  /// A device described in cuDNN's JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
  explicit CudnnDevice(const std::string& description);

  void put_into_graph(CudnnDescriptor& graph) const;
  void put_into_heuristics(CudnnDescriptor& heuristics) const;
  void put_into_plan(CudnnDescriptor& plan) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<CudnnDescriptor> properties_;
};

struct CudnnProblem {
  enum class Kind { forward, filter_gradient, image_gradient };
  Kind kind = Kind::forward;
  Convolution shape;
  std::int64_t images = 0;

  /// Everything that determines a plan.
  using Key = std::tuple<Kind, std::int64_t, std::array<std::int64_t, 21>>;
  Key key() const noexcept;
};

/// Names of the tensors in the operation.
inline constexpr std::int64_t kCudnnImages = 1, kCudnnFilters = 2, kCudnnOutput = 3;
/// Required alignment of tensors, in bytes.
inline constexpr std::int64_t kCudnnAlignment = 16;

struct CudnnPlan {
  CudnnDescriptor descriptor;
  std::size_t workspace = 0;  ///< bytes
  /// Descriptors from which this plan and others of the same graph were made. They are kept because cuDNN does not
  /// document that it copies them.
  std::shared_ptr<std::vector<CudnnDescriptor>> made_of = {};
};

/// True if an engine with these notes uses tensor cores (without them, matrix multiplications are faster) and adds the
/// products of a direct sum in fp32 in a fixed order. An engine with an unknown note is not acceptable.
bool cudnn_engine_will_do(std::span<const cudnnBackendNumericalNote_t> notes) noexcept;

/// A graph of operations in their order, and the descriptors from which they were made.
class CudnnGraph {
 public:
  /// Keeps a descriptor for the lifetime of the graph.
  CudnnDescriptor& keep(CudnnDescriptor part) { return parts_.emplace_back(std::move(part)); }
  /// Finalizes the operation and appends it to the graph. Returns false if cuDNN refuses it.
  [[nodiscard]] bool try_append(CudnnDescriptor operation);

 private:
  friend std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice&, CudnnGraph, std::size_t, std::size_t);
  std::deque<CudnnDescriptor> parts_;  ///< a deque: addresses stay valid
  std::vector<cudnnBackendDescriptor_t> operations_;
};
/// Returns the plans of the first acceptable engines, at most `most`, in the order of the proposals; empty if no engine
/// is acceptable.
std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace,
                                        std::size_t most);
std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, const CudnnProblem& problem,
                                        std::size_t most_workspace, std::size_t most);
/// Returns the first of these plans.
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace);
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnProblem& problem,
                                         std::size_t most_workspace);

}  // namespace lockstep::model::cuda
