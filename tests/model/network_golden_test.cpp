// Repeats 50 steps of PyTorch (tests/golden/make_network_golden.py) with each kind of network, from the same weights on
// the same batches. Compares each loss, and the loss of an evaluation afterwards, which depends on the running
// statistics of batch norm and on sequences that start with zero state.
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "golden_file.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

using test::Case;
using test::number;
using test::numbers;
using test::read_cases;
using test::text;

constexpr std::size_t kSteps = 50, kBatches = 10;

struct Differences {
  double loss = 0, evaluation = 0;  ///< relative
};

NetworkOptions options_of(const std::string& name, const Case& golden) {
  NetworkOptions options{.name = name};
  if (const auto hidden = numbers<std::int64_t>(text(golden, "hidden")); !hidden.empty()) {
    options.values["hidden"] = hidden;
  }
  for (const char* key : {"depth", "layers", "width", "heads"}) {
    if (const auto value = static_cast<std::int64_t>(number(golden, key)); value > 0) options.values[key] = value;
  }
  return options;
}

SampleShape shape_of(const Case& golden) {
  const auto outputs = static_cast<std::int64_t>(number(golden, "outputs"));
  if (!golden.contains("image")) {
    return {.features = static_cast<std::int64_t>(number(golden, "context")), .outputs = outputs, .tokens = true};
  }
  const auto extents = numbers<std::int64_t>(text(golden, "image"));
  const ImageShape image{extents[0], extents[1], extents[2]};
  return {.features = image.elements(), .outputs = outputs, .image = image};
}

void upload_weights(Training& training, const Case& golden) {
  std::vector<float> arena(training.parameters.elements());
  const auto& parameters = training.model.network().parameters().all();
  const auto [first, last] = golden.equal_range("parameter");
  ASSERT_EQ(static_cast<std::size_t>(std::distance(first, last)), parameters.size());
  auto line = first;
  for (std::size_t i = 0; i < parameters.size(); ++i, ++line) {
    std::istringstream fields(line->second);
    std::string name;
    double scale = 0, offset = 0;
    fields >> name >> scale >> offset;
    ASSERT_EQ(name, parameters[i].name);
    std::ranges::copy(
        test::values(static_cast<std::uint32_t>(1 + i), static_cast<std::int64_t>(parameters[i].count), scale, offset),
        arena.begin() + static_cast<std::ptrdiff_t>(parameters[i].offset));
  }
  training.parameters.upload_group("parameters", arena);
}

Differences replay(const std::string& name, const Case& golden, std::string_view backend_name = "cpu") {
  const auto backend = make_backend(backend_name);
  const SampleShape shape = shape_of(golden);
  const auto network = make_network(options_of(name, golden), shape);
  const auto count = static_cast<std::int64_t>(number(golden, "batch"));
  ModelOptions options;
  const OptimizerOptions optimizer{.kind = parse_optimizer(text(golden, "optimizer")),
                                   .beta2 = number(golden, "beta2", 0.999),
                                   .l2 = number(golden, "l2"),
                                   .weight_decay = number(golden, "weight_decay"),
                                   .clip_norm = number(golden, "clip_norm")};
  options.max_batch = count;
  Training training(*backend, *network, options, {.optimizer = optimizer});
  upload_weights(training, golden);

  std::vector<float> images;
  std::vector<std::int32_t> tokens, answers;
  const auto batch = [&](std::size_t step) {
    const auto stream = static_cast<std::uint32_t>(2 * (step % kBatches));
    answers = test::integers(10001 + stream, count * network->positions(), shape.outputs);
    if (shape.tokens) {
      tokens = test::integers(10000 + stream, count * shape.features, shape.outputs);
      return Batch{.x = host_tensor(tokens.data(), count, shape.features),
                   .y = host_tensor(answers.data(), count, network->positions()),
                   .begins = step == 0};
    }
    images = test::values(10000 + stream, count * shape.features, 1);
    return Batch{.x = host_tensor(images.data(), count, shape.features),
                 .y = host_tensor(answers.data(), count, network->positions())};
  };
  const double rows = static_cast<double>(count * network->positions());
  Differences worst;
  const auto losses = numbers<double>(text(golden, "losses"));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const LossSums sums = test::forward_backward(training, batch(step), 1 / static_cast<double>(count));
    test::finish_step(training, update_rule(optimizer, number(golden, "rate"), static_cast<std::int64_t>(step)));
    const double difference = std::abs(sums.loss / rows - losses[step]) / losses[step];
    worst.loss = std::max(worst.loss, std::isfinite(difference) ? difference : 1);
  }
  const double expected = number(golden, "evaluation");
  worst.evaluation = std::abs(training.model.evaluate(batch(0)).loss / rows - expected) / expected;
  return worst;
}

class NetworkGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(NetworkGolden, FiftyStepsAsPyTorch) {
  const Case golden = read_cases("networks.txt").at(GetParam());
  ASSERT_EQ(numbers<double>(text(golden, "losses")).size(), kSteps);
  const Differences worst = replay(GetParam(), golden);
  EXPECT_LT(worst.loss, 1e-4);
  EXPECT_LT(worst.evaluation, 1e-4);
  RecordProperty("worst_relative_loss_difference", fmt::format("{:.2g}", worst.loss));
}

TEST_P(NetworkGolden, NoticesAnotherRate) {
  Case golden = read_cases("networks.txt").at(GetParam());
  test::change(golden, "rate", fmt::format("{}", 1.02 * number(golden, "rate")));
  EXPECT_GT(replay(GetParam(), golden).loss, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Networks, NetworkGolden, ::testing::Values("cnn", "resnet", "lstm", "gpt"),
                         [](const auto& name) { return std::string(name.param); });

TEST(NetworkGolden, NoticesWeightsThatAreNotDecayed) {
  Case golden = read_cases("networks.txt").at("gpt");
  test::change(golden, "weight_decay", "0");
  EXPECT_GT(replay("gpt", golden).loss, 1e-4);
  golden = read_cases("networks.txt").at("cnn");
  test::change(golden, "l2", "0");
  EXPECT_GT(replay("cnn", golden).loss, 1e-4);
}

}  // namespace
}  // namespace lockstep::model
