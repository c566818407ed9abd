#include "model/cpu/cpu_backend.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include "model/cpu/bf16/gradients.hpp"
#include "model/cpu/bf16/linear.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/gemm.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/cpu/thin_gemm.hpp"
#include "model/cpu_code.hpp"
#include "model/formulas/update.hpp"

namespace lockstep::model::cpu {

namespace {

/// Smallest array for which a pass uses several threads, in elements (about 10 us of one core).
constexpr std::size_t kThreadingElements = 64 * 1024;
/// Elements of a cache line; partitions are aligned to it.
constexpr std::size_t kLine = 16;
/// Largest number of blocks of a sum over samples or elements.
constexpr std::size_t kMaxBlocks = 64;

std::size_t rows_threshold(const Tensor& tensor) {
  return kThreadingElements / static_cast<std::size_t>(tensor.columns) + 2;
}

double sum(double a, double b) { return a + b; }
LossSums sum(const LossSums& a, const LossSums& b) {
  return {.loss = a.loss + b.loss, .metric = a.metric + b.metric, .found = a.found + b.found};
}

/// Computes the losses of rows [begin, begin + count) one by one, each times its weight. loss_of(row, options): the
/// unweighted loss of a row.
template <class LossOfRow>
LossSums weighted_rows(std::size_t begin, std::size_t count, const LossOptions& options, const LossOfRow& loss_of) {
  const auto weights = options.weights.elements<float>();
  LossOptions of_row = options;
  of_row.weights = {};
  LossSums sums;
  for (std::size_t row = begin; row < begin + count; ++row) {
    const auto weight = static_cast<double>(weights[row]);
    of_row.scale = options.scale * weight;
    LossSums part = loss_of(row, of_row);
    part.loss *= weight;
    sums = sum(sums, part);
  }
  return sums;
}

/// Prefetches elements [begin, begin + count), if they exist, while the current part of a matrix is processed.
void prefetch_row(std::span<const float> all, std::size_t begin, std::size_t count) {
  for (std::size_t i = begin; i < std::min(begin + count, all.size()); i += kLine) __builtin_prefetch(&all[i]);
}

/// Calls work(begin, count, column) for the rows of a part of a matrix: `count` elements from `begin` on; the first is
/// in column `column`. Whole rows come in one call.
template <class Work>
void for_each_run(const Tensor& matrix, const float* part, std::size_t rows, std::size_t columns, const Work& work) {
  const auto width = static_cast<std::size_t>(matrix.columns);
  const auto first = static_cast<std::size_t>(part - matrix.elements<float>().data());
  if (columns == width) return work(first, rows * columns, std::size_t{0});
  for (std::size_t row = 0; row < rows; ++row) work(first + row * width, columns, first % width);
}

UpdateSpans part_of(const UpdateSpans& spans, std::size_t begin, std::size_t end) {
  const auto part = [&](std::span<float> all) { return all.empty() ? all : all.subspan(begin, end - begin); };
  return {.parameters = part(spans.parameters),
          .gradients = part(spans.gradients),
          .state1 = part(spans.state1),
          .state2 = part(spans.state2),
          .average = part(spans.average)};
}

}  // namespace

CpuBackend::CpuBackend(int threads, Bf16Unit unit) : unit_(unit), threads_(threads) { prepare_gemm(); }

std::string CpuBackend::description() const {
  return fmt::format("cpu: {}, {} thread{}", cpu_code(unit_), threads_.size(), threads_.size() == 1 ? "" : "s");
}

void CpuBackend::do_convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  const auto to = out.elements<float>();
  threads_.split(to.size(), kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
    const auto part = to.subspan(begin, end - begin);
    if (in.type == ElementType::uint8)
      convert(in.elements<std::uint8_t>().subspan(begin, part.size()), transform, part);
    if (in.type == ElementType::float32) convert(in.elements<float>().subspan(begin, part.size()), transform, part);
    if (in.type == ElementType::float64) convert(in.elements<double>().subspan(begin, part.size()), transform, part);
  });
}

namespace {

/// Provides values as fp32: converted copies in its memory, or the values themselves if they are fp32.
class Widened {
 public:
  explicit Widened(std::span<float> memory) : memory_(memory) {}
  Tensor values(const Tensor& rows) {
    const Tensor piece = place_for(rows);
    if (piece.data != rows.data) {
      widen({static_cast<const Bf16*>(rows.data), static_cast<std::size_t>(rows.count())}, piece.elements<float>());
    }
    return piece;
  }
  Tensor place_for(const Tensor& rows) {
    if (rows.type != ElementType::bfloat16) return rows;
    const auto piece = memory_.first(static_cast<std::size_t>(rows.count()));
    memory_ = memory_.subspan(piece.size());
    return {piece.data(), ElementType::float32, rows.rows, rows.columns};
  }
  /// Rounds fp32 values back to the tensor's type.
  static void round(const Tensor& from, const Tensor& to) {
    if (to.type == ElementType::bfloat16) {
      round_to_bf16(from.elements<float>(), {static_cast<Bf16*>(to.data), static_cast<std::size_t>(to.count())});
    }
  }

 private:
  std::span<float> memory_;
};

Tensor rows_of(const Tensor& all, std::int64_t first, std::int64_t count) {
  return all.present() ? all.row_range(first, count) : all;
}

}  // namespace

template <class Work>
void CpuBackend::for_widened_rows(std::int64_t rows, std::int64_t columns, const Work& work) {
  constexpr std::int64_t kElements = 160 * 1024;  // 640 KiB, for the second-level cache
  const std::int64_t block = std::max<std::int64_t>(1, kElements / columns);
  if (const auto needed = static_cast<std::size_t>(std::min(block, rows) * columns); widened_.size() < needed) {
    widened_.resize(needed);
  }
  for (std::int64_t first = 0; first < rows; first += block) {
    work(first, std::min(block, rows - first), Widened(widened_));
  }
}

void CpuBackend::do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                   const Tensor& y) {
  if (any_in_bf16(x, y) && y.count() > 0) {
    if (static_cast<std::size_t>(y.columns) >= kThin) {
      return bf16_linear_forward({.x = x, .w = w, .bias = bias, .y = y, .activation = activation}, threads_, unit_);
    }
    return for_widened_rows(x.rows, x.columns + y.columns, [&](std::int64_t first, std::int64_t rows, Widened widened) {
      const Tensor stored = y.row_range(first, rows), result = widened.place_for(stored);
      do_linear_forward(widened.values(x.row_range(first, rows)), w, bias, activation, result);
      Widened::round(result, stored);
    });
  }
  const auto shift = bias.elements<float>();
  const auto finish = [&](float* part, std::size_t rows, std::size_t columns) {
    for_each_run(y, part, rows, columns, [&](std::size_t begin, std::size_t count, std::size_t column) {
      add_bias_and_activate(y.elements<float>().subspan(begin, count), columns,
                            shift.empty() ? shift : shift.subspan(column, columns), activation);
    });
  };
  gemm({x}, {w}, Accumulate::no, y, threads_, unit_, Finish(finish));
}

void CpuBackend::do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                                        const Tensor& y) {
  if (any_in_bf16(x, y, z) && y.count() > 0) {
    if (static_cast<std::size_t>(y.columns) >= kThin) {
      return bf16_linear_forward({.x = x, .w = w, .bias = bias, .y = y, .z = z}, threads_, unit_);
    }
    return for_widened_rows(x.rows, x.columns + 2 * y.columns,
                            [&](std::int64_t first, std::int64_t rows, Widened widened) {
                              const Tensor stored_z = z.row_range(first, rows), stored_y = y.row_range(first, rows);
                              const Tensor before = widened.place_for(stored_z), result = widened.place_for(stored_y);
                              do_linear_gelu_forward(widened.values(x.row_range(first, rows)), w, bias, before, result);
                              Widened::round(before, stored_z);
                              Widened::round(result, stored_y);
                            });
  }
  const auto finish = [&](float* part, std::size_t rows, std::size_t columns) {
    for_each_run(z, part, rows, columns, [&](std::size_t begin, std::size_t count, std::size_t column) {
      gelu(z.elements<float>().subspan(begin, count), columns, bias.elements<float>().subspan(column, columns),
           y.elements<float>().subspan(begin, count));
    });
  };
  gemm({x}, {w}, Accumulate::no, z, threads_, unit_, Finish(finish));
}

void CpuBackend::do_linear_backward(const LinearBackwardOperands& operands, Activation activation,
                                    Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  if (!any_in_bf16(x, y, d_y, d_x) || d_y.count() == 0) return linear_gradients(operands, activation, accumulate, {});
  if (static_cast<std::size_t>(d_y.columns) >= kThin && (d_w.present() || d_x.present())) {
    if (accumulate == Accumulate::no) std::ranges::fill(d_bias.elements<float>(), 0.0f);
    return bf16_linear_backward({.operands = operands, .activation = activation, .accumulate = accumulate}, panels_,
                                threads_, unit_);
  }
  for_widened_rows(x.rows, 2 * (x.columns + d_y.columns), [&](std::int64_t first, std::int64_t rows, Widened widened) {
    const Tensor stored_d_y = d_y.row_range(first, rows), stored_d_x = rows_of(d_x, first, rows);
    LinearBackwardOperands part = operands;
    part.x = widened.values(x.row_range(first, rows));
    part.y = activation == Activation::none ? Tensor{} : widened.values(y.row_range(first, rows));
    part.d_y = widened.values(stored_d_y);
    part.d_x = widened.place_for(stored_d_x);
    linear_gradients(part, activation, first == 0 ? accumulate : Accumulate::yes, {});
    Widened::round(part.d_y, stored_d_y);
    Widened::round(part.d_x, stored_d_x);
  });
}

void CpuBackend::do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z,
                                                 Accumulate accumulate, const Tensor& d_z_sums) {
  if (any_in_bf16(operands.x, operands.d_y, operands.d_x, z) && operands.d_y.count() > 0) {
    if (static_cast<std::size_t>(operands.d_y.columns) < kThin) {
      return for_widened_rows(z.rows, 3 * z.columns + operands.d_y.columns,
                              [&](std::int64_t first, std::int64_t rows, Widened widened) {
                                const Tensor stored = operands.d_x.row_range(first, rows);
                                LinearBackwardOperands part = operands;
                                part.x = widened.values(operands.x.row_range(first, rows));
                                part.y = {};
                                part.d_y = widened.values(operands.d_y.row_range(first, rows));
                                part.d_x = widened.place_for(stored);
                                do_linear_backward_through_gelu(part, widened.values(z.row_range(first, rows)),
                                                                first == 0 ? accumulate : Accumulate::yes, d_z_sums);
                                Widened::round(part.d_x, stored);
                              });
    }
    if (accumulate == Accumulate::no) {
      std::ranges::fill(operands.d_bias.elements<float>(), 0.0f);
      std::ranges::fill(d_z_sums.elements<float>(), 0.0f);
    }
    return bf16_linear_backward({.operands = operands, .accumulate = accumulate, .z = z, .d_z_sums = d_z_sums}, panels_,
                                threads_, unit_);
  }
  const auto columns = static_cast<std::size_t>(z.columns);
  const auto value = z.elements<float>(), gradient = operands.d_x.elements<float>();
  const auto sums = d_z_sums.elements<float>();
  if (accumulate == Accumulate::no) std::ranges::fill(sums, 0.0f);
  // With several threads, rows are split among them, and a sum over rows must have a fixed order.
  const bool adds_at_once = threads_.size() == 1;
  const auto finish = [&](float* part, std::size_t rows, std::size_t count) {
    const auto offset = static_cast<std::size_t>(part - gradient.data());
    const std::size_t begin = offset % columns;
    for (std::size_t row = offset - begin; row < offset - begin + rows * columns; row += columns) {
      prefetch_row(value, row + rows * columns + begin, count);
      gelu_gradient(value.subspan(row, columns), gradient.subspan(row, columns), columns, begin, begin + count,
                    adds_at_once ? sums : std::span<float>());
    }
  };
  linear_gradients(operands, Activation::none, accumulate, Finish(finish));
  if (adds_at_once || sums.empty()) return;
  threads_.split(columns, kLine, gradient.size() < kThreadingElements ? columns + 1 : 2 * kLine,
                 [&](std::size_t begin, std::size_t end) { add_column_sums(gradient, columns, begin, end, sums); });
}

void CpuBackend::linear_gradients(const LinearBackwardOperands& operands, Activation activation, Accumulate accumulate,
                                  const Finish& finish) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const auto sums = d_bias.elements<float>();
  if (accumulate == Accumulate::no) std::ranges::fill(sums, 0.0f);
  const auto columns = static_cast<std::size_t>(d_y.columns);
  const auto gradient = d_y.elements<float>();
  const auto value = activation == Activation::none ? std::span<float>() : y.elements<float>();
  const auto of_rows = [&](std::span<float> all, std::size_t row, std::size_t rows) {
    return all.empty() ? all : all.subspan(row * columns, rows * columns);
  };
  const bool is_wanted = d_w.present() || d_x.present();
  if (unit_ != Bf16Unit::none && columns >= kThin && is_wanted && !gradient.empty()) {
    const auto prepare = [&](std::size_t row, std::size_t rows, std::size_t begin, std::size_t end) {
      activation_gradient(activation, of_rows(value, row, rows), of_rows(gradient, row, rows), columns, begin, end,
                          sums);
    };
    return bf16_gradients(unit_,
                          {.rows = static_cast<std::size_t>(d_y.rows),
                           .inputs = static_cast<std::size_t>(x.columns),
                           .outputs = columns,
                           .x = Factor{x.elements<float>().data(), static_cast<std::size_t>(x.columns)},
                           .w = w.elements<float>().data(),
                           .d_y = Factor{gradient.data(), columns},
                           .d_w = d_w.elements<float>().data(),
                           .d_x = d_x.elements<float>().data()},
                          accumulate, Prepare(prepare), finish, panels_, threads_);
  }
  // Threads split the columns, so that each sum over the samples has the same order for any number of threads.
  threads_.split(columns, kLine, gradient.size() < kThreadingElements ? columns + 1 : 2 * kLine,
                 [&](std::size_t begin, std::size_t end) {
                   activation_gradient(activation, value, gradient, columns, begin, end, sums);
                 });
  if (d_w.present()) gemm({x, true}, {d_y}, accumulate, d_w, threads_, unit_);
  if (d_x.present()) gemm({d_y}, {w, true}, Accumulate::no, d_x, threads_, unit_, finish);
}

template <class Part, class Block>
Part CpuBackend::sum_of_blocks(std::size_t count, std::size_t smallest, const Block& block) {
  std::array<Part, kMaxBlocks> parts;
  const std::size_t blocks = std::clamp<std::size_t>(count / smallest, 1, kMaxBlocks);
  threads_.split(blocks, 1, 2, [&](std::size_t begin, std::size_t end) {
    // Starts with the last block, which was written last and is still in the caches. The update that follows begins
    // with the first block, where this loop ends.
    for (std::size_t i = end; i-- > begin;) {
      const Slice range = part_of(count, kLine, i, blocks);
      parts[i] = block(range.offset, range.count);
    }
  });
  Part total{};
  for (std::size_t i = 0; i < blocks; ++i) total = sum(total, parts[i]);
  return total;
}

void CpuBackend::do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                          const Tensor& sums) {
  const auto classes = static_cast<std::size_t>(options.classes_of(logits)),
             columns = static_cast<std::size_t>(logits.columns);
  const auto z = logits.elements<float>();
  const auto answers = labels.elements<std::int32_t>();
  const auto loss_of_row = [&](std::size_t b, const LossOptions& of_row) {
    const auto row = z.subspan(b * columns, columns);
    if (answers[b] == kNoClass) {
      if (of_row.want_gradient) std::ranges::fill(row, 0.0f);
      return LossSums{};
    }
    const LossSums part = cross_entropy(row.first(classes), classes, answers.subspan(b, 1), of_row);
    if (of_row.want_gradient) std::ranges::fill(row.subspan(classes), 0.0f);
    return part;
  };
  add(sum_of_blocks<LossSums>(static_cast<std::size_t>(logits.rows), rows_threshold(logits),
                              [&](std::size_t begin, std::size_t count) {
                                if (options.weights.present()) {
                                  return weighted_rows(begin, count, options, loss_of_row);
                                }
                                if (classes == columns) {
                                  return cross_entropy(z.subspan(begin * classes, count * classes), classes,
                                                       answers.subspan(begin, count), options);
                                }
                                LossSums part;
                                for (std::size_t b = begin; b < begin + count; ++b) {
                                  part = sum(part, loss_of_row(b, options));
                                }
                                return part;
                              }),
      sums);
}

/// loss(predictions, targets, outputs, options) computes the loss of whole rows.
template <class Loss>
void CpuBackend::add_loss_of_outputs(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                                     const Tensor& sums, Loss loss) {
  const auto outputs = static_cast<std::size_t>(predictions.columns);
  const auto p = predictions.elements<float>(), t = targets.elements<float>();
  if (options.weights.present()) {
    const auto loss_of_row = [&](std::size_t row, const LossOptions& of_row) {
      return loss(p.subspan(row * outputs, outputs), t.subspan(row * outputs, outputs), outputs, of_row);
    };
    return add(sum_of_blocks<LossSums>(static_cast<std::size_t>(predictions.rows), rows_threshold(predictions),
                                       [&](std::size_t begin, std::size_t count) {
                                         return weighted_rows(begin, count, options, loss_of_row);
                                       }),
               sums);
  }
  add(sum_of_blocks<LossSums>(p.size(), kThreadingElements,
                              [&](std::size_t begin, std::size_t count) {
                                return loss(p.subspan(begin, count), t.subspan(begin, count), outputs, options);
                              }),
      sums);
}

void CpuBackend::do_mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                               const Tensor& sums) {
  add_loss_of_outputs(predictions, targets, options, sums, cpu::mean_error);
}

void CpuBackend::do_binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                         const Tensor& sums) {
  add_loss_of_outputs(logits, targets, options, sums, cpu::binary_cross_entropy);
}

void CpuBackend::do_soft_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                       const Tensor& sums) {
  const auto classes = static_cast<std::size_t>(logits.columns);
  const auto z = logits.elements<float>(), t = targets.elements<float>();
  const auto loss_of_rows = [&](std::size_t begin, std::size_t count, const LossOptions& of_rows) {
    return cpu::soft_cross_entropy(z.subspan(begin * classes, count * classes),
                                   t.subspan(begin * classes, count * classes), classes, of_rows);
  };
  const auto loss_of_row = [&](std::size_t row, const LossOptions& of_row) { return loss_of_rows(row, 1, of_row); };
  add(sum_of_blocks<LossSums>(static_cast<std::size_t>(logits.rows), rows_threshold(logits),
                              [&](std::size_t begin, std::size_t count) {
                                return options.weights.present() ? weighted_rows(begin, count, options, loss_of_row)
                                                                 : loss_of_rows(begin, count, options);
                              }),
      sums);
}

void CpuBackend::do_soft_dice(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                              const Tensor& work, const Tensor& sums) {
  const auto samples = static_cast<std::size_t>(work.rows), columns = static_cast<std::size_t>(logits.columns);
  const std::size_t positions = static_cast<std::size_t>(logits.rows) / samples;
  const auto classes = static_cast<std::size_t>(options.classes_of(logits));
  const auto row_of = [&](std::size_t sample) {
    return work.row_range(static_cast<std::int64_t>(sample), 1).elements<double>();
  };
  threads_.split(samples, 1, 1 + kThreadingElements / (positions * columns), [&](std::size_t begin, std::size_t end) {
    for (std::size_t sample = begin; sample < end; ++sample) {
      const std::span<double> own = row_of(sample);
      const LossSums part =
          cpu::soft_dice(logits.elements<float>().subspan(sample * positions * columns, positions * columns), columns,
                         classes, labels.elements<std::int32_t>().subspan(sample * positions, positions), options, own);
      own[own.size() - 2] = part.loss;
      own[own.size() - 1] = part.metric;
    }
  });
  LossSums total;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::span<const double> own = row_of(sample);
    total.loss += own[own.size() - 2];
    total.metric += own[own.size() - 1];
  }
  add(total, sums);
}

namespace {

/// Chunks of bf16 tensors as floats, in the first-level cache.
struct Bf16Chunks {
  static constexpr std::size_t kElements = 2048;
  std::array<std::array<float, kElements>, 2> floats;
  /// Returns elements [at, at + count) as floats, in buffer number `place`.
  std::span<float> read(const Tensor& from, std::size_t at, std::size_t count, std::size_t place) {
    const auto to = std::span(floats[place]).first(count);
    widen({static_cast<const Bf16*>(from.data) + at, count}, to);
    return to;
  }
};

}  // namespace

/// Runs work(first element, elements, memory) over chunks of a tensor's elements.
template <class Work>
void CpuBackend::for_bf16_chunks(const Tensor& tensor, const Work& work) {
  threads_.split(static_cast<std::size_t>(tensor.count()), kLine, kThreadingElements,
                 [&](std::size_t begin, std::size_t end) {
                   Bf16Chunks chunks;
                   for (std::size_t at = begin; at < end; at += Bf16Chunks::kElements) {
                     work(at, std::min(Bf16Chunks::kElements, end - at), chunks);
                   }
                 });
}

void CpuBackend::do_elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) {
  if (x.type == ElementType::bfloat16) {
    return for_bf16_chunks(x, [&](std::size_t at, std::size_t count, Bf16Chunks& chunks) {
      const auto values = chunks.read(x, at, count, 0);
      apply(f, values, values);
      round_to_bf16(values, {static_cast<Bf16*>(y.data) + at, count});
    });
  }
  const auto from = x.elements<float>(), to = y.elements<float>();
  threads_.split(from.size(), kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
    apply(f, from.subspan(begin, end - begin), to.subspan(begin, end - begin));
  });
}

void CpuBackend::do_elementwise_backward(const Elementwise& f, const Tensor& read, const Tensor& d_y,
                                         const Tensor& d_x) {
  if (d_y.type == ElementType::bfloat16) {
    return for_bf16_chunks(d_y, [&](std::size_t at, std::size_t count, Bf16Chunks& chunks) {
      const auto gradients = chunks.read(d_y, at, count, 0);
      const auto values = read.present() ? chunks.read(read, at, count, 1) : std::span<float>();
      apply_slope(f, values, gradients, gradients);
      round_to_bf16(gradients, {static_cast<Bf16*>(d_x.data) + at, count});
    });
  }
  const auto v = read.elements<float>(), from = d_y.elements<float>(), to = d_x.elements<float>();
  threads_.split(from.size(), kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
    const std::size_t count = end - begin;
    apply_slope(f, v.empty() ? v : v.subspan(begin, count), from.subspan(begin, count), to.subspan(begin, count));
  });
}

void CpuBackend::do_add(const Tensor& x, const Tensor& to) {
  if (x.type == ElementType::bfloat16) {
    const auto* const from = static_cast<const Bf16*>(x.data);
    auto* const sum = static_cast<Bf16*>(to.data);
    return threads_.split(static_cast<std::size_t>(x.count()), kLine, kThreadingElements,
                          [&](std::size_t begin, std::size_t end) {
                            add_bf16({from + begin, end - begin}, {sum + begin, end - begin});
                          });
  }
  const auto from = x.elements<float>(), sum = to.elements<float>();
  threads_.split(from.size(), kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
    add_scaled(from.subspan(begin, end - begin), 1, sum.subspan(begin, end - begin));
  });
}

void CpuBackend::do_sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate) {
  put(sum_of_blocks<double>(static_cast<std::size_t>(x.count()), kThreadingElements,
                            [&](std::size_t begin, std::size_t count) {
                              if (x.type == ElementType::bfloat16) {
                                return sum_of_bf16_squares({static_cast<const Bf16*>(x.data) + begin, count});
                              }
                              return cpu::sum_of_squares(x.elements<float>().subspan(begin, count));
                            }),
      accumulate, out);
}

void CpuBackend::do_add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                                    std::span<const UpdateSlice> slices) {
  for (const UpdateSlice& slice : slices) {
    if (!slice.decayed) continue;
    const auto from = parameters.elements<float>().subspan(slice.offset, slice.count);
    const auto to = gradients.elements<float>().subspan(slice.offset, slice.count);
    threads_.split(slice.count, kLine, kThreadingElements, [&](std::size_t begin, std::size_t end) {
      add_scaled(from.subspan(begin, end - begin), l2, to.subspan(begin, end - begin));
    });
  }
}

void CpuBackend::do_update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging, const Tensor& rule,
                           std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const auto open_update = open(rule, gate);
  if (!open_update) return;
  const Update update{
      .kind = kind, .averaging = averaging, .rule = open_update->rule, .gradient_factor = open_update->gradient_factor};
  std::span<double> norms = arenas.norms.elements<double>();
  for (const UpdateSlice& slice : slices) {
    const auto part = [&](const Tensor& arena) {
      const auto elements = arena.elements<float>();
      return elements.empty() ? elements : elements.subspan(slice.offset, slice.count);
    };
    update_slice({.parameters = part(arenas.parameters),
                  .gradients = part(arenas.gradients),
                  .state1 = part(arenas.state1),
                  .state2 = part(arenas.state2),
                  .average = part(arenas.average)},
                 update, slice, norms);
    if (!norms.empty()) norms = norms.subspan(2);
  }
}

/// norms: begins with the two norms of this slice, if the rule needs them.
void CpuBackend::update_slice(const UpdateSpans& spans, Update update, const UpdateSlice& slice,
                              std::span<double> norms) {
  const auto pass = [&](const auto& work) {
    threads_.split(slice.count, kLine, kThreadingElements,
                   [&](std::size_t begin, std::size_t end) { work(part_of(spans, begin, end)); });
  };
  if (slice.statistic) return pass([&](const UpdateSpans& part) { update_statistics(part, update.rule); });
  update.decayed = slice.decayed;
  update.rate_scale = slice.rate_scale;
  const bool directions = update.kind == OptimizerKind::lamb;
  if (directions) pass([&](const UpdateSpans& part) { lamb_directions(part, update); });
  if (formulas::needs_norms(update.kind)) {
    const auto squares = [&](const auto& of_block) {
      return slice.decayed ? sum_of_blocks<double>(slice.count, kThreadingElements, of_block) : 0.0;
    };
    norms[0] = squares([&](std::size_t begin, std::size_t count) {
      return cpu::sum_of_squares(spans.parameters.subspan(begin, count));
    });
    norms[1] = squares([&](std::size_t begin, std::size_t count) {
      const auto part = spans.gradients.subspan(begin, count);
      return directions ? cpu::sum_of_squares(part) : sum_of_clipped_squares(part, update.rule, update.gradient_factor);
    });
    update.ratio = formulas::trust_ratio(update.kind, update.rule, norms[0], norms[1]);
  }
  pass([&](const UpdateSpans& part) { cpu::update(part, update); });
}

void CpuBackend::do_upload(std::span<const float> host, const Tensor& to) {
  std::ranges::copy(host, to.elements<float>().begin());
}

void CpuBackend::do_download(const Tensor& from, std::span<float> host) {
  std::ranges::copy(from.elements<float>(), host.begin());
}

}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::string cpu_libraries() {
  const dnnl_version_t& onednn = *dnnl_version();
  return fmt::format("{}, oneDNN {}.{}.{}", cpu::blas_library(), onednn.major, onednn.minor, onednn.patch);
}

std::string cpu_code(Bf16Unit unit) {
  return fmt::format("{}, loops {}", cpu::gemm_code(unit), cpu::loop_instruction_set());
}

}  // namespace lockstep::model
