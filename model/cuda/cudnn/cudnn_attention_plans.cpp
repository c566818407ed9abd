#include "model/cuda/cudnn/cudnn_attention_plans.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "model/device_workspaces.hpp"

namespace lockstep::model::cuda {

namespace {

using Four = std::array<std::int64_t, 4>;

/// Layout of a tensor with dimensions [samples, heads, rows, columns].
struct Layout {
  Four extents, strides;

  Layout transposed() const {
    Layout turned = *this;
    std::swap(turned.extents[2], turned.extents[3]);
    std::swap(turned.strides[2], turned.strides[3]);
    return turned;
  }
};

/// Appends operations to a graph. Tensors that are written and read inside the graph are virtual and have no name.
class AttentionGraph {
 public:
  explicit AttentionGraph(const CudnnAttentionProblem& of) : of_(of) {}

  /// Layout of queries, keys or values: a third of the joint rows.
  Layout joint() const {
    const std::int64_t row = 3 * of_.heads * of_.head_size;
    return {{of_.samples, of_.heads, of_.context, of_.head_size}, {of_.context * row, of_.head_size, row, 1}};
  }
  Layout result() const {
    const std::int64_t row = of_.heads * of_.head_size;
    return {{of_.samples, of_.heads, of_.context, of_.head_size}, {of_.context * row, of_.head_size, row, 1}};
  }
  Layout by_head() const {
    const std::int64_t head = of_.context * of_.head_size;
    return {{of_.samples, of_.heads, of_.context, of_.head_size}, {of_.heads * head, head, of_.head_size, 1}};
  }
  Layout scores() const {
    const std::int64_t square = of_.context * of_.context;
    return {{of_.samples, of_.heads, of_.context, of_.context}, {of_.heads * square, square, of_.context, 1}};
  }
  Layout row_numbers() const {
    return {{of_.samples, of_.heads, of_.context, 1}, {of_.heads * of_.context, of_.context, 1, 1}};
  }

  const CudnnDescriptor& tensor(std::int64_t name, const Layout& layout, cudnnDataType_t type = CUDNN_DATA_BFLOAT16) {
    return make_tensor(name, layout, type, Held::in_memory);
  }
  const CudnnDescriptor& number(std::int64_t name) {
    return make_tensor(name, {{1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, Held::by_value);
  }
  const CudnnDescriptor& inside(const Layout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return make_tensor(next_inside_++, layout, type, Held::nowhere);
  }

  void multiply(const CudnnDescriptor& a, const CudnnDescriptor& b, const CudnnDescriptor& c) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    CudnnDescriptor& product = graph_.keep(CudnnDescriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute).finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    append(std::move(operation));
  }

  struct Operands {
    const CudnnDescriptor& x;
    const CudnnDescriptor* b = nullptr;
    const CudnnDescriptor* chooses = nullptr;
  };
  void pass(cudnnPointwiseMode_t mode, const Operands& of, const CudnnDescriptor& y,
            cudnnDataType_t compute = CUDNN_DATA_FLOAT, std::int64_t axis = -1) {
    CudnnDescriptor& pointwise = graph_.keep(CudnnDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
    if (axis >= 0) pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis);
    pointwise.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of.x)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (of.b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *of.b);
    if (of.chooses != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *of.chooses);
    append(std::move(operation));
  }
  /// The same with a virtual result.
  const CudnnDescriptor& passed(cudnnPointwiseMode_t mode, const Operands& of, const Layout& layout,
                                cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const CudnnDescriptor& y = inside(layout, type);
    pass(mode, of, y);
    return y;
  }

  const CudnnDescriptor& reduced(cudnnReduceTensorOp_t how, const CudnnDescriptor& x) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const CudnnDescriptor& y = inside(row_numbers());
    CudnnDescriptor& reduction = graph_.keep(CudnnDescriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute)
        .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &how)
        .finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    append(std::move(operation));
    return y;
  }

  /// Returns the same elements, in bfloat16, as a transposed matrix.
  const CudnnDescriptor& turned(const CudnnDescriptor& x, const Layout& layout) {
    const CudnnDescriptor& y = inside(layout, CUDNN_DATA_BFLOAT16);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    append(std::move(operation));
    return y;
  }

  /// Returns the scores, with those of keys after the query replaced by minus infinity if attention is causal.
  const CudnnDescriptor& seen_scores(const CudnnDescriptor& x) {
    if (!of_.causal) return x;
    const CudnnDescriptor& masked = number(kCudnnMasked);
    const CudnnDescriptor &row = inside(scores(), CUDNN_DATA_INT32), &column = inside(scores(), CUDNN_DATA_INT32);
    const CudnnDescriptor& seen = inside(scores(), CUDNN_DATA_BOOLEAN);
    pass(CUDNN_POINTWISE_GEN_INDEX, {x}, row, CUDNN_DATA_FLOAT, 2);
    pass(CUDNN_POINTWISE_GEN_INDEX, {x}, column, CUDNN_DATA_FLOAT, 3);
    pass(CUDNN_POINTWISE_CMP_GE, {row, &column}, seen, CUDNN_DATA_BOOLEAN);
    return passed(CUDNN_POINTWISE_BINARY_SELECT, {x, &masked, &seen}, scores());
  }

  /// Returns nullopt if cuDNN refused an operation.
  std::optional<CudnnGraph> graph() && {
    if (refused_) return std::nullopt;
    return std::move(graph_);
  }

 private:
  enum class Held { in_memory, by_value, nowhere };

  const CudnnDescriptor& make_tensor(std::int64_t name, const Layout& layout, cudnnDataType_t type, Held held) {
    const bool is_virtual = held == Held::nowhere, by_value = held == Held::by_value;
    CudnnDescriptor& tensor = graph_.keep(CudnnDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.extents.data(), 4)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.strides.data(), 4)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &kCudnnAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value)
        .finalize();
    return tensor;
  }
  void append(CudnnDescriptor operation) {
    if (!refused_) refused_ = !graph_.try_append(std::move(operation));
  }

  CudnnAttentionProblem of_;
  CudnnGraph graph_;
  std::int64_t next_inside_ = 100;
  bool refused_ = false;
};

std::optional<CudnnGraph> forward_graph(const CudnnAttentionProblem& problem) {
  AttentionGraph graph(problem);
  const Layout scores = graph.scores(), rows = graph.row_numbers();
  const CudnnDescriptor& queries = graph.tensor(kCudnnQueries, graph.joint());
  const CudnnDescriptor& keys = graph.tensor(kCudnnKeys, graph.joint().transposed());
  const CudnnDescriptor& values = graph.tensor(kCudnnValues, graph.joint());
  const CudnnDescriptor& result = graph.tensor(kCudnnResult, graph.result());
  const CudnnDescriptor& log_sums = graph.tensor(kCudnnLogSums, rows, CUDNN_DATA_FLOAT);
  const CudnnDescriptor& scale = graph.number(kCudnnScale);

  const CudnnDescriptor& products = graph.inside(scores);
  graph.multiply(queries, keys, products);
  const CudnnDescriptor& seen = graph.seen_scores(graph.passed(CUDNN_POINTWISE_MUL, {products, &scale}, scores));
  const CudnnDescriptor& greatest = graph.reduced(CUDNN_REDUCE_TENSOR_MAX, seen);
  const CudnnDescriptor& below = graph.passed(CUDNN_POINTWISE_SUB, {seen, &greatest}, scores);
  const CudnnDescriptor& powers = graph.passed(CUDNN_POINTWISE_EXP, {below}, scores);
  const CudnnDescriptor& sums = graph.reduced(CUDNN_REDUCE_TENSOR_ADD, powers);
  const CudnnDescriptor& logarithms = graph.passed(CUDNN_POINTWISE_LOG, {sums}, rows);
  graph.pass(CUDNN_POINTWISE_ADD, {greatest, &logarithms}, log_sums);
  const CudnnDescriptor& probabilities =
      graph.passed(CUDNN_POINTWISE_DIV, {powers, &sums}, scores, CUDNN_DATA_BFLOAT16);
  graph.multiply(probabilities, values, result);
  return std::move(graph).graph();
}

std::optional<CudnnGraph> backward_graph(const CudnnAttentionProblem& problem) {
  AttentionGraph graph(problem);
  const Layout joint = graph.joint(), turned = joint.transposed(), scores = graph.scores(), rows = graph.row_numbers();
  const CudnnDescriptor &queries = graph.tensor(kCudnnQueries, joint), &keys = graph.tensor(kCudnnKeys, turned);
  const CudnnDescriptor& values = graph.tensor(kCudnnValues, turned);
  const CudnnDescriptor& result = graph.tensor(kCudnnResult, graph.result());
  const CudnnDescriptor& d_result = graph.tensor(kCudnnResultGradient, graph.result());
  const CudnnDescriptor& log_sums = graph.tensor(kCudnnLogSums, rows, CUDNN_DATA_FLOAT);
  const CudnnDescriptor& deltas = graph.tensor(kCudnnDeltas, rows, CUDNN_DATA_FLOAT);
  const CudnnDescriptor& d_queries = graph.tensor(kCudnnQueryGradient, joint);
  const CudnnDescriptor& d_keys = graph.tensor(kCudnnKeyGradient, joint);
  const CudnnDescriptor& d_values = graph.tensor(kCudnnValueGradient, joint);
  const CudnnDescriptor& scale = graph.number(kCudnnScale);
  const CudnnDescriptor& one = graph.number(kCudnnOne);

  const CudnnDescriptor& products_of_results = graph.passed(CUDNN_POINTWISE_MUL, {d_result, &result}, graph.result());
  // The engines expect a factor here, which dropout would use.
  graph.pass(CUDNN_POINTWISE_MUL, {graph.reduced(CUDNN_REDUCE_TENSOR_ADD, products_of_results), &one}, deltas);

  const CudnnDescriptor& products = graph.inside(scores);
  graph.multiply(queries, keys, products);
  const CudnnDescriptor& scaled = graph.passed(CUDNN_POINTWISE_MUL, {products, &scale}, scores);
  const CudnnDescriptor& logarithms = graph.passed(CUDNN_POINTWISE_SUB, {scaled, &log_sums}, scores);
  const CudnnDescriptor& probabilities = graph.passed(CUDNN_POINTWISE_EXP, {graph.seen_scores(logarithms)}, scores);
  graph.multiply(graph.turned(probabilities, scores.transposed()), d_result, d_values);

  const CudnnDescriptor& d_probabilities = graph.inside(scores);
  graph.multiply(d_result, values, d_probabilities);
  const CudnnDescriptor& centred = graph.passed(CUDNN_POINTWISE_SUB, {d_probabilities, &deltas}, scores);
  const CudnnDescriptor& d_scaled = graph.passed(CUDNN_POINTWISE_MUL, {centred, &probabilities}, scores);
  const CudnnDescriptor& d_scores = graph.passed(CUDNN_POINTWISE_MUL, {d_scaled, &scale}, scores, CUDNN_DATA_BFLOAT16);
  graph.multiply(graph.turned(d_scores, scores.transposed()), queries, d_keys);
  const CudnnDescriptor& turned_keys = graph.turned(keys, joint);
  if (problem.kind == CudnnAttentionProblem::Kind::backward) {
    graph.multiply(d_scores, turned_keys, d_queries);
  } else {
    const CudnnDescriptor& sums = graph.tensor(kCudnnQuerySums, graph.by_head(), CUDNN_DATA_FLOAT);
    graph.multiply(d_scores, turned_keys, sums);
    graph.pass(CUDNN_POINTWISE_IDENTITY, {sums}, d_queries);
  }
  return std::move(graph).graph();
}

}  // namespace

bool cudnn_may_take(const Attention& shape) noexcept {
  constexpr std::int64_t kMinContext = 64;  // half a tile
  return shape.dropout.rate == 0 && shape.first == 0 && shape.context >= kMinContext && shape.head_size % 8 == 0 &&
         shape.head_size <= 128;
}

std::int64_t cudnn_attention_samples(const Attention& shape, CudnnAttentionProblem::Kind kind, std::int64_t samples,
                                     std::size_t most_workspace) noexcept {
  const std::size_t of_sample = kind == CudnnAttentionProblem::Kind::backward_in_any_order
                                    ? query_sum_bytes(shape.context * shape.width())
                                    : library_attention_bytes(scores_in_tiles(shape.heads, shape.context));
  const std::int64_t at_once =
      std::min(samples, static_cast<std::int64_t>(most_workspace / std::max<std::size_t>(of_sample, 1)));
  if (at_once < 1) return 0;
  const std::int64_t calls = (samples + at_once - 1) / at_once;
  return (samples + calls - 1) / calls;
}

std::optional<CudnnPlan> find_cudnn_plan(const CudnnDevice& device, const CudnnAttentionProblem& problem,
                                         std::size_t most_workspace) {
  auto graph = problem.kind == CudnnAttentionProblem::Kind::forward ? forward_graph(problem) : backward_graph(problem);
  if (!graph) return std::nullopt;
  return find_cudnn_plan(device, *std::move(graph), most_workspace);
}

}  // namespace lockstep::model::cuda
