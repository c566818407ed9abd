/// \file
/// Time limits in the notation of users and schedulers.
#include "app/options/time_limit.hpp"

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

TEST(TimeLimit, TakesSecondsAndTheFormsOfSchedulers) {
  const std::map<std::string, double> times{
      {"90", 90},        {"0.5", 0.5},       {"12:00", 43200},       {"00:01", 60},
      {"1:30:05", 5405}, {"1-00:00", 86400}, {"2-03:04:05", 183845}, {"100:00:00", 360000}};
  for (const auto& [text, seconds] : times) EXPECT_EQ(parse_time_limit(text), seconds) << text;
}

TEST(TimeLimit, RefusesTheRest) {
  for (const char* text :
       {"",   "0",   "-5",    "nan",     "inf",    "5m",    "1:",    ":30", "1:60", "1:00:60", "1:2:3:4",
        "1-", "1-5", "-1:00", "1--1:00", "a-1:00", "1e300", "00:00", "+5",  " 5",   "1: 5"}) {
    EXPECT_EQ(parse_time_limit(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::app
