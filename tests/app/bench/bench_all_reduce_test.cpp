#include "app/bench/bench_all_reduce.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/choices.hpp"
#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string bench_complaint(const std::vector<std::string>& arguments) {
  return test::message_of<UsageError>([&] { parse_bench_all_reduce(arguments); });
}

TEST(BenchAllReduceOptionsTest, TakesSizesInElements) {
  const BenchAllReduceOptions defaults = parse_bench_all_reduce({});
  EXPECT_EQ(defaults.min, 2);
  EXPECT_EQ(defaults.max, 67'108'864);
  EXPECT_FALSE(defaults.max_given);
  EXPECT_TRUE(defaults.algorithms.empty());
  EXPECT_FALSE(defaults.link_gbps.has_value());
  const BenchAllReduceOptions o = parse_bench_all_reduce(
      {"--min",    "3",           "--max",      "300",        "--factor", "10",           "--repeat", "4",
       "--warmup", "0",           "--csv",      "f.csv",      "--json",   "f.json",       "--svg",    "f.svg",
       "--ring",   "--share-gpu", "--no-graph", "--deadline", "5",        "--algorithms", "nccl,mpi", "--link-gbps",
       "12.5"});
  EXPECT_EQ(o.min, 3);
  EXPECT_EQ(o.max, 300);
  EXPECT_EQ(o.factor, 10);
  EXPECT_EQ(o.repetitions.repeat, 4);
  EXPECT_EQ(o.repetitions.warmup, 0);
  EXPECT_EQ(o.csv, "f.csv");
  EXPECT_EQ(o.json, "f.json");
  EXPECT_EQ(o.svg, "f.svg");
  EXPECT_TRUE(o.max_given);
  EXPECT_THAT(o.algorithms, ElementsAre(AllReduceAlgorithm::nccl, AllReduceAlgorithm::mpi));
  EXPECT_EQ(o.link_gbps, 12.5);
  EXPECT_EQ(o.execution.device, DeviceChoice::automatic);
  EXPECT_TRUE(o.execution.ring);
  EXPECT_FALSE(o.execution.nvls);
  EXPECT_TRUE(parse_bench_all_reduce({"--nvls"}).execution.nvls);
  EXPECT_TRUE(o.execution.share_gpu);
  EXPECT_FALSE(o.execution.graphs);
  EXPECT_EQ(o.execution.deadline, 5);
}

TEST(BenchAllReduceOptionsTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(bench_complaint({"--min", "10", "--max", "9"}), "--min 10 is more than --max 9");
  EXPECT_EQ(bench_complaint({"--csv", "rows", "--json", "rows"}),
            "--csv and --json are both rows: give them files of their own");
  EXPECT_EQ(bench_complaint({"--svg", "rows", "--csv", "rows"}),
            "--csv and --svg are both rows: give them files of their own");
  EXPECT_THAT(bench_complaint({"--min", "0"}), HasSubstr("--min: 0 must be at least 1"));
  EXPECT_THAT(bench_complaint({"--factor", "1"}), HasSubstr("--factor: 1 must be at least 2"));
  EXPECT_THAT(bench_complaint({"--repeat", "-1"}), HasSubstr("--repeat: -1 must not be negative"));
  EXPECT_THAT(bench_complaint({"--link-gbps", "0"}), HasSubstr("--link-gbps: 0 must be greater than 0"));
  EXPECT_THAT(
      bench_complaint({"--algorithms", "ring,shared_memry"}),
      AllOf(
          HasSubstr(
              "--algorithms: ring,shared_memry names no all-reduce algorithm 'shared_memry'; the algorithms are ring"),
          HasSubstr("shared-memory"), HasSubstr("mpi"), HasSubstr("did you mean shared-memory?")));
  EXPECT_THAT(bench_complaint({"--wire", "bf16-feedback"}),
              HasSubstr("--wire: bf16-feedback is not one of fp32 and bf16"));
  EXPECT_THAT(bench_complaint({"--algorithms", "ring,"}), HasSubstr("names no all-reduce algorithm ''"));
  EXPECT_THAT(bench_complaint({"--algorithms", ""}), HasSubstr("--algorithms: an empty value"));
  EXPECT_EQ(bench_complaint({"--algorithms", "mpi,nccl", "--device", "cpu"}),
            "--algorithms nccl is between GPUs, and --device is cpu");
  EXPECT_EQ(bench_complaint({"--algorithms", "mpi,nccl", "--device", "gpu"}),
            "--device gpu leaves nothing but --algorithms nccl, and --algorithms is mpi,nccl");
  EXPECT_THAT(bench_complaint({"--ring", "--device", "cpu"}),
              HasSubstr("--ring has an effect only with --device auto or gpu"));
}

TEST(BenchAllReduceOptionsTest, HelpFitsTheWidth) {
  try {
    parse_bench_all_reduce({"--help"});
    FAIL();
  } catch (const HelpRequested& help) {
    std::istringstream lines(help.what());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_THAT(help.what(), HasSubstr("Examples"));
  }
}

TEST(BenchAllReduceOptionsTest, GpusAreLookedForOnlyWhereTheyMayBeUsed) {
  EXPECT_EQ(parse_bench_all_reduce({"--algorithms", "ring,mpi"}).execution.device, DeviceChoice::cpu);
  EXPECT_EQ(parse_bench_all_reduce({"--algorithms", "ring,nccl"}).execution.device, DeviceChoice::automatic);
  EXPECT_EQ(parse_bench_all_reduce({}).execution.device, DeviceChoice::automatic);
}

TEST(Algorithms, AreNamedOnce) {
  EXPECT_THAT(parse_algorithms("mpi,ring,mpi"), ElementsAre(AllReduceAlgorithm::mpi, AllReduceAlgorithm::ring));
  for (const AllReduceAlgorithm kind :
       {AllReduceAlgorithm::ring, AllReduceAlgorithm::two_level, AllReduceAlgorithm::shared_memory,
        AllReduceAlgorithm::mpi, AllReduceAlgorithm::iallreduce, AllReduceAlgorithm::nccl, AllReduceAlgorithm::doubling,
        AllReduceAlgorithm::halving, AllReduceAlgorithm::ring_only}) {
    EXPECT_THAT(parse_algorithms(word_of(kind)), ElementsAre(kind));
  }
}

TEST(Algorithms, AreTheUsualOnesOfTheWorld) {
  EXPECT_THAT(usual_algorithms(comm::Transport::serial, false, DeviceChoice::automatic),
              ElementsAre(AllReduceAlgorithm::ring));
  EXPECT_THAT(usual_algorithms(comm::Transport::shared_memory, false, DeviceChoice::cpu),
              ElementsAre(AllReduceAlgorithm::ring, AllReduceAlgorithm::shared_memory, AllReduceAlgorithm::mpi));
  EXPECT_THAT(usual_algorithms(comm::Transport::two_level, false, DeviceChoice::automatic),
              ElementsAre(AllReduceAlgorithm::ring, AllReduceAlgorithm::two_level, AllReduceAlgorithm::mpi,
                          AllReduceAlgorithm::iallreduce));
  EXPECT_THAT(usual_algorithms(comm::Transport::ring, true, DeviceChoice::automatic),
              ElementsAre(AllReduceAlgorithm::ring, AllReduceAlgorithm::mpi, AllReduceAlgorithm::iallreduce,
                          AllReduceAlgorithm::nccl));
  EXPECT_THAT(usual_algorithms(comm::Transport::shared_memory, true, DeviceChoice::gpu),
              ElementsAre(AllReduceAlgorithm::nccl));
}

TEST(BestLimits, AreWhereTheFastestChanges) {
  std::vector<AllReduceRow> rows;
  const auto add = [&](std::int64_t count, double doubling, double halving, double ring) {
    for (const auto& [name, seconds] : std::map<std::string, double>{
             {"doubling", doubling}, {"halving", halving}, {"ring-only", ring}, {"mpi", 1e-9}}) {
      rows.push_back({.algorithm = name, .count = count, .seconds = {.median = seconds}});
    }
  };
  EXPECT_EQ(best_limits(rows), std::nullopt);
  add(256, 1, 2, 4), add(1024, 2, 2.05, 4), add(4096, 4, 3, 4), add(16384, 9, 4.02, 4), add(65536, 20, 10, 8);
  EXPECT_EQ(best_limits(rows), (comm::AllReduceLimits{.doubling = 4096, .halving = 16384}));
  rows.resize(4);
  rows[2].seconds.median = 0.5;  // the ring is fastest everywhere
  EXPECT_EQ(best_limits(std::span(rows).first(3)), std::nullopt);
}

TEST(FastestTransport, IsThatOfLargeSumsAndMpisOwnHasToWinClearly) {
  std::vector<AllReduceRow> rows;
  const auto add = [&](std::int64_t count, double ring, double library) {
    rows.push_back({.algorithm = "ring", .count = count, .seconds = {.median = ring}});
    rows.push_back({.algorithm = "mpi", .count = count, .seconds = {.median = 1e-9}});  // no transport
    rows.push_back({.algorithm = "iallreduce", .count = count, .seconds = {.median = library}});
  };
  EXPECT_EQ(fastest_transport(rows), std::nullopt);
  add(256, 9, 1);
  EXPECT_EQ(fastest_transport(rows)->word, "mpi") << "nothing larger was timed";
  EXPECT_EQ(fastest_transport(std::span(rows).first(2)), std::nullopt) << "one transport alone";
  add(1 << 20, 8, 16), add(1 << 22, 8, 4.5);
  EXPECT_EQ(fastest_transport(rows)->word, "ring");
  EXPECT_EQ(fastest_transport(rows)->second, "mpi");
  EXPECT_NEAR(fastest_transport(rows)->times, std::sqrt(16.0 * 4.5 / 64), 1e-12);
  EXPECT_EQ(to_text(*fastest_transport(rows)), "--transport ring (1.06 times as fast as mpi)");
  rows.back().seconds.median = 3.9;
  EXPECT_EQ(fastest_transport(rows)->word, "ring") << "by 1 %";
  rows.back().seconds.median = 3;
  EXPECT_THAT(to_text(*fastest_transport(rows)), HasSubstr("--transport mpi (1.15 times as fast as ring; its sums"));
  rows.pop_back();
  EXPECT_EQ(fastest_transport(rows), std::nullopt) << "of different sizes";
}

TEST(BenchSizes, GoFromTheSmallestToTheLargest) {
  EXPECT_THAT(bench_sizes(2, 32, 4), ElementsAre(2, 8, 32));
  EXPECT_THAT(bench_sizes(2, 33, 4), ElementsAre(2, 8, 32, 33));
  EXPECT_THAT(bench_sizes(5, 5, 2), ElementsAre(5));
  EXPECT_THAT(bench_sizes(1, 4'000'000'000, 1'000'000), ElementsAre(1, 1'000'000, 4'000'000'000));
}

class BenchTermsTest : public testing::TestWithParam<KnownSums::Wire> {};
INSTANTIATE_TEST_SUITE_P(, BenchTermsTest, testing::Values(KnownSums::Wire::fp32, KnownSums::Wire::bf16));

/// The value of a number after the wire.
float travelled(float value, KnownSums::Wire wire) {
  if (wire == KnownSums::Wire::fp32) return value;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  return std::bit_cast<float>(bits);
}

TEST_P(BenchTermsTest, AddUpToTheSumInAnyOrder) {
  for (const int ranks : {1, 2, 3, 4, 7, 16, 17, 64, 100, 127, 128, 129, 1000, 5000}) {
    const KnownSums terms(ranks, GetParam());
    for (const std::size_t index : {0u, 1u, 2u, 1000u, 99'999u, 16'777'215u, 123'456'789u}) {
      float upward = 0, downward = 0;
      for (int rank = 0; rank < ranks; ++rank) upward = travelled(upward + terms.term(index, rank), GetParam());
      for (int rank = ranks - 1; rank >= 0; --rank)
        downward = travelled(downward + terms.term(index, rank), GetParam());
      EXPECT_EQ(upward, terms.sum(index)) << index << " of " << ranks;
      EXPECT_EQ(downward, terms.sum(index)) << index << " of " << ranks;
      EXPECT_GT(upward, 0) << index << " of " << ranks;
    }
  }
}

TEST_P(BenchTermsTest, EveryRankCountsSomewhere) {
  for (const int ranks : {2, 128, 129, 1000}) {
    const KnownSums terms(ranks, GetParam());
    for (int rank = 0; rank < ranks; ++rank) {
      float brought = 0;
      for (std::size_t i = 0; i < 64; ++i) brought += terms.term(i, rank);
      EXPECT_GT(brought, 0) << rank << " of " << ranks;
    }
  }
}

TEST(KnownSums, DifferFromTheirNeighbours) {
  const KnownSums two(2), four(4);
  std::set<float> values;
  for (std::size_t i = 0; i < 1000; ++i) values.insert(two.sum(i));
  EXPECT_GE(values.size(), 999u);
  // A piece of a sum differs from the next one.
  for (const std::size_t piece : {1u, 64u, 1000u, 15'360u, 65'536u, 1'048'576u, 4'194'304u}) {
    int equal = 0;
    for (std::size_t i = 0; i < 1000; ++i) equal += four.sum(i) == four.sum(i + piece) ? 1 : 0;
    EXPECT_LE(equal, 2) << piece;
  }
}

TEST_P(BenchTermsTest, WrongSumsAreCounted) {
  const KnownSums terms(3, GetParam());
  std::vector<float> sums(1000);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = terms.sum(i);
  EXPECT_EQ(terms.count_wrong(sums), 0u);
  EXPECT_GE(KnownSums(4, GetParam()).count_wrong(sums), 950u);
  sums[7] += 1;                     // a wrong element
  sums[500] -= terms.term(500, 1);  // a missing rank
  std::size_t other = 200;
  while (sums[other] == sums[100]) ++other;
  std::swap(sums[100], sums[other]);
  EXPECT_EQ(terms.count_wrong(sums), 4u);
  sums[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(terms.count_wrong(sums), 4u);
  EXPECT_EQ(terms.count_wrong(std::span(sums).subspan(600), 600), 0u);
  EXPECT_GE(terms.count_wrong(std::span(sums).subspan(600), 601), 380u);
}

/// An algorithm that counts its calls, and adds a given error to its sums from then on.
class PretendedAllReduce final : public AllReduce {
 public:
  PretendedAllReduce(std::string name, std::vector<std::string>& turns) : name_(std::move(name)), turns_(turns) {}
  std::string name() const override { return name_; }
  void sum(std::size_t count, std::int64_t times) override {
    turns_.push_back(name_);
    summed_ += times;
    if (count > index_) values_[index_] += error_;
  }
  void load(std::size_t first, std::span<const float> values) override {
    values_.resize(std::max(values_.size(), first + values.size()));
    std::copy(values.begin(), values.end(), values_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void fetch(std::size_t first, std::span<float> values) override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
  }
  void be_wrong_at(std::size_t index, float error) { index_ = index, error_ = error; }
  std::int64_t summed() const { return summed_; }

 private:
  std::string name_;
  std::vector<std::string>& turns_;
  std::vector<float> values_;
  std::size_t index_ = 0;
  float error_ = 0;
  std::int64_t summed_ = 0;
};

class Measurements : public testing::Test {
 protected:
  Measurements() {
    for (const char* name : {"one", "two", "three"}) {
      auto algorithm = std::make_unique<PretendedAllReduce>(name, turns_);
      pretended_.push_back(algorithm.get());
      ways_.push_back(std::move(algorithm));
    }
  }

  comm::SerialCommunicator alone_;
  std::vector<std::string> turns_;
  std::vector<std::unique_ptr<AllReduce>> ways_;
  std::vector<PretendedAllReduce*> pretended_;
};

TEST_F(Measurements, RowsOfRightSums) {
  const std::vector<AllReduceRow> rows = measure_size(alone_, ways_, 3'000'000, KnownSums(1), {.repeat = 4});
  ASSERT_EQ(rows.size(), 3u);
  for (const AllReduceRow& row : rows) {
    EXPECT_EQ(row.count, 3'000'000);
    EXPECT_EQ(row.wrong, 0);
    EXPECT_EQ(row.batches, 4);
    EXPECT_GE(row.sums, 1);
    EXPECT_LE(row.seconds.least, row.seconds.median);
    EXPECT_LE(row.seconds.median, row.seconds.p95);
    EXPECT_LE(row.seconds.p95, row.seconds.p99);
    EXPECT_LE(row.seconds.p99, row.seconds.most);
  }
  EXPECT_NO_THROW(require_right(rows));
}

TEST_F(Measurements, AWrongElementEndsTheBenchmark) {
  pretended_[1]->be_wrong_at(2'999'999, 1);
  const std::vector<AllReduceRow> rows = measure_size(alone_, ways_, 3'000'000, KnownSums(1), {.repeat = 1});
  EXPECT_EQ(rows[0].wrong, 0);
  EXPECT_EQ(rows[1].wrong, 1);
  EXPECT_EQ(rows[2].wrong, 0);
  EXPECT_THAT(test::message_of<comm::ConsensusError>([&] { require_right(rows); }),
              HasSubstr("wrong elements: 1, by two"));
}

TEST_F(Measurements, WaysTakeTurns) {
  measure_size(alone_, ways_, 10, KnownSums(1), {.warmup = 0, .repeat = 6});
  ASSERT_GE(turns_.size(), 18u);
  const std::vector<std::string> last(turns_.end() - 18, turns_.end());
  EXPECT_THAT(last, ElementsAre("one", "two", "three", "two", "three", "one", "three", "one", "two",  //
                                "one", "two", "three", "two", "three", "one", "three", "one", "two"));
}

TEST_F(Measurements, WarmUpAsOftenAsTheyAreTold) {
  measure_size(alone_, ways_, 10, KnownSums(1), {.warmup = 0, .repeat = 1});
  const std::int64_t cold = pretended_[0]->summed();
  for (PretendedAllReduce* algorithm : pretended_)
    EXPECT_GE(algorithm->summed(), 3);  // the check, the estimate, a batch
  turns_.clear();
  measure_size(alone_, ways_, 10, KnownSums(1), {.warmup = 7, .repeat = 1});
  EXPECT_EQ(std::count(turns_.begin(), turns_.end(), "one"), 3 + 7);
  EXPECT_GT(pretended_[0]->summed(), cold);
  turns_.clear();
  measure_size(alone_, ways_, 10, KnownSums(1),
               {.warmup = 0});  // quick as these are, the time suffices for a hundred rounds
  EXPECT_EQ(std::count(turns_.begin(), turns_.end(), "one"), 2 + 100);
}

TEST(Percentiles, AreByNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  Percentiles p = percentiles_of(values);
  EXPECT_EQ(p.least, 1);
  EXPECT_EQ(p.median, 50);
  EXPECT_EQ(p.p95, 95);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.most, 100);
  p = percentiles_of({3});
  EXPECT_EQ(p.least + p.median + p.p95 + p.p99 + p.most, 15);
  p = percentiles_of({4, 2, 3, 1, 5});
  EXPECT_EQ(p.median, 3);
  EXPECT_EQ(p.p95, 5);
}

TEST(LinkBounds, CountWhatCrossesTheLinks) {
  using Hosts = std::vector<std::string>;
  EXPECT_FALSE(link_bound(Hosts{"a", "a", "a"}, 10).has_value());
  EXPECT_FALSE(link_bound(Hosts{"a"}, 10).has_value());
  const auto flat = link_bound(Hosts{"a", "b", "c", "d"}, 1);  // a rank for each host: the ring is at the bound
  ASSERT_TRUE(flat.has_value());
  EXPECT_EQ(flat->hosts, 4);
  EXPECT_DOUBLE_EQ(flat->least_share, 1.5);
  EXPECT_DOUBLE_EQ(flat->ring_share, 1.5);
  EXPECT_DOUBLE_EQ(flat->seconds(flat->least_share, 1e9), 12);  // 1 GB at 1 Gbit/s, 1.5 times
  EXPECT_THAT(describe(*flat), Not(HasSubstr("ring")));
  const auto blocks = link_bound(Hosts{"a", "a", "b", "b"}, 1);
  EXPECT_DOUBLE_EQ(blocks->least_share, 1);
  EXPECT_DOUBLE_EQ(blocks->ring_share, 1.5);
  EXPECT_THAT(describe(*blocks), HasSubstr("the ring takes 1.5 times and reaches 67 % of the bound at best"));
  const auto round_robin = link_bound(Hosts{"a", "b", "a", "b"}, 1);  // every step of the ring crosses a link
  EXPECT_DOUBLE_EQ(round_robin->ring_share, 3);
  const auto uneven = link_bound(Hosts{"a", "a", "a", "b"}, 1);
  EXPECT_DOUBLE_EQ(uneven->least_share, 1);
  EXPECT_DOUBLE_EQ(uneven->ring_share, 1.5);
}

AllReduceRow row_of(const std::string& algorithm, std::int64_t count, double seconds) {
  return {.algorithm = algorithm,
          .transport = algorithm == "shared-memory" ? "shared memory" : algorithm,
          .ranks = 4,
          .hosts = 2,
          .count = count,
          .seconds = {seconds / 2, seconds, seconds * 1.25, seconds * 1.5, seconds * 2},
          .sums = 1,
          .batches = 21};
}

TEST(BenchRows, HaveBandwidths) {
  AllReduceRow row = row_of("ring", 1'000'000, 2e-3);
  EXPECT_DOUBLE_EQ(row.algorithm_bandwidth(), 2e9);
  EXPECT_DOUBLE_EQ(row.bus_bandwidth(), 3e9);
  EXPECT_EQ(row.percent_of_bound(), 0);
  EXPECT_EQ(format_row(row),
            "    4000000    1000000  float32    sum  ring             2000.0   2.0000   3.0000       0"
            "    2500.0    3000.0    4000.0");
  EXPECT_EQ(csv_row(row),
            "ring,4,4000000,1000000,float32,2000.000,1000.000,2.000000,3.000000,0,ring,sum,2500.000,"
            "3000.000,4000.000,21,1,2,fp32,,,");
  row.bound = link_bound(std::vector<std::string>{"a", "a", "b", "b"}, 32);  // 4 MB in 1 ms
  EXPECT_DOUBLE_EQ(row.percent_of_bound(), 50);
  EXPECT_THAT(format_row(row), testing::EndsWith("    4000.0    50.0"));
  EXPECT_THAT(csv_row(row), testing::EndsWith(",32,1000.000,50.00"));
  for (const bool bound : {false, true}) {
    std::istringstream lines(format_head(bound));
    std::string line;
    while (std::getline(lines, line)) EXPECT_LE(line.size(), bound ? 127u : 119u);
    if (bound) {
      EXPECT_EQ(format_row(row).size(), line.size());
    }
  }
  const std::string head = csv_head(), cells = csv_row(row);
  EXPECT_EQ(std::count(head.begin(), head.end(), ','), std::count(cells.begin(), cells.end(), ','));
  EXPECT_THAT(io::to_json_line(to_record(row)),
              AllOf(HasSubstr("\"bench\":\"all-reduce\",\"transport\":\"ring\",\"world\":4"),
                    HasSubstr("\"time_us\":2000.0,\"time_us_min\":1000.0"), HasSubstr("\"percent_of_bound\":50.0")));

  EXPECT_EQ((AllReduceRow{.algorithm = "serial", .count = 100, .seconds = {.median = 1e-6}}.bus_bandwidth()), 0);
  EXPECT_EQ((AllReduceRow{.algorithm = "serial", .count = 100, .seconds = {.median = 1e-6}}.algorithm_bandwidth()), 0);
  EXPECT_EQ(AllReduceRow{}.bus_bandwidth(), 0);
  const std::vector<AllReduceRow> rows{row, row_of("mpi", 1'000'000, 1e-3), row_of("ring", 1, 1e9)};
  EXPECT_NEAR(mean_bus_bandwidth(rows, "ring"), 1.5e9, 1);
  EXPECT_NEAR(mean_bus_bandwidth(rows, "mpi"), 6e9, 1);
  EXPECT_EQ(mean_bus_bandwidth({}, "ring"), 0);
}

TEST(BenchRows, AreSummedUp) {
  const std::vector<AllReduceRow> rows{
      row_of("ring", 2, 1e-6),   row_of("shared-memory", 2, 2e-6),   row_of("mpi", 2, 4e-6),
      row_of("ring", 512, 9e-6), row_of("shared-memory", 512, 2e-6), row_of("mpi", 512, 3e-6)};
  EXPECT_EQ(format_summary(rows),
            "fastest algorithm, and how many times as fast as MPI_Allreduce each is\n"
            "       size  fastest                 ring  shared-memory\n"
            "        8 B  ring                   4.00x          2.00x\n"
            "      2 KiB  shared-memory          0.33x          1.50x");
  EXPECT_THAT(format_summary(std::vector{rows[0], rows[1]}), HasSubstr("as fast as ring each is"));
  EXPECT_EQ(format_summary(std::vector{rows[0], rows[3]}), "");
  EXPECT_EQ(format_summary({}), "");
}

TEST(BenchRows, MakeAChart) {
  std::vector<AllReduceRow> rows{row_of("ring", 2, 1e-6), row_of("mpi", 2, 2e-6), row_of("ring", 512, 2e-6),
                                 row_of("mpi", 512, 3e-6)};
  EXPECT_EQ(bandwidth_chart(rows, "").series.size(), 2u);
  for (AllReduceRow& row : rows) row.bound = link_bound(std::vector<std::string>{"a", "a", "b", "b"}, 8);
  const Chart chart = bandwidth_chart(rows, "here");
  ASSERT_EQ(chart.series.size(), 3u);
  EXPECT_EQ(chart.series[1].name, "MPI_Allreduce");
  ASSERT_EQ(chart.series[1].points.size(), 2u);
  EXPECT_DOUBLE_EQ(chart.series[0].points[1].x, 2048);
  EXPECT_DOUBLE_EQ(chart.series[0].points[1].y, 2048 * 1.5 / 2e-6 / 1e9);
  EXPECT_TRUE(chart.series[2].reference);
  for (const ChartPoint& point : chart.series[2].points) EXPECT_DOUBLE_EQ(point.y, 1.5);  // 1 GB/s, and 1.5 of a sum
  rows[0].wire = rows[2].wire = "bf16";  // half the bytes on the links: twice the bound
  const Chart two_wires = bandwidth_chart(rows, "here");
  ASSERT_EQ(two_wires.series.size(), 4u);
  EXPECT_EQ(two_wires.series[2].name, "bound of the links, bf16");
  EXPECT_DOUBLE_EQ(two_wires.series[2].points[1].y, 3);
  EXPECT_DOUBLE_EQ(two_wires.series[3].points[1].y, 1.5);
  EXPECT_TRUE(bandwidth_chart({}, "").series.empty());
  EXPECT_THAT(chart.x.ticks, testing::Contains(2048));  // ticks hit the points
  EXPECT_EQ(chart.y.scale, AxisScale::logarithmic);     // 0.01 to 1.5 GB/s
  EXPECT_EQ(bandwidth_chart(std::vector{rows[2], rows[3]}, "").y.scale, AxisScale::linear);
}

}  // namespace
}  // namespace lockstep::app
