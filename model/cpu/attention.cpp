#include "model/cpu/attention.hpp"

#include <algorithm>
#include <cmath>

#include "model/cpu/gemm.hpp"
#include "model/cpu/sequence_loops.hpp"

namespace lockstep::model::cpu {

namespace {

/// Queries of a tile: of a context of 128 five eighths are computed, of one of 1,024 a little more than a half.
constexpr std::size_t kTile = 32;

/// Sizes of the problem, and where a head of a sample lies.
struct Sizes {
  explicit Sizes(const Attention& shape)
      : context(static_cast<std::size_t>(shape.context)),
        heads(static_cast<std::size_t>(shape.heads)),
        head(static_cast<std::size_t>(shape.head_size)),
        width(heads * head),
        scale(1 / std::sqrt(static_cast<float>(shape.head_size))) {}
  /// Of head `index` of all heads of all samples: its first element in a tensor of rows of `stride`.
  std::size_t place(std::size_t index, std::size_t stride) const {
    return index / heads * context * stride + index % heads * head;
  }
  std::size_t context, heads, head, width;
  float scale;
};

/// The dropout of a head's probabilities; nothing where the rate is 0.
class HeadDropout {
 public:
  HeadDropout(const Attention& shape, const Tensor& keys, const Sizes& size, std::size_t index)
      : numbers_(formulas::dropout_numbers(shape.dropout)), context_(size.context), active_(shape.dropout.rate > 0) {
    if (!active_) return;
    key_ = keys.elements<std::uint64_t>()[index / size.heads];
    first_ = static_cast<std::uint64_t>(index % size.heads) * context_ * context_;
  }
  bool active() const noexcept { return active_; }
  /// Of the keys [0, out.size()) of a query.
  void factors(std::size_t query, std::span<float> out) const {
    dropout_factors(numbers_, key_, first_ + query * context_, out);
  }

 private:
  formulas::DropoutNumbers numbers_;
  std::size_t context_;
  bool active_;
  std::uint64_t key_ = 0, first_ = 0;
};

/// work(index, room) for each head of each sample, on the thread whose room it is.
template <class Work>
void for_each_head(std::size_t count, const Sizes& size, std::span<float> room, ThreadPool& threads, const Work& work) {
  const std::size_t own = 3 * kTile * size.context;
  threads.run([&](std::size_t part) {
    const Range range = part_of(count, 1, part, threads.size());
    for (std::size_t index = range.begin; index < range.end; ++index) work(index, room.subspan(part * own, own));
  });
}

}  // namespace

std::size_t attention_room(const Attention& shape, std::size_t threads) noexcept {
  return threads * 3 * kTile * static_cast<std::size_t>(shape.context);
}

void attention_forward(const Attention& shape, const Tensor& joint, const Tensor& keys, const Tensor& y,
                       const Tensor& log_sums, std::span<float> room, ThreadPool& threads) {
  const Sizes size(shape);
  const float* const all = joint.elements<float>().data();
  float* const out = y.elements<float>().data();
  float* const logs = log_sums.elements<float>().data();
  const std::size_t stride = 3 * size.width;
  for_each_head(
      static_cast<std::size_t>(log_sums.rows), size, room, threads, [&](std::size_t index, std::span<float> own) {
        const float* const queries = all + size.place(index, stride);
        const Factor key{queries + size.width, stride, true}, value{queries + 2 * size.width, stride};
        float* const to = out + size.place(index, size.width);
        const HeadDropout dropout(shape, keys, size, index);
        for (std::size_t first = 0; first < size.context; first += kTile) {
          const std::size_t end = std::min(first + kTile, size.context), rows = end - first;
          const auto scores = own.first(rows * end), factors = own.subspan(kTile * size.context, end);
          multiply({rows, end, size.head}, {queries + first * stride, stride}, key, Accumulate::no, scores.data(), end);
          for (std::size_t query = first; query < end; ++query) {
            const auto row = scores.subspan((query - first) * end, end);
            logs[index * size.context + query] = softmax_row(row, query + 1, size.scale);
            if (!dropout.active()) continue;
            dropout.factors(query, factors.first(query + 1));
            multiply_each(row.first(query + 1), factors.data());
          }
          multiply({rows, size.head, end}, {scores.data(), end}, value, Accumulate::no, to + first * size.width,
                   size.width);
        }
      });
}

void attention_backward(const Attention& shape, const Tensor& joint, const Tensor& keys, const Tensor& y,
                        const Tensor& log_sums, const Tensor& d_y, const Tensor& d_joint, std::span<float> room,
                        ThreadPool& threads) {
  const Sizes size(shape);
  const float* const all = joint.elements<float>().data();
  const float* const out = y.elements<float>().data();
  const float* const d_out = d_y.elements<float>().data();
  float* const d_all = d_joint.elements<float>().data();
  const float* const logs = log_sums.elements<float>().data();
  const std::size_t stride = 3 * size.width;
  for_each_head(static_cast<std::size_t>(log_sums.rows), size, room, threads,
                [&](std::size_t index, std::span<float> own) {
                  const std::size_t head = size.place(index, stride), plain = size.place(index, size.width);
                  const float* const queries = all + head;
                  const Factor key{queries + size.width, stride, true}, value{queries + 2 * size.width, stride, true};
                  float* const d_queries = d_all + head;
                  float* const d_keys = d_queries + size.width;
                  float* const d_values = d_queries + 2 * size.width;
                  const HeadDropout dropout(shape, keys, size, index);
                  // The last tile sees all keys, and writes their gradients; those before it add to them.
                  Accumulate accumulate = Accumulate::no;
                  for (std::size_t end = size.context; end > 0; accumulate = Accumulate::yes) {
                    const std::size_t first = (end - 1) / kTile * kTile, rows = end - first;
                    const Factor query{queries + first * stride, stride};
                    const Factor d_tile{d_out + plain + first * size.width, size.width};
                    const auto p = own.first(rows * end), d_p = own.subspan(kTile * size.context, rows * end);
                    const auto factors = own.subspan(2 * kTile * size.context, rows * end);
                    multiply({rows, end, size.head}, query, key, Accumulate::no, p.data(), end);
                    multiply({rows, end, size.head}, d_tile, value, Accumulate::no, d_p.data(), end);
                    for (std::size_t i = 0; i < rows; ++i) {
                      const std::size_t known = first + i + 1, place = plain + (first + i) * size.width;
                      const auto row = p.subspan(i * end, end), factor = factors.subspan(i * end, end);
                      probability_row(row, known, size.scale, logs[index * size.context + first + i]);
                      if (dropout.active()) {
                        dropout.factors(first + i, factor.first(known));
                        std::fill(factor.begin() + static_cast<std::ptrdiff_t>(known), factor.end(), 0.0f);
                      }
                      // The softmax's own sum over j of p[j] d_p[j] is y d_y, with dropout as without.
                      const float product = dot({out + place, size.head}, {d_out + place, size.head});
                      score_gradient_row(row, dropout.active() ? factor.data() : nullptr, product, size.scale,
                                         d_p.subspan(i * end, end));
                      if (dropout.active()) multiply_each(row, factor.data());
                    }
                    const Factor scores{d_p.data(), end}, turned{d_p.data(), end, true};
                    multiply({end, size.head, rows}, {p.data(), end, true}, d_tile, accumulate, d_values, stride);
                    multiply({end, size.head, rows}, turned, query, accumulate, d_keys, stride);
                    multiply({rows, size.head, end}, scores, {key.data, stride}, Accumulate::no,
                             d_queries + first * stride, stride);
                    end = first;
                  }
                });
}

}  // namespace lockstep::model::cpu
