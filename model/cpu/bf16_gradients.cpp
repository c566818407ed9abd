#include "model/cpu/bf16_gradients.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::model::cpu {

namespace {

/// Largest number of rows of a block, and elements of d_y in it: 512 KiB in bf16.
constexpr std::size_t kMaxRows = 512;
constexpr std::size_t kMaxElements = std::size_t{256} << 10;
/// Inputs whose panels are multiplied in one go, for the second-level cache.
constexpr std::size_t kInputs = 512;
/// Smallest map that is worth waking threads, in multiply-adds of one of its products.
constexpr std::size_t kThreadingWork = 1'000'000;

std::size_t whole_panels(std::size_t count) { return bf16_panels(count) * kBf16Panel; }

/// Nearly equal blocks of whole panels.
std::size_t block_of(std::size_t count, std::size_t most) {
  const std::size_t blocks = (count + most - 1) / most;
  return whole_panels((count + blocks - 1) / blocks);
}

/// Indices [begin, end), from a panel on.
struct Range {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};

class Gradients {
 public:
  Gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, PanelMemory& memory)
      : kernels_(bf16_kernels(unit)),
        all_(operands),
        rows_(block_of(operands.rows, std::min(kMaxRows, kMaxElements / whole_panels(operands.outputs)))),
        inner_(block_of(operands.outputs, kernels_.max_inner)),
        adds_(accumulate == Accumulate::yes) {
    const std::size_t outputs = whole_panels(operands.outputs), block = rows_ * outputs;
    left_ = memory.reserve(2 * block + (wants_d_x() ? whole_panels(all_.inputs) * outputs : 0));
    right_ = left_ + block;
    weights_ = right_ + block;
  }

  bool wants_d_x() const { return all_.d_x != nullptr; }
  bool wants_d_w() const { return all_.d_w != nullptr; }

  /// Calls visit(rows) for each block of rows.
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    for (std::size_t row = 0; row < all_.rows; row += rows_) visit(Range{row, std::min(row + rows_, all_.rows)});
  }

  /// Some columns of d_y for the rows of a block.
  void pack(Range block, Range columns, const Prepare& prepare) const {
    const std::size_t panel = bf16_panel_elements(all_.outputs), next = bf16_panel_elements(block.count());
    const std::size_t first = columns.begin / kBf16Panel;
    for (std::size_t row = block.begin; row < block.end; row += kBf16Panel) {
      const std::size_t rows = std::min(kBf16Panel, block.end - row), place = (row - block.begin) / kBf16Panel;
      prepare(row, rows, columns.begin, columns.end);
      const Factor part{all_.d_y + row * all_.outputs + columns.begin, all_.outputs};
      if (wants_d_x()) kernels_.pack_left(part, rows, columns.count(), left_ + place * panel + first * kBf16Step);
      if (wants_d_w()) {
        pack_right_panels(kernels_, part, rows, columns.count(), right_ + first * next + place * kBf16Step, next);
      }
    }
  }

  /// Panels of w^T.
  void pack_weights(Range inputs) const {
    const std::size_t panel = bf16_panel_elements(all_.outputs);
    pack_right_panels(kernels_, {all_.w + inputs.begin * all_.outputs, all_.outputs, true}, all_.outputs,
                      inputs.count(), weights_ + inputs.begin / kBf16Panel * panel, panel);
  }

  /// Some rows of d_x, which begin in `block`.
  void make_d_x(Range block, Range rows, Range inputs, const Finish& finish) const {
    const std::size_t panel = bf16_panel_elements(all_.outputs);
    PanelProducts products(kernels_, false);
    for (std::size_t first = inputs.begin; first < inputs.end; first += kInputs) {
      const std::size_t columns = std::min(kInputs, inputs.end - first);
      for (std::size_t row = rows.begin; row < rows.end; row += kBf16Panel) {
        const std::size_t count = std::min(kBf16Panel, rows.end - row);
        const Bf16* const left = left_ + (row - block.begin) / kBf16Panel * panel;
        float* const to = all_.d_x + row * all_.inputs + first;
        for (std::size_t p = 0; p < all_.outputs; p += inner_) {
          const std::size_t step = p / kBf16Panel * kBf16Step;
          products.add({count, columns, std::min(inner_, all_.outputs - p)}, left + step,
                       {weights_ + first / kBf16Panel * panel + step, panel}, p > 0, to, all_.inputs);
        }
        finish(to, count, columns);
      }
    }
  }

  /// The block's part of d_w, for some of its rows, which are inputs, and columns.
  void add_to_d_w(Range block, Range inputs, Range columns) const {
    thread_local PanelMemory own;
    const std::size_t panel = bf16_panel_elements(block.count());
    const RightPanels right{right_ + columns.begin / kBf16Panel * panel, panel};
    PanelProducts products(kernels_, true);
    for (std::size_t first = inputs.begin; first < inputs.end; first += kInputs) {
      const std::size_t count = std::min(kInputs, inputs.end - first);
      const Bf16* left = own.reserve(kMaxRows * kInputs);
      pack_left_panels(kernels_, {all_.x + block.begin * all_.inputs + first, all_.inputs, true}, count, block.count(),
                       own.data());
      for (std::size_t i = 0; i < count; i += kBf16Panel, left += panel) {
        products.add({std::min(kBf16Panel, count - i), columns.count(), block.count()}, left, right,
                     adds_ || block.begin > 0, all_.d_w + (first + i) * all_.outputs + columns.begin, all_.outputs);
      }
    }
  }

 private:
  const Bf16Kernels& kernels_;
  const Bf16Gradients& all_;
  std::size_t rows_;   ///< rows of a block
  std::size_t inner_;  ///< inner elements of a block of the products that make d_x
  bool adds_;
  Bf16 *left_, *right_, *weights_;  ///< packed: d_y as left and as right factor, and w^T
};

}  // namespace

void bf16_gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, const Prepare& prepare,
                    const Finish& finish, PanelMemory& memory, ThreadPool& threads) {
  assert(operands.outputs <= kMaxSharedOutputs);
  const Gradients gradients(unit, operands, accumulate, memory);
  const std::size_t inputs = operands.inputs, outputs = operands.outputs;
  const bool is_small = operands.rows * inputs * outputs < kThreadingWork;
  const auto split = [&](Range all, const auto& work) {
    threads.split(all.count(), kBf16Panel, is_small ? all.count() + 1 : 2 * kBf16Panel,
                  [&](std::size_t begin, std::size_t end) {
                    work(Range{all.begin + begin, all.begin + end});
                  });
  };
  // Threads share the inputs, of which each needs two panels at least, or else the rows and the outputs.
  const bool by_inputs = threads.size() == 1 || is_small || inputs >= 2 * kBf16Panel * threads.size();
  const Range all_inputs{0, inputs}, all_outputs{0, outputs};
  if (gradients.wants_d_x()) split(all_inputs, [&](Range part) { gradients.pack_weights(part); });
  gradients.for_each_block([&](Range block) {
    split(all_outputs, [&](Range part) { gradients.pack(block, part, prepare); });
    if (by_inputs) {
      return split(all_inputs, [&](Range part) {
        if (gradients.wants_d_x()) gradients.make_d_x(block, block, part, finish);
        if (gradients.wants_d_w()) gradients.add_to_d_w(block, part, all_outputs);
      });
    }
    if (gradients.wants_d_x()) {
      split(block, [&](Range part) { gradients.make_d_x(block, part, all_inputs, finish); });
    }
    if (gradients.wants_d_w()) {
      split(all_outputs, [&](Range part) { gradients.add_to_d_w(block, all_inputs, part); });
    }
  });
}

}  // namespace lockstep::model::cpu
