#include "io/datasets/prefetcher.hpp"

#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/sharded_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::HasSubstr;

/// x of sample i is the number i itself, so that a batch identifies its samples.
class PrefetcherTest : public testing::Test {
 protected:
  explicit PrefetcherTest(std::int64_t samples = 1000) {
    MemorySource source({.samples = samples,
                         .x_type = FileType::float32,
                         .x_shape = {1},
                         .value = [](std::int64_t sample, std::int64_t) { return static_cast<double>(sample); }});
    write_shards(source, {.folder = folder_.path() / "set", .shards = 3}, {});
    data_ = std::make_unique<ShardedDataset>(DatasetOptions{.path = folder_.path() / "set"});
  }

  static std::vector<std::int64_t> samples_of(const InputBatch& batch) {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < batch.count; ++i) {
      float x = 0;
      std::int32_t y = 0;
      std::memcpy(&x, batch.x.data() + i * 4, 4);
      std::memcpy(&y, batch.y.data() + i * 4, 4);
      samples.push_back(static_cast<std::int64_t>(x));
      EXPECT_EQ(y, static_cast<std::int64_t>(x) % 5);
    }
    return samples;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ShardedDataset> data_;
};

TEST_F(PrefetcherTest, SaysForWhatThereIsNoMemory) {
  EXPECT_THAT(error_text<FileError>([&] {
                Prefetcher prefetcher(*data_, {.global_batch = 100, .memory = std::pmr::null_memory_resource()});
              }),
              testing::AllOf(HasSubstr("out of memory: 3 input batches of 100 samples of "), HasSubstr("set/"),
                             HasSubstr(" takes 2.3 KiB")));
}

TEST_F(PrefetcherTest, ForeseesTheSamplesOfAStep) {
  for (const auto& [accumulate, parts] : {std::pair{1, 1}, std::pair{3, 1}, std::pair{1, 4}}) {
    for (const bool foresees : {true, false}) {
      Prefetcher prefetcher(*data_, {.global_batch = 70,
                                     .accumulate = accumulate,
                                     .rank = 1,
                                     .world = 6,
                                     .parts = parts,
                                     .foresees_steps = foresees});
      for (int step = 0; step < 20; ++step) {  // past the end of an epoch
        std::vector<std::int64_t> foreseen, came;
        for (int micro = 0; micro < accumulate * parts; ++micro) {
          const InputBatch& batch = prefetcher.next();
          ASSERT_EQ(batch.micro, micro);
          if (micro == 0) foreseen.assign(batch.of_step.begin(), batch.of_step.end());
          ASSERT_TRUE(micro == 0 || batch.of_step.empty());
          came.insert(came.end(), batch.samples.begin(), batch.samples.end());
        }
        ASSERT_EQ(foreseen, foresees ? came : std::vector<std::int64_t>{}) << step;
      }
    }
  }
}

TEST_F(PrefetcherTest, EverySampleOncePerEpochOverRanksAndMicroBatches) {
  for (const auto& [world, batch, accumulate] : {std::tuple{1, 100, 1}, std::tuple{3, 128, 2}, std::tuple{4, 7, 3},
                                                 std::tuple{5, 3, 1}, std::tuple{2, 5000, 4}}) {
    const std::int64_t steps = (1000 + batch - 1) / batch;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::multiset<std::int64_t> seen;
      for (int rank = 0; rank < world; ++rank) {
        Prefetcher prefetcher(
            *data_,
            {.global_batch = batch, .accumulate = accumulate, .rank = rank, .world = world, .first_epoch = epoch});
        for (std::int64_t step = 0; step < steps; ++step) {
          std::int64_t mine = 0;
          std::int64_t most = 0;
          std::int64_t least = 1 << 30;
          for (std::int64_t micro = 0; micro < accumulate; ++micro) {
            const InputBatch& input = prefetcher.next();
            EXPECT_EQ(input.micro, micro);
            EXPECT_EQ(input.epoch, epoch);
            EXPECT_EQ(input.position, step * batch);
            EXPECT_EQ(input.next_position, std::min<std::int64_t>(1000, (step + 1) * batch));
            EXPECT_EQ(input.step_count, input.next_position - input.position);
            EXPECT_EQ(input.x.size(), static_cast<std::size_t>(input.count) * 4);
            mine += input.count;
            most = std::max(most, input.count);
            least = std::min(least, input.count);
            for (const std::int64_t sample : samples_of(input)) seen.insert(sample);
          }
          const std::int64_t share = std::min<std::int64_t>(1000, (step + 1) * batch) - step * batch;
          EXPECT_GE(mine, share / world);
          EXPECT_LE(mine, (share + world - 1) / world);
          EXPECT_LE(most - least, 1);
        }
        EXPECT_EQ(prefetcher.next().epoch, epoch + 1);
      }
      EXPECT_EQ(seen.size(), 1000U);
      EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 1000U);
    }
  }
}

TEST_F(PrefetcherTest, ResumesAnywhereWithTheSameContinuation) {
  const PrefetcherOptions options{.order = {.seed = 11}, .global_batch = 64, .rank = 1, .world = 2};
  Prefetcher whole(*data_, options);
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> steps;
  for (int step = 0; step < 40; ++step) {
    const InputBatch& input = whole.next();
    steps.emplace_back(input.epoch * 10'000 + input.position, samples_of(input));
  }
  for (const std::size_t from : {1U, 7U, 15U, 16U, 20U}) {
    PrefetcherOptions later = options;
    later.first_epoch = steps[from].first / 10'000;
    later.first_position = steps[from].first % 10'000;
    Prefetcher resumed(*data_, later);
    for (std::size_t step = from; step < steps.size(); ++step)
      ASSERT_EQ(samples_of(resumed.next()), steps[step].second) << step;
  }
  PrefetcherOptions end = options;
  end.first_position = 1000;  // a checkpoint at the end of an epoch
  Prefetcher next_epoch(*data_, end);
  EXPECT_EQ(samples_of(next_epoch.next()), steps[16].second);
}

TEST_F(PrefetcherTest, GoesOnWhereItIsToldNearFarAndBack) {
  for (const bool stateful : {false, true}) {
    const PrefetcherOptions options{
        .order = {.seed = 11}, .stateful = stateful, .global_batch = 64, .accumulate = 2, .rank = 1, .world = 2};
    const auto two_batches = [](Prefetcher& prefetcher) {
      std::vector<std::int64_t> samples = samples_of(prefetcher.next());
      const std::vector<std::int64_t> second = samples_of(prefetcher.next());
      samples.insert(samples.end(), second.begin(), second.end());
      return samples;
    };
    Prefetcher whole(*data_, options);
    std::vector<std::vector<std::int64_t>> steps;
    const std::int64_t per_epoch = stateful ? 15 : 16;
    for (int step = 0; step < 40; ++step) steps.push_back(two_batches(whole));

    Prefetcher jumping(*data_, options);
    for (int round = 0; round < 20; ++round) {
      for (const std::int64_t to : {0, 1, 2, 7, 8, 36, 15, 16, 14, 30}) {
        if (round % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // its buffers are full
        // The end of an epoch is the beginning of the next one.
        const bool end = to > 0 && to % per_epoch == 0 && round % 3 == 0;
        const std::int64_t samples = epoch_samples(1000, 64, stateful);
        jumping.go_on_at(to / per_epoch - (end ? 1 : 0), end ? samples : to % per_epoch * 64);
        for (std::int64_t step = to; step < to + round % 4; ++step) {
          ASSERT_EQ(two_batches(jumping), steps[static_cast<std::size_t>(step)]) << round << ": " << step;
        }
        if (round % 5 == 0) jumping.next();  // in the middle of a step
      }
    }
  }
}

TEST_F(PrefetcherTest, FileOrderAndOwnMemory) {
  class Counting final : public std::pmr::memory_resource {
   public:
    std::size_t live = 0;

   private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      live += bytes;
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
      live -= bytes;
      std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  };
  Counting memory;
  {
    Prefetcher prefetcher(
        *data_,
        {.order = {.shuffle = false}, .global_batch = 10, .rank = 1, .world = 2, .depth = 2, .memory = &memory});
    EXPECT_EQ(samples_of(prefetcher.next()), (std::vector<std::int64_t>{5, 6, 7, 8, 9}));
    EXPECT_EQ(samples_of(prefetcher.next()), (std::vector<std::int64_t>{15, 16, 17, 18, 19}));
    EXPECT_EQ(memory.live, 2U * (20 + 20));
  }
  EXPECT_EQ(memory.live, 0U);
}

TEST_F(PrefetcherTest, StopsWhileBlockedOrUnused) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    Prefetcher prefetcher(*data_, {.global_batch = 10, .depth = 2 + i % 3});
    if (i % 2 == 0) prefetcher.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));  // by then its buffers are full and it waits
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(PrefetcherTest, AnErrorArrivesAtItsBatchAndStays) {
  const auto file = data_->shards()[1].file;
  const std::uint64_t x = Hdf5File(file, Hdf5File::Access::read).layout("x").offset.value();
  std::string bytes = read_text(file);
  std::memset(bytes.data() + x + 4 * 100, 0xFF, 4);  // a NaN in sample 100 of the second shard
  write_text(file, bytes);
  const std::int64_t bad = data_->shards()[1].first + 100;
  Prefetcher prefetcher(*data_, {.order = {.shuffle = false}, .global_batch = 10});
  for (std::int64_t step = 0; step < bad / 10; ++step) EXPECT_EQ(samples_of(prefetcher.next())[0], step * 10);
  EXPECT_THAT(error_text<FileError>([&] { prefetcher.next(); }), HasSubstr("sample 100"));
  EXPECT_THAT(error_text<FileError>([&] { prefetcher.next(); }), HasSubstr("sample 100"));
  prefetcher.go_on_at(0, 20);
  EXPECT_EQ(samples_of(prefetcher.next())[0], 20);
  prefetcher.go_on_at(0, bad / 10 * 10);
  EXPECT_THAT(error_text<FileError>([&] { prefetcher.next(); }), HasSubstr("sample 100"));
}

TEST_F(PrefetcherTest, MeasuresTheWait) {
  Prefetcher prefetcher(*data_, {.global_batch = 10});
  bool free = false;
  for (int attempt = 0; attempt < 100 && !free; ++attempt) {  // on a busy machine the reader may be late once
    prefetcher.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const double before = prefetcher.stall_seconds();
    prefetcher.next();
    free = prefetcher.stall_seconds() == before;
  }
  EXPECT_TRUE(free) << "a batch that is ready costs no wait";
  const double before = prefetcher.stall_seconds();
  for (int i = 0; i < 2000; ++i) prefetcher.next();
  EXPECT_GT(prefetcher.stall_seconds(), before) << "nobody computes: the consumer must wait";
}

TEST_F(PrefetcherTest, RefusesNonsense) {
  EXPECT_THROW(Prefetcher(*data_, {.global_batch = 0}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.accumulate = 0}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.rank = 2, .world = 2}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.first_position = 1001}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.depth = 1}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
