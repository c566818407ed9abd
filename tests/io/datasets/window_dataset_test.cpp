/// Windows over series: their steps, their forecasts, the split by time, and refusals.
#include "io/datasets/window_dataset.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "support/message_of.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Sample i has this shape and the numbers 100 i + 0, 100 i + 1, ...; its target is -i, as float64.
class Rows final : public Dataset {
 public:
  Rows(std::int64_t samples, std::vector<std::int64_t> shape, bool has_targets) {
    info_.samples = samples;
    info_.x = {.name = "x", .type = FileType::float32, .sample_shape = std::move(shape)};
    if (has_targets) info_.y = {.name = "y", .type = FileType::float64, .sample_shape = {}};
    info_.labels_are_classes = false;
  }
  DatasetInfo& info() noexcept { return info_; }
  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<ShardInfo>& shards() const noexcept override { return shards_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override { return "rows"; }
  FileType x_type() const noexcept override { return FileType::float32; }
  FileType y_type() const noexcept override { return FileType::float64; }
  std::size_t x_bytes() const noexcept override { return static_cast<std::size_t>(info_.x.elements()) * 4; }
  std::size_t y_bytes() const noexcept override { return info_.y.name.empty() ? 0 : 8; }
  void read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
            std::span<std::byte> y) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::int64_t e = 0; !x.empty() && e < info_.x.elements(); ++e) {
        const auto number = static_cast<float>(100 * samples[i] + e);
        std::memcpy(&x[i * x_bytes() + static_cast<std::size_t>(e) * 4], &number, 4);
      }
      const auto target = -static_cast<double>(samples[i]);
      if (!y.empty()) std::memcpy(&y[i * 8], &target, 8);
    }
  }
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override { return x_bytes() + y_bytes(); }
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t) const noexcept override {
    asked_ = {first, count};
  }
  std::uint64_t verify(int, int) const override { return 5; }
  void check_unchanged(int, int) override {}
  mutable std::vector<std::int64_t> asked_;

 private:
  DatasetInfo info_;
  std::vector<ShardInfo> shards_;
  std::vector<std::string> warnings_;
};

std::vector<double> numbers(FileType type, std::span<const std::byte> bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += size_of(type)) {
    float narrow = 0;
    double wide = 0;
    std::memcpy(&narrow, &bytes[at], 4);
    if (type == FileType::float64) std::memcpy(&wide, &bytes[at], 8);
    values.push_back(type == FileType::float64 ? wide : static_cast<double>(narrow));
  }
  return values;
}

struct SeriesWindow {
  std::vector<double> x, y;
  std::string place;
};
SeriesWindow window(const Dataset& data, std::int64_t index) {
  std::vector<std::byte> x(data.x_bytes()), y(data.y_bytes()), id(static_cast<std::size_t>(data.info().id->bytes));
  data.read(std::span(&index, 1), kNoEpoch, x, y);
  data.read_ids(std::span(&index, 1), id);
  return {numbers(data.x_type(), x), numbers(data.y_type(), y), reinterpret_cast<const char*>(id.data())};
}

std::string refusal(std::shared_ptr<Dataset> data, const WindowOptions& options) {
  return test::message_of<FileError>([&] { WindowDataset(std::move(data), options, "data"); });
}

TEST(WindowDataset, ForecastsTheTargetsOfTheNextRowsAndKnowsThePastOnes) {
  const WindowDataset data(std::make_shared<Rows>(10, std::vector<std::int64_t>{2}, true), {.window = 3, .horizon = 2},
                           "data");
  EXPECT_EQ(data.info().samples, 6);
  EXPECT_THAT(data.info().x.sample_shape, ElementsAre(3, 3));
  EXPECT_THAT(data.info().y.sample_shape, ElementsAre(2));
  EXPECT_EQ(data.x_type(), FileType::float64) << "what float32 may not hold stays";
  const SeriesWindow second = window(data, 1);
  EXPECT_THAT(second.x, ElementsAre(100, 101, -1, 200, 201, -2, 300, 301, -3));
  EXPECT_THAT(second.y, ElementsAre(-4, -5));
  EXPECT_EQ(second.place, "4");
  EXPECT_THAT(window(data, 5).y, ElementsAre(-8, -9));
}

TEST(WindowDataset, ForecastsAllNumbersWithoutTargets) {
  const WindowDataset data(std::make_shared<Rows>(6, std::vector<std::int64_t>{2}, false), {.window = 1, .horizon = 2},
                           "data");
  EXPECT_EQ(data.info().samples, 4);
  EXPECT_THAT(window(data, 3).x, ElementsAre(300, 301));
  EXPECT_THAT(window(data, 3).y, ElementsAre(400, 401, 500, 501));
  const WindowDataset one(std::make_shared<Rows>(6, std::vector<std::int64_t>{}, false), {.window = 2, .horizon = 1},
                          "data");
  EXPECT_THAT(one.info().x.sample_shape, ElementsAre(2, 1));
  EXPECT_THAT(window(one, 0).y, ElementsAre(200));
}

TEST(WindowDataset, ReadsSeriesWithinSamples) {
  const auto rows = std::make_shared<Rows>(3, std::vector<std::int64_t>{5, 2}, false);
  const WindowDataset data(rows, {.window = 2, .horizon = 1}, "data");
  EXPECT_EQ(data.info().samples, 9);
  EXPECT_THAT(window(data, 4).x, ElementsAre(102, 103, 104, 105)) << "the second window of the second series";
  EXPECT_THAT(window(data, 4).y, ElementsAre(106, 107));
  EXPECT_EQ(window(data, 4).place, "1:3");
  data.will_need(2, 4, kNoEpoch);
  EXPECT_THAT(rows->asked_, ElementsAre(0, 2));
}

TEST(WindowDataset, GoesToTheEndForForecastsOfWhatIsNotThereYet) {
  const WindowDataset data(std::make_shared<Rows>(5, std::vector<std::int64_t>{1}, true),
                           {.window = 3, .horizon = 4, .to_the_end = true}, "data");
  EXPECT_EQ(data.info().samples, 3);
  EXPECT_EQ(data.info().y.name, "");
  EXPECT_EQ(data.info().y.elements(), 4) << "the network's outputs are the same";
  EXPECT_EQ(window(data, 2).place, "5");
  EXPECT_THAT(window(data, 2).y, IsEmpty());
}

TEST(WindowDataset, NamesWhatIsForecast) {
  const auto rows = std::make_shared<Rows>(9, std::vector<std::int64_t>{1}, true);
  rows->info().table = TableSchema{.columns = {{.name = "wind"}}, .labels = {"load"}};
  EXPECT_THAT(WindowDataset(rows, {.window = 2, .horizon = 2}, "data").info().windows->target_names,
              ElementsAre("load+1", "load+2"));
}

TEST(WindowDataset, PartsAreSplitByTime) {
  for (const bool within : {false, true}) {
    const auto data =
        std::make_shared<WindowDataset>(within ? std::make_shared<Rows>(2, std::vector<std::int64_t>{20, 1}, false)
                                               : std::make_shared<Rows>(20, std::vector<std::int64_t>{1}, false),
                                        WindowOptions{.window = 3, .horizon = 2}, "data");
    const WindowPart training(data, 0.2, WindowPart::Part::training),
        validation(data, 0.2, WindowPart::Part::validation);
    const std::int64_t series = within ? 2 : 1, step = within ? 1 : 100;
    EXPECT_EQ(training.info().samples, series * 12);
    EXPECT_EQ(validation.info().samples, series * 3);
    const auto at = [&](std::int64_t t) { return static_cast<double>(step * t + (within ? 100 : 0)); };
    EXPECT_THAT(window(training, series * 12 - 1).y, ElementsAre(at(14), at(15))) << "all before step 16";
    EXPECT_THAT(window(validation, series * 3 - 3).x, ElementsAre(at(13), at(14), at(15)));
    EXPECT_THAT(window(validation, series * 3 - 3).y, ElementsAre(at(16), at(17)));
    EXPECT_THAT(window(validation, series * 3 - 1).y, ElementsAre(at(18), at(19)));
    EXPECT_NE(training.fingerprint(), validation.fingerprint());
    EXPECT_EQ(training.verify(0, 1) + validation.verify(0, 1), 5u);
  }
}

TEST(WindowDataset, SaysWhatDoesNotFit) {
  const auto rows = [](std::int64_t samples, std::vector<std::int64_t> shape, bool has_targets = false) {
    return std::make_shared<Rows>(samples, std::move(shape), has_targets);
  };
  EXPECT_EQ(refusal(rows(5, {2}), {.window = 3, .horizon = 2}), "");
  EXPECT_EQ(refusal(rows(4, {2}), {.window = 3, .horizon = 2}),
            "data: has series of 4 steps, which is too short for a window of 3 and a horizon of 2: give a smaller "
            "--window or --horizon");
  EXPECT_EQ(refusal(rows(9, {4, 1}), {.window = 4, .horizon = 1}),
            "data: has series of 4 steps, which is too short for a window of 4 and a horizon of 1: give a smaller "
            "--window or --horizon");
  EXPECT_THAT(refusal(rows(9, {4, 4, 1}), {.window = 2, .horizon = 1}), HasSubstr("has samples of 3 extents"));
  EXPECT_THAT(refusal(rows(9, {4, 1}, true), {.window = 2, .horizon = 1}), HasSubstr("a label for each series"));
  const auto classes = rows(9, {1}, true);
  classes->info().labels_are_classes = true;
  EXPECT_EQ(refusal(classes, {.window = 2, .horizon = 1}),
            "data: holds classes, and --window forecasts numbers: pack it with --regression");
  const auto drawn = rows(9, {1});
  drawn->info().source = "csv a.csv (train)";
  EXPECT_THAT(refusal(drawn, {.window = 2, .horizon = 1}), HasSubstr("drew by chance"));
  const auto few = std::make_shared<WindowDataset>(rows(9, {1}), WindowOptions{.window = 4, .horizon = 2}, "data");
  EXPECT_THROW(WindowPart(few, 0.5, WindowPart::Part::training), FileError);
  EXPECT_THROW(WindowPart(few, 0.1, WindowPart::Part::training), FileError) << "one step holds no horizon";
}

}  // namespace
}  // namespace lockstep::io
