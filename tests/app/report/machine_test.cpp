#include "app/report/machine.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Machine, ReadsWhatAnX86ProcessorIs) {
  std::istringstream cpuinfo(
      "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9554 64-Core Processor\n"
      "flags\t\t: fpu vme avx fma avx512f avx2 avx512_bf16\nbugs\t\t: sysret_ss_attrs\n\n"
      "processor\t: 1\nmodel name\t: another\n");
  const Processor processor = processor_in(cpuinfo);
  EXPECT_EQ(processor.model, "AMD EPYC 9554 64-Core Processor");
  EXPECT_THAT(processor.instruction_sets, ElementsAre("avx2", "fma", "avx512f", "avx512_bf16"));
}

TEST(Machine, ReadsWhatAnArmProcessorTells) {
  std::istringstream cpuinfo("processor\t: 0\nFeatures\t: fp asimd evtstrm sve bf16\nCPU implementer\t: 0x41\n\n");
  const Processor processor = processor_in(cpuinfo);
  EXPECT_EQ(processor.model, "");
  EXPECT_THAT(processor.instruction_sets, ElementsAre("asimd", "sve", "bf16"));
}

TEST(Machine, DoesWithoutProc) {
  std::istringstream nothing("");
  EXPECT_EQ(processor_in(nothing).model, "");
  EXPECT_THAT(processor_in(nothing).instruction_sets, IsEmpty());
  EXPECT_GE(processors(), 1);
}

}  // namespace
}  // namespace lockstep::app
