// Tests the stand-in for cuDNN: its convolutions are right with any window, stride and padding, it refuses the same
// calls as the library, and it accepts the same descriptions. And tests the convolutions of model/cuda on it.
#include "support/cudnn_on_cpu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/convolution_library.hpp"
#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"
#include "model/reference/reference_backend.hpp"
#include "support/runtime_on_cpu.hpp"

namespace lockstep::model::test {
namespace {

using lockstep::test::take_convolution_refusals;
using lockstep::test::take_convolutions;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Convolution convolution(const ImageShape& in, const Sliding& window, std::int64_t channels) {
  return {in, slide(in, window, channels), window};
}

std::vector<Convolution> shapes() {
  return {
      convolution({5, 7, 3}, same_padding({5, 7, 3}, 3, 1), 4),
      convolution({6, 6, 8}, same_padding({6, 6, 8}, 3, 2), 8), convolution({7, 5, 16}, even_padding(1, 2, 0), 5),
      convolution({9, 8, 3}, even_padding(7, 2, 3), 5),
      convolution({4, 6, 8},
                  {.height = {.size = 2, .stride = 2, .after = 1}, .width = {.size = 3, .stride = 2, .before = 2}}, 1)};
}

/// Compares the library's three convolutions with the float64 reference.
TEST(ConvolutionsOnCpu, AreThoseOfTheReference) {
  constexpr std::int64_t kImages = 3;
  const auto reference = std::make_unique<ReferenceBackend>();
  for (const Convolution& shape : shapes()) {
    const ElementType bf16 = ElementType::bfloat16;
    SCOPED_TRACE(fmt::format("{} x {} x {}, window {} x {} by {}", shape.in.height, shape.in.width, shape.in.channels,
                             shape.window.height.size, shape.window.width.size, shape.window.height.stride));
    const auto backend = make_backend("cuda", {.precision = Precision::bf16});
    cuda::DeviceMemory memory(0);
    const auto library = cuda::make_convolution_library(memory, [] {});
    const auto stream = static_cast<cudaStream_t>(backend->stream());
    const std::int64_t inputs = shape.in.elements(), outputs = shape.out.elements(), filters = shape.out.channels;
    Random random;
    const auto numbers = [&](std::int64_t count) { return random.numbers(count, Precision::bf16); };
    const std::vector<float> x = numbers(kImages * inputs), w = numbers(shape.patch() * filters),
                             d_y = numbers(kImages * outputs);
    const Array on_x(*backend, bf16, kImages, inputs, x), on_w(*backend, bf16, shape.patch(), filters, w);
    const Array on_d_y(*backend, bf16, kImages, outputs, d_y), y(*backend, bf16, kImages, outputs);
    const Array d_x(*backend, bf16, kImages, inputs), d_w(*backend, ElementType::float32, shape.patch(), filters);
    static_cast<void>(take_convolutions());
    ASSERT_TRUE(library->forward(stream, shape, on_x.tensor(), on_w.tensor(), y.tensor()));
    ASSERT_TRUE(library->filter_gradient(stream, shape, on_x.tensor(), on_d_y.tensor(), Accumulate::no, d_w.tensor()));
    ASSERT_TRUE(library->image_gradient(stream, shape, on_w.tensor(), on_d_y.tensor(), d_x.tensor()));
    EXPECT_EQ(take_convolutions(), 3);
    std::vector<double> exact_x = widened(x), exact_w = widened(w), exact_d_y = widened(d_y);
    std::vector<double> exact_y(d_y.size()), exact_d_x(x.size()), exact_d_w(w.size());
    const auto matrix = [](std::vector<double>& values, std::int64_t rows) {
      return Tensor{values.data(), ElementType::float64, rows, static_cast<std::int64_t>(values.size()) / rows};
    };
    reference->images().convolution_forward(shape, matrix(exact_x, kImages), matrix(exact_w, shape.patch()), {},
                                            Activation::none, matrix(exact_y, kImages));
    reference->images().convolution_backward(shape,
                                             {.x = matrix(exact_x, kImages),
                                              .w = matrix(exact_w, shape.patch()),
                                              .d_y = matrix(exact_d_y, kImages),
                                              .d_w = matrix(exact_d_w, shape.patch()),
                                              .d_x = matrix(exact_d_x, kImages)},
                                             Activation::none, Accumulate::no);
    EXPECT_LE(relative_error(y.fetch(), exact_y), limit_of(Precision::bf16));
    EXPECT_LE(relative_error(d_w.fetch(), exact_d_w), limit_of(Precision::bf16));
    EXPECT_LE(relative_error(d_x.fetch(), exact_d_x), limit_of(Precision::bf16));
    lockstep::test::refuse_convolutions(true);
    const auto other = cuda::make_convolution_library(memory, [] {});
    EXPECT_FALSE(other->forward(stream, shape, on_x.tensor(), on_w.tensor(), y.tensor())) << "no engine";
    lockstep::test::refuse_convolutions(false);
    backend->synchronize();
  }
  EXPECT_THAT(take_convolution_refusals(), IsEmpty());
}

/// The repeatable choice is the first plan; with timing it is the quickest, whose numbers are the same here.
TEST(ConvolutionsOnCpu, AreOfTheQuickestPlanWhereTheyAreTimed) {
  const Convolution shape = shapes()[1];
  const auto backend = make_backend("cuda", {.precision = Precision::bf16});
  cuda::DeviceMemory memory(0);
  const auto stream = static_cast<cudaStream_t>(backend->stream());
  Random random;
  const auto array = [&](std::int64_t rows, std::int64_t columns) {
    return Array(*backend, ElementType::bfloat16, rows, columns, random.numbers(rows * columns, Precision::bf16));
  };
  const Array x = array(2, shape.in.elements()), w = array(shape.patch(), shape.out.channels);
  const Array y = array(2, shape.out.elements());
  lockstep::test::slow_first_engine_down(true);
  std::vector<float> first;
  for (const cuda::Tuning tuning : {cuda::Tuning::first, cuda::Tuning::timed}) {
    const auto library = cuda::make_convolution_library(
        memory, [] {}, tuning);
    ASSERT_TRUE(library->forward(stream, shape, x.tensor(), w.tensor(), y.tensor()));
    backend->synchronize();
    EXPECT_EQ(lockstep::test::last_engine_was_the_first(), tuning == cuda::Tuning::first);
    if (first.empty()) first = y.fetch();
    EXPECT_EQ(y.fetch(), first);
  }
  lockstep::test::slow_first_engine_down(false);

  lockstep::test::let_first_engine_fail(true);
  const auto untimed = cuda::make_convolution_library(memory, [] {});
  EXPECT_THROW(static_cast<void>(untimed->forward(stream, shape, x.tensor(), w.tensor(), y.tensor())), DeviceError);
  const auto timed = cuda::make_convolution_library(
      memory, [] {}, cuda::Tuning::timed);
  EXPECT_TRUE(timed->forward(stream, shape, x.tensor(), w.tensor(), y.tensor())) << "the second works";
  lockstep::test::let_first_engine_fail(false);
  backend->synchronize();
  EXPECT_EQ(y.fetch(), first);
  EXPECT_THAT(take_convolution_refusals(), IsEmpty());
}

/// cuDNN's functions: the stand-in's, or the library's own.
struct Functions {
  decltype(&cudnnBackendCreateDescriptor) create = cudnnBackendCreateDescriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy = cudnnBackendDestroyDescriptor;
  decltype(&cudnnBackendSetAttribute) set = cudnnBackendSetAttribute;
  decltype(&cudnnBackendFinalize) finalize = cudnnBackendFinalize;
};

/// An operation and its attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t images, filters, output, window, alpha, beta;
};
constexpr std::array kOperations{
    Operation{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    Operation{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    Operation{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}};

/// Describes a convolution of 2 images of 6 x 6 x 8 with 8 filters of 3 x 3, or a gradient of one, with a fault.
/// Records whether each call was accepted, in their order.
struct Description {
  enum class Fault {
    none,
    wrong_extent,    ///< fault in the output
    wrong_stride,    ///< pixels that overlap
    wrong_channels,  ///< fault in the filters
    missing_attribute,
    wrong_type,     ///< an extent of another type
    wrong_number,   ///< two extents
    not_finalized,  ///< fault in a tensor
    double_factors  ///< beside sums in fp32: the library accepts them, and computes with half of their bytes
  };

  Description(const Functions& functions, const Operation& names, Fault fault) : functions_(functions) {
    const auto images = tensor(1, {2, 8, 6, 6}, fault, fault == Fault::wrong_stride ? 4 : 8);
    const auto filters = tensor(2, {8, fault == Fault::wrong_channels ? 3 : 8, 3, 3}, Fault::none, 8);
    const auto output = tensor(3, {2, 8, fault == Fault::wrong_extent ? 5 : 6, 6}, Fault::none, 8);
    const auto window = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const std::int64_t directions = 2;
    const std::array<std::int64_t, 2> ones{1, 1};
    set(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &directions);
    for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                            CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
      set(window, name, CUDNN_TYPE_INT64, 2, ones.data());
    }
    finish(window);
    const auto operation = make(names.type);
    const float alpha = 1, beta = 0;
    const double wide_alpha = 1, wide_beta = 0;
    set(operation, names.images, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &images);
    set(operation, names.filters, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &filters);
    set(operation, names.output, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &output);
    set(operation, names.window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window);
    if (fault == Fault::double_factors) {
      set(operation, names.alpha, CUDNN_TYPE_DOUBLE, 1, &wide_alpha);
      set(operation, names.beta, CUDNN_TYPE_DOUBLE, 1, &wide_beta);
    } else {
      set(operation, names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
      set(operation, names.beta, CUDNN_TYPE_FLOAT, 1, &beta);
    }
    finish(operation);
  }
  ~Description() {
    for (const cudnnBackendDescriptor_t each : made_) static_cast<void>(functions_.destroy(each));
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  const std::vector<bool>& taken() const { return taken_; }
  bool all_taken() const { return std::ranges::count(taken_, false) == 0; }

 private:
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    note(functions_.create(type, &made));
    return made_.emplace_back(made);
  }
  void set(cudnnBackendDescriptor_t it, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::int64_t count, const void* values) {
    note(functions_.set(it, name, type, count, values));
  }
  void finish(cudnnBackendDescriptor_t it) { note(functions_.finalize(it)); }
  void note(cudnnStatus_t status) { taken_.push_back(status == CUDNN_STATUS_SUCCESS); }

  cudnnBackendDescriptor_t tensor(std::int64_t name, const std::array<std::int64_t, 4>& extents, Fault fault,
                                  std::int64_t of_pixel) {
    const auto it = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
    const std::int64_t alignment = 16;
    const std::int64_t pixel = extents[1] < of_pixel ? extents[1] : of_pixel;
    const std::array strides{extents[1] * extents[2] * extents[3], std::int64_t{1}, extents[3] * pixel, pixel};
    set(it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (fault != Fault::missing_attribute) {
      set(it, CUDNN_ATTR_TENSOR_DIMENSIONS, fault == Fault::wrong_type ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_INT64,
          fault == Fault::wrong_number ? 2 : 4, extents.data());
    }
    set(it, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
    set(it, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (fault != Fault::not_finalized) finish(it);
    return it;
  }

  Functions functions_;
  std::vector<cudnnBackendDescriptor_t> made_;
  std::vector<bool> taken_;
};

using Fault = Description::Fault;
constexpr std::array kFaults{Fault::wrong_extent, Fault::wrong_stride, Fault::wrong_channels, Fault::missing_attribute,
                             Fault::wrong_type,   Fault::wrong_number, Fault::not_finalized};

TEST(CudnnOnCpu, FindsWhatIsWrongWithADescription) {
  const std::array words{
      "an output that is not what", "elements overlap", "do not fit together", "lacks attribute", "another type",
      "another number of",          "not finalized"};
  for (const Operation& operation : kOperations) {
    EXPECT_TRUE(Description(Functions(), operation, Fault::none).all_taken());
    EXPECT_THAT(take_convolution_refusals(), IsEmpty());
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      EXPECT_FALSE(Description(Functions(), operation, kFaults[i]).all_taken());
      EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr(words[i])));
    }
    // On an H200 cuDNN 9.19 accepted these and made every convolution zero.
    EXPECT_FALSE(Description(Functions(), operation, Fault::double_factors).all_taken());
    EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("another type")));
  }
}

/// A plan for images with another layout than their tensors describe shows in its results, or in the memory that it
/// reaches.
TEST(CudnnOnCpu, FindsAWrongLayout) {
  const auto backend = make_backend("cuda", {.precision = Precision::bf16});
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnSetStream(handle, static_cast<cudaStream_t>(backend->stream())), CUDNN_STATUS_SUCCESS);
  const Convolution right = convolution({6, 4, 8}, even_padding(3, 1, 1), 8);
  const Convolution turned = convolution({4, 6, 8}, even_padding(3, 1, 1), 8),
                    larger = convolution({9, 9, 8}, even_padding(3, 1, 1), 8);
  Random random;
  const auto numbers = [&](std::int64_t count) { return random.numbers(count, Precision::bf16); };
  const ElementType bf16 = ElementType::bfloat16;
  const Array x(*backend, bf16, 2, right.in.elements(), numbers(2 * right.in.elements()));
  const Array w(*backend, bf16, 8, right.patch(), numbers(8 * right.patch()));
  const auto convolved = [&](const Convolution& shape) {
    const Array y(*backend, bf16, 2, right.out.elements());
    const auto plan = cuda::find_cudnn_plan(cuda::CudnnDevice(handle), {cuda::CudnnProblem::Kind::forward, shape, 2},
                                            std::size_t{1} << 20);
    EXPECT_TRUE(plan.has_value());
    const cuda::Block workspace(*static_cast<std::pmr::memory_resource*>(backend->memory()), plan->workspace);
    const std::array names{cuda::kCudnnImages, cuda::kCudnnFilters, cuda::kCudnnOutput};
    const std::array pointers{x.tensor().data, w.tensor().data, y.tensor().data};
    void* const room = workspace.data();
    cuda::CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), 3)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), 3)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &room)
        .finalize();
    const cudnnStatus_t status = cudnnBackendExecute(handle, plan->descriptor.get(), pack.get());
    backend->synchronize();
    return status == CUDNN_STATUS_SUCCESS ? y.fetch() : std::vector<float>();
  };
  const std::vector<float> expected = convolved(right);
  EXPECT_EQ(expected, convolved(right));
  EXPECT_NE(expected, convolved(turned)) << "rows for columns";
  EXPECT_THAT(convolved(larger), IsEmpty());
  EXPECT_THAT(lockstep::test::take_stream_faults(), Contains(HasSubstr("a convolution goes")));
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
}

TEST(CudnnOnCpu, FindsAPlanWhosePartsAreGone) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  auto plan = cuda::find_cudnn_plan(cuda::CudnnDevice(handle), {cuda::CudnnProblem::Kind::forward, shapes()[1], 2},
                                    std::size_t{1} << 20);
  ASSERT_TRUE(plan.has_value());
  plan->made_of->clear();
  const std::array names{cuda::kCudnnImages};
  void* nothing = nullptr;
  cuda::CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), 1)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, &nothing)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &nothing)
      .finalize();
  EXPECT_EQ(cudnnBackendExecute(handle, plan->descriptor.get(), pack.get()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("destroyed")));
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
}

/// The first two engines that are proposed for a gradient of filters must not be used.
TEST(CudnnOnCpu, RefusesToRunEnginesThatDoNotRepeatOrRoundTheirSums) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  const auto found = cuda::find_cudnn_plan(
      cuda::CudnnDevice(handle), {cuda::CudnnProblem::Kind::filter_gradient, shapes()[1], 2}, std::size_t{1} << 20);
  ASSERT_TRUE(found.has_value());
  alignas(256) std::array<std::byte, 64 << 10> memory{};
  const std::array names{cuda::kCudnnImages, cuda::kCudnnFilters, cuda::kCudnnOutput};
  const std::array<void*, 3> pointers{memory.data(), memory.data() + (16 << 10), memory.data() + (32 << 10)};
  void* const room = memory.data() + (48 << 10);
  cuda::CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), 3)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), 3)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &room)
      .finalize();
  for (const std::size_t engine : {std::size_t{0}, std::size_t{1}}) {
    cuda::CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, found->made_of->at(engine))
        .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle)
        .finalize();
    EXPECT_EQ(cudnnBackendExecute(handle, plan.get(), pack.get()), CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_THAT(take_convolution_refusals(), Contains(HasSubstr("does not repeat or rounds its sums")));
  }
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
}

TEST(CudnnOnCpu, RefusesPointersThatDoNotFitThePlan) {
  cudnnHandle_t handle = nullptr, other = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreate(&other), CUDNN_STATUS_SUCCESS);
  const auto plan = cuda::find_cudnn_plan(cuda::CudnnDevice(handle),
                                          {cuda::CudnnProblem::Kind::forward, shapes()[1], 2}, std::size_t{1} << 20);
  ASSERT_TRUE(plan.has_value());
  ASSERT_GT(plan->workspace, 0U);
  alignas(256) std::array<std::byte, 512> memory{};
  const std::array names{cuda::kCudnnImages, cuda::kCudnnFilters, cuda::kCudnnOutput};
  const auto refusal = [&](cudnnHandle_t of, std::size_t count, std::size_t shift, bool has_room) {
    void* const room = has_room ? memory.data() : nullptr;
    const std::array<void*, 3> pointers{memory.data() + shift, memory.data(), memory.data()};
    cuda::CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), static_cast<std::int64_t>(count))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(),
             static_cast<std::int64_t>(count))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &room)
        .finalize();
    EXPECT_EQ(cudnnBackendExecute(of, plan->descriptor.get(), pack.get()), CUDNN_STATUS_BAD_PARAM);
    return take_convolution_refusals();
  };
  EXPECT_THAT(refusal(other, 3, 0, true), Contains(HasSubstr("a plan of another handle")));
  EXPECT_THAT(refusal(handle, 2, 0, true), Contains(HasSubstr("a tensor without a pointer")));
  EXPECT_THAT(refusal(handle, 3, 2, true), Contains(HasSubstr("less aligned")));
  EXPECT_THAT(refusal(handle, 3, 0, false), Contains(HasSubstr("a workspace that is missing")));
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnDestroy(other), CUDNN_STATUS_SUCCESS);
}

/// The library's own answers about descriptions, which need no device.
TEST(CudnnItself, TakesDescriptionsAsItsStandInDoes) {
  const std::string name = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "not run: " << name << " is not here";
  const auto real = [&]<class Function>(Function* function, const char* what) {
    const auto found = reinterpret_cast<Function*>(dlsym(library, what));
    EXPECT_NE(found, nullptr) << what;
    return found == nullptr ? function : found;
  };
  const Functions itself{.create = real(cudnnBackendCreateDescriptor, "cudnnBackendCreateDescriptor"),
                         .destroy = real(cudnnBackendDestroyDescriptor, "cudnnBackendDestroyDescriptor"),
                         .set = real(cudnnBackendSetAttribute, "cudnnBackendSetAttribute"),
                         .finalize = real(cudnnBackendFinalize, "cudnnBackendFinalize")};
  for (const Operation& operation : kOperations) {
    EXPECT_TRUE(Description(itself, operation, Fault::none).all_taken());
    for (const Fault fault : kFaults) {
      const Description theirs(itself, operation, fault), ours(Functions(), operation, fault);
      const auto text = [](const Description& description) {
        std::string calls;
        for (const bool taken : description.taken()) calls += taken ? '+' : '-';
        return calls;
      };
      EXPECT_EQ(text(theirs), text(ours)) << "operation " << operation.type << ", fault " << static_cast<int>(fault);
    }
  }
  static_cast<void>(take_convolution_refusals());
}

}  // namespace
}  // namespace lockstep::model::test
