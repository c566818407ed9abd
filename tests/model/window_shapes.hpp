/// \file
/// Small convolutions and pools with unusual windows: on series and volumes, with a stride or a dilation per direction,
/// with groups.
#pragma once

#include <cstdint>
#include <vector>

#include "model/image_operations.hpp"

namespace lockstep::model::test {

inline Convolution convolution_of(const ImageShape& in, const Sliding& window, std::int64_t channels,
                                  std::int64_t groups = 1) {
  return {.in = in, .out = slide(in, window, channels), .window = window, .groups = groups};
}
inline ImageShape series(std::int64_t length, std::int64_t channels) {
  return {.height = 1, .width = length, .channels = channels};
}
inline ImageShape volume(std::int64_t depth, std::int64_t height, std::int64_t width, std::int64_t channels) {
  return {.height = height, .width = width, .channels = channels, .depth = depth};
}
/// The same window along all three directions.
inline Sliding cube(const Sweep& sweep) { return {.depth = sweep, .height = sweep, .width = sweep}; }

inline std::vector<Convolution> convolutions_of_any_windows() {
  const Sliding nine{.width = {.size = 9, .stride = 2, .before = 4, .after = 4}};
  const Sliding three = cube({.size = 3, .before = 1, .after = 1});
  const Sliding uneven{.depth = {.size = 2, .stride = 2, .after = 1},
                       .height = {.size = 3, .dilation = 2, .before = 3, .after = 1},
                       .width = {.size = 1, .stride = 3}};
  const Sliding dilated =
      same_padding({6, 7, 1}, {.height = {.size = 3, .dilation = 2}, .width = {.size = 3, .dilation = 3}});
  // oneDNN's gradients of dilated filters over 34 channels by AMX are wrong (Convolver).
  return {
      convolution_of(series(11, 1), nine, 3),
      convolution_of(series(12, 8), nine, 16),
      convolution_of(series(10, 3), {.width = {.size = 3, .dilation = 4, .before = 4, .after = 4}}, 2),
      convolution_of(volume(3, 4, 2, 1), three, 2),
      convolution_of(volume(4, 3, 5, 8), three, 16),
      convolution_of(volume(3, 4, 3, 4), three, 8),
      convolution_of(volume(2, 2, 2, 16), three, 8),
      convolution_of(volume(4, 4, 4, 3), cube({.size = 2, .stride = 2}), 5),
      convolution_of(volume(5, 4, 3, 2), uneven, 3),
      convolution_of(volume(3, 2, 4, 16), cube({}), 8),
      convolution_of({6, 7, 4}, dilated, 3),
      convolution_of({6, 7, 34}, dilated, 5),
      convolution_of({6, 7, 68}, dilated, 8, 2),
      convolution_of({5, 4, 3}, {.height = {.size = 3, .stride = 2, .before = 1, .after = 1}, .width = {.size = 2}}, 2),
      convolution_of({5, 5, 4}, even_padding(3, 1, 1), 6, 2),
      convolution_of({6, 5, 16}, even_padding(3, 2, 1), 32, 2),
      convolution_of({5, 6, 8}, even_padding(3, 1, 1), 8, 8),
      convolution_of({4, 6, 3}, even_padding(3, 2, 1), 3, 3),
      convolution_of({3, 3, 4}, even_padding(3, 1, 1), 8, 4),
      convolution_of({4, 4, 4}, even_padding(1, 1, 0), 2, 2),
      convolution_of(series(9, 8), nine, 8, 8),
      convolution_of(volume(3, 3, 4, 4), three, 4, 4),
      convolution_of(volume(2, 4, 3, 8), uneven, 4, 2)};
}

inline std::vector<Pool> pools_of_any_windows() {
  const auto pool = [](const ImageShape& in, const Sliding& window) {
    return Pool{.in = in, .out = slide(in, window, in.channels), .window = window};
  };
  const Sliding uneven{.depth = {.size = 2},
                       .height = {.size = 3, .stride = 2, .before = 1, .after = 1},
                       .width = {.size = 2, .dilation = 2, .before = 1}};
  return {pool(series(9, 3), {.width = {.size = 3, .stride = 2, .before = 1, .after = 1}}),
          pool(series(8, 16), {.width = {.size = 2, .stride = 2}}),
          pool(volume(4, 4, 6, 8), cube({.size = 2, .stride = 2})),
          pool(volume(3, 5, 4, 5), cube({.size = 3, .stride = 2, .before = 1, .after = 1})),
          pool(volume(3, 4, 5, 20), uneven),
          pool({6, 4, 8}, {.height = {.size = 2, .stride = 2}, .width = {.size = 3}})};
}

}  // namespace lockstep::model::test
