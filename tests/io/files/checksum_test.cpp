#include "io/files/checksum.hpp"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Checksum, IsXxh3) {
  EXPECT_EQ(to_hex(checksum({})), "2d06800538d394c2");  // XXH3_64bits of nothing, from its specification
  EXPECT_EQ(to_hex(1), "0000000000000001");
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::vector<std::byte> data(10'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * i % 251);
  for (const std::size_t piece : {1U, 7U, 256U, 4096U, 20'000U}) {
    Checksum sum;
    for (std::size_t at = 0; at < data.size(); at += piece) {
      sum.add(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    }
    EXPECT_EQ(sum.value(), checksum(data)) << piece;
  }
}

TEST(Checksum, NoticesOneBit) { EXPECT_NE(checksum(bytes_of("lockstep")), checksum(bytes_of("lockstdp"))); }

}  // namespace
}  // namespace lockstep::io
