// Compares the operations on the arenas with the float64 reference: the optimisers, the norm, the L2 gradient and the
// status.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/sample_data.hpp"
#include "model/update_rule.hpp"

namespace lockstep::model::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Slices in the parameter table's layout, with gaps that no operation may touch.
struct Layout {
  std::int64_t elements;
  std::vector<UpdateSlice> slices;
};
const std::vector<Layout> kLayouts{
    {64, {{0, 1, true}}},
    {256, {{0, 3, false}, {64, 65, true}, {192, 64, true}}},
    {102'400, {{0, 10, false}, {64, 99'999, true}, {100'096, 1'000, false}}},
    {1024, {{0, 100, true}, {128, 200, false}, {384, 100, false, true}, {512, 300, false, true}}}};
constexpr std::array kKinds{OptimizerKind::sgd,   OptimizerKind::momentum, OptimizerKind::nesterov, OptimizerKind::adam,
                            OptimizerKind::adamw, OptimizerKind::lars,     OptimizerKind::lamb};
bool needs_norms(OptimizerKind kind) { return kind == OptimizerKind::lars || kind == OptimizerKind::lamb; }

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

enum class Clip { none, norm, norm_not_reached, value };

/// One set of arenas, in the memory of a backend.
class Arenas {
 public:
  Arenas(Backend& backend, const std::vector<Floats>& initial, std::int64_t elements, std::size_t slices)
      : norms_(backend, ElementType::float64, 1, static_cast<std::int64_t>(2 * slices), std::span<const std::byte>()) {
    for (const Floats& values : initial) arrays_.emplace_back(backend, backend.master_type(), 1, elements, values);
    shadowed_ = backend.compute_type() != backend.master_type();
    if (shadowed_) arrays_.emplace_back(backend, backend.compute_type(), 1, elements, initial[0]);
  }
  UpdateArenas views(OptimizerKind kind, Averaging averaging) const {
    const auto used = [&](std::size_t arena, bool condition) { return condition ? arrays_[arena].tensor() : Tensor{}; };
    return {arrays_[0].tensor(),
            arrays_[1].tensor(),
            used(2, state_count(kind) > 0),
            used(3, state_count(kind) > 1),
            used(4, averaging == Averaging::yes),
            used(5, shadowed_),
            needs_norms(kind) ? norms_.tensor() : Tensor{}};
  }
  void set_gradients(Backend& backend, const Floats& values) const { backend.upload(values, arrays_[1].tensor()); }
  /// Parameters, gradients, state1, state2, average and the compute_copy, if there is one.
  std::vector<Floats> fetch() const {
    std::vector<Floats> all;
    for (const Array& array : arrays_) all.push_back(array.fetch());
    return all;
  }
  bool copied() const { return shadowed_; }

 private:
  std::vector<Array> arrays_;
  Array norms_;
  bool shadowed_ = false;
};

/// The rule in memory that update() reads.
class Rule {
 public:
  explicit Rule(Backend& backend) : backend_(backend), bytes_(sizeof(UpdateRule)) {
    tensor_ = {backend.memory()->allocate(bytes_, 256), ElementType::uint8, 1, static_cast<std::int64_t>(bytes_)};
  }
  ~Rule() { backend_.memory()->deallocate(tensor_.data, bytes_, 256); }
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;
  const Tensor& set(const UpdateRule& rule) {
    backend_.write(std::as_bytes(std::span(&rule, 1)), tensor_);
    return tensor_;
  }

 private:
  Backend& backend_;
  std::size_t bytes_;
  Tensor tensor_;
};

UpdateRule some_rule(Clip clip, std::int64_t count, int update) {
  UpdateRule rule;
  rule.learning_rate = 0.3f;
  rule.bias_correction1 = static_cast<float>(1 - std::pow(0.9, update + 1));
  rule.bias_correction2 = static_cast<float>(1 - std::pow(0.999, update + 1));
  rule.weight_decay = 0.1f;
  rule.average_decay = 0.75f;
  rule.trust = 0.2f;
  rule.statistics_decay = 0.875f;
  if (clip == Clip::value) rule.clip_value = 0.5f;
  if (clip == Clip::norm) rule.clip_norm = 0.3 * std::sqrt(static_cast<double>(count));
  if (clip == Clip::norm_not_reached) rule.clip_norm = 10 * std::sqrt(static_cast<double>(count));
  return rule;
}

class Update : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!offers(GetParam())) GTEST_SKIP() << "this device has no " << name_of(GetParam());
  }
  const std::unique_ptr<Backend> reference_ = std::make_unique<ReferenceBackend>();
};

TEST_P(Update, EveryOptimizer) {
  Random random;
  for (const Layout& layout : kLayouts) {
    const auto device = make_subject(GetParam());  // a backend may keep its copy of the slices
    Rule rule(*device), exact_rule(*reference_);
    for (const OptimizerKind kind : kKinds) {
      for (const Clip clip : {Clip::none, Clip::norm, Clip::norm_not_reached, Clip::value}) {
        const Averaging averaging = random.coin() ? Averaging::yes : Averaging::no;
        SCOPED_TRACE(fmt::format("{} elements, optimiser {}, clip {}, averaging {}", layout.elements, name_of(kind),
                                 static_cast<int>(clip), averaging == Averaging::yes));
        std::vector<Floats> initial(5);
        for (Floats& values : initial) values = random.numbers(layout.elements);
        for (float& value : initial[3]) value = std::abs(value);  // a second moment is at least 0
        std::vector<Doubles> exact;
        for (const Floats& values : initial) exact.push_back(widened(values));
        Doubles exact_norms(2 * layout.slices.size());
        const auto exact_view = [&](std::size_t arena) { return view(exact[arena], 1, layout.elements); };
        const Arenas arenas(*device, initial, layout.elements, layout.slices.size());
        for (int update = 0; update < 3; ++update) {
          arenas.set_gradients(*device, initial[1]);  // an update may overwrite them
          exact[1] = widened(initial[1]);
          const UpdateRule numbers = some_rule(clip, layout.elements, update);
          const double squares = std::pow(norm(initial[1]), 2);
          const Scalars non_finite(*device, {0}), gradient_squares(*device, {squares});
          const Scalars exact_non_finite(*reference_, {0}), exact_squares(*reference_, {squares});
          device->update(arenas.views(kind, averaging), kind, averaging, rule.set(numbers), layout.slices,
                         {non_finite.tensor(), gradient_squares.tensor()});
          reference_->update(
              {exact_view(0),
               exact_view(1),
               exact_view(2),
               exact_view(3),
               exact_view(4),
               {},
               needs_norms(kind) ? view(exact_norms, 1, static_cast<std::int64_t>(exact_norms.size())) : Tensor{}},
              kind, averaging, exact_rule.set(numbers), layout.slices,
              {exact_non_finite.tensor(), exact_squares.tensor()});
          device->synchronize();  // before the scalars are destroyed
        }
        const std::vector<Floats> got = arenas.fetch();
        for (std::size_t arena = 0; arena < exact.size(); ++arena) {
          if (arena == 1) continue;  // gradients
          ASSERT_TRUE(is_within(relative_error(got[arena], exact[arena]), 1e-5)) << "arena " << arena;
        }
        for (std::size_t i = 0; arenas.copied() && i < got[0].size(); ++i) {
          ASSERT_EQ(got[5][i], round_to(Precision::bf16, got[0][i])) << "the compute_copy of element " << i;
        }
        std::size_t next = 0;  // gaps between the slices do not change
        for (const UpdateSlice& slice : layout.slices) {
          for (; next < slice.offset; ++next) ASSERT_EQ(got[0][next], initial[0][next]) << "gap at element " << next;
          next = slice.offset + slice.count;
        }
      }
    }
  }
}

TEST_P(Update, AClosedGateLeavesEveryBit) {
  Random random;
  const Layout& layout = kLayouts[1];
  const auto device = make_subject(GetParam());
  Rule rule(*device);
  std::vector<Floats> initial(5);
  for (Floats& values : initial) values = random.numbers(layout.elements);
  const Arenas arenas(*device, initial, layout.elements, layout.slices.size());
  const double closed[][2] = {{1, 1}, {kNan, 1}, {0, kNan}, {0, kInfinity}, {3, kNan}};
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::adamw, OptimizerKind::lars, OptimizerKind::lamb}) {
    for (const auto& gate : closed) {
      const Scalars non_finite(*device, {gate[0]}), squares(*device, {gate[1]});
      device->update(arenas.views(kind, Averaging::yes), kind, Averaging::yes,
                     rule.set(some_rule(Clip::norm, layout.elements, 0)), layout.slices,
                     {non_finite.tensor(), squares.tensor()});
      const std::vector<Floats> got = arenas.fetch();
      for (std::size_t arena = 0; arena < initial.size(); ++arena) {
        ASSERT_EQ(got[arena], initial[arena])
            << "arena " << arena << ", non_finite " << gate[0] << ", squares " << gate[1];
      }
    }
  }
  const Scalars non_finite(*device, {0}), squares(*device, {1});
  device->update(arenas.views(OptimizerKind::sgd, Averaging::yes), OptimizerKind::sgd, Averaging::yes,
                 rule.set(some_rule(Clip::none, 1, 0)), layout.slices, {non_finite.tensor(), squares.tensor()});
  EXPECT_NE(arenas.fetch()[0], initial[0]) << "an open gate lets the update through";
}

TEST_P(Update, L2GradientOfDecayedSlices) {
  Random random;
  for (const Layout& layout : kLayouts) {
    const auto device = make_subject(GetParam());
    const Floats w = random.numbers(layout.elements), g = random.numbers(layout.elements);
    Doubles exact_w = widened(w), exact_g = widened(g);
    const Array on_w(*device, device->master_type(), 1, layout.elements, w);
    const Array on_g(*device, device->master_type(), 1, layout.elements, g);
    device->add_l2_gradient(on_w.tensor(), on_g.tensor(), 0.5f, layout.slices);
    reference_->add_l2_gradient(view(exact_w, 1, layout.elements), view(exact_g, 1, layout.elements), 0.5f,
                                layout.slices);
    EXPECT_TRUE(is_within(relative_error(on_g.fetch(), exact_g), 1e-5)) << layout.elements;
  }
}

TEST_P(Update, SumOfSquares) {
  Random random;
  const auto device = make_subject(GetParam());
  for (const ElementType type : {device->master_type(), device->compute_type()}) {
    const Precision rounded = type == ElementType::bfloat16 ? Precision::bf16 : Precision::fp32;
    for (const std::int64_t count : {1, 2, 3, 31, 64, 1000, 1023, 100'003, 3'000'001}) {
      Floats values = random.numbers(count, rounded, 3);
      double exact = 0;
      for (const float value : values) exact += static_cast<double>(value) * static_cast<double>(value);
      const Array x(*device, type, 1, count, values);
      const Scalars out(*device, {kNan});
      device->sum_of_squares(x.tensor(), out.tensor());
      ASSERT_TRUE(is_near(out.fetch()[0], exact, 1e-12 * exact)) << name_of(type) << " " << count;
      for (const std::int64_t place : {std::int64_t{0}, count / 2, count - 1}) {
        Floats poisoned = values;
        poisoned[static_cast<std::size_t>(place)] =
            place % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
        device->upload(poisoned, x.tensor());
        device->sum_of_squares(x.tensor(), out.tensor());
        ASSERT_FALSE(std::isfinite(out.fetch()[0])) << name_of(type) << " " << count << " at " << place;
      }
    }
    const Array large(*device, type, 1, 100, Floats(100, round_to(rounded, 3e38f)));
    const Scalars out(*device, {0});
    device->sum_of_squares(large.tensor(), out.tensor());
    const double one = static_cast<double>(round_to(rounded, 3e38f));
    EXPECT_TRUE(is_near(out.fetch()[0], 100 * one * one, 1e-10 * 100 * one * one)) << "no overflow on the way";
  }
}

TEST_P(Update, ReportsTheLossInTheStatus) {
  const auto device = make_subject(GetParam());
  for (const double loss : {0.5, kNan, kInfinity}) {
    std::vector<double> before(kStepStatusSize);
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = i < 2 ? kNan : i == 2 ? 2 : 7 + static_cast<double>(i);
    const Scalars sums(*device, {loss, 17, 23}), status(*device, before);
    device->report_loss(sums.tensor(), status.tensor());
    device->report_loss(sums.tensor(), status.tensor());
    const Doubles got = status.fetch();
    EXPECT_TRUE(std::isnan(loss) ? std::isnan(got[0]) : got[0] == loss);
    EXPECT_EQ(got[1], 17);
    EXPECT_EQ(got[2], std::isfinite(loss) ? 2 : 4) << loss;
    for (std::size_t i = 3; i < kStepStatusSize; ++i) EXPECT_EQ(got[i], 7 + static_cast<double>(i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Update, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
