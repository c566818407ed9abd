/// \file
/// Dropout (randomness.hpp) as a factor of each element: 1 / (1 - rate) or 0. Multiplication, unlike selection, keeps
/// each NaN.
///
/// One draw decides four neighbours: loops call dropout_group() once for elements 4g ... 4g + 3 of a sample. If the
/// columns of a row are not a multiple of four, a group may extend into the sample's next position.
#pragma once

#include <cstdint>

#include "model/formulas/host_device.hpp"
#include "model/randomness.hpp"

namespace lockstep::model::formulas {

/// The numbers of a dropout, computed once per call on the host.
struct DropoutNumbers {
  std::uint32_t threshold;  ///< smallest word that keeps its element
  std::uint32_t stream;
  float factor;  ///< factor of kept elements
};

inline DropoutNumbers dropout_numbers(const Dropout& rule) {
  return {static_cast<std::uint32_t>(static_cast<double>(rule.rate) * 0x1p32 + 0.5), rule.stream, 1 / (1 - rule.rate)};
}

/// Returns the factor of an element, given its word.
LOCKSTEP_HOST_DEVICE float dropout_factor(const DropoutNumbers& numbers, std::uint32_t word) {
  return word >= numbers.threshold ? numbers.factor : 0.0f;
}

/// Draws the words of elements 4 * group ... 4 * group + 3 of the sample with this key.
LOCKSTEP_HOST_DEVICE PhiloxWords dropout_words(const DropoutNumbers& numbers, std::uint64_t key, std::uint64_t group) {
  return philox_words(static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), numbers.stream, 0,
                      static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
}

/// Factors of four consecutive elements.
struct DropoutGroup {
  float factor[4];
};
LOCKSTEP_HOST_DEVICE DropoutGroup dropout_group(const DropoutNumbers& numbers, std::uint64_t key, std::uint64_t group) {
  const PhiloxWords words = dropout_words(numbers, key, group);
  return {{dropout_factor(numbers, words.word[0]), dropout_factor(numbers, words.word[1]),
           dropout_factor(numbers, words.word[2]), dropout_factor(numbers, words.word[3])}};
}

/// Returns the factor of element `index` of the sample. Costs a full draw.
LOCKSTEP_HOST_DEVICE float dropout_element(const DropoutNumbers& numbers, std::uint64_t key, std::uint64_t index) {
  const PhiloxWords words = dropout_words(numbers, key, index / 4);
  const std::uint32_t low = index % 2 == 0 ? words.word[0] : words.word[1];
  const std::uint32_t high = index % 2 == 0 ? words.word[2] : words.word[3];
  return dropout_factor(numbers, index % 4 < 2 ? low : high);
}

/// Sample and position of a row. samples: number in the batch; positions: number per sample.
struct RowIndices {
  std::int64_t sample, position;
};
LOCKSTEP_HOST_DEVICE RowIndices indices_of(RowOrder order, std::int64_t samples, std::int64_t positions,
                                           std::int64_t row) {
  if (order == RowOrder::sample_major) return {row / positions, row % positions};
  return {row % samples, row / samples};
}

}  // namespace lockstep::model::formulas
