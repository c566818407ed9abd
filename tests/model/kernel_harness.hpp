/// \file
/// Common parts of tests of CUDA kernels on the host: tensors between guards, calls with several orders of threads,
/// comparison with float64.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/sample_data.hpp"
#include "support/cuda_on_cpu.hpp"
#include "support/guarded_tensor.hpp"

namespace lockstep::model::cuda::test {

using lockstep::test::GuardedTensor;
using lockstep::test::order_threads;
using model::test::sample;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Returns the dropout key of a sample.
inline std::uint64_t key_of(std::int64_t sample) {
  return 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(sample + 1);
}
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr std::array kTypes{ElementType::float32, ElementType::bfloat16};

inline double tolerance(ElementType type) { return type == ElementType::bfloat16 ? 1e-2 : 1e-5; }

/// Returns rows and columns on both sides of the kernels' thresholds: packs, warps, tiles, parts, several blocks.
inline std::vector<std::pair<std::int64_t, std::int64_t>> shapes() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const std::int64_t rows : {0, 1, 3, 33, 257}) {
    for (const std::int64_t columns : {1, 3, 8, 10, 32, 33, 128, 257}) all.emplace_back(rows, columns);
  }
  for (const auto& shape : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {5000, 1}, {5003, 10}, {1000, 16}, {700, 129}, {40, 1032}, {9, 4104}, {300, 520}}) {
    all.push_back(shape);
  }
  return all;
}

/// Sets the elements from the first on.
template <class Values>
void set_all(GuardedTensor& tensor, const Values& values) {
  std::size_t i = 0;
  for (const auto value : values) tensor.set(i++, static_cast<double>(value));
}

/// The tensors of one call by name, so that a failure can name the wrong one.
class Tensors {
 public:
  explicit Tensors(std::size_t shift) : shift_(shift) {}
  GuardedTensor& add(const std::string& name, ElementType type, std::int64_t rows, std::int64_t columns) {
    return *tensors_.emplace(name, std::make_unique<GuardedTensor>(type, rows, columns, shift_)).first->second;
  }
  GuardedTensor& add_filled(const std::string& name, ElementType type, std::int64_t rows, std::int64_t columns,
                            double scale = 1) {
    GuardedTensor& tensor = add(name, type, rows, columns);
    for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, scale * sample(name, i));
    return tensor;
  }
  Scratch scratch(std::int64_t most_columns) {
    const auto bytes = scratch_bytes(most_columns);
    const GuardedTensor& memory =
        *tensors_
             .emplace("scratch", std::make_unique<GuardedTensor>(ElementType::float64, 1,
                                                                 static_cast<std::int64_t>(bytes / sizeof(double) + 1)))
             .first->second;
    return {memory.tensor().data, bytes};
  }
  GuardedTensor& operator[](const std::string& name) { return *tensors_.at(name); }
  std::map<std::string, std::vector<double>> values() const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, tensor] : tensors_) all[name] = tensor->values();
    return all;
  }
  void expect_guards() const {
    for (const auto& [name, tensor] : tensors_) EXPECT_TRUE(tensor->guards_are_intact()) << name;
  }
  std::string bits() const {
    std::string all;
    for (const auto& [name, tensor] : tensors_) {
      if (name == "scratch") continue;
      const auto bytes = tensor->bytes();
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }

 private:
  std::size_t shift_;
  std::map<std::string, std::unique_ptr<GuardedTensor>> tensors_;
};

/// Calls `run` on fresh tensors with several orders of threads. Requires intact guards, and the same bits from each
/// order. `check` gets the tensors of one order. `aligned_bits`: shifted tensors must also give these bits, because all
/// sums keep their order.
inline void in_every_order(std::size_t shift, const std::function<void(Tensors&)>& run,
                           const std::function<void(Tensors&)>& check, std::size_t orders = 3) {
  std::string first;
  constexpr std::array kOrders{0u, 1u, 7u};
  for (const std::uint32_t seed : std::span(kOrders).first(orders)) {
    Tensors tensors(shift);
    order_threads(seed);
    run(tensors);
    order_threads(0);
    tensors.expect_guards();
    if (seed == 0) {
      first = tensors.bits();
      check(tensors);
    } else {
      EXPECT_TRUE(tensors.bits() == first) << "order " << seed << " gives other bits";
    }
  }
}

/// Requires |got - expected| <= tolerance * |expected| + floor, in the Euclidean norm.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                         const std::string& what, double floor = 1e-30) {
  ASSERT_EQ(got.size(), expected.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + floor) << what;
}

inline std::string shape_name(const char* what, ElementType type, std::int64_t rows, std::int64_t columns,
                              std::size_t shift) {
  return fmt::format("{} {} [{}, {}] shifted by {}", what, name_of(type), rows, columns, shift);
}

}  // namespace lockstep::model::cuda::test
