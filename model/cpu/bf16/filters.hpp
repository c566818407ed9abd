/// \file
/// Gradients of a convolution's filters in bf16: products over the pixels, by AMX tiles or an emulation of their bits.
///
/// Both images lie on one grid, whose rows have room for the padding, and whose cells are counted through rows, planes
/// and images. A position of the filters is then a distance between cells:
///
///   d_w[position, c, o] = sum over the cells of x[cell + distance(position), c] * d_y[cell, o]
///
/// d_y is zero in cells that are no pixels of the output. With strides each remainder has a grid of its own. x is
/// turned once, to [channel][cell]: a tile of it may begin at any cell, so all positions read the same copy. d_y
/// becomes pairs of cells, as the unit wants its second factor. If there are few channels, the positions of a filter's
/// row become channels.
///
/// The grid is cut into parts, which have sums of their own, and a part into strips that fit the second-level cache.
/// Neither depends on the number of threads.
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
/// Cells that a tile of either factor reaches over.
inline constexpr std::size_t kFilterStep = 32;

/// Sums of up to five tiles of the left factor, times one or two of the right; with two right ones, of up to two.
struct FilterProducts {
  static constexpr std::size_t kMaxLefts = 5;
  std::size_t lefts = 1, rights = 1, steps = 0;
  const Bf16* left[kMaxLefts] = {};  ///< [16 channels, `pitch` apart][cells], aligned to 2 bytes
  std::size_t pitch = 0;
  const Bf16* right = nullptr;  ///< [steps][16 pairs of cells][16 channels][2]
  std::size_t next_right = 0;   ///< elements from one right tile to the next
  float* sums[kMaxLefts] = {};  ///< += ; of each left tile [rights][16][16]
};

/// Rows of an image: their pixels follow each other in memory, in the grid they have room for padding.
struct FilterRows {
  std::size_t count = 1;
  std::size_t pixels = 0;  ///< in a row
  std::size_t first = 0;   ///< cell of a row's first pixel
  std::size_t cells = 0;   ///< in a row
};

struct FilterKernels {
  /// to [16][pitch] = up to 16 channels of rows of pixels, which are `stride` elements apart. The other cells of the
  /// rows and missing channels become 0.
  void (*turn)(const Bf16* image, std::size_t stride, std::size_t channels, const FilterRows& rows, Bf16* to,
               std::size_t pitch) = nullptr;
  /// to [pairs of pixels][16][2] = up to 16 channels of so many pixels; an odd last pixel has a partner of zeros.
  void (*pair)(const Bf16* image, std::size_t stride, std::size_t channels, std::size_t pixels, Bf16* to) = nullptr;
  void (*multiply)(const FilterProducts& products) = nullptr;
  /// Prepares the calling thread; and ends that. nullptr: not needed.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
/// For amx and emulated_amx; the former only where has_bf16_kernels() says so.
const FilterKernels& filter_kernels(Bf16Unit unit) noexcept;
const FilterKernels* amx_filter_kernels() noexcept;  ///< nullptr: not compiled for this processor

/// Memory of one thread; it grows with the shapes and stays.
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
  /// Tells whether this is the way to the gradient: the unit has tiles, and the sums are few enough.
  static bool takes(const Convolution& shape, Bf16Unit unit) noexcept;

  std::size_t parts(std::size_t images) const noexcept;
  /// Floats of the sums of one part.
  std::size_t sums() const noexcept;
  /// sums = the part's share of the gradient. x and d_y: float32, then rounded, or bfloat16.
  void run(const Tensor& x, const Tensor& d_y, std::size_t part, std::span<float> sums, FilterScratch& scratch) const;
  /// d_w = or += sums.
  void put(std::span<const float> sums, Accumulate accumulate, std::span<float> d_w) const;

 private:
  /// One direction of the grid.
  struct Axis {
    Axis(const Sweep& sweep, std::size_t in, std::size_t out);
    /// Pixels of x in the grid of a remainder: cells [first, first + count), from pixel `pixel` on.
    struct Run {
      std::size_t first = 0, count = 0, pixel = 0;
    };
    Run run(std::size_t remainder) const noexcept;
    std::size_t in, out, size, stride, dilation, before;
    std::size_t remainders;  ///< grids
    std::size_t reach;       ///< cells from the first to the last position
    std::size_t cells;
  };
  /// A row of the grid, counted through the batch.
  struct Place {
    std::size_t image, plane, row;
  };
  Place place(std::size_t row) const noexcept;

  std::size_t strip_rows() const noexcept;
  /// Fills `count` rows of cells, from row `row` of the grid on.
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
