// Repeats 20 steps of PyTorch (tests/golden/make_golden.py) from the same weights on the same batches: compares each
// loss and the final weights.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "golden_file.hpp"
#include "model/reference/reference_backend.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr std::size_t kReplayedSteps = 20;

using test::Case;
using test::number;
using test::numbers;
using test::read_cases;
using test::text;
using test::values;

/// The greatest relative differences of a replay.
struct LayerDifferences {
  double loss = 0, sum = 0;
};

LayerDifferences replay(const Case& golden, std::string_view backend_name) {
  const auto backend = make_backend_or_reference(backend_name);
  const auto widths = numbers<std::int64_t>(text(golden, "widths"));
  const bool classifies = text(golden, "loss") == "softmax";
  NetworkOptions layers{.name = "linear"};
  if (widths.size() > 2) {
    layers = {.name = "mlp",
              .values = {{"hidden", Numbers{widths.begin() + 1, widths.end() - 1}},
                         {"activation", std::string(text(golden, "activation"))}}};
  }
  const auto network = make_network(layers, {widths.front(), widths.back()});
  const bool has_labels = text(golden, "loss") == "binary";
  ModelOptions options{.loss = classifies   ? LossKind::softmax_cross_entropy
                               : has_labels ? LossKind::binary_cross_entropy
                                            : LossKind::mean_squared_error};
  const OptimizerOptions optimizer{.kind = parse_optimizer(text(golden, "optimizer")),
                                   .l2 = number(golden, "l2"),
                                   .weight_decay = number(golden, "weight_decay"),
                                   .clip_norm = number(golden, "clip_norm"),
                                   .clip_value = number(golden, "clip_value"),
                                   .trust = number(golden, "trust")};
  options.max_batch = kBatch;
  Training training(*backend, *network, options, {.optimizer = optimizer});

  std::vector<float> arena(training.parameters.elements());
  const auto& parameters = network->parameters().all();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto layer = static_cast<std::uint32_t>(i / 2);
    const bool bias = i % 2 == 1;
    std::ranges::copy(
        values(bias ? 101 + layer : 1 + layer, static_cast<std::int64_t>(parameters[i].count), bias ? 0.125f : 0.5f),
        arena.begin() + static_cast<std::ptrdiff_t>(parameters[i].offset));
  }
  training.parameters.upload_group("parameters", arena);

  LayerDifferences worst;
  const auto losses = numbers<double>(text(golden, "losses"));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const auto stream = static_cast<std::uint32_t>(step);
    const auto x = values(1000 + stream, kBatch * widths.front(), 1);
    auto targets = values(2000 + stream, kBatch * widths.back(), 1);
    for (float& target : targets) target = !has_labels ? target : target > 0 ? 1.0f : 0.0f;
    const auto labels = test::integers(2000 + stream, kBatch, widths.back());
    const Batch batch{
        .x = host_tensor(x.data(), kBatch, widths.front()),
        .y = classifies ? host_tensor(labels.data(), kBatch, 1) : host_tensor(targets.data(), kBatch, widths.back())};
    const LossSums sums = test::forward_backward(training, batch, 1.0 / kBatch);
    test::finish_step(training, update_rule(optimizer, number(golden, "rate"), static_cast<std::int64_t>(step)));
    worst.loss = std::max(worst.loss, std::abs(sums.loss / kBatch - losses[step]) / losses[step]);
  }
  training.parameters.download_group("parameters", arena);
  const auto expected = numbers<double>(text(golden, "sums"));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    double sum = 0;
    for (std::size_t e = 0; e < parameters[i].count; ++e) sum += static_cast<double>(arena[parameters[i].offset + e]);
    worst.sum = std::max(worst.sum, std::abs(sum - expected[i]) / (1 + std::abs(expected[i])));
  }
  return worst;
}

TEST(Golden, TwentyStepsAsPyTorch) {
  const auto cases = read_cases("pytorch.txt");
  ASSERT_GE(cases.size(), 15u);
  LayerDifferences worst;
  for (const auto& [name, golden] : cases) {
    ASSERT_EQ(numbers<double>(text(golden, "losses")).size(), kReplayedSteps) << name;
    const LayerDifferences cpu = replay(golden, "cpu"), reference = replay(golden, "reference");
    EXPECT_LT(cpu.loss, 1e-5) << name;
    EXPECT_LT(cpu.sum, 1e-5) << name;
    // Numbers of the rule are float32 (0.1f is off by 1.5e-8), everything else float64.
    EXPECT_LT(reference.loss, 5e-7) << name;
    // PyTorch clips by clip_norm / (norm + 1e-6), we without the 1e-6.
    EXPECT_LT(reference.sum, golden.contains("clip_norm") ? 5e-6 : 5e-7) << name;
    worst = {std::max(worst.loss, cpu.loss), std::max(worst.sum, cpu.sum)};
  }
  RecordProperty("worst_relative_loss_difference", fmt::format("{:.2g}", worst.loss));
}

TEST(Golden, NoticesAnotherRule) {
  const auto changed = [](const char* name, const char* key, const char* value) {
    Case golden = read_cases("pytorch.txt").at(name);
    EXPECT_LT(replay(golden, "cpu").loss, 1e-5) << name;
    test::change(golden, key, value);
    return replay(golden, "cpu").loss;
  };
  EXPECT_GT(changed("softmax_adamw", "weight_decay", "0.11"), 1e-5);
  EXPECT_GT(changed("softmax_adamw", "rate", "0.0101"), 1e-5);
  EXPECT_GT(changed("softmax_lars", "trust", "0.0202"), 1e-5);
  EXPECT_GT(changed("softmax_lamb", "weight_decay", "0.011"), 1e-5);
}

}  // namespace
}  // namespace lockstep::model
