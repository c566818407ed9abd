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

#include "gpu/subject.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/sample_data.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

const std::vector<std::int64_t> kBatches{1, 2, 3, 7, 31, 100, 127, 128, 129, 1000};
const std::vector<std::int64_t> kWidths{1, 2, 3, 7, 8, 10, 31, 33, 64, 100, 127, 128, 257, 512, 784, 1000, 1024};
const std::vector<Activation> kActivations{Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid};

class Operations : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!offers(precision_)) GTEST_SKIP() << "this device has no " << name_of(precision_);
    device_ = make_subject(precision_);
  }
  Array compute(std::int64_t rows, std::int64_t columns) { return {*device_, device_->compute_type(), rows, columns}; }
  Array compute(const Floats& values, std::int64_t rows, std::int64_t columns) {
    return {*device_, device_->compute_type(), rows, columns, values};
  }
  Array master(const Floats& values, std::int64_t rows, std::int64_t columns) {
    return {*device_, device_->master_type(), rows, columns, values};
  }
  Floats rounded(const Doubles& values) const {
    Floats result(values.size());
    std::ranges::transform(values, result.begin(),
                           [&](double value) { return round_to(precision_, static_cast<float>(value)); });
    return result;
  }

  const Precision precision_ = GetParam();
  const double limit_ = limit_of(precision_);
  std::unique_ptr<Backend> device_;
  const std::unique_ptr<Backend> reference_ = std::make_unique<ReferenceBackend>();
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

TEST_P(Operations, Linear) {
  Random random;
  for (const LinearCase& at : linear_cases(random)) {
    SCOPED_TRACE(at.text());
    const std::int64_t batch = at.batch, inputs = at.inputs, outputs = at.outputs;
    const double fan_in = std::sqrt(static_cast<double>(inputs));
    const Floats x = random.numbers(batch * inputs, precision_);
    const Floats w = random.numbers(inputs * outputs, precision_, 2 / fan_in);
    const Floats bias = at.bias ? random.numbers(outputs, precision_) : Floats();
    Doubles exact_x = widened(x), exact_w = widened(w), exact_bias = widened(bias);
    Doubles exact_y(static_cast<std::size_t>(batch * outputs));
    const Array on_x = compute(x, batch, inputs), on_w = compute(w, inputs, outputs);
    const Array on_bias = compute(bias, 1, static_cast<std::int64_t>(bias.size()));
    const Tensor no_tensor;

    const Array on_y = compute(batch, outputs);
    device_->linear_forward(on_x.tensor(), on_w.tensor(), at.bias ? on_bias.tensor() : no_tensor, at.activation,
                            on_y.tensor());
    reference_->linear_forward(view(exact_x, batch, inputs), view(exact_w, inputs, outputs),
                               at.bias ? view(exact_bias, 1, outputs) : no_tensor, at.activation,
                               view(exact_y, batch, outputs));
    ASSERT_TRUE(is_within(relative_error(on_y.fetch(), exact_y, norm(x) * norm(w) / fan_in), limit_)) << "y";

    // One y for both, so that both are on the same side of relu's corner.
    const Floats y = rounded(exact_y), d_y = random.numbers(batch * outputs, precision_);
    const bool adds = at.accumulate == Accumulate::yes;
    const Floats poison_w(w.size(), std::numeric_limits<float>::quiet_NaN());
    const Floats poison_bias(bias.size(), std::numeric_limits<float>::quiet_NaN());
    const Floats d_w = adds ? random.numbers(inputs * outputs) : poison_w;
    const Floats d_bias = adds ? random.numbers(static_cast<std::int64_t>(bias.size())) : poison_bias;
    exact_y = widened(y);
    Doubles exact_d_y = widened(d_y), exact_d_w = widened(d_w), exact_d_bias = widened(d_bias);
    Doubles exact_d_x(at.d_x ? x.size() : 0);
    const Array given_y = compute(y, batch, outputs), on_d_y = compute(d_y, batch, outputs);
    const Array on_d_w = master(d_w, inputs, outputs), on_d_x = compute(batch, inputs);
    const Array on_d_bias = master(d_bias, 1, static_cast<std::int64_t>(bias.size()));
    device_->linear_backward({.x = on_x.tensor(),
                              .w = on_w.tensor(),
                              .y = given_y.tensor(),
                              .d_y = on_d_y.tensor(),
                              .d_w = on_d_w.tensor(),
                              .d_bias = at.bias ? on_d_bias.tensor() : no_tensor,
                              .d_x = at.d_x ? on_d_x.tensor() : no_tensor},
                             at.activation, at.accumulate);
    reference_->linear_backward({.x = view(exact_x, batch, inputs),
                                 .w = view(exact_w, inputs, outputs),
                                 .y = view(exact_y, batch, outputs),
                                 .d_y = view(exact_d_y, batch, outputs),
                                 .d_w = view(exact_d_w, inputs, outputs),
                                 .d_bias = at.bias ? view(exact_d_bias, 1, outputs) : no_tensor,
                                 .d_x = at.d_x ? view(exact_d_x, batch, inputs) : no_tensor},
                                at.activation, at.accumulate);
    const double d_z = norm(rounded(exact_d_y));
    ASSERT_TRUE(is_within(relative_error(on_d_y.fetch(), exact_d_y, norm(d_y) / 100), limit_))
        << "gradient before the activation";
    ASSERT_TRUE(is_within(
        relative_error(on_d_w.fetch(), exact_d_w, norm(x) * d_z / std::sqrt(static_cast<double>(batch))), limit_))
        << "d_w";
    if (at.bias) {
      ASSERT_TRUE(is_within(relative_error(on_d_bias.fetch(), exact_d_bias, d_z), limit_)) << "d_bias";
    }
    if (at.d_x) {
      const double expected = d_z * norm(w) / std::sqrt(static_cast<double>(outputs));
      ASSERT_TRUE(is_within(relative_error(on_d_x.fetch(), exact_d_x, expected), limit_)) << "d_x";
    }
  }
}

/// The reference is too slow for these: it computes some rows of y and d_x, and d_w for some inputs.
TEST_P(Operations, LargeLinear) {
  Random random;
  const std::int64_t batch = subject().quick ? 300 : 4096, inputs = subject().quick ? 257 : 4096,
                     outputs = subject().quick ? 129 : 4096, some = 3;
  const double fan_in = std::sqrt(static_cast<double>(inputs));
  const Floats x = random.numbers(batch * inputs, precision_),
               w = random.numbers(inputs * outputs, precision_, 1 / fan_in);
  const Floats d_y = random.numbers(batch * outputs, precision_);
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
  const Array x = compute(0, 5), y = compute(0, 3), d_x = compute(0, 5);
  Random random;
  const Array w = compute(random.numbers(15, precision_), 5, 3), bias = compute(random.numbers(3, precision_), 1, 3);
  const Floats before = random.numbers(15);
  const Array added = master(before, 5, 3), d_w{*device_, device_->master_type(), 5, 3};
  const Array d_bias{*device_, device_->master_type(), 1, 3};
  device_->linear_forward(x.tensor(), w.tensor(), bias.tensor(), Activation::relu, y.tensor());
  device_->linear_backward({.x = x.tensor(),
                            .w = w.tensor(),
                            .y = y.tensor(),
                            .d_y = y.tensor(),
                            .d_w = d_w.tensor(),
                            .d_bias = d_bias.tensor(),
                            .d_x = d_x.tensor()},
                           Activation::relu, Accumulate::no);
  device_->linear_backward(
      {.x = x.tensor(), .w = w.tensor(), .y = y.tensor(), .d_y = y.tensor(), .d_w = added.tensor()}, Activation::relu,
      Accumulate::yes);
  EXPECT_EQ(d_w.fetch(), Floats(15));
  EXPECT_EQ(d_bias.fetch(), Floats(3));
  EXPECT_EQ(added.fetch(), before);
}

TEST_P(Operations, SoftmaxCrossEntropy) {
  Random random;
  device_->reserve_stages(1, {.x = 4096, .y = 4096 * sizeof(std::int32_t), .weights = 4096 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 40 : 120); ++i) {
    const std::int64_t batch = random.pick(kBatches),
                       classes = random.pick<std::int64_t>({1, 2, 3, 10, 33, 100, 1000, 5000});
    const double scale = random.pick<double>({1, 0.25, 1.0 / 1000}), spread = random.pick<double>({0.1, 3, 30});
    const bool want_gradient = random.generator()() % 4 != 0;
    const float smoothing = random.pick<float>({0, 0, 0.1f});
    const std::int64_t columns = classes + random.pick<std::int64_t>({0, 0, 1, 24});
    if (batch * classes > 200'000) continue;
    SCOPED_TRACE(fmt::format("batch {}, {} classes in {} columns, logits to {}, scale {}, smoothing {}{}", batch,
                             classes, columns, spread, scale, smoothing, want_gradient ? "" : ", no gradient"));
    const Floats logits = random.numbers(batch * columns, precision_, spread);
    auto labels = host_array<std::int32_t>(*device_, random.labels(batch, classes));
    auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(batch)));
    const Tensor host_labels{labels.data(), ElementType::int32, batch, 1};
    const Array on_logits = compute(logits, batch, columns);
    const Scalars sums(*device_, {5, 7, 9});
    Floats factors = random.numbers(batch, Precision::fp32, 1);
    for (float& factor : factors) factor = std::abs(factor);
    auto weights = host_array<float>(*device_, factors);
    const bool weighted = random.generator()() % 2 != 0;
    const Tensor host_weights = weighted ? Tensor{weights.data(), ElementType::float32, batch, 1} : Tensor{};
    const Batch staged =
        device_->stage(0, {{no_x.data(), ElementType::uint8, batch, 1}, host_labels, {}, host_weights});
    LossOptions options{.scale = scale,
                        .want_gradient = want_gradient,
                        .smoothing = smoothing,
                        .classes = classes,
                        .weights = staged.weights};
    device_->softmax_cross_entropy(on_logits.tensor(), staged.y, options, sums.tensor());
    options.weights = host_weights;
    device_->release_stage(0);
    Doubles exact = widened(logits), exact_sums{5, 7, 9};
    reference_->softmax_cross_entropy(view(exact, batch, columns), host_labels, options, view(exact_sums, 1, 3));
    const Doubles got = sums.fetch();
    ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0] + 4e-6 * static_cast<double>(batch)));
    ASSERT_EQ(got[1], exact_sums[1]) << "right answers";
    ASSERT_EQ(got[2], exact_sums[2]) << "among the first five";
    const Floats after = on_logits.fetch();
    if (want_gradient) {
      // If the right class has all the probability, the gradient is small by cancellation.
      ASSERT_TRUE(is_within(relative_error(after, exact, 0.1 * scale), limit_));
      for (std::int64_t at = 0; at < batch * columns; ++at) {
        ASSERT_TRUE(at % columns < classes || after[static_cast<std::size_t>(at)] == 0) << "padding";
      }
    } else {
      ASSERT_EQ(after, logits);
    }
    device_->wait_staged();
  }
}

TEST_P(Operations, MeanSquaredError) {
  Random random;
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float), .weights = 1000 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random.pick(kBatches), outputs = random.pick<std::int64_t>({1, 2, 10, 17, 128, 200});
    const bool want_gradient = random.generator()() % 4 != 0;
    const double scale = random.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} outputs, scale {}", batch, outputs, scale));
    const Floats predictions = random.numbers(batch * outputs, precision_, 3);
    auto targets = host_array<float>(*device_, random.numbers(batch * outputs, Precision::fp32, 3));
    auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(batch)));
    const Tensor host_targets{targets.data(), ElementType::float32, batch, outputs};
    const Array on_predictions = compute(predictions, batch, outputs);
    const Scalars sums(*device_, {5, 7, 9});
    Floats factors = random.numbers(batch, Precision::fp32, 1);
    for (float& factor : factors) factor = std::abs(factor);
    auto weights = host_array<float>(*device_, factors);
    const bool weighted = random.generator()() % 2 != 0;
    const Tensor host_weights = weighted ? Tensor{weights.data(), ElementType::float32, batch, 1} : Tensor{};
    const Batch staged =
        device_->stage(0, {{no_x.data(), ElementType::uint8, batch, 1}, host_targets, {}, host_weights});
    LossOptions options{.scale = scale,
                        .want_gradient = want_gradient,
                        .of_error = random.pick<ErrorLoss>(
                            {ErrorLoss::squared, ErrorLoss::squared, ErrorLoss::absolute, ErrorLoss::huber}),
                        .weights = staged.weights};
    device_->mean_error(on_predictions.tensor(), staged.y, options, sums.tensor());
    options.weights = host_weights;
    device_->release_stage(0);
    Doubles exact = widened(predictions), exact_sums{5, 7, 9};
    reference_->mean_error(view(exact, batch, outputs), host_targets, options, view(exact_sums, 1, 3));
    const Doubles got = sums.fetch();
    ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0]));
    ASSERT_TRUE(is_near(got[1], exact_sums[1], 1e-5 * exact_sums[1]));
    const Floats after = on_predictions.fetch();
    if (want_gradient) {
      ASSERT_TRUE(is_within(relative_error(after, exact, 1e-3 * scale / static_cast<double>(outputs)), limit_));
    } else {
      ASSERT_EQ(after, predictions);
    }
    device_->wait_staged();
  }
}

TEST_P(Operations, BinaryCrossEntropy) {
  Random random;
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float), .weights = 1000 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random.pick(kBatches), labels = random.pick<std::int64_t>({1, 2, 10, 17, 128, 200});
    const bool want_gradient = random.generator()() % 4 != 0;
    const double scale = random.pick<double>({1, 0.5, 1.0 / 1000});
    const float smoothing = random.pick<float>({0, 0, 0.1f});
    const bool may_pad = device_->compute_type() == ElementType::bfloat16;
    const std::int64_t columns =
        labels + random.pick<std::int64_t>(may_pad ? std::vector<std::int64_t>{0, 0, 3} : std::vector<std::int64_t>{0});
    SCOPED_TRACE(fmt::format("batch {}, {} labels in {} columns, scale {}, smoothing {}", batch, labels, columns, scale,
                             smoothing));
    const Floats padded = random.numbers(batch * columns, precision_, random.pick<double>({0.1, 3, 30}));
    const auto without_padding = [&](const Floats& rows) {
      Floats kept;
      for (std::int64_t row = 0; row < batch; ++row) {
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * columns);
        kept.insert(kept.end(), begin, begin + static_cast<std::ptrdiff_t>(labels));
      }
      return kept;
    };
    const Floats logits = without_padding(padded);
    Floats there = random.numbers(batch * labels, Precision::fp32, 1);
    for (float& label : there) label = label > 0 ? 1.0f : 0.0f;
    auto targets = host_array<float>(*device_, there);
    auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(batch)));
    const Tensor host_targets{targets.data(), ElementType::float32, batch, labels};
    const Array on_logits = compute(padded, batch, columns);
    const Scalars sums(*device_, {5, 7, 9});
    Floats factors = random.numbers(batch, Precision::fp32, 1);
    for (float& factor : factors) factor = std::abs(factor);
    auto weights = host_array<float>(*device_, factors);
    const bool weighted = random.generator()() % 2 != 0;
    const Tensor host_weights = weighted ? Tensor{weights.data(), ElementType::float32, batch, 1} : Tensor{};
    const Batch staged =
        device_->stage(0, {{no_x.data(), ElementType::uint8, batch, 1}, host_targets, {}, host_weights});
    LossOptions options{
        .scale = scale, .want_gradient = want_gradient, .smoothing = smoothing, .weights = staged.weights};
    device_->binary_cross_entropy(on_logits.tensor(), staged.y, options, sums.tensor());
    options.weights = host_weights;
    device_->release_stage(0);
    Doubles exact = widened(logits), exact_sums{5, 7, 9};
    reference_->binary_cross_entropy(view(exact, batch, labels), host_targets, options, view(exact_sums, 1, 3));
    const Doubles got = sums.fetch();
    ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0]));
    ASSERT_TRUE(is_near(got[1], exact_sums[1], 1e-9 * exact_sums[1])) << "right labels";
    ASSERT_TRUE(is_near(got[2], exact_sums[2], 1e-9 * exact_sums[2])) << "labels that are there and found";
    const Floats all = on_logits.fetch(), after = without_padding(all);
    if (want_gradient) {
      // If a label is nearly certain, the gradient is small by cancellation.
      ASSERT_TRUE(is_within(relative_error(after, exact, 0.1 * scale / static_cast<double>(labels)), limit_));
      for (std::int64_t at = 0; at < batch * columns; ++at) {
        ASSERT_TRUE(at % columns < labels || all[static_cast<std::size_t>(at)] == 0) << "padding";
      }
    } else {
      ASSERT_EQ(all, padded);
    }
    device_->wait_staged();
  }
}

TEST_P(Operations, SoftCrossEntropy) {
  Random random;
  device_->reserve_stages(1, {.x = 1000, .y = 1000 * 200 * sizeof(float)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random.pick(kBatches), classes = random.pick<std::int64_t>({2, 10, 17, 128, 200});
    const bool want_gradient = random.generator()() % 4 != 0;
    const double scale = random.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} classes, scale {}", batch, classes, scale));
    const Floats logits = random.numbers(batch * classes, precision_, random.pick<double>({0.1, 3, 30}));
    auto targets = host_array<float>(*device_, test::probabilities(batch, classes));
    auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(batch)));
    const Tensor host_targets{targets.data(), ElementType::float32, batch, classes};
    const Array on_logits = compute(logits, batch, classes);
    const Scalars sums(*device_, {5, 7, 9});
    const Batch staged = device_->stage(0, {{no_x.data(), ElementType::uint8, batch, 1}, host_targets});
    const LossOptions options{.scale = scale, .want_gradient = want_gradient};
    device_->soft_cross_entropy(on_logits.tensor(), staged.y, options, sums.tensor());
    device_->release_stage(0);
    Doubles exact = widened(logits), exact_sums{5, 7, 9};
    reference_->soft_cross_entropy(view(exact, batch, classes), host_targets, options, view(exact_sums, 1, 3));
    const Doubles got = sums.fetch();
    ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0] + 4e-6 * static_cast<double>(batch)));
    ASSERT_EQ(got[1], exact_sums[1]) << "right answers";
    ASSERT_EQ(got[2], exact_sums[2]) << "among the first five";
    const Floats after = on_logits.fetch();
    if (want_gradient) {
      ASSERT_TRUE(is_within(relative_error(after, exact, 0.1 * scale), limit_));
    } else {
      ASSERT_EQ(after, logits);
    }
    device_->wait_staged();
  }
}

TEST_P(Operations, SoftDice) {
  Random random;
  constexpr std::int64_t kRows = 8192;
  device_->reserve_stages(1, {.x = kRows, .y = kRows * sizeof(std::int32_t)});
  for (int i = 0; i < (subject().quick ? 20 : 60); ++i) {
    const std::int64_t batch = random.pick<std::int64_t>({1, 2, 7}),
                       positions = random.pick<std::int64_t>({1, 30, 1000}),
                       classes = random.pick<std::int64_t>({1, 2, 3, 20}), rows = batch * positions;
    const bool want_gradient = random.generator()() % 4 != 0;
    const double scale = random.pick<double>({1, 0.5, 1.0 / 1000});
    SCOPED_TRACE(fmt::format("batch {}, {} positions, {} classes, scale {}", batch, positions, classes, scale));
    const Floats logits = random.numbers(rows * classes, precision_, 3);
    std::vector<std::int32_t> answers = random.labels(rows, classes);
    for (std::size_t at = 1; at < answers.size(); at += 4) answers[at] = kNoClass;
    auto labels = host_array<std::int32_t>(*device_, answers);
    auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(static_cast<std::size_t>(rows)));
    const Tensor host_labels{labels.data(), ElementType::int32, rows, 1};
    const Array on_logits = compute(logits, rows, classes);
    const Scalars sums(*device_, {5, 7, 9});
    const Arena work(device_->memory(), ElementType::float64, static_cast<std::size_t>(batch * dice_work(classes)));
    const Batch staged = device_->stage(0, {{no_x.data(), ElementType::uint8, rows, 1}, host_labels});
    const LossOptions options{.scale = scale, .want_gradient = want_gradient};
    device_->soft_dice(on_logits.tensor(), staged.y, options,
                       {work.data(), ElementType::float64, batch, dice_work(classes)}, sums.tensor());
    device_->release_stage(0);
    Doubles exact = widened(logits), exact_sums{5, 7, 9};
    Doubles exact_work(static_cast<std::size_t>(batch * dice_work(classes)));
    reference_->soft_dice(view(exact, rows, classes), host_labels, options, view(exact_work, batch, dice_work(classes)),
                          view(exact_sums, 1, 3));
    const Doubles got = sums.fetch();
    ASSERT_TRUE(is_near(got[0], exact_sums[0], 1e-5 * exact_sums[0]));
    ASSERT_EQ(got[1], exact_sums[1]) << "right answers";
    ASSERT_EQ(got[2], 9);
    const Floats after = on_logits.fetch();
    if (want_gradient) {
      ASSERT_TRUE(is_within(relative_error(after, exact, 0.1 * scale), limit_));
    } else {
      ASSERT_EQ(after, logits);
    }
    device_->wait_staged();
  }
}

TEST_P(Operations, NotFiniteComesThrough) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  Random random;
  device_->reserve_stages(1, {.x = 64, .y = 64 * sizeof(float)});
  auto no_x = host_array<std::uint8_t>(*device_, std::vector<std::uint8_t>(3));
  auto labels = host_array<std::int32_t>(*device_, std::vector<std::int32_t>{0, 1, 0});
  auto targets = host_array<float>(*device_, Floats(3));
  for (const std::int64_t classes : {2, 10, 33, 1000, 5000}) {
    for (const float poison : {kNan, kInfinity}) {
      for (const bool want_gradient : {false, true}) {
        for (const std::int64_t place : {std::int64_t{0}, classes / 2, classes - 1}) {
          SCOPED_TRACE(fmt::format("{} of {} classes is {}", place, classes, poison));
          Floats logits = random.numbers(3 * classes, precision_);
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
    Floats x = random.numbers(5 * 20, precision_);
    x[2 * 20 + 7] = kNan;
    const Array on_x = compute(x, 5, 20), w = compute(random.numbers(20 * 33, precision_), 20, 33), y = compute(5, 33);
    device_->linear_forward(on_x.tensor(), w.tensor(), {}, activation, y.tensor());
    const Floats got = y.fetch();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::isnan(got[i]), i / 33 == 2) << name_of(activation) << ", sample " << i / 33;
    }
  }
}

template <class T>
void convert_and_compare(Backend& device, Backend& reference, const std::vector<T>& values, std::int64_t rows,
                         const InputTransform& transform, double limit) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  auto host = host_array<T>(device, values);
  auto no_y = host_array<std::int32_t>(device, std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
  const Tensor in{host.data(), ElementTypeOf<T>::value, rows, columns};
  const Array out(device, device.compute_type(), rows, columns);
  const Batch staged = device.stage(0, {in, {no_y.data(), ElementType::int32, rows, 1}, {}});
  device.convert_input(staged.x, transform, out.tensor());
  device.release_stage(0);
  Doubles exact(values.size());
  reference.convert_input(in, transform, view(exact, rows, columns));
  ASSERT_TRUE(is_within(relative_error(out.fetch(), exact, 0.01), limit))
      << name_of(in.type) << " " << rows << " x " << columns;
  device.wait_staged();
}

TEST_P(Operations, ConvertInput) {
  Random random;
  device_->reserve_stages(1, {.x = 129 * 784 * sizeof(double), .y = 1000 * sizeof(std::int32_t)});
  for (const std::int64_t rows : {1, 3, 31, 129}) {
    for (const std::int64_t columns : {1, 2, 3, 5, 17, 33, 784}) {
      const Floats floats = random.numbers(rows * columns, Precision::fp32, 4);
      const Doubles doubles(floats.begin(), floats.end());
      std::vector<std::uint8_t> bytes(floats.size());
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.generator()());
      for (const InputTransform transform : {InputTransform{1, 0}, {1.0f / 255, 0}, {0.3f, -0.7f}}) {
        convert_and_compare(*device_, *reference_, bytes, rows, transform, limit_);
        convert_and_compare(*device_, *reference_, floats, rows, transform, limit_);
        convert_and_compare(*device_, *reference_, doubles, rows, transform, limit_);
      }
    }
  }
}

TEST_P(Operations, CastRoundsToNearestEven) {
  Random random;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t count : {1, 2, 3, 7, 64, 65, 1000, 100'003}) {
    Floats values = random.numbers(count, Precision::fp32, 100);
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
  Random random;
  for (const std::int64_t count : {1, 3, 8, 1001, 100'003}) {
    const Floats x = random.numbers(count, precision_), before = random.numbers(count, precision_, 3);
    const Array on_x = compute(x, 1, count), to = compute(before, 1, count);
    device_->add(on_x.tensor(), to.tensor());
    Doubles exact_x = widened(x), exact = widened(before);
    reference_->add(view(exact_x, 1, count), view(exact, 1, count));
    EXPECT_TRUE(is_within(relative_error(to.fetch(), exact), limit_)) << count;
  }
}

// Both limits have floors: near a root of a function or of its slope one element has no relative error to speak of.
TEST_P(Operations, FunctionsOfEachElement) {
  Random random;
  for (const Function function : kFunctions) {
    const Elementwise f{.function = function, .parameter = 0.25f};
    for (const std::int64_t count : {1, 3, 8, 1001, 100'003}) {
      Floats x = random.numbers(count, precision_, 4);
      const Floats d_y = random.numbers(count, precision_);
      for (float& value : x) {
        if (function == Function::log1p) value = std::abs(value);
      }
      const Array on_x = compute(x, 1, count), y = compute(1, count), d = compute(d_y, 1, count);
      device_->elementwise_forward(f, on_x.tensor(), y.tensor());
      Doubles exact_x = widened(x), exact_y(exact_x.size()), exact_d = widened(d_y);
      reference_->elementwise_forward(f, view(exact_x, 1, count), view(exact_y, 1, count));
      EXPECT_TRUE(is_within(relative_error(y.fetch(), exact_y, norm(x) / 10), limit_)) << static_cast<int>(function);
      const SlopeReads reads = slope_reads(function);
      const bool none = reads == SlopeReads::nothing, of_input = reads == SlopeReads::input;
      Doubles own_y = widened(y.fetch());
      device_->elementwise_backward(f, none ? Tensor{} : of_input ? on_x.tensor() : y.tensor(), d.tensor(), d.tensor());
      reference_->elementwise_backward(f, none ? Tensor{} : view(of_input ? exact_x : own_y, 1, count),
                                       view(exact_d, 1, count), view(exact_d, 1, count));
      EXPECT_TRUE(is_within(relative_error(d.fetch(), exact_d, norm(d_y) / 10), limit_)) << static_cast<int>(function);
    }
  }
}

TEST_P(Operations, CopyColumns) {
  Random random;
  for (const std::int64_t rows : {1, 3, 1001}) {
    const Floats x = random.numbers(rows * 7, precision_), before = random.numbers(rows * 11, precision_);
    const Array on_x = compute(x, rows, 7), to = compute(before, rows, 11);
    device_->copy_columns(on_x.tensor(), 2, to.tensor(), 5, 4);
    Doubles exact_x = widened(x), exact = widened(before);
    reference_->copy_columns(view(exact_x, rows, 7), 2, view(exact, rows, 11), 5, 4);
    EXPECT_EQ(widened(to.fetch()), exact) << rows;
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
