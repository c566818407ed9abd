/// \file
/// Whole numbers of 64 bits beside float64, in which they are read: it holds all of them only up to 2^53.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace lockstep::io {

class WholeRange {
 public:
  template <std::integral Whole>
  void add(Whole number) noexcept {
    const Wide exact = number, rounded = static_cast<Wide>(static_cast<double>(number));
    least_ = empty_ ? exact : std::min(least_, exact);
    greatest_ = empty_ ? exact : std::max(greatest_, exact);
    rounding_ = std::max(rounding_, rounded < exact ? exact - rounded : rounded - exact);
    empty_ = false;
  }
  /// True if float64 moves numbers by more than a millionth of the range of all.
  bool is_blurred() const noexcept {
    constexpr double kMatters = 1e-6;
    const auto range = static_cast<double>(greatest_ - least_);
    return range > 0 && static_cast<double>(rounding_) > kMatters * range;
  }
  /// "whole numbers from 9223372036854775808 to 9223372036854776307, which float64 moves by up to 499"
  std::string in_words() const {
    return fmt::format("whole numbers from {} to {}, which float64 moves by up to {}", least_, greatest_, rounding_);
  }

 private:
  __extension__ using Wide = __int128;
  bool empty_ = true;
  Wide least_ = 0, greatest_ = 0;
  Wide rounding_ = 0;  ///< largest change of a number by rounding to float64
};

}  // namespace lockstep::io
