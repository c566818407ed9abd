/// \file
/// Loops over the panels of bf16/kernels.hpp: packing of whole factors, and products of packed factors.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "model/cpu/bf16/kernels.hpp"

namespace lockstep::model::cpu {

/// Memory for panels, aligned to cache lines. It only grows.
class PanelMemory {
 public:
  explicit PanelMemory(std::size_t elements = 0) { reserve(elements); }
  /// Returns memory for at least `elements`. The content is lost if it grows.
  Bf16* reserve(std::size_t elements) {
    if (elements > size_) {
      data_.reset();
      data_.reset(static_cast<Bf16*>(::operator new[](elements * sizeof(Bf16), std::align_val_t{64})));
      size_ = elements;
    }
    return data_.get();
  }
  Bf16* data() const noexcept { return data_.get(); }

 private:
  struct Free {
    void operator()(Bf16* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  std::unique_ptr<Bf16[], Free> data_;
  std::size_t size_ = 0;
};

/// Elements of a panel.
constexpr std::size_t bf16_panel_elements(std::size_t inner) noexcept { return bf16_panels(inner) * kBf16Step; }

/// Packs all rows of a into consecutive left panels.
void pack_left_panels(const Bf16Kernels& kernels, const Bf16Factor& a, std::size_t rows, std::size_t inner,
                      Bf16* panels);
/// Packs all columns of b into right panels, which are `next` elements apart.
void pack_right_panels(const Bf16Kernels& kernels, const Bf16Factor& b, std::size_t inner, std::size_t columns,
                       Bf16* panels, std::size_t next);

/// Right panels, or the part of each in a block of the inner dimension.
struct RightPanels {
  const Bf16* data = nullptr;
  std::size_t next = 0;  ///< elements from one panel to the next
};

/// Complete sums [rows, columns] of a product, with up to kBf16Panel columns. Rows are kBf16Panel elements apart. `row`
/// and `column`: position of the first sum in the result.
struct SumsTile {
  float* sums = nullptr;
  std::size_t row = 0, column = 0, rows = 0, columns = 0;
};

/// Callback that receives the tiles of a result. Tiles are disjoint and cover the result; those of one column come in
/// ascending order of rows. The callable may change the sums, and must outlive this object.
class TakeSums {
 public:
  template <class Work>
  explicit TakeSums(const Work& work)
      : context_(&work),
        call_([](const void* context, const SumsTile& tile) { (*static_cast<const Work*>(context))(tile); }) {}
  void operator()(const SumsTile& tile) const { call_(context_, tile); }

 private:
  const void* context_;
  void (*call_)(const void* context, const SumsTile& tile);
};

/// Elements of a tile of sums.
inline constexpr std::size_t kSumsTile = kBf16Panel * kBf16Panel;

/// Products of panels on the calling thread. A thread may have only one such object at a time.
class PanelProducts {
 public:
  /// turned: the left panels were packed from a transposed factor.
  PanelProducts(const Bf16Kernels& kernels, bool turned)
      : kernels_(kernels),
        multiply_(turned && kernels.multiply_turned != nullptr ? kernels.multiply_turned : kernels.multiply) {}
  ~PanelProducts() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  PanelProducts(const PanelProducts&) = delete;
  PanelProducts& operator=(const PanelProducts&) = delete;

  /// c [shape.rows, shape.columns] = or += one left panel, with up to kBf16Panel rows, times right panels.
  void add(const ProductShape& shape, const Bf16* left, const RightPanels& right, bool accumulate, float* c,
           std::size_t stride);

  /// Destination of sums in tiles. tiles: memory [columns / 32][32][32] that keeps sums from call to call; may be
  /// nullptr. take: nullptr while the sums are not complete. row, column: position of the sums in the result.
  struct Strip {
    float* tiles = nullptr;
    bool accumulate = false;
    const TakeSums* take = nullptr;
    std::size_t row = 0, column = 0;
  };
  /// Computes shape.rows rows of one left panel times right panels, in tiles.
  void add(const ProductShape& shape, const Bf16* left, const RightPanels& right, const Strip& strip);

 private:
  const Bf16Kernels& kernels_;
  decltype(Bf16Kernels::multiply) multiply_;
  std::size_t prepared_ = 0;  ///< rows for which the thread is prepared
};

}  // namespace lockstep::model::cpu
