/// \file
/// Our own matrix multiplication (fp32, one thread), after Goto & van de Geijn, "Anatomy of high-performance matrix
/// multiplication" (TOMS 2008): both factors are copied in blocks into panels that the innermost loop reads one after
/// another, and that loop keeps a tile of the result in registers. A row-major a that few columns share is not copied:
/// the loop reads its rows where they are.
///
///   for columns of c by kBlockColumns, inner dimension by at most kMaxInner:
///     for rows of c by kBlockRows:                                           pack a   [panels of up to 12 or 6 rows]
///       for panels of b [32 or 16 columns]:   the first time each is packed, if b is row-major by the first tile
///         for panels of a: tile of c += panel of a * panel of b              one tile in 24 or 12 vector registers
///
/// Tiles fetch the next panel of b into the second-level cache while they multiply.
///
/// The BLAS alone does not suffice: it loses a tenth on the shapes of the networks here and more on the few rows of a
/// recurrent step, cannot keep a factor packed between calls, and its order of summation depends on the partition of
/// its operands. Here each element of c is the sum over the inner dimension in ascending order, in blocks that follow
/// from the inner dimension and the processor alone: any partition of rows and columns gives the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// A factor in memory: element (row, column) is data[row * stride + column], or data[column * stride + row] if it is
/// transposed.
struct Factor {
  const float* data = nullptr;
  std::size_t stride = 0;
  bool transposed = false;
  /// The submatrix that begins `rows` rows and `columns` columns further on.
  Factor from(std::size_t rows, std::size_t columns) const noexcept {
    return {data + (transposed ? columns * stride + rows : rows * stride + columns), stride, transposed};
  }
};

/// The product c [rows, columns] = a [rows, inner] b [inner, columns].
struct ProductShape {
  std::size_t rows = 0, columns = 0, inner = 0;
};

/// Work of a product on c before that leaves the caches: work(part, rows, columns) is called for parts whose sums are
/// whole. They are disjoint and cover c, and those of one column come in the order of their rows. The work must outlive
/// this object.
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

/// The instruction set of the tiles for this processor: "x86-64-v4", "x86-64-v3"; nullptr: none, the functions below
/// must not be called.
const char* blocked_gemm_instruction_set() noexcept;

/// c = a b or c += a b; rows of c are `stride` elements apart. The calling thread keeps memory for its panels (3.5 MiB)
/// from its first product until it ends. No extent may be zero.
void blocked_gemm(const ProductShape& shape, const Factor& a, const Factor& b, Accumulate accumulate, float* c,
                  std::size_t stride, const Finish& finish = {});

/// A right factor [inner, columns] in panels that many GEMMs share; the caller owns the memory.
struct PackedFactor {
  const float* data = nullptr;
  std::size_t inner = 0, columns = 0;
};
/// Size of that memory in elements.
std::size_t packed_elements(std::size_t inner, std::size_t columns) noexcept;
PackedFactor pack_right(const Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace);
/// Order in which a product reads the panels of a right factor; each has the same bits. In turns they find what was
/// read last in the caches, where the factor is larger than those.
enum class PanelOrder { ascending, descending };
/// blocked_gemm with a submatrix of b: c [rows, columns] = or += a [rows, inner] and the first `inner` rows and the
/// columns [begin, begin + columns) of b. begin is a multiple of kPackedGranule.
void product_with_packed(const ProductShape& shape, const Factor& a, const PackedFactor& b, std::size_t begin,
                         Accumulate accumulate, float* c, std::size_t stride, PanelOrder order = PanelOrder::ascending);
inline constexpr std::size_t kPackedGranule = 32;

}  // namespace lockstep::model::cpu
