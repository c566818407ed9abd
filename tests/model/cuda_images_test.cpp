// Compares CudaImages on the host (support/device_on_cpu.cpp) with the float64 reference: its combination of kernels,
// products and a library. cuda_image_kernels_test.cpp tests the kernels alone.
#include "model/cuda/cuda_images.hpp"

#include <optional>

#include "model/cuda/convolution_by_gemm.hpp"
#include "model/kernel_harness.hpp"
#include "model/plain_product.hpp"
#include "model/reference/reference_images.hpp"

namespace lockstep::model::cuda {
namespace {

/// Behaviour of the library in these tests.
enum class Library { absent, refuses, convolves };
Library behaviour = Library::absent;
int convolutions_of_library = 0;

/// A test library that computes convolutions by products, without bias and activation.
class PretendedLibrary final : public ConvolutionLibrary {
 public:
  bool forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
               const Tensor& y) override {
    return take(shape, x, [&](void* workspace) {
      convolution_by_gemm(stream, shape, x, w, y, workspace, [](const Tensor& a, const Tensor& b, const Tensor& out) {
        test::plain_product(a, false, b, false, Accumulate::no, out);
      });
    });
  }
  bool filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                       Accumulate accumulate, const Tensor& d_w) override {
    return take(shape, x, [&](void* workspace) {
      filter_gradient_by_gemm(stream, shape, x, d_y, accumulate, d_w, workspace,
                              [](const Tensor& a, const Tensor& b, Accumulate add, const Tensor& out) {
                                test::plain_product(a, true, b, false, add, out);
                              });
    });
  }
  bool image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                      const Tensor& d_x) override {
    return take(shape, d_x, [&](void* workspace) {
      image_gradient_by_gemm(stream, shape, w, d_y, d_x, workspace,
                             [](const Tensor& a, const Tensor& b, const Tensor& out) {
                               test::plain_product(a, false, b, true, Accumulate::no, out);
                             });
    });
  }
  bool is_there() const noexcept override { return true; }
  void* workspace(std::size_t bytes) override {
    room_.resize(bytes);
    return room_.data();
  }
  std::string description() const override { return "pretence"; }

 private:
  template <class Work>
  bool take(const Convolution& shape, const Tensor& batch, const Work& work) {
    if (behaviour == Library::refuses) return false;
    ++convolutions_of_library;
    std::vector<std::byte> workspace(patch_bytes(shape, batch.type, batch.rows));
    work(workspace.data());
    return true;
  }

  std::vector<std::byte> room_;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> make_convolution_library(DeviceMemory&, std::function<void()>, Tuning) {
  return behaviour == Library::absent ? nullptr : std::make_unique<PretendedLibrary>();
}

namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the harness of these tests
using Doubles = std::vector<double>;

/// CudaImages on the host.
class Subject {
 public:
  explicit Subject(ElementType type) {
    scratch_.resize(scratch_bytes(1024) / sizeof(double) + 1);
    images_.emplace(CudaImages::Device{.matmul = products_,
                                       .memory = memory_,
                                       .scratch = {scratch_.data(), scratch_.size() * sizeof(double)},
                                       .types = {.compute = type},
                                       .forget_recordings = [this] { ++forgotten_; }});
  }
  CudaImages& operator*() { return *images_; }
  int forgotten() const { return forgotten_; }

 private:
  DeviceMemory memory_{0};
  Matmul products_{memory_, {}};
  std::vector<double> scratch_;
  int forgotten_ = 0;
  std::optional<CudaImages> images_;
};

Tensor view(Doubles& values, const Tensor& like) { return model::test::view(values, like.rows, like.columns); }

Convolution convolution(std::int64_t side, std::int64_t channels, std::int64_t filters, std::int64_t window,
                        std::int64_t stride) {
  const ImageShape in{side, side, channels};
  const Sliding sliding = even_padding(window, stride, window / 2);
  return {in, slide(in, sliding, filters), sliding};
}

/// Compares forward and backward with the reference.
void expect_convolution(Subject& subject, ElementType type, const Convolution& shape, std::int64_t batch,
                        Activation activation, bool biased, Accumulate accumulate) {
  const std::string what = fmt::format("{}, {} images of {} channels, window {}, activation {}", name_of(type), batch,
                                       shape.in.channels, shape.window.height.size, static_cast<int>(activation));
  Tensors t(0);
  const std::int64_t filters = shape.out.channels;
  GuardedTensor& x = t.add_filled("x", type, batch, shape.in.elements());
  GuardedTensor& w = t.add_filled("w", type, shape.patch(), filters, 0.3);
  GuardedTensor& bias = t.add_filled("bias", type, 1, filters);
  GuardedTensor& y = t.add("y", type, batch, shape.out.elements());
  GuardedTensor& d_y = t.add_filled("d_y", type, batch, shape.out.elements());
  GuardedTensor& d_w = t.add_filled("d_w", ElementType::float32, shape.patch(), filters);
  GuardedTensor& d_bias = t.add_filled("d_bias", ElementType::float32, 1, filters);
  GuardedTensor& d_x = t.add("d_x", type, batch, shape.in.elements());
  Doubles r_x = x.values(), r_w = w.values(), r_bias = bias.values(), r_y(y.count()), r_d_y = d_y.values();
  Doubles r_d_w = d_w.values(), r_d_bias = d_bias.values(), r_d_x(d_x.count());
  const Tensor none;
  (*subject).convolution_forward(shape, x.tensor(), w.tensor(), biased ? bias.tensor() : none, activation, y.tensor());
  ReferenceImages reference;
  reference.convolution_forward(shape, view(r_x, x.tensor()), view(r_w, w.tensor()),
                                biased ? view(r_bias, bias.tensor()) : none, activation, view(r_y, y.tensor()));
  expect_close(y.values(), r_y, tolerance(type), "y of " + what);
  r_y = y.values();
  (*subject).convolution_backward(shape,
                                  {.x = x.tensor(),
                                   .w = w.tensor(),
                                   .y = y.tensor(),
                                   .d_y = d_y.tensor(),
                                   .d_w = d_w.tensor(),
                                   .d_bias = biased ? d_bias.tensor() : none,
                                   .d_x = d_x.tensor()},
                                  activation, accumulate);
  reference.convolution_backward(shape,
                                 {.x = view(r_x, x.tensor()),
                                  .w = view(r_w, w.tensor()),
                                  .y = view(r_y, y.tensor()),
                                  .d_y = view(r_d_y, d_y.tensor()),
                                  .d_w = view(r_d_w, d_w.tensor()),
                                  .d_bias = biased ? view(r_d_bias, d_bias.tensor()) : none,
                                  .d_x = view(r_d_x, d_x.tensor())},
                                 activation, accumulate);
  expect_close(d_y.values(), r_d_y, tolerance(type), "d_y of " + what);
  expect_close(d_w.values(), r_d_w, tolerance(type), "d_w of " + what);
  expect_close(d_bias.values(), r_d_bias, tolerance(type), "d_bias of " + what);
  expect_close(d_x.values(), r_d_x, tolerance(type), "d_x of " + what);
  t.expect_guards();
}

TEST(CudaImages, ConvolvesAsTheReference) {
  for (const Library each : {Library::absent, Library::refuses, Library::convolves}) {
    behaviour = each;
    for (const ElementType type : kTypes) {
      Subject subject(type);
      convolutions_of_library = 0;
      for (const Convolution& shape : {convolution(5, 3, 8, 3, 1), convolution(6, 8, 4, 1, 1),
                                       convolution(7, 8, 5, 3, 2), convolution(4, 16, 8, 1, 2)}) {
        for (const std::int64_t batch : {0, 3}) {
          expect_convolution(subject, type, shape, batch, Activation::none, true, Accumulate::no);
          expect_convolution(subject, type, shape, batch, Activation::relu, batch % 2 == 0, Accumulate::yes);
        }
      }
      // The library runs two shapes that are not plain products, twice each: forward, and the gradients of filters and
      // images. It also runs the image gradient of the shape with three channels. Products compute the rest.
      const bool used = each == Library::convolves && type == ElementType::bfloat16;
      EXPECT_EQ(convolutions_of_library, used ? 2 * (2 * 3 + 1) : 0);
    }
  }
  behaviour = Library::absent;
}

TEST(CudaImages, ForgetsRecordingsBeforePatchesMove) {
  Subject subject(ElementType::float32);
  const Convolution small = convolution(4, 4, 4, 3, 1), large = convolution(8, 4, 4, 3, 1);
  const auto run = [&](const Convolution& shape, std::int64_t batch) {
    expect_convolution(subject, ElementType::float32, shape, batch, Activation::none, false, Accumulate::no);
  };
  run(small, 2);
  EXPECT_EQ(subject.forgotten(), 0) << "there was nothing that could move";
  run(large, 2);
  EXPECT_EQ(subject.forgotten(), 1);
  run(small, 2);
  run(large, 1);
  EXPECT_EQ(subject.forgotten(), 1) << "what fits stays";
  run(large, 5);
  EXPECT_EQ(subject.forgotten(), 2);
}

TEST(CudaImages, SaysWhatConvolves) {
  EXPECT_EQ((*Subject(ElementType::bfloat16)).description(), "convolutions by products");
  behaviour = Library::convolves;
  EXPECT_EQ((*Subject(ElementType::bfloat16)).description(), "convolutions by pretence");
  EXPECT_EQ((*Subject(ElementType::float32)).description(), "convolutions by products")
      << "the library is for bfloat16";
  behaviour = Library::absent;
}

}  // namespace
}  // namespace lockstep::model::cuda
