#include "io/datasets/sharded_dataset.hpp"

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/standardized_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class X, class Y>
struct Samples {
  std::vector<X> x;
  std::vector<Y> y;
};

template <class X, class Y>
Samples<X, Y> read(const ShardedDataset& data, const std::vector<std::int64_t>& samples) {
  Samples<X, Y> result{std::vector<X>(samples.size() * data.x_bytes() / sizeof(X)),
                       std::vector<Y>(samples.size() * data.y_bytes() / sizeof(Y))};
  data.read(samples, kNoEpoch, std::as_writable_bytes(std::span(result.x)),
            std::as_writable_bytes(std::span(result.y)));
  return result;
}

std::vector<std::int64_t> all_shuffled(std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  std::shuffle(samples.begin() + 5, samples.end(), std::mt19937(3));  // the first ones stay neighbours
  return samples;
}

class ShardedDatasetTest : public testing::Test {
 protected:
  std::filesystem::path set() const { return folder_.path() / "set"; }
  std::filesystem::path shard(int index) const { return set() / ("shard-0000" + std::to_string(index) + ".h5"); }
  void pack(const MemorySource::Options& samples, std::int64_t shards = 3) const {
    MemorySource source(samples);
    write_shards(source, {.folder = set(), .shards = shards, .overwrite = true}, {});
  }
  std::string error() const {
    return error_text<FileError>([&] { ShardedDataset({.path = set()}); });
  }
  /// The error of reading every sample.
  std::string read_error() const {
    const ShardedDataset data({.path = set()});
    std::vector<std::byte> x(data.x_bytes());
    std::vector<std::byte> y(data.y_bytes());
    return error_text<FileError>([&] {
      for (std::int64_t i = 0; i < data.info().samples; ++i) data.read({&i, 1}, kNoEpoch, x, y);
    });
  }
  /// Overwrites bytes of a dataset's element, past all checks.
  template <class Element>
  void overwrite(const std::filesystem::path& file, const char* dataset, std::size_t element, Element value) const {
    const std::uint64_t at =
        Hdf5File(file, Hdf5File::Access::read).layout(dataset).offset.value() + element * sizeof value;
    std::string bytes = read_text(file);
    std::memcpy(bytes.data() + at, &value, sizeof value);
    write_text(file, bytes);
  }
  TemporaryFolder folder_;
};

TEST_F(ShardedDatasetTest, ReadsBackWhatWasPacked) {
  pack({.samples = 103, .class_names = {"a", "b", "c", "d", "e"}}, 4);
  const ShardedDataset data({.path = set()});
  EXPECT_EQ(data.info().samples, 103);
  EXPECT_EQ(data.info().classes, 5);
  EXPECT_TRUE(data.info().labels_are_classes);
  EXPECT_TRUE(data.info().has_statistics);
  EXPECT_EQ(data.info().class_names.back(), "e");
  EXPECT_EQ(data.x_type(), FileType::uint8);
  EXPECT_EQ(data.x_bytes(), 12U);
  EXPECT_EQ(data.y_bytes(), 4U);
  EXPECT_EQ(data.block_multiple(), 1);
  EXPECT_THAT(data.warnings(), IsEmpty());
  ASSERT_EQ(data.shards().size(), 4U);
  EXPECT_EQ(data.shards()[2].first, 51);
  EXPECT_TRUE(data.shards()[2].by_offset);
  const auto samples = all_shuffled(103);
  const auto got = read<std::uint8_t, std::int32_t>(data, samples);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(got.y[i], samples[i] % 5);
    for (std::int64_t e = 0; e < 12; ++e)
      ASSERT_EQ(got.x[i * 12 + static_cast<std::size_t>(e)], expected_x(samples[i], e));
  }
  EXPECT_EQ(data.verify(0, 1), 103U * 13);
  EXPECT_EQ(data.verify(0, 3) + data.verify(1, 3) + data.verify(2, 3), 103U * 13);
  EXPECT_THROW((read<std::uint8_t, std::int32_t>(data, {103})), std::invalid_argument);
  EXPECT_THROW((read<std::uint8_t, std::int32_t>(data, {-1})), std::invalid_argument);
}

template <class Samples>
void expect_formula(const Samples& got, const std::vector<std::int64_t>& samples, std::int64_t elements, double shift) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::int64_t e = 0; e < elements; ++e) {
      ASSERT_EQ(static_cast<double>(got.x[i * static_cast<std::size_t>(elements) + static_cast<std::size_t>(e)]),
                static_cast<double>(expected_x(samples[i], e)) + shift)
          << "sample " << samples[i];
    }
  }
}

TEST_F(ShardedDatasetTest, ConvertsEveryType) {
  const auto samples = all_shuffled(40);
  for (const FileType type : {FileType::int8, FileType::uint16, FileType::int16, FileType::int32, FileType::int64,
                              FileType::uint32, FileType::uint64, FileType::float32}) {
    const double shift = type == FileType::int8 ? -100 : 0;
    const auto value = [shift](std::int64_t sample, std::int64_t element) {
      return static_cast<double>(expected_x(sample, element)) + shift;
    };
    pack({.samples = 40, .x_type = type, .x_shape = {6}, .y_type = type, .value = value});
    const ShardedDataset data({.path = set()});
    EXPECT_EQ(data.x_type(), FileType::float32);
    if (type == FileType::float32) continue;  // float labels are no classes: below
    const auto got = read<float, std::int32_t>(data, samples);
    expect_formula(got, samples, 6, shift);
    for (std::size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(got.y[i], samples[i] % 5) << name_of(type);
  }
  pack({.samples = 40,
        .x_type = FileType::float64,
        .x_shape = {6},
        .y_type = FileType::float64,
        .y_shape = {2},
        .classes = false,
        .label = [](std::int64_t sample) { return static_cast<double>(sample) / 4; }});
  const ShardedDataset data({.path = set()});
  EXPECT_EQ(data.x_type(), FileType::float64);
  EXPECT_EQ(data.info().classes, 0);
  EXPECT_EQ(data.y_bytes(), 8U);
  const auto got = read<double, float>(data, samples);
  expect_formula(got, samples, 6, 0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(got.y[2 * i], static_cast<float>(samples[i]) / 4);
    ASSERT_EQ(got.y[2 * i + 1], static_cast<float>(samples[i]) / 4);
  }
}

TEST_F(ShardedDatasetTest, NumbersThatFloat32DoesNotHoldStayApart) {
  constexpr double kFirst = 1'700'000'000;
  for (const FileType type :
       {FileType::int32, FileType::int64, FileType::uint32, FileType::uint64, FileType::float64}) {
    const auto value = [](std::int64_t sample, std::int64_t) { return kFirst + static_cast<double>(sample); };
    pack({.samples = 40,
          .x_type = type,
          .x_shape = {1},
          .y_type = type,
          .y_shape = {1},
          .classes = false,
          .label = [](std::int64_t sample) { return kFirst - static_cast<double>(sample); },
          .value = value});
    const auto data = std::make_shared<ShardedDataset>(DatasetOptions{.path = set(), .wide_targets = true});
    EXPECT_EQ(data->x_type(), FileType::float64) << name_of(type);
    EXPECT_EQ(data->y_type(), FileType::float64);
    EXPECT_EQ(ShardedDataset({.path = set()}).y_type(), FileType::float32);
    const StandardizedDataset scaled(data, {.mean = {kFirst}, .deviation = {1}}, {.mean = {kFirst}, .deviation = {2}});
    EXPECT_EQ(scaled.x_type(), FileType::float32);
    EXPECT_EQ(scaled.y_bytes(), sizeof(float));
    std::vector<float> x(1), y(1);
    for (const std::int64_t sample : {0, 1, 39}) {
      scaled.read({&sample, 1}, kNoEpoch, std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
      EXPECT_EQ(x[0], static_cast<float>(sample));
      EXPECT_EQ(y[0], static_cast<float>(-sample) / 2);
    }
  }
}

TEST_F(ShardedDatasetTest, SamplesWithoutLabels) {
  pack({.samples = 20, .labelled = false});
  const ShardedDataset data({.path = set()});
  EXPECT_EQ(data.y_bytes(), 0U);
  EXPECT_EQ(data.info().y.name, "");
  EXPECT_FALSE(data.info().labels_are_classes);
  expect_formula(read<std::uint8_t, std::int32_t>(data, {19, 3, 4}), {19, 3, 4}, 12, 0);
  EXPECT_EQ(data.verify(0, 1), 240U);
}

TEST_F(ShardedDatasetTest, ReadsFilesMadeByOthers) {
  const auto samples = all_shuffled(40);
  const auto labels_match = [&](const auto& got) {
    for (std::size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(got.y[i], samples[i] % 5);
  };
  const auto open = [](const char* name, const char* x, const char* y) {
    return ShardedDataset({.path = kFixtures / name, .x = x, .y = y});
  };

  const auto splitting = open("chunks_split_samples.h5", "images", "labels");
  expect_formula(read<std::uint8_t, std::int32_t>(splitting, samples), samples, 36, 0);
  labels_match(read<std::uint8_t, std::int32_t>(splitting, samples));
  EXPECT_EQ(splitting.block_multiple(), 20);
  EXPECT_EQ(splitting.info().classes, 5);
  EXPECT_FALSE(splitting.info().has_statistics);
  EXPECT_FALSE(splitting.shards()[0].by_offset);
  EXPECT_GT(splitting.cache_bytes(), 0u);
  EXPECT_THAT(splitting.warnings(),
              ElementsAre(AllOf(HasSubstr("(20, 3, 3)"), HasSubstr("several chunks"), HasSubstr("lockstep pack"),
                                HasSubstr("h5repack -l images:CONTI"))));

  const auto compressed = open("compressed.h5", "images", "labels");
  expect_formula(read<std::uint8_t, std::int32_t>(compressed, samples), samples, 36, 0);
  EXPECT_THAT(compressed.warnings(), ElementsAre(HasSubstr("compressed")));
  EXPECT_EQ(compressed.block_multiple(), 8);

  const auto swapped = open("big_endian.h5", "data", "label");
  expect_formula(read<float, std::int32_t>(swapped, samples), samples, 4, 0);
  labels_match(read<float, std::int32_t>(swapped, samples));
  EXPECT_THAT(swapped.warnings(), ElementsAre(HasSubstr("byte order"), HasSubstr("byte order")));

  const auto regression = open("regression.h5", "x", "y");
  const auto targets = read<double, float>(regression, samples);
  expect_formula(targets, samples, 3, 0);
  EXPECT_FALSE(regression.info().labels_are_classes);
  EXPECT_EQ(regression.info().classes, 0);
  EXPECT_TRUE(regression.shards()[0].by_offset);
  EXPECT_EQ(regression.cache_bytes(), 0u) << "what is read by offset is not kept";
  EXPECT_THAT(regression.warnings(), IsEmpty());
  for (std::size_t i = 0; i < samples.size(); ++i)
    ASSERT_EQ(targets.y[2 * i + 1], static_cast<float>(expected_x(samples[i], 1)) / 4);

  expect_formula(read<float, std::int32_t>(open("signed_words.h5", "x", "y"), samples), samples, 3, -100);
  labels_match(read<float, std::int32_t>(open("signed_words.h5", "x", "y"), samples));
  const auto wide = open("wide.h5", "x", "y");
  EXPECT_EQ(wide.x_type(), FileType::float64) << "float32 does not hold all integers of 64 bits";
  expect_formula(read<double, std::int32_t>(wide, samples), samples, 3, 0);
  EXPECT_EQ(wide.info().classes, 2) << "booleans are two classes";
  EXPECT_EQ(wide.verify(0, 1), 0U) << "no checksums, nothing to verify";
}

TEST_F(ShardedDatasetTest, SaysWhatIsWrongWithFilesMadeByOthers) {
  const auto error_of = [](const std::filesystem::path& path, const char* x, const char* y) {
    return error_text<FileError>([&] { ShardedDataset({.path = path, .x = x, .y = y}); });
  };
  EXPECT_THAT(error_of(kFixtures / "unequal.h5", "x", "y"), AllOf(HasSubstr("40"), HasSubstr("39")));
  EXPECT_THAT(error_of(kFixtures / "text_labels.h5", "y", "x"), HasSubstr("the elements of y are texts"));
  EXPECT_THAT(error_of(kFixtures / "regression.h5", "x", "label"),
              AllOf(HasSubstr("no dataset label"), HasSubstr("x, y"), HasSubstr("--y")));
  EXPECT_THAT(error_of(kFixtures, "x", "y"),
              AllOf(HasSubstr("checkpoint_format_1.h5"), HasSubstr("no dataset x"), HasSubstr("choose with --x")));
  EXPECT_THAT(error_of(folder_.path() / "absent", "x", "y"), AllOf(HasSubstr("does not exist"), HasSubstr("expected")));
  EXPECT_THAT(error_of(folder_.path(), "x", "y"), AllOf(HasSubstr("holds no HDF5 file"), HasSubstr("expected")));
  std::filesystem::copy(kFixtures / "regression.h5", folder_.path() / "a.h5");
  std::filesystem::copy(kFixtures / "signed_words.h5", folder_.path() / "b.h5");
  EXPECT_THAT(error_of(folder_.path(), "x", "y"), AllOf(HasSubstr("b.h5"), HasSubstr("unlike its sibling a.h5")));
  Hdf5File bare(folder_.path() / "b.h5", Hdf5File::Access::create);
  bare.create_dataset("x", FileType::float32, std::vector<std::int64_t>{2, 3});
  bare.close();
  EXPECT_THAT(error_text<FileError>([&] {
                ShardedDataset({.path = folder_.path(), .x = "x", .y = "y", .unlabelled = Unlabelled::accepted});
              }),
              HasSubstr("b.h5: has no labels, unlike its sibling a.h5"));
  const ShardedDataset alone({.path = folder_.path() / "b.h5", .unlabelled = Unlabelled::accepted});
  EXPECT_EQ(alone.y_bytes(), 0);
  EXPECT_EQ(alone.info().samples, 2);
  std::filesystem::copy(kFixtures / "regression.h5", folder_.path() / "b.h5",
                        std::filesystem::copy_options::overwrite_existing);
  const ShardedDataset two({.path = folder_.path()});
  EXPECT_EQ(two.info().samples, 80);
  EXPECT_THAT(two.warnings(), ElementsAre(HasSubstr("no manifest.json")));
}

TEST_F(ShardedDatasetTest, UnderstandsFilesOfOthersAtFirstSight) {
  const ShardedDataset texts({.path = kFixtures / "text_labels.h5"});
  EXPECT_EQ(texts.info().class_names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ((read<float, std::int32_t>(texts, {0, 1, 2, 3}).y), (std::vector<std::int32_t>{0, 1, 0, 2}));
  const ShardedDataset found({.path = kFixtures / "big_endian.h5"});
  EXPECT_THAT(found.warnings()[0], HasSubstr("takes data for the samples and label for the labels"));
  const auto file = [&](const std::vector<std::uint8_t>& y, const std::vector<std::int64_t>& x_shape) {
    Hdf5File made(folder_.path() / "made.h5", Hdf5File::Access::create);
    const std::vector<std::uint8_t> x = [&] {
      std::vector<std::uint8_t> numbers(
          static_cast<std::size_t>(std::accumulate(x_shape.begin(), x_shape.end(), 1L, std::multiplies<>())));
      std::iota(numbers.begin(), numbers.end(), std::uint8_t{0});
      return numbers;
    }();
    made.create_dataset("x", FileType::uint8, x_shape);
    made.write("x", FileType::uint8, std::as_bytes(std::span(x)));
    made.create_dataset("y", FileType::uint8, std::vector<std::int64_t>{2, static_cast<std::int64_t>(y.size()) / 2});
    made.write("y", FileType::uint8, std::as_bytes(std::span(y)));
    made.close();
    return DatasetOptions{.path = folder_.path() / "made.h5"};
  };
  const ShardedDataset one_hot(file({0, 0, 1, 1, 0, 0}, {2, 4}));
  EXPECT_TRUE(one_hot.info().labels_are_classes);
  EXPECT_EQ(one_hot.info().classes, 3);
  EXPECT_EQ((read<std::uint8_t, std::int32_t>(one_hot, {1, 0}).y), (std::vector<std::int32_t>{0, 2}));
  const ShardedDataset several(file({0, 1, 1, 1, 0, 0}, {2, 4}));
  EXPECT_FALSE(several.info().labels_are_classes);
  EXPECT_TRUE(several.info().targets_are_binary);
  EXPECT_THAT(several.warnings().back(), HasSubstr("taken as 3 labels"));
  EXPECT_FALSE(ShardedDataset(file({0, 1, 2, 1, 0, 0}, {2, 4})).info().targets_are_binary);
  DatasetOptions as_numbers = file({0, 0, 1, 1, 0, 0}, {2, 4});
  as_numbers.labels = LabelMeaning::numbers;
  const ShardedDataset numbers(as_numbers);
  EXPECT_TRUE(numbers.info().targets_are_binary);
  EXPECT_EQ((read<std::uint8_t, float>(numbers, {1}).y), (std::vector<float>{1, 0, 0}));
  DatasetOptions pictures = file({0, 1, 1, 0}, {2, 3, 5, 5});
  const ShardedDataset first(pictures);
  EXPECT_EQ(first.info().x.sample_shape, (std::vector<std::int64_t>{5, 5, 3}));
  const auto pixels = read<std::uint8_t, std::int32_t>(first, {1}).x;
  EXPECT_EQ((std::vector<std::uint8_t>(pixels.begin(), pixels.begin() + 4)),
            (std::vector<std::uint8_t>{75, 100, 125, 76}));
  pictures.layout = Layout::channels_last;
  EXPECT_EQ(ShardedDataset(pictures).info().x.sample_shape, (std::vector<std::int64_t>{3, 5, 5}));
}

TEST_F(ShardedDatasetTest, ShardsWithoutTheirManifestSpeakForThemselves) {
  pack({.samples = 30, .class_names = {"a", "b", "c", "d", "e", "f"}});
  const ShardedDataset one({.path = shard(1)});
  EXPECT_EQ(one.info().samples, 10);
  EXPECT_EQ(one.info().classes, 6);
  EXPECT_EQ(one.info().class_names.size(), 6U);
  EXPECT_EQ((read<std::uint8_t, std::int32_t>(one, {3}).y[0]), 13 % 5);
  std::filesystem::remove(set() / "manifest.json");
  EXPECT_EQ(ShardedDataset({.path = set()}).info().samples, 30);
}

TEST_F(ShardedDatasetTest, FindsWhatDiffersFromTheManifest) {
  const auto other = folder_.path() / "other";
  const auto graft = [&](const MemorySource::Options& samples) {
    MemorySource source(samples);
    write_shards(source, {.folder = other, .shards = 3, .overwrite = true}, {});
    pack({.samples = 30});
    std::filesystem::copy(other / "shard-00001.h5", shard(1), std::filesystem::copy_options::overwrite_existing);
    return error();
  };
  EXPECT_THAT(graft({.samples = 30, .x_shape = {3, 4}}),
              AllOf(HasSubstr("shard-00001.h5"), HasSubstr("(10, 3, 4)"), HasSubstr("(10, 4, 3)")));
  EXPECT_THAT(graft({.samples = 30, .x_type = FileType::int8, .value = [](std::int64_t, std::int64_t) { return 1.0; }}),
              HasSubstr("int8"));
  EXPECT_THAT(graft({.samples = 30, .y_type = FileType::int64}), HasSubstr("int64"));
  EXPECT_THAT(graft({.samples = 33}), HasSubstr("(11, 4, 3)"));
  EXPECT_THAT(graft({.samples = 30, .value = [](std::int64_t, std::int64_t) { return 1.0; }}),
              AllOf(HasSubstr("checksum"), HasSubstr("of x")));
  EXPECT_THAT(graft({.samples = 30, .class_names = {"a", "b", "c", "d", "e", "f"}}), HasSubstr("classes is 6"));
  EXPECT_THAT(graft({.samples = 30, .labelled = false}), HasSubstr("no dataset y"));
  pack({.samples = 30});
  std::filesystem::remove(shard(2));
  EXPECT_THAT(error(), AllOf(HasSubstr("shard-00002.h5"), HasSubstr("missing")));
  pack({.samples = 30});
  std::filesystem::copy(kFixtures / "regression.h5", shard(0), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("made by another program"));
  EXPECT_THAT(error_text<FileError>([&] { ShardedDataset({.path = set(), .x = "images"}); }), HasSubstr("leave --x"));
  pack({.samples = 30});
  {
    Hdf5File file(shard(0), Hdf5File::Access::modify);
    file.set_integer("/", "lockstep_schema_version", 9);
    file.close();
  }
  EXPECT_THAT(error(), AllOf(HasSubstr("schema version 9"), HasSubstr("newer")));
}

TEST_F(ShardedDatasetTest, FindsTruncation) {
  pack({.samples = 3000});
  for (const double keep : {0.0, 0.01, 0.5, 0.999}) {
    const std::string whole = read_text(shard(1));
    write_text(shard(1), whole.substr(0, static_cast<std::size_t>(keep * static_cast<double>(whole.size()))));
    EXPECT_THAT(error(), HasSubstr("shard-00001.h5")) << keep;
    write_text(shard(1), whole);
  }
  const ShardedDataset data({.path = set()});
  std::filesystem::resize_file(shard(1), 4096);
  EXPECT_THAT(error_text<FileError>([&] { read<std::uint8_t, std::int32_t>(data, {1999}); }),
              AllOf(HasSubstr("shard-00001.h5"), HasSubstr("shorter")));
}

TEST_F(ShardedDatasetTest, EveryFlippedBitOfTheMetadataIsNoticedOrHarmless) {
  pack({.samples = 20, .class_names = {"a", "b", "c", "d", "e"}}, 1);
  const std::string good = read_text(shard(0));
  const ShardedDataset whole({.path = set()});
  const auto expected = read<std::uint8_t, std::int32_t>(whole, all_shuffled(20));
  std::vector<bool> data(good.size());
  for (const auto& [name, bytes] : {std::pair{"x", 240U}, std::pair{"y", 20U}}) {
    const std::uint64_t at = Hdf5File(shard(0), Hdf5File::Access::read).layout(name).offset.value();
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(at), bytes, true);
  }
  int noticed = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    if (data[at]) continue;
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_text(shard(0), flipped);
    try {
      const ShardedDataset set_now({.path = set()});
      set_now.verify(0, 1);
      ASSERT_EQ(set_now.fingerprint(), whole.fingerprint()) << at;
      const auto got = read<std::uint8_t, std::int32_t>(set_now, all_shuffled(20));
      ASSERT_TRUE(got.x == expected.x && got.y == expected.y) << "flip at byte " << at << " passed unnoticed";
    } catch (const FileError& error) {
      ASSERT_THAT(error.what(), HasSubstr("shard-00000.h5"));
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 500);
}

TEST_F(ShardedDatasetTest, VerifyFindsEveryFlippedBitOfTheData) {
  pack({.samples = 300});
  const std::string good = read_text(shard(2));
  for (const char* dataset : {"x", "y"}) {
    const std::uint64_t at = Hdf5File(shard(2), Hdf5File::Access::read).layout(dataset).offset.value();
    for (const std::size_t where : {0U, 13U, 99U}) {
      std::string flipped = good;
      flipped[at + where] = static_cast<char>(flipped[at + where] ^ 1);
      write_text(shard(2), flipped);
      const ShardedDataset data({.path = set()});
      EXPECT_THAT(error_text<FileError>([&] { data.verify(0, 1); }),
                  AllOf(HasSubstr("shard-00002.h5"), HasSubstr(std::string(dataset) + " is damaged")));
      EXPECT_GT(data.verify(0, 3) + data.verify(1, 3), 0U);
      EXPECT_THROW(data.verify(2, 3), FileError);
    }
  }
}

TEST_F(ShardedDatasetTest, NamesTheSampleThatCannotBe) {
  pack({.samples = 30});
  overwrite(shard(1), "y", 4, std::uint8_t{5});
  EXPECT_THAT(read_error(),
              AllOf(HasSubstr("shard-00001.h5"), HasSubstr("sample 4"), HasSubstr("label 5"), HasSubstr("[0, 5)")));
  pack({.samples = 30, .y_type = FileType::int64});
  overwrite(shard(2), "y", 9, std::int64_t{-1});
  EXPECT_THAT(read_error(), AllOf(HasSubstr("shard-00002.h5"), HasSubstr("sample 9"), HasSubstr("label -1")));
  pack({.samples = 30, .x_type = FileType::float32});
  overwrite(shard(1), "x", 12 * 3 + 11, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(read_error(), AllOf(HasSubstr("shard-00001.h5"), HasSubstr("sample 3 "), HasSubstr("NaN")));
  pack({.samples = 30, .x_type = FileType::float64});
  overwrite(shard(0), "x", 0, -std::numeric_limits<double>::infinity());
  EXPECT_THAT(read_error(), AllOf(HasSubstr("shard-00000.h5"), HasSubstr("sample 0 "), HasSubstr("infinity")));
  pack({.samples = 30, .y_type = FileType::float32, .classes = false});
  overwrite(shard(1), "y", 2, std::numeric_limits<float>::infinity());
  EXPECT_THAT(read_error(), AllOf(HasSubstr("shard-00001.h5"), HasSubstr("sample 2 "), HasSubstr("in y")));
}

TEST_F(ShardedDatasetTest, FingerprintTellsDataApart) {
  pack({.samples = 30});
  const std::string here = ShardedDataset({.path = set()}).fingerprint();
  std::filesystem::rename(set(), folder_.path() / "elsewhere");
  EXPECT_EQ(ShardedDataset({.path = folder_.path() / "elsewhere"}).fingerprint(), here);
  pack({.samples = 30, .value = [](std::int64_t sample, std::int64_t) { return sample == 29 ? 1.0 : 2.0; }});
  EXPECT_NE(ShardedDataset({.path = set()}).fingerprint(), here);
  EXPECT_THAT(here, HasSubstr("30 samples"));
}

TEST_F(ShardedDatasetTest, NoticesAShardThatChangesWhileItIsOpen) {
  namespace fs = std::filesystem;
  const auto error_after = [&](const std::function<void()>& change) {
    pack({.samples = 60, .x_type = FileType::float32, .y_type = FileType::int32});
    ShardedDataset data({.path = set()});
    EXPECT_NO_THROW(data.check_unchanged(0, 1));
    change();
    EXPECT_NO_THROW(data.check_unchanged(0, 3)) << "another rank looks at shard 1";
    return error_text<FileError>([&] { data.check_unchanged(1, 3); });
  };
  const auto write_a_byte = [&](std::size_t element) { overwrite(shard(1), "x", element, 1.0F); };
  EXPECT_THAT(error_after([&] { write_a_byte(3); }),
              AllOf(HasSubstr("shard-00001.h5: has changed"), HasSubstr("was written to"), HasSubstr("--resume")));
  EXPECT_THAT(error_after([&] {
                fs::copy_file(shard(0), set() / "other");
                fs::rename(set() / "other", shard(1));
              }),
              HasSubstr("another file has taken its place"));
  EXPECT_THAT(error_after([&] { fs::resize_file(shard(1), fs::file_size(shard(1)) - 10); }), HasSubstr("bytes when"));
  EXPECT_THAT(error_after([&] {
                const auto time = fs::last_write_time(shard(1));
                write_a_byte(3);
                fs::last_write_time(shard(1), time);
              }),
              AllOf(HasSubstr("shard-00001.h5"), HasSubstr("its checksum is")));
}

TEST_F(ShardedDatasetTest, ChangesThatLeaveTheContentAreNone) {
  pack({.samples = 60});
  ShardedDataset data({.path = set()});
  std::filesystem::permissions(shard(1), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_hard_link(shard(0), folder_.path() / "link");
  EXPECT_NO_THROW(data.check_unchanged(0, 1));
  std::filesystem::remove(shard(2));
  EXPECT_NO_THROW(data.check_unchanged(0, 1)) << "open descriptors still read it";
}

}  // namespace
}  // namespace lockstep::io
