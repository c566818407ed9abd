/// \file
/// Our own matrix multiplication (fp32, one thread), after Goto & van de Geijn, "Anatomy of high-performance matrix
/// multiplication" (TOMS 2008): both factors are copied in blocks into panels, which the innermost loop reads
/// sequentially while it keeps a tile of the result in registers. A row-major a is not copied if the product has few
/// columns: the loop then reads its rows in place.
///
///   for columns of c by kBlockColumns, inner dimension by at most kMaxInner:
///     for rows of c by kBlockRows:                                           pack a   [panels of up to 12 or 6 rows]
///       for panels of b [32 or 16 columns]:   the first time each is packed, if b is row-major by the first tile
///         for panels of a: tile of c += panel of a * panel of b              one tile in 24 or 12 vector registers
///
/// Tiles prefetch the next panel of b into the second-level cache while they multiply.
///
/// A BLAS does not suffice. It is a tenth slower on shapes of typical networks, and slower still on the few rows of a
/// recurrent step. It cannot keep a factor packed between calls, and its order of summation depends on the partition of
/// the operands. Here each element of c is the sum over the inner dimension in ascending order, in blocks that depend
/// only on the inner dimension and the processor. Any partition of rows and columns gives the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// A factor in memory: element (row, column) is data[row * stride + column], or data[column * stride + row] if
/// transposed.
struct Factor {
  const float* data = nullptr;
  std::size_t stride = 0;
  bool transposed = false;
  /// Returns the submatrix that begins at row `rows` and column `columns`.
  Factor from(std::size_t rows, std::size_t columns) const noexcept {
    return {data + (transposed ? columns * stride + rows : rows * stride + columns), stride, transposed};
  }
};

/// Extents of a product c [rows, columns] = a [rows, inner] b [inner, columns].
struct ProductShape {
  std::size_t rows = 0, columns = 0, inner = 0;
};

/// Work on parts of c while they are in the caches. A product calls work(part, rows, columns) for parts whose sums are
/// complete. The parts are disjoint and cover c; parts of one column come in ascending order of rows. The work must
/// outlive this object.
class Finish {
 public:
  Finish() = default;
  template <class Work>
  explicit Finish(const Work& work)
      : context_(&work), call_([](const void* context, float* part, std::size_t rows, std::size_t columns) {
          (*static_cast<const Work*>(context))(part, rows, columns);
        }) {}
  void operator()(float* part, std::size_t rows, std::size_t columns) const {
    if (call_ != nullptr) call_(context_, part, rows, columns);
  }

 private:
  const void* context_ = nullptr;
  void (*call_)(const void* context, float* part, std::size_t rows, std::size_t columns) = nullptr;
};

/// Returns the instruction set of the tiles on this processor, "x86-64-v4" or "x86-64-v3". nullptr: the processor has
/// neither, and the functions below must not be called.
const char* blocked_gemm_instruction_set() noexcept;

/// c = a b or c += a b; rows of c are `stride` elements apart. The calling thread allocates memory for its panels (3.5
/// MiB) at its first product and keeps it until the thread ends. No extent may be zero.
void blocked_gemm(const ProductShape& shape, const Factor& a, const Factor& b, Accumulate accumulate, float* c,
                  std::size_t stride, const Finish& finish = {});

/// A right factor [inner, columns], packed in panels that many GEMMs share. The caller owns the memory.
struct PackedFactor {
  const float* data = nullptr;
  std::size_t inner = 0, columns = 0;
};
/// Size of this memory in elements.
std::size_t packed_elements(std::size_t inner, std::size_t columns) noexcept;
PackedFactor pack_right(const Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace);
/// Order in which a product reads the panels of a right factor. It does not change the bits. If the factor is larger
/// than the caches, alternating orders find the panels read last in the caches.
enum class PanelOrder { ascending, descending };
/// blocked_gemm with a part of b: c [rows, columns] = or += a [rows, inner] times rows [0, inner) and columns [begin,
/// begin + columns) of b. begin is a multiple of kPackedGranule.
void product_with_packed(const ProductShape& shape, const Factor& a, const PackedFactor& b, std::size_t begin,
                         Accumulate accumulate, float* c, std::size_t stride, PanelOrder order = PanelOrder::ascending);
inline constexpr std::size_t kPackedGranule = 32;

}  // namespace lockstep::model::cpu
