#include "io/shards/shard_writer.hpp"

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PackSummary pack(const MemorySource::Options& samples, const ShardWriterOptions& options) {
  MemorySource source(samples);
  return write_shards(source, options, {});
}

TEST(ShardWriter, CutsSamplesIntoShardsWithAManifest) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "deep" / "set";
  const PackSummary summary =
      pack({.samples = 103, .class_names = {"a", "b", "c", "d", "e"}}, {.folder = out, .shards = 4});
  EXPECT_EQ(summary.samples, 103);
  EXPECT_EQ(summary.shards, 4);
  EXPECT_EQ(folder_names(out), (std::vector<std::string>{"manifest.json", "shard-00000.h5", "shard-00001.h5",
                                                         "shard-00002.h5", "shard-00003.h5"}));
  EXPECT_EQ(folder_names(folder.path() / "deep"), std::vector<std::string>{"set"});
  const ShardManifest manifest = read_manifest(out);
  EXPECT_EQ(manifest.samples, 103);
  EXPECT_EQ(manifest.classes, 5);
  EXPECT_EQ(manifest.class_names, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(manifest.labels, Labels::classes);
  EXPECT_EQ(manifest.value_min, 0);
  EXPECT_EQ(manifest.value_max, 255);
  EXPECT_EQ(manifest.source, "memory");
  std::vector<std::int64_t> firsts;
  std::uint64_t bytes = 0;
  for (const ManifestShard& shard : manifest.shards) {
    firsts.push_back(shard.first);
    bytes += shard.bytes;
    EXPECT_EQ(std::filesystem::file_size(out / shard.file), shard.bytes);
    const Hdf5File file(out / shard.file, Hdf5File::Access::read);
    EXPECT_EQ(file.integer("/", "first"), shard.first);
    EXPECT_EQ(file.integer("/", "count"), shard.count);
    EXPECT_EQ(file.text("x", "xxh3_64"), shard.checksum_x);
    EXPECT_EQ(file.text("y", "xxh3_64"), shard.checksum_y);
    EXPECT_EQ(file.layout("x").shape, (std::vector<std::int64_t>{shard.count, 4, 3}));
    EXPECT_TRUE(file.layout("x").offset.has_value());
  }
  EXPECT_EQ(firsts, (std::vector<std::int64_t>{0, 25, 51, 77}));
  EXPECT_EQ(summary.bytes, bytes);
}

TEST(ShardWriter, MeasuresRangeMeanAndDeviation) {
  const TemporaryFolder folder;
  const auto value = [](std::int64_t sample, std::int64_t element) {
    return 1000.0 + std::sin(0.37 * static_cast<double>(sample * 64 + element));
  };
  pack({.samples = 30'000, .x_type = FileType::float32, .x_shape = {64}, .value = value},
       {.folder = folder.path() / "s"});
  double sum = 0;
  double squares = 0;
  double low = 1e9;
  double high = -1e9;
  for (std::int64_t i = 0; i < 30'000; ++i) {
    for (std::int64_t e = 0; e < 64; ++e) {
      const double x = static_cast<double>(static_cast<float>(value(i, e)));
      sum += x - 1000;
      squares += (x - 1000) * (x - 1000);
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  const double n = 30'000 * 64;
  const ShardManifest manifest = read_manifest(folder.path() / "s");
  EXPECT_EQ(manifest.value_min, low);
  EXPECT_EQ(manifest.value_max, high);
  EXPECT_NEAR(manifest.mean, 1000 + sum / n, 1e-9);
  EXPECT_NEAR(manifest.standard_deviation, std::sqrt(squares / n - (sum / n) * (sum / n)), 1e-9);
}

TEST(ShardWriter, RefusesToOverwriteAndNeverReplacesAForeignFolder) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "set";
  pack({.samples = 10}, {.folder = out});
  EXPECT_THAT(error_text<FileError>([&] { pack({.samples = 20}, {.folder = out}); }),
              AllOf(HasSubstr("exists"), HasSubstr("--force")));
  EXPECT_EQ(read_manifest(out).samples, 10);
  pack({.samples = 20}, {.folder = out, .shards = 2, .overwrite = true});
  EXPECT_EQ(read_manifest(out).samples, 20);
  EXPECT_EQ(folder_names(folder.path()), std::vector<std::string>{"set"});

  write_text(out / "notes.txt", "mine");
  EXPECT_THAT(error_text<FileError>([&] { pack({.samples = 30}, {.folder = out, .overwrite = true}); }),
              HasSubstr("nothing but shards"));
  EXPECT_EQ(read_text(out / "notes.txt"), "mine");
  const auto file = folder.path() / "file";
  write_text(file, "mine");
  EXPECT_THROW(pack({.samples = 30}, {.folder = file, .overwrite = true}), FileError);
  EXPECT_EQ(read_text(file), "mine");
  std::filesystem::create_directory(folder.path() / "empty");
  pack({.samples = 7}, {.folder = folder.path() / "empty" / ""});
  EXPECT_EQ(read_manifest(folder.path() / "empty").samples, 7);
  EXPECT_EQ(folder_names(folder.path()), (std::vector<std::string>{"empty", "file", "set"}));
}

/// Threads act as processes.
class Threads final : public PackPeers {
 public:
  struct Shared {
    explicit Shared(int size) : barrier(size), texts(static_cast<std::size_t>(size)) {}
    std::barrier<> barrier;
    std::atomic<bool> failed = false;
    std::vector<std::string> texts;
  };
  Threads(int rank, Shared& shared) : rank_(rank), shared_(shared) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_.texts.size()); }
  void all_succeed(const std::function<void()>& work) override {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
      shared_.failed = true;
    }
    shared_.barrier.arrive_and_wait();
    const bool failed = shared_.failed;
    shared_.barrier.arrive_and_wait();  // no thread goes on before all have looked
    if (error) std::rethrow_exception(error);
    if (failed) throw FileError("another one failed");
  }
  std::vector<std::string> gather(std::string own) override {
    shared_.texts[static_cast<std::size_t>(rank_)] = std::move(own);
    shared_.barrier.arrive_and_wait();
    std::vector<std::string> all = shared_.texts;
    shared_.barrier.arrive_and_wait();
    return all;
  }

 private:
  int rank_;
  Shared& shared_;
};

/// Number of failed packers.
int pack_by(int size, const std::function<void(ShardWriterOptions, int rank)>& work,
            const ShardWriterOptions& options) {
  Threads::Shared shared(size);
  std::atomic<int> failures = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Threads peers(rank, shared);
      ShardWriterOptions own = options;
      own.peers = &peers;
      try {
        work(own, rank);
      } catch (const FileError&) {
        ++failures;
      }
    });
  }
  threads.clear();
  return failures;
}

std::string shard_bytes(const std::filesystem::path& folder) {
  std::string all;
  for (const std::string& name : folder_names(folder)) all += name + read_text(folder / name);
  return all;
}

TEST(ShardWriter, SeveralProcessesWriteTheBytesOfOne) {
  const TemporaryFolder folder;
  const MemorySource::Options samples{
      .samples = 103, .x_type = FileType::float32, .label = [](std::int64_t i) { return static_cast<double>(i % 7); }};
  const auto alone = folder.path() / "alone", together = folder.path() / "together";
  pack(samples, {.folder = alone, .shards = 5});
  for (const int size : {2, 3, 8}) {
    EXPECT_EQ(pack_by(size, [&](const ShardWriterOptions& own, int) { pack(samples, own); },
                      {.folder = together, .shards = 5, .overwrite = true}),
              0);
    EXPECT_EQ(shard_bytes(together), shard_bytes(alone)) << size;
  }
  const OpenSource open = [&] { return std::make_unique<MemorySource>(samples); };
  write_split(open, {.validation = 31}, {.folder = folder.path() / "split", .shards = 4}, {});
  pack_by(3, [&](const ShardWriterOptions& own, int) { write_split(open, {.validation = 31}, own, {}); },
          {.folder = folder.path() / "split_together", .shards = 4});
  for (const char* part : {kTrainName, kValidationName}) {
    EXPECT_EQ(shard_bytes(folder.path() / "split_together" / part), shard_bytes(folder.path() / "split" / part));
  }
}

TEST(ShardWriter, WhereOneProcessFailsAllDoAndNothingIsLeft) {
  const TemporaryFolder folder;
  const MemorySource::Options samples{
      .samples = 90, .class_names = {"a", "b"}, .label = [](std::int64_t i) { return i == 80 ? 200.0 : 1.0; }};
  EXPECT_EQ(pack_by(3, [&](const ShardWriterOptions& own, int) { pack(samples, own); },
                    {.folder = folder.path() / "set", .shards = 3}),
            3);
  EXPECT_EQ(folder_names(folder.path()), std::vector<std::string>{});
}

TEST(ShardWriter, TheManifestSaysWhatTargetsLookLike) {
  const TemporaryFolder folder;
  const auto values = [&](const std::function<double(std::int64_t)>& label, std::vector<std::int64_t> shape) {
    pack({.samples = 60, .y_type = FileType::float32, .y_shape = std::move(shape), .classes = false, .label = label},
         {.folder = folder.path() / "set", .shards = 3, .overwrite = true});
    return read_manifest(folder.path() / "set").target_values;
  };
  EXPECT_EQ(values([](std::int64_t i) { return static_cast<double>(i % 2); }, {2}), TargetValues::binary);
  EXPECT_TRUE(ShardedDataset({.path = folder.path() / "set"}).info().targets_are_binary);
  EXPECT_EQ(values([](std::int64_t i) { return i == 50 ? 0.5 : 1.0; }, {2}), TargetValues::any);
  EXPECT_FALSE(ShardedDataset({.path = folder.path() / "set"}).info().targets_are_binary);
  EXPECT_EQ(values([](std::int64_t) { return 1.0; }, {}), TargetValues::binary);
  EXPECT_EQ(values([](std::int64_t) { return 1.0; }, {1}), TargetValues::binary);
}

TEST(ShardWriter, CancellingLeavesNothingBehind) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "set";
  pack({.samples = 10}, {.folder = out});
  MemorySource source({.samples = 1000});
  struct Cancelled {};
  int calls = 0;
  EXPECT_THROW(write_shards(source, {.folder = out, .shards = 3, .overwrite = true},
                            [&](std::int64_t done, std::int64_t all) {
                              EXPECT_EQ(all, 1000);
                              ++calls;
                              if (done == all) throw Cancelled();
                            }),
               Cancelled);
  EXPECT_GE(calls, 2);
  EXPECT_EQ(read_manifest(out).samples, 10);
  EXPECT_EQ(folder_names(folder.path()), std::vector<std::string>{"set"});
}

TEST(ShardWriter, NamesTheSampleThatCannotBe) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "set";
  const auto error = [&](const MemorySource::Options& samples, std::int64_t classes = 0) {
    return error_text<FileError>([&] { pack(samples, {.folder = out, .shards = 3, .classes = classes}); });
  };
  const auto label_17 = [](double label) {
    return [label](std::int64_t sample) { return sample == 17 ? label : 1.0; };
  };
  EXPECT_THAT(error({.y_type = FileType::int32, .label = label_17(-1)}),
              AllOf(HasSubstr("sample 17"), HasSubstr("label -1")));
  EXPECT_THAT(error({.label = label_17(5)}, 5), AllOf(HasSubstr("sample 17"), HasSubstr("[0, 5)")));
  EXPECT_THAT(error({.class_names = {"a", "b"}, .label = label_17(2)}),
              AllOf(HasSubstr("sample 17"), HasSubstr("[0, 2)")));
  EXPECT_THAT(error({.y_type = FileType::uint64, .label = label_17(1e19)}), HasSubstr("sample 17"));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto value = [bad](std::int64_t sample, std::int64_t element) {
      return sample == 42 && element == 7 ? bad : 1.0;
    };
    EXPECT_THAT(error({.x_type = FileType::float32, .value = value}), AllOf(HasSubstr("sample 42"), HasSubstr("NaN")));
    EXPECT_THAT(error({.x_type = FileType::float64, .value = value}), HasSubstr("sample 42"));
    EXPECT_THAT(error({.y_type = FileType::float32, .classes = false, .label = label_17(bad)}), HasSubstr("sample 17"));
  }
  EXPECT_THAT(error({.samples = 0}), HasSubstr("no samples"));
  EXPECT_EQ(folder_names(folder.path()), std::vector<std::string>{});
  EXPECT_THROW(pack({.samples = 2}, {.folder = out, .shards = 3}), std::invalid_argument);
  EXPECT_THROW(pack({.samples = 2}, {.folder = out, .shards = 0}), std::invalid_argument);
}

TEST(ShardWriter, SaysWhereItCannotWrite) {
  const TemporaryFolder folder;
  write_text(folder.path() / "file", "");
  EXPECT_THAT(error_text<FileError>([&] { pack({}, {.folder = folder.path() / "file" / "set"}); }),
              HasSubstr("cannot write"));
}

/// A tmpfs of 1 MiB, or the reason why there is none.
class SmallDisk : public testing::Test {
 protected:
  void SetUp() override {
    mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!mounted_) GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(::umount(folder_.path().c_str()), 0);
    }
  }
  TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST_F(SmallDisk, FullBeforeTheFirstByteOrBetweenShards) {
  const auto out = folder_.path() / "set";
  pack({.samples = 10}, {.folder = out});
  const MemorySource::Options large{.samples = 2000, .x_shape = {1000}};
  EXPECT_THAT(
      error_text<FileError>([&] { pack(large, {.folder = out, .shards = 4, .overwrite = true}); }),
      AllOf(HasSubstr(folder_.path().string()), HasSubstr("No space left"), HasSubstr("needed"), HasSubstr("free")));
  EXPECT_EQ(read_manifest(out).samples, 10);

  // The disk fills up while packing: another writer uses the space that was free at the start.
  MemorySource source({.samples = 800, .x_shape = {1000}});
  bool stolen = false;
  EXPECT_THAT(error_text<FileError>([&] {
                write_shards(source, {.folder = out, .shards = 4, .overwrite = true}, [&](std::int64_t, std::int64_t) {
                  if (!std::exchange(stolen, true)) write_text(folder_.path() / "thief", std::string(500'000, 'x'));
                });
              }),
              AllOf(HasSubstr("No space left"), HasSubstr("free")));
  EXPECT_EQ(folder_names(folder_.path()), (std::vector<std::string>{"set", "thief"}));
  EXPECT_EQ(read_manifest(out).samples, 10);
}

TEST(ShardManifest, NoticesDamage) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "set";
  pack({.samples = 10}, {.folder = out, .shards = 2});
  const std::string good = read_text(out / "manifest.json");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_text(out / "manifest.json", text.replace(at, from.size(), to));
    return error_text<FileError>([&] { read_manifest(out); });
  };
  EXPECT_THAT(changed("\"classes\": 5", "\"classes\": 6"), HasSubstr("checksum"));
  EXPECT_THAT(changed("\"mean\"", "\"maen\""), HasSubstr("checksum"));
  EXPECT_THAT(changed("{", "["), HasSubstr("damaged"));
  EXPECT_THAT(changed("\"schema_version\": 1", "\"schema_version\": 4"), HasSubstr("newer"));
  EXPECT_THAT(changed("lockstep shards", "somebody's own"), HasSubstr("not a manifest"));
  const std::string checksum =
      good.substr(good.find("\"checksum\""), std::string("\"checksum\": \"0123456789abcdef\",").size());
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(checksum), checksum.size(), "");
    text.replace(text.find(from), from.size(), to);
    write_text(out / "manifest.json", text);
  };
  edited("\"memory\"", "\"my own words\"");
  EXPECT_EQ(read_manifest(out).source, "my own words");
  edited("\"samples\": 10", "\"samples\": 11");
  EXPECT_THAT(error_text<FileError>([&] { read_manifest(out); }), HasSubstr("10 samples"));
  edited("shard-00001.h5", "../shard-00001.h5");
  EXPECT_THAT(error_text<FileError>([&] { read_manifest(out); }), HasSubstr("file name"));
  edited("\"classes\": 5", "\"classes\": 0");
  EXPECT_THAT(error_text<FileError>([&] { read_manifest(out); }), HasSubstr("contradict"));
  edited("\"classes\": 5", "\"classes\": \"five\"");
  EXPECT_THAT(error_text<FileError>([&] { read_manifest(out); }), HasSubstr("damaged"));
}

}  // namespace
}  // namespace lockstep::io
