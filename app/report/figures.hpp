/// \file
/// Formats figures for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::app {

/// 1234567 -> "1,234,567".
std::string with_commas(std::int64_t value);
/// 1, "rank" -> "1 rank"; 1200, "rank" -> "1,200 ranks".
std::string counted(std::int64_t count, std::string_view noun);
/// Returns the number for output: 0 and NaN lose their sign.
double shown(double value);
/// 1536 -> "1.5 KiB".
std::string format_bytes(double bytes);
/// 3072, 2 -> "1.5 KiB/s".
std::string format_byte_rate(double bytes, double seconds);
/// 1.5e9 -> "1.50 GFLOP".
std::string format_flops(double flops);
/// 3725 -> "1:02:05", 65 -> "1:05".
std::string format_duration(double seconds);

}  // namespace lockstep::app
