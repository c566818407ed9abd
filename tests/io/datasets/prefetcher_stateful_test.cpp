#include <cstring>
#include <map>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/prefetcher.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_corpus.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kContext = 4;
constexpr std::int64_t kSamples = 103;

/// A corpus whose token i is i: each window identifies itself.
class PrefetcherStreamsTest : public testing::Test {
 protected:
  PrefetcherStreamsTest() {
    MemoryCorpus source(
        {.tokens = (kSamples + 1) * kContext, .vocabulary = 1000, .token = [](std::int64_t i) { return i; }});
    write_shards(source, {.folder = folder_.path() / "set", .shards = 3}, {});
    data_ = std::make_unique<TokenDataset>(
        TokenDatasetOptions{.path = folder_.path() / "set", .context = kContext, .seed = 3});
  }

  static std::int32_t token(std::span<const std::byte> bytes, std::int64_t at) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + at * 4, 4);
    return value;
  }

  TemporaryFolder folder_;
  std::unique_ptr<TokenDataset> data_;
};

/// (epoch, step, sequence of the whole batch) -> the first token of the sequence's window, from all ranks and
/// micro-batches.
using Seen = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int32_t>;

TEST_F(PrefetcherStreamsTest, EveryLaneIsContiguousAtAnyWorldSize) {
  for (const std::int64_t batch : {1, 6, 12, 13, 103}) {
    const std::int64_t length = kSamples / batch;
    EXPECT_EQ(epoch_samples(kSamples, batch, true), length * batch);
    Seen expected;
    for (const int world : {1, 2, 3, 4}) {
      for (const std::int64_t accumulate : {1, 2, 3}) {
        Seen seen;
        for (int rank = 0; rank < world; ++rank) {
          const std::int64_t first = batch * rank / world, end = batch * (rank + 1) / world;
          Prefetcher prefetcher(
              *data_,
              {.stateful = true, .global_batch = batch, .accumulate = accumulate, .rank = rank, .world = world});
          for (std::int64_t step = 0; step < 2 * length; ++step) {
            std::int64_t sequence = first;
            for (std::int64_t micro = 0; micro < accumulate; ++micro) {
              const InputBatch& input = prefetcher.next();
              ASSERT_EQ(input.micro, micro);
              ASSERT_EQ(input.epoch, step / length);
              ASSERT_EQ(input.position, step % length * batch);
              ASSERT_EQ(input.next_position, input.position + batch);
              ASSERT_EQ(input.step_count, batch);
              ASSERT_EQ(input.first_sequence, sequence - first);
              ASSERT_EQ(input.samples.size(), static_cast<std::size_t>(input.count));
              for (std::int64_t i = 0; i < input.count; ++i, ++sequence) {
                ASSERT_EQ(input.samples[static_cast<std::size_t>(i)], sequence * length + step % length);
                seen[{input.epoch, step % length, sequence}] = token(input.x, i * kContext);
                ASSERT_EQ(token(input.y, i * kContext), token(input.x, i * kContext) + 1);
              }
            }
            ASSERT_EQ(sequence, end) << "the same sequences in every step";
          }
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * length * batch));
        for (const auto& [place, first_token] : seen) {
          const auto& [epoch, step, sequence] = place;
          if (step > 0) {
            ASSERT_EQ(first_token, (seen[{epoch, step - 1, sequence}]) + kContext) << "goes on where it was";
          }
        }
        if (expected.empty()) expected = seen;
        EXPECT_EQ(seen, expected) << "the same at every world size";
      }
    }
  }
}

TEST_F(PrefetcherStreamsTest, ResumesAnywhere) {
  const PrefetcherOptions options{.stateful = true, .global_batch = 10, .rank = 1, .world = 3};
  std::vector<std::vector<std::int32_t>> steps;
  const auto tokens = [](const InputBatch& input) {
    std::vector<std::int32_t> result;
    for (std::int64_t i = 0; i < input.count * kContext; ++i) result.push_back(token(input.x, i));
    return result;
  };
  Prefetcher whole(*data_, options);
  for (int step = 0; step < 25; ++step) steps.push_back(tokens(whole.next()));
  for (const std::size_t from : {1U, 9U, 10U, 13U}) {
    PrefetcherOptions later = options;
    later.first_epoch = static_cast<std::int64_t>(from) / 10;
    later.first_position = static_cast<std::int64_t>(from) % 10 * 10;
    Prefetcher resumed(*data_, later);
    for (std::size_t step = from; step < steps.size(); ++step) ASSERT_EQ(tokens(resumed.next()), steps[step]) << step;
  }
  PrefetcherOptions end = options;
  end.first_position = 100;  // a checkpoint at the end of an epoch
  Prefetcher next_epoch(*data_, end);
  EXPECT_EQ(tokens(next_epoch.next()), steps[10]);
}

TEST_F(PrefetcherStreamsTest, ARankMayHaveNoLane) {
  Prefetcher prefetcher(*data_, {.stateful = true, .global_batch = 2, .rank = 0, .world = 3});
  const InputBatch& input = prefetcher.next();
  EXPECT_EQ(input.count, 0);
  EXPECT_EQ(input.step_count, 2);
}

TEST_F(PrefetcherStreamsTest, RefusesNonsense) {
  EXPECT_THROW(Prefetcher(*data_, {.stateful = true, .global_batch = 104}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.stateful = true, .global_batch = 10, .first_position = 5}), std::invalid_argument);
  EXPECT_THROW(Prefetcher(*data_, {.stateful = true, .global_batch = 10, .first_position = 110}),
               std::invalid_argument);
}

/// Shuffled, a corpus is a dataset like any other: every window occurs once per epoch, and the batch identifies them.
TEST_F(PrefetcherStreamsTest, ShuffledWindowsEachOncePerEpoch) {
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::map<std::int64_t, std::int32_t> seen;
    for (int rank = 0; rank < 2; ++rank) {
      Prefetcher prefetcher(*data_, {.global_batch = 8, .rank = rank, .world = 2, .first_epoch = epoch});
      for (int step = 0; step < 13; ++step) {
        const InputBatch& input = prefetcher.next();
        EXPECT_EQ(input.first_sequence, 0);
        for (std::int64_t i = 0; i < input.count; ++i) {
          seen[input.samples[static_cast<std::size_t>(i)]] = token(input.x, i * kContext);
        }
      }
    }
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(kSamples));
    for (const auto& [sample, first_token] : seen) EXPECT_EQ(first_token - sample * kContext, seen[0]) << "one shift";
  }
}

}  // namespace
}  // namespace lockstep::io
