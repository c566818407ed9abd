/// \file
/// Gradients of a convolution's filters in bf16: products over the pixels, by AMX tiles or an emulation with the same
/// bits.
///
/// Both images are placed on one grid. Its rows include the padding, and its cells are numbered through rows, planes
/// and images. A position of the filters is then a distance between cells:
///
///   d_w[position, c, o] = sum over the cells of x[cell + distance(position), c] * d_y[cell, o]
///
/// d_y is zero in cells that are not pixels of the output. With strides, each remainder has its own grid. x is
/// transposed once to [channel][cell]: a tile of it may begin at any cell, so all positions read the same copy. d_y is
/// stored as pairs of cells, the layout of the unit's second factor. With few channels, the positions of a filter's row
/// are folded into channels.
///
/// The grid is split into parts with separate sums, and parts into strips that fit the second-level cache. Neither
/// depends on the number of threads, so the bits do not.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/image_operations.hpp"
#include "model/slice.hpp"

namespace lockstep::model::cpu {

/// Rows and columns of a tile of sums.
inline constexpr std::size_t kFilterTile = 16;
/// Cells along the inner dimension of a tile of either factor.
inline constexpr std::size_t kFilterStep = 32;

/// Products of up to five left tiles with one right tile, or of up to two left tiles with two right tiles.
struct FilterProducts {
  static constexpr std::size_t kMaxLefts = 5;
  std::size_t lefts = 1, rights = 1, steps = 0;
  const Bf16* left[kMaxLefts] = {};  ///< [16 channels, `pitch` apart][cells], aligned to 2 bytes
  std::size_t pitch = 0;
  const Bf16* right = nullptr;  ///< [steps][16 pairs of cells][16 channels][2]
  std::size_t next_right = 0;   ///< elements from one right tile to the next
  float* sums[kMaxLefts] = {};  ///< += ; [rights][16][16] for each left tile
};

/// Rows of an image. Their pixels are consecutive in memory; in the grid, rows also have cells for padding.
struct FilterRows {
  std::size_t count = 1;
  std::size_t pixels = 0;  ///< in a row
  std::size_t first = 0;   ///< cell of a row's first pixel
  std::size_t cells = 0;   ///< in a row
};

struct FilterKernels {
  /// Transposes up to 16 channels of rows of pixels, which are `stride` elements apart, to [16][pitch]. The other cells
  /// of the rows and missing channels become 0.
  void (*turn)(const Bf16* image, std::size_t stride, std::size_t channels, const FilterRows& rows, Bf16* to,
               std::size_t pitch) = nullptr;
  /// Writes up to 16 channels of `pixels` pixels to [pairs of pixels][16][2]. An odd last pixel is paired with zeros.
  void (*pair)(const Bf16* image, std::size_t stride, std::size_t channels, std::size_t pixels, Bf16* to) = nullptr;
  void (*multiply)(const FilterProducts& products) = nullptr;
  /// Called on a thread before and after products; nullptr: not needed.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
/// For emulated_amx, and for amx if has_bf16_kernels(Bf16Unit::amx).
const FilterKernels& filter_kernels(Bf16Unit unit) noexcept;
const FilterKernels* amx_filter_kernels() noexcept;  ///< nullptr: not compiled for this processor

/// Memory of one thread. It grows with the shapes and is kept.
struct FilterScratch {
  std::vector<Bf16> x, d_y, row, padded;
  /// Tiles of x that a product reads, and their sums.
  struct Left {
    const Bf16* data;
    float* sums;
  };
  std::vector<Left> lefts;
};

bool is_dilated(const Sliding& window) noexcept;

class FilterGradient {
 public:
  FilterGradient(const Convolution& shape, Bf16Unit unit);
  /// True if this class should compute the gradient: the unit has tiles, the convolution has one group, and its filters
  /// are small enough or dilated.
  static bool takes(const Convolution& shape, Bf16Unit unit) noexcept;

  std::size_t parts(std::size_t images) const noexcept;
  /// Floats of the sums of one part.
  std::size_t sums() const noexcept;
  /// Writes the sums of one part. x and d_y are bfloat16, or float32, which is rounded.
  void run(const Tensor& x, const Tensor& d_y, std::size_t part, std::span<float> sums, FilterScratch& scratch) const;
  /// d_w = or += sums, which are stored in tiles.
  void put(std::span<const float> sums, Accumulate accumulate, std::span<float> d_w) const;

 private:
  /// One direction of the grid.
  struct Axis {
    Axis(const Sweep& sweep, std::size_t in, std::size_t out);
    /// Pixels of x in the grid of a remainder: cells [first, first + count); the first is pixel `pixel`.
    struct Run {
      std::size_t first = 0, count = 0, pixel = 0;
    };
    Run run(std::size_t remainder) const noexcept;
    std::size_t in, out, size, stride, dilation, before;
    std::size_t remainders;  ///< number of grids along this direction
    std::size_t reach;       ///< cells from the first to the last position
    std::size_t cells;
  };
  /// Image, plane and row of a row of the grid.
  struct Place {
    std::size_t image, plane, row;
  };
  Place place(std::size_t row) const noexcept;

  std::size_t strip_rows() const noexcept;
  /// Fills `rows` of the grid from x.
  void turn_rows(const Tensor& x, Slice rows, std::size_t images, Bf16* to, std::size_t pitch,
                 FilterScratch& scratch) const;
  void turn_folded(const Bf16* row, Bf16* to, std::size_t pitch, std::vector<Bf16>& padded) const;
  void pair_row(const Tensor& d_y, std::size_t row, std::size_t images, Bf16* to, std::size_t next,
                std::vector<Bf16>& scratch) const;

  const FilterKernels& kernels_;
  Convolution shape_;
  Axis depth_, height_, width_;
  bool folds_;                        ///< the positions of a filter's row are channels
  std::size_t channels_, positions_;  ///< after folding
  std::size_t grids_;                 ///< copies of x, one for each remainder
  std::size_t lefts_, rights_;        ///< tiles of channels of x and of d_y
};

}  // namespace lockstep::model::cpu
