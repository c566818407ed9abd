#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/messages.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

/// Element i of rank r. It is distinct for every i, and because of r squared no rank counted twice can stand in for one
/// left out. All sums are whole numbers below 2^24: exact in float, in any order.
template <class T>
T term(std::size_t i, int rank) {
  return static_cast<T>(i + 1 + static_cast<std::size_t>(rank * rank));
}

template <class T>
T expected_sum(std::size_t i, int size) {
  T sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += term<T>(i, rank);
  return sum;
}

template <class T>
std::vector<T> terms(std::size_t count, int rank) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = term<T>(i, rank);
  return result;
}

/// Around every boundary of the implementations: the world, a small message, a ring segment, a bounce buffer.
std::vector<std::size_t> counts(int size) {
  const auto p = static_cast<std::size_t>(size);
  std::set<std::size_t> result{0,   1,   p - 1, p,    p + 1, 2 * p + 1, 63,    64,       65,
                               127, 128, 129,   1000, 65535, 65536,     65537, 1'000'000};
  for (const std::size_t segment : {std::size_t{61440 / 4}, std::size_t{61440 / 8}}) {
    result.insert({segment - 1, segment, segment + 1, p * segment - 1, p * segment, p * segment + 1});
  }
  return {result.begin(), result.end()};
}

std::string bits(std::span<const float> data) {
  return std::to_string(
      std::hash<std::string_view>{}(std::string_view(reinterpret_cast<const char*>(data.data()), data.size_bytes())));
}

void expect_equal_everywhere(Communicator& communicator, std::span<const float> data) {
  const std::vector<std::string> all = all_gather_text(communicator, bits(data));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1u);
}

/// The first element that differs, so that a failure prints one line and not a million.
template <class T, class Expected>
void expect_elements(std::span<const T> data, Expected expected, const std::string& where) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] == expected(i)) continue;
    ADD_FAILURE() << where << ": element " << i << " of " << data.size() << " is " << data[i] << ", not "
                  << expected(i);
    return;
  }
}

class Collectives : public OverEveryTransport {
 protected:
  template <class T>
  void expect_all_reduce(std::span<T> data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = term<T>(i, communicator_->rank());
    communicator_->all_reduce(data);
    communicator_->wait();
    expect_elements<T>(
        data, [&](std::size_t i) { return expected_sum<T>(i, communicator_->size()); }, "all-reduce");
  }
};

TEST_P(Collectives, TheTransportIsTheOneAskedFor) {
  if (session().size() == 1) {
    EXPECT_EQ(name_of(communicator_->transport()), "serial");
  } else {
    const Transport asked = GetParam().transport;
    EXPECT_EQ(name_of(communicator_->transport()), name_of(asked));
    EXPECT_EQ(communicator_->uses_network(),
              asked != Transport::shared_memory && (asked != Transport::two_level || machines_of(GetParam()) > 1));
    EXPECT_EQ(communicator_->transport_note(), "");
    TransportCase automatic = GetParam();
    automatic.transport = Transport::automatic;
    const int machines = machines_of(GetParam());
    EXPECT_EQ(name_of(communicator_over(automatic)->transport()), machines == 1                  ? "shared memory"
                                                                  : machines == session().size() ? "ring"
                                                                                                 : "two-level");
  }
  EXPECT_EQ(communicator_->rank(), session().rank());
  EXPECT_EQ(communicator_->size(), session().size());
}

TEST_P(Collectives, AllReduceOfFloatsMatchesTheFormula) {
  for (const std::size_t count : counts(communicator_->size())) {
    std::vector<float> data(count);
    expect_all_reduce<float>(data);
  }
}

TEST_P(Collectives, AllReduceOfDoublesMatchesTheFormula) {
  for (const std::size_t count : counts(communicator_->size())) {
    std::vector<double> data(count);
    expect_all_reduce<double>(data);
  }
}

TEST_P(Collectives, AllReduceInReductionMemoryMatchesTheFormula) {
  const std::vector<std::size_t> all = counts(communicator_->size());
  const auto memory = communicator_->reduction_memory((all.back() + 256) * sizeof(double));
  auto* const begin = static_cast<float*>(memory->allocate((all.back() + 256) * sizeof(float), 256));
  for (const std::size_t count : all) {
    expect_all_reduce<float>(std::span(begin, count));
    expect_all_reduce<float>(std::span(begin + 3, count));  // not at a cache line
  }
  const auto second = communicator_->reduction_memory(100'000 * sizeof(double));
  auto* const doubles = static_cast<double*>(second->allocate(100'000 * sizeof(double), 256));
  expect_all_reduce<double>(std::span(doubles, 100'000));
}

TEST_P(Collectives, NeighboursOfTheReducedSpanStayAsTheyAre) {
  const auto memory = communicator_->reduction_memory(40'000);
  auto* const floats = static_cast<float*>(memory->allocate(40'000, 64));
  std::vector<float> elsewhere(10'000);
  for (const std::span<float> all : {std::span<float>(floats, 10'000), std::span<float>(elsewhere)}) {
    std::fill(all.begin(), all.end(), -1.0f);
    expect_all_reduce<float>(all.subspan(1001, 7003));
    expect_elements<float>(
        all.first(1001), [](std::size_t) { return -1.0f; }, "before");
    expect_elements<float>(
        all.subspan(8004), [](std::size_t) { return -1.0f; }, "after");
  }
}

TEST_P(Collectives, AllReduceGivesTheSameBitsOnAllRanksAndEveryTime) {
  for (const std::size_t count : {100u, 5'000u, 300'000u}) {
    std::string first;
    for (int repetition = 0; repetition < 3; ++repetition) {
      std::mt19937 random(17u + static_cast<unsigned>(communicator_->rank()));
      std::normal_distribution<float> normal;
      std::vector<float> data(count);
      for (float& value : data) value = normal(random) * 1e3f;
      communicator_->all_reduce(data);
      communicator_->wait();
      expect_equal_everywhere(*communicator_, data);
      if (repetition == 0) first = bits(data);
      EXPECT_EQ(bits(data), first);
    }
  }
}

TEST_P(Collectives, ReduceScatterSumsTheOwnSlice) {
  const auto memory = communicator_->reduction_memory(4'000'000);
  auto* const common = static_cast<float*>(memory->allocate(4'000'000, 64));
  for (const std::size_t count : counts(communicator_->size())) {
    std::vector<float> elsewhere(count);
    for (const std::span<float> data : {std::span<float>(elsewhere), std::span<float>(common, count)}) {
      for (std::size_t i = 0; i < count; ++i) data[i] = term<float>(i, communicator_->rank());
      communicator_->reduce_scatter(data);
      communicator_->wait();
      const Slice own = communicator_->own_slice(count, communicator_->rank());
      expect_elements<float>(
          data.subspan(own.offset, own.count),
          [&](std::size_t i) { return expected_sum<float>(own.offset + i, communicator_->size()); },
          "reduce-scatter of " + std::to_string(count));
    }
  }
}

TEST_P(Collectives, AllGatherCollectsEverySlice) {
  const auto memory = communicator_->reduction_memory(4'000'000);
  auto* const common = static_cast<float*>(memory->allocate(4'000'000, 64));
  for (const std::size_t count : counts(communicator_->size())) {
    std::vector<float> elsewhere(count);
    for (const std::span<float> data : {std::span<float>(elsewhere), std::span<float>(common, count)}) {
      std::fill(data.begin(), data.end(), -1.0f);
      const Slice own = communicator_->own_slice(count, communicator_->rank());
      for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] = term<float>(i, communicator_->rank());
      communicator_->all_gather(data);
      communicator_->wait();
      int owner = 0;
      expect_elements<float>(
          data,
          [&](std::size_t i) {
            while (i >= communicator_->own_slice(count, owner).offset + communicator_->own_slice(count, owner).count)
              ++owner;
            return term<float>(i, owner);
          },
          "all-gather of " + std::to_string(count));
    }
  }
}

TEST_P(Collectives, AllGatherOfBytesCollectsEverySlice) {
  for (const std::size_t count : counts(communicator_->size())) {
    std::vector<std::byte> data(count, std::byte{0xee});
    const auto expected = [](std::size_t i, int owner) {
      return static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(owner)) & 0xff);
    };
    const Slice own = communicator_->own_slice(count, communicator_->rank());
    for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] = expected(i, communicator_->rank());
    communicator_->all_gather(std::span(data));
    communicator_->wait();
    std::size_t wrong = 0;
    for (int owner = 0; owner < communicator_->size(); ++owner) {
      const Slice theirs = communicator_->own_slice(count, owner);
      for (std::size_t i = theirs.offset; i < theirs.offset + theirs.count; ++i) wrong += data[i] != expected(i, owner);
    }
    EXPECT_EQ(wrong, 0u) << count << " bytes";
  }
}

TEST_P(Collectives, TheHalvesOfTheRingMakeAnAllReduce) {
  const std::size_t count = 123'457;
  std::vector<float> data = terms<float>(count, communicator_->rank());
  communicator_->reduce_scatter(data);
  communicator_->wait();
  communicator_->all_gather(data);
  communicator_->wait();
  expect_elements<float>(
      data, [&](std::size_t i) { return expected_sum<float>(i, communicator_->size()); }, "halves");
}

TEST_P(Collectives, TheHalvesHaveTheBitsOfTheWholeWhereverTheDataLies) {
  for (const std::size_t count : {120u, 1'000u, 100'003u, 1'500'001u}) {
    std::vector<float> elsewhere(count);
    std::mt19937 random(91u + static_cast<unsigned>(communicator_->rank()));
    std::normal_distribution<float> normal;
    for (float& value : elsewhere) value = normal(random) * 1e3f;
    const auto memory = communicator_->reduction_memory(count * sizeof(float));
    const std::span<float> common(static_cast<float*>(memory->allocate(count * sizeof(float), 256)), count);
    std::copy(elsewhere.begin(), elsewhere.end(), common.begin());
    std::vector<float> halves = elsewhere;
    communicator_->all_reduce(elsewhere);
    communicator_->wait();
    communicator_->reduce_scatter(halves);
    communicator_->wait();
    communicator_->all_gather(halves);
    communicator_->wait();
    EXPECT_EQ(bits(halves), bits(elsewhere)) << count;
    std::copy(common.begin(), common.end(), halves.begin());
    communicator_->reduce_scatter(common);
    communicator_->wait();
    communicator_->all_gather(common);
    communicator_->wait();
    EXPECT_EQ(bits(common), bits(elsewhere)) << count;
    std::copy(halves.begin(), halves.end(), common.begin());
    communicator_->all_reduce(common);
    communicator_->wait();
    EXPECT_EQ(bits(common), bits(elsewhere)) << count;
  }
}

TEST_P(Collectives, TenMillionElements) {
  const std::size_t count = 10'000'000;
  const auto memory = communicator_->reduction_memory(count * sizeof(float));
  const std::span<float> data(static_cast<float*>(memory->allocate(count * sizeof(float), 256)), count);
  const auto value = [](std::size_t i, int rank) {
    return static_cast<float>((i * 7 + i / 65'536) % 999'983 + 11 * static_cast<std::size_t>(rank));
  };
  for (std::size_t i = 0; i < count; ++i) data[i] = value(i, communicator_->rank());
  communicator_->all_reduce(data);
  communicator_->wait();
  expect_elements<float>(
      data,
      [&](std::size_t i) {
        float sum = 0;
        for (int rank = 0; rank < communicator_->size(); ++rank) sum += value(i, rank);
        return sum;
      },
      "all-reduce");
}

TEST_P(Collectives, BroadcastCarriesTheRootsBytes) {
  for (int root = 0; root < communicator_->size(); ++root) {
    for (const std::size_t bytes : {0u, 1u, 511u, 512u, 513u, 4097u, 262'143u, 262'144u, 600'001u}) {
      std::vector<std::byte> data(bytes, std::byte{0xee});
      const auto expected = [&](std::size_t i) {
        return static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(root)) & 0xff);
      };
      if (communicator_->rank() == root) {
        for (std::size_t i = 0; i < bytes; ++i) data[i] = expected(i);
      }
      communicator_->broadcast(data, root);
      communicator_->wait();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != expected(i);
      EXPECT_EQ(wrong, 0u) << bytes << " bytes from rank " << root;
    }
  }
  const auto memory = communicator_->reduction_memory(100'000);
  const std::span<std::byte> common(static_cast<std::byte*>(memory->allocate(100'000, 64)), 100'000);
  std::fill(common.begin(), common.end(), static_cast<std::byte>(communicator_->rank()));
  communicator_->broadcast(common, communicator_->size() - 1);
  communicator_->wait();
  EXPECT_EQ(std::count(common.begin(), common.end(), static_cast<std::byte>(communicator_->size() - 1)), 100'000);
  EXPECT_THROW(communicator_->broadcast(common, communicator_->size()), std::invalid_argument);
  EXPECT_THROW(communicator_->broadcast(common, -1), std::invalid_argument);
}

TEST_P(Collectives, TextsOfAnyLengthArriveInRankOrder) {
  for (const std::size_t unit : {0u, 1u, 3u, 700u, 16'384u, 50'001u}) {
    const auto text_of = [&](int rank) {
      std::string text;
      for (std::size_t i = 0; i < unit * static_cast<std::size_t>(rank); ++i)
        text += static_cast<char>('a' + (i + i / 26) % 26);
      return text + (rank == 0 ? "" : "!");
    };
    const std::vector<std::string> all = all_gather_text(*communicator_, text_of(communicator_->rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(communicator_->size()));
    for (int rank = 0; rank < communicator_->size(); ++rank)
      EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == text_of(rank));
  }
}

TEST_P(Collectives, ManyRoundsOfRandomKindAndSize) {
  std::mt19937 random(4711);  // the same on all ranks
  const std::size_t most = 40'000;
  const auto memory = communicator_->reduction_memory(most * sizeof(float));
  auto* const common = static_cast<float*>(memory->allocate(most * sizeof(float), 256));
  std::vector<float> elsewhere(most);
  for (int round = 0; round < 400; ++round) {
    const std::size_t count = random() % 4 == 0 ? random() % most : random() % 300;
    const unsigned kind = random() % 5;
    const std::span<float> data(random() % 2 == 0 ? common : elsewhere.data(), count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = term<float>(i + static_cast<std::size_t>(round), communicator_->rank());
    const auto sum = [&](std::size_t i) {
      return expected_sum<float>(i + static_cast<std::size_t>(round), communicator_->size());
    };
    const std::string where = "round " + std::to_string(round);
    if (kind == 0) {
      communicator_->barrier();
      communicator_->wait();
    } else if (kind == 1) {
      communicator_->reduce_scatter(data);
      communicator_->wait();
      communicator_->all_gather(data);
      communicator_->wait();
      expect_elements<float>(data, sum, where);
    } else if (kind == 2) {
      const int root = static_cast<int>(random() % static_cast<unsigned>(communicator_->size()));
      communicator_->broadcast(std::as_writable_bytes(data), root);
      communicator_->wait();
      expect_elements<float>(
          data, [&](std::size_t i) { return term<float>(i + static_cast<std::size_t>(round), root); }, where);
    } else {
      communicator_->all_reduce(data);
      communicator_->wait();
      expect_elements<float>(data, sum, where);
    }
  }
}

TEST_P(Collectives, ReductionMemoryHandsOutWhatWasAskedFor) {
  const auto memory = communicator_->reduction_memory(1000);
  void* const first = memory->allocate(300, 64);
  void* const second = memory->allocate(400, 256);
  EXPECT_EQ(static_cast<std::byte*>(second) - static_cast<std::byte*>(first), 512);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 256, 0u);
  EXPECT_THROW((void)memory->allocate(600, 64), std::bad_alloc);
  EXPECT_THROW((void)memory->allocate(8, 4096), std::invalid_argument);
  EXPECT_NE(communicator_->reduction_memory(0), nullptr);
}

TEST_P(Collectives, TheTimeSpentIsCounted) {
  const double before = communicator_->busy_seconds();
  std::vector<float> data(100'000);
  communicator_->all_reduce(data);
  communicator_->wait();
  if (communicator_->size() > 1) {
    EXPECT_GT(communicator_->busy_seconds(), before);
  }
}

LOCKSTEP_OVER_EVERY_GROUPING(Collectives);
INSTANTIATE_TEST_SUITE_P(OfTheLibrary, Collectives, testing::Values(kMpi, kMpiThread), case_name);

class OneLevelOfTwo : public Collectives {};

TEST_P(OneLevelOfTwo, IsATransportLikeAnyOther) {
  EXPECT_EQ(name_of(communicator_->transport()), session().size() == 1 ? "serial" : "two-level");
  const std::size_t most = 200'000;
  const auto memory = communicator_->reduction_memory(most * sizeof(double));
  auto* const common = static_cast<float*>(memory->allocate(most * sizeof(double), 256));
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{129}, std::size_t{1000}, most}) {
    std::vector<float> elsewhere(count);
    std::vector<double> doubles(count);
    expect_all_reduce<float>(elsewhere);
    expect_all_reduce<double>(doubles);
    expect_all_reduce<float>(std::span(common, count));
    for (std::size_t i = 0; i < count; ++i) elsewhere[i] = common[i] = term<float>(i, communicator_->rank());
    for (const std::span<float> data : {std::span<float>(elsewhere), std::span<float>(common, count)}) {
      communicator_->reduce_scatter(data);
      communicator_->wait();
      communicator_->all_gather(data);
      communicator_->wait();
      expect_elements<float>(
          data, [&](std::size_t i) { return expected_sum<float>(i, communicator_->size()); }, "halves");
    }
    communicator_->broadcast(std::as_writable_bytes(std::span(elsewhere)), communicator_->size() - 1);
    communicator_->wait();
    communicator_->barrier();
    communicator_->wait();
  }
}

INSTANTIATE_TEST_SUITE_P(, OneLevelOfTwo, testing::Values(kTwoLevelTogether, kTwoLevelAlone), case_name);

}  // namespace
}  // namespace lockstep::comm
