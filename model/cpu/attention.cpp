#include "model/cpu/attention.hpp"

#include <algorithm>
#include <cmath>

#include "model/cpu/bf16/number.hpp"
#include "model/cpu/gemm.hpp"
#include "model/cpu/loops/sequence_loops.hpp"

namespace lockstep::model::cpu {

namespace {

/// Queries per tile: a multiple of the rows of a product's tile. Causal attention with a context of 128 computes five
/// eighths of the scores, with 1,024 a little more than half.
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
  /// Offset of the first element of head `index` (counted over all samples), in a tensor with rows of `stride`.
  std::size_t offset(std::size_t index, std::size_t stride) const {
    return index / heads * context * stride + index % heads * head;
  }
  Bf16Unit unit;     ///< instructions of the products
  std::size_t tile;  ///< queries
  std::size_t context, heads, head, width;
  std::size_t joint;  ///< width of the joint projection
  float scale;
};

/// Dropout of the probabilities of a head; does nothing at rate 0.
class HeadDropout {
 public:
  HeadDropout(const Attention& shape, const Tensor& dropout_keys, const Sizes& size, std::size_t index)
      : numbers_(formulas::dropout_numbers(shape.dropout)), context_(size.context), active_(shape.dropout.rate > 0) {
    if (!active_) return;
    key_ = dropout_keys.elements<std::uint64_t>()[index / size.heads];
    first_ = static_cast<std::uint64_t>(index % size.heads) * context_ * context_;
  }
  bool active() const noexcept { return active_; }
  /// Writes the factors of keys [0, known) of a query; 0 beyond.
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

/// Queries [first, end) of a head, which see only keys in [0, keys): up to the last query, or all.
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

/// The range of keys that each query of a head sees.
class HeadKeys {
 public:
  HeadKeys(const Attention& shape, const AttentionMask& mask, const Sizes& size, std::size_t index) : shape_(shape) {
    if (mask.places.present()) {
      places_ = mask.places.elements<std::int32_t>().data() + index / size.heads * size.context;
    }
    if (mask.lengths.present()) {
      const std::int32_t length = mask.lengths.elements<std::int32_t>()[index / size.heads];
      length_ = std::min(size.context, static_cast<std::size_t>(std::max(length, 0)));
    } else {
      length_ = size.context;
    }
  }
  std::size_t first(std::size_t query) const {
    return places_ == nullptr ? 0 : query - static_cast<std::size_t>(places_[query]);
  }
  std::size_t end(std::size_t query) const { return std::max(first(query), std::min(keys_of(shape_, query), length_)); }
  /// Returns the part of a tile's row from the first visible key on. Zeroes the part before it.
  std::span<float> seen(std::size_t query, std::span<float> row) const {
    std::ranges::fill(row.first(first(query)), 0.0f);
    return row.subspan(first(query));
  }
  std::size_t count(std::size_t query) const { return end(query) - first(query); }

 private:
  const Attention& shape_;
  const std::int32_t* places_ = nullptr;
  std::size_t length_;
};

/// Columns of one head in a tensor of fp32 or bf16 numbers.
class HeadColumns {
 public:
  HeadColumns(const Tensor& tensor, std::size_t first, std::size_t width)
      : tensor_(tensor), first_(first), width_(width), stride_(static_cast<std::size_t>(tensor.columns)) {}

  bool in_bf16() const noexcept { return tensor_.type == ElementType::bfloat16; }
  /// Returns the rows from `row` on as a factor.
  Bf16Factor from(std::size_t row) const { return {tensor_, first_ + row * stride_, stride_}; }
  Bf16Factor turned() const { return {tensor_, first_, stride_, true}; }
  float* floats(std::size_t row) const { return static_cast<float*>(tensor_.data) + first_ + row * stride_; }
  /// Returns a row as floats. A row in bf16 is converted to `memory`.
  std::span<const float> row(std::size_t row, std::span<float> memory) const {
    if (!in_bf16()) return {floats(row), width_};
    widen({halves(row), width_}, memory);
    return memory.first(width_);
  }
  /// Rounds `rows` consecutive rows of `from` into the tensor.
  void round(std::span<const float> from, std::size_t row, std::size_t rows) const {
    for (std::size_t i = 0; i < rows; ++i) {
      round_to_bf16(from.subspan(i * width_, width_), {halves(row + i), width_});
    }
  }
  /// Prefetches rows that are read after the next products.
  void prefetch(std::size_t row, std::size_t rows) const {
    constexpr std::size_t kLine = 64;
    const std::size_t bytes = size_of(tensor_.type);
    const auto* from = static_cast<const std::byte*>(tensor_.data) + (first_ + row * stride_) * bytes;
    for (std::size_t i = 0; i < rows; ++i, from += stride_ * bytes) {
      for (std::size_t at = 0; at < width_ * bytes; at += kLine) __builtin_prefetch(from + at);
    }
  }

 private:
  Bf16* halves(std::size_t row) const { return static_cast<Bf16*>(tensor_.data) + first_ + row * stride_; }

  const Tensor& tensor_;
  std::size_t first_, width_, stride_;
};

/// Memory of one thread: three tiles, three factors that the tiles share, and, for tensors in bf16, fp32 gradients of a
/// tile of queries and of all keys and values.
struct Workspace {
  Workspace(const Sizes& size, std::span<float> all)
      : one(all.first(tile(size))),
        two(all.subspan(tile(size), tile(size))),
        three(all.subspan(2 * tile(size), tile(size))),
        factors(all.subspan(3 * tile(size), factor_elements(size))),
        queries(all.subspan(3 * tile(size) + factor_elements(size), size.tile * size.head)),
        d_keys(all.last(2 * size.context * size.head).first(size.context * size.head)),
        d_values(all.last(size.context * size.head)) {}
  static std::size_t tile(const Sizes& size) { return size.tile * size.context; }
  static std::size_t turned(const Sizes& size) { return SharedFactor::workspace(size.head, size.context, size.unit); }
  static std::size_t plain(const Sizes& size) { return SharedFactor::workspace(size.context, size.head, size.unit); }
  static std::size_t factor_elements(const Sizes& size) { return 2 * turned(size) + plain(size); }
  static std::size_t elements(const Sizes& size) {
    return 3 * tile(size) + factor_elements(size) + (size.tile + 2 * size.context) * size.head;
  }
  std::span<float> one, two, three, factors, queries, d_keys, d_values;
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
  const auto& [joint, dropout_keys, mask, y, log_sums] = operands;
  const Sizes size(shape, unit);
  const auto one_head = [&](std::size_t index, const Workspace& own) {
    const std::size_t first_query = size.offset(index, size.joint);
    const HeadColumns q(joint, first_query, size.head), k(joint, first_query + size.width, size.head),
        v(joint, first_query + 2 * size.width, size.head), out(y, size.offset(index, size.width), size.head);
    float* const logs = log_sums.elements<float>().data() + index * size.context;
    const SharedFactor turned_keys(k.turned(), size.head, size.context, own.factors, unit);
    const SharedFactor values(v.from(0), size.context, size.head, own.factors.subspan(Workspace::turned(size)), unit);
    const HeadDropout dropout(shape, dropout_keys, size, index);
    const HeadKeys seen(shape, mask, size, index);
    const auto known = static_cast<std::size_t>(shape.first);
    for (std::size_t first = known; first < size.context; first += size.tile) {
      const Tile tile(shape, first, std::min(first + size.tile, size.context));
      const auto scores = own.one.first(tile.elements()), factors = own.two.first(tile.keys);
      turned_keys.multiply({tile.rows(), tile.keys, size.head}, q.from(tile.first), 0, Accumulate::no, scores.data(),
                           tile.keys);
      for (std::size_t query = tile.first; query < tile.end; ++query) {
        const auto row = scores.subspan((query - tile.first) * tile.keys, tile.keys);
        logs[query] = softmax_row(seen.seen(query, row), seen.count(query), size.scale);
        if (!dropout.active()) continue;
        dropout.factors(query, seen.end(query), factors);
        multiply_each(row, factors.data());
      }
      const std::size_t row = tile.first - known;
      values.multiply({tile.rows(), size.head, tile.keys}, {scores.data(), tile.keys}, 0, Accumulate::no,
                      out.in_bf16() ? own.queries.data() : out.floats(row), out.in_bf16() ? size.head : size.width);
      if (out.in_bf16()) out.round(own.queries, row, tile.rows());
    }
  };
  for_each_head(static_cast<std::size_t>(log_sums.rows), size, workspace, threads, one_head);
}

void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands, std::span<float> workspace,
                        ThreadPool& threads, Bf16Unit unit) {
  const auto& [joint, dropout_keys, mask, y, log_sums, d_y, d_joint] = operands;
  const Sizes size(shape, unit);
  const auto one_head = [&](std::size_t index, const Workspace& own) {
    const std::size_t first_query = size.offset(index, size.joint), first_out = size.offset(index, size.width);
    const auto part = [&](const Tensor& of, std::size_t i) {
      return HeadColumns(of, first_query + i * size.width, size.head);
    };
    const HeadColumns q = part(joint, 0), k = part(joint, 1), v = part(joint, 2), d_q = part(d_joint, 0),
                      d_k = part(d_joint, 1), d_v = part(d_joint, 2), out(y, first_out, size.head),
                      d_out(d_y, first_out, size.head);
    // Gradients that are stored in bf16 are first summed in fp32.
    const bool stored = d_q.in_bf16();
    const std::size_t stride = stored ? size.head : size.joint;
    float* const key_sums = stored ? own.d_keys.data() : d_k.floats(0);
    float* const value_sums = stored ? own.d_values.data() : d_v.floats(0);
    const float* const logs = log_sums.elements<float>().data() + index * size.context;
    const SharedFactor turned_keys(k.turned(), size.head, size.context, own.factors, unit);
    const SharedFactor turned_values(v.turned(), size.head, size.context, own.factors.subspan(Workspace::turned(size)),
                                     unit);
    const SharedFactor plain_keys(k.from(0), size.context, size.head, own.factors.subspan(2 * Workspace::turned(size)),
                                  unit);
    const HeadDropout dropout(shape, dropout_keys, size, index);
    const HeadKeys seen(shape, mask, size, index);
    // The last tile sees all keys and writes their gradients; the other tiles add to them.
    Accumulate accumulate = Accumulate::no;
    for (std::size_t end = size.context; end > 0; accumulate = Accumulate::yes) {
      const Tile tile(shape, (end - 1) / size.tile * size.tile, end);
      const std::size_t keys = tile.keys;
      const Bf16Factor queries = q.from(tile.first), d_rows = d_out.from(tile.first);
      const auto p = own.one.first(tile.elements()), d_p = own.two.first(tile.elements());
      out.prefetch(tile.first, tile.rows());
      turned_keys.multiply({tile.rows(), keys, size.head}, queries, 0, Accumulate::no, p.data(), keys);
      turned_values.multiply({tile.rows(), keys, size.head}, d_rows, 0, Accumulate::no, d_p.data(), keys);
      for (std::size_t i = 0; i < tile.rows(); ++i) {
        const std::size_t query = tile.first + i;
        const auto row = p.subspan(i * keys, keys), d_row = d_p.subspan(i * keys, keys);
        const auto factors = own.three.first(keys);
        probability_row(seen.seen(query, row), seen.count(query), size.scale, logs[query]);
        // The softmax subtracts the sum over j of p[j] d_p[j], which is y d_y, with and without dropout.
        const float product = dot(out.row(query, own.queries), d_out.row(query, own.queries.subspan(size.head)));
        if (dropout.active()) {
          dropout.factors(query, seen.end(query), factors);
          score_gradient_row(row, factors.data(), product, size.scale, d_row);
          multiply_each(row, factors.data());
        } else {
          score_gradient_row(row, nullptr, product, size.scale, d_row);
        }
      }
      multiply({keys, size.head, tile.rows()}, {p.data(), keys, true}, d_rows, accumulate, value_sums, stride, unit);
      multiply({keys, size.head, tile.rows()}, {d_p.data(), keys, true}, queries, accumulate, key_sums, stride, unit);
      plain_keys.multiply({tile.rows(), size.head, keys}, {d_p.data(), keys}, 0, Accumulate::no,
                          stored ? own.queries.data() : d_q.floats(tile.first), stride);
      if (stored) d_q.round(own.queries, tile.first, tile.rows());
      end = tile.first;
    }
    if (stored) {
      d_k.round(own.d_keys, 0, size.context);
      d_v.round(own.d_values, 0, size.context);
    }
  };
  for_each_head(static_cast<std::size_t>(log_sums.rows), size, workspace, threads, one_head);
}

}  // namespace lockstep::model::cpu
