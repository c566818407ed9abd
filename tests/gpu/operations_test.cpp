// Compares every operation of the backend at every precision with the float64 reference: shapes with odd sizes, fresh
// random inputs, poisoned outputs. The reference gets the inputs as rounded for products, so that the tests measure the
// arithmetic and not the rounding of the inputs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/twins.hpp"
#include "model/sample_data.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

const std::vector<std::int64_t> kBatches{1, 2, 3, 7, 31, 100, 127, 128, 129, 1000};
const std::vector<std::int64_t> kWidths{1, 2, 3, 7, 8, 10, 31, 33, 64, 100, 127, 128, 257, 512, 784, 1000, 1024};
const std::vector<Activation> kActivations{Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid};

class Operations : public Twins {
 protected:
  Array compute(std::int64_t rows, std::int64_t columns) { return {*device_, device_->compute_type(), rows, columns}; }
  Array compute(const Floats& values, std::int64_t rows, std::int64_t columns) {
    return {*device_, device_->compute_type(), rows, columns, values};
  }
  bool wants_gradient() { return random_.generator()() % 4 != 0; }
  template <class Call>
  void expect_loss(const struct LossCase& at, const Call& call);
  template <class T>
  void expect_conversion(const std::vector<T>& values, std::int64_t rows, const InputTransform& transform);

  const double limit_ = limit_of(precision_);
};

struct LinearCase {
  std::int64_t batch, inputs, outputs;
  Activation activation = Activation::none;
  bool bias = true, d_x = true;
  Accumulate accumulate = Accumulate::no;

  std::string text() const {
    return fmt::format("batch {}, {} -> {}, {}{}{}{}", batch, inputs, outputs, name_of(activation),
                       bias ? "" : ", no bias", d_x ? "" : ", no d_x",
                       accumulate == Accumulate::yes ? ", accumulating" : "");
  }
};

/// Shapes that have exposed faulty kernels before, then a random sample of all others.
std::vector<LinearCase> linear_cases(Random& random) {
  std::vector<LinearCase> cases{{1, 1, 1},     {1, 784, 10},   {100, 784, 100}, {100, 100, 10}, {129, 33, 127},
                                {128, 128, 1}, {3, 1000, 257}, {1000, 1, 33},   {2, 7, 1024},   {127, 600, 512}};
  const std::size_t wanted = subject().quick ? 30 : 120;
  while (cases.size() < wanted) {
    const LinearCase drawn{random.pick(kBatches), random.pick(kWidths), random.pick(kWidths)};
    if (drawn.batch * drawn.inputs * drawn.outputs < (subject().quick ? 4'000'000 : 40'000'000)) cases.push_back(drawn);
  }
  for (LinearCase& drawn : cases) {
    drawn.activation = random.pick(kActivations);
    drawn.bias = random.generator()() % 3 != 0;
    drawn.d_x = random.generator()() % 4 != 0;
    drawn.accumulate = random.coin() ? Accumulate::yes : Accumulate::no;
  }
  return cases;
}

Floats floats_of(const Doubles& values) { return {values.begin(), values.end()}; }

double norm_of(const Twin& twin) {
  double squares = 0;
  for (const double value : twin.exact_values()) squares += value * value;
  return std::sqrt(squares);
}

TEST_P(Operations, Linear) {
  for (const LinearCase& at : linear_cases(random_)) {
    SCOPED_TRACE(at.text());
    const std::int64_t batch = at.batch, inputs = at.inputs, outputs = at.outputs;
    const double fan_in = std::sqrt(static_cast<double>(inputs)), fan_out = std::sqrt(static_cast<double>(outputs)),
                 samples = std::sqrt(static_cast<double>(batch));
    const Twin x = activations(batch, inputs), w = activations(inputs, outputs, 2 / fan_in);
    const Twin bias = at.bias ? activations(1, outputs) : Twin(), y = poison(Holds::activations, batch, outputs);
    both([&](Backend& backend, const auto& of) {
      backend.linear_forward(of(x), of(w), of(bias), at.activation, of(y));
    });
    expect_close(y, "y", norm_of(x) * norm_of(w) / fan_in / (samples * fan_out));

    const Twin given_y = settled(y), d_y = activations(batch, outputs);
    const double before = norm_of(d_y);
    const Twin d_w = gradient(at.accumulate, inputs, outputs);
    const Twin d_bias = at.bias ? gradient(at.accumulate, 1, outputs) : Twin();
    const Twin d_x = at.d_x ? poison(Holds::activations, batch, inputs) : Twin();
    both([&](Backend& backend, const auto& of) {
      backend.linear_backward({.x = of(x),
                               .w = of(w),
                               .y = of(given_y),
                               .d_y = of(d_y),
                               .d_w = of(d_w),
                               .d_bias = of(d_bias),
                               .d_x = of(d_x)},
                              at.activation, at.accumulate);
    });
    const double d_z = norm_of(d_y);
    expect_close(d_y, "gradient before the activation", before / 100 / (samples * fan_out));
    expect_close(d_w, "d_w", norm_of(x) * d_z / samples / (fan_in * fan_out));
    if (at.bias) expect_close(d_bias, "d_bias", d_z / fan_out);
    if (at.d_x) expect_close(d_x, "d_x", d_z * norm_of(w) / fan_out / (samples * fan_in));
  }
}

/// The reference is too slow for these: it computes some rows of y and d_x, and d_w for some inputs.
TEST_P(Operations, LargeLinear) {
  const std::int64_t batch = subject().quick ? 300 : 4096, inputs = subject().quick ? 257 : 4096,
                     outputs = subject().quick ? 129 : 4096, some = 3;
  const double fan_in = std::sqrt(static_cast<double>(inputs));
  const Floats x = random_.numbers(batch * inputs, precision_),
               w = random_.numbers(inputs * outputs, precision_, 1 / fan_in);
  const Floats d_y = random_.numbers(batch * outputs, precision_);
  const Array on_x = compute(x, batch, inputs), on_w = compute(w, inputs, outputs), on_y = compute(batch, outputs);
  const Array on_d_y = compute(d_y, batch, outputs), on_d_x = compute(batch, inputs);
  const Array on_d_w{*device_, device_->master_type(), inputs, outputs};
  device_->linear_forward(on_x.tensor(), on_w.tensor(), {}, Activation::none, on_y.tensor());
  device_->linear_backward({.x = on_x.tensor(),
                            .w = on_w.tensor(),
                            .y = on_y.tensor(),
                            .d_y = on_d_y.tensor(),
                            .d_w = on_d_w.tensor(),
                            .d_x = on_d_x.tensor()},
                           Activation::none, Accumulate::no);
  const Floats y = on_y.fetch(), d_x = on_d_x.fetch(), d_w = on_d_w.fetch();

  Doubles exact_w = widened(w);
  for (const std::int64_t first : {std::int64_t{0}, batch - some}) {  // rows of the samples [first, first + some)
    const auto rows = [&](const Floats& all, std::int64_t columns) {
      const auto begin = all.begin() + first * columns;
      return Floats(begin, begin + some * columns);
    };
    Doubles some_x = widened(rows(x, inputs)), some_d_y = widened(rows(d_y, outputs));
    Doubles some_y(static_cast<std::size_t>(some * outputs)), some_d_x(static_cast<std::size_t>(some * inputs));
    Doubles unused(exact_w.size());
    reference_->linear_forward(view(some_x, some, inputs), view(exact_w, inputs, outputs), {}, Activation::none,
                               view(some_y, some, outputs));
    reference_->linear_backward({.x = view(some_x, some, inputs),
                                 .w = view(exact_w, inputs, outputs),
                                 .d_y = view(some_d_y, some, outputs),
                                 .d_w = view(unused, inputs, outputs),
                                 .d_x = view(some_d_x, some, inputs)},
                                Activation::none, Accumulate::no);
    EXPECT_TRUE(is_within(relative_error(rows(y, outputs), some_y), limit_)) << "y from sample " << first;
    EXPECT_TRUE(is_within(relative_error(rows(d_x, inputs), some_d_x), limit_)) << "d_x from sample " << first;
  }
  for (const std::int64_t input : {std::int64_t{0}, inputs / 2, inputs - 1}) {
    Doubles exact(static_cast<std::size_t>(outputs));
    for (std::int64_t b = 0; b < batch; ++b) {
      const double value = static_cast<double>(x[static_cast<std::size_t>(b * inputs + input)]);
      for (std::int64_t o = 0; o < outputs; ++o) {
        exact[static_cast<std::size_t>(o)] +=
            value * static_cast<double>(d_y[static_cast<std::size_t>(b * outputs + o)]);
      }
    }
    const auto begin = d_w.begin() + input * outputs;
    EXPECT_TRUE(is_within(relative_error(Floats(begin, begin + outputs), exact), limit_)) << "d_w of input " << input;
  }
}

TEST_P(Operations, LinearOfNoSamples) {
  const Twin x = activations(0, 5), y = activations(0, 3), d_x = activations(0, 5);
  const Twin w = activations(5, 3), bias = activations(1, 3);
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    const Twin d_w = gradient(accumulate, 5, 3), d_bias = gradient(accumulate, 1, 3);
    both([&](Backend& backend, const auto& of) {
      backend.linear_forward(of(x), of(w), of(bias), Activation::relu, of(y));
      backend.linear_backward(
          {.x = of(x), .w = of(w), .y = of(y), .d_y = of(y), .d_w = of(d_w), .d_bias = of(d_bias), .d_x = of(d_x)},
          Activation::relu, accumulate);
    });
    expect_equal(d_w, "d_w");
    expect_equal(d_bias, "d_bias");
  }
}

/// A call of a loss. Columns beyond the classes are padding, which the reference does not have.
struct LossCase {
  Floats logits;  ///< or predictions
  std::int64_t rows, columns, classes;
  Tensor targets;  ///< or labels, in the host's memory
  LossOptions options;
  bool may_be_weighted = false;
  double extra_error = 0;   ///< allowed for the loss, beside 1e-5 of it
  double metric_error = 0;  ///< allowed for the metrics, as a share of them; 0: they are counts
  double floor = 0;         ///< norm of a gradient, which may be small by cancellation
};

/// Stages a batch, computes the loss on both sides, call(backend, logits, targets, options, sums), and compares the
/// sums and the gradient; without gradient the logits stay.
template <class Call>
void Operations::expect_loss(const LossCase& at, const Call& call) {
  const Array logits = compute(at.logits, at.rows, at.columns);
  const Scalars sums(*device_, {5, 7, 9});
  Floats factors = random_.numbers(at.rows, Precision::fp32, 1);
  for (float& factor : factors) factor = std::abs(factor);
  auto weights = host_array<float>(*device_, factors);
  const bool weighted = at.may_be_weighted && random_.coin();
  const Tensor host_weights = weighted ? Tensor{weights.data(), ElementType::float32, at.rows, 1} : Tensor{};
  auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(at.rows)));
  const Batch staged = device_->stage(0, {{no_x.data(), ElementType::uint8, at.rows, 1}, at.targets, {}, host_weights});
  LossOptions options = at.options;
  options.weights = staged.weights;
  call(*device_, logits.tensor(), staged.y, options, sums.tensor());
  device_->release_stage(0);
  options.weights = host_weights;
  const auto without_padding = [&](const Floats& rows) {
    Floats kept;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (static_cast<std::int64_t>(i) % at.columns < at.classes) kept.push_back(rows[i]);
    }
    return kept;
  };
  Doubles exact = widened(without_padding(at.logits)), exact_sums{5, 7, 9};
  call(*reference_, view(exact, at.rows, at.classes), at.targets, options, view(exact_sums, 1, 3));
  const Doubles got = sums.fetch();
  ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0] + at.extra_error));
  for (const std::size_t metric : {1, 2}) {
    if (at.metric_error > 0) {
      ASSERT_TRUE(is_near(got[metric], exact_sums[metric], at.metric_error * exact_sums[metric]))
          << "metric " << metric;
    } else {
      ASSERT_EQ(got[metric], exact_sums[metric]) << "metric " << metric;
    }
  }
  const Floats after = logits.fetch();
  if (options.want_gradient) {
    ASSERT_TRUE(is_within(relative_error(without_padding(after), exact, at.floor), limit_));
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_TRUE(static_cast<std::int64_t>(i) % at.columns < at.classes || after[i] == 0) << "padding";
    }
  } else {
    ASSERT_EQ(after, at.logits);
  }
  device_->wait_staged();
}

TEST_P(Operations, SoftmaxCrossEntropy) {
  device_->reserve_stages(1, {.x = 4096, .y = 4096 * sizeof(std::int32_t), .weights = 4096 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 40 : 120); ++i) {
    const std::int64_t batch = random_.pick(kBatches),
                       classes = random_.pick<std::int64_t>({1, 2, 3, 10, 33, 100, 1000, 5000});
    const double scale = random_.pick<double>({1, 0.25, 1.0 / 1000}), spread = random_.pick<double>({0.1, 3, 30});
    const bool want_gradient = wants_gradient();
    const float smoothing = random_.pick<float>({0, 0, 0.1f});
    const std::int64_t columns = classes + random_.pick<std::int64_t>({0, 0, 1, 24});
    if (batch * classes > 200'000) continue;
    SCOPED_TRACE(fmt::format("batch {}, {} classes in {} columns, logits to {}, scale {}, smoothing {}{}", batch,
                             classes, columns, spread, scale, smoothing, want_gradient ? "" : ", no gradient"));
    auto labels = host_array<std::int32_t>(*device_, random_.labels(batch, classes));
    expect_loss(
        {.logits = random_.numbers(batch * columns, precision_, spread),
         .rows = batch,
         .columns = columns,
         .classes = classes,
         .targets = {labels.data(), ElementType::int32, batch, 1},
         .options = {.scale = scale, .want_gradient = want_gradient, .smoothing = smoothing, .classes = classes},
         .may_be_weighted = true,
         .extra_error = 4e-6 * static_cast<double>(batch),
         .floor = 0.1 * scale},  // small if the right class has all the probability
        [](Backend& backend, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
          backend.softmax_cross_entropy(z, y, options, sums);
        });
  }
}

TEST_P(Operations, MeanSquaredError) {
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float), .weights = 1000 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random_.pick(kBatches), outputs = random_.pick<std::int64_t>({1, 2, 10, 17, 128, 200});
    const double scale = random_.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} outputs, scale {}", batch, outputs, scale));
    auto targets = host_array<float>(*device_, random_.numbers(batch * outputs, Precision::fp32, 3));
    expect_loss({.logits = random_.numbers(batch * outputs, precision_, 3),
                 .rows = batch,
                 .columns = outputs,
                 .classes = outputs,
                 .targets = {targets.data(), ElementType::float32, batch, outputs},
                 .options = {.scale = scale,
                             .want_gradient = wants_gradient(),
                             .of_error = random_.pick<ErrorLoss>(
                                 {ErrorLoss::squared, ErrorLoss::squared, ErrorLoss::absolute, ErrorLoss::huber})},
                 .may_be_weighted = true,
                 .metric_error = 1e-5,
                 .floor = 1e-3 * scale / static_cast<double>(outputs)},
                [](Backend& backend, const Tensor& x, const Tensor& y, const LossOptions& options, const Tensor& sums) {
                  backend.mean_error(x, y, options, sums);
                });
  }
}

TEST_P(Operations, BinaryCrossEntropy) {
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float), .weights = 1000 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random_.pick(kBatches), labels = random_.pick<std::int64_t>({1, 2, 10, 17, 128, 200});
    const double scale = random_.pick<double>({1, 0.5, 1.0 / 1000});
    const float smoothing = random_.pick<float>({0, 0, 0.1f});
    const bool may_pad = device_->compute_type() == ElementType::bfloat16;
    const std::int64_t columns = labels + random_.pick<std::int64_t>(may_pad ? std::vector<std::int64_t>{0, 0, 3}
                                                                             : std::vector<std::int64_t>{0});
    SCOPED_TRACE(fmt::format("batch {}, {} labels in {} columns, scale {}, smoothing {}", batch, labels, columns, scale,
                             smoothing));
    Floats there = random_.numbers(batch * labels, Precision::fp32, 1);
    for (float& label : there) label = label > 0 ? 1.0f : 0.0f;
    auto targets = host_array<float>(*device_, there);
    expect_loss({.logits = random_.numbers(batch * columns, precision_, random_.pick<double>({0.1, 3, 30})),
                 .rows = batch,
                 .columns = columns,
                 .classes = labels,
                 .targets = {targets.data(), ElementType::float32, batch, labels},
                 .options = {.scale = scale, .want_gradient = wants_gradient(), .smoothing = smoothing},
                 .may_be_weighted = true,
                 .metric_error = 1e-9,
                 .floor = 0.1 * scale / static_cast<double>(labels)},  // small if a label is nearly certain
                [](Backend& backend, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
                  backend.binary_cross_entropy(z, y, options, sums);
                });
  }
}

TEST_P(Operations, SoftCrossEntropy) {
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random_.pick(kBatches), classes = random_.pick<std::int64_t>({2, 10, 17, 128, 200});
    const double scale = random_.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} classes, scale {}", batch, classes, scale));
    auto targets = host_array<float>(*device_, test::probabilities(batch, classes));
    expect_loss({.logits = random_.numbers(batch * classes, precision_, random_.pick<double>({0.1, 3, 30})),
                 .rows = batch,
                 .columns = classes,
                 .classes = classes,
                 .targets = {targets.data(), ElementType::float32, batch, classes},
                 .options = {.scale = scale, .want_gradient = wants_gradient()},
                 .extra_error = 4e-6 * static_cast<double>(batch),
                 .floor = 0.1 * scale},
                [](Backend& backend, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
                  backend.soft_cross_entropy(z, y, options, sums);
                });
  }
}

TEST_P(Operations, SoftDice) {
  constexpr std::int64_t kRows = 8192;
  device_->reserve_stages(1, {.x = kRows, .y = kRows * sizeof(std::int32_t)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random_.pick<std::int64_t>({1, 2, 7}),
                       positions = random_.pick<std::int64_t>({1, 30, 1000}),
                       classes = random_.pick<std::int64_t>({1, 2, 3, 20}), rows = batch * positions;
    const double scale = random_.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} positions, {} classes, scale {}", batch, positions, classes, scale));
    std::vector<std::int32_t> answers = random_.labels(rows, classes);
    for (std::size_t at = 1; at < answers.size(); at += 4) answers[at] = kNoClass;
    auto labels = host_array<std::int32_t>(*device_, answers);
    const Arena work(device_->memory(), ElementType::float64, static_cast<std::size_t>(batch * dice_work(classes)));
    Doubles exact_work(static_cast<std::size_t>(batch * dice_work(classes)));
    expect_loss(
        {.logits = random_.numbers(rows * classes, precision_, 3),
         .rows = rows,
         .columns = classes,
         .classes = classes,
         .targets = {labels.data(), ElementType::int32, rows, 1},
         .options = {.scale = scale, .want_gradient = wants_gradient()},
         .floor = 0.1 * scale},
        [&](Backend& backend, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
          void* const memory = &backend == device_.get() ? work.data() : exact_work.data();
          backend.soft_dice(z, y, options, {memory, ElementType::float64, batch, dice_work(classes)}, sums);
        });
  }
}

TEST_P(Operations, NotFiniteComesThrough) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  device_->reserve_stages(1, {.x = 64, .y = 64 * sizeof(float)});
  auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(3));
  auto labels = host_array<std::int32_t>(*device_, std::vector<std::int32_t>{0, 1, 0});
  auto targets = host_array<float>(*device_, Floats(3));
  for (const std::int64_t classes : {2, 10, 33, 1000, 5000}) {
    for (const float poison : {kNan, kInfinity}) {
      for (const bool want_gradient : {false, true}) {
        for (const std::int64_t place : {std::int64_t{0}, classes / 2, classes - 1}) {
          SCOPED_TRACE(fmt::format("{} of {} classes is {}", place, classes, poison));
          Floats logits = random_.numbers(3 * classes, precision_);
          logits[static_cast<std::size_t>(classes + place)] = poison;  // a place in sample 1
          const Array on_logits = compute(logits, 3, classes);
          const Scalars sums(*device_, {0, 0, 0});
          const Batch staged = device_->stage(
              0, {{no_x.data(), ElementType::uint8, 3, 1}, {labels.data(), ElementType::int32, 3, 1}, {}});
          device_->softmax_cross_entropy(on_logits.tensor(), staged.y, {.want_gradient = want_gradient}, sums.tensor());
          device_->release_stage(0);
          const Doubles got = sums.fetch();
          ASSERT_FALSE(std::isfinite(got[0]));
          ASSERT_LE(got[1], 2) << "a row that is not finite is no right answer";
          ASSERT_EQ(got[1], std::floor(got[1]));
          ASSERT_LE(got[2], 2);
          device_->wait_staged();
        }
      }
    }
  }
  for (const float poison : {kNan, kInfinity}) {
    const Array predictions = compute(Floats{1, poison, 2}, 3, 1);
    const Scalars sums(*device_, {0, 0, 0});
    const Batch staged =
        device_->stage(0, {{no_x.data(), ElementType::uint8, 3, 1}, {targets.data(), ElementType::float32, 3, 1}, {}});
    device_->mean_error(predictions.tensor(), staged.y, {.want_gradient = true}, sums.tensor());
    device_->release_stage(0);
    EXPECT_FALSE(std::isfinite(sums.fetch()[0]));
    const Floats gradient = predictions.fetch();
    EXPECT_EQ(gradient[0], 2);
    EXPECT_FALSE(std::isfinite(gradient[1]));
    device_->wait_staged();
  }
  for (const Activation activation : kActivations) {
    Floats x = random_.numbers(5 * 20, precision_);
    x[2 * 20 + 7] = kNan;
    const Array on_x = compute(x, 5, 20), w = compute(random_.numbers(20 * 33, precision_), 20, 33), y = compute(5, 33);
    device_->linear_forward(on_x.tensor(), w.tensor(), {}, activation, y.tensor());
    const Floats got = y.fetch();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::isnan(got[i]), i / 33 == 2) << name_of(activation) << ", sample " << i / 33;
    }
  }
}

template <class T>
void Operations::expect_conversion(const std::vector<T>& values, std::int64_t rows, const InputTransform& transform) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  auto host = host_array<T>(*device_, values);
  auto no_y = host_array<std::int32_t>(*device_, std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
  const Tensor in{host.data(), ElementTypeOf<T>::value, rows, columns};
  const Array out = compute(rows, columns);
  const Batch staged = device_->stage(0, {in, {no_y.data(), ElementType::int32, rows, 1}, {}});
  device_->convert_input(staged.x, transform, out.tensor());
  device_->release_stage(0);
  Doubles exact(values.size());
  reference_->convert_input(in, transform, view(exact, rows, columns));
  ASSERT_TRUE(is_within(relative_error(out.fetch(), exact, 0.01), limit_))
      << name_of(in.type) << " " << rows << " x " << columns;
  device_->wait_staged();
}

TEST_P(Operations, ConvertInput) {
  device_->reserve_stages(1, {.x = 129 * 784 * sizeof(double), .y = 1000 * sizeof(std::int32_t)});
  for (const std::int64_t rows : {1, 3, 31, 129}) {
    for (const std::int64_t columns : {1, 2, 3, 5, 17, 33, 784}) {
      const Floats floats = random_.numbers(rows * columns, Precision::fp32, 4);
      const Doubles doubles(floats.begin(), floats.end());
      std::vector<std::uint8_t> bytes(floats.size());
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_.generator()());
      for (const InputTransform transform : {InputTransform{1, 0}, {1.0f / 255, 0}, {0.3f, -0.7f}}) {
        expect_conversion(bytes, rows, transform);
        expect_conversion(floats, rows, transform);
        expect_conversion(doubles, rows, transform);
      }
    }
  }
}

TEST_P(Operations, CastRoundsToNearestEven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t count : {1, 2, 3, 7, 64, 65, 1000, 100'003}) {
    Floats values = random_.numbers(count, Precision::fp32, 100);
    // Ties of bfloat16 to both sides, an overflow, the smallest numbers, zeros of both signs.
    Floats special{1.00390625f, 1.01171875f, 3.4e38f, -3.4e38f, 1e-40f, 0.0f, -0.0f, kInfinity, -kInfinity, kNan};
    special.resize(std::min(special.size(), values.size()));
    std::ranges::copy(special, values.begin());
    const Array from(*device_, device_->master_type(), 1, count, values);
    const Array to(*device_, device_->compute_type(), 1, count), back(*device_, device_->master_type(), 1, count);
    device_->cast(from.tensor(), to.tensor());
    device_->cast(to.tensor(), back.tensor());
    const Precision kept = device_->compute_type() == ElementType::bfloat16 ? Precision::bf16 : Precision::fp32;
    const Floats got = back.fetch(), direct = to.fetch();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float expected = round_to(kept, values[i]);
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got[i])
                                       : std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(got[i]))
          << values[i] << " became " << got[i] << ", not " << expected;
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(direct[i]) : direct[i] == expected) << "downloaded";
    }
  }
}

TEST_P(Operations, Add) {
  for (const std::int64_t count : {1, 3, 8, 1001, 100'003}) {
    const Twin x = activations(1, count), to = activations(1, count, 3);
    both([&](Backend& backend, const auto& of) { backend.add(of(x), of(to)); });
    expect_close(to, fmt::format("{} elements", count), 0);
  }
}

// Both limits have floors: near a root of a function or of its slope one element has no relative error to speak of.
TEST_P(Operations, FunctionsOfEachElement) {
  for (const Function function : kFunctions) {
    const Elementwise f{.function = function, .parameter = 0.25f};
    for (const std::int64_t count : {1, 3, 8, 1001, 100'003}) {
      SCOPED_TRACE(fmt::format("function {} of {}", static_cast<int>(function), count));
      const double root = std::sqrt(static_cast<double>(count));
      Floats values = random_.numbers(count, precision_, 4);
      for (float& value : values) {
        if (function == Function::log1p) value = std::abs(value);
      }
      const Twin x = given(Holds::activations, 1, count, values), y = poison(Holds::activations, 1, count);
      both([&](Backend& backend, const auto& of) { backend.elementwise_forward(f, of(x), of(y)); });
      expect_close(y, "y", norm_of(x) / 10 / root);
      const Twin own_y = given(Holds::activations, 1, count, floats_of(y.fetch())), d = activations(1, count);
      const double before = norm_of(d);
      const SlopeReads reads = slope_reads(function);
      const Twin read = reads == SlopeReads::nothing ? Twin() : reads == SlopeReads::input ? x : own_y;
      both([&](Backend& backend, const auto& of) { backend.elementwise_backward(f, of(read), of(d), of(d)); });
      expect_close(d, "gradient", before / 10 / root);
    }
  }
}

TEST_P(Operations, CopyColumns) {
  for (const std::int64_t rows : {1, 3, 1001}) {
    const Twin x = activations(rows, 7), to = activations(rows, 11);
    both([&](Backend& backend, const auto& of) { backend.copy_columns(of(x), 2, of(to), 5, 4); });
    expect_equal(to, fmt::format("{} rows", rows));
  }
}

TEST_P(Operations, FillZero) {
  for (const std::int64_t count : {1, 3, 64, 100'003}) {
    const Array x = compute(1, count), master_x{*device_, device_->master_type(), 1, count};
    device_->fill_zero(x.tensor());
    device_->fill_zero(master_x.tensor());
    EXPECT_EQ(x.fetch(), Floats(static_cast<std::size_t>(count)));
    EXPECT_EQ(master_x.fetch(), Floats(static_cast<std::size_t>(count)));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Operations, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
