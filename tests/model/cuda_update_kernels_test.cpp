// Compares kernels of the update on the host with loops in float64.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/update_chunks.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/kernel_harness.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

struct UpdateCase {
  OptimizerKind kind = OptimizerKind::sgd;
  bool averaging = false, compute_copy = false;
  UpdateRule rule;
  double non_finite = 0, squares = 4;
};

constexpr std::array kKinds{OptimizerKind::sgd,   OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam,
                            OptimizerKind::adamw, OptimizerKind::lars,     OptimizerKind::lamb};
constexpr std::int64_t kArena = 13200;
/// Slices with gaps between them; one starts at an odd element, one is empty, the last are statistics.
const std::vector<UpdateSlice> kSlices{
    {0, 1, true},     {64, 9001, true},    {9088, 3, false},          {9152, 1030, false},
    {10192, 0, true}, {10243, 2050, true}, {12352, 300, false, true}, {12801, 17, false, true}};

/// Slices in the form that kernels read, with memory for norms.
class Chunks {
 public:
  explicit Chunks(const std::vector<UpdateSlice>& slices)
      : chunks_(cut_into_chunks(slices)),
        by_slice_(chunks_by_slice(chunks_, slices.size())),
        parts_(ElementType::float64, 1, static_cast<std::int64_t>(2 * chunks_.size())),
        ratios_(ElementType::float32, 1, static_cast<std::int64_t>(slices.size())) {}
  UpdateChunks view() const {
    return {chunks_.data(),
            static_cast<std::uint32_t>(chunks_.size()),
            by_slice_.data(),
            static_cast<std::uint32_t>(by_slice_.size()),
            static_cast<double*>(parts_.tensor().data),
            static_cast<float*>(ratios_.tensor().data)};
  }
  const std::vector<UpdateChunk>& all() const { return chunks_; }
  void expect_guards() const {
    EXPECT_TRUE(parts_.guards_are_intact());
    EXPECT_TRUE(ratios_.guards_are_intact());
  }

 private:
  std::vector<UpdateChunk> chunks_;
  std::vector<ChunksOfSlice> by_slice_;
  GuardedTensor parts_, ratios_;
};

bool has_state1(OptimizerKind kind) { return kind != OptimizerKind::sgd; }
bool has_state2(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lamb;
}
bool has_norms(OptimizerKind kind) { return kind == OptimizerKind::lars || kind == OptimizerKind::lamb; }

void run_update(Tensors& t, const UpdateCase& c, const std::vector<UpdateSlice>& slices) {
  const auto arena = [&](const char* name) { return t.add_filled(name, ElementType::float32, 1, kArena).tensor(); };
  UpdateArenas arenas;
  arenas.parameters = arena("parameters");
  arenas.gradients = arena("gradients");
  arenas.state1 = arena("state1");
  GuardedTensor& state2 = t.add("state2", ElementType::float32, 1, kArena);
  for (std::size_t i = 0; i < state2.count(); ++i) state2.set(i, std::abs(sample("state2", i)));
  arenas.state2 = state2.tensor();
  arenas.average = arena("average");
  const GuardedTensor& compute_copy = t.add("compute_copy", ElementType::bfloat16, 1, kArena);
  const GuardedTensor& norms = t.add("norms", ElementType::float64, 1, static_cast<std::int64_t>(2 * kSlices.size()));
  // Arenas that a rule does not use are absent.
  if (c.compute_copy) arenas.compute_copy = compute_copy.tensor();
  if (has_norms(c.kind)) arenas.norms = norms.tensor();
  if (!has_state1(c.kind)) arenas.state1 = {};
  if (!has_state2(c.kind)) arenas.state2 = {};
  if (!c.averaging) arenas.average = {};
  UpdateRule rule = c.rule;
  double non_finite = c.non_finite, squares = c.squares;
  const Chunks chunks(slices);
  update(nullptr, arenas, c.kind, c.averaging ? Averaging::yes : Averaging::no,
         {&rule, ElementType::uint8, 1, sizeof rule}, chunks.view(),
         {{&non_finite, ElementType::float64, 1, 1}, {&squares, ElementType::float64, 1, 1}});
  chunks.expect_guards();
}

/// Returns the initial values of the arenas that run_update() fills, in float64.
double before(const char* name, std::size_t i) {
  const auto value = static_cast<double>(static_cast<float>(sample(name, i)));
  return std::string_view(name) == "state2" ? std::abs(value) : value;
}

/// The arenas in float64.
struct Exact {
  std::vector<double> w, g, s1, s2, average, norms;
  Exact() : norms(2 * kSlices.size()) {
    for (std::size_t i = 0; i < kArena; ++i) {
      w.push_back(before("parameters", i));
      g.push_back(before("gradients", i));
      s1.push_back(before("state1", i));
      s2.push_back(before("state2", i));
      average.push_back(before("average", i));
    }
  }
};

/// The formulas of update_rule.hpp, literally.
void update_slice(Exact& at, const UpdateCase& c, std::size_t number) {
  const UpdateSlice& slice = kSlices[number];
  const UpdateRule& r = c.rule;
  const double norm = std::sqrt(c.squares);
  const double factor = r.clip_norm > 0 && norm > r.clip_norm ? r.clip_norm / norm : 1;
  const double rate = r.learning_rate, mu = r.momentum, beta1 = r.beta1, beta2 = r.beta2;
  const double decay = slice.decayed ? double{r.weight_decay} : 0;
  const std::size_t end = slice.offset + slice.count;
  std::vector<double> step(end);
  double w_squares = 0, step_squares = 0;
  for (std::size_t i = slice.offset; i < end; ++i) {
    double& g = at.g[i];
    const double seen = g;
    double clipped = g * factor;
    if (r.clip_value > 0) clipped = std::clamp(clipped, -double{r.clip_value}, double{r.clip_value});
    if (slice.statistic) {
      at.w[i] = double{r.statistics_decay} * at.w[i] + (1 - double{r.statistics_decay}) * seen;
      continue;
    }
    if (has_state2(c.kind)) {
      at.s1[i] = beta1 * at.s1[i] + (1 - beta1) * clipped;
      at.s2[i] = beta2 * at.s2[i] + (1 - beta2) * clipped * clipped;
      step[i] = at.s1[i] / double{r.bias_correction1} /
                (std::sqrt(at.s2[i] / double{r.bias_correction2}) + double{r.epsilon});
      if (c.kind == OptimizerKind::lamb) g = step[i] += decay * at.w[i];
    } else {
      step[i] = clipped;
    }
    w_squares += at.w[i] * at.w[i];
    step_squares += step[i] * step[i];
  }
  if (slice.statistic) {
    if (c.averaging) std::copy(at.w.begin() + slice.offset, at.w.begin() + end, at.average.begin() + slice.offset);
    return;
  }
  if (slice.decayed) {
    at.norms[2 * number] = w_squares;
    at.norms[2 * number + 1] = step_squares;
  }
  double ratio = 1;
  if (slice.decayed && w_squares > 0 && step_squares > 0) {
    const double of_w = std::sqrt(w_squares), of_step = std::sqrt(step_squares);
    ratio = c.kind == OptimizerKind::lamb ? of_w / of_step : double{r.trust} * of_w / (of_step + decay * of_w);
  }
  for (std::size_t i = slice.offset; i < end; ++i) {
    double& w = at.w[i];
    double& v = at.s1[i];
    if (!has_norms(c.kind)) w -= rate * decay * w;
    switch (c.kind) {
      case OptimizerKind::sgd:
      case OptimizerKind::adam:
      case OptimizerKind::adamw:
        w -= rate * step[i];
        break;
      case OptimizerKind::momentum:
      case OptimizerKind::nesterov:
        v = mu * v + step[i];
        w -= rate * (c.kind == OptimizerKind::nesterov ? step[i] + mu * v : v);
        break;
      case OptimizerKind::lars:
        v = mu * v + ratio * rate * (step[i] + decay * w);
        w -= v;
        break;
      case OptimizerKind::lamb:
        w -= rate * ratio * step[i];
        break;
    }
    if (c.averaging) at.average[i] = double{r.average_decay} * at.average[i] + (1 - double{r.average_decay}) * w;
  }
}

void check_update(Tensors& t, const UpdateCase& c, const std::string& what) {
  Exact exact;
  std::vector<bool> covered(kArena);
  for (std::size_t number = 0; number < kSlices.size(); ++number) {
    update_slice(exact, c, number);
    std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(kSlices[number].offset), kSlices[number].count, true);
  }
  expect_close(t["parameters"].values(), exact.w, 1e-6, what + " parameters");
  expect_close(t["state1"].values(), exact.s1, 1e-6, what + " state1");
  expect_close(t["state2"].values(), exact.s2, 1e-6, what + " state2");
  expect_close(t["average"].values(), exact.average, 1e-6, what + " average");
  expect_close(t["gradients"].values(), exact.g, c.kind == OptimizerKind::lamb ? 1e-6 : 0, what + " gradients");
  for (std::size_t i = 0; i < exact.norms.size(); ++i) {
    if (has_norms(c.kind)) {
      ASSERT_NEAR(t["norms"].get(i), exact.norms[i], 1e-6 * exact.norms[i]) << what << " norm " << i;
    } else {
      ASSERT_TRUE(std::isnan(t["norms"].get(i))) << what;
    }
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    // Small slices vanish in the norm of the arena.
    ASSERT_NEAR(t["parameters"].get(i), exact.w[i], 1e-5 * (std::abs(exact.w[i]) + 0.1)) << what << " element " << i;
    if (covered[i] && c.compute_copy) {
      ASSERT_EQ(t["compute_copy"].get(i), static_cast<double>(formulas::from_bfloat16_bits(
                                              formulas::bfloat16_bits(static_cast<float>(t["parameters"].get(i))))))
          << what << i;
    } else {
      ASSERT_TRUE(std::isnan(t["compute_copy"].get(i))) << what << i;
    }
    if (!covered[i]) {
      ASSERT_EQ(t["parameters"].get(i), before("parameters", i)) << what << i;
      ASSERT_EQ(t["average"].get(i), before("average", i)) << what << i;
    }
  }
}

UpdateRule some_rule(bool averaging) {
  UpdateRule rule;
  rule.learning_rate = 0.05f;
  rule.bias_correction1 = 0.19f;
  rule.bias_correction2 = 0.002f;
  rule.average_decay = averaging ? 0.75f : 0;
  rule.trust = 0.3f;
  rule.statistics_decay = 0.875f;
  return rule;
}

TEST(Update, MatchesFloat64) {
  for (const OptimizerKind kind : kKinds) {
    for (const bool averaging : {false, true}) {
      for (const bool compute_copy : {false, true}) {
        for (const int clip : {0, 1, 2, 3}) {
          for (const std::size_t shift : {0, 1}) {
            UpdateCase c{
                .kind = kind, .averaging = averaging, .compute_copy = compute_copy, .rule = some_rule(averaging)};
            c.rule.weight_decay = clip % 2 == 0 ? 0.1f : 0;
            if (clip == 1) c.rule.clip_norm = 0.5;
            if (clip == 2) c.rule.clip_value = 0.2f;
            if (clip == 3) c.rule.clip_norm = 2.0;  // the norm itself: not clipped
            const std::string what = fmt::format("kind {} average {} compute_copy {} clip {} shift {}",
                                                 static_cast<int>(kind), averaging, compute_copy, clip, shift);
            in_every_order(
                shift, [&](Tensors& t) { run_update(t, c, kSlices); }, [&](Tensors& t) { check_update(t, c, what); });
          }
        }
      }
    }
  }
}

TEST(Update, WritesNothingWhereTheGateIsClosed) {
  for (const OptimizerKind kind : kKinds) {
    for (const auto& [non_finite, squares] : {std::pair{1.0, 4.0}, std::pair{kNan, 4.0}, std::pair{0.0, kNan},
                                              std::pair{0.0, kInfinity}, std::pair{3.0, kNan}}) {
      UpdateCase closed{.kind = kind,
                        .averaging = true,
                        .compute_copy = true,
                        .rule = some_rule(true),
                        .non_finite = non_finite,
                        .squares = squares};
      const auto run = [&](Tensors& t, const std::vector<UpdateSlice>& slices) {
        run_update(t, closed, slices);
        for (std::size_t i = 0; i < t["norms"].count(); ++i) t["norms"].set(i, 0);  // belong to no slice
      };
      std::string untouched;
      {
        Tensors t(0);
        run(t, {});
        untouched = t.bits();
      }
      in_every_order(
          0, [&](Tensors& t) { run(t, kSlices); }, [&](Tensors& t) { EXPECT_TRUE(t.bits() == untouched); });
      closed.non_finite = 0;
      closed.squares = 4;
      Tensors t(0);
      run(t, kSlices);
      EXPECT_FALSE(t.bits() == untouched) << "an open gate lets it through";
    }
  }
}

/// One slice of 40 elements: weights 1 (or `weight`), gradients 0.1 except for element 17.
struct Small {
  GuardedTensor w{ElementType::float32, 1, 40}, g{ElementType::float32, 1, 40}, s1{ElementType::float32, 1, 40},
      s2{ElementType::float32, 1, 40}, norms{ElementType::float64, 1, 2};
  void run(OptimizerKind kind, UpdateRule rule, UpdateSlice slice, double weight, double gradient, double at_17) {
    for (std::size_t i = 0; i < 40; ++i) {
      w.set(i, weight);
      g.set(i, i == 17 ? at_17 : gradient);
      s1.set(i, 0);
      s2.set(i, 0);
    }
    double non_finite = 0, squares = 1;
    const Chunks chunks({slice});
    update(nullptr, {w.tensor(), g.tensor(), s1.tensor(), s2.tensor(), {}, {}, norms.tensor()}, kind, Averaging::no,
           {&rule, ElementType::uint8, 1, sizeof rule}, chunks.view(),
           {{&non_finite, ElementType::float64, 1, 1}, {&squares, ElementType::float64, 1, 1}});
  }
};

TEST(Update, KeepsANanGradientVisible) {
  for (const OptimizerKind kind : kKinds) {
    Small small;
    small.run(kind, {.learning_rate = 0.1f, .clip_value = 1}, {0, 40, true}, 1, 0.1, kNan);
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(std::isnan(small.w.get(i)), i == 17 || has_norms(kind)) << static_cast<int>(kind) << " " << i;
    }
    small.run(kind, {.learning_rate = 0.1f, .clip_value = 1}, {0, 40, false, true}, 1, 0.1, kNan);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(small.w.get(i)), i == 17) << "statistic " << i;
  }
}

TEST(Update, NormsOfZeroMakeNoRatio) {
  for (const OptimizerKind kind : {OptimizerKind::lars, OptimizerKind::lamb}) {
    const double weight_without =
        kind == OptimizerKind::lars ? -0.1 * 0.5 : -0.1;  // lamb: the step is 1 for any gradient
    Small small;
    UpdateRule rule{.learning_rate = 0.1f, .trust = 0.001f};
    rule.bias_correction1 = 1 - rule.beta1;
    rule.bias_correction2 = 1 - rule.beta2;
    small.run(kind, rule, {0, 40, true}, 0, 0.5, 0.5);
    for (const double w : small.w.values()) EXPECT_NEAR(w, weight_without, 1e-6);
    small.run(kind, rule, {0, 40, true}, 2, 0, 0);
    for (const double w : small.w.values()) EXPECT_EQ(w, 2);
    // A slice that is not decayed has ratio 1 for any norms.
    small.run(kind, rule, {0, 40, false}, 2, 0.5, 0.5);
    for (const double w : small.w.values()) EXPECT_NEAR(w, 2 + weight_without, 1e-6);
    for (const double norm : small.norms.values()) EXPECT_EQ(norm, 0);
  }
}

TEST(Chunks, CoverTheirSlices) {
  const std::vector<UpdateChunk> chunks = cut_into_chunks(kSlices);
  const std::vector<ChunksOfSlice> by_slice = chunks_by_slice(chunks, kSlices.size());
  for (std::size_t s = 0; s < kSlices.size(); ++s) {
    std::size_t next = kSlices[s].offset;
    for (std::uint32_t i = 0; i < by_slice[s].count; ++i) {
      const UpdateChunk& chunk = chunks[by_slice[s].first + i];
      EXPECT_EQ(chunk.offset, next);
      EXPECT_EQ(chunk.slice, s);
      EXPECT_EQ(chunk.decayed != 0, kSlices[s].decayed);
      EXPECT_EQ(chunk.statistic != 0, kSlices[s].statistic);
      EXPECT_TRUE(chunk.count > 0 && chunk.count <= kUpdateChunk);
      next += chunk.count;
    }
    EXPECT_EQ(next, kSlices[s].offset + kSlices[s].count);
  }
}

TEST(AddL2Gradient, TouchesDecayedChunksAlone) {
  std::vector<UpdateSlice> slices = kSlices;
  slices.back().decayed = true;  // no effect on a statistic
  const Chunks chunks(slices);
  for (const std::size_t shift : {0, 1}) {
    in_every_order(
        shift,
        [&](Tensors& t) {
          const Tensor w = t.add_filled("parameters", ElementType::float32, 1, kArena).tensor();
          const Tensor g = t.add_filled("gradients", ElementType::float32, 1, kArena).tensor();
          add_l2_gradient(nullptr, w, g, 0.25f, chunks.view());
          add_l2_gradient(nullptr, w, g, 0.25f, {});
        },
        [&](Tensors& t) {
          std::vector<double> expected(kArena);
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = before("gradients", i);
          for (const UpdateChunk& chunk : chunks.all()) {
            if (chunk.statistic != 0) continue;
            for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count && chunk.decayed != 0; ++i) {
              expected[i] += 0.25 * before("parameters", i);
            }
          }
          expect_close(t["gradients"].values(), expected, 1e-6, "l2");
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(t["gradients"].get(i), expected[i], 1e-6) << i;
            ASSERT_EQ(t["parameters"].get(i), before("parameters", i));
          }
        });
  }
}

}  // namespace
}  // namespace lockstep::model::cuda
