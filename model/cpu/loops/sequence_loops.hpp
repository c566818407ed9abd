/// \file
/// Passes over arrays for sequences, except matrix multiplications: fp32, for one thread on a part of the data. The
/// compiler vectorises them for several instruction sets. Sums run in explicit lanes, so their order is the same for
/// every instruction set. NaN and infinity are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/formulas/dropout.hpp"

namespace lockstep::model::cpu {

/// Input and numbers of a norm, with rows of `width`.
struct NormRows {
  std::size_t rows = 0, width = 0;
  const float* x = nullptr;
  const float* scale = nullptr;
  float* mean = nullptr;
  float* inverse = nullptr;
};
/// sum = x + residual; without a residual, both pointers are nullptr and x replaces sum. Writes mean, inverse and y =
/// scale * (sum - mean) * inverse + shift.
void layer_norm(const NormRows& norm, const float* residual, float* sum, const float* shift, float* y);
/// d_x = gradient through the norm (+ d_residual). d_scale and d_shift [width] += their sums over these rows.
void layer_norm_gradient(const NormRows& norm, const float* d_y, const float* d_residual, float* d_scale,
                         float* d_shift, float* d_x);

/// x += bias (may be empty), y = gelu(x); rows of `columns`.
void gelu(std::span<float> x, std::size_t columns, std::span<const float> bias, std::span<float> y);
/// d_y becomes the gradient before the gelu, in columns [begin, end) of all rows. d_bias (may be empty) += its column
/// sums.
void gelu_gradient(std::span<const float> x, std::span<float> d_y, std::size_t columns, std::size_t begin,
                   std::size_t end, std::span<float> d_bias);

/// out[i] = the factor of element first + i of the sample with this key.
void dropout_factors(const formulas::DropoutNumbers& numbers, std::uint64_t key, std::uint64_t first,
                     std::span<float> out);
/// y[i] = x[i] * the factor of element first + i; y may be x.
void drop(const formulas::DropoutNumbers& numbers, std::uint64_t key, std::uint64_t first, std::span<const float> x,
          std::span<float> y);

/// scores[0, keys) become exp(scale * (score - greatest)) / total; the rest of the row becomes zero. Returns the log of
/// the sum of exp(scale * score); 0 without keys.
float softmax_row(std::span<float> scores, std::size_t keys, float scale);
/// scores[0, keys) become exp(scale * score - log_sum); the rest of the row becomes zero.
void probability_row(std::span<float> scores, std::size_t keys, float scale, float log_sum);
/// d_p[j] becomes p[j] * (factors[j] * d_p[j] - product) * scale, the gradient of the scores. factors: of the dropout.
void score_gradient_row(std::span<const float> p, const float* factors, float product, float scale,
                        std::span<float> d_p);
/// x[i] *= factors[i]
void multiply_each(std::span<float> x, const float* factors);
/// Sum of x[i] * y[i].
float dot(std::span<const float> x, std::span<const float> y);

/// One sequence in one step of an LSTM, for units [begin, end). Gates are activated in place.
struct LstmRow {
  float* gates = nullptr;  ///< [4 hidden]
  const float* cell_before = nullptr;
  float* cell = nullptr;
  std::size_t hidden = 0, begin = 0, end = 0;
};
void lstm_row(const LstmRow& row, float* h);
/// Gates become the gradients of their sums. d_cell is the gradient of the cell after the step, and becomes that of the
/// cell before it.
void lstm_row_back(const LstmRow& row, const float* d_hidden, float* d_cell);

/// The same for a GRU (the formulas of Gru in sequence_operations.hpp). products: h(t-1) R.
struct GruRow {
  float* gates = nullptr;     ///< [3 hidden]
  float* products = nullptr;  ///< [3 hidden]
  const float* hidden_before = nullptr;
  std::size_t hidden = 0, begin = 0, end = 0;
};
/// Adds the bias to the third part of the products.
void gru_row(const GruRow& row, const float* bias, float* h);
/// Gates and products become the gradients of their sums. d_before (nullptr for the first step) += the gradient of the
/// previous state, without the part through the products.
void gru_row_back(const GruRow& row, const float* d_hidden, float* d_before);

}  // namespace lockstep::model::cpu
