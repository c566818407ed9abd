#include "model/cpu/gru.hpp"

#include <algorithm>

#include "model/cpu/gemm.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/cpu/recurrence_sizes.hpp"

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kGruGates = 3;

}  // namespace

std::size_t gru_workspace(const Gru& shape, Bf16Unit unit) noexcept {
  return RecurrenceSizes(shape, kGruGates).workspace(unit);
}

void gru_forward(const Gru& shape, const GruForwardOperands& operands, std::span<float> workspace, ThreadPool& threads,
                 Bf16Unit unit) {
  const auto& [gates, recurrent, bias, products, hidden, places] = operands;
  const RecurrenceSizes size(shape, kGruGates);
  if (size.sequences == 0) return;
  const float* const c = bias.elements<float>().data();
  float* const h = hidden.elements<float>().data();
  const SharedFactor weights({recurrent.elements<float>().data(), size.gates}, size.hidden, size.gates,
                             workspace.first(size.weights(unit)), unit);
  const Beginnings beginnings(places, size.sequences, workspace.subspan(size.weights(unit), size.hidden));
  const std::size_t state = size.sequences * size.hidden;
  for (std::size_t t = 0; t < size.steps; ++t) {
    float* const a = gates.elements<float>().data() + t * size.sequences * size.gates;
    float* const p = products.elements<float>().data() + t * size.sequences * size.gates;
    threads.split(size.gates, SharedFactor::kGranule, size.threshold(size.gates, SharedFactor::kGranule),
                  [&](std::size_t begin, std::size_t end) {
                    beginnings.for_each_run(t, [&](std::size_t first, std::size_t count) {
                      weights.multiply({count, end - begin, size.hidden},
                                       {h + t * state + first * size.hidden, size.hidden}, begin, Accumulate::no,
                                       p + first * size.gates + begin, size.gates, size.order_of(t));
                    });
                    for (std::size_t sequence = 0; sequence < size.sequences; ++sequence) {
                      if (!beginnings.begins(t, sequence)) continue;
                      std::fill_n(p + sequence * size.gates + begin, end - begin, 0.0f);
                    }
                  });
    threads.split(size.hidden, kUnitGranule, size.threshold(size.hidden, kUnitGranule),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t sequence = 0; sequence < size.sequences; ++sequence) {
                      const std::size_t before = t * state + sequence * size.hidden;
                      gru_row({.gates = a + sequence * size.gates,
                               .products = p + sequence * size.gates,
                               .hidden_before = beginnings.before(t, sequence, h + before),
                               .hidden = size.hidden,
                               .begin = begin,
                               .end = end},
                              c, h + before + state);
                    }
                  });
  }
}

void gru_backward(const Gru& shape, const GruBackwardOperands& operands, std::span<float> workspace,
                  ThreadPool& threads, Bf16Unit unit) {
  const auto& [gates, recurrent, products, hidden, d_hidden, places] = operands;
  const RecurrenceSizes size(shape, kGruGates);
  if (size.sequences == 0) return;
  const float* const h = hidden.elements<float>().data();
  float* const d_h = d_hidden.elements<float>().data();
  const SharedFactor weights({recurrent.elements<float>().data(), size.gates, true}, size.gates, size.hidden,
                             workspace.first(size.weights(unit)), unit);
  const Beginnings beginnings(places, size.sequences, workspace.subspan(size.weights(unit), size.hidden));
  const std::size_t state = size.sequences * size.hidden;
  for (std::size_t t = size.steps; t-- > 0;) {
    float* const a = gates.elements<float>().data() + t * size.sequences * size.gates;
    float* const p = products.elements<float>().data() + t * size.sequences * size.gates;
    threads.split(size.hidden, kUnitGranule, size.threshold(size.hidden, kUnitGranule),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t sequence = 0; sequence < size.sequences; ++sequence) {
                      const std::size_t at = t * state + sequence * size.hidden;
                      gru_row_back({.gates = a + sequence * size.gates,
                                    .products = p + sequence * size.gates,
                                    .hidden_before = beginnings.before(t, sequence, h + at),
                                    .hidden = size.hidden,
                                    .begin = begin,
                                    .end = end},
                                   d_h + at, t > 0 && !beginnings.begins(t, sequence) ? d_h + at - state : nullptr);
                    }
                  });
    if (t == 0) return;
    threads.split(size.hidden, SharedFactor::kGranule, size.threshold(size.hidden, SharedFactor::kGranule),
                  [&](std::size_t begin, std::size_t end) {
                    beginnings.for_each_run(t, [&](std::size_t first, std::size_t count) {
                      weights.multiply({count, end - begin, size.gates}, {p + first * size.gates, size.gates}, begin,
                                       Accumulate::yes, d_h + (t - 1) * state + first * size.hidden + begin,
                                       size.hidden, size.order_of(t));
                    });
                  });
  }
}

}  // namespace lockstep::model::cpu
