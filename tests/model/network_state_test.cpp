// State of networks besides weights: the state that an LSTM carries from window to window, running statistics of batch
// norm, and statistics over several ranks. Also dropout, which must not depend on a sample's position in the batch.
#include <barrier>
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "network_harness.hpp"

namespace lockstep::model {
namespace {

using test::images;
using test::NetworkInDoubles;
using test::SampleBatch;
using test::tokens;
using test::view;

std::vector<double> copy_of(const Tensor& tensor) {
  const auto elements = tensor.elements<double>();
  return {elements.begin(), elements.end()};
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance, std::string_view what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << " " << i;
}

NetworkInDoubles lstm(std::int64_t context, std::int64_t sequences, double dropout = 0) {
  return {make_network({.name = "lstm", .values = {{"hidden", Numbers{5}}, {"dropout", dropout}}}, tokens(context, 7)),
          sequences};
}

/// Returns the logits of consecutive windows of the sequences: [sequence][position][token].
std::vector<std::vector<double>> logits(NetworkInDoubles& net, std::vector<std::vector<std::int32_t>> sequences,
                                        bool training) {
  const std::int64_t context = net.network->positions(), count = static_cast<std::int64_t>(sequences.size());
  std::vector<std::vector<double>> result(sequences.size());
  net.forget();
  for (std::size_t begin = 0; begin < sequences[0].size(); begin += static_cast<std::size_t>(context)) {
    std::vector<std::int32_t> window;
    for (const auto& sequence : sequences) {
      const auto from = sequence.begin() + static_cast<std::ptrdiff_t>(begin);
      window.insert(window.end(), from, from + context);
    }
    Pass pass = net.pass(view(window, count, context));
    pass.training = training;
    const std::vector<double> output = copy_of(net.network->forward(pass));
    for (std::size_t row = 0; row < output.size() / 7; ++row) {  // time-major
      auto& sequence = result[row % sequences.size()];
      sequence.insert(sequence.end(), output.begin() + static_cast<std::ptrdiff_t>(7 * row),
                      output.begin() + static_cast<std::ptrdiff_t>(7 * (row + 1)));
    }
  }
  return result;
}

TEST(LstmState, WindowsGoOnWhereTheLastOnesEnded) {
  const std::vector<std::vector<std::int32_t>> sequences{test::labels(12, 7), {1, 6, 2, 0, 5, 3, 4, 4, 1, 0, 2, 6}};
  NetworkInDoubles long_windows = lstm(12, 2), short_windows = lstm(4, 3);
  for (const bool training : {false, true}) {
    const auto whole = logits(long_windows, sequences, training), parts = logits(short_windows, sequences, training);
    for (std::size_t sequence = 0; sequence < 2; ++sequence)
      expect_near(parts[sequence], whole[sequence], 1e-14, "sequence");
  }
  NetworkInDoubles forgetful = lstm(4, 2);
  const std::vector<std::vector<std::int32_t>> end{{sequences[0].begin() + 8, sequences[0].end()}};
  EXPECT_GT(std::abs(logits(forgetful, end, false)[0][3] - logits(long_windows, sequences, false)[0][8 * 7 + 3]), 1e-6)
      << "the state must matter for this test to say anything";
}

TEST(LstmState, EachMicroBatchHasItsOwnLanes) {
  NetworkInDoubles net = lstm(4, 3);
  const SampleBatch all(net.network->sample_shape(), 3), next(net.network->sample_shape(), 3, 3);
  const auto run = [&](const SampleBatch& batch, std::int64_t first, std::int64_t count) {
    Pass pass = net.pass(batch.input.row_range(first, count));
    pass.memory.first_sequence = first;
    return copy_of(net.network->forward(pass));
  };
  net.forget();
  run(all, 0, 3);
  const std::vector<double> whole = run(next, 0, 3);
  net.forget();
  run(all, 0, 1);
  run(all, 1, 2);
  const std::vector<double> first = run(next, 0, 1), others = run(next, 1, 2);
  for (std::size_t step = 0; step < 4; ++step) {
    for (std::size_t sequence = 0; sequence < 3; ++sequence) {
      const double* part = sequence == 0 ? &first[step * 7] : &others[(step * 2 + sequence - 1) * 7];
      for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(part[i], whole[(step * 3 + sequence) * 7 + i], 1e-14);
    }
  }
}

/// Rows are time-major inside the network, and the targets must match.
TEST(LstmState, LossOfABatchIsThatOfItsSamples) {
  NetworkInDoubles net = lstm(4, 3);
  const SampleShape& shape = net.network->sample_shape();
  const auto loss = [&](std::int64_t count, std::int64_t first) {
    const SampleBatch batch(shape, count, first);
    const Pass pass = net.pass(batch.input);
    net.forget();
    return net.loss(pass, net.network->forward(pass), batch.y, 1, false);
  };
  EXPECT_NEAR(loss(3, 0), loss(1, 0) + loss(1, 1) + loss(1, 2), 1e-12);
}

class DropoutPlaces : public ::testing::TestWithParam<const char*> {};

TEST_P(DropoutPlaces, FollowTheSamplesWhereverTheyAre) {
  NetworkOptions options{.name = GetParam(), .values = {{"layers", 2}, {"dropout", 0.4}}};
  if (options.name == "lstm") options.values["hidden"] = Numbers{6};
  if (options.name == "gpt") options.values["width"] = 8;
  NetworkInDoubles net(make_network(options, tokens(4, 7)), 4);
  const auto loss = [&](std::int64_t count, std::int64_t first, bool keys) {
    const SampleBatch batch(net.network->sample_shape(), count, first);
    const Pass pass = net.pass(batch.input, keys ? batch.keys : Tensor{});
    net.forget();
    return net.loss(pass, net.network->forward(pass), batch.y, 1, false);
  };
  EXPECT_NEAR(loss(4, 0, true), loss(1, 0, true) + loss(2, 1, true) + loss(1, 3, true), 1e-12);
  EXPECT_GT(std::abs(loss(4, 0, true) - loss(4, 0, false)), 1e-6) << "without keys nothing is dropped";
}

INSTANTIATE_TEST_SUITE_P(Networks, DropoutPlaces, ::testing::Values("lstm", "gpt"),
                         [](const auto& name) { return std::string(name.param); });

constexpr ImageShape kImage{2, 3, 2};

/// One batch norm with a relu. below: with a convolution before it, whose gradient goes through the norm. The network's
/// outputs are the features.
NetworkInDoubles norm(bool synchronize, bool below = false) {
  Description description{.input_shape = Shape(kImage), .calls = {}};
  if (below) {
    description.calls.push_back(
        {.kind = "conv", .name = "below", .arguments = {{"channels", kImage.channels}, {"kernel", Numbers{1}}}});
  }
  description.calls.push_back(
      {.kind = "batch-norm", .name = "norm", .arguments = {{"relu", true}, {"synchronize", synchronize}}});
  const SampleShape shape{.features = kImage.elements(), .outputs = kImage.elements(), .image = kImage};
  return {std::make_unique<Network>(description, shape, "norm"), 5};
}

struct NormResult {
  std::vector<double> y, gradients;
};

/// Runs forward, and backward with a gradient that depends on the sample by a formula.
NormResult pass_through_norm(NetworkInDoubles& net, const std::vector<double>& x, std::int64_t first, double share,
                             const SumOverRanks* sum_over_ranks, Accumulate accumulate = Accumulate::no) {
  const std::int64_t features = kImage.elements(), count = static_cast<std::int64_t>(x.size()) / features;
  std::vector<double> input = x;
  Pass pass = net.pass(view(input, count, features));
  pass.share = share;
  pass.sum_over_ranks = sum_over_ranks;
  const Tensor y = net.network->forward(pass);
  NormResult result{.y = copy_of(y), .gradients = {}};
  for (std::size_t i = 0; i < input.size(); ++i) {
    y.elements<double>()[i] = test::sample("d_y", static_cast<std::size_t>(first * features) + i);
  }
  net.network->backward(pass, accumulate, {});
  result.gradients = net.gradients;
  return result;
}

std::vector<double> batch_of(std::int64_t count) {
  return test::samples<double>("images", count * kImage.elements(), 2);
}

double gradient(const NetworkInDoubles& net, const NormResult& result, std::string_view name, std::size_t channel) {
  for (const Parameter& parameter : net.table().all()) {
    if (parameter.name == name) return result.gradients[parameter.offset + channel];
  }
  return std::nan("");
}

TEST(RunningStatistics, AreMeanAndUnbiasedVarianceTimesTheShare) {
  NetworkInDoubles net = norm(false);
  const std::vector<double> x = batch_of(4);
  const NormResult result = pass_through_norm(net, x, 0, 0.25, nullptr);
  for (std::size_t channel = 0; channel < 2; ++channel) {
    double mean = 0, variance = 0;
    const double count = static_cast<double>(x.size()) / 2;
    for (std::size_t i = channel; i < x.size(); i += 2) mean += x[i] / count;
    for (std::size_t i = channel; i < x.size(); i += 2) variance += (x[i] - mean) * (x[i] - mean) / (count - 1);
    EXPECT_NEAR(gradient(net, result, "norm/running_mean", channel), 0.25 * mean, 1e-14);
    EXPECT_NEAR(gradient(net, result, "norm/running_variance", channel), 0.25 * variance, 1e-14);
  }
  const NormResult again = pass_through_norm(net, x, 0, 0.5, nullptr, Accumulate::yes);
  EXPECT_NEAR(gradient(net, again, "norm/running_mean", 1), 3 * gradient(net, result, "norm/running_mean", 1), 1e-14);
}

TEST(RunningStatistics, AreWhatEvaluationNormalisesWith) {
  NetworkInDoubles net = norm(false);
  std::vector<double> x = batch_of(3);
  const Pass pass = net.pass(view(x, 3, kImage.elements()), {}, Purpose::evaluation);
  const std::vector<double> y = copy_of(net.network->forward(pass));
  const auto parameter = [&](std::string_view name, std::size_t channel) {
    for (const Parameter& each : net.table().all()) {
      if (each.name == name) return net.parameters[each.offset + channel];
    }
    return std::nan("");
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % 2;
    const double normal = (x[i] - parameter("norm/running_mean", c)) /
                          std::sqrt(parameter("norm/running_variance", c) + static_cast<double>(1e-5f));
    EXPECT_NEAR(y[i], std::max(0.0, parameter("norm/scale", c) * normal + parameter("norm/shift", c)), 1e-14);
  }
  EXPECT_NE(y, pass_through_norm(net, x, 0, 1, nullptr).y);
}

/// Ranks are threads, each with a network. One rank has no samples.
/// Returns the gradients of the running statistics after batches of `samples` numbers for each of two channels.
std::vector<double> statistics_of(NetworkInDoubles& net, std::int64_t samples, double share,
                                  const SumOverRanks* sum_over_ranks = nullptr,
                                  Accumulate accumulate = Accumulate::no) {
  std::vector<double> x = test::samples<double>("numbers", 2 * samples, 2);
  Pass pass = net.pass(view(x, samples, 2));
  pass.share = share;
  pass.sum_over_ranks = sum_over_ranks;
  net.network->forward(pass);
  net.network->backward(pass, accumulate, {});
  std::vector<double> result;
  for (const char* name : {"norm/running_mean", "norm/running_variance"}) {
    for (const std::size_t channel : {0U, 1U})
      result.push_back(gradient(net, {.y = {}, .gradients = net.gradients}, name, channel));
  }
  return result;
}

TEST(RunningStatistics, LeaveOutABatchOfOneValuePerChannel) {
  for (const bool synchronize : {false, true}) {
    Description description{.input_shape = {2}, .calls = {}};
    description.calls.push_back({.kind = "batch-norm", .name = "norm", .arguments = {{"synchronize", synchronize}}});
    NetworkInDoubles net(std::make_unique<Network>(description, SampleShape{.features = 2, .outputs = 2}, "norm"), 2);
    const auto running = [&](double share) {
      std::vector<double> result;
      for (const char* name : {"norm/running_mean", "norm/running_variance"}) {
        for (const std::size_t channel : {0U, 1U}) {
          result.push_back(share * gradient(net, {.y = {}, .gradients = net.parameters}, name, channel));
        }
      }
      return result;
    };
    EXPECT_EQ(statistics_of(net, 1, 0.25), running(0.25));
    EXPECT_EQ(statistics_of(net, 1, 0.5, nullptr, Accumulate::yes), running(0.75));
    EXPECT_NE(statistics_of(net, 2, 1), running(1));
    if (!synchronize) continue;
    const SumOverRanks nothing_from_others = [](const Tensor&) {};
    const SumOverRanks the_same_from_another = [](const Tensor& sums) {
      for (double& each : sums.elements<double>()) each *= 2;
    };
    EXPECT_EQ(statistics_of(net, 1, 1, &nothing_from_others), running(1));
    EXPECT_NE(statistics_of(net, 1, 0.5, &the_same_from_another), running(0.5));
  }
}

TEST(SynchronizedBatchNorm, ManyRanksAreOneBatch) {
  const std::vector<std::int64_t> counts{2, 0, 3};
  const std::int64_t features = kImage.elements();
  const std::vector<double> x = batch_of(5);
  NetworkInDoubles whole = norm(true, true);
  const NormResult expected = pass_through_norm(whole, x, 0, 1, nullptr);

  std::barrier meeting(static_cast<std::ptrdiff_t>(counts.size()));
  std::vector<std::vector<double>> offered(counts.size());
  std::vector<NormResult> results(counts.size());
  std::vector<int> meetings(counts.size());
  const auto run = [&](std::size_t rank) {
    const SumOverRanks sum_over_ranks = [&](const Tensor& sums) {
      const auto own = sums.elements<double>();
      offered[rank].assign(own.begin(), own.end());
      meeting.arrive_and_wait();
      std::ranges::fill(own, 0.0);
      for (const auto& other : offered) {
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += other.at(i);
      }
      meeting.arrive_and_wait();
      ++meetings[rank];
    };
    std::int64_t first = 0;
    for (std::size_t r = 0; r < rank; ++r) first += counts[r];
    NetworkInDoubles net = norm(true, true);
    const std::vector<double> part(x.begin() + first * features, x.begin() + (first + counts[rank]) * features);
    results[rank] = pass_through_norm(net, part, first, static_cast<double>(counts[rank]) / 5, &sum_over_ranks);
  };
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) ranks.emplace_back(run, rank);
  }
  std::vector<double> y, gradients(expected.gradients.size());
  for (const NormResult& result : results) {
    y.insert(y.end(), result.y.begin(), result.y.end());
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] += result.gradients[i];
  }
  expect_near(y, expected.y, 1e-13, "y");
  expect_near(gradients, expected.gradients, 1e-12, "gradients");
  EXPECT_EQ(meetings, std::vector<int>(counts.size(), 2)) << "one sum forward and one backward on each rank";
}

TEST(SynchronizedBatchNorm, AsksNobodyUnlessAskedTo) {
  const SumOverRanks never = [](const Tensor&) { FAIL() << "no sum over ranks is wanted here"; };
  NetworkInDoubles alone = norm(false), together = norm(true);
  std::vector<double> x = batch_of(2);
  pass_through_norm(alone, x, 0, 1, &never);
  Pass pass = together.pass(view(x, 2, kImage.elements()), {}, Purpose::evaluation);
  pass.sum_over_ranks = &never;
  together.network->forward(pass);
  EXPECT_TRUE(
      make_network({.name = "resnet", .values = {{"sync-batch-norm", true}}}, images(8, 8, 3, 2))->synchronizes());
  EXPECT_FALSE(make_network({.name = "resnet"}, images(8, 8, 3, 2))->synchronizes());
}

/// After a NaN the message names the first layer that has one.
TEST(FirstNotFinite, NamesTheLayer) {
  const auto named = [](const NetworkOptions& options, const SampleShape& shape, std::string_view parameter) {
    NetworkInDoubles net(make_network(options, shape), 2);
    const SampleBatch batch(shape, 2);
    Pass pass = net.pass(batch.input);
    net.forget();
    std::string first;
    const AfterCall check = [&](const CallResult& call) {
      const auto finite = [](double value) { return std::isfinite(value); };
      if (first.empty() && !std::ranges::all_of(copy_of(call.output), finite)) first = call.name;
    };
    pass.after_call = &check;
    net.network->forward(pass);
    EXPECT_EQ(first, "");
    for (const Parameter& each : net.table().all()) {
      if (each.name == parameter) net.parameters[each.offset] = std::nan("");
    }
    net.network->forward(pass);
    return first;
  };
  EXPECT_EQ(named({.name = "cnn"}, images(4, 4, 2, 3), "dense_2/bias"), "dense_2");
  EXPECT_EQ(named({.name = "resnet"}, images(8, 8, 2, 3), "stage_2/block_1/conv_1/weight"), "stage_2/block_1/conv_1");
  EXPECT_EQ(named({.name = "resnet"}, images(8, 8, 2, 3), "stem/norm/shift"), "stem/norm");
  EXPECT_EQ(named({.name = "lstm", .values = {{"hidden", Numbers{5}}}}, tokens(4, 7), "lstm_2/input"), "lstm_2");
  EXPECT_EQ(
      named({.name = "gpt", .values = {{"layers", 2}, {"width", 8}}}, tokens(4, 7), "block_2/attention/joint/bias"),
      "block_2/attention/joint");
  EXPECT_EQ(
      named({.name = "gpt", .values = {{"layers", 2}, {"width", 8}}}, tokens(4, 7), "block_2/feed_forward/expand/bias"),
      "block_2/feed_forward/expand")
      << "a part of what is one operation";
  EXPECT_EQ(named({.name = "gpt", .values = {{"layers", 2}, {"width", 8}}}, tokens(4, 7), "norm/shift"), "norm");
}

}  // namespace
}  // namespace lockstep::model
