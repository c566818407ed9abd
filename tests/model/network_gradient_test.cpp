// Checks whole networks by finite differences in float64 on the reference backend: for each parameter, the slope of the
// loss along a direction that changes all its elements.
#include <array>
#include <cmath>
#include <functional>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "finite_differences.hpp"
#include "model/yaml/network_template.hpp"
#include "network_harness.hpp"

namespace lockstep::model {
namespace {

using test::images;
using test::NetworkInDoubles;
using test::SampleBatch;
using test::tokens;

constexpr double kNetworkStep = 1e-5;
/// For networks with many units, since a longer step would move some across a kink. Rounding is then 1e-16 / 1e-7.
constexpr double kShortStep = 1e-7;

struct GradientCase {
  std::string label;
  NetworkOptions options;
  SampleShape shape;
  std::int64_t batch = 2;
  bool keys = false;
  double step = kNetworkStep;
};

/// A forward and a backward pass of `net`; returns the loss.
double step(NetworkInDoubles& net, const GradientCase& with, const SampleBatch& batch, Accumulate accumulate,
            double share = 1, const GradientReady& ready = {}) {
  Pass pass = net.pass(batch.input, with.keys ? batch.keys : Tensor{});
  pass.share = share;
  net.forget();
  const Tensor output = net.network->forward(pass);
  const double scale = 1.0 / static_cast<double>(with.batch * net.network->positions());
  const double loss = net.loss(pass, output, batch.y, scale, true);
  net.network->backward(pass, accumulate, ready);
  return loss;
}

/// Moves elements [offset, offset + count) by +-step and compares the slope of the loss with the gradient.
void expect_slope(NetworkInDoubles& net, const GradientCase& with, const SampleBatch& batch,
                  const std::vector<double>& gradients, std::size_t offset, std::size_t count,
                  const std::string& what) {
  const auto direction = test::samples<double>(what + " direction", static_cast<std::int64_t>(count));
  const double length = std::sqrt(static_cast<double>(count) / 3);
  const auto loss_at = [&](double distance) {
    const std::vector<double> before(net.parameters.begin() + static_cast<std::ptrdiff_t>(offset),
                                     net.parameters.begin() + static_cast<std::ptrdiff_t>(offset + count));
    for (std::size_t i = 0; i < count; ++i) net.parameters[offset + i] += distance * direction[i] / length;
    const Pass pass = net.pass(batch.input, with.keys ? batch.keys : Tensor{});
    net.forget();
    const double scale = 1.0 / static_cast<double>(with.batch * net.network->positions());
    const double loss = net.loss(pass, net.network->forward(pass), batch.y, scale, false);
    std::ranges::copy(before, net.parameters.begin() + static_cast<std::ptrdiff_t>(offset));
    return loss;
  };
  double expected = 0, size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    expected += gradients[offset + i] * direction[i] / length;
    size += gradients[offset + i] * gradients[offset + i];
  }
  const double slope = (loss_at(with.step) - loss_at(-with.step)) / (2 * with.step);
  EXPECT_NEAR(slope, expected, 1e-8 + 1e-6 * std::sqrt(size)) << what;
}

/// The network of a user's file.
NetworkOptions in_file(const std::string& network) {
  return {.name = "net.yaml",
          .source = std::make_shared<const NetworkKind>(read_network("name: n\nnetwork:\n" + network, "net.yaml"))};
}

/// A language model of gated recurrent units, with document token 3 if `separates`.
NetworkOptions gru_of_documents(bool separates = true) {
  NetworkOptions options{
      .name = "net.yaml",
      .source = std::make_shared<const NetworkKind>(
          read_network("name: n\nreads: tokens\nwindow: unroll\noptions: {unroll: 9}\nnetwork:\n"
                       "- embedding: {vocabulary: $vocabulary, width: 5}\n- gru: 4\n- gru: 6\n- dense: $vocabulary\n",
                       "net.yaml"))};
  options.values["unroll"] = std::int64_t{9};
  if (separates) options.values[std::string(kDocumentToken)] = std::int64_t{3};
  return options;
}

void PrintTo(const GradientCase& network, std::ostream* out) { *out << network.label; }

class WholeNetwork : public ::testing::TestWithParam<GradientCase> {
 protected:
  NetworkInDoubles make(std::int64_t max_batch) const {
    return {make_network(GetParam().options, GetParam().shape), max_batch};
  }
};

TEST_P(WholeNetwork, GradientsMatchFiniteDifferences) {
  NetworkInDoubles net =
      make(GetParam().batch + 1);  // a larger batch than needed: offsets must not depend on the batch
  const SampleBatch batch(GetParam().shape, GetParam().batch);
  step(net, GetParam(), batch, Accumulate::no);
  for (const Parameter& parameter : net.table().all()) {
    if (parameter.role == Role::statistic) continue;
    expect_slope(net, GetParam(), batch, net.gradients, parameter.offset, parameter.count, parameter.name);
  }
}

TEST_P(WholeNetwork, GradientsAreAddedWhereAsked) {
  NetworkInDoubles net = make(GetParam().batch);
  const SampleBatch batch(GetParam().shape, GetParam().batch);
  step(net, GetParam(), batch, Accumulate::no, 0.5);
  const std::vector<double> once = net.gradients;
  step(net, GetParam(), batch, Accumulate::yes, 0.5);
  for (const Parameter& parameter : net.table().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      ASSERT_NEAR(net.gradients[i], 2 * once[i], 1e-12 * (1 + std::abs(once[i]))) << parameter.name;
    }
  }
}

TEST_P(WholeNetwork, TellsWhichGradientsAreFinal) {
  NetworkInDoubles net = make(GetParam().batch);
  const SampleBatch batch(GetParam().shape, GetParam().batch);
  std::vector<double> told;
  step(net, GetParam(), batch, Accumulate::no, 1, [&](std::size_t end) {
    ASSERT_GT(end, told.size()) << "in ascending order";
    ASSERT_LE(end, net.gradients.size());
    told.insert(told.end(), net.gradients.begin() + static_cast<std::ptrdiff_t>(told.size()),
                net.gradients.begin() + static_cast<std::ptrdiff_t>(end));
  });
  EXPECT_EQ(told, net.gradients) << "what was told must not change afterwards, and all must have been told";
}

/// Freezes the lower or the upper part, or each third weight, together with its frozen_with partner.
TEST_P(WholeNetwork, GradientsOfTrainedOnesMatchFiniteDifferences) {
  const std::size_t all = make(1).table().all().size();
  const std::vector<std::pair<std::string, std::function<bool(std::size_t)>>> ways{
      {"lower half", [&](std::size_t i) { return i < all / 2; }},
      {"all but the last layer", [&](std::size_t i) { return i + 2 < all; }},
      {"upper half", [&](std::size_t i) { return i >= all / 2; }},
      {"each third", [](std::size_t i) { return i % 3 == 0; }},
      {"two of three", [](std::size_t i) { return i % 3 != 0; }}};
  for (const auto& [name, chosen] : ways) {
    SCOPED_TRACE(name);
    std::unique_ptr<Network> network = make_network(GetParam().options, GetParam().shape);
    std::vector<std::size_t> frozen;
    for (std::size_t i = 0; i < all; ++i) {
      if (chosen(network->parameters()[i].frozen_with.value_or(i))) frozen.push_back(i);
    }
    network->freeze(frozen);
    NetworkInDoubles net(std::move(network), GetParam().batch);
    const SampleBatch batch(GetParam().shape, GetParam().batch);
    std::size_t told = 0;
    step(net, GetParam(), batch, Accumulate::no, 1, [&](std::size_t end) {
      EXPECT_GE(end, told);
      told = end;
    });
    EXPECT_EQ(told, net.table().updated_elements());
    for (const Parameter& parameter : net.table().all()) {
      if (parameter.frozen) {
        ASSERT_GE(parameter.offset, net.table().updated_elements());
        EXPECT_EQ(net.gradients[parameter.offset], 7) << parameter.name << " has no gradient to be written";
      } else if (parameter.role == Role::weight) {
        expect_slope(net, GetParam(), batch, net.gradients, parameter.offset, parameter.count, parameter.name);
      }
    }
  }
}

TEST_P(WholeNetwork, ProductsMayMakeTheSumsBehindThem) {
  NetworkInDoubles net = make(GetParam().batch);
  const SampleBatch batch(GetParam().shape, GetParam().batch);
  const double loss = step(net, GetParam(), batch, Accumulate::no);
  const std::vector<double> gradients = net.gradients;
  net.backend = std::make_unique<ReferenceBackend>(true);
  EXPECT_NEAR(step(net, GetParam(), batch, Accumulate::no), loss, 1e-12);
  for (const Parameter& parameter : net.table().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      ASSERT_NEAR(net.gradients[i], gradients[i], 1e-12) << parameter.name;
    }
  }
}

TEST(Program, LeavesBothSumsOfABlockToProducts) {
  const auto sums_of = [](double dropout) {
    const GradientCase gpt{"gpt",
                           {.name = "gpt", .values = {{"layers", 3}, {"width", 8}, {"heads", 2}, {"dropout", dropout}}},
                           tokens(5, 7)};
    NetworkInDoubles net(make_network(gpt.options, gpt.shape), gpt.batch);
    auto backend = std::make_unique<ReferenceBackend>(true);
    const ReferenceBackend& made = *backend;
    net.backend = std::move(backend);
    step(net, gpt, SampleBatch(gpt.shape, gpt.batch), Accumulate::no);
    return made.sums_in_products;
  };
  EXPECT_EQ(sums_of(0), 6);
  EXPECT_EQ(sums_of(0.5), 0) << "what is dropped is not the product";
}

/// Not for batch norm, which mixes samples.
TEST_P(WholeNetwork, TwoHalvesAreOneBatch) {
  NetworkInDoubles net = make(GetParam().batch);
  if (net.table().arena_elements() > net.table().trained_elements()) return;
  const std::int64_t first = GetParam().batch / 2;
  const double loss = step(net, GetParam(), SampleBatch(GetParam().shape, GetParam().batch), Accumulate::no);
  const std::vector<double> whole = net.gradients;
  const double halves =
      step(net, GetParam(), SampleBatch(GetParam().shape, first), Accumulate::no) +
      step(net, GetParam(), SampleBatch(GetParam().shape, GetParam().batch - first, first), Accumulate::yes);
  EXPECT_NEAR(halves, loss, 1e-12);
  for (const Parameter& parameter : net.table().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      ASSERT_NEAR(net.gradients[i], whole[i], 1e-12) << parameter.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, WholeNetwork,
    ::testing::Values(
        GradientCase{"cnn", {.name = "cnn"}, images(5, 6, 2, 3)},
        GradientCase{"cnn_tanh", {.name = "cnn", .values = {{"activation", "tanh"}}}, images(4, 3, 1, 2), 3},
        GradientCase{"mlp_gelu_dropout",
                     {.name = "mlp", .values = {{"hidden", Numbers{7, 6}}, {"activation", "gelu"}, {"dropout", 0.3}}},
                     {.features = 5, .outputs = 3},
                     4,
                     true},
        GradientCase{"mlp_without_keys",
                     {.name = "mlp", .values = {{"hidden", Numbers{7}}, {"activation", "tanh"}, {"dropout", 0.3}}},
                     {.features = 5, .outputs = 3},
                     4},
        GradientCase{"cnn_gelu_dropout",
                     {.name = "cnn", .values = {{"activation", "gelu"}, {"dropout", 0.3}}},
                     images(4, 3, 1, 2),
                     3,
                     true},
        GradientCase{
            "resnet_20", {.name = "resnet", .values = {{"depth", 20}}}, images(8, 7, 2, 3), 3, false, kShortStep},
        GradientCase{
            "concatenated_numbers",
            in_file("- parallel: [[dense: 4, tanh], [dense: 3], [dense: 5, silu]]\n"
                    "- concatenate: [input]\n- dense: 6\n- residual: [dense: 6, sigmoid]\n- dense: $outputs\n"),
            {.features = 5, .outputs = 3},
            4},
        GradientCase{"concatenated_images",
                     in_file("- conv: {channels: 3, kernel: 3, activation: tanh, name: level}\n"
                             "- conv: {channels: 2, kernel: 3, norm: batch, activation: silu}\n- concatenate: [level]\n"
                             "- residual: {layers: [conv: {channels: 4, kernel: 1, norm: batch}], shortcut: [conv: "
                             "{channels: 4, kernel: 1}]}\n- global-average\n- dense: $outputs\n"),
                     images(5, 4, 2, 3), 3},
        GradientCase{"lstm", {.name = "lstm", .values = {{"hidden", Numbers{5}}}}, tokens(4, 7), 3},
        GradientCase{"lstm_tied",
                     {.name = "lstm", .values = {{"hidden", Numbers{5}}, {"layers", 1}, {"tied", true}}},
                     tokens(3, 7)},
        GradientCase{"lstm_dropout",
                     {.name = "lstm", .values = {{"hidden", Numbers{6}}, {"layers", 3}, {"dropout", 0.3}}},
                     tokens(4, 7),
                     3,
                     true},
        GradientCase{"lstm_dropout_tied",
                     {.name = "lstm", .values = {{"hidden", Numbers{6}}, {"dropout", 0.5}, {"tied", true}}},
                     tokens(4, 7),
                     2,
                     true},
        GradientCase{"gpt", {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}}}, tokens(5, 7), 3},
        GradientCase{"gpt_untied",
                     {.name = "gpt", .values = {{"layers", 1}, {"width", 6}, {"heads", 3}, {"tied", false}}},
                     tokens(4, 7)},
        GradientCase{"gpt_dropout",
                     {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}, {"dropout", 0.3}}},
                     tokens(5, 7),
                     2,
                     true},
        GradientCase{"gpt_documents",
                     {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}, {"document-token", 3}}},
                     tokens(9, 4),
                     3},
        GradientCase{"lstm_documents",
                     {.name = "lstm", .values = {{"hidden", Numbers{5}}, {"dropout", 0.3}, {"document-token", 3}}},
                     tokens(9, 4),
                     3,
                     true},
        GradientCase{"gru_documents", gru_of_documents(), tokens(9, 4), 3}),
    [](const auto& network) { return network.param.label; });

/// The outputs for a window of one sample.
std::vector<double> outputs_of(NetworkInDoubles& net, std::vector<std::int32_t> window) {
  const Tensor input{window.data(), ElementType::int32, 1, static_cast<std::int64_t>(window.size())};
  net.forget();
  const Tensor output = net.network->forward(net.pass(input));
  const auto all = output.elements<double>();
  return {all.begin(), all.end()};
}

TEST(Documents, AreSeenApartByAllThatMixesPositions) {
  const auto gpt = [](bool separates) {
    NetworkOptions options{.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}}};
    if (separates) options.values[std::string(kDocumentToken)] = std::int64_t{3};
    return options;
  };
  const auto lstm = [](bool separates) {
    NetworkOptions options{.name = "lstm", .values = {{"hidden", Numbers{5}}}};
    if (separates) options.values[std::string(kDocumentToken)] = std::int64_t{3};
    return options;
  };
  const std::vector<std::int32_t> rest{0, 2, 1}, first{3, 1, 1, 2},
      second{3, 0};  // the end of a document, and two whole documents
  for (const auto& options : std::vector<std::function<NetworkOptions(bool)>>{gpt, lstm, gru_of_documents}) {
    for (const bool separates : {true, false}) {
      NetworkInDoubles net(make_network(options(separates), tokens(9, 4)), 1);
      std::vector<std::int32_t> window(rest);
      window.insert(window.end(), first.begin(), first.end());
      window.insert(window.end(), second.begin(), second.end());
      const std::vector<double> together = outputs_of(net, window);
      double furthest = 0;
      std::size_t begin = 0;
      for (std::vector<std::int32_t> alone : {rest, first, second}) {
        const std::size_t count = alone.size() * 4;
        alone.resize(9, 1);  // nothing looks ahead
        const std::vector<double> apart = outputs_of(net, alone);
        for (std::size_t i = 0; i < count; ++i) furthest = std::max(furthest, std::abs(together[begin + i] - apart[i]));
        begin += count;
      }
      EXPECT_EQ(begin, together.size());
      if (separates) {
        EXPECT_LT(furthest, 1e-12);
      } else {
        EXPECT_GT(furthest, 1e-3) << "documents do not matter: nothing is tested";
      }
    }
  }
}

/// Series of up to 5 steps of 3 numbers, with lengths, through all operations that ignore padding.
TEST(Lengths, LeavePaddingOut) {
  const NetworkOptions options{
      .name = "net.yaml",
      .source = std::make_shared<const NetworkKind>(read_network(
          "name: n\ninputs: {series: [any, any], length: [any]}\nnetwork:\n"
          "- lstm: {from: series, units: 4, direction: both, lengths: length, name: first}\n- dense: {units: 12}\n"
          "- attention: {heads: 2, causal: no, lengths: length, name: seen}\n"
          "- gru: {from: first, units: 3, direction: both, lengths: length, name: steps}\n"
          "- mean: {axis: 0, from: seen, lengths: length, name: mean}\n"
          "- global-max: {from: seen, lengths: length, name: most}\n"
          "- global-average: {from: steps, lengths: length, name: average}\n"
          "- gru: {from: seen, units: 2, direction: both, steps: last, lengths: length, name: second}\n"
          "- lstm: {from: steps, units: 3, steps: last, lengths: length, name: third}\n"
          "- concatenate: {from: [mean, most, average, second, third]}\n- dense: $outputs\n",
          "net.yaml"))};
  const SampleShape shape{.features = 16, .outputs = 3, .inputs = {{"series", {5, 3}}, {"length", {}}}};
  NetworkInDoubles net(make_network(options, shape), 6);
  std::vector<double> x = test::samples<double>("x", 6 * 16);
  const std::vector<double> lengths{0, 1, 3, 5, 4, 2};
  for (std::size_t s = 0; s < 6; ++s) x[s * 16 + 15] = lengths[s];
  std::vector<std::int32_t> answers{0, 1, 2, 0, 1, 2};
  const auto loss_at = [&](bool back) {
    Pass pass = net.pass(test::view(x, 6, 16));
    pass.samples = pass.input;
    const Tensor output = net.network->forward(pass);
    const double loss = net.loss(pass, output, test::view(answers, 6, 1), 1.0 / 6, back);
    if (back) net.network->backward(pass, Accumulate::no, [](std::size_t) {});
    return loss;
  };
  const double loss = loss_at(true);
  const std::vector<double> gradients = net.gradients;
  for (std::size_t s = 0; s < 6; ++s) {
    for (std::size_t i = static_cast<std::size_t>(lengths[s]) * 3; i < 15; ++i) x[s * 16 + i] = 100;
  }
  EXPECT_NEAR(loss_at(true), loss, 1e-13) << "padding is seen";
  for (std::size_t i = 0; i < gradients.size(); ++i) ASSERT_NEAR(net.gradients[i], gradients[i], 1e-13) << i;
  for (const Parameter& parameter : net.table().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      const double slope = test::central_difference(net.parameters[i], [&] { return loss_at(false); });
      EXPECT_NEAR(slope, gradients[i], 1e-8) << parameter.name;
    }
  }
}

/// The checker itself detects a slightly wrong gradient.
TEST(WholeNetworkCheck, Fires) {
  const GradientCase with{"lstm", {.name = "lstm", .values = {{"hidden", Numbers{5}}}}, tokens(4, 7), 3};
  NetworkInDoubles net(make_network(with.options, with.shape), with.batch);
  const SampleBatch batch(with.shape, with.batch);
  step(net, with, batch, Accumulate::no);
  const Parameter& parameter = net.table()[1];
  net.gradients[parameter.offset + 3] += 1e-3;
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter listen(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    expect_slope(net, with, batch, net.gradients, parameter.offset, parameter.count, parameter.name);
  }
  EXPECT_EQ(results.size(), 1);
}

/// Stem, pool, and blocks with projections. Moves all parameters in one direction.
TEST(DeepResNet, GradientMatchesFiniteDifferences) {
  for (const std::int64_t depth : {18, 50}) {
    SCOPED_TRACE(depth);
    const GradientCase with{"",        {.name = "resnet", .values = {{"depth", depth}}}, images(33, 3, 1, 3), 2, false,
                            kShortStep};
    NetworkInDoubles net(make_network(with.options, with.shape), with.batch);
    const SampleBatch batch(with.shape, with.batch);
    step(net, with, batch, Accumulate::no);
    expect_slope(net, with, batch, net.gradients, 0, net.table().trained_elements(), "all");
  }
}

}  // namespace
}  // namespace lockstep::model
