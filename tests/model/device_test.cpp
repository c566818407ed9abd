#include "model/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/backend.hpp"
#include "model/device_obstacle.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

Device device(std::string name, int processors, int major = 9, int minor = 0) {
  Device made;
  made.name = std::move(name);
  made.processors = processors;
  made.major = major;
  made.minor = minor;
  return made;
}

TEST(Precision, NamesGoBothWays) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    EXPECT_EQ(parse_precision(name_of(precision)), precision);
  }
  EXPECT_EQ(lockstep::test::message_of<std::invalid_argument>([&] { parse_precision("fp16"); }),
            "unknown precision 'fp16'; valid: fp32, tf32, bf16");
}

TEST(Precision, Bf16IsBestFromComputeCapability8On) {
  EXPECT_EQ(best_precision(device("Tesla V100-SXM2-16GB", 80, 7, 0)), Precision::fp32);
  EXPECT_EQ(best_precision(device("NVIDIA A100-SXM4-40GB", 108, 8, 0)), Precision::bf16);
  EXPECT_EQ(best_precision(device("NVIDIA H200", 132)), Precision::bf16);
}

TEST(DevicePeak, IsTheDensePeakOfTheSheet) {
  const DevicePeak peak = peak_of(device("NVIDIA H200", 132), Precision::bf16);
  EXPECT_DOUBLE_EQ(peak.flops, 989.5e12);
  EXPECT_EQ(peak.source, "NVIDIA H200 data sheet, dense bf16");
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA A100-SXM4-80GB", 108, 8, 0), Precision::tf32).flops, 156e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA A100 80GB PCIe", 108, 8, 0), Precision::bf16).flops, 312e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA A100-PCIE-40GB", 108, 8, 0), Precision::fp32).flops, 19.5e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA H100 80GB HBM3", 132), Precision::fp32).flops, 67e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA H100 PCIe", 114), Precision::fp32).flops, 51e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA GH200 480GB", 132), Precision::bf16).flops, 989.5e12);
}

TEST(DevicePeak, OneNameInsideAnotherIsNotTheSame) {
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA L4", 58, 8, 9), Precision::fp32).flops, 30.3e12);
  EXPECT_DOUBLE_EQ(peak_of(device("NVIDIA L40S", 142, 8, 9), Precision::fp32).flops, 91.6e12);
  EXPECT_EQ(peak_of(device("NVIDIA H200 NVL", 132), Precision::bf16).source, "NVIDIA H200 NVL data sheet, dense bf16");
}

TEST(DevicePeak, IsUnknownForWhatNoSheetDescribes) {
  EXPECT_EQ(peak_of(device("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 8, 0), Precision::bf16).flops, 0);
  EXPECT_EQ(peak_of(device("NVIDIA GeForce RTX 4090", 128, 8, 9), Precision::bf16).flops, 0);
  EXPECT_EQ(peak_of(device("NVIDIA B200", 148, 10, 0), Precision::fp32).flops, 0);
  EXPECT_EQ(peak_of(device("", 0), Precision::bf16).source, "");
}

DriverReport report(DriverAnswer answer, int driver_version = 13000) {
  return {.answer = answer,
          .text = "unknown error (cudaErrorUnknown)",
          .driver_version = driver_version,
          .runtime_version = 13000,
          .visible_devices = {}};
}

TEST(Obstacle, SaysWhatHidesTheGpus) {
  DriverReport hidden = report(DriverAnswer::no_device);
  EXPECT_THAT(obstacle_of(hidden), HasSubstr("finds no GPU"));
  hidden.visible_devices = "9";
  EXPECT_THAT(obstacle_of(hidden), StartsWith("CUDA_VISIBLE_DEVICES is '9' and hides every GPU"));
  hidden.visible_devices = "";
  EXPECT_THAT(obstacle_of(hidden), StartsWith("CUDA_VISIBLE_DEVICES is '' and hides every GPU"));
}

TEST(Obstacle, TellsNoDriverFromAnOldOne) {
  EXPECT_EQ(obstacle_of(report(DriverAnswer::insufficient_driver, 0)), "no NVIDIA driver is installed here");
  EXPECT_THAT(obstacle_of(report(DriverAnswer::insufficient_driver, 12020)),
              StartsWith("the driver supports CUDA 12.2, this program needs 13.0: "));
}

TEST(Obstacle, HasARemedyForEachAnswer) {
  EXPECT_THAT(obstacle_of(report(DriverAnswer::stub_library)), HasSubstr("LD_LIBRARY_PATH"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::versions_differ)), HasSubstr("reboot"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::compatibility_refused)), HasSubstr("LD_LIBRARY_PATH"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::not_ready)), HasSubstr("nvidia-fabricmanager"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::devices_unavailable)), HasSubstr("nvidia-smi"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::mps_unreachable)), HasSubstr("nvidia-cuda-mps-control"));
  EXPECT_THAT(obstacle_of(report(DriverAnswer::other)), HasSubstr("unknown error (cudaErrorUnknown)"));
}

TEST(Architectures, MachineCodeRunsOnItsMajorAndPtxOnWhatIsLater) {
  constexpr const char* kDefault = "80-real, 90-real, 90-virtual";
  EXPECT_FALSE(runs_on(kDefault, 7, 0));
  EXPECT_FALSE(runs_on(kDefault, 7, 5));
  EXPECT_TRUE(runs_on(kDefault, 8, 0));
  EXPECT_TRUE(runs_on(kDefault, 8, 9));
  EXPECT_TRUE(runs_on(kDefault, 9, 0));
  EXPECT_TRUE(runs_on(kDefault, 10, 0));
  EXPECT_TRUE(runs_on(kDefault, 12, 1));

  EXPECT_FALSE(runs_on("80-real", 9, 0)) << "machine code alone does not run on another major";
  EXPECT_FALSE(runs_on("86-real", 8, 0));
  EXPECT_TRUE(runs_on("80-virtual", 8, 0));
  EXPECT_TRUE(runs_on("75", 8, 6)) << "without a suffix there is PTX too";
  EXPECT_TRUE(runs_on("90a-real", 9, 0));
  EXPECT_FALSE(runs_on("90a-real,90a-virtual", 10, 0));
  EXPECT_TRUE(runs_on("100f-real", 10, 3));
  EXPECT_FALSE(runs_on("", 9, 0));
}

TEST(Architectures, AreNamedAsTheVendorDoes) {
  EXPECT_EQ(describe_build(13000, "80-real, 90-real, 90-virtual"), "CUDA 13.0 (sm_80, sm_90, PTX 9.0)");
  EXPECT_EQ(describe_build(12080, "90a-real,120"), "CUDA 12.8 (sm_90a, sm_120, PTX 12.0)");
  const std::vector<Device> old = {device("Tesla V100-SXM2-16GB", 80, 7, 0)};
  EXPECT_EQ(
      obstacle_of(old, "80-real, 90-virtual"),
      "Tesla V100-SXM2-16GB has compute capability 7.0, and this program was compiled for sm_80, PTX 9.0: build it "
      "with -DLOCKSTEP_CUDA_ARCHITECTURES for this GPU");
}

TEST(Survey, FindsDevicesOrSaysWhyNot) {
  const DeviceSurvey survey = survey_devices();
  EXPECT_EQ(survey.devices.empty(), !survey.obstacle.empty()) << survey.obstacle;
  for (const Device& each : survey.devices) {
    EXPECT_THAT(each.pci, MatchesRegex("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.0"));
    EXPECT_THAT(each.uuid, MatchesRegex("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
    EXPECT_GT(each.processors, 0);
    EXPECT_GT(each.bytes, 0u);
  }
}

TEST(Survey, TheBuildSaysWhatItIs) {
  EXPECT_THAT(cuda_build(), AnyOf(testing::Eq("without CUDA"), MatchesRegex("CUDA [0-9]+\\.[0-9] \\(sm_.*\\)")));
}

TEST(Survey, TheLibraryOfProductsIsLoadedOnlyNowAndWhole) {
  if (cuda_build() == "without CUDA") {
    EXPECT_NE(gpu_library_error(), "");
  } else {
    EXPECT_EQ(gpu_library_error(), "");
  }
}

TEST(CudaBackend, WithoutAGpuSaysWhyThereIsNone) {
  const DeviceSurvey survey = survey_devices();
  if (!survey.devices.empty()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(lockstep::test::message_of<DeviceError>([&] { make_backend("cuda"); }),
            "no GPU can be used: " + survey.obstacle);
  EXPECT_THROW(free_memory(device("NVIDIA H200", 132)), DeviceError);
}

TEST(CudaBackend, WithoutThatGpuNamesThoseThatAreThere) {
  const DeviceSurvey survey = survey_devices();
  if (survey.devices.empty()) GTEST_SKIP() << "not run (no device): " << survey.obstacle;
  BackendOptions options;
  options.device = survey.devices.back().index + 1;
  EXPECT_THAT(lockstep::test::message_of<DeviceError>([&] { make_backend("cuda", options); }),
              HasSubstr(survey.devices.front().name));
}

}  // namespace
}  // namespace lockstep::model
