#include "app/train/resume.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "io/checkpoints/checkpoint_file.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

class ReturnToCheckpoint : public ::testing::Test {
 protected:
  /// Returns the record of a run with a validation of `loss` every 10 steps.
  static io::TrainingRecord at(std::int64_t step, double loss = 1) {
    io::TrainingRecord record;
    record.network.kind = record.network.signature = "mlp";
    record.step = step;
    for (std::int64_t s = 10; s <= step; s += 10) {
      record.metrics += io::to_json_line({{"kind", "validation"}, {"step", s}, {"loss", loss}}) + "\n";
    }
    return record;
  }
  std::filesystem::path write(const io::TrainingRecord& record) const {
    const std::filesystem::path file = folder_.path() / io::checkpoint_name(record.step);
    const std::vector<float> values(3);
    const std::vector<io::TensorView> tensors{{.group = "parameters", .name = "w", .shape = {3}, .values = values}};
    io::write_checkpoint(file, record, tensors);
    return file;
  }
  io::TemporaryFolder folder_;
};

TEST_F(ReturnToCheckpoint, TheNewestUpToTheLimitIsTakenAndLaterOnesGo) {
  const auto at_10 = write(at(10)), at_20 = write(at(20)), at_30 = write(at(30));
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 29), at_20);
  EXPECT_TRUE(std::filesystem::exists(at_10));
  EXPECT_FALSE(std::filesystem::exists(at_30));
}

TEST_F(ReturnToCheckpoint, WhereAllAreLaterTheOldestStays) {
  const auto at_20 = write(at(20)), at_30 = write(at(30));
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 17), at_20);
  EXPECT_FALSE(std::filesystem::exists(at_30));
}

TEST_F(ReturnToCheckpoint, AnotherBranchAndDamagedFilesAreNeitherTakenNorRemoved) {
  const auto at_10 = write(at(10)), at_20 = write(at(20, 2)), at_30 = write(at(30, 2)), at_40 = write(at(40));
  std::filesystem::resize_file(at_40, 1000);
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 36), at_10);
  for (const auto& file : {at_20, at_30, at_40}) EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(ReturnToCheckpoint, WithoutCheckpointsThereIsNone) {
  EXPECT_EQ(return_to_checkpoint(folder_.path(), at(37), 36), "");
  EXPECT_EQ(return_to_checkpoint(folder_.path() / "none", at(37), 36), "");
}

}  // namespace
}  // namespace lockstep::app
