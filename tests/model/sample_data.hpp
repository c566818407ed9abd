/// \file
/// Test data by formula: distinct elements, without generator state.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "model/backend.hpp"
#include "model/random.hpp"
#include "model/randomness.hpp"

namespace lockstep::model::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::tanh,
                                              Activation::sigmoid};
inline constexpr Function kFunctions[] = {
    Function::relu,         Function::leaky_relu, Function::elu,        Function::tanh,     Function::sigmoid,
    Function::silu,         Function::gelu,       Function::gelu_exact, Function::softplus, Function::log1p,
    Function::hard_sigmoid, Function::hard_swish, Function::scale};

/// Returns element `index` of the stream `name`, uniform in (-1, 1).
inline double sample(std::string_view name, std::size_t index) {
  const std::uint64_t stream = stream_of(name);
  const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(index), 0, static_cast<std::uint32_t>(stream),
                                          static_cast<std::uint32_t>(stream >> 32)},
                                         {20240229, 0});
  return 2 * open_uniform(words[0]) - 1;
}

/// Rounds to fp32, so that both backends start from equal numbers.
template <class T>
std::vector<T> samples(std::string_view name, std::int64_t count, double scale = 1) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(static_cast<float>(scale * sample(name, i)));
  }
  return values;
}

inline std::vector<std::int32_t> labels(std::int64_t count, std::int64_t classes) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>((sample("labels", i) + 1) / 2 * static_cast<double>(classes));
  }
  return values;
}

/// Independent labels: 1 or 0, about one third are 1.
inline std::vector<float> binary(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sample("there", i) > 1.0 / 3 ? 1.0f : 0.0f;
  return values;
}

/// Rows of probabilities; some of them are 0.
inline std::vector<float> probabilities(std::int64_t rows, std::int64_t classes) {
  std::vector<float> all = samples<float>("probabilities", rows * classes);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto own = std::span(all).subspan(static_cast<std::size_t>(row * classes), static_cast<std::size_t>(classes));
    float sum = 0;
    for (float& p : own) sum += p = p > 0 ? p : 0;
    if (sum == 0) own[0] = sum = 1;
    for (float& p : own) p /= sum;
  }
  return all;
}

/// Weights of `count` rows; some are 0.
inline std::vector<float> weights(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 5 == 3 ? 0.0f : static_cast<float>(1 + sample("weights", i));
  }
  return values;
}

/// Keys of `count` samples of one epoch, from sample `first` on.
inline std::vector<std::uint64_t> sample_keys(std::int64_t count, std::int64_t first = 0) {
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = sample_key(1, 2, first + static_cast<std::int64_t>(i));
  return keys;
}

inline std::vector<double> zeros(std::int64_t count) { return std::vector<double>(static_cast<std::size_t>(count)); }

/// A view of a vector as [rows, columns].
template <class T>
Tensor view(std::vector<T>& values, std::int64_t rows, std::int64_t columns) {
  return {values.data(), ElementTypeOf<T>::value, rows, columns};
}

}  // namespace lockstep::model::test
