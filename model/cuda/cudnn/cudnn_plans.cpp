#include "model/cuda/cudnn/cudnn_plans.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/device.hpp"

namespace lockstep::model::cuda {

namespace {

/// Returns the number of directions for cuDNN: three for volumes, two for images and series.
std::size_t directions_of(const Convolution& shape) {
  return shape.in.depth == 1 && shape.window.depth == Sweep{} ? 2 : 3;
}

/// Describes an NHWC tensor, with cuDNN's order of dimensions: batch (or out channels), channels, (depth,) height,
/// width.
CudnnDescriptor tensor_of(std::int64_t name, std::int64_t count, const ImageShape& image, std::size_t directions,
                          cudnnDataType_t type) {
  std::vector<std::int64_t> dimensions{count, image.channels}, strides{image.elements(), 1};
  const auto extents = image.extents();
  std::int64_t stride = image.elements();
  for (const std::int64_t extent : std::span(extents).last(directions)) {
    stride /= extent;
    dimensions.push_back(extent);
    strides.push_back(stride);
  }
  const auto count_of = static_cast<std::int64_t>(dimensions.size());
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dimensions.data(), count_of)
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), count_of)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &kCudnnAlignment)
      .finalize();
  return tensor;
}

CudnnDescriptor window_of(const Sliding& window, std::size_t count) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const auto directions = static_cast<std::int64_t>(count);
  std::vector<std::int64_t> before, after, strides, dilations;
  const auto sweeps = window.sweeps();
  for (const Sweep& sweep : std::span(sweeps).last(count)) {
    before.push_back(sweep.before);
    after.push_back(sweep.after);
    strides.push_back(sweep.stride);
    dilations.push_back(sweep.dilation);
  }
  CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &directions)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, before.data(), directions)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, after.data(), directions)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides.data(), directions)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilations.data(), directions)
      .finalize();
  return convolution;
}

/// cuDNN's names for the attributes of one kind of operation.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t images, filters, output, window, alpha, beta;
};
Names names_of(CudnnProblem::Kind kind) {
  switch (kind) {
    case CudnnProblem::Kind::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CudnnProblem::Kind::filter_gradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case CudnnProblem::Kind::image_gradient:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
}

/// Returns all values of an attribute that is a list.
template <class T>
std::vector<T> list_of(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, std::vector<T> workspace) {
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(descriptor, name, type, static_cast<std::int64_t>(workspace.size()), &count,
                                       workspace.data()),
              "reading a list");
  workspace.resize(static_cast<std::size_t>(std::min(count, static_cast<std::int64_t>(workspace.size()))));
  return workspace;
}

bool will_do(cudnnBackendDescriptor_t configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t to = engine.get();
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &to),
              "asking for an engine");
  return cudnn_engine_will_do(list_of(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                      std::vector<cudnnBackendNumericalNote_t>(CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
}

std::optional<CudnnPlan> plan_from(const CudnnDevice& device, cudnnBackendDescriptor_t configuration,
                                   std::size_t most_workspace) {
  if (!will_do(configuration)) return std::nullopt;
  CudnnPlan plan{CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, &configuration);
  device.put_into_plan(plan.descriptor);
  if (!plan.descriptor.try_finalize()) return std::nullopt;
  std::int64_t count = 0, bytes = 0;
  check_cudnn(cudnnBackendGetAttribute(plan.descriptor.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &bytes),
              "asking for a plan's workspace");
  plan.workspace = static_cast<std::size_t>(bytes);
  if (plan.workspace > most_workspace) return std::nullopt;
  return plan;
}

}  // namespace

bool cudnn_engine_will_do(std::span<const cudnnBackendNumericalNote_t> notes) noexcept {
  return std::ranges::count(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) > 0 &&
         std::ranges::all_of(notes, [](cudnnBackendNumericalNote_t note) {
           return note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
         });
}

void check_cudnn(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("cuDNN, {}: {}", what, cudnnGetErrorString(status)));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check_cudnn(cudnnBackendCreateDescriptor(type, &made), "making a descriptor");
  descriptor_.reset(made);
}

CudnnDescriptor& CudnnDescriptor::set_any(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          const void* values, std::int64_t count) {
  check_cudnn(cudnnBackendSetAttribute(get(), name, type, count, values),
              fmt::format("setting attribute {}", static_cast<int>(name)));
  return *this;
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  cudnnBackendDescriptor_t value = other.get();
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  check_cudnn(cudnnBackendFinalize(get()), "completing a descriptor");
  return *this;
}

CudnnDevice::CudnnDevice(const std::string& description) : properties_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) {
  properties_
      ->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, description.c_str(),
            static_cast<std::int64_t>(description.size()))
      .finalize();
}

void CudnnDevice::put_into_graph(CudnnDescriptor& graph) const {
  if (handle_ != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle_);
}

void CudnnDevice::put_into_heuristics(CudnnDescriptor& heuristics) const {
  if (properties_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
}

void CudnnDevice::put_into_plan(CudnnDescriptor& plan) const {
  if (handle_ != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle_);
  if (properties_) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
}

CudnnProblem::Key CudnnProblem::key() const noexcept { return {kind, images, numbers_of(shape)}; }

bool CudnnGraph::try_append(CudnnDescriptor operation) {
  if (!operation.try_finalize()) return false;
  operations_.push_back(keep(std::move(operation)).get());
  return true;
}

std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace,
                                        std::size_t most) {
  std::vector<CudnnPlan> plans;
  CudnnDescriptor& whole = graph.keep(CudnnDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  whole.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.operations_.data(),
            static_cast<std::int64_t>(graph.operations_.size()));
  device.put_into_graph(whole);
  if (!whole.try_finalize()) return plans;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    device.put_into_heuristics(heuristics);
    if (!heuristics.try_finalize()) continue;
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         0, &count, nullptr),
                "counting engines");
    std::vector<CudnnDescriptor> configurations;
    std::vector<cudnnBackendDescriptor_t> workspace;
    for (std::int64_t i = 0; i < count; ++i) {
      workspace.push_back(configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    }
    if (workspace.empty()) continue;
    for (const cudnnBackendDescriptor_t each : list_of(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, std::move(workspace))) {
      if (plans.size() == most) break;
      if (auto plan = plan_from(device, each, most_workspace)) plans.push_back(std::move(*plan));
    }
    if (plans.empty()) continue;
    const auto made_of = std::make_shared<std::vector<CudnnDescriptor>>(std::move(configurations));
    made_of->push_back(std::move(heuristics));
    std::ranges::move(graph.parts_, std::back_inserter(*made_of));
    for (CudnnPlan& plan : plans) plan.made_of = made_of;
    break;
  }
  return plans;
}

std::vector<CudnnPlan> find_cudnn_plans(const CudnnDevice& device, const CudnnProblem& problem,
                                        std::size_t most_workspace, std::size_t most) {
  const Convolution& shape = problem.shape;
  const std::size_t directions = directions_of(shape);
  CudnnGraph graph;
  const auto keep_tensor = [&](std::int64_t name, std::int64_t count, const ImageShape& image) -> CudnnDescriptor& {
    return graph.keep(tensor_of(name, count, image, directions, CUDNN_DATA_BFLOAT16));
  };
  const CudnnDescriptor& images = keep_tensor(kCudnnImages, problem.images, shape.in);
  const CudnnDescriptor& filters = keep_tensor(kCudnnFilters, shape.out.channels,
                                               {.height = shape.window.height.size,
                                                .width = shape.window.width.size,
                                                .channels = shape.in.channels,
                                                .depth = shape.window.depth.size});
  const CudnnDescriptor& output = keep_tensor(kCudnnOutput, problem.images, shape.out);
  const CudnnDescriptor& window = graph.keep(window_of(shape.window, directions));
  const Names names = names_of(problem.kind);
  const float alpha = 1, beta = 0;  // must be float like the sums: of doubles cuDNN would read only half
  CudnnDescriptor operation(names.operation);
  operation.set(names.images, images)
      .set(names.filters, filters)
      .set(names.output, output)
      .set(names.window, window)
      .set(names.alpha, CUDNN_TYPE_FLOAT, &alpha)
      .set(names.beta, CUDNN_TYPE_FLOAT, &beta);
  if (!graph.try_append(std::move(operation))) return {};
  return find_cudnn_plans(device, std::move(graph), most_workspace, most);
}

namespace {

std::optional<CudnnPlan> first_of(std::vector<CudnnPlan> plans) {
  if (plans.empty()) return std::nullopt;
  return std::move(plans.front());
}

}  // namespace

std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, CudnnGraph graph, std::size_t most_workspace) {
  return first_of(find_cudnn_plans(device, std::move(graph), most_workspace, 1));
}

std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnProblem& problem,
                                         std::size_t most_workspace) {
  return first_of(find_cudnn_plans(device, problem, most_workspace, 1));
}

}  // namespace lockstep::model::cuda
