/// \file
/// Plans of operations with cuDNN: a graph of them, the engines that its heuristics propose for it, and the first
/// acceptable engine. An acceptable engine repeats bit for bit, adds in fp32 the terms of a direct sum, keeps within
/// the workspace, and can be built. A plan is a static choice, the same in every run on one kind of device; or, if that
/// is not required, the quickest of a few.
///
/// A convolution is a graph of one operation. Images are NHWC, filters and their gradients [out channels, (depth,)
/// height, width, in channels], all of them bfloat16: for gradients of filters in float32 cuDNN 9 proposes nothing.
///
/// Plans are made for the device of a handle, or for a device that is only described: that needs no GPU.
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

  /// An attribute of `count` values. Throws DeviceError.
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
  /// The device of `handle`, which outlives this.
  explicit CudnnDevice(cudnnHandle_t handle) : handle_(handle) {}
  /// A device that is described in cuDNN's JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
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
  /// Descriptors that this plan and others of the same graph were made of. cuDNN does not document whether it copies
  /// them.
  std::shared_ptr<std::vector<CudnnDescriptor>> made_of = {};
};

/// True if an engine with these cuDNN notes uses tensor cores (without them, matrix multiplications are faster) and
/// adds the products of a direct sum in fp32 in one order. An unknown note makes the engine unacceptable.
bool cudnn_engine_will_do(std::span<const cudnnBackendNumericalNote_t> notes) noexcept;

/// A graph of operations in their order, and the descriptors that they were made of.
class CudnnGraph {
 public:
  /// Keeps a descriptor for the life of the graph.
  CudnnDescriptor& keep(CudnnDescriptor part) { return parts_.emplace_back(std::move(part)); }
  /// Completes the operation and appends it to the graph; false if it contradicts itself.
  [[nodiscard]] bool try_append(CudnnDescriptor operation);

 private:
  friend std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice&, CudnnGraph, std::size_t, std::size_t);
  std::deque<CudnnDescriptor> parts_;  ///< a deque: addresses stay valid
  std::vector<cudnnBackendDescriptor_t> operations_;
};
/// The plans of the first acceptable engines, at most `most`, in the order of the proposals; empty if no engine is
/// acceptable.
std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace,
                                        std::size_t most);
std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, const CudnnProblem& problem,
                                        std::size_t most_workspace, std::size_t most);
/// The first of these plans.
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace);
std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnProblem& problem,
                                         std::size_t most_workspace);

}  // namespace lockstep::model::cuda
