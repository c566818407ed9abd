#include "model/loaded_libraries.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

TEST(LoadedLibraries, AreFoundOnceEachAndWithTheirVersions) {
  std::istringstream maps(
      "7f0000000000-7f0000001000 r--p 00000000 08:01 11   /opt/a place/libnccl.so.2.28.9\n"
      "7f0000001000-7f0000002000 r-xp 00001000 08:01 11   /opt/a place/libnccl.so.2.28.9\n"
      "7f0000002000-7f0000003000 r--p 00000000 08:01 12   /usr/lib/libc.so.6\n"
      "7f0000003000-7f0000004000 rw-p 00000000 00:00 0    [heap]\n"
      "7f0000004000-7f0000005000 r--p 00000000 08:01 13   /cuda/lib/libcublasLt.so.13.1.0.3\n"
      "7f0000005000-7f0000006000 r--p 00000000 08:01 14   /cuda/lib/libcudnn_graph.so.9.1\n");
  EXPECT_THAT(gpu_libraries_in(maps),
              testing::ElementsAre("/cuda/lib/libcublasLt.so.13.1.0.3", "/opt/a place/libnccl.so.2.28.9"));
  EXPECT_NO_THROW(loaded_gpu_libraries());
}

}  // namespace
}  // namespace lockstep::model
