// Linear maps on the CPU: bias, activation and their gradients are computed on the blocks of products, and products
// share a factor. The bits must be those of separate products and passes.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu_against_reference.hpp"
#include "model/backend.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/gemm.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using Floats = std::vector<float>;

struct LinearExtents {
  std::int64_t rows, inputs, outputs;
};
std::string name_of(const LinearExtents& extents) {
  return fmt::format("{} x {} -> {}", extents.rows, extents.inputs, extents.outputs);
}

/// Extents with several blocks of rows, of columns and of the inner dimension, and extents smaller than a panel, or
/// thin.
constexpr LinearExtents kLinearExtents[] = {{1, 1, 1},       {5, 7, 16},     {33, 31, 17},   {64, 65, 33},
                                            {20, 300, 40},   {130, 40, 300}, {600, 33, 10},  {530, 70, 20},
                                            {290, 34, 1024}, {40, 20, 1030}, {70, 800, 50},  {1100, 33, 40},
                                            {33, 1030, 70},  {780, 3, 1060}, {20, 200, 1060}};

struct LinearOperands {
  explicit LinearOperands(const LinearExtents& extents)
      : size(extents),
        x(test::samples<float>("x", size.rows * size.inputs)),
        w(test::samples<float>("w", size.inputs * size.outputs)),
        bias(test::samples<float>("bias", size.outputs)),
        y(test::samples<float>("stale", size.rows * size.outputs)),
        z(y),
        d_y(test::samples<float>("d_y", size.rows * size.outputs)),
        d_w(test::samples<float>("d_w", size.inputs * size.outputs)),
        d_bias(test::samples<float>("d_bias", size.outputs)),
        d_x(test::samples<float>("stale d_x", size.rows * size.inputs)),
        before(test::samples<float>("before", size.rows * size.inputs)),
        d_before(test::samples<float>("d_before", size.inputs)) {}
  Tensor of_inputs(Floats& values) const { return test::view(values, size.rows, size.inputs); }
  Tensor of_outputs(Floats& values) const { return test::view(values, size.rows, size.outputs); }
  Tensor of_weights(Floats& values) const { return test::view(values, size.inputs, size.outputs); }
  auto results() const { return std::tie(y, z, d_y, d_w, d_bias, d_x, d_before); }

  LinearExtents size;
  Floats x, w, bias, y, z, d_y, d_w, d_bias, d_x;
  Floats before, d_before;  ///< input of the GELU whose output is x, and sums of its gradient
};

struct LinearCase {
  Activation activation;
  bool with_bias, with_d_w, with_d_x;
  Accumulate accumulate;
};
constexpr LinearCase kLinearCases[] = {
    {Activation::none, true, true, true, Accumulate::no},   {Activation::relu, true, true, true, Accumulate::yes},
    {Activation::tanh, false, true, false, Accumulate::no}, {Activation::sigmoid, true, false, true, Accumulate::yes},
    {Activation::relu, true, false, false, Accumulate::no}, {Activation::none, false, true, true, Accumulate::yes}};

class CpuLinear : public ::testing::TestWithParam<Bf16Unit> {
 protected:
  LinearBackwardOperands operands(LinearOperands& of, const LinearCase& how) const {
    return {.x = of.of_inputs(of.x),
            .w = of.of_weights(of.w),
            .y = of.of_outputs(of.y),
            .d_y = of.of_outputs(of.d_y),
            .d_w = how.with_d_w ? of.of_weights(of.d_w) : Tensor{},
            .d_bias = how.with_bias ? test::view(of.d_bias, 1, of.size.outputs) : Tensor{},
            .d_x = how.with_d_x ? of.of_inputs(of.d_x) : Tensor{}};
  }
  /// Computes the gradients by separate passes.
  void backward_in_passes(LinearOperands& of, const LinearCase& how) {
    const auto columns = static_cast<std::size_t>(of.size.outputs);
    std::span<float> sums = how.with_bias ? std::span(of.d_bias) : std::span<float>();
    if (how.accumulate == Accumulate::no) std::ranges::fill(sums, 0.0f);
    cpu::activation_gradient(how.activation, of.y, of.d_y, columns, 0, columns, sums);
    const Tensor x = of.of_inputs(of.x), w = of.of_weights(of.w), d_y = of.of_outputs(of.d_y);
    if (how.with_d_w) cpu::gemm({x, true}, {d_y}, how.accumulate, of.of_weights(of.d_w), one_, GetParam());
    if (how.with_d_x) cpu::gemm({d_y}, {w, true}, Accumulate::no, of.of_inputs(of.d_x), one_, GetParam());
  }
  void product(LinearOperands& of, Floats& y) {
    cpu::gemm({of.of_inputs(of.x)}, {of.of_weights(of.w)}, Accumulate::no, of.of_outputs(y), one_, GetParam());
  }
  /// Calls test(backend, threads).
  template <class Test>
  void with_threads(const Test& test) {
    for (const int threads : {1, 2, 3}) {
      const auto backend = make_backend("cpu", {.threads = threads, .bf16_unit = GetParam()});
      test(*backend, fmt::format("{} threads", threads));
    }
  }

  cpu::ThreadPool one_{1};
};

TEST_P(CpuLinear, ForwardHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kLinearExtents) {
    const LinearOperands fresh(extents);
    for (const LinearCase& how : kLinearCases) {
      LinearOperands expected = fresh;
      product(expected, expected.y);
      cpu::add_bias_and_activate(expected.y, static_cast<std::size_t>(extents.outputs),
                                 how.with_bias ? std::span(expected.bias) : std::span<float>(), how.activation);
      with_threads([&](Backend& backend, const std::string& threads) {
        LinearOperands got = fresh;
        backend.linear_forward(got.of_inputs(got.x), got.of_weights(got.w),
                               how.with_bias ? test::view(got.bias, 1, extents.outputs) : Tensor{}, how.activation,
                               got.of_outputs(got.y));
        EXPECT_EQ(got.y, expected.y) << name_of(extents) << " " << name_of(how.activation) << ", " << threads;
      });
    }
  }
}

TEST_P(CpuLinear, BackwardHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kLinearExtents) {
    const LinearOperands fresh(extents);
    for (const LinearCase& how : kLinearCases) {
      LinearOperands expected = fresh;
      backward_in_passes(expected, how);
      with_threads([&](Backend& backend, const std::string& threads) {
        LinearOperands got = fresh;
        backend.linear_backward(operands(got, how), how.activation, how.accumulate);
        EXPECT_EQ(got.results(), expected.results())
            << name_of(extents) << " " << name_of(how.activation) << ", " << threads;
      });
    }
  }
}

TEST_P(CpuLinear, GeluHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kLinearExtents) {
    const LinearOperands fresh(extents);
    for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
      const LinearCase how{Activation::none, true, true, true, accumulate};
      const auto inputs = static_cast<std::size_t>(extents.inputs), outputs = static_cast<std::size_t>(extents.outputs);
      LinearOperands expected = fresh;
      product(expected, expected.z);
      cpu::gelu(expected.z, outputs, expected.bias, expected.y);
      backward_in_passes(expected, how);
      if (accumulate == Accumulate::no) std::ranges::fill(expected.d_before, 0.0f);
      cpu::gelu_gradient(expected.before, expected.d_x, inputs, 0, inputs, expected.d_before);
      with_threads([&](Backend& backend, const std::string& threads) {
        LinearOperands got = fresh;
        backend.linear_gelu_forward(got.of_inputs(got.x), got.of_weights(got.w),
                                    test::view(got.bias, 1, extents.outputs), got.of_outputs(got.z),
                                    got.of_outputs(got.y));
        backend.linear_backward_through_gelu(operands(got, how), got.of_inputs(got.before), accumulate,
                                             test::view(got.d_before, 1, extents.inputs));
        EXPECT_EQ(got.results(), expected.results()) << name_of(extents) << ", " << threads;
      });
    }
  }
}

// Each value and each gradient may be stored in bf16.
struct StoredCase {
  bool x, y, d_x;
};
constexpr std::pair<LinearCase, StoredCase> kStoredCases[] = {
    {kLinearCases[0], {true, true, true}},  {kLinearCases[1], {true, true, true}},
    {kLinearCases[2], {false, true, true}}, {kLinearCases[3], {true, true, false}},
    {kLinearCases[4], {true, false, true}}, {kLinearCases[5], {false, false, true}}};
constexpr LinearExtents kStoredExtents[] = {{5, 7, 16},    {33, 31, 17},   {600, 33, 10}, {64, 65, 33},
                                            {530, 70, 20}, {40, 20, 1030}, {70, 800, 50}, {290, 34, 1024}};

Floats rounded(const Floats& values) {
  Floats result(values.size());
  cpu::round_to_bf16(values, std::span(result));
  return result;
}

/// A value in fp32 or bf16.
class Stored {
 public:
  Stored(const Floats& values, std::int64_t rows, bool in_bf16)
      : floats_(values), halves_(values.size()), rows_(rows), in_bf16_(in_bf16) {
    cpu::round_to_bf16(values, std::span(halves_));
  }
  Tensor tensor() {
    const auto columns = static_cast<std::int64_t>(floats_.size()) / rows_;
    if (!in_bf16_) return test::view(floats_, rows_, columns);
    return {halves_.data(), ElementType::bfloat16, rows_, columns};
  }
  Floats values() const {
    Floats result = floats_;
    if (in_bf16_) cpu::widen(halves_, result);
    return result;
  }

 private:
  Floats floats_;
  std::vector<cpu::Bf16> halves_;
  std::int64_t rows_;
  bool in_bf16_;
};

class CpuLinearInBf16 : public CpuLinear {
 protected:
  static bool is_thin(const LinearExtents& extents) { return extents.outputs < 16; }
  /// Expects the same bits. For thin maps, which are computed in fp32 in blocks of rows, expects nearly the same
  /// values.
  static void expect_same(const Floats& got, const Floats& expected, const LinearExtents& extents,
                          const std::string& what) {
    if (!is_thin(extents)) {
      EXPECT_EQ(got, expected) << what;
      return;
    }
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 0x1p-7f * std::max(1.0f, std::abs(expected[i]))) << what << ", " << i;
    }
  }
  /// Computes the gradients of stored operands by separate passes.
  void backward_in_passes(LinearOperands& of, const LinearCase& how, const StoredCase& in) {
    const auto columns = static_cast<std::size_t>(of.size.outputs);
    if (in.x) of.x = rounded(of.x);
    if (in.y) of.y = rounded(of.y), of.d_y = rounded(of.d_y);
    cpu::activation_gradient(how.activation, of.y, of.d_y, columns, 0, columns, {});
    if (in.y && !is_thin(of.size)) of.d_y = rounded(of.d_y);
    LinearCase products = how;
    products.activation = Activation::none;
    CpuLinear::backward_in_passes(of, products);
  }
};

TEST_P(CpuLinearInBf16, ForwardHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kStoredExtents) {
    const LinearOperands fresh(extents);
    for (const auto& [how, in] : kStoredCases) {
      LinearOperands expected = fresh;
      if (in.x) expected.x = rounded(expected.x);
      product(expected, expected.y);
      cpu::add_bias_and_activate(expected.y, static_cast<std::size_t>(extents.outputs),
                                 how.with_bias ? std::span(expected.bias) : std::span<float>(), how.activation);
      if (in.y) expected.y = rounded(expected.y);
      with_threads([&](Backend& backend, const std::string& threads) {
        LinearOperands got = fresh;
        Stored x(got.x, extents.rows, in.x), y(got.y, extents.rows, in.y);
        backend.linear_forward(x.tensor(), got.of_weights(got.w),
                               how.with_bias ? test::view(got.bias, 1, extents.outputs) : Tensor{}, how.activation,
                               y.tensor());
        expect_same(y.values(), expected.y, extents, name_of(extents) + ", " + threads);
      });
    }
  }
}

TEST_P(CpuLinearInBf16, BackwardHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kStoredExtents) {
    const LinearOperands fresh(extents);
    for (const auto& [how, in] : kStoredCases) {
      LinearOperands expected = fresh;
      backward_in_passes(expected, how, in);
      if (in.d_x && how.with_d_x) expected.d_x = rounded(expected.d_x);
      with_threads([&](Backend& backend, const std::string& threads) {
        LinearOperands got = fresh;
        Stored x(got.x, extents.rows, in.x), y(got.y, extents.rows, in.y), d_y(got.d_y, extents.rows, in.y),
            d_x(got.d_x, extents.rows, in.d_x);
        LinearBackwardOperands all = operands(got, how);
        all.x = x.tensor(), all.y = y.tensor(), all.d_y = d_y.tensor();
        if (how.with_d_x) all.d_x = d_x.tensor();
        backend.linear_backward(all, how.activation, how.accumulate);
        const std::string what = fmt::format("{} {}, {}", name_of(extents), name_of(how.activation), threads);
        expect_same(d_y.values(), expected.d_y, extents, what);
        expect_same(got.d_w, expected.d_w, extents, what);
        expect_same(got.d_bias, expected.d_bias, extents, what);
        if (how.with_d_x) expect_same(d_x.values(), expected.d_x, extents, what);
      });
    }
  }
}

TEST_P(CpuLinearInBf16, GeluHasTheBitsOfItsPasses) {
  for (const LinearExtents& extents : kStoredExtents) {
    const LinearOperands fresh(extents);
    for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
      for (const StoredCase& in : {StoredCase{true, true, true}, StoredCase{true, false, true}}) {
        const LinearCase how{Activation::none, true, true, true, accumulate};
        const auto inputs = static_cast<std::size_t>(extents.inputs),
                   outputs = static_cast<std::size_t>(extents.outputs);
        LinearOperands expected = fresh;
        expected.x = rounded(expected.x);
        product(expected, expected.z);
        cpu::gelu(expected.z, outputs, expected.bias, expected.y);
        expected.z = rounded(expected.z);
        const Floats active = rounded(expected.y);
        backward_in_passes(expected, how, in);
        expected.before = rounded(expected.before);
        if (accumulate == Accumulate::no) std::ranges::fill(expected.d_before, 0.0f);
        cpu::gelu_gradient(expected.before, expected.d_x, inputs, 0, inputs, {});
        if (!is_thin(extents)) expected.d_x = rounded(expected.d_x);
        cpu::add_column_sums(expected.d_x, inputs, 0, inputs, expected.d_before);
        expected.d_x = rounded(expected.d_x);
        with_threads([&](Backend& backend, const std::string& threads) {
          LinearOperands got = fresh;
          Stored x(got.x, extents.rows, true), y(got.y, extents.rows, true), z(got.z, extents.rows, true),
              d_y(got.d_y, extents.rows, in.y), d_x(got.d_x, extents.rows, true),
              before(got.before, extents.rows, true);
          backend.linear_gelu_forward(x.tensor(), got.of_weights(got.w), test::view(got.bias, 1, extents.outputs),
                                      z.tensor(), y.tensor());
          LinearBackwardOperands all = operands(got, how);
          all.x = x.tensor(), all.y = {}, all.d_y = d_y.tensor(), all.d_x = d_x.tensor();
          backend.linear_backward_through_gelu(all, before.tensor(), accumulate,
                                               test::view(got.d_before, 1, extents.inputs));
          const std::string what = name_of(extents) + ", " + threads;
          expect_same(z.values(), expected.z, extents, what);
          expect_same(y.values(), active, extents, what);
          expect_same(got.d_w, expected.d_w, extents, what);
          expect_same(d_x.values(), expected.d_x, extents, what);
          expect_same(got.d_before, expected.d_before, extents, what);
        });
      }
    }
  }
}

std::vector<Bf16Unit> all_units() {
  std::vector<Bf16Unit> all = test::bf16_units();
  all.push_back(Bf16Unit::none);
  return all;
}

constexpr auto kNameOfUnit = [](const ::testing::TestParamInfo<Bf16Unit>& unit) {
  std::string name(name_of(unit.param));
  std::ranges::replace(name, '-', '_');
  return name;
};

INSTANTIATE_TEST_SUITE_P(Units, CpuLinear, ::testing::ValuesIn(all_units()), kNameOfUnit);
INSTANTIATE_TEST_SUITE_P(Units, CpuLinearInBf16, ::testing::ValuesIn(test::bf16_units()), kNameOfUnit);

}  // namespace
}  // namespace lockstep::model
