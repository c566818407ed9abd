#include "model/cpu/bf16/gradients.hpp"

#include <algorithm>

namespace lockstep::model::cpu {

namespace {

/// Elements of d_y in a block: 512 KiB in bf16.
constexpr std::size_t kMaxElements = std::size_t{256} << 10;
/// Rows longer than kMaxOutputs are split into parts. Their blocks have more rows, because each block adds to all of
/// d_w.
constexpr std::size_t kMaxOutputs = 1024, kMaxPart = 512, kMaxRowsOfParts = 768;
/// Inputs whose panels are multiplied together; they fit the second-level cache.
constexpr std::size_t kInputs = 512;
/// Smallest map that uses several threads, in multiply-adds of one of its products.
constexpr std::size_t kThreadingWork = 1'000'000;

std::size_t whole_panels(std::size_t count) { return bf16_panels(count) * kBf16Panel; }

/// Returns the size of nearly equal blocks of whole panels.
std::size_t block_of(std::size_t count, std::size_t most) {
  const std::size_t blocks = (count + most - 1) / most;
  return whole_panels((count + blocks - 1) / blocks);
}

std::size_t columns_of_block(std::size_t outputs) {
  return outputs <= kMaxOutputs ? whole_panels(outputs) : block_of(outputs, kMaxPart);
}
/// Returns the rows of a block. They are the inner dimension of the product that computes d_w.
std::size_t rows_of_block(std::size_t rows, std::size_t outputs, std::size_t max_inner) {
  if (outputs > kMaxOutputs) return block_of(rows, kMaxRowsOfParts);
  return block_of(rows, std::min(max_inner, kMaxElements / whole_panels(outputs)));
}

/// Indices [begin, end); begin is the start of a panel.
struct Range {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};

/// A block of d_y.
struct Block {
  Range rows, columns;
};

class Gradients {
 public:
  Gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, PanelMemory& memory)
      : kernels_(bf16_kernels(unit)),
        all_(operands),
        rows_(rows_of_block(operands.rows, operands.outputs, kernels_.max_inner)),
        columns_(columns_of_block(operands.outputs)),
        inner_(block_of(columns_, kernels_.max_inner)),
        adds_(accumulate == Accumulate::yes) {
    const std::size_t block = rows_ * columns_;
    const std::size_t weights = wants_d_x() ? whole_panels(all_.inputs) * columns_ : 0;
    const bool keeps_sums = all_.take != nullptr && !has_one_block_of_columns();
    const std::size_t sums = keeps_sums ? whole_panels(all_.rows) * whole_panels(all_.inputs) : 0;
    left_ = memory.reserve(2 * block + weights + sums * sizeof(float) / sizeof(Bf16));
    right_ = left_ + block;
    weights_ = right_ + block;
    if (keeps_sums) sums_ = reinterpret_cast<float*>(weights_ + weights);
  }

  bool wants_d_x() const { return all_.d_x != nullptr || all_.take != nullptr; }
  bool wants_d_w() const { return all_.d_w != nullptr; }

  /// Calls visit(block) in the order of the columns, then of the rows.
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    for (std::size_t o = 0; o < all_.outputs; o += columns_) {
      for (std::size_t row = 0; row < all_.rows; row += rows_) {
        visit(Block{{row, std::min(row + rows_, all_.rows)}, {o, std::min(o + columns_, all_.outputs)}});
      }
    }
  }

  /// Packs some columns of the block.
  void pack(const Block& block, Range columns, const Prepare& prepare) const {
    const std::size_t panel = bf16_panel_elements(block.columns.count());
    const std::size_t next = bf16_panel_elements(block.rows.count());
    const std::size_t first = (columns.begin - block.columns.begin) / kBf16Panel;
    for (std::size_t row = block.rows.begin; row < block.rows.end; row += kBf16Panel) {
      const std::size_t rows = std::min(kBf16Panel, block.rows.end - row),
                        place = (row - block.rows.begin) / kBf16Panel;
      prepare(row, rows, columns.begin, columns.end);
      const Bf16Factor part = all_.d_y.from(row, columns.begin);
      if (wants_d_x()) kernels_.pack_left(part, rows, columns.count(), left_ + place * panel + first * kBf16Step);
      if (wants_d_w()) {
        pack_right_panels(kernels_, part, rows, columns.count(), right_ + first * next + place * kBf16Step, next);
      }
    }
  }

  /// Packs panels of w^T for the block's columns.
  void pack_weights(const Block& block, Range inputs) const {
    const std::size_t panel = bf16_panel_elements(block.columns.count());
    const Factor part{all_.w + inputs.begin * all_.outputs + block.columns.begin, all_.outputs, true};
    pack_right_panels(kernels_, part, block.columns.count(), inputs.count(),
                      weights_ + inputs.begin / kBf16Panel * panel, panel);
  }

  /// Adds the block's part of d_x, for some of its rows and some inputs.
  void add_to_d_x(const Block& block, Range rows, Range inputs, const Finish& finish) const {
    const std::size_t outputs = block.columns.count(), panel = bf16_panel_elements(outputs);
    const bool is_first = block.columns.begin == 0, is_last = block.columns.end == all_.outputs;
    PanelProducts products(kernels_, false);
    for (std::size_t first = inputs.begin; first < inputs.end; first += kInputs) {
      const std::size_t columns = std::min(kInputs, inputs.end - first);
      for (std::size_t row = rows.begin; row < rows.end; row += kBf16Panel) {
        const std::size_t count = std::min(kBf16Panel, rows.end - row);
        const Bf16* const left = left_ + (row - block.rows.begin) / kBf16Panel * panel;
        if (all_.take != nullptr) {
          const std::size_t tile = row / kBf16Panel * bf16_panels(all_.inputs) + first / kBf16Panel;
          products.add({count, columns, outputs}, left, {weights_ + first / kBf16Panel * panel, panel},
                       {.tiles = sums_ == nullptr ? nullptr : sums_ + tile * kSumsTile,
                        .accumulate = !is_first,
                        .take = is_last ? all_.take : nullptr,
                        .row = row,
                        .column = first});
          continue;
        }
        float* const to = all_.d_x + row * all_.inputs + first;
        for (std::size_t p = 0; p < outputs; p += inner_) {
          const std::size_t step = p / kBf16Panel * kBf16Step;
          products.add({count, columns, std::min(inner_, outputs - p)}, left + step,
                       {weights_ + first / kBf16Panel * panel + step, panel}, !is_first || p > 0, to, all_.inputs);
        }
        if (is_last) finish(to, count, columns);
      }
    }
  }

  /// Adds the block's part of d_w, for some inputs and some columns. keeps: the thread has the same inputs and rows in
  /// every block, and packs them once.
  void add_to_d_w(const Block& block, Range inputs, Range columns, bool keeps) const {
    thread_local PanelMemory own;
    const std::size_t panel = bf16_panel_elements(block.rows.count());
    const RightPanels right{right_ + (columns.begin - block.columns.begin) / kBf16Panel * panel, panel};
    Bf16Factor x = all_.x.from(block.rows.begin, inputs.begin);
    x.transposed = true;
    const std::size_t part = keeps ? inputs.count() : kInputs;
    Bf16* const memory = own.reserve(rows_ * whole_panels(part));
    PanelProducts products(kernels_, true);
    for (std::size_t first = 0; first < inputs.count(); first += part) {
      const std::size_t count = std::min(part, inputs.count() - first);
      if (!keeps || block.columns.begin == 0) {
        pack_left_panels(kernels_, x.from(first, 0), count, block.rows.count(), memory);
      }
      const Bf16* left = memory;
      for (std::size_t i = 0; i < count; i += kBf16Panel, left += panel) {
        products.add({std::min(kBf16Panel, count - i), columns.count(), block.rows.count()}, left, right,
                     adds_ || block.rows.begin > 0,
                     all_.d_w + (inputs.begin + first + i) * all_.outputs + columns.begin, all_.outputs);
      }
    }
  }

  bool has_one_block_of_rows() const { return all_.rows <= rows_; }
  bool has_one_block_of_columns() const { return all_.outputs <= columns_; }

 private:
  const Bf16Kernels& kernels_;
  const Bf16Gradients& all_;
  std::size_t rows_, columns_;  ///< extents of a block
  std::size_t inner_;           ///< inner elements of a block of the products that compute d_x
  bool adds_;
  Bf16 *left_, *right_, *weights_;  ///< packed: a block as left and as right factor, and its columns' part of w^T
  float* sums_ = nullptr;           ///< tiles of d_x, if several blocks of columns add to it
};

}  // namespace

void bf16_gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, const Prepare& prepare,
                    const Finish& finish, PanelMemory& memory, ThreadPool& threads) {
  const Gradients gradients(unit, operands, accumulate, memory);
  const bool is_small = operands.rows * operands.inputs * operands.outputs < kThreadingWork;
  const auto split = [&](Range all, const auto& work) {
    threads.split(all.count(), kBf16Panel, is_small ? all.count() + 1 : 2 * kBf16Panel,
                  [&](std::size_t begin, std::size_t end) {
                    work(Range{all.begin + begin, all.begin + end});
                  });
  };
  // Threads split the inputs if each gets at least two panels, else the rows and the outputs.
  const Range inputs{0, operands.inputs};
  const bool by_inputs = threads.size() == 1 || is_small || inputs.count() >= 2 * kBf16Panel * threads.size();
  const bool keeps = by_inputs && gradients.has_one_block_of_rows() && !gradients.has_one_block_of_columns();
  gradients.for_each_block([&](const Block& block) {
    split(block.columns, [&](Range part) { gradients.pack(block, part, prepare); });
    if (block.rows.begin == 0 && gradients.wants_d_x()) {
      split(inputs, [&](Range part) { gradients.pack_weights(block, part); });
    }
    if (by_inputs) {
      return split(inputs, [&](Range part) {
        if (gradients.wants_d_x()) gradients.add_to_d_x(block, block.rows, part, finish);
        if (gradients.wants_d_w()) gradients.add_to_d_w(block, part, block.columns, keeps);
      });
    }
    if (gradients.wants_d_x()) {
      split(block.rows, [&](Range part) { gradients.add_to_d_x(block, part, inputs, finish); });
    }
    if (gradients.wants_d_w()) {
      split(block.columns, [&](Range part) { gradients.add_to_d_w(block, inputs, part, false); });
    }
  });
}

}  // namespace lockstep::model::cpu
