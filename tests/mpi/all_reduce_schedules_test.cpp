/// Sums between hosts by each schedule, at any number of ranks.
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

struct Case {
  const char* name;
  Transport transport;
  AllReduceLimits limits;
  WireFormat wire = WireFormat::fp32;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

constexpr AllReduceLimits kSteps{.doubling = 2000, .halving = 40'000};

class Schedules : public testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<Communicator> make(const Case& one) {
    return make_communicator(session(), {.transport = one.transport,
                                         .wire = one.wire,
                                         .all_reduce = {.limits = one.limits},
                                         .pretended_machine = 1 + session().rank() % 3});
  }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  std::vector<std::size_t> counts() const {
    const auto p = static_cast<std::size_t>(size());
    const std::set<std::size_t> all{0,   1,   p - 1, p,    p + 1,         16 * p - 1,         16 * p, 16 * p + 1,
                                    128, 129, 500,   1000, 15360 * p + 1, 2 * 15360 * p + 17, 300'001};
    return {all.begin(), all.end()};
  }
  /// Element i of a rank: sums are whole numbers below 2^24, exact in any order; no rank stands in for another.
  template <class T>
  static T term(std::size_t i, int rank) {
    return static_cast<T>(i % 10'000 + 1 + static_cast<std::size_t>(rank * rank));
  }
  template <class T>
  T sum_of(std::size_t i) const {
    T sum = 0;
    for (int peer = 0; peer < size(); ++peer) sum += term<T>(i, peer);
    return sum;
  }
  template <class T>
  std::vector<T> terms(std::size_t count) const {
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = term<T>(i, rank());
    return data;
  }
  template <class T>
  void expect_sums(std::span<const T> data, std::size_t first, const char* what) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i] == sum_of<T>(first + i)) continue;
      ADD_FAILURE() << what << ": element " << first + i << " is " << data[i] << ", not " << sum_of<T>(first + i);
      return;
    }
  }
  static std::string bits(std::span<const float> data) {
    return std::to_string(
        std::hash<std::string_view>{}({reinterpret_cast<const char*>(data.data()), data.size_bytes()}));
  }
  void all_reduce(std::span<float> data) {
    communicator_->all_reduce(data);
    communicator_->wait();
  }
  std::vector<float> noise(std::size_t count) const {
    std::mt19937 random(17u + static_cast<unsigned>(rank()));
    std::normal_distribution<float> normal;
    std::vector<float> data(count);
    for (float& value : data) value = normal(random) * 1e3f;
    return data;
  }

  const std::unique_ptr<Communicator> communicator_ = make(GetParam());
};

TEST_P(Schedules, SumsMatchTheFormula) {
  if (GetParam().wire != WireFormat::fp32) return;  // rounded
  for (const std::size_t count : counts()) {
    std::vector<float> data = terms<float>(count);
    all_reduce(data);
    expect_sums<float>(data, 0, "all-reduce");
    std::vector<double> doubles = terms<double>(count);
    communicator_->all_reduce(doubles);
    communicator_->wait();
    expect_sums<double>(doubles, 0, "all-reduce of doubles");
    data = terms<float>(count);
    communicator_->reduce_scatter(data);
    communicator_->wait();
    const Slice own = communicator_->own_slice(count, rank());
    expect_sums<float>(std::span(data).subspan(own.offset, own.count), own.offset, "reduce-scatter");
    communicator_->all_gather(data);
    communicator_->wait();
    expect_sums<float>(data, 0, "all-gather");
  }
}

TEST_P(Schedules, BitsAreTheSameEverywhereEveryTimeAndInHalves) {
  for (const std::size_t count : counts()) {
    std::string first;
    for (int repetition = 0; repetition < 3; ++repetition) {
      std::vector<float> data = noise(count);
      if (repetition == 2) {
        communicator_->reduce_scatter(data);
        communicator_->all_gather(data);
        communicator_->wait();
      } else {
        all_reduce(data);
      }
      // A half of a rounded sum is rounded only when it is gathered.
      if (repetition == 2 && GetParam().wire != WireFormat::fp32) continue;
      const std::vector<std::string> all = all_gather_text(*communicator_, bits(data));
      EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1u) << count;
      if (repetition == 0) first = bits(data);
      EXPECT_EQ(bits(data), first) << count << " elements, repetition " << repetition;
    }
  }
}

TEST_P(Schedules, RoundedSumsAreNear) {
  if (GetParam().wire == WireFormat::fp32) return;
  for (const std::size_t count : counts()) {
    std::vector<float> data = terms<float>(count);
    all_reduce(data);
    for (std::size_t i = 0; i < count; ++i) {
      const float exact = sum_of<float>(i);
      const float most =
          GetParam().wire == WireFormat::bf16 ? exact / 256 : 10'100.0f * static_cast<float>(size()) / 127;
      ASSERT_NEAR(data[i], exact, most * static_cast<float>(size())) << i << " of " << count;
    }
  }
}

TEST_P(Schedules, TheLimitsAreTold) {
  const auto limits = communicator_->all_reduce_limits();
  EXPECT_EQ(limits.has_value(), size() > 1);
  if (limits) {
    EXPECT_EQ(*limits, GetParam().limits);
  }
}

constexpr auto kHalving = AllReduceLimits{.doubling = 0, .halving = std::size_t{1} << 40};
constexpr auto kDoubling = AllReduceLimits{.doubling = std::size_t{1} << 40, .halving = std::size_t{1} << 40};
constexpr auto kAllRing = AllReduceLimits{.doubling = 0, .halving = 0};

INSTANTIATE_TEST_SUITE_P(, Schedules,
                         testing::Values(Case{"doubling", Transport::ring, kDoubling},
                                         Case{"halving", Transport::ring, kHalving},
                                         Case{"ring", Transport::ring, kAllRing},
                                         Case{"by_size", Transport::ring, kSteps},
                                         Case{"halving_bf16", Transport::ring, kHalving, WireFormat::bf16},
                                         Case{"halving_int8", Transport::ring, kHalving, WireFormat::int8_feedback},
                                         Case{"two_level_doubling", Transport::two_level, kDoubling},
                                         Case{"two_level_halving", Transport::two_level, kHalving},
                                         Case{"two_level_by_size", Transport::two_level, kSteps}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(MeasuredSchedules, AreTheSameOnAllRanksAndSumRight) {
  for (const Transport transport : {Transport::ring, Transport::two_level, Transport::shared_memory, Transport::mpi}) {
    for (const bool overlap : {false, true}) {
      if (transport == Transport::shared_memory && overlap) continue;
      const std::unique_ptr<Communicator> communicator = make_communicator(
          session(), {.transport = transport,
                      .all_reduce = {.measured = true},
                      .overlap = overlap,
                      .pretended_machine = transport == Transport::shared_memory ? 0 : session().rank() / 2});
      const std::optional<AllReduceLimits> limits = communicator->all_reduce_limits();
      EXPECT_EQ(limits.has_value(), communicator->uses_network() && transport != Transport::mpi);
      const std::vector<std::string> all = all_gather_text(*communicator, limits ? to_text(*limits) : "none");
      EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1u);
      for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'000}}) {
        std::vector<float> data(count, static_cast<float>(communicator->rank() + 1));
        communicator->all_reduce(data);
        communicator->wait();
        const auto p = communicator->size();
        EXPECT_EQ(data, std::vector<float>(count, static_cast<float>(p * (p + 1) / 2))) << count;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
