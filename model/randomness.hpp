/// \file
/// Random draws of dropout and augmentation, which are the same at any world size and after any resume. Every sample of
/// a training batch comes with a key of 64 bits, made from (seed, epoch, sample); every layer that draws has a stream
/// number; a draw is Philox4x32-10 of (index, stream) under the sample's key. Draws do not depend on rank, thread,
/// position in the batch or kind of device.
#pragma once

#include <cstdint>

#include "model/random.hpp"

namespace lockstep::model {

/// The key of one sample in one epoch (SplitMix64's finaliser over the three numbers, one after another).
std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) noexcept;

/// Stream numbers: 0 to 15 belong to augmentation, networks number their dropouts from kFirstDropoutStream on.
inline constexpr std::uint32_t kAugmentationStream = 0;
inline constexpr std::uint32_t kFirstDropoutStream = 16;

/// Order of the rows of an activation tensor, for S samples of P positions each.
enum class RowOrder {
  sample_major,  ///< row = sample * P + position
  time_major     ///< row = position * S + sample
};

/// Each element is kept with probability 1 - rate and then multiplied by 1 / (1 - rate). The element of (sample,
/// position p, column c) is number i = p * columns + c of its sample: it is kept where word i % 4 of
/// philox4x32({i / 4 low, i / 4 high, stream, 0}, {key low, key high}) is at least rate * 2^32 (rounded to nearest).
struct Dropout {
  float rate = 0;            ///< in [0, 1); 0: no dropout
  std::uint32_t stream = 0;  ///< stream number of this layer
  RowOrder order = RowOrder::sample_major;
  /// First position of the rows, if they cover only some positions. A subset draws the same numbers as the whole.
  std::int64_t first_position = 0;
};

}  // namespace lockstep::model
