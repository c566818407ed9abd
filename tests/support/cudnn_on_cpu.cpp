#include "support/cudnn_on_cpu.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <cudnn.h>

#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/formulas/bfloat16.hpp"
#include "support/runtime_on_cpu.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using lockstep::test::MemoryAccess;

std::vector<std::string> the_convolution_refusals;
int the_convolutions = 0, the_graphs = 0;
bool convolutions_are_refused = false;
bool sums_in_any_order_are_allowed = false, first_engine_is_slow = false, first_engine_fails = false;

cudnnStatus_t refuse_call(cudnnStatus_t status, std::string why) {
  the_convolution_refusals.push_back(std::move(why));
  return status;
}

/// The kinds of our engines, in the order in which they are proposed.
enum class Engine : std::int64_t { does_not_repeat, rounds_sums, wants_too_much, will_do, will_do_too };
constexpr std::int64_t kWorkspaceOfEngine[] = {0, 0, std::int64_t{1} << 40, 4096, 4352};

Engine last_engine = Engine::will_do;

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::vector<std::byte> bytes;
};
/// The content of cudnnBackendDescriptor_t.
struct BackendDescriptor {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};
  Engine engine = Engine::will_do;           ///< engine of configurations and of engine queries
  const BackendDescriptor* graph = nullptr;  ///< graph of configurations and of engine queries
};
/// All existing descriptors.
std::set<const BackendDescriptor*>& living() {
  static std::set<const BackendDescriptor*>& all = *new std::set<const BackendDescriptor*>;
  return all;
}

std::size_t bytes_of_attribute(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_FLOAT:
      return 4;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 0;
  }
}

/// Required type and count of an attribute; 0: any count.
struct Rule {
  cudnnBackendAttributeType_t type;
  std::int64_t count;
  bool optional = false;
};
using Rules = std::map<cudnnBackendAttributeName_t, Rule>;

struct OperationNames {
  cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
};
std::optional<OperationNames> names_of_operation(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return OperationNames{
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return OperationNames{
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return OperationNames{
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return std::nullopt;
  }
}

/// The attributes that may be set; all are required except the optional ones.
Rules rules_of(cudnnBackendDescriptorType_t type) {
  if (const auto names = names_of_operation(type)) {
    return {{names->x, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}, {names->w, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
            {names->y, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}, {names->window, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
            {names->alpha, {CUDNN_TYPE_FLOAT, 1}},          {names->beta, {CUDNN_TYPE_FLOAT, 1}}};
  }
  switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {{CUDNN_ATTR_TENSOR_DATA_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_TENSOR_STRIDES, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_TENSOR_UNIQUE_ID, {CUDNN_TYPE_INT64, 1}},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {CUDNN_TYPE_INT64, 1}},
              {CUDNN_ATTR_TENSOR_IS_VIRTUAL, {CUDNN_TYPE_BOOLEAN, 1, true}},
              {CUDNN_ATTR_TENSOR_IS_BY_VALUE, {CUDNN_TYPE_BOOLEAN, 1, true}}};
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      return {{CUDNN_ATTR_MATMUL_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}}};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_MATMUL_BDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_MATMUL_CDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_MATMUL_DESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_POINTWISE_MODE, {CUDNN_TYPE_POINTWISE_MODE, 1}},
              {CUDNN_ATTR_POINTWISE_MATH_PREC, {CUDNN_TYPE_DATA_TYPE, 1}},
              {CUDNN_ATTR_POINTWISE_AXIS, {CUDNN_TYPE_INT64, 1, true}}};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true}},
              {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true}},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}};
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      return {{CUDNN_ATTR_REDUCTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}},
              {CUDNN_ATTR_REDUCTION_OPERATOR, {CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1}}};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}}};
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}},
              {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1}},
              {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {CUDNN_TYPE_INT64, 1}},
              {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_CONVOLUTION_DILATIONS, {CUDNN_TYPE_INT64, 0}}};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 0}},
              {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE, 1}}};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE, 1}}};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}},
              {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE, 1}}};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {CUDNN_TYPE_INT64, 0}},
              {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, 0}},
              {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR, 1}}};
    default:
      return {};
  }
}

BackendDescriptor* as_descriptor(cudnnBackendDescriptor_t it) { return static_cast<BackendDescriptor*>(it); }

template <class T>
std::vector<T> values_of(const BackendDescriptor& it, cudnnBackendAttributeName_t name) {
  const Attribute& attribute = it.attributes.at(name);
  std::vector<T> values(attribute.bytes.size() / sizeof(T));
  std::memcpy(values.data(), attribute.bytes.data(), attribute.bytes.size());
  return values;
}
template <class T>
T value_of(const BackendDescriptor& it, cudnnBackendAttributeName_t name) {
  return values_of<T>(it, name).front();
}
const BackendDescriptor& descriptor_in(const BackendDescriptor& it, cudnnBackendAttributeName_t name) {
  return *as_descriptor(value_of<cudnnBackendDescriptor_t>(it, name));
}

/// Returns a fault; null if all descriptors that this one refers to, directly or indirectly, exist and are finalized.
const char* obstacle_to_use(const BackendDescriptor& it) {
  if (!it.finalized) return "a descriptor that is not finalized";
  if (it.graph != nullptr && !living().contains(it.graph)) return "a descriptor that was destroyed";
  for (const auto& [name, attribute] : it.attributes) {
    if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    for (const cudnnBackendDescriptor_t each : values_of<cudnnBackendDescriptor_t>(it, name)) {
      const BackendDescriptor& other = *as_descriptor(each);
      if (!living().contains(&other)) return "a descriptor that was destroyed";
      if (const char* const obstacle = obstacle_to_use(other)) return obstacle;
    }
  }
  return it.graph == nullptr ? nullptr : obstacle_to_use(*it.graph);
}

/// [batch or out channels, channels, height, width].
using Extents4 = std::array<std::int64_t, 4>;
struct TensorView {
  Extents4 extents{}, strides{};
  std::int64_t depth = 1, depth_stride = 0;  ///< the third dimension, only of volumes
  std::int64_t name = 0, alignment = 1;
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  bool is_virtual = false, is_by_value = false;

  /// Number of elements, including gaps between them.
  std::size_t elements() const {
    std::int64_t last = (depth - 1) * depth_stride;
    for (std::size_t i = 0; i < 4; ++i) last += (extents[i] - 1) * strides[i];
    return static_cast<std::size_t>(last + 1);
  }
  std::size_t bytes() const { return elements() * (type == CUDNN_DATA_BFLOAT16 ? 2 : 4); }
  std::size_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t d = 0) const {
    return static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3] +
                                    d * depth_stride);
  }
};
bool is_set(const BackendDescriptor& it, cudnnBackendAttributeName_t name) {
  const auto found = it.attributes.find(name);
  return found != it.attributes.end() && found->second.bytes.front() != std::byte{0};
}
TensorView tensor_view(const BackendDescriptor& it) {
  TensorView view{.name = value_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_UNIQUE_ID),
                  .alignment = value_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                  .type = value_of<cudnnDataType_t>(it, CUDNN_ATTR_TENSOR_DATA_TYPE),
                  .is_virtual = is_set(it, CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                  .is_by_value = is_set(it, CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
  auto dimensions = values_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_DIMENSIONS),
       strides = values_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_STRIDES);
  if (dimensions.size() == 5) {
    view.depth = dimensions[2];
    view.depth_stride = strides[2];
    dimensions.erase(dimensions.begin() + 2);
    strides.erase(strides.begin() + 2);
  }
  std::ranges::copy(dimensions, view.extents.begin());
  std::ranges::copy(strides, view.strides.begin());
  return view;
}

/// Depth, height, width.
struct WindowView {
  std::vector<std::int64_t> before, after, strides, dilations;
};
struct ConvolutionView {
  cudnnBackendDescriptorType_t kind{};
  TensorView x, w, y;
  WindowView window;
};
ConvolutionView convolution_view(const BackendDescriptor& operation) {
  const OperationNames names = *names_of_operation(operation.type);
  const BackendDescriptor& window = descriptor_in(operation, names.window);
  const auto directions = [&](cudnnBackendAttributeName_t name, std::int64_t of_depth) {
    auto values = values_of<std::int64_t>(window, name);
    if (values.size() == 2) values.insert(values.begin(), of_depth);
    return values;
  };
  return {.kind = operation.type,
          .x = tensor_view(descriptor_in(operation, names.x)),
          .w = tensor_view(descriptor_in(operation, names.w)),
          .y = tensor_view(descriptor_in(operation, names.y)),
          .window = {.before = directions(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
                     .after = directions(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0),
                     .strides = directions(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1),
                     .dilations = directions(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1)}};
}

bool overlaps(const TensorView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> directions{{view.depth_stride, view.depth}};  // stride, extent
  for (std::size_t i = 0; i < 4; ++i) directions.emplace_back(view.strides[i], view.extents[i]);
  std::ranges::sort(directions);
  std::int64_t least = 1;
  for (const auto& [stride, extent] : directions) {
    if (extent > 1 && stride < least) return true;
    least = std::max(least, stride * extent);
  }
  return false;
}
const char* obstacle_in_tensor(const BackendDescriptor& it) {
  const auto dimensions = values_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_DIMENSIONS);
  if ((dimensions.size() != 4 && dimensions.size() != 5) ||
      values_of<std::int64_t>(it, CUDNN_ATTR_TENSOR_STRIDES).size() != dimensions.size()) {
    return "another number of an attribute's values";
  }
  return std::ranges::any_of(dimensions, [](std::int64_t extent) { return extent < 1; }) ? "an empty tensor" : nullptr;
}
const char* obstacle_in_window(const BackendDescriptor& it) {
  const auto directions = value_of<std::int64_t>(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                          CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
    if (static_cast<std::int64_t>(values_of<std::int64_t>(it, name).size()) != directions) {
      return "another number of an attribute's values";
    }
  }
  return value_of<cudnnDataType_t>(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
                 value_of<cudnnConvolutionMode_t>(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
                 (directions != 2 && directions != 3)
             ? "a window that is not understood here"
             : nullptr;
}
const char* obstacle_in_operation(const BackendDescriptor& it) {
  const auto [kind, x, w, y, window] = convolution_view(it);
  const OperationNames names = *names_of_operation(it.type);
  if (value_of<float>(it, names.alpha) != 1 || value_of<float>(it, names.beta) != 0) return "factors other than 1, 0";
  if (x.extents[0] != y.extents[0] || x.extents[1] != w.extents[1] || y.extents[1] != w.extents[0]) {
    return "numbers of images or channels that do not fit together";
  }
  for (const auto name : {names.x, names.w, names.y}) {
    const TensorView tensor = tensor_view(descriptor_in(it, name));
    if (tensor.type != CUDNN_DATA_BFLOAT16) return "a tensor of another type than bfloat16";
    if (overlaps(tensor)) return "a tensor whose elements overlap";
  }
  const std::size_t dimensions =
      values_of<std::int64_t>(descriptor_in(it, names.window), CUDNN_ATTR_CONVOLUTION_DILATIONS).size() + 2;
  for (const auto name : {names.x, names.w, names.y}) {
    if (values_of<std::int64_t>(descriptor_in(it, name), CUDNN_ATTR_TENSOR_DIMENSIONS).size() != dimensions) {
      return "a tensor with other directions than the window";
    }
  }
  const auto extents = [](const TensorView& view) { return std::array{view.depth, view.extents[2], view.extents[3]}; };
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = (extents(w)[i] - 1) * window.dilations[i] + 1,
                       room = extents(x)[i] + window.before[i] + window.after[i] - reach;
    if (room < 0 || room / window.strides[i] + 1 != extents(y)[i]) {
      return "an output that is not what window, strides and paddings make of the images";
    }
  }
  return nullptr;
}
const char* obstacle_in_graph(const BackendDescriptor& it);
const char* obstacle_in(const BackendDescriptor& it) {
  switch (it.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return obstacle_in_tensor(it);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return obstacle_in_window(it);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return values_of<std::int64_t>(it, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() !=
                     values_of<void*>(it, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()
                 ? "more names than pointers"
                 : nullptr;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return obstacle_in_graph(it);
    default:
      return names_of_operation(it.type) ? obstacle_in_operation(it) : nullptr;
  }
}

double number_in(const void* data, std::size_t index) {
  const auto bits = static_cast<const std::uint16_t*>(data)[index];
  return static_cast<double>(lockstep::model::formulas::from_bfloat16_bits(bits));
}
void put_number(double value, void* data, std::size_t index) {
  static_cast<std::uint16_t*>(data)[index] = lockstep::model::formulas::bfloat16_bits(static_cast<float>(value));
}

/// Calls visit(y's index, w's index, x's index) for every product of a term.
template <class Visit>
void each_term(const ConvolutionView& of, const Visit& visit) {
  const auto& [kind, x, w, y, window] = of;
  // The index in the images for an index of the output and one of the window; negative: in the padding.
  const auto met = [&](std::size_t i, std::int64_t out, std::int64_t in_window, std::int64_t extent) {
    const std::int64_t at = out * window.strides[i] + in_window * window.dilations[i] - window.before[i];
    return at < extent ? at : -1;
  };
  for (std::int64_t n = 0; n < y.extents[0]; ++n) {
    for (std::int64_t o = 0; o < y.extents[1]; ++o) {
      for (std::int64_t k = 0; k < y.depth * w.depth; ++k) {
        const std::int64_t l = k / w.depth, r = k % w.depth, d = met(0, l, r, x.depth);
        if (d < 0) continue;
        for (std::int64_t i = 0; i < y.extents[2]; ++i) {
          for (std::int64_t j = 0; j < y.extents[3]; ++j) {
            for (std::int64_t p = 0; p < w.extents[2]; ++p) {
              const std::int64_t h = met(1, i, p, x.extents[2]);
              if (h < 0) continue;
              for (std::int64_t q = 0; q < w.extents[3]; ++q) {
                const std::int64_t v = met(2, j, q, x.extents[3]);
                if (v < 0) continue;
                for (std::int64_t c = 0; c < x.extents[1]; ++c) {
                  visit(y.at(n, o, i, j, l), w.at(o, c, p, q, r), x.at(n, c, h, v, d));
                }
              }
            }
          }
        }
      }
    }
  }
}

void convolve(const ConvolutionView& of, void* x, void* w, void* y) {
  const bool forward = of.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
             filters = of.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  const TensorView& written = forward ? of.y : filters ? of.w : of.x;
  void* const to = forward ? y : filters ? w : x;
  std::vector<double> sums(written.bytes() / sizeof(std::uint16_t));
  each_term(of, [&](std::size_t in_y, std::size_t in_w, std::size_t in_x) {
    if (forward) {
      sums[in_y] += number_in(w, in_w) * number_in(x, in_x);
    } else if (filters) {
      sums[in_w] += number_in(y, in_y) * number_in(x, in_x);
    } else {
      sums[in_x] += number_in(y, in_y) * number_in(w, in_w);
    }
  });
  const Extents4& all = written.extents;
  for (std::int64_t n = 0; n < all[0]; ++n) {
    for (std::int64_t c = 0; c < all[1]; ++c) {
      for (std::int64_t h = 0; h < all[2]; ++h) {
        for (std::int64_t v = 0; v < all[3]; ++v) {
          for (std::int64_t d = 0; d < written.depth; ++d) {
            const std::size_t at = written.at(n, c, h, v, d);
            put_number(sums[at], to, at);
          }
        }
      }
    }
  }
}

// ---- graphs of several operations ----

/// A tensor whose strides give the addresses of its elements, even if it is internal.
struct GraphTensor {
  TensorView view;
  void* data = nullptr;             ///< in memory; null: internal
  std::vector<double> values = {};  ///< values while the graph is computed
  bool written = false;             ///< an operation has written it
  bool added = false;               ///< blocks add to its former values in any order
};
using GraphTensors = std::map<std::int64_t, GraphTensor>;

/// Calls visit(n, h, i, j) for each element.
template <class Visit>
void each_element(const Extents4& of, const Visit& visit) {
  for (std::int64_t n = 0; n < of[0]; ++n) {
    for (std::int64_t h = 0; h < of[1]; ++h) {
      for (std::int64_t i = 0; i < of[2]; ++i) {
        for (std::int64_t j = 0; j < of[3]; ++j) visit(n, h, i, j);
      }
    }
  }
}

struct GraphOperation {
  cudnnBackendDescriptorType_t type{};
  cudnnPointwiseMode_t mode{};
  cudnnReduceTensorOp_t reduction{};
  std::int64_t axis = -1;
  std::vector<std::int64_t> reads = {};  ///< names of tensors
  std::int64_t writes = 0;
};

struct Graph {
  std::vector<GraphOperation> operations;
  GraphTensors tensors;
};
Graph graph_view(const BackendDescriptor& it) {
  Graph graph;
  for (const auto each : values_of<cudnnBackendDescriptor_t>(it, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const BackendDescriptor& operation = *as_descriptor(each);
    GraphOperation made{.type = operation.type};
    const auto tensor = [&](cudnnBackendAttributeName_t name) {
      const TensorView view = tensor_view(descriptor_in(operation, name));
      graph.tensors.try_emplace(view.name, GraphTensor{.view = view});
      return view.name;
    };
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        made.reads = {tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC), tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC)};
        made.writes = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        break;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
        const BackendDescriptor& pass = descriptor_in(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        made.mode = value_of<cudnnPointwiseMode_t>(pass, CUDNN_ATTR_POINTWISE_MODE);
        if (pass.attributes.contains(CUDNN_ATTR_POINTWISE_AXIS)) {
          made.axis = value_of<std::int64_t>(pass, CUDNN_ATTR_POINTWISE_AXIS);
        }
        for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                CUDNN_ATTR_OPERATION_POINTWISE_TDESC}) {
          if (operation.attributes.contains(name)) made.reads.push_back(tensor(name));
        }
        made.writes = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        break;
      }
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        made.reduction = value_of<cudnnReduceTensorOp_t>(descriptor_in(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                                                         CUDNN_ATTR_REDUCTION_OPERATOR);
        made.reads = {tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)};
        made.writes = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        break;
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        made.reads = {tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)};
        made.writes = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        break;
      default:
        break;
    }
    GraphTensor& result = graph.tensors.at(made.writes);
    result.written = true;
    result.added = made.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !result.view.is_virtual &&
                   result.view.type != CUDNN_DATA_BFLOAT16;
    graph.operations.push_back(std::move(made));
  }
  return graph;
}

bool spreads_to(const Extents4& from, const Extents4& to) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (from[i] != to[i] && from[i] != 1) return false;
  }
  return true;
}

const char* obstacle_in_graph(const BackendDescriptor& it) {
  const auto operations = values_of<cudnnBackendDescriptor_t>(it, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const auto convolves = [](cudnnBackendDescriptor_t each) {
    return names_of_operation(as_descriptor(each)->type).has_value();
  };
  if (std::ranges::any_of(operations, convolves)) {
    return operations.size() == 1 ? nullptr : "a convolution among other operations";
  }
  const Graph graph = graph_view(it);
  std::set<std::int64_t> known;
  for (const auto& [name, tensor] : graph.tensors) {
    if (overlaps(tensor.view)) return "a tensor whose elements overlap";
    if (!tensor.written && tensor.view.is_virtual) return "a tensor that nothing writes";
    if (!tensor.written) known.insert(name);
  }
  for (const GraphOperation& operation : graph.operations) {
    const TensorView& y = graph.tensors.at(operation.writes).view;
    for (const std::int64_t name : operation.reads) {
      if (!known.contains(name)) return "a tensor that is read before it is written";
    }
    if (!known.insert(operation.writes).second) return "a tensor that is written twice";
    const TensorView& x = graph.tensors.at(operation.reads[0]).view;
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: {
        const TensorView& b = graph.tensors.at(operation.reads[1]).view;
        if (x.type != CUDNN_DATA_BFLOAT16 || b.type != CUDNN_DATA_BFLOAT16) return "a product of other types";
        if (graph.tensors.at(operation.writes).added && !sums_in_any_order_are_allowed) {
          return "a product that blocks add up in any order";
        }
        if (x.extents[3] != b.extents[2] ||
            y.extents != Extents4{x.extents[0], x.extents[1], x.extents[2], b.extents[3]} ||
            b.extents[0] != x.extents[0] || b.extents[1] != x.extents[1]) {
          return "a product of matrices that do not fit together";
        }
        break;
      }
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        if (y.extents != Extents4{x.extents[0], x.extents[1], x.extents[2], 1}) return "a sum of other than rows";
        break;
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        if (x.elements() != y.elements()) return "another number of elements";
        break;
      default:
        for (const std::int64_t name : operation.reads) {
          if (!spreads_to(graph.tensors.at(name).view.extents, y.extents)) return "tensors that do not fit together";
        }
    }
  }
  return nullptr;
}

double passed(const GraphOperation& operation, const std::array<double, 3>& in,
              const std::array<std::int64_t, 4>& place) {
  switch (operation.mode) {
    case CUDNN_POINTWISE_IDENTITY:
      return in[0];
    case CUDNN_POINTWISE_ADD:
      return in[0] + in[1];
    case CUDNN_POINTWISE_SUB:
      return in[0] - in[1];
    case CUDNN_POINTWISE_MUL:
      return in[0] * in[1];
    case CUDNN_POINTWISE_DIV:
      return in[0] / in[1];
    case CUDNN_POINTWISE_EXP:
      return std::exp(in[0]);
    case CUDNN_POINTWISE_LOG:
      return std::log(in[0]);
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<double>(place.at(static_cast<std::size_t>(operation.axis)));
    case CUDNN_POINTWISE_CMP_GE:
      return in[0] >= in[1] ? 1 : 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return in[2] != 0 ? in[0] : in[1];
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double rounded(const TensorView& to, double value) {
  if (to.type == CUDNN_DATA_BFLOAT16) {
    const auto bits = lockstep::model::formulas::bfloat16_bits(static_cast<float>(value));
    return static_cast<double>(lockstep::model::formulas::from_bfloat16_bits(bits));
  }
  return value;
}

void compute(const GraphOperation& operation, GraphTensors& tensors) {
  const auto at = [](const GraphTensor& tensor, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Extents4& of = tensor.view.extents;  // one element stands for its whole row
    return tensor
        .values[tensor.view.at(of[0] == 1 ? 0 : n, of[1] == 1 ? 0 : h, of[2] == 1 ? 0 : i, of[3] == 1 ? 0 : j)];
  };
  GraphTensor& y = tensors.at(operation.writes);
  const GraphTensor& x = tensors.at(operation.reads[0]);
  if (!y.added) y.values.assign(y.view.elements(), 0);
  if (operation.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
    std::ranges::transform(x.values, y.values.begin(), [&](double value) { return rounded(y.view, value); });
    return;
  }
  each_element(y.view.extents, [&](std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
    double value = y.added ? y.values[y.view.at(n, h, i, j)] : 0;
    if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      const GraphTensor& b = tensors.at(operation.reads[1]);
      for (std::int64_t k = 0; k < x.view.extents[3]; ++k) value += at(x, n, h, i, k) * at(b, n, h, k, j);
    } else if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      const bool adds = operation.reduction == CUDNN_REDUCE_TENSOR_ADD;
      value = adds ? 0 : -std::numeric_limits<double>::infinity();
      for (std::int64_t k = 0; k < x.view.extents[3]; ++k) {
        value = adds ? value + at(x, n, h, i, k) : std::max(value, at(x, n, h, i, k));
      }
    } else {
      std::array<double, 3> in{};
      for (std::size_t k = 0; k < operation.reads.size(); ++k) {
        in[k] = at(tensors.at(operation.reads[k]), n, h, i, j);
      }
      value = passed(operation, in, {n, h, i, j});
    }
    y.values[y.view.at(n, h, i, j)] = rounded(y.view, value);
  });
}

void compute(Graph& graph) {
  for (auto& [name, tensor] : graph.tensors) {
    if ((tensor.written && !tensor.added) || tensor.view.is_by_value) continue;
    tensor.values.assign(tensor.view.elements(), 0);
    each_element(tensor.view.extents, [&](auto... place) {
      const std::size_t index = tensor.view.at(place...);
      tensor.values[index] = tensor.view.type == CUDNN_DATA_BFLOAT16
                                 ? number_in(tensor.data, index)
                                 : static_cast<double>(static_cast<const float*>(tensor.data)[index]);
    });
  }
  for (const GraphOperation& operation : graph.operations) compute(operation, graph.tensors);
  for (auto& [name, tensor] : graph.tensors) {
    if (!tensor.written || tensor.view.is_virtual) continue;
    each_element(tensor.view.extents, [&](auto... place) {
      const std::size_t index = tensor.view.at(place...);
      if (tensor.view.type == CUDNN_DATA_BFLOAT16) return put_number(tensor.values[index], tensor.data, index);
      static_cast<float*>(tensor.data)[index] = static_cast<float>(tensor.values[index]);
    });
  }
}

}  // namespace

namespace lockstep::test {

int take_graphs() { return std::exchange(the_graphs, 0); }
std::vector<std::string> take_convolution_refusals() { return std::exchange(the_convolution_refusals, {}); }
int take_convolutions() { return std::exchange(the_convolutions, 0); }
void refuse_convolutions(bool refuse) { convolutions_are_refused = refuse; }
void slow_first_engine_down(bool slow) { first_engine_is_slow = slow; }
void let_first_engine_fail(bool fail) { first_engine_fails = fail; }
bool last_engine_was_the_first() { return last_engine == Engine::will_do; }
void allow_sums_in_any_order(bool allow) { sums_in_any_order_are_allowed = allow; }

}  // namespace lockstep::test

namespace lockstep::model::cuda {

std::string cudnn_obstacle() { return ""; }

}  // namespace lockstep::model::cuda

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) {
  return the_convolution_refusals.empty() ? "cuDNN on the CPU" : the_convolution_refusals.back().c_str();
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return *handle = new cudnnContext, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return delete handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  auto* const it = new BackendDescriptor{.type = type};
  living().insert(it);
  return *made = it, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t it) {
  living().erase(as_descriptor(it));
  return delete as_descriptor(it), CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t it, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  BackendDescriptor& descriptor = *as_descriptor(it);
  const Rules rules = rules_of(descriptor.type);
  const auto rule = rules.find(name);
  if (descriptor.finalized) return refuse_call(CUDNN_STATUS_NOT_INITIALIZED, "an attribute of a finalized descriptor");
  if (rule == rules.end() || rule->second.type != type || count < 1) {
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "an attribute of another type, or none that is known");
  }
  const auto* const begin = static_cast<const std::byte*>(elements);
  descriptor.attributes[name] = {type, {begin, begin + static_cast<std::size_t>(count) * bytes_of_attribute(type)}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t it) {
  BackendDescriptor& descriptor = *as_descriptor(it);
  for (const auto& [name, rule] : rules_of(descriptor.type)) {
    const auto found = descriptor.attributes.find(name);
    if (found == descriptor.attributes.end() && rule.optional) continue;
    if (found == descriptor.attributes.end()) {
      return refuse_call(CUDNN_STATUS_BAD_PARAM, "a descriptor that lacks attribute " + std::to_string(name));
    }
    if (rule.count > 0 &&
        found->second.bytes.size() != static_cast<std::size_t>(rule.count) * bytes_of_attribute(rule.type)) {
      return refuse_call(CUDNN_STATUS_BAD_PARAM, "another number of an attribute's values");
    }
  }
  descriptor.finalized = true;
  if (const char* const obstacle = obstacle_to_use(descriptor)) {
    descriptor.finalized = false;
    return refuse_call(CUDNN_STATUS_BAD_PARAM, obstacle);
  }
  if (const char* const obstacle = obstacle_in(descriptor)) {
    descriptor.finalized = false;
    return refuse_call(CUDNN_STATUS_BAD_PARAM, obstacle);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t it, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                                       void* elements) {
  const BackendDescriptor& descriptor = *as_descriptor(it);
  if (!descriptor.finalized) return refuse_call(CUDNN_STATUS_NOT_INITIALIZED, "a descriptor that is not finalized");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) break;
      const bool usual = value_of<cudnnBackendHeurMode_t>(descriptor, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
      *count = convolutions_are_refused || !usual ? 0 : 5;
      for (std::int64_t i = 0; i < std::min(wanted, *count); ++i) {
        BackendDescriptor& to = *as_descriptor(static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
        if (to.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) break;
        to.engine = static_cast<Engine>(i);
        to.graph = &descriptor_in(descriptor, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        to.finalized = true;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      BackendDescriptor& to = *as_descriptor(*static_cast<cudnnBackendDescriptor_t*>(elements));
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || wanted != 1 || to.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      to.engine = descriptor.engine;
      to.finalized = true;
      return *count = 1, CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      if (type != CUDNN_TYPE_NUMERICAL_NOTE) break;
      const Engine engine = descriptor.engine;
      const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                   engine == Engine::does_not_repeat
                                                       ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                       : CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
      *count = engine == Engine::does_not_repeat || engine == Engine::rounds_sums ? 2 : 1;
      std::memcpy(elements, notes, static_cast<std::size_t>(std::min(wanted, *count)) * sizeof notes[0]);
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: {
      if (type != CUDNN_TYPE_INT64 || wanted != 1) break;
      const Engine engine = descriptor_in(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
      std::memcpy(elements, &kWorkspaceOfEngine[static_cast<std::size_t>(engine)], sizeof(std::int64_t));
      return *count = 1, CUDNN_STATUS_SUCCESS;
    }
    default:
      break;
  }
  return refuse_call(CUDNN_STATUS_BAD_PARAM, "a question of another type or number, or none that is known");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_it,
                                  cudnnBackendDescriptor_t pack_it) {
  const BackendDescriptor &plan = *as_descriptor(plan_it), &pack = *as_descriptor(pack_it);
  for (const BackendDescriptor* const each : {&plan, &pack}) {
    if (const char* const obstacle = obstacle_to_use(*each)) return refuse_call(CUDNN_STATUS_BAD_PARAM, obstacle);
  }
  if (value_of<cudnnHandle_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle) {
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "a plan of another handle");
  }
  const BackendDescriptor& configuration = descriptor_in(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (configuration.engine == Engine::does_not_repeat || configuration.engine == Engine::rounds_sums) {
    return refuse_call(CUDNN_STATUS_NOT_SUPPORTED, "a plan of an engine that does not repeat or rounds its sums");
  }
  const auto names = values_of<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = values_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::vector<MemoryAccess> accesses;
  /// Returns the address of a tensor; if it is missing or less aligned than described, null and a refusal.
  const auto find = [&](const TensorView& tensor, bool is_written) -> void* {
    const auto at = std::ranges::find(names, tensor.name);
    if (at == names.end()) return refuse_call(CUDNN_STATUS_BAD_PARAM, "a tensor without a pointer"), nullptr;
    void* const found = pointers[static_cast<std::size_t>(at - names.begin())];
    if (tensor.is_by_value) return found;
    if (reinterpret_cast<std::uintptr_t>(found) % static_cast<std::uintptr_t>(tensor.alignment) != 0) {
      return refuse_call(CUDNN_STATUS_BAD_PARAM, "a pointer that is less aligned than its tensor says"), nullptr;
    }
    accesses.push_back({found, tensor.bytes(), is_written});
    return found;
  };
  const auto bytes = static_cast<std::size_t>(kWorkspaceOfEngine[static_cast<std::size_t>(configuration.engine)]);
  void* const workspace = value_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  std::function<void()> work;
  const BackendDescriptor& first = descriptor_in(*configuration.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const bool convolves = names_of_operation(first.type).has_value();
  if (convolves) {
    const ConvolutionView of = convolution_view(first);
    const bool forward = of.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               filters = of.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    void* const x = find(of.x, !forward && !filters);
    void* const w = x == nullptr ? nullptr : find(of.w, filters);
    void* const y = w == nullptr ? nullptr : find(of.y, forward);
    if (y == nullptr) return CUDNN_STATUS_BAD_PARAM;
    work = [=] { convolve(of, x, w, y); };
  } else {
    Graph graph = graph_view(*configuration.graph);
    for (auto& [name, tensor] : graph.tensors) {
      if (tensor.view.is_virtual) continue;
      tensor.data = find(tensor.view, tensor.written);
      if (tensor.data == nullptr) return CUDNN_STATUS_BAD_PARAM;
      // A value in host memory, which may not exist any more when the graph is computed.
      if (tensor.view.is_by_value) tensor.values = {static_cast<double>(*static_cast<const float*>(tensor.data))};
    }
    work = [graph = std::move(graph)]() mutable { compute(graph); };
  }
  if (bytes > 0 && workspace == nullptr) return refuse_call(CUDNN_STATUS_BAD_PARAM, "a workspace that is missing");
  if (bytes > 0) accesses.push_back({workspace, bytes, true});
  if (first_engine_fails && configuration.engine == Engine::will_do) return CUDNN_STATUS_EXECUTION_FAILED;
  ++(convolves ? the_convolutions : the_graphs);
  last_engine = configuration.engine;
  const bool pauses = first_engine_is_slow && configuration.engine == Engine::will_do;
  const cudaError_t error =
      lockstep::test::enqueue_on_cpu(handle->stream, convolves ? "a convolution" : "a graph of cuDNN",
                                     std::move(accesses), [bytes, workspace, pauses, work = std::move(work)] {
                                       if (pauses) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                       if (bytes > 0) std::memset(workspace, 0xff, bytes);
                                       work();
                                     });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
