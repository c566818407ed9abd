#include "model/cpu/attention.hpp"

#include <algorithm>
#include <cmath>

#include "model/cpu/gemm.hpp"
#include "model/cpu/sequence_loops.hpp"

namespace lockstep::model::cpu {

namespace {

/// Queries of a tile: whole tiles of a product. A context of 128 computes five eighths of the scores, one of 1,024 a
/// little more than a half.
constexpr std::size_t kTile = 36, kBf16Tile = 32;

/// Sizes of the problem, and offsets of the heads.
struct Sizes {
  Sizes(const Attention& shape, Bf16Unit bf16_unit)
      : unit(bf16_unit),
        tile(unit == Bf16Unit::none ? kTile : kBf16Tile),
        context(static_cast<std::size_t>(shape.context)),
        heads(static_cast<std::size_t>(shape.heads)),
        head(static_cast<std::size_t>(shape.head_size)),
        width(heads * head),
        joint(3 * width),
        scale(1 / std::sqrt(static_cast<float>(shape.head_size))) {}
  /// Offset of the first element of head `index`, counted over all samples, in a tensor of rows of `stride`.
  std::size_t offset(std::size_t index, std::size_t stride) const {
    return index / heads * context * stride + index % heads * head;
  }
  Bf16Unit unit;     ///< instructions of the products
  std::size_t tile;  ///< queries
  std::size_t context, heads, head, width;
  std::size_t joint;  ///< width of the joint projection
  float scale;
};

/// The dropout of a head's probabilities; does nothing at rate 0.
class HeadDropout {
 public:
  HeadDropout(const Attention& shape, const Tensor& dropout_keys, const Sizes& size, std::size_t index)
      : numbers_(formulas::dropout_numbers(shape.dropout)), context_(size.context), active_(shape.dropout.rate > 0) {
    if (!active_) return;
    key_ = dropout_keys.elements<std::uint64_t>()[index / size.heads];
    first_ = static_cast<std::uint64_t>(index % size.heads) * context_ * context_;
  }
  bool active() const noexcept { return active_; }
  /// Factors of the keys [0, known) of a query; 0 beyond.
  void factors(std::size_t query, std::size_t known, std::span<float> out) const {
    dropout_factors(numbers_, key_, first_ + query * context_, out.first(known));
    std::ranges::fill(out.subspan(known), 0.0f);
  }

 private:
  formulas::DropoutNumbers numbers_;
  std::size_t context_;
  bool active_;
  std::uint64_t key_ = 0, first_ = 0;
};

/// Queries [first, end) of a head, which see keys of [0, keys): up to their own, or all.
struct Tile {
  Tile(const Attention& shape, std::size_t begin, std::size_t behind)
      : first(begin),
        end(behind),
        keys(static_cast<std::size_t>(shape.keys_of(static_cast<std::int64_t>(behind) - 1))) {}
  std::size_t first, end, keys;
  std::size_t rows() const { return end - first; }
  std::size_t elements() const { return rows() * keys; }
};
std::size_t keys_of(const Attention& shape, std::size_t query) {
  return static_cast<std::size_t>(shape.keys_of(static_cast<std::int64_t>(query)));
}

/// Asks for rows that are read after the next products.
void prefetch(const float* rows, std::size_t count, std::size_t stride, std::size_t columns) {
  constexpr std::size_t kLine = 16;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t o = 0; o < columns; o += kLine) __builtin_prefetch(rows + i * stride + o);
  }
}

/// Memory of one thread: three tiles, and three factors that the tiles share.
struct Workspace {
  Workspace(const Sizes& size, std::span<float> all)
      : one(all.first(tile(size))),
        two(all.subspan(tile(size), tile(size))),
        three(all.subspan(2 * tile(size), tile(size))),
        factors(all.subspan(3 * tile(size))) {}
  static std::size_t tile(const Sizes& size) { return size.tile * size.context; }
  static std::size_t turned(const Sizes& size) { return SharedFactor::workspace(size.head, size.context, size.unit); }
  static std::size_t plain(const Sizes& size) { return SharedFactor::workspace(size.context, size.head, size.unit); }
  static std::size_t elements(const Sizes& size) { return 3 * tile(size) + 2 * turned(size) + plain(size); }
  std::span<float> one, two, three, factors;
};

/// Calls work(index, workspace) for each head of each sample.
template <class Work>
void for_each_head(std::size_t count, const Sizes& size, std::span<float> workspace, ThreadPool& threads,
                   const Work& work) {
  const std::size_t own = Workspace::elements(size);
  threads.run([&](std::size_t part) {
    const Slice range = part_of(count, 1, part, threads.size());
    for (std::size_t index = range.offset; index < range.end(); ++index) {
      work(index, Workspace(size, workspace.subspan(part * own, own)));
    }
  });
}

}  // namespace

std::size_t attention_workspace(const Attention& shape, std::size_t threads, Bf16Unit unit) noexcept {
  return threads * Workspace::elements(Sizes(shape, unit));
}

void attention_forward(const Attention& shape, const AttentionForwardOperands& operands, std::span<float> workspace,
                       ThreadPool& threads, Bf16Unit unit) {
  const auto& [joint, dropout_keys, y, log_sums] = operands;
  const Sizes size(shape, unit);
  const auto one_head = [&](std::size_t index, const Workspace& own) {
    const float* const q = joint.elements<float>().data() + size.offset(index, size.joint);
    const float* const k = q + size.width;
    const float* const v = k + size.width;
    float* const out = y.elements<float>().data() + size.offset(index, size.width);
    float* const logs = log_sums.elements<float>().data() + index * size.context;
    const SharedFactor turned_keys({k, size.joint, true}, size.head, size.context, own.factors, unit);
    const SharedFactor values({v, size.joint}, size.context, size.head, own.factors.subspan(Workspace::turned(size)),
                              unit);
    const HeadDropout dropout(shape, dropout_keys, size, index);
    const auto known = static_cast<std::size_t>(shape.first);
    for (std::size_t first = known; first < size.context; first += size.tile) {
      const Tile tile(shape, first, std::min(first + size.tile, size.context));
      const auto scores = own.one.first(tile.elements()), factors = own.two.first(tile.keys);
      turned_keys.multiply({tile.rows(), tile.keys, size.head}, {q + tile.first * size.joint, size.joint}, 0,
                           Accumulate::no, scores.data(), tile.keys);
      for (std::size_t query = tile.first; query < tile.end; ++query) {
        const auto row = scores.subspan((query - tile.first) * tile.keys, tile.keys);
        logs[query] = softmax_row(row, keys_of(shape, query), size.scale);
        if (!dropout.active()) continue;
        dropout.factors(query, keys_of(shape, query), factors);
        multiply_each(row, factors.data());
      }
      values.multiply({tile.rows(), size.head, tile.keys}, {scores.data(), tile.keys}, 0, Accumulate::no,
                      out + (tile.first - known) * size.width, size.width);
    }
  };
  for_each_head(static_cast<std::size_t>(log_sums.rows), size, workspace, threads, one_head);
}

void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands, std::span<float> workspace,
                        ThreadPool& threads, Bf16Unit unit) {
  const auto& [joint, dropout_keys, y, log_sums, d_y, d_joint] = operands;
  const Sizes size(shape, unit);
  const auto one_head = [&](std::size_t index, const Workspace& own) {
    const float* const q = joint.elements<float>().data() + size.offset(index, size.joint);
    const float* const k = q + size.width;
    const float* const v = k + size.width;
    float* const d_q = d_joint.elements<float>().data() + size.offset(index, size.joint);
    float* const d_k = d_q + size.width;
    float* const d_v = d_k + size.width;
    const float* const out = y.elements<float>().data() + size.offset(index, size.width);
    const float* const d_out = d_y.elements<float>().data() + size.offset(index, size.width);
    const float* const logs = log_sums.elements<float>().data() + index * size.context;
    const SharedFactor turned_keys({k, size.joint, true}, size.head, size.context, own.factors, unit);
    const SharedFactor turned_values({v, size.joint, true}, size.head, size.context,
                                     own.factors.subspan(Workspace::turned(size)), unit);
    const SharedFactor plain_keys({k, size.joint}, size.context, size.head,
                                  own.factors.subspan(2 * Workspace::turned(size)), unit);
    const HeadDropout dropout(shape, dropout_keys, size, index);
    // The last tile sees all keys and writes their gradients; the tiles before it add to them.
    Accumulate accumulate = Accumulate::no;
    for (std::size_t end = size.context; end > 0; accumulate = Accumulate::yes) {
      const Tile tile(shape, (end - 1) / size.tile * size.tile, end);
      const std::size_t keys = tile.keys;
      const Factor queries{q + tile.first * size.joint, size.joint},
          d_rows{d_out + tile.first * size.width, size.width};
      const auto p = own.one.first(tile.elements()), d_p = own.two.first(tile.elements());
      prefetch(out + tile.first * size.width, tile.rows(), size.width, size.head);
      turned_keys.multiply({tile.rows(), keys, size.head}, queries, 0, Accumulate::no, p.data(), keys);
      turned_values.multiply({tile.rows(), keys, size.head}, d_rows, 0, Accumulate::no, d_p.data(), keys);
      for (std::size_t i = 0; i < tile.rows(); ++i) {
        const std::size_t query = tile.first + i;
        const auto row = p.subspan(i * keys, keys), d_row = d_p.subspan(i * keys, keys);
        const auto factors = own.three.first(keys);
        probability_row(row, keys_of(shape, query), size.scale, logs[query]);
        // The softmax subtracts the sum over j of p[j] d_p[j], which is y d_y, with and without dropout.
        const float product = dot({out + query * size.width, size.head}, {d_out + query * size.width, size.head});
        if (dropout.active()) {
          dropout.factors(query, keys_of(shape, query), factors);
          score_gradient_row(row, factors.data(), product, size.scale, d_row);
          multiply_each(row, factors.data());
        } else {
          score_gradient_row(row, nullptr, product, size.scale, d_row);
        }
      }
      multiply({keys, size.head, tile.rows()}, {p.data(), keys, true}, d_rows, accumulate, d_v, size.joint, unit);
      multiply({keys, size.head, tile.rows()}, {d_p.data(), keys, true}, queries, accumulate, d_k, size.joint, unit);
      plain_keys.multiply({tile.rows(), size.head, keys}, {d_p.data(), keys}, 0, Accumulate::no,
                          d_q + tile.first * size.joint, size.joint);
      end = tile.first;
    }
  };
  for_each_head(static_cast<std::size_t>(log_sums.rows), size, workspace, threads, one_head);
}

}  // namespace lockstep::model::cpu
