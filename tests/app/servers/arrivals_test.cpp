#include "app/servers/arrivals.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>

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

TEST_F(ArrivalsTest, GradientsComeBackInTheirOrderWithTheEndsOfRounds) {
  write(arrival_head_bytes(each_) + arrival_bytes({.worker = 2, .late = 0}) + arrival_bytes({.worker = 0, .late = 1}) +
        round_end_bytes() + arrival_bytes({.worker = 0, .late = 2}) + round_end_bytes());
  const ArrivalScript script = read_arrivals(file_, each_);
  EXPECT_EQ(script.end(), 13);
  EXPECT_EQ(script.at(10).front().worker, 2);
  EXPECT_EQ(script.at(11).front().late, 1);
  EXPECT_EQ(script.at(12).size(), 1u);
  EXPECT_EQ(script.round_ends, (std::vector<std::int64_t>{12, 13}));
}

TEST_F(ArrivalsTest, ASumHasAllItsGradientsAlsoWhereSixteenBitsOfItsNumberBeginAnew) {
  std::string bytes = arrival_head_bytes(sums_);
  for (const std::uint16_t update : {0xfffe, 0xffff, 0, 1}) {
    bytes += arrival_bytes({.worker = 1, .late = update}) + arrival_bytes({.worker = 0, .late = update});
  }
  write(bytes);
  const ArrivalScript script = read_arrivals(file_, sums_);
  EXPECT_EQ(script.end(), 0x1fffe + 4);
  for (std::int64_t update = 0x1fffe; update < script.end(); ++update) EXPECT_EQ(script.at(update).size(), 2u);
}

TEST_F(ArrivalsTest, ATornEndIsLeftOut) {
  write(arrival_head_bytes(each_) + arrival_bytes({.worker = 1, .late = 0}) + "ab");
  EXPECT_EQ(read_arrivals(file_, each_).end(), 11);
}

TEST_F(ArrivalsTest, WhatCannotBeIsRefusedInASentence) {
  const std::string head = arrival_head_bytes(each_);
  EXPECT_THAT(refusal("", each_), HasSubstr("no record of arrivals"));
  EXPECT_THAT(refusal(head.substr(0, head.size() - 1), each_), HasSubstr("no record of arrivals"));
  EXPECT_THAT(refusal(head, {.first = 10, .workers = 4}), HasSubstr("it is of 3 workers each by itself, and this"));
  EXPECT_THAT(refusal(head, {.first = 0, .workers = 3}), HasSubstr("begins after update 10, and this run after 0"));
  EXPECT_THAT(refusal(head + arrival_bytes({.worker = 3, .late = 0}), each_), HasSubstr("damaged at byte"));
  EXPECT_THAT(refusal(head + arrival_bytes({.worker = 1, .late = 1}), each_), HasSubstr("damaged at byte"));
  const std::string of_sums = arrival_head_bytes(sums_);
  const std::string one = arrival_bytes({.worker = 1, .late = 0xfffe});
  EXPECT_EQ(refusal(of_sums + one, sums_), "");
  EXPECT_THAT(refusal(of_sums + one + one, sums_), HasSubstr("damaged at byte"));
  EXPECT_THAT(refusal(of_sums + arrival_bytes({.worker = 1, .late = 5}), sums_), HasSubstr("damaged at byte"));
  EXPECT_THROW(read_arrivals("/nowhere/arrivals-0", each_), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::app
