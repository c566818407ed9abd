// Checks that cuDNN has plans for the convolutions of ResNet-50 (He et al. 2015) and the attention of GPT-2 (Radford et
// al. 2019) on a described GPU, without a GPU. For attention, cuDNN needs a driver to load the code that it compiles:
// support/driver_on_cpu.cpp. The tests are reported as not run if cuDNN cannot be loaded.
#include <array>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/cudnn/cudnn_attention_plans.hpp"
#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/device.hpp"
#include "model/device_workspaces.hpp"

namespace lockstep::model::cuda {
namespace {

/// An H200 in cuDNN's notation.
constexpr const char* kDevice = R"({
  "version": 1, "cudaDeviceId": 0, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
  "isTccDriver": 0, "l2CacheSize": 62914560, "maxCtasPerSM": 32, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "memClockRateKHz": 3201000, "multiProcessorCount": 132, "pciDeviceId": 9013,
  "regsPerBlock": 65536, "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1980000, "supportCoopLaunch": 1,
  "totalGlobalMem": 150000000000, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64]})";
constexpr std::size_t kMaxWorkspace = kMaxLibraryWorkspace;
constexpr std::array kKinds{CudnnProblem::Kind::forward, CudnnProblem::Kind::filter_gradient,
                            CudnnProblem::Kind::image_gradient};

class CudnnPlans : public testing::Test {
 protected:
  void SetUp() override {
    // Stays loaded, so that cuDNN finds a driver of this name in the process on every machine.
    static void* const driver = dlopen(LOCKSTEP_DRIVER_ON_CPU, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(driver, nullptr) << dlerror();
    const std::string obstacle = cudnn_obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << "not run: " << obstacle;
  }
};

Convolution convolution(std::int64_t side, std::int64_t channels, std::int64_t out_channels, std::int64_t window,
                        std::int64_t stride) {
  const ImageShape in{side, side, channels};
  const Sliding sliding = even_padding(window, stride, window / 2);
  return {in, slide(in, sliding, out_channels), sliding};
}

TEST_F(CudnnPlans, AreThereForResNet50) {
  const CudnnDevice device{std::string(kDevice)};
  // Windows of one pixel with stride one run as products, not by cuDNN.
  const std::array shapes{
      convolution(224, 3, 64, 7, 2),     convolution(56, 64, 64, 3, 1),   convolution(56, 128, 128, 3, 2),
      convolution(56, 256, 512, 1, 2),   convolution(28, 128, 128, 3, 1), convolution(28, 256, 256, 3, 2),
      convolution(28, 512, 1024, 1, 2),  convolution(14, 256, 256, 3, 1), convolution(14, 512, 512, 3, 2),
      convolution(14, 1024, 2048, 1, 2), convolution(7, 512, 512, 3, 1)};
  for (const Convolution& shape : shapes) {
    for (const CudnnProblem::Kind kind : kKinds) {
      if (kind == CudnnProblem::Kind::image_gradient && shape.in.channels == 3) continue;  // the first layer's
      const auto plan = find_cudnn_plan(device, {kind, shape, 256}, kMaxWorkspace);
      const std::string what = fmt::format("{} x {} x {}, window {} by {}, {} channels, kind {}", shape.in.height,
                                           shape.in.width, shape.in.channels, shape.window.height.size,
                                           shape.window.height.stride, shape.out.channels, static_cast<int>(kind));
      EXPECT_TRUE(plan.has_value()) << what;
      if (plan) {
        EXPECT_LE(plan->workspace, kMaxWorkspace) << what;
      }
    }
  }
}

TEST_F(CudnnPlans, AreThereForSeriesAndVolumes) {
  const CudnnDevice device{std::string(kDevice)};
  const Sweep three{.size = 3, .before = 1, .after = 1}, two{.size = 2, .stride = 2};
  const auto shape_of = [](const ImageShape& in, const Sliding& window, std::int64_t channels) {
    return Convolution{in, slide(in, window, channels), window};
  };
  const ImageShape volume{.height = 32, .width = 32, .channels = 16, .depth = 32}, series{1, 1000, 16};
  for (const Convolution& shape : {shape_of(volume, {three, three, three}, 32), shape_of(volume, {two, two, two}, 32),
                                   shape_of(series, {.width = {.size = 9, .stride = 2, .before = 4, .after = 4}}, 32),
                                   shape_of({64, 64, 32},
                                            same_padding({64, 64, 32}, {.height = {.size = 3, .dilation = 2},
                                                                       .width = {.size = 3, .dilation = 2}}),
                                            32)}) {
    for (const CudnnProblem::Kind kind : kKinds) {
      EXPECT_TRUE(find_cudnn_plan(device, {kind, shape, 8}, kMaxWorkspace).has_value())
          << to_string(shape) << ", kind " << static_cast<int>(kind);
    }
  }
}

TEST_F(CudnnPlans, AreRefusedWhereTheyDoNotFit) {
  const CudnnDevice device{std::string(kDevice)};
  Convolution wrong = convolution(28, 128, 128, 3, 1);
  wrong.out.height = 99;
  EXPECT_FALSE(find_cudnn_plan(device, {CudnnProblem::Kind::forward, wrong, 8}, kMaxWorkspace).has_value());
  // Some proposals need a workspace: they must not be chosen without one.
  for (const CudnnProblem::Kind kind : kKinds) {
    const auto plan = find_cudnn_plan(device, {kind, convolution(28, 128, 128, 3, 1), 8}, 0);
    if (plan) {
      EXPECT_EQ(plan->workspace, 0u);
    }
  }
}

constexpr std::array kAttentionKinds{CudnnAttentionProblem::Kind::forward, CudnnAttentionProblem::Kind::backward,
                                     CudnnAttentionProblem::Kind::backward_in_any_order};

TEST_F(CudnnPlans, AreThereForAttention) {
  const CudnnDevice device{std::string(kDevice)};
  for (const Attention& shape : {Attention{.context = 1024, .heads = 12, .head_size = 64},
                                 Attention{.context = 1024, .heads = 12, .head_size = 128},
                                 Attention{.context = 128, .heads = 3, .head_size = 40},
                                 Attention{.context = 256, .heads = 6, .head_size = 64, .causal = false},
                                 Attention{.context = 64, .heads = 6, .head_size = 64, .causal = false},
                                 Attention{.context = 100, .heads = 6, .head_size = 64},
                                 Attention{.context = 197, .heads = 6, .head_size = 64, .causal = false}}) {
    for (const auto kind : kAttentionKinds) {
      const std::int64_t samples = cudnn_attention_samples(shape, kind, 32, kMaxWorkspace);
      ASSERT_GT(samples, 0);
      const std::string what =
          fmt::format("context {}, {} heads of {}, {}causal, {} samples, kind {}", shape.context, shape.heads,
                      shape.head_size, shape.causal ? "" : "not ", samples, static_cast<int>(kind));
      const auto plan = find_cudnn_plan(
          device, CudnnAttentionProblem{kind, samples, shape.context, shape.heads, shape.head_size, shape.causal},
          kMaxWorkspace);
      ASSERT_TRUE(plan.has_value()) << what;
      // The memory plan relies on this. Backward is deterministic because it stores the gradients of the scores.
      const std::size_t scores = static_cast<std::size_t>(samples * shape.heads * shape.context * shape.context);
      EXPECT_LE(plan->workspace, static_cast<std::size_t>(samples) *
                                     library_attention_bytes(scores_in_tiles(shape.heads, shape.context)))
          << what;
      if (kind == CudnnAttentionProblem::Kind::backward) {
        EXPECT_GE(plan->workspace, 2 * scores) << what;
      }
    }
  }
}

TEST_F(CudnnPlans, AreNotThereForAttentionThatDoesNotFit) {
  const CudnnDevice device{std::string(kDevice)};
  for (const auto kind : kAttentionKinds) {  // rows that are not whole packs of 16 bytes
    EXPECT_FALSE(find_cudnn_plan(device, CudnnAttentionProblem{kind, 2, 128, 2, 12}, kMaxWorkspace).has_value());
  }
  const CudnnAttentionProblem large{CudnnAttentionProblem::Kind::backward, 32, 1024, 12, 64};
  EXPECT_FALSE(find_cudnn_plan(device, large, kMaxWorkspace).has_value()) << "more workspace than there is";
}

TEST_F(CudnnPlans, OfAttentionAreAskedForWhereTheyMeanIt) {
  const Attention good{.context = 1024, .heads = 12, .head_size = 64};
  EXPECT_TRUE(cudnn_may_take(good));
  Attention bad = good;
  bad.context = 63;
  EXPECT_FALSE(cudnn_may_take(bad));
  bad = good;
  bad.head_size = 60;
  EXPECT_FALSE(cudnn_may_take(bad));
  bad.head_size = 136;
  EXPECT_FALSE(cudnn_may_take(bad));
  bad = good;
  bad.dropout.rate = 0.1f;
  EXPECT_FALSE(cudnn_may_take(bad));
  bad = good;
  bad.first = 7;
  EXPECT_FALSE(cudnn_may_take(bad));
}

TEST_F(CudnnPlans, OfAttentionTakeSamplesInNearlyEqualParts) {
  const Attention shape{.context = 1024, .heads = 12, .head_size = 64};  // 24 MiB of scores per sample
  const std::size_t most = std::size_t{256} << 20;
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 1, most), 1);
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 10, most), 10);
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 11, most), 6);
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 32, most), 8);
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 31, most), 8);
  EXPECT_EQ(cudnn_attention_samples(shape, CudnnAttentionProblem::Kind::backward, 32, std::size_t{8} << 20), 0)
      << "not even one fits";
}

TEST_F(CudnnPlans, AreNotMadeOfEnginesThatDoNotRepeatOrRoundInBetween) {
  using Notes = std::vector<cudnnBackendNumericalNote_t>;
  const auto core = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  EXPECT_TRUE(cudnn_engine_will_do(Notes{core}));
  EXPECT_TRUE(cudnn_engine_will_do(Notes{core, CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}));
  EXPECT_FALSE(cudnn_engine_will_do(Notes{}));
  for (const auto note : {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                          CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_WINOGRAD,
                          CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_TYPE_COUNT}) {
    EXPECT_FALSE(cudnn_engine_will_do(Notes{core, note})) << note;
  }
}

TEST_F(CudnnPlans, HaveDifferentKeysForDifferentProblems) {
  const CudnnProblem one{CudnnProblem::Kind::forward, convolution(28, 128, 128, 3, 1), 8};
  CudnnProblem other = one;
  EXPECT_EQ(one.key(), other.key());
  other.kind = CudnnProblem::Kind::image_gradient;
  EXPECT_NE(one.key(), other.key());
  other = one;
  other.shape.window.width.before = 2;
  EXPECT_NE(one.key(), other.key());
}

TEST_F(CudnnPlans, SayWhatIsWrongWithADescription) {
  EXPECT_THROW(CudnnDevice(std::string("no device")), DeviceError);
  EXPECT_THROW(check_cudnn(CUDNN_STATUS_BAD_PARAM, "testing"), DeviceError);
}

}  // namespace
}  // namespace lockstep::model::cuda
