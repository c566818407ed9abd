/// Numbers to predict at each position of a sample: which extents are positions, which are channels, and their order.
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr std::int64_t kFieldTargetSamples = 3;
using FieldExtents = std::vector<std::int64_t>;

class FieldTargetsTest : public testing::Test {
 protected:
  /// Adds a data set of the numbers 0.5, 1.5, 2.5, ...
  void put(const char* name, FieldExtents extents) {
    Hdf5File file(path(), made_ ? Hdf5File::Access::modify : Hdf5File::Access::create);
    made_ = true;
    std::vector<float> numbers(
        static_cast<std::size_t>(kFieldTargetSamples * Field{"", FileType::float32, extents}.elements()));
    std::iota(numbers.begin(), numbers.end(), 0.5f);
    extents.insert(extents.begin(), kFieldTargetSamples);
    file.create_dataset(name, FileType::float32, extents);
    file.write(name, FileType::float32, std::as_bytes(std::span(numbers)));
    file.close();
  }
  std::filesystem::path path() const { return folder_.path() / "data.h5"; }
  DatasetOptions options(const std::string& y, const std::string& letters = "", std::size_t extents = 0) const {
    DatasetOptions options{.path = path(), .x = "x", .y = y, .extents = extents};
    if (!letters.empty()) options.layout.fields = {{.field = y, .letters = letters}};
    return options;
  }
  DatasetInfo info(const std::string& y, const std::string& letters = "", std::size_t extents = 0) const {
    return ShardedDataset(options(y, letters, extents)).info();
  }

  TemporaryFolder folder_;
  bool made_ = false;
};

std::vector<float> first_field_of(const ShardedDataset& data) {
  const std::int64_t sample = 0;
  std::vector<float> y(static_cast<std::size_t>(data.info().y.elements()));
  data.read(std::span(&sample, 1), kNoEpoch, {}, std::as_writable_bytes(std::span(y)));
  return y;
}

TEST_F(FieldTargetsTest, AnImageHasChannelsOrOne) {
  put("x", {6, 5, 2});
  put("channels", {6, 5, 7});
  put("plain", {6, 5});
  put("fine", {12, 10, 2});
  put("one", {6, 5, 1});
  EXPECT_EQ(info("channels").field, (FieldExtents{6, 5}));
  EXPECT_EQ(info("channels").target_count(), 7);
  EXPECT_EQ(info("plain").field, (FieldExtents{6, 5}));
  EXPECT_EQ(info("plain").y.sample_shape, (FieldExtents{6, 5}));
  EXPECT_EQ(info("plain").target_count(), 1);
  EXPECT_EQ(info("fine").field, (FieldExtents{12, 10}));
  EXPECT_EQ(info("one").field, (FieldExtents{6, 5}));
  EXPECT_EQ(info("one").y.sample_shape, (FieldExtents{6, 5, 1}));
  EXPECT_EQ(info("plain", "nlc").field, (FieldExtents{6}));
  EXPECT_EQ(info("plain", "nlc").target_count(), 5);
  EXPECT_EQ(info("channels", "ndhw").field, (FieldExtents{6, 5, 7}));
}

TEST_F(FieldTargetsTest, SeriesAndVolumesAsTheNetworkReadsThem) {
  put("x", {6, 5});
  put("y", {6, 4});
  EXPECT_EQ(info("y").field, (FieldExtents{6, 4}));      // a grey image
  EXPECT_EQ(info("y", "", 2).field, (FieldExtents{6}));  // a series
  EXPECT_EQ(info("y", "", 3).field, (FieldExtents{6, 4}));
  put("v", {4, 6, 5});
  EXPECT_EQ(info("v").field, (FieldExtents{6, 5}));  // channels first
  EXPECT_EQ(info("v", "", 4).field, (FieldExtents{4, 6, 5}));
}

TEST_F(FieldTargetsTest, ARowStaysARow) {
  put("x", {6, 5});
  put("row", {6});
  put("table", {6, 1});
  EXPECT_THAT(info("row").field, testing::IsEmpty());
  EXPECT_EQ(info("row").target_count(), 6);
  EXPECT_THAT(info("table").field, testing::IsEmpty());
  EXPECT_EQ(info("row", "nl").field, (FieldExtents{6}));
  EXPECT_EQ(info("row", "nl").target_count(), 1);
  EXPECT_THAT(info("row", "nc").field, testing::IsEmpty());
  put("narrow", {3, 1, 1});
  EXPECT_THAT(info("narrow").field, testing::IsEmpty());
}

TEST_F(FieldTargetsTest, ChannelsFirstComeLast) {
  put("x", {3, 6, 5});
  put("same", {3, 6, 5});
  put("others", {2, 6, 5});  // not told by their number, but x has its channels first
  for (const char* name : {"same", "others"}) {
    const ShardedDataset data(options(name));
    EXPECT_EQ(data.info().field, (FieldExtents{6, 5})) << name;
    const std::vector<float> y = first_field_of(data);
    const std::int64_t channels = data.info().target_count();
    for (std::int64_t c = 0; c < channels; ++c) {
      EXPECT_EQ(y[static_cast<std::size_t>(7 * channels + c)], static_cast<float>(30 * c + 7) + 0.5f) << name;
    }
  }
  DatasetOptions last = options("same");
  last.layout = Layout::channels_last;
  EXPECT_EQ(ShardedDataset(last).info().field, (FieldExtents{3, 6}));
  EXPECT_EQ(info("others", "nhwc").target_count(), 5);
}

TEST_F(FieldTargetsTest, SeveralTargetsAreChannels) {
  put("x", {2, 3, 1});
  put("a", {2, 3});
  put("b", {2, 3, 2});
  put("c", {6});
  put("d", {3, 3});
  const ShardedDataset data({.path = path(), .x = "x", .y = "a,b"});
  EXPECT_EQ(data.info().field, (FieldExtents{2, 3}));
  EXPECT_EQ(data.info().y.sample_shape, (FieldExtents{2, 3, 3}));
  EXPECT_THAT(names_of_numbers(data.info().targets), ElementsAre("a", "b_0", "b_1"));
  EXPECT_THAT(first_field_of(data), ElementsAreArray({0.5, 0.5, 1.5, 1.5, 2.5, 3.5, 2.5, 4.5, 5.5, 3.5, 6.5, 7.5, 4.5,
                                                      8.5, 9.5, 5.5, 10.5, 11.5}));
}

TEST_F(FieldTargetsTest, SeveralTargetsOfOtherPositionsAreRows) {
  put("x", {2, 3, 1});
  put("a", {2, 3});
  put("c", {6});
  put("d", {3, 3});
  put("first", {3, 5, 6});
  for (const char* y : {"a,c", "a,d", "a,first"}) {
    const ShardedDataset data({.path = path(), .x = "x", .y = y});
    EXPECT_THAT(data.info().field, testing::IsEmpty()) << y;
    const std::vector<float> numbers = first_field_of(data);
    for (std::size_t i = 6; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<float>(i - 6) + 0.5f) << y;
  }
}

}  // namespace
}  // namespace lockstep::io
