#include "app/servers/arrivals.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using testing::HasSubstr;

class ArrivalsTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  void write(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }
  std::string refusal(const std::string& bytes, const ArrivalHead& of) const {
    write(bytes);
    try {
      read_arrivals(file_, of);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                ("arrivals-test-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()));
  ArrivalHead each_{.first = 10, .workers = 3, .sums = 0}, sums_{.first = 0x1fffe, .workers = 3, .sums = 1};
};

/// A record of rounds of arrivals.
std::string record_of(const ArrivalHead& head, const std::vector<std::vector<Arrival>>& rounds) {
  ArrivalRecord record(head);
  for (const auto& round : rounds) {
    for (const Arrival& arrival : round) record.add(arrival);
    record.end_round();
  }
  return record.take();
}

TEST_F(ArrivalsTest, GradientsComeBackInTheirOrderWithTheEndsOfRounds) {
  write(record_of(each_, {{{.worker = 2, .late = 0}, {.worker = 0, .late = 1}}, {{.worker = 0, .late = 2}}}));
  const ArrivalScript script = read_arrivals(file_, each_);
  EXPECT_EQ(script.end(), 13);
  EXPECT_EQ(script.at(10).front().worker, 2);
  EXPECT_EQ(script.at(11).front().late, 1);
  EXPECT_EQ(script.at(12).size(), 1u);
  EXPECT_EQ(script.round_ends, (std::vector<std::int64_t>{12, 13}));
}

TEST_F(ArrivalsTest, ARecordThatIsTakenPieceByPieceIsTheSame) {
  ArrivalRecord record(each_);
  std::string bytes = record.take();
  record.add({.worker = 1, .late = 0});
  bytes += record.take();
  record.end_round();
  bytes += record.take();
  EXPECT_EQ(bytes, record_of(each_, {{{.worker = 1, .late = 0}}}));
  EXPECT_EQ(record.take(), "");
}

TEST_F(ArrivalsTest, ASumHasAllItsGradientsAlsoWhereSixteenBitsOfItsNumberBeginAnew) {
  std::vector<Arrival> round;
  for (const std::uint16_t update : {0xfffe, 0xffff, 0, 1}) {
    round.push_back({.worker = 1, .late = update});
    round.push_back({.worker = 0, .late = update});
  }
  write(record_of(sums_, {round}));
  const ArrivalScript script = read_arrivals(file_, sums_);
  EXPECT_EQ(script.end(), 0x1fffe + 4);
  for (std::int64_t update = 0x1fffe; update < script.end(); ++update) EXPECT_EQ(script.at(update).size(), 2u);
}

TEST_F(ArrivalsTest, WhatComesBehindTheLastWholeRoundIsLeftOut) {
  const std::string whole = record_of(each_, {{{.worker = 1, .late = 0}}});
  const std::string more = record_of(each_, {{{.worker = 1, .late = 0}}, {{.worker = 0, .late = 1}}});
  for (std::size_t length = whole.size(); length < more.size(); ++length) {
    write(more.substr(0, length));
    EXPECT_EQ(read_arrivals(file_, each_).end(), 11) << length;
  }
  write(more);
  EXPECT_EQ(read_arrivals(file_, each_).end(), 12);
}

TEST_F(ArrivalsTest, ScriptsOfSeveralServersLieBesideEachOtherAndEndTogether) {
  EXPECT_EQ(arrivals_of("runs/a/arrivals-7", 0), "runs/a/arrivals-7");
  EXPECT_EQ(arrivals_of("runs/a/arrivals-7", 2), "runs/a/arrivals-7.2");
  write(record_of(each_, {{{.worker = 2, .late = 0}, {.worker = 0, .late = 1}}, {{.worker = 0, .late = 2}}}));
  ArrivalScript script = read_arrivals(file_, each_);
  script.end_at(12);
  EXPECT_EQ(script.end(), 12);
  EXPECT_EQ(script.round_ends, std::vector<std::int64_t>{12});
  script.end_at(20);
  EXPECT_EQ(script.end(), 12) << "it does not grow";
  script.end_at(10);
  EXPECT_EQ(script.end(), 10);
}

TEST_F(ArrivalsTest, WhatCannotBeIsRefusedInASentence) {
  const std::string head = record_of(each_, {});
  EXPECT_THAT(refusal("", each_), HasSubstr("no record of arrivals"));
  EXPECT_THAT(refusal(head.substr(0, head.size() - 1), each_), HasSubstr("no record of arrivals"));
  EXPECT_THAT(refusal(head, {.first = 10, .workers = 4}), HasSubstr("it is of 3 workers each by itself, and this"));
  EXPECT_THAT(refusal(head, {.first = 0, .workers = 3}), HasSubstr("begins after update 10, and this run after 0"));
  EXPECT_THAT(refusal(record_of(each_, {{{.worker = 3, .late = 0}}}), each_), HasSubstr("damaged at byte"));
  EXPECT_THAT(refusal(record_of(each_, {{{.worker = 1, .late = 1}}}), each_), HasSubstr("damaged at byte"));
  const Arrival one{.worker = 1, .late = 0xfffe};
  EXPECT_EQ(refusal(record_of(sums_, {{one}}), sums_), "");
  EXPECT_THAT(refusal(record_of(sums_, {{one, one}}), sums_), HasSubstr("damaged at byte"));
  EXPECT_THAT(refusal(record_of(sums_, {{{.worker = 1, .late = 5}}}), sums_), HasSubstr("damaged at byte"));
  EXPECT_THROW(read_arrivals("/nowhere/arrivals-0", each_), std::runtime_error);
}

TEST_F(ArrivalsTest, ABitThatHasTurnedIsNoticedAlsoWhereWhatComesOfItCouldBe) {
  const std::string whole = record_of(each_, {{{.worker = 0, .late = 0}, {.worker = 0, .late = 1}}});
  const std::size_t head = record_of(each_, {}).size();
  for (std::size_t byte = head; byte < whole.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bent = whole;
      bent[byte] = static_cast<char>(bent[byte] ^ (1 << bit));
      // An end that became another entry makes its round incomplete.
      const std::string said = refusal(bent, each_);
      EXPECT_TRUE(said.find("damaged") != std::string::npos || byte >= whole.size() - 4) << byte << ' ' << bit << said;
    }
  }
}

}  // namespace
}  // namespace lockstep::app
