// Tests the attention of model/cuda on cuDNN's stand-in: the reference's numbers, in one call or in parts, recorded and
// plain; our own kernels run if the workspace is too small or the library has no plan.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/attention_library.hpp"
#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/reference/reference_backend.hpp"
#include "support/cudnn_on_cpu.hpp"

namespace lockstep::model::test {
namespace {

using lockstep::test::refuse_convolutions;
using lockstep::test::take_convolution_refusals;
using lockstep::test::take_graphs;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr std::int64_t kSamples = 3;
const Attention kShape{.context = 128, .heads = 2, .head_size = 16, .dropout = {}};

/// Random inputs of a call, and its outputs.
struct Call {
  explicit Call(Backend& backend, const Attention& of = kShape)
      : shape(of),
        joint(backend, ElementType::bfloat16, rows(), 3 * of.width(), numbers(rows() * 3 * of.width())),
        d_y(backend, ElementType::bfloat16, rows(), of.width(), numbers(rows() * of.width())),
        y(backend, ElementType::bfloat16, rows(), of.width()),
        d_joint(backend, ElementType::bfloat16, rows(), 3 * of.width()),
        log_sums(backend, ElementType::float32, kSamples * of.heads, of.context),
        deltas(backend, ElementType::float32, kSamples * of.heads, of.context) {}

  std::int64_t rows() const { return kSamples * shape.context; }
  AttentionForwardOperands forward() const {
    return {.joint = joint.tensor(), .y = y.tensor(), .log_sums = log_sums.tensor()};
  }
  AttentionBackwardOperands backward() const {
    return {.joint = joint.tensor(),
            .dropout_keys = {},
            .y = y.tensor(),
            .log_sums = log_sums.tensor(),
            .d_y = d_y.tensor(),
            .d_joint = d_joint.tensor()};
  }
  std::vector<float> numbers(std::int64_t count) { return random.numbers(count, Precision::bf16, 2); }

  void expect_exact() const {
    const auto reference = std::make_unique<ReferenceBackend>();
    std::vector<double> exact_joint = widened(joint.fetch()), exact_d_y = widened(d_y.fetch());
    std::vector<double> exact_y(exact_d_y.size()), exact_d_joint(exact_joint.size());
    std::vector<double> exact_sums(static_cast<std::size_t>(kSamples * shape.heads * shape.context));
    const auto matrix = [](std::vector<double>& values, std::int64_t rows) {
      return Tensor{values.data(), ElementType::float64, rows, static_cast<std::int64_t>(values.size()) / rows};
    };
    const AttentionForwardOperands of{.joint = matrix(exact_joint, rows()),
                                      .y = matrix(exact_y, rows()),
                                      .log_sums = matrix(exact_sums, kSamples * shape.heads)};
    reference->sequences().attention_forward(shape, of);
    reference->sequences().attention_backward(shape, {.joint = of.joint,
                                                      .dropout_keys = {},
                                                      .y = of.y,
                                                      .log_sums = of.log_sums,
                                                      .d_y = matrix(exact_d_y, rows()),
                                                      .d_joint = matrix(exact_d_joint, rows())});
    EXPECT_LE(relative_error(y.fetch(), exact_y), limit_of(Precision::bf16));
    EXPECT_LE(relative_error(log_sums.fetch(), exact_sums), limit_of(Precision::fp32) * 10);
    EXPECT_LE(relative_error(d_joint.fetch(), exact_d_joint), 2 * limit_of(Precision::bf16));
  }

  Attention shape;
  Random random;
  Array joint, d_y, y, d_joint, log_sums, deltas;
};

std::unique_ptr<Backend> gpu() { return make_backend("cuda", {.precision = Precision::bf16}); }
cudaStream_t stream_of(Backend& backend) { return static_cast<cudaStream_t>(backend.stream()); }

TEST(AttentionOnCpu, IsThatOfTheReferenceInOneCallAndInParts) {
  const std::size_t of_sample = library_attention_bytes(kShape.heads * kShape.context * kShape.context);
  for (const int at_once : {1, 2, 3}) {
    const auto backend = gpu();
    cuda::DeviceMemory memory(0);
    const auto library = cuda::make_attention_library(
        memory, [] {}, {.most_workspace = of_sample * static_cast<std::size_t>(at_once) + 100});
    EXPECT_EQ(library->description(), "cuDNN once it fits");
    const Call call(*backend);
    static_cast<void>(take_graphs());
    ASSERT_TRUE(library->forward(stream_of(*backend), kShape, call.forward()));
    ASSERT_TRUE(library->backward(stream_of(*backend), kShape, call.backward(), call.deltas.tensor()));
    EXPECT_EQ(take_graphs(), 1 + (kSamples + at_once - 1) / at_once);
    EXPECT_THAT(library->description(), StartsWith("cuDNN 9."));
    backend->synchronize();
    call.expect_exact();
  }
  EXPECT_THAT(take_convolution_refusals(), IsEmpty());
}

/// Runs twice, because sums must be cleared each time.
TEST(AttentionOnCpu, IsThatOfTheReferenceWhereItsOrderOfSumsDoesNotMatter) {
  const auto backend = gpu();
  cuda::DeviceMemory memory(0);
  const Call call(*backend);
  for (const int at_once : {2, 3}) {
    const std::size_t sums = query_sum_bytes(at_once * kShape.context * kShape.width());
    const auto library = cuda::make_attention_library(memory, [] {}, {.most_workspace = sums, .in_any_order = true});
    ASSERT_TRUE(library->forward(stream_of(*backend), kShape, call.forward()));
    EXPECT_FALSE(library->backward(stream_of(*backend), kShape, call.backward(), call.deltas.tensor()))
        << "the stand-in refuses it at first";
    EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("add up in any order")));
    lockstep::test::allow_sums_in_any_order(true);
    const auto other = cuda::make_attention_library(memory, [] {}, {.most_workspace = sums, .in_any_order = true});
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(other->backward(stream_of(*backend), kShape, call.backward(), call.deltas.tensor()));
      backend->synchronize();
      call.expect_exact();
    }
    lockstep::test::allow_sums_in_any_order(false);
    EXPECT_THAT(take_convolution_refusals(), IsEmpty());
  }
}

/// In any order, its sums would need more memory than planned.
TEST(AttentionOnCpu, OfAShortContextRepeatsAnyhow) {
  const auto backend = gpu();
  cuda::DeviceMemory memory(0);
  const Attention wide{.context = 128, .heads = 1, .head_size = 128, .dropout = {}};
  const auto library = cuda::make_attention_library(memory, [] {}, {.in_any_order = true});
  const Call call(*backend, wide);
  ASSERT_TRUE(library->forward(stream_of(*backend), wide, call.forward()));
  ASSERT_TRUE(library->backward(stream_of(*backend), wide, call.backward(), call.deltas.tensor()));
  backend->synchronize();
  call.expect_exact();
  EXPECT_THAT(take_convolution_refusals(), IsEmpty());
}

TEST(AttentionOnCpu, ComesFromOurOwnKernelsWhereTheLibraryHasNothing) {
  const auto backend = gpu();
  cuda::DeviceMemory memory(0);
  const cudaStream_t stream = stream_of(*backend);
  const auto library = cuda::make_attention_library(memory, [] {}, {.most_workspace = 1000});
  const Call call(*backend);
  refuse_convolutions(true);
  EXPECT_FALSE(library->forward(stream, kShape, call.forward()));
  EXPECT_THAT(library->description(), HasSubstr("but 1 of 1 shapes by our own kernels (it has no plan)"));
  refuse_convolutions(false);
  EXPECT_FALSE(library->forward(stream, kShape, call.forward())) << "it was asked once";
  EXPECT_FALSE(library->backward(stream, kShape, call.backward(), call.deltas.tensor())) << "no room for a sample";

  static_cast<void>(take_graphs());
  const auto other = cuda::make_attention_library(memory, [] {});
  const Attention short_context{.context = 60, .heads = 2, .head_size = 16, .dropout = {}};
  const Call of_short(*backend, short_context);
  EXPECT_FALSE(other->forward(stream, short_context, of_short.forward()));
  Attention drops = kShape;
  drops.dropout.rate = 0.5f;
  EXPECT_FALSE(other->forward(stream, drops, call.forward()));
  AttentionForwardOperands shifted = call.forward();
  shifted.y.data = static_cast<std::byte*>(shifted.y.data) + 2;
  EXPECT_FALSE(other->forward(stream, kShape, shifted));
  EXPECT_EQ(take_graphs(), 0);
}

TEST(AttentionOnCpu, IsRecordedWithTheBitsOfPlainCalls) {
  std::vector<float> recorded;
  for (const bool graphs : {true, false}) {
    const auto backend = make_backend("cuda", {.precision = Precision::bf16, .graphs = graphs});
    Call call(*backend);
    static_cast<void>(take_graphs());
    const std::array<std::int64_t, 1> key{7};
    for (int run = 0; run < 3; ++run) {
      backend->repeat(key, [&] {
        backend->sequences().attention_forward(kShape, call.forward());
        backend->sequences().attention_backward(kShape, call.backward());
      });
    }
    backend->synchronize();
    EXPECT_GT(take_graphs(), 0);
    call.expect_exact();
    EXPECT_THAT(backend->description(), AllOf(HasSubstr("attention by cuDNN 9."), Not(HasSubstr("our own"))));
    std::vector<float> bits = call.y.fetch();
    std::ranges::copy(call.d_joint.fetch(), std::back_inserter(bits));
    if (graphs) recorded = bits;
    EXPECT_EQ(bits, recorded);
  }
  const auto without = make_backend("cuda", {.precision = Precision::bf16, .attention_library = false});
  const Call call(*without);
  without->sequences().attention_forward(kShape, call.forward());
  without->sequences().attention_backward(kShape, call.backward());
  without->synchronize();
  EXPECT_EQ(take_graphs(), 0);
  call.expect_exact();
  EXPECT_THAT(without->description(), HasSubstr(", attention by our own kernels, "));
}

/// A graph of one product, into bfloat16 or into fp32.
bool has_plan_for_product(cudnnDataType_t out, std::int64_t columns) {
  cudnnHandle_t handle = nullptr;
  EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  cuda::CudnnGraph graph;
  const auto tensor = [&](std::int64_t name, std::int64_t width, cudnnDataType_t type) -> const cuda::CudnnDescriptor& {
    const std::array<std::int64_t, 4> extents{1, 1, 8, width}, strides{8 * width, 8 * width, width, 1};
    cuda::CudnnDescriptor& made = graph.keep(cuda::CudnnDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents.data(), 4)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &cuda::kCudnnAlignment)
        .finalize();
    return made;
  };
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cuda::CudnnDescriptor& product = graph.keep(cuda::CudnnDescriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute).finalize();
  cuda::CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(1, 8, CUDNN_DATA_BFLOAT16))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(2, 16, CUDNN_DATA_BFLOAT16))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(3, columns, out))
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  EXPECT_TRUE(graph.try_append(std::move(operation)));
  const bool found = cuda::find_cudnn_plan(cuda::CudnnDevice(handle), std::move(graph), 1 << 20).has_value();
  EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  return found;
}

TEST(AttentionOnCpu, OfAStandInThatRefusesGraphsThatDoNotRepeatOrFit) {
  EXPECT_TRUE(has_plan_for_product(CUDNN_DATA_BFLOAT16, 16));
  EXPECT_THAT(take_convolution_refusals(), IsEmpty());
  EXPECT_FALSE(has_plan_for_product(CUDNN_DATA_FLOAT, 16));
  EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("add up in any order")));
  EXPECT_FALSE(has_plan_for_product(CUDNN_DATA_BFLOAT16, 8));
  EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("do not fit together")));
}

}  // namespace
}  // namespace lockstep::model::test
