// Trains on the GPU and on the CPU from the same weights, through the same batches: the same losses, up to the
// precision's rounding, and state that travels between the two.
#include "model/training/training.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/operation_networks.hpp"

namespace lockstep::model::test {
namespace {

using Floats = std::vector<float>;

constexpr int kSteps = 20;

struct Workload {
  std::string name;
  NetworkOptions network = {};
  SampleShape shape;
  LossKind loss;
  OptimizerOptions optimizer;
  double learning_rate;
  std::int64_t batch;
  int accumulate = 1;
  std::optional<Augmentation> augmentation = {};
  float smoothing = 0;
  std::function<bool(const Parameter&, std::size_t)> frozen = {};  ///< by the parameter and its index
  std::optional<Description> description = {};                     ///< instead of `network`
};

std::vector<Workload> workloads() {
  const bool quick = subject().quick;
  return {{.name = "784-100-10, adam",
           .network = {.values = {{"hidden", Numbers{100}}}},
           .shape = {.features = 784, .outputs = 10},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::adam},
           .learning_rate = 0.001,
           .batch = 100},
          {.name = "600-512-128-128-1, momentum, L2, clipped norm, average",
           .network = {.values = {{"hidden", Numbers{512, 128, 128}}}},
           .shape = {.features = 600, .outputs = 1},
           .loss = LossKind::mean_squared_error,
           .optimizer = {.kind = OptimizerKind::momentum, .l2 = 1e-3, .clip_norm = 1, .average_decay = 0.9},
           .learning_rate = 0.01,
           .batch = quick ? 60 : 2000},
          {.name = "31-33-17-7, sigmoid, nesterov, decay, clipped values, two micro-steps",
           .network = {.values = {{"hidden", Numbers{33, 17}}, {"activation", "sigmoid"}}},
           .shape = {.features = 31, .outputs = 7},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::nesterov, .weight_decay = 0.01, .clip_value = 0.05},
           .learning_rate = 0.2,
           .batch = 57,
           .accumulate = 2},
          {.name = "100-64-5, tanh, adamw",
           .network = {.values = {{"hidden", Numbers{64}}, {"activation", "tanh"}}},
           .shape = {.features = 100, .outputs = 5},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::adamw, .weight_decay = 0.01},
           .learning_rate = 0.001,
           .batch = 129},
          {.name = "cnn, crops and flips of 16 x 16 images, L2, average",
           .network = {.name = "cnn"},
           .shape = {.features = 12 * 12 * 3, .outputs = 10, .image = ImageShape{12, 12, 3}},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::sgd, .l2 = 0.004, .average_decay = 0.9},
           .learning_rate = 0.05,
           .batch = 12,
           .augmentation = Augmentation{.in = {16, 16, 3}, .out = {12, 12, 3}, .flip = true, .per_image = true}},
          {.name = "resnet of depth 20, 8 x 8 images, lars, smoothed labels, two micro-steps",
           .network = {.name = "resnet", .values = {{"depth", 20}}},
           .shape = {.features = 8 * 8 * 3, .outputs = 10, .image = ImageShape{8, 8, 3}},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::lars, .weight_decay = 1e-4, .trust = 0.02},
           .learning_rate = 0.2,
           .batch = 16,
           .accumulate = 2,
           .smoothing = 0.1f},
          {.name = "lstm, 2 x 48, dropout, state carried on, clipped norm",
           .network = {.name = "lstm", .values = {{"hidden", Numbers{48}}, {"layers", 2}, {"dropout", 0.2}}},
           .shape = {.features = 9, .outputs = 5, .tokens = true},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::sgd, .clip_norm = 1},
           .learning_rate = 1,
           .batch = 13},
          {.name = "gpt, 2 x 64, dropout, lamb",
           .network = {.name = "gpt", .values = {{"layers", 2}, {"width", 64}, {"heads", 2}, {"dropout", 0.1}}},
           .shape = {.features = 20, .outputs = 37, .tokens = true},
           .loss = LossKind::softmax_cross_entropy,
           .optimizer = {.kind = OptimizerKind::lamb, .weight_decay = 0.1, .clip_norm = 1},
           .learning_rate = 0.002,
           .batch = 6}};
}

/// Samples with a learnable structure, the same for both sides.
class Samples {
 public:
  Samples(const Workload& workload, Random& random) : workload_(workload) {
    const std::int64_t count = workload.batch * kBatches, features = stored_features(workload);
    for (std::int64_t b = 0; b < count; ++b) keys_.push_back(random.generator()());
    if (workload.shape.tokens) {
      make_text(count, random);
      return;
    }
    const Floats centres = random.numbers(workload.shape.outputs * features);
    labels_ = random.labels(count, workload.shape.outputs);
    x_ = random.numbers(count * features);
    for (std::int64_t b = 0; b < count; ++b) {
      double sum = 0;
      for (std::int64_t i = 0; i < features; ++i) {
        float& value = x_[static_cast<std::size_t>(b * features + i)];
        const std::int64_t first = labels_[static_cast<std::size_t>(b)] * features;
        if (workload.shape.image) {  // a colour of its own for each class, which survives crops and flips
          value += centres[static_cast<std::size_t>(first + i % workload.shape.image->channels)];
        } else {
          value += 0.3f * centres[static_cast<std::size_t>(first + i)];
        }
        sum += static_cast<double>(value * centres[static_cast<std::size_t>(i)]);
      }
      targets_.push_back(static_cast<float>(1 + std::tanh(sum / 10)));
    }
  }
  /// Every third batch has fewer samples.
  Batch batch(int number) const {
    const std::int64_t first = number % kBatches * workload_.batch, context = workload_.shape.features;
    const std::int64_t count = number % 3 == 2 ? workload_.batch - 1 : workload_.batch;
    if (workload_.shape.tokens) {
      return {.x = host_tensor(tokens_.data() + first * context, count, context),
              .y = host_tensor(labels_.data() + first * context, count, context),
              .keys = host_tensor(keys_.data() + first, count, 1),
              .begins = number % 4 == 0};
    }
    const std::int64_t features = stored_features(workload_);
    return {.x = host_tensor(x_.data() + first * features, count, features),
            .y = workload_.loss == LossKind::softmax_cross_entropy ? host_tensor(labels_.data() + first, count, 1)
                                                                   : host_tensor(targets_.data() + first, count, 1),
            .keys = host_tensor(keys_.data() + first, count, 1)};
  }

 private:
  static std::int64_t stored_features(const Workload& workload) {
    return workload.augmentation ? workload.augmentation->in.elements() : workload.shape.features;
  }
  /// Each token follows from the preceding one.
  void make_text(std::int64_t count, Random& random) {
    const std::int64_t context = workload_.shape.features, words = workload_.shape.outputs;
    tokens_ = random.labels(count * context, words);
    labels_ = tokens_;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (i % static_cast<std::size_t>(context) != 0) tokens_[i] = labels_[i - 1];
      labels_[i] = static_cast<std::int32_t>((5 * tokens_[i] + 3) % words);
    }
  }

  static constexpr int kBatches = 5;
  const Workload& workload_;
  Floats x_;
  std::vector<std::int32_t> labels_, tokens_;
  Floats targets_;
  std::vector<std::uint64_t> keys_;
};

/// One side: a backend, a network and its model, and the trainer's step.
class Side {
 public:
  /// `weights`: initial ones, taken from another side; empty: the network's own.
  Side(std::unique_ptr<Backend> backend, const Workload& workload, std::vector<Slice> owned = {},
       std::span<const float> weights = {})
      : workload_(workload),
        backend_(std::move(backend)),
        network_(make_frozen(workload)),
        training_(*backend_, *network_,
                  {.loss = workload.loss,
                   .input_transform = {0.5f, 0.1f},
                   .augmentation = workload.augmentation,
                   .label_smoothing = workload.smoothing,
                   .max_batch = workload.batch,
                   .sample_type = workload.shape.tokens ? ElementType::int32 : ElementType::float32},
                  {.optimizer = workload.optimizer, .owned = std::move(owned)}) {
    if (weights.empty()) {
      training_.parameters.initialize(5);
      return;
    }
    training_.parameters.upload_group("parameters", weights);
    training_.parameters.reset_optimizer_state();
  }

  model::Training& training() { return training_; }

  StepStatus step(int number, const Samples& samples) {
    std::int64_t count = 0;
    for (int micro = 0; micro < workload_.accumulate; ++micro) {
      count += samples.batch(number * workload_.accumulate + micro).count();
    }
    for (int micro = 0; micro < workload_.accumulate; ++micro) {
      const Batch batch = samples.batch(number * workload_.accumulate + micro);
      step_on(batch, number, count, micro == 0, micro + 1 == workload_.accumulate);
    }
    backend_->synchronize();
    StepStatus status = training_.status.posted();
    status.loss = seen(std::vector<double>{status.loss})[0];
    return status;
  }

  void step_on(const Batch& batch, int number, std::int64_t count, bool first, bool last) {
    training_.model.wait_staged();
    training_.model.stage(batch);
    if (last) {
      training_.status.write({});
      training_.optimizer.prepare(update_rule(workload_.optimizer, workload_.learning_rate, number));
    }
    const std::array<std::int64_t, 5> key{first, last, training_.model.slot(), batch.count(), count};
    backend_->repeat(key, [&] {
      Model& model = training_.model;
      model.backward(model.forward(1.0 / static_cast<double>(count), first ? Accumulate::no : Accumulate::yes), {});
      if (!last) return;
      training_.status.report_loss(training_.model.loss_sums());
      training_.optimizer.finish_gradients();
      training_.optimizer.update();
    });
    if (last) training_.status.post();
    training_.model.release_batch();
    backend_->synchronize();
  }

  Floats download(const std::string& group) {
    Floats values(training_.parameters.group_elements(group));
    training_.parameters.download_group(group, values);
    return values;
  }
  Floats fetch(const std::string& group) { return seen(download(group)); }

 private:
  static std::unique_ptr<Network> make_frozen(const Workload& workload) {
    auto network = workload.description
                       ? std::make_unique<Network>(*workload.description, workload.shape, workload.name)
                       : make_network(workload.network, workload.shape);
    std::vector<std::size_t> frozen;
    const auto& parameters = network->parameters().all();
    for (std::size_t i = 0; workload.frozen && i < parameters.size(); ++i) {
      if (workload.frozen(parameters[i], i)) frozen.push_back(i);
    }
    if (!frozen.empty()) network->freeze(frozen);
    return network;
  }

  const Workload& workload_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Network> network_;
  model::Training training_;
};

/// Greatest relative differences of one step from the same state. The optimiser's state and the weights depend on
/// single units, the norm hardly does.
struct Tolerance {
  double loss, norm, state, weights;
  double next_loss;  ///< after an update from two different gradients
};
Tolerance tolerance_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return {.loss = 1e-6, .norm = 1e-3, .state = 1e-2, .weights = 1e-4, .next_loss = 1e-4};
    case Precision::tf32:
      return {.loss = 5e-3, .norm = 1e-2, .state = 1e-1, .weights = 1e-2, .next_loss = 1e-2};
    case Precision::bf16:
      return {.loss = 3e-2, .norm = 5e-2, .state = 2e-1, .weights = 2e-2, .next_loss = 5e-2};
  }
  return {};
}

class Training : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!offers(GetParam())) GTEST_SKIP() << "this device has no " << name_of(GetParam());
  }
  const Tolerance tolerance_ = tolerance_of(GetParam());
};

/// Copies the weights, the optimiser's state and the recurrent state of one side to the other.
void carry(Side& from, Side& to, const Workload& workload) {
  for (const std::string& group : from.training().parameters.state_groups()) {
    const Floats values = from.download(group);
    to.training().parameters.upload_group(group, values);
    ASSERT_EQ(to.fetch(group), values) << group;
  }
  Floats state(static_cast<std::size_t>(workload.batch * from.training().model.recurrent_state().elements()));
  if (state.empty()) return;
  from.training().model.recurrent_state().download(workload.batch, state);
  to.training().model.recurrent_state().upload(workload.batch, state);
}

/// Each step begins with the CPU's state, so that only that step's arithmetic is compared. Otherwise the two drift
/// apart: once a sum rounds to the other side of a ReLU's zero, the gradient lacks one unit's share of one sample, and
/// 1e-8 of the loss becomes 1e-5 within twenty steps. Losses are measured relative to the first one: a loss of squares
/// becomes small, and then contains all roundings.
TEST_P(Training, SameLossesAsOnTheCpu) {
  Random random;
  for (const Workload& workload : workloads()) {
    SCOPED_TRACE(workload.name);
    const Samples samples(workload, random);
    Side here(make_subject(GetParam()), workload), cpu(make_backend("cpu"), workload);
    const Floats initial = here.fetch("parameters");
    ASSERT_EQ(initial, cpu.fetch("parameters")) << "the same initial weights";
    double first_loss = 0, last_loss = 0, size = 0;
    for (int number = 0; number < kSteps; ++number) {
      SCOPED_TRACE(fmt::format("step {}", number));
      const StepStatus got = here.step(number, samples), expected = cpu.step(number, samples);
      if (number == 0) size = expected.loss;
      ASSERT_TRUE(is_near(got.loss, expected.loss, tolerance_.loss * size));
      ASSERT_EQ(got.non_finite, 0);
      const double norm = std::sqrt(expected.gradient_squares);
      ASSERT_TRUE(is_near(std::sqrt(got.gradient_squares), norm, tolerance_.norm * norm));
      for (const std::string& group : here.training().parameters.state_groups()) {
        const bool is_weights = group == "parameters" || group == "average";
        EXPECT_TRUE(is_within(relative_error(here.fetch(group), widened(cpu.download(group))),
                              is_weights ? tolerance_.weights : tolerance_.state))
            << group;
      }
      if (HasFailure()) return;
      if (number < 5) first_loss += expected.loss;
      if (number >= kSteps - 5) last_loss += expected.loss;  // the same batches again
      carry(cpu, here, workload);
    }
    EXPECT_LT(last_loss, first_loss) << "it learns, or nothing is compared here";
    EXPECT_GT(relative_error(cpu.fetch("parameters"), widened(initial)), 1e-3) << "the weights have moved";
  }
}

/// A network for each operation that the shipped networks lack, in one to three directions: few channels, whole packs
/// of them, and an odd number of places. Four steps: plain, recorded for each slot, replayed.
TEST_P(Training, EveryOperationAsOnTheCpu) {
  std::vector<Description> networks;
  const auto append = [&](std::vector<Description> more) { std::ranges::move(more, std::back_inserter(networks)); };
  for (const Shape& in : {Shape{9, 4}, Shape{6, 5, 4}, Shape{4, 3, 4, 4}}) append(networks_of_windows(in));
  append(networks_of_channels({3, 2, 4}));
  append(networks_of_series({5, 6}));
  if (!subject().quick) {
    for (const Shape& in : {Shape{67, 24}, Shape{19, 14, 16}, Shape{9, 7, 10, 8}}) append(networks_of_windows(in));
    append(networks_of_channels({11, 9, 32}));
    append(networks_of_series({37, 48}));
  }
  Random random;
  for (const Description& description : networks) {
    const Shape& in = description.input_shape;
    const Workload workload{.name = fmt::format("{} of {}", description.calls[1].name, to_string(in)),
                            .shape = {.features = in.elements(), .outputs = 2},
                            .loss = LossKind::softmax_cross_entropy,
                            .optimizer = {.kind = OptimizerKind::momentum},
                            .learning_rate = 0.01,
                            .batch = 13,
                            .description = description};
    SCOPED_TRACE(workload.name);
    const Samples samples(workload, random);
    Side here(make_subject(GetParam()), workload), cpu(make_backend("cpu"), workload);
    double first_norm = 0;  // some of these networks learn their few samples in no time
    for (int number = 0; number < 4; ++number) {
      SCOPED_TRACE(fmt::format("step {}", number));
      const StepStatus got = here.step(number, samples), expected = cpu.step(number, samples);
      EXPECT_TRUE(is_near(got.loss, expected.loss, tolerance_.loss * 13));
      const double norm = std::sqrt(expected.gradient_squares);
      if (number == 0) first_norm = norm;
      EXPECT_TRUE(is_near(std::sqrt(got.gradient_squares), norm, tolerance_.norm * std::max(norm, first_norm)));
      for (const std::string& group : here.training().parameters.state_groups()) {
        EXPECT_TRUE(is_within(relative_error(here.fetch(group), widened(cpu.download(group))),
                              group == "parameters" ? tolerance_.weights : tolerance_.state))
            << group;
      }
      if (HasFailure()) break;
      carry(cpu, here, workload);
    }
  }
}

/// Frozen layers and parts of layers behind trained ones: frozen parameters have no gradient, and gradients pass
/// through them.
TEST_P(Training, SameLossesWithFrozenLayersAsOnTheCpu) {
  for (Workload workload : workloads()) {
    if (workload.name.starts_with("784") || workload.name.starts_with("600") || workload.name.starts_with("100"))
      continue;
    const bool normalized = workload.network.name == "resnet";
    for (const std::size_t third : {1, 2}) {
      if (normalized && third == 2) continue;
      SCOPED_TRACE(fmt::format("{}, {}", workload.name, third));
      workload.frozen = [=](const Parameter& parameter, std::size_t place) {
        return normalized ? parameter.name.find("block_3/") != std::string::npos : place % 3 == third;
      };
      Random random;
      const Samples samples(workload, random);
      Side here(make_subject(GetParam()), workload), cpu(make_backend("cpu"), workload);
      ASSERT_LT(here.training().parameters.updated_elements(), here.training().parameters.elements());
      const Floats initial = here.fetch("parameters");
      double size = 0;
      for (int number = 0; number < 5; ++number) {  // plain, recorded, replayed
        SCOPED_TRACE(fmt::format("step {}", number));
        const StepStatus got = here.step(number, samples), expected = cpu.step(number, samples);
        if (number == 0) size = expected.loss;
        ASSERT_TRUE(is_near(got.loss, expected.loss, tolerance_.loss * size));
        const double norm = std::sqrt(expected.gradient_squares);
        ASSERT_TRUE(is_near(std::sqrt(got.gradient_squares), norm, tolerance_.norm * norm));
        EXPECT_TRUE(is_within(relative_error(here.fetch("parameters"), widened(cpu.download("parameters"))),
                              tolerance_.weights));
        if (HasFailure()) return;
        carry(cpu, here, workload);
      }
      const auto trained = static_cast<std::ptrdiff_t>(here.training().parameters.updated_elements());
      const Floats last = here.fetch("parameters");
      EXPECT_TRUE(std::equal(initial.begin() + trained, initial.end(), last.begin() + trained)) << "frozen";
      EXPECT_FALSE(std::equal(initial.begin(), initial.begin() + trained, last.begin())) << "trained";
    }
  }
}

TEST_P(Training, StateTravelsBetweenBackends) {
  Random random;
  for (const Workload& workload : workloads()) {
    SCOPED_TRACE(workload.name);
    const Samples samples(workload, random);
    Side here(make_subject(GetParam()), workload), cpu(make_backend("cpu"), workload);
    for (int number = 0; number < 5; ++number) here.step(number, samples);
    const auto expect_same_losses = [&](Side& from, Side& to) {
      const LossSums a = from.training().model.evaluate(samples.batch(0)),
                     b = to.training().model.evaluate(samples.batch(0));
      EXPECT_TRUE(is_near(seen(std::vector<double>{a.loss})[0], b.loss, tolerance_.loss * b.loss));
      if (workload.optimizer.average_decay > 0) {
        const LossSums c = from.training().model.evaluate(samples.batch(0), Weights::average);
        const LossSums d = to.training().model.evaluate(samples.batch(0), Weights::average);
        EXPECT_TRUE(is_near(c.loss, d.loss, tolerance_.loss * d.loss));
        EXPECT_NE(c.loss, a.loss) << "other weights";
      }
    };
    carry(here, cpu, workload);
    expect_same_losses(here, cpu);
    for (int number = 5; number < 7; ++number) {  // the second one's loss follows the state's update
      const double got = here.step(number, samples).loss, expected = cpu.step(number, samples).loss;
      ASSERT_TRUE(is_near(got, expected, tolerance_.next_loss * expected)) << "step " << number;
    }
    cpu.step(7, samples);
    carry(cpu, here, workload);
    expect_same_losses(cpu, here);
    for (int number = 8; number < 10; ++number) {
      const double got = here.step(number, samples).loss, expected = cpu.step(number, samples).loss;
      ASSERT_TRUE(is_near(got, expected, tolerance_.next_loss * expected)) << "step " << number;
    }
  }
}

/// 37 tokens are no multiple of 8: products in bf16 read a table of 40 rows. The 301 outputs of a separate output layer
/// lie in rows of 304.
TEST_P(Training, PaddingStaysZero) {
  for (const char* const which : {"gpt tied", "lstm tied", "gpt", "lstm", "mlp"}) {
    const std::string network = std::string(which).substr(0, std::string(which).find(' '));
    const bool tied = network != which;
    std::vector<Workload> all = workloads();
    Workload workload = *std::ranges::find_if(all, [&](const Workload& it) { return it.network.name == network; });
    SCOPED_TRACE(which);
    workload.shape.outputs = tied ? 37 : 301;
    if (workload.shape.tokens) workload.network.values["tied"] = tied;
    Random random;
    const Samples samples(workload, random);
    Side here(make_subject(GetParam()), workload), cpu(make_backend("cpu"), workload);
    for (int number = 0; number < 4; ++number) {
      const double got = here.step(number, samples).loss, expected = cpu.step(number, samples).loss;
      ASSERT_TRUE(is_near(got, expected, tolerance_.loss * expected)) << "step " << number;
    }
    const auto& parameters = here.training().parameters;
    const auto& table = parameters.table().all();
    const auto padded_one = std::ranges::find_if(table, [](const Parameter& it) { return it.padding > 0; });
    ASSERT_NE(padded_one, table.end());
    const Parameter& padded = *padded_one;
    ASSERT_EQ(padded.padding, 3 * (tied ? padded.shape[1] : 1)) << padded.name;
    const auto expect_padding = [&](const Floats& values, const std::string& what) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(padded.offset);
      EXPECT_TRUE(
          std::any_of(begin, begin + static_cast<std::ptrdiff_t>(padded.count), [](float v) { return v != 0; }));
      EXPECT_EQ(Floats(begin + static_cast<std::ptrdiff_t>(padded.count),
                       values.begin() + static_cast<std::ptrdiff_t>(padded.end())),
                Floats(padded.end() - padded.offset - padded.count))
          << what;
    };
    for (const std::string& group : parameters.state_groups()) expect_padding(here.fetch(group), group);
    Floats gradients(parameters.elements());
    parameters.download_gradients(gradients);
    expect_padding(seen(std::move(gradients)), "gradients");
  }
}

/// The same twice, and the same without recording.
TEST_P(Training, RepeatsBitForBit) {
  for (const Workload& workload : workloads()) {
    SCOPED_TRACE(workload.name);
    std::vector<Floats> weights;
    for (const bool graphs : {true, true, false}) {
      Random same;
      const Samples samples(workload, same);
      Side side(make_subject(GetParam(), {.graphs = graphs}), workload);
      for (int number = 0; number < kSteps; ++number) side.step(number, samples);
      weights.push_back(side.fetch("parameters"));
    }
    EXPECT_EQ(weights[0], weights[1]) << "run against run";
    EXPECT_EQ(weights[0], weights[2]) << "recorded against plain calls";
  }
}

/// Two owners that share the update and then exchange their weights, against one that makes all of it.
TEST_P(Training, PartsOfAnUpdateAreTheWhole) {
  for (const std::size_t which : {0, 2}) {
    const Workload workload = workloads()[which];
    SCOPED_TRACE(workload.name);
    Random random;
    const Samples samples(workload, random);
    Side whole(make_subject(GetParam()), workload);
    const std::size_t all = whole.training().parameters.elements(), middle = all / 2 / 64 * 64, cut = all / 3 / 16 * 16;
    const std::vector<std::vector<Slice>> owned{{{0, cut}, {middle, 16}},
                                                {{cut, middle - cut}, {middle + 16, all - middle - 16}}};
    std::vector<std::unique_ptr<Side>> owners;
    for (const auto& ranges : owned)
      owners.push_back(std::make_unique<Side>(make_subject(GetParam()), workload, ranges));
    const auto together = [&](const std::string& group) {
      Floats values(all);
      for (std::size_t i = 0; i < owners.size(); ++i) {
        for (const Slice& range : owned[i]) {
          owners[i]->training().parameters.download_range(group, range,
                                                          std::span(values).subspan(range.offset, range.count));
        }
      }
      return values;
    };
    for (int number = 0; number < 7; ++number) {
      whole.step(number, samples);
      for (const auto& owner : owners) owner->step(number, samples);
      const Floats weights = together("parameters");
      for (const auto& owner : owners) owner->training().parameters.upload_group("parameters", weights);
    }
    for (const std::string& group : whole.training().parameters.state_groups()) {
      EXPECT_EQ(seen(together(group)), whole.fetch(group)) << group;
    }
  }
}

TEST_P(Training, ALossThatIsNotFiniteChangesNothing) {
  Random random;
  const Workload workload = workloads()[0];
  const Samples samples(workload, random);
  Side side(make_subject(GetParam()), workload);
  for (int number = 0; number < 3; ++number) side.step(number, samples);
  std::vector<Floats> before;
  for (const std::string& group : side.training().parameters.state_groups()) before.push_back(side.fetch(group));
  Batch batch = samples.batch(0);
  Floats x(static_cast<std::size_t>(batch.count() * workload.shape.features));
  x[700] = std::numeric_limits<float>::quiet_NaN();
  batch.x.data = x.data();
  for (int number = 3; number < 6; ++number) {  // plain, recorded, replayed
    side.step_on(batch, number, batch.count(), true, true);
    EXPECT_EQ(side.training().status.posted().non_finite, 1);
    EXPECT_EQ(side.training().model.locate_not_finite(), "input");
    std::size_t group = 0;
    for (const std::string& name : side.training().parameters.state_groups())
      EXPECT_EQ(side.fetch(name), before[group++]) << name;
  }
  EXPECT_TRUE(std::isfinite(side.step(6, samples).loss)) << "and goes on";
}

/// Results of five steps on one batch.
struct Course {
  std::vector<double> losses;  ///< per position, mean
  std::vector<double> norms;
  Floats weights;
};

/// GPT-2 of 124M parameters, with the largest tables, rows and products of these tests. On the CPU, and with --quick, a
/// small network tests the test. The two precisions diverge from the same weights: only the first step is compared
/// closely.
TEST(Gpt2SizeTraining, Bf16FollowsFp32AndRecordedStepsArePlainOnes) {
  if (!offers(Precision::bf16)) GTEST_SKIP() << "this device has no bfloat16";
  const bool whole = subject().backend != "cpu" && !subject().quick;
  const Workload workload{.name = "gpt",
                          .network = {.name = "gpt",
                                      .values = {{"layers", whole ? 12 : 2},
                                                 {"width", whole ? 768 : 64},
                                                 {"heads", whole ? 12 : 2},
                                                 {"dropout", 0.0}}},
                          .shape = {.features = whole ? 1024 : 24, .outputs = whole ? 50'257 : 61, .tokens = true},
                          .loss = LossKind::softmax_cross_entropy,
                          .optimizer = {.kind = OptimizerKind::adamw, .weight_decay = 0.1, .clip_norm = 1},
                          .learning_rate = whole ? 1e-4 : 6e-4,  // without a warm-up 6e-4 may lose its progress
                          .batch = 4};
  Random random;
  const Samples samples(workload, random);
  const auto positions = static_cast<double>(workload.batch * workload.shape.features);
  Floats initial;  // made once: drawing 124M numbers takes longer than all steps
  const auto train = [&](Precision precision, bool graphs) {
    Side side(make_subject(precision, {.graphs = graphs}), workload, {}, initial);
    if (initial.empty()) initial = side.download("parameters");
    Course course;
    for (int number = 0; number < 5; ++number) {  // both slots of batches: plain, recorded; one of them: replayed
      side.step_on(samples.batch(0), number, workload.batch, true, true);
      const StepStatus status = side.training().status.posted();
      EXPECT_EQ(status.non_finite, 0) << "step " << number;
      course.losses.push_back(seen(std::vector<double>{status.loss / positions})[0]);
      course.norms.push_back(std::sqrt(status.gradient_squares));
    }
    course.weights = side.fetch("parameters");
    return course;
  };
  std::vector<Course> courses;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    SCOPED_TRACE(name_of(precision));
    Course recorded = train(precision, true);
    const Course plain = train(precision, false);
    EXPECT_EQ(recorded.losses, plain.losses);
    EXPECT_EQ(recorded.norms, plain.norms);
    EXPECT_TRUE(recorded.weights == plain.weights) << "recorded against plain calls";
    EXPECT_LT(recorded.losses.back(), recorded.losses.front()) << "it learns the batch";
    courses.push_back(std::move(recorded));
  }
  const auto& [fp32, bf16] = std::tie(courses[0], courses[1]);
  EXPECT_TRUE(is_near(fp32.losses[0], std::log(static_cast<double>(workload.shape.outputs)), 0.5))
      << "a guess at first";
  EXPECT_TRUE(is_near(bf16.norms[0], fp32.norms[0], 5e-2 * fp32.norms[0]));
  for (std::size_t number = 0; number < fp32.losses.size(); ++number) {
    const double limit = number == 0 ? 3e-3 : 2e-2;
    EXPECT_TRUE(is_near(bf16.losses[number], fp32.losses[number], limit * fp32.losses[number])) << "step " << number;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Training, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
