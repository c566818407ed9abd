#include "model/cpu/lstm.hpp"

#include <algorithm>

#include "model/cpu/gemm.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/cpu/recurrence_sizes.hpp"

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kLstmGates = 4;

}  // namespace

std::size_t lstm_workspace(const Lstm& shape, Bf16Unit unit) noexcept {
  return RecurrenceSizes(shape, kLstmGates).workspace(unit);
}

void lstm_forward(const Lstm& shape, const LstmForwardOperands& operands, std::span<float> workspace,
                  ThreadPool& threads, Bf16Unit unit) {
  const auto& [gates, recurrent, cells, hidden, places] = operands;
  const RecurrenceSizes size(shape, kLstmGates);
  if (size.sequences == 0) return;
  float* const z = gates.elements<float>().data();
  float* const c = cells.elements<float>().data();
  float* const h = hidden.elements<float>().data();
  const SharedFactor weights({recurrent.elements<float>().data(), size.gates}, size.hidden, size.gates,
                             workspace.first(size.weights(unit)), unit);
  const Beginnings beginnings(places, size.sequences, workspace.subspan(size.weights(unit), size.hidden));
  const std::size_t state = size.sequences * size.hidden;
  for (std::size_t t = 0; t < size.steps; ++t) {
    float* const step = z + t * size.sequences * size.gates;
    threads.split(size.gates, SharedFactor::kGranule, size.threshold(size.gates, SharedFactor::kGranule),
                  [&](std::size_t begin, std::size_t end) {
                    beginnings.for_each_run(t, [&](std::size_t first, std::size_t count) {
                      weights.multiply({count, end - begin, size.hidden},
                                       {h + t * state + first * size.hidden, size.hidden}, begin, Accumulate::yes,
                                       step + first * size.gates + begin, size.gates, size.order_of(t));
                    });
                  });
    threads.split(size.hidden, kUnitGranule, size.threshold(size.hidden, kUnitGranule),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t sequence = 0; sequence < size.sequences; ++sequence) {
                      const std::size_t before = t * state + sequence * size.hidden, after = before + state;
                      lstm_row({.gates = step + sequence * size.gates,
                                .cell_before = beginnings.before(t, sequence, c + before),
                                .cell = c + after,
                                .hidden = size.hidden,
                                .begin = begin,
                                .end = end},
                               h + after);
                    }
                  });
  }
}

void lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands, std::span<float> workspace,
                   ThreadPool& threads, Bf16Unit unit) {
  const auto& [gates, recurrent, cells, d_hidden, d_cell, gates_after, places] = operands;
  const RecurrenceSizes size(shape, kLstmGates);
  if (size.sequences == 0) return;
  float* const z = gates.elements<float>().data();
  float* const c = cells.elements<float>().data();
  float* const d_h = d_hidden.elements<float>().data();
  float* const d_c = d_cell.elements<float>().data();
  if (!gates_after.present()) std::fill_n(d_c, size.sequences * size.hidden, 0.0f);
  const SharedFactor weights({recurrent.elements<float>().data(), size.gates, true}, size.gates, size.hidden,
                             workspace.first(size.weights(unit)), unit);
  const Beginnings beginnings(places, size.sequences, workspace.subspan(size.weights(unit), size.hidden));
  const std::size_t state = size.sequences * size.hidden;
  const auto pass_on = [&](const float* step, float* d_before, std::size_t t) {
    threads.split(size.hidden, SharedFactor::kGranule, size.threshold(size.hidden, SharedFactor::kGranule),
                  [&](std::size_t begin, std::size_t end) {
                    beginnings.for_each_run(t, [&](std::size_t first, std::size_t count) {
                      weights.multiply({count, end - begin, size.gates}, {step + first * size.gates, size.gates}, begin,
                                       Accumulate::yes, d_before + first * size.hidden + begin, size.hidden,
                                       size.order_of(t));
                    });
                  });
  };
  if (gates_after.present()) pass_on(gates_after.elements<float>().data(), d_h + (size.steps - 1) * state, size.steps);
  for (std::size_t t = size.steps; t-- > 0;) {
    float* const step = z + t * size.sequences * size.gates;
    threads.split(size.hidden, kUnitGranule, size.threshold(size.hidden, kUnitGranule),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t sequence = 0; sequence < size.sequences; ++sequence) {
                      const std::size_t at = t * state + sequence * size.hidden;
                      lstm_row_back({.gates = step + sequence * size.gates,
                                     .cell_before = beginnings.before(t, sequence, c + at),
                                     .cell = c + at + state,
                                     .hidden = size.hidden,
                                     .begin = begin,
                                     .end = end},
                                    d_h + at, d_c + sequence * size.hidden);
                      if (!beginnings.begins(t, sequence)) continue;
                      std::fill_n(d_c + sequence * size.hidden + begin, end - begin, 0.0f);
                    }
                  });
    if (t > 0) pass_on(step, d_h + (t - 1) * state, t);
  }
}

}  // namespace lockstep::model::cpu
