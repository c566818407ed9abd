// Compares every rule over several steps with the formulas of update_rule.hpp, written here in float64.
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "model/formulas/gate.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/update_rule.hpp"
#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::samples;
using test::view;

/// State and formulas of one parameter. Clipping by norm is a given factor.
struct Scalar {
  double w = 0, v = 0, m = 0, s = 0, average = 0;

  void step(const OptimizerOptions& o, double rate, int t, double g, double factor, bool decayed) {
    g *= factor;
    if (o.clip_value > 0) g = std::min(std::max(g, -o.clip_value), o.clip_value);
    if (decayed) w -= rate * o.weight_decay * w;
    switch (o.kind) {
      case OptimizerKind::sgd:
        w -= rate * g;
        break;
      case OptimizerKind::momentum:
        v = o.momentum * v + g;
        w -= rate * v;
        break;
      case OptimizerKind::nesterov:
        v = o.momentum * v + g;
        w -= rate * (g + o.momentum * v);
        break;
      case OptimizerKind::adam:
      case OptimizerKind::adamw:
        m = o.beta1 * m + (1 - o.beta1) * g;
        s = o.beta2 * s + (1 - o.beta2) * g * g;
        w -= rate * (m / (1 - std::pow(o.beta1, t))) / (std::sqrt(s / (1 - std::pow(o.beta2, t))) + o.epsilon);
        break;
      case OptimizerKind::lars:
      case OptimizerKind::lamb:
        throw std::invalid_argument("rules with norms are no formula of one element: golden_test.cpp has them");
    }
    if (o.average_decay > 0) {
      const double d = std::min(o.average_decay, static_cast<double>(t) / (9 + t));
      average = d * average + (1 - d) * w;
    }
  }
};

class OptimizerFormula : public ::testing::TestWithParam<std::tuple<const char*, OptimizerKind, int>> {};

TEST_P(OptimizerFormula, MatchesFloat64OverSeveralSteps) {
  const auto& [backend_name, kind, variant] = GetParam();
  const auto backend = make_backend_or_reference(backend_name, {.threads = variant == 3 ? 2 : 1});
  OptimizerOptions options{.kind = kind};
  if (variant == 1) options.weight_decay = 0.1;
  if (variant == 2) {
    options.clip_norm = 2;
    options.clip_value = 0.02;
  }
  if (variant == 3) options.average_decay = 0.95;

  // Two slices with padding between them. The large one is split among threads.
  const std::vector<UpdateSlice> slices{{0, 100, false}, {128, 70000, true}};
  const std::int64_t count = 70144;
  std::vector<float> start = samples<float>("w", count);
  for (std::size_t i = 0; i < start.size(); ++i) {
    if (!(i < 100 || (i >= 128 && i < 70128))) start[i] = 0;
  }
  const auto size = size_of(backend->compute_type()) * start.size();
  std::vector<std::vector<double>> memory(5, std::vector<double>(size / sizeof(double) + 1));
  const auto arena = [&](std::size_t i) { return Tensor{memory[i].data(), backend->compute_type(), 1, count}; };
  backend->upload(start, arena(0));
  backend->upload(start, arena(4));
  const UpdateArenas arenas{arena(0), arena(1), arena(2), arena(3), options.average_decay > 0 ? arena(4) : Tensor{},
                            {},       {}};

  std::vector<Scalar> expected(start.size());
  for (std::size_t i = 0; i < start.size(); ++i) expected[i].w = expected[i].average = start[i];
  for (int t = 1; t <= 5; ++t) {
    auto g = samples<float>("gradient " + std::to_string(t), count, 0.1);
    for (std::size_t i = 0; i < g.size(); ++i) {
      if (start[i] == 0) g[i] = 0;
    }
    const double rate = 0.05 / t;
    double norm = 0;
    for (const float each : g) norm += static_cast<double>(each) * static_cast<double>(each);
    norm = std::sqrt(norm);
    backend->upload(g, arena(1));
    test::update(*backend, arenas, options.kind, update_rule(options, rate, t - 1), slices, norm * norm);
    const double factor = options.clip_norm > 0 && norm > options.clip_norm ? options.clip_norm / norm : 1;
    for (std::size_t i = 0; i < g.size(); ++i) expected[i].step(options, rate, t, g[i], factor, i >= 128);
  }
  std::vector<float> weights(start.size()), average(start.size());
  backend->download(arena(0), weights);
  backend->download(arena(4), average);
  for (std::size_t i = 0; i < start.size(); ++i) {
    ASSERT_NEAR(weights[i], expected[i].w, 3e-6) << i;
    if (options.average_decay > 0) {
      ASSERT_NEAR(average[i], expected[i].average, 3e-6) << i;
    }
    if (start[i] == 0) {
      ASSERT_EQ(weights[i], 0) << "padding " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OptimizerFormula,
                         ::testing::Combine(::testing::Values("cpu", "reference"),
                                            ::testing::Values(OptimizerKind::sgd, OptimizerKind::momentum,
                                                              OptimizerKind::nesterov, OptimizerKind::adam,
                                                              OptimizerKind::adamw),
                                            ::testing::Values(0, 1, 2, 3)));

TEST(UpdateRule, KeepsANanGradientVisible) {
  const auto cpu = make_backend("cpu");
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::nesterov, OptimizerKind::adam}) {
    std::vector<float> w(40, 1.0f), g(40, 0.1f), state1(40), state2(40);
    g[17] = std::nanf("");
    const std::vector<UpdateSlice> slices{{0, 40, true}};
    test::update(*cpu, {view(w, 1, 40), view(g, 1, 40), view(state1, 1, 40), view(state2, 1, 40), {}, {}, {}}, kind,
                 {.learning_rate = 0.1f, .clip_value = 1}, slices);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(w[i]), i == 17) << i;
  }
}

TEST(Optimizer, AverageRampIsTensorFlows) {
  EXPECT_DOUBLE_EQ(average_decay_at(0.999, 0), 0.1);
  EXPECT_DOUBLE_EQ(average_decay_at(0.999, 1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(average_decay_at(0.999, 90), 0.91);
  EXPECT_DOUBLE_EQ(average_decay_at(0.9, 80), 0.9);
  EXPECT_DOUBLE_EQ(average_decay_at(0.9, 1000000), 0.9);
}

TEST(Optimizer, NamesAndStates) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
    EXPECT_EQ(name_of(parse_optimizer(name)), name);
  }
  EXPECT_THROW(parse_optimizer("adma"), std::invalid_argument);
  EXPECT_EQ(state_count(OptimizerKind::sgd), 0);
  EXPECT_EQ(state_name(OptimizerKind::nesterov, 0), "velocity");
  EXPECT_EQ(state_name(OptimizerKind::adamw, 0), "first_moment");
  EXPECT_EQ(state_name(OptimizerKind::adam, 1), "second_moment");
  EXPECT_THROW(state_name(OptimizerKind::sgd, 0), std::invalid_argument);
  EXPECT_THROW(state_name(OptimizerKind::adam, 2), std::invalid_argument);
}

TEST(Optimizer, ClipsByNormOnlyAboveIt) {
  EXPECT_EQ(formulas::clip_factor(25, 5), 1);
  EXPECT_FLOAT_EQ(formulas::clip_factor(400, 5), 0.25f);
  EXPECT_EQ(formulas::clip_factor(400, 0), 1);
  EXPECT_EQ(update_rule({.clip_norm = 5}, 0.1, 0).clip_norm, 5);
}

TEST(Optimizer, AClosedGateLeavesEverythingAlone) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = make_backend_or_reference(name);
    const auto size = size_of(backend->master_type()) * 40 / sizeof(double);
    const std::vector<UpdateSlice> slices{{0, 40, true}};
    for (const auto& [squares, non_finite] :
         std::vector<std::pair<double, double>>{{1, 1}, {1, 3}, {1, nan}, {nan, 0}, {infinity, 0}, {1, 0}}) {
      std::vector<std::vector<double>> memory(5, std::vector<double>(size));
      const auto arena = [&](std::size_t i) { return Tensor{memory[i].data(), backend->master_type(), 1, 40}; };
      for (std::size_t i = 0; i < 5; ++i) backend->upload(samples<float>("arena " + std::to_string(i), 40), arena(i));
      const auto before = memory;
      test::update(*backend, {arena(0), arena(1), arena(2), arena(3), arena(4), {}, {}}, OptimizerKind::adam,
                   {.learning_rate = 0.1f, .average_decay = 0.5f}, slices, squares, non_finite);
      const bool open = non_finite == 0 && std::isfinite(squares);
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(memory[i] != before[i], open && i != 1) << name << " " << i;
    }
  }
}

TEST(Activation, Names) {
  for (const char* name : {"none", "relu", "tanh", "sigmoid"}) EXPECT_EQ(name_of(parse_activation(name)), name);
  EXPECT_THROW(parse_activation("gelu"), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model
