/// Several inputs and targets of a sample: packed as one dataset each, read side by side.
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/dataset_source.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/shared_shards.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/datasets/standardized_dataset.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/io_test_support.hpp"
#include "io/shards/data_description.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kFieldSamples = 11;

/// Number i of sample s of a field is 100 s + 10 `field` + i.
template <class Number>
std::vector<Number> numbers_of(int field, std::int64_t elements) {
  std::vector<Number> numbers;
  for (std::int64_t s = 0; s < kFieldSamples; ++s) {
    for (std::int64_t i = 0; i < elements; ++i) {
      numbers.push_back(static_cast<Number>((s % 2) * 100 + 10 * field + i));
    }
  }
  return numbers;
}

class FieldsTest : public testing::Test {
 protected:
  FieldsTest() {
    Hdf5File file(path(), Hdf5File::Access::create);
    put<std::uint8_t>(file, "in/picture", FileType::uint8, {2, 2, 1}, 1);
    put<float>(file, "in/table", FileType::float32, {3}, 2);
    put<double>(file, "wide", FileType::float64, {2}, 3);
    put<std::uint8_t>(file, "second", FileType::uint8, {1, 2}, 4);
    put<std::int64_t>(file, "label", FileType::int64, {}, 0, 2);
    put<float>(file, "mass", FileType::float32, {}, 5);
    put<double>(file, "place", FileType::float64, {2}, 6);
    file.create_dataset("short", FileType::float32, std::vector<std::int64_t>{kFieldSamples - 1, 3});
    const std::vector<float> fewer((kFieldSamples - 1) * 3);
    file.write("short", FileType::float32, std::as_bytes(std::span(fewer)));
    file.close();
  }

  template <class Number>
  static void put(Hdf5File& file, const char* name, FileType type, std::vector<std::int64_t> extents, int field,
                  int modulo = 0) {
    std::vector<Number> numbers = numbers_of<Number>(field, Field{"", type, extents}.elements());
    if (modulo > 0) {
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<Number>(i % static_cast<std::size_t>(modulo));
    }
    extents.insert(extents.begin(), kFieldSamples);
    file.create_dataset(name, type, extents);
    file.write(name, type, std::as_bytes(std::span(numbers)));
  }

  std::filesystem::path path() const { return folder_.path() / "data.h5"; }
  std::filesystem::path packed() const { return folder_.path() / "packed"; }
  void pack(const std::string& x, const std::string& y, std::int64_t shards = 3) const {
    const auto source = open_hdf5({.path = path(), .x = x, .y = y}, CsvOptions::Missing::error);
    write_shards(*source, {.folder = packed(), .shards = shards, .overwrite = true}, {});
  }
  std::string error(const DatasetOptions& options) const {
    return error_text<FileError>([&] { ShardedDataset data(options); });
  }

  template <class Number>
  static std::vector<Number> row(const Dataset& data, std::int64_t sample, bool targets = false) {
    std::vector<std::byte> x(data.x_bytes()), y(data.y_bytes());
    data.read({&sample, 1}, kNoEpoch, x, y);
    const std::vector<std::byte>& from = targets ? y : x;
    std::vector<Number> numbers(from.size() / sizeof(Number));
    std::memcpy(numbers.data(), from.data(), from.size());
    return numbers;
  }

  TemporaryFolder folder_;
};

TEST_F(FieldsTest, LieSideBySideInTheOrderOfTheirNames) {
  const ShardedDataset data({.path = path(), .x = "in/picture,in/table", .y = "label"});
  ASSERT_EQ(data.info().inputs.size(), 2u);
  EXPECT_EQ(data.info().inputs[0].field, (Field{"picture", FileType::uint8, {2, 2, 1}}));
  EXPECT_EQ(data.info().inputs[1].field, (Field{"table", FileType::float32, {3}}));
  EXPECT_EQ(data.info().inputs[1].first, 4);
  EXPECT_EQ(data.info().x, (Field{"x", FileType::float32, {7}}));
  EXPECT_EQ(data.x_type(), FileType::float32);
  EXPECT_THAT(row<float>(data, 1), ElementsAre(110, 111, 112, 113, 120, 121, 122));
  EXPECT_THAT(row<std::int32_t>(data, 1, true), ElementsAre(1));
  EXPECT_EQ(data.stored_bytes(), 4u + 12 + 8);
  const ShardedDataset turned(
      {.path = path(), .x = "in/picture,in/table", .y = "label", .wanted = {"table", "picture"}});
  EXPECT_THAT(row<float>(turned, 1), ElementsAre(120, 121, 122, 110, 111, 112, 113));
}

TEST_F(FieldsTest, HaveTheTypeThatHoldsAll) {
  const ShardedDataset bytes({.path = path(), .x = "in/picture,second", .y = "label"});
  EXPECT_EQ(bytes.x_type(), FileType::uint8);
  EXPECT_THAT(row<std::uint8_t>(bytes, 1), ElementsAre(110, 111, 112, 113, 140, 141));
  const ShardedDataset wide({.path = path(), .x = "in/picture,wide,in/table", .y = "label"});
  EXPECT_EQ(wide.x_type(), FileType::float64);
  EXPECT_THAT(row<double>(wide, 0), ElementsAre(10, 11, 12, 13, 30, 31, 20, 21, 22));
}

TEST_F(FieldsTest, SeveralTargetsAreNumbers) {
  const ShardedDataset data({.path = path(), .x = "in/table", .y = "mass,place", .wide_targets = true});
  EXPECT_FALSE(data.info().labels_are_classes);
  EXPECT_EQ(data.info().y.elements(), 3);
  EXPECT_EQ(data.y_type(), FileType::float64);
  EXPECT_THAT(row<double>(data, 1, true), ElementsAre(150, 160, 161));
  EXPECT_TRUE(data.info().inputs.empty());
}

TEST_F(FieldsTest, ArePackedWithADatasetEach) {
  pack("in/picture,in/table", "label");
  const ShardManifest manifest = read_manifest(packed());
  EXPECT_EQ(manifest.schema_version(), 3);
  EXPECT_THAT(manifest.names(FieldRole::input), ElementsAre("picture", "table"));
  EXPECT_THAT(manifest.names(FieldRole::target), ElementsAre("label"));
  EXPECT_EQ(manifest.details[0].value_max, 255);
  EXPECT_EQ(manifest.details[2].value_max, 122);
  const ShardedDataset stored({.path = path(), .x = "in/picture,in/table", .y = "label"}), data({.path = packed()});
  for (std::int64_t sample = 0; sample < kFieldSamples; ++sample) {
    EXPECT_EQ(row<float>(data, sample), row<float>(stored, sample));
    EXPECT_EQ(row<std::int32_t>(data, sample, true), row<std::int32_t>(stored, sample, true));
  }
  EXPECT_GT(data.verify(0, 1), 0u);
  const ShardedDataset one({.path = packed(), .x = "table"});
  EXPECT_EQ(one.info().x, (Field{"table", FileType::float32, {3}}));
  EXPECT_THAT(row<float>(one, 1), ElementsAre(120, 121, 122));
  EXPECT_NE(one.fingerprint(), data.fingerprint());
  EXPECT_THAT(error({.path = packed(), .x = "table,none"}), HasSubstr("it was packed with the inputs picture, table"));
}

TEST_F(FieldsTest, OfSeveralTargetsArePacked) {
  pack("in/table,wide", "mass,place", 2);
  const ShardedDataset data({.path = packed(), .wide_targets = true});
  EXPECT_THAT(row<double>(data, 1, true), ElementsAre(150, 160, 161));
  EXPECT_THAT(row<double>(data, 1), ElementsAre(120, 121, 122, 130, 131));
  const ShardedDataset place({.path = packed(), .wanted_targets = {"place"}});
  EXPECT_THAT(row<float>(place, 1, true), ElementsAre(160, 161));
}

TEST_F(FieldsTest, OpenedTogetherByRanks) {
  pack("in/picture,in/table", "label");
  auto first = std::make_shared<SharedShards>(packed(), 0, 2, nullptr);
  SharedShards second(packed(), 1, 2, nullptr);
  first->complete(std::vector{first->findings(), second.findings()});
  const ShardedDataset data({.path = packed(), .shared = first});
  for (std::int64_t sample = 0; sample < kFieldSamples; ++sample) EXPECT_EQ(row<float>(data, sample).size(), 7u);
}

TEST_F(FieldsTest, AreStandardizedEachByItself) {
  auto data =
      std::make_shared<ShardedDataset>(DatasetOptions{.path = path(), .x = "in/picture,in/table", .y = "label"});
  const FeatureScale scale{.mean = {100, 20, 21, 22},
                           .deviation = {2, 1, 1, 2},
                           .parts = {{.elements = 4, .features = 1}, {.elements = 3, .features = 3}}};
  const StandardizedDataset standardized(data, scale, {});
  EXPECT_THAT(row<float>(standardized, 1), ElementsAre(5, 5.5, 6, 6.5, 100, 100, 50));
  std::vector<float> numbers = row<float>(standardized, 1);
  scale.undo(numbers);
  EXPECT_EQ(numbers, row<float>(*data, 1));
  EXPECT_FALSE(scale.fits(8));
  DataDescription description;
  description.x = data->info().x;
  description.features = scale;
  for (const FieldRange& input : data->info().inputs) description.inputs.push_back(input.field);
  EXPECT_EQ(data_description_from_json(to_json(description)), description);
}

TEST_F(FieldsTest, OfAShareOfTheSamples) {
  auto whole =
      std::make_shared<ShardedDataset>(DatasetOptions{.path = path(), .x = "in/picture,in/table", .y = "label"});
  const SplitDataset part(whole, 0.3, SplitDataset::Part::validation);
  EXPECT_EQ(part.info().inputs.size(), 2u);
  EXPECT_EQ(row<float>(part, 0).size(), 7u);
}

TEST_F(FieldsTest, ChannelsFirstByLetters) {
  for (const char* right : {"nchw", "nhwc", "ncdhw", "ncl", "nl", "nhw", "nc", "ndhwc"})
    EXPECT_EQ(layout_objection(right), "");
  for (const char* wrong : {"", "n", "chw", "nwh", "nhcw", "nchwc"}) EXPECT_NE(layout_objection(wrong), "") << wrong;
  Layouts layout;
  layout.fields = {{.field = "second", .letters = "ncl"}};
  const ShardedDataset data({.path = path(), .x = "second,in/table", .y = "label", .layout = layout});
  EXPECT_EQ(data.info().inputs[0].field.sample_shape, (std::vector<std::int64_t>{2, 1}));
  layout.fields = {{.field = "other", .letters = "ncl"}};
  EXPECT_THAT(error({.path = path(), .x = "second,in/table", .y = "label", .layout = layout}),
              HasSubstr("the inputs are second, table"));
}

TEST_F(FieldsTest, ThatAreWrongAreRefused) {
  EXPECT_THAT(error({.path = path(), .x = "in/picture,none", .y = "label"}), HasSubstr("has no dataset none"));
  EXPECT_THAT(error({.path = path(), .x = "in/picture,short", .y = "label"}),
              HasSubstr("in/picture has 11 samples but short has 10"));
  EXPECT_THAT(error({.path = path(), .x = "wide,wide", .y = "label"}), HasSubstr("wide is named twice"));
}

TEST_F(FieldsTest, NamesAreTheLastWordsOfPaths) {
  EXPECT_THAT(short_names({"a/image", "table"}), ElementsAre("image", "table"));
  EXPECT_THAT(short_names({"/a/x", "b/x"}), ElementsAre("a_x", "b_x"));
  EXPECT_THAT(names_in("a,b"), ElementsAre("a", "b"));
}

TEST_F(FieldsTest, ManifestsThatContradictThemselvesAreRefused) {
  pack("in/picture,in/table", "label");
  const std::filesystem::path file = packed() / kManifestName;
  const std::string text = read_text(file);
  const auto changed = [&](std::string from, const std::string& to) {
    std::string other = text;
    const std::size_t sum = other.find("\"checksum\"");
    other.erase(sum, other.find('\n', sum) + 1 - sum);
    other.replace(other.find(from), from.size(), to);
    write_text(file, other);
    return error_text<FileError>([&] { read_manifest(packed()); });
  };
  EXPECT_THAT(changed("\"role\": \"input\"", "\"role\": \"mask\""), HasSubstr("neither input nor target"));
  EXPECT_THAT(changed("\"name\": \"table\"", "\"name\": \"picture\""), HasSubstr("no name for one of several fields"));
  EXPECT_THAT(changed("\"schema_version\": 3", "\"schema_version\": 4"), HasSubstr("newer"));
}

}  // namespace
}  // namespace lockstep::io
