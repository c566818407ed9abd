/// \file
/// Partition of passes over a matrix into blocks. It depends on sizes alone, so that sums are deterministic.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::model::cuda {

/// A block has `threads` threads in rows of 1 << column_bits; a thread processes `width` columns. There are `tiles`
/// blocks side by side and `parts` blocks one below the other, each with rows_of_part rows.
struct Tiling {
  int column_bits = 0;
  unsigned tiles = 0, parts = 0;
  std::int64_t rows_of_part = 0;
};

inline constexpr std::int64_t kTilingBlocks = 1024;   ///< approximate number of blocks for a large matrix
inline constexpr std::int64_t kMaxTileColumns = 256;  ///< 32 packs of 8

/// Returns a tiling. There is a second part only if threads process at least 16 rows each; there are at most 256 parts,
/// and about 1024 blocks in all.
inline Tiling tiling_of(std::int64_t rows, std::int64_t columns, int width, unsigned threads) {
  constexpr int kMaxColumnBits = 5;
  constexpr std::int64_t kRowsOfThread = 16, kMaxRowParts = 256;
  Tiling tiling;
  const std::int64_t packs = (columns + width - 1) / width;
  while (tiling.column_bits < kMaxColumnBits && (std::int64_t{1} << tiling.column_bits) < packs) ++tiling.column_bits;
  const std::int64_t side = std::int64_t{1} << tiling.column_bits;
  const std::int64_t tiles = (packs + side - 1) / side;
  const std::int64_t rows_of_block = threads / side;
  const std::int64_t least = rows_of_block * kRowsOfThread;
  const std::int64_t most_parts =
      std::clamp<std::int64_t>(kTilingBlocks / std::max<std::int64_t>(tiles, 1), 1, kMaxRowParts);
  const std::int64_t parts = std::clamp<std::int64_t>((rows + least - 1) / least, 1, most_parts);
  tiling.tiles = static_cast<unsigned>(tiles);
  tiling.rows_of_part = (rows + parts - 1) / parts;
  tiling.parts =
      static_cast<unsigned>(tiling.rows_of_part == 0 ? 1 : (rows + tiling.rows_of_part - 1) / tiling.rows_of_part);
  return tiling;
}

/// Limits of the one-pass backward of layer norm: number of blocks, with two rows of sums each, and longest row. They
/// are equal on every GPU, so that results are.
inline constexpr std::int64_t kNormParts = 256, kMaxLayerNormColumns = 1024;

/// Returns the limit of parts * columns if there is more than one part.
constexpr std::size_t most_column_parts(std::int64_t most_columns) {
  const std::int64_t columns = std::min(most_columns, kTilingBlocks * kMaxTileColumns);
  return static_cast<std::size_t>(std::min(columns * 256, kTilingBlocks * kMaxTileColumns));
}

}  // namespace lockstep::model::cuda
