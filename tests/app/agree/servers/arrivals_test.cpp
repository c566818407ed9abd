#include "app/agree/servers/arrivals.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;

class ArrivalsTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  void write(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }
  std::string refusal(const std::string& bytes, const ArrivalHead& of) const {
    write(bytes);
    return test::message_of<std::runtime_error>([&] { read_arrivals(file_, of); });
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
  EXPECT_EQ(script.at(11).front().late, 1u);
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

TEST_F(ArrivalsTest, ASumHasAllItsGradientsAlsoWhereTheBitsOfItsNumberBeginAnew) {
  for (const std::int64_t first : {0x1fffeLL, 0x1fffffffeLL}) {
    const ArrivalHead head{.first = first, .workers = 3, .sums = 1};
    std::vector<Arrival> round;
    for (std::int64_t update = first; update < first + 4; ++update) {
      round.push_back({.worker = 1, .late = static_cast<std::uint32_t>(update)});
      round.push_back({.worker = 0, .late = static_cast<std::uint32_t>(update)});
    }
    write(record_of(head, {round}));
    const ArrivalScript script = read_arrivals(file_, head);
    EXPECT_EQ(script.end(), first + 4);
    for (std::int64_t update = first; update < script.end(); ++update) EXPECT_EQ(script.at(update).size(), 2u);
  }
}

TEST_F(ArrivalsTest, AGradientMayBeMoreThan65535UpdatesLate) {
  constexpr std::uint32_t kLate = 70'000;
  std::vector<Arrival> round(kLate, Arrival{.worker = 1, .late = 0});
  round.push_back({.worker = 2, .late = kLate});
  write(record_of(each_, {round}));
  EXPECT_EQ(read_arrivals(file_, each_).at(10 + kLate).front().late, kLate);
}

/// As format 2 has them: half as many bytes.
std::string narrow_record_of(const ArrivalHead& head, const std::vector<Arrival>& round) {
  std::string bytes = record_of(head, {});
  bytes[bytes.find('3')] = '2';
  const auto put = [&](std::uint32_t worker, std::uint32_t late) {
    for (const std::uint32_t value : {worker, late}) {
      bytes += {static_cast<char>(value & 0xff), static_cast<char>(value >> 8 & 0xff)};
    }
  };
  for (const Arrival& arrival : round) put(static_cast<std::uint32_t>(arrival.worker), arrival.late);
  std::uint32_t hash = 2166136261u;
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 16777619u;
  put(0xffff, hash ^ hash >> 16);
  return bytes;
}

TEST_F(ArrivalsTest, RecordsOfTheNarrowFormatAreReadUnlessTheirBitsMayHaveRunOver) {
  write(narrow_record_of(each_, {{.worker = 2, .late = 0}, {.worker = 0, .late = 1}}));
  EXPECT_EQ(read_arrivals(file_, each_).at(11).front().late, 1u);
  write(narrow_record_of(
      sums_, {{.worker = 0, .late = 0xfffe}, {.worker = 1, .late = 0xfffe}, {.worker = 2, .late = 0xffff}}));
  EXPECT_EQ(read_arrivals(file_, sums_).end(), 0x1fffe + 2);
  std::string bent = narrow_record_of(each_, {{.worker = 2, .late = 0}});
  bent[bent.size() - 8] = 1;
  EXPECT_THAT(refusal(bent, each_), HasSubstr("damaged before byte"));

  std::vector<Arrival> round(0xffff, Arrival{.worker = 1, .late = 0});
  round.push_back({.worker = 2, .late = 0xffff});
  write(narrow_record_of(each_, round));
  EXPECT_EQ(read_arrivals(file_, each_).at(10 + 0xffff).front().late, 0xffffu);
  round.back() = {.worker = 1, .late = 0};
  round.push_back({.worker = 2, .late = 0});
  EXPECT_THAT(refusal(narrow_record_of(each_, round), each_), HasSubstr("may be more than 65,535 updates late"));
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
  const Arrival one{.worker = 1, .late = 0x1fffe};
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
      EXPECT_TRUE(said.find("damaged") != std::string::npos || byte >= whole.size() - 8) << byte << ' ' << bit << said;
    }
  }
}

}  // namespace
}  // namespace lockstep::app
