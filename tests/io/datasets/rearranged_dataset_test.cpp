#include "io/datasets/rearranged_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;

class RearrangedDatasetTest : public testing::Test {
 protected:
  std::unique_ptr<Dataset> packed() {
    MemorySource source({.samples = 6,
                         .x_type = FileType::float32,
                         .x_shape = {3},
                         .y_type = FileType::float32,
                         .y_shape = {2},
                         .classes = false,
                         .label = [](std::int64_t sample) { return 10.0 + static_cast<double>(sample); },
                         .value = [](std::int64_t sample,
                                     std::int64_t element) { return static_cast<double>(10 * sample + element); }});
    write_shards(source, {.folder = folder_.path() / "data", .shards = 2}, {});
    return std::make_unique<ShardedDataset>(DatasetOptions{.path = folder_.path() / "data"});
  }
  TemporaryFolder folder_;
};

TEST_F(RearrangedDatasetTest, DeliversNumbersWhereTheyBelong) {
  const RearrangedDataset data(packed(), {.features = {2, -1, 0, 2}, .targets = {1}}, TableSchema{});
  EXPECT_THAT(data.info().x.sample_shape, ElementsAre(4));
  EXPECT_TRUE(data.info().y.sample_shape.empty());
  ASSERT_EQ(data.x_bytes(), 4 * sizeof(float));
  ASSERT_EQ(data.y_bytes(), sizeof(float));
  std::vector<float> x(8), y(2);
  const std::vector<std::int64_t> samples{4, 1};
  data.read(samples, kNoEpoch, std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
  EXPECT_THAT(x, ElementsAre(42, 0, 40, 42, 12, 0, 10, 12));
  EXPECT_THAT(y, ElementsAre(14, 11));
  std::vector<float> alone(2);
  data.read_y(samples, std::as_writable_bytes(std::span(alone)));
  EXPECT_EQ(alone, y);
}

TEST_F(RearrangedDatasetTest, RefusesPlacesThatAreNotThere) {
  EXPECT_THROW(RearrangedDataset(packed(), {.features = {3}, .targets = {}}, TableSchema{}), std::invalid_argument);
  std::filesystem::remove_all(folder_.path() / "data");
  EXPECT_THROW(RearrangedDataset(packed(), {.features = {}, .targets = {-1}}, TableSchema{}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
