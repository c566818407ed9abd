#include "comm/host/pieces.hpp"

#include <climits>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Pieces, CoverWhatMpiCannotCountAtOnce) {
  constexpr std::size_t kElements = (std::size_t{5} << 30) / sizeof(float) + 3, kPiece = kPieceBytes / sizeof(float);
  static_assert(kElements * sizeof(float) > 2 * static_cast<std::size_t>(INT_MAX));
  std::size_t end = 0, pieces = 0;
  for_each_piece(kElements, kPiece, [&](std::size_t offset, std::size_t length) {
    EXPECT_EQ(offset, end);
    EXPECT_LE(length, kPiece);
    end = offset + length;
    ++pieces;
  });
  EXPECT_EQ(end, kElements);
  EXPECT_EQ(pieces, 321u);
}

TEST(Pieces, OfNothingThereAreNone) {
  for_each_piece(0, 5, [](std::size_t, std::size_t) { FAIL(); });
  std::vector<std::size_t> lengths;
  for_each_piece(10, 5, [&](std::size_t, std::size_t length) { lengths.push_back(length); });
  EXPECT_EQ(lengths, (std::vector<std::size_t>{5, 5}));
}

}  // namespace
}  // namespace lockstep::comm
