// Memory by lifetimes: no tensor of a program may lose its memory while it is needed. A checker runs programs and fills
// memory with NaNs as soon as its lifetime ends. A random graph or a network with a lifetime that is too short then
// gives other gradients.
#include "model/graph/lifetimes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/network.hpp"
#include "model/reference/reference_backend.hpp"
#include "network_harness.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

using test::kDoubles;
using test::view;

constexpr std::size_t kAlignment = 256;

TEST(PlaceByLifetimes, SharesMemoryOverTime) {
  const std::vector<MemoryBlock> blocks{{1000, {0, 1}}, {500, {1, 2}}, {1000, {2, 3}}, {0, {0, 9}}, {200, {3, 4}}};
  const MemoryPlacement placement = place_by_lifetimes(blocks, kAlignment);
  EXPECT_THAT(placement.offsets, testing::ElementsAre(0, 1024, 0, 0, 1024));
  EXPECT_EQ(placement.bytes, 1536u);
  EXPECT_EQ(most_bytes_at_a_tick(blocks, kAlignment), 1536u);
}

TEST(PlaceByLifetimes, FillsGapsFromBelow) {
  const std::vector<MemoryBlock> blocks{{2048, {0, 2}}, {1024, {1, 5}}, {512, {3, 4}}, {512, {4, 6}}, {512, {5, 5}}};
  EXPECT_THAT(place_by_lifetimes(blocks, kAlignment).offsets, testing::ElementsAre(0, 2048, 0, 512, 0));
}

TEST(PlaceByLifetimes, BlocksThatMeetNeverOverlap) {
  for (std::size_t seed = 0; seed < 30; ++seed) {
    std::vector<MemoryBlock> blocks;
    for (std::size_t i = 0; i < 200; ++i) {
      const auto number = [&](std::string_view what, double end) {
        return static_cast<std::int32_t>((test::sample(what, 1000 * seed + i) + 1) / 2 * end);
      };
      const std::int32_t first = number("first", 100);
      blocks.push_back({static_cast<std::size_t>(number("bytes", 5000)), {first, first + number("length", 30)}});
    }
    const MemoryPlacement placement = place_by_lifetimes(blocks, kAlignment);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(placement.offsets[i] % kAlignment, 0u);
      EXPECT_LE(placement.offsets[i] + blocks[i].bytes, placement.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (!blocks[i].lifetime.meets(blocks[j].lifetime)) continue;
        EXPECT_TRUE(placement.offsets[i] + blocks[i].bytes <= placement.offsets[j] ||
                    placement.offsets[j] + blocks[j].bytes <= placement.offsets[i]);
      }
    }
    EXPECT_LE(placement.bytes, most_bytes_at_a_tick(blocks, kAlignment) * 5 / 4);
  }
}

// ---- the checker ----

/// Returns the blocks of a table, as ActivationLayout places them in float64 for `batch` samples.
std::vector<MemoryBlock> blocks_of(const ActivationTable& table, std::int64_t batch) {
  std::vector<MemoryBlock> blocks(table.all().size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ActivationTable::Entry& entry = table.all()[i];
    MemoryBlock& block = blocks[entry.memory_of];
    const std::size_t size = entry.holds == Holds::choices ? 1 : entry.holds == Holds::tokens ? 4 : 8;
    const std::int64_t samples = entry.per_batch ? 1 : batch;
    block.bytes =
        std::max(block.bytes, static_cast<std::size_t>((entry.margin + entry.rows) * entry.columns * samples) * size);
    block.lifetime = entry.memory_of == i ? entry.lifetime : block.lifetime.with(entry.lifetime);
  }
  return blocks;
}

enum class Memory {
  apart,    ///< each tensor has its own memory
  shared,   ///< by lifetimes
  poisoned  ///< by lifetimes; filled with NaNs before and after them
};

/// Returns the table with other lifetimes of entries.
ActivationTable with_lifetimes(const ActivationTable& table, const std::function<Lifetime(std::size_t)>& lifetime) {
  ActivationTable changed;
  for (std::size_t i = 0; i < table.all().size(); ++i) {
    ActivationSpec spec = table.all()[i];
    spec.lifetime = lifetime(i);
    if (table.all()[i].memory_of == i) {
      changed.add(std::move(spec));
    } else {
      changed.overlay(table.all()[i].memory_of, std::move(spec));
    }
  }
  return changed;
}

/// A network in float64 with memory by its own table.
class Checked {
 public:
  Checked(const Network& network, Memory memory, const ActivationTable* table = nullptr)
      : network_(network),
        memory_(memory),
        table_(memory == Memory::apart
                   ? with_lifetimes(network.activations(Purpose::training), [](std::size_t) { return Lifetime{}; })
               : table != nullptr ? *table
                                  : network.activations(Purpose::training)),
        layout_(table_, kBatch, kDoubles),
        state_layout_(network.recurrent_state(), kBatch, kDoubles),
        arena_(layout_.bytes() / sizeof(double) + 1) {}

  /// Returns the gradients of two micro-batches; the second is smaller.
  std::vector<double> gradients(Backend& backend) {
    const ParameterTable& parameters = network_.parameters();
    const SampleShape& shape = network_.sample_shape();
    const auto elements = static_cast<std::int64_t>(parameters.arena_elements());
    auto weights = test::samples<double>("weights", elements, 0.5);
    std::vector<double> gradients(parameters.updated_elements(), 7.0),
        state(state_layout_.bytes() / sizeof(double) + 1);
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      const std::int64_t count = accumulate == Accumulate::no ? kBatch : kBatch - 1;
      auto x = test::samples<double>("x", count * shape.features);
      auto targets = test::samples<float>("targets", count * shape.outputs);
      auto keys = test::sample_keys(count);
      auto tokens = test::labels(count * shape.features, shape.outputs),
           next = test::labels(count * shape.features + 2, 3);
      if (memory_ == Memory::poisoned) poison_all();
      const AfterCall after = [&](const CallResult& call) { poison_dead(call.tick); };
      const Pass pass{.backend = backend,
                      .table = parameters,
                      .memory = {.parameters = view(weights, 1, elements),
                                 .gradients = view(gradients, 1, static_cast<std::int64_t>(gradients.size())),
                                 .layout = &layout_,
                                 .activations = arena_.data(),
                                 .state_layout = &state_layout_,
                                 .state = state.data()},
                      .batch = count,
                      .input = shape.tokens ? view(tokens, count, shape.features) : view(x, count, shape.features),
                      .keys = view(keys, count, 1),
                      .after_call = memory_ == Memory::poisoned ? &after : nullptr};
      const Tensor output = network_.forward(pass);
      if (shape.tokens) {
        const Tensor y = view(next, 1, count * shape.features + 2).slice({2, static_cast<std::size_t>(tokens.size())});
        test::softmax_cross_entropy(backend, output, network_.targets(pass, y.reshaped(count, shape.features)), 0.1,
                                    true);
      } else {
        test::mean_squared_error(backend, output, view(targets, count, shape.outputs), 0.1, true);
      }
      if (memory_ == Memory::poisoned) poison_dead(network_.program(Purpose::training).loss_tick());
      network_.backward(pass, accumulate, {});
      EXPECT_EQ(x, test::samples<double>("x", count * shape.features)) << "the batch itself must stay";
    }
    return gradients;
  }

 private:
  static constexpr std::int64_t kBatch = 3;

  void poison_all() {
    std::memset(arena_.data(), 0xFF, layout_.bytes());
    last_tick_ = -1;
  }
  /// Fills the memory of blocks whose lifetime ends with this call, or with ticks without a call before it, unless the
  /// call has started another block at the same address.
  void poison_dead(std::int32_t tick) {
    const std::vector<MemoryBlock> blocks = blocks_of(table_, kBatch);
    const auto begin = [&](std::size_t i) {
      return static_cast<std::byte*>(layout_.with_margin(i, arena_.data(), kBatch).data);
    };
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int32_t last = blocks[i].lifetime.last;
      if (blocks[i].bytes == 0 || last <= last_tick_ || last > tick) continue;
      bool is_used = false;
      for (std::size_t j = 0; j < blocks.size() && last < tick; ++j) {
        is_used = is_used || (blocks[j].lifetime.first > last && blocks[j].lifetime.first <= tick &&
                              begin(j) < begin(i) + blocks[i].bytes && begin(i) < begin(j) + blocks[j].bytes);
      }
      if (!is_used) std::memset(begin(i), 0xFF, blocks[i].bytes);
    }
    last_tick_ = tick;
  }

  const Network& network_;
  Memory memory_;
  ActivationTable table_;
  ActivationLayout layout_, state_layout_;
  std::vector<double> arena_;
  std::int32_t last_tick_ = -1;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// Requires gradients that do not depend on memory outside lifetimes.
void expect_lifetimes(const Network& network, const std::string& what) {
  const auto backend = std::make_unique<ReferenceBackend>();
  const std::vector<double> expected = Checked(network, Memory::apart).gradients(*backend);
  EXPECT_TRUE(same_bits(Checked(network, Memory::shared).gradients(*backend), expected)) << what;
  EXPECT_TRUE(same_bits(Checked(network, Memory::poisoned).gradients(*backend), expected)) << what;
}

// ---- networks ----

/// Residual blocks with a subsampled, a projected and a plain shortcut.
std::unique_ptr<Network> small_residual_network() {
  Description network{.input_shape = {4, 5, 2}, .calls = {}};
  const auto add = [&](std::string kind, std::string name, std::vector<std::string> from,
                       decltype(Call::arguments) arguments) {
    network.calls.push_back(
        {.kind = std::move(kind), .name = std::move(name), .from = std::move(from), .arguments = std::move(arguments)});
  };
  const auto convolution = [&](const std::string& name, const std::string& from, std::int64_t channels,
                               std::int64_t kernel, std::int64_t stride) {
    add("conv", name, {from},
        {{"channels", channels},
         {"kernel", Numbers{kernel}},
         {"stride", Numbers{stride}},
         {"padding", std::to_string(kernel / 2)},
         {"bias", false}});
  };
  convolution("stem", "input", 2, 3, 1);
  add("batch-norm", "stem/norm", {}, {{"relu", true}});
  std::string before = "stem/norm";
  for (const std::string block : {"subsampled", "plain", "projected"}) {
    const bool changes = block != "plain";
    const std::int64_t channels = block == "subsampled" ? 4 : block == "plain" ? 4 : 3, stride = changes ? 2 : 1;
    std::string shortcut = before;
    if (block == "subsampled")
      add("subsample", shortcut = block + "/shortcut", {before}, {{"channels", 4}, {"stride", 2}});
    convolution(block + "/conv_1", before, channels, 3, stride);
    add("batch-norm", block + "/norm_1", {}, {{"relu", true}});
    convolution(block + "/conv_2", block + "/norm_1", channels, 3, 1);
    if (block == "projected") {
      convolution(block + "/projection", before, channels, 1, stride);
      add("batch-norm", shortcut = block + "/projection/norm", {}, {});
    }
    add("batch-norm", block + "/norm_2", {block + "/conv_2", shortcut}, {{"relu", true}});
    before = block + "/norm_2";
  }
  add("global-average", "average", {}, {});
  add("dense", "dense", {}, {{"units", 3}});
  return std::make_unique<Network>(network, test::images(4, 5, 2, 3), "small residual network");
}

/// A network with each operation on windows and channels.
std::unique_ptr<Network> network_of_windows() {
  Description network{.input_shape = {4, 6, 4}, .calls = {}};
  const auto add = [&](std::string kind, decltype(Call::arguments) arguments, std::vector<std::string> from = {}) {
    network.calls.push_back({.kind = kind, .name = kind, .from = std::move(from), .arguments = std::move(arguments)});
  };
  add("conv", {{"channels", 4}, {"kernel", Numbers{3}}, {"groups", 2}, {"activation", "gelu"}});
  add("group-norm", {{"groups", 2}});
  add("max-pool", {{"window", Numbers{2}}});
  add("conv-transpose", {{"channels", 4}, {"kernel", Numbers{2}}, {"stride", Numbers{2}}, {"activation", "sigmoid"}});
  add("global-max", {});
  add("softmax", {});
  add("multiply", {}, {"conv-transpose", "softmax"});
  add("average-pool", {{"window", Numbers{2}}});
  add("upsample", {{"factor", Numbers{2}}});
  add("add", {}, {"upsample", "conv", "input"});
  add("transpose", {{"order", Numbers{2, 0, 1}}});
  add("slice", {{"begin", 1}, {"step", 2}});
  add("instance-norm", {});
  add("mean", {{"axis", 1}});
  add("flatten", {});
  add("dense", {{"units", 3}});
  return std::make_unique<Network>(network, test::images(4, 6, 4, 3), "windows and channels");
}

/// A network with recurrence in all directions, attention that is not causal, and positions.
std::unique_ptr<Network> network_of_series() {
  Description network{.input_shape = {5, 4}, .calls = {}};
  const auto add = [&](std::string kind, std::string name, decltype(Call::arguments) arguments,
                       std::vector<std::string> from = {}) {
    network.calls.push_back(
        {.kind = std::move(kind), .name = std::move(name), .from = std::move(from), .arguments = std::move(arguments)});
  };
  add("positions", "positions", {});
  add("dense", "joint", {{"units", 12}});
  add("attention", "attention", {{"heads", 2}, {"causal", false}, {"dropout", 0.25}});
  add("add", "sum", {}, {"attention", "positions"});
  add("lstm", "lstm", {{"units", 3}, {"direction", "both"}});
  add("gru", "gru", {{"units", 4}});
  add("add", "again", {}, {"gru", "sum"});
  add("lstm", "turned", {{"units", 4}, {"direction", "backward"}, {"steps", "last"}});
  add("gru", "last", {{"units", 2}, {"direction", "both"}, {"steps", "last"}}, {"again"});
  add("add", "both", {}, {"turned", "last"});
  add("dense", "dense", {{"units", 3}});
  return std::make_unique<Network>(network, SampleShape{.features = 20, .outputs = 3}, "series");
}

std::vector<std::unique_ptr<Network>> networks() {
  std::vector<std::unique_ptr<Network>> made;
  const SampleShape table{.features = 6, .outputs = 3};
  made.push_back(make_network({.name = "linear"}, table));
  for (const char* const activation : {"relu", "gelu"}) {
    for (const double dropout : {0.0, 0.25}) {
      made.push_back(make_network(
          {.name = "mlp", .values = {{"hidden", Numbers{7, 5, 7}}, {"activation", activation}, {"dropout", dropout}}},
          table));
    }
  }
  made.push_back(small_residual_network());
  made.push_back(network_of_windows());
  made.push_back(network_of_series());
  made.push_back(make_network({.name = "cnn", .values = {{"dropout", 0.25}}}, test::images(6, 5, 2, 3)));
  for (const double dropout : {0.0, 0.25}) {
    for (const bool tied : {false, true}) {
      made.push_back(make_network(
          {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}, {"dropout", dropout}, {"tied", tied}}},
          test::tokens(4, 5)));
      made.push_back(make_network(
          {.name = "lstm",
           .values = {{"layers", tied ? 1 : 2}, {"hidden", Numbers{6}}, {"dropout", dropout}, {"tied", tied}}},
          test::tokens(4, 5)));
    }
  }
  return made;
}

TEST(Lifetimes, OfTheNetworksAreLongEnough) {
  for (const auto& network : networks()) {
    const auto& graph = *network;
    expect_lifetimes(graph, network->signature());
    EXPECT_EQ(graph.program(Purpose::training).copied_gradients(), 0u) << network->signature();
  }
}

TEST(Lifetimes, OfResidualNetworksAreLongEnough) {
  for (const std::int64_t depth : {20, 50}) {
    const auto network = make_network({.name = "resnet", .values = {{"depth", depth}}}, test::images(8, 8, 2, 3));
    const auto& graph = *network;
    if (depth == 20) expect_lifetimes(graph, network->signature());
    EXPECT_EQ(graph.program(Purpose::training).copied_gradients(), 0u) << "the sums of branches need no copies";
  }
}

TEST(Lifetimes, OfFrozenNetworksAreLongEnough) {
  for (std::size_t frozen = 0; frozen < 8; ++frozen) {
    const auto network = make_network({.name = "mlp", .values = {{"hidden", Numbers{7, 5, 7}}, {"dropout", 0.25}}},
                                      {.features = 6, .outputs = 3});
    network->freeze(std::array{frozen});
    expect_lifetimes(*network, fmt::format("parameter {}", frozen));
  }
}

// ---- random graphs ----

/// y = a * b. Backward reads both inputs, and computes both gradients from the output's gradient.
class Product final : public Operation {
 public:
  ValueType declare(Declarations&, std::span<const ValueType> inputs) override { return inputs[0]; }
  OperationNeeds needs() const override { return {.reads_inputs = 3}; }
  LayerPlan plan(const NodeView& node) const override { return {.name = node.name, .description = "a * b"}; }
  void forward(const NodePass& node) const override { multiply(node.in(0), node.in(1), node.out()); }
  void backward(const NodePass& node) const override {
    if (node.d_in(0).present()) multiply(node.d_out(), node.in(1), node.d_in(0));
    if (node.d_in(1).present()) multiply(node.d_out(), node.in(0), node.d_in(1));
  }

 private:
  static void multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
    std::ranges::transform(a.elements<double>(), b.elements<double>(), y.elements<double>().begin(),
                           std::multiplies<>());
  }
};
const OperationKind kProduct{
    .name = "product",
    .summary = "a * b",
    .least_inputs = 2,
    .most_inputs = 2,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<Product>(); }};

/// y = x / 2, in place in forward and backward; backward overwrites the output's gradient.
class Half final : public Operation {
 public:
  ValueType declare(Declarations&, std::span<const ValueType> inputs) override { return inputs[0]; }
  OperationNeeds needs() const override { return {.overwrites_gradient = true, .in_place = 1, .gradient_in_place = 1}; }
  LayerPlan plan(const NodeView& node) const override { return {.name = node.name, .description = "x / 2"}; }
  void forward(const NodePass& node) const override { halve(node.in(), node.out()); }
  void backward(const NodePass& node) const override {
    halve(node.d_out(), node.d_in());
    if (node.d_in().data != node.d_out().data) std::ranges::fill(node.d_out().elements<double>(), -3.0);
  }

 private:
  static void halve(const Tensor& x, const Tensor& y) {
    std::ranges::transform(x.elements<double>(), y.elements<double>().begin(), [](double value) { return value / 2; });
  }
};
const OperationKind kHalf{.name = "half", .summary = "x / 2", .make = [](const Call&) -> std::unique_ptr<Operation> {
                            return std::make_unique<Half>();
                          }};

OperationKinds kinds_with_test_kinds() {
  static const std::vector<const OperationKind*> kinds = [] {
    std::vector<const OperationKind*> all(operation_kinds().begin(), operation_kinds().end());
    all.push_back(&kProduct);
    all.push_back(&kHalf);
    return all;
  }();
  return kinds;
}

/// Returns a random graph. Operations read any earlier values; values without readers are added at the end.
Description random_graph(std::size_t seed, std::size_t size) {
  constexpr std::int64_t kWidth = 4;
  std::size_t draws = 0;
  const auto draw = [&](std::size_t below) {
    return static_cast<std::size_t>((test::sample(fmt::format("graph {}", seed), draws++) + 1) / 2 *
                                    static_cast<double>(below));
  };
  Description graph{.input_shape = {kWidth}, .calls = {}};
  std::vector<std::string> names{"input"};
  std::set<std::string> unread;
  const auto add = [&](Call call) {
    call.name = fmt::format("{}_{}", call.kind, graph.calls.size() + 1);
    for (const std::string& name : call.from) unread.erase(name);
    unread.insert(call.name);
    names.push_back(call.name);
    graph.calls.push_back(std::move(call));
  };
  // Chooses recent values more often, so that a few lifetimes are long and most are short.
  const auto any = [&] { return names[names.size() - 1 - std::min(draw(names.size()), draw(names.size()))]; };
  while (graph.calls.size() < size) {
    switch (draw(10)) {
      case 0:
      case 1:
        add({.kind = "dense",
             .name = "",
             .from = {any()},
             .arguments = {{"units", kWidth},
                           {"activation", std::array{"none", "tanh", "sigmoid", "gelu", "relu"}[draw(5)]}}});
        break;
      case 6:
      case 7:
        add({.kind = "elementwise",
             .name = "",
             .from = {any()},
             .arguments = {{"function", std::array{"tanh", "silu", "relu", "elu"}[draw(4)]}}});
        break;
      case 2:
        add({.kind = "dropout", .name = "", .from = {any()}, .arguments = {{"rate", 0.25}}});
        break;
      case 3:
        add({.kind = "flatten", .name = "", .from = {any()}});
        break;
      case 4:
        add({.kind = "product", .name = "", .from = {any(), any()}});
        break;
      case 5:
        add({.kind = "half", .name = "", .from = {any()}});
        break;
      default:
        add({.kind = "add",
             .name = "",
             .from = draw(2) == 0 ? std::vector{any(), any(), any()} : std::vector{any(), any()}});
    }
  }
  add({.kind = "dense", .name = "", .from = {any()}, .arguments = {{"units", kWidth}}});
  while (unread.size() > 1) {
    std::vector<std::string> some(unread.begin(), unread.end());
    some.resize(std::min<std::size_t>(some.size(), 16));
    add({.kind = "add", .name = "", .from = some});
  }
  if (seed % 3 == 0) add({.kind = "dense", .name = "", .from = {}, .arguments = {{"units", kWidth}}});
  return graph;
}

constexpr SampleShape kRandomShape{.features = 4, .outputs = 4};

TEST(Lifetimes, OfRandomGraphsAreLongEnough) {
  std::size_t copied = 0, shared = 0;
  for (std::size_t seed = 0; seed < 400; ++seed) {
    const Description description = random_graph(seed, 2 + seed % 40);
    Network network(description, kRandomShape, "random", kinds_with_test_kinds());
    const std::size_t parameters = network.parameters().all().size();
    if (seed % 4 == 3 && parameters > 2) network.freeze(std::array{seed % parameters});
    expect_lifetimes(network, fmt::format("seed {}", seed));
    copied += network.program(Purpose::training).copied_gradients();
    const auto blocks = blocks_of(network.activations(Purpose::training), 3);
    const MemoryPlacement placement = place_by_lifetimes(blocks, kAlignment);
    std::size_t apart = 0;
    for (const MemoryBlock& block : blocks) apart += (block.bytes + kAlignment - 1) / kAlignment * kAlignment;
    shared += placement.bytes < apart ? 1 : 0;
    EXPECT_LE(static_cast<double>(placement.bytes),
              1.1 * static_cast<double>(most_bytes_at_a_tick(blocks, kAlignment)) + 512)
        << seed;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(copied, 0u) << "no graph needed a copy of a gradient";
  EXPECT_GT(shared, 200u);
}

/// Gradients of random graphs match finite differences.
TEST(GraphGradients, OfRandomGraphsMatchFiniteDifferences) {
  std::size_t checked = 0;
  for (std::size_t seed = 0; seed < 300; ++seed) {
    const Description description = random_graph(seed, 2 + seed % 20);
    test::NetworkInDoubles net(std::make_unique<Network>(description, kRandomShape, "random", kinds_with_test_kinds()),
                               2);
    auto x = test::samples<double>("x", 8);
    auto targets = test::samples<float>("targets", 8);
    const auto loss = [&](bool want_gradient) {
      const Pass pass = net.pass(view(x, 2, 4));
      const Tensor output = net.network->forward(pass);
      const double value = test::mean_squared_error(*net.backend, output, view(targets, 2, 4), 1, want_gradient).loss;
      if (want_gradient) net.network->backward(pass, Accumulate::no, {});
      return value;
    };
    if (loss(true) > 1000) continue;  // differences of large numbers are rounding
    ++checked;
    const std::vector<double> gradients = net.gradients;
    for (const Parameter& parameter : net.table().all()) {
      const std::size_t i = parameter.offset + seed % parameter.count;
      const double before = net.parameters[i], step = 1e-6;
      net.parameters[i] = before + step;
      const double above = loss(false);
      net.parameters[i] = before - step;
      const double below = loss(false);
      net.parameters[i] = before;
      EXPECT_NEAR((above - below) / (2 * step), gradients[i], 1e-6 * (1 + std::abs(gradients[i])))
          << seed << " " << parameter.name;
    }
  }
  EXPECT_GT(checked, 200u);
}

/// The checker finds each lifetime that is shortened by one call.
TEST(LifetimesFire, OnALifetimeThatIsTooShort) {
  const auto backend = std::make_unique<ReferenceBackend>();
  for (const auto& made : networks()) {
    const auto& network = *made;
    const ActivationTable& table = network.activations(Purpose::training);
    const std::vector<double> expected = Checked(network, Memory::apart).gradients(*backend);
    const std::vector<MemoryBlock> blocks = blocks_of(table, 3);
    std::size_t missed = 0;
    for (std::size_t planted = 0; planted < table.all().size(); ++planted) {
      const Holds holds = table.all()[planted].holds;
      if (table.all()[planted].memory_of != planted ||
          blocks[planted].lifetime.last == blocks[planted].lifetime.first || holds == Holds::choices ||
          holds == Holds::tokens) {  // poisoned indices would access memory out of bounds
        continue;
      }
      // The lifetimes of all entries in the memory end a tick early.
      const ActivationTable shortened = with_lifetimes(table, [&](std::size_t i) {
        Lifetime lifetime = table.all()[i].lifetime;
        if (table.all()[i].memory_of == planted)
          lifetime.last = std::min(lifetime.last, blocks[planted].lifetime.last - 1);
        lifetime.first = std::min(lifetime.first, lifetime.last);
        return lifetime;
      });
      const bool is_found = [&] {
        try {
          return !same_bits(Checked(network, Memory::poisoned, &shortened).gradients(*backend), expected);
        } catch (const std::invalid_argument&) {  // an operation notices that its operands overlap
          return true;
        }
      }();
      missed += is_found ? 0 : 1;
    }
    // A batch norm with a relu declares that it reads its output, but some devices recompute the output instead.
    EXPECT_EQ(missed, made->signature() == "small residual network" ? 4u : 0u) << made->signature();
  }
}

// ---- size ----

TEST(Program, OfTenThousandOperationsIsPlannedInASecond) {
  Description description{.input_shape = {64}, .calls = {}};
  std::string before = "input";
  for (int i = 0; i < 3333; ++i) {
    const auto name = [&](std::string_view what) { return fmt::format("block_{}/{}", i, what); };
    description.calls.push_back({.kind = "dense",
                                 .name = name("dense"),
                                 .from = {before},
                                 .arguments = {{"units", 64}, {"activation", "relu"}}});
    description.calls.push_back({.kind = "dropout", .name = name("dropout"), .arguments = {{"rate", 0.1}}});
    description.calls.push_back({.kind = "add", .name = name("sum"), .from = {before, name("dropout")}});
    before = name("sum");
  }
  description.calls.push_back({.kind = "dense", .name = "last", .arguments = {{"units", 10}}});
  const std::clock_t begin = std::clock();
  const Network network(description, {.features = 64, .outputs = 10}, "long");
  const ActivationLayout training(network.activations(Purpose::training), 8, kDoubles),
      evaluation(network.activations(Purpose::evaluation), 8, kDoubles);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  RecordProperty("seconds", std::to_string(seconds));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 1);
#endif
  EXPECT_EQ(network.program(Purpose::training).copied_gradients(), 0u);
  EXPECT_LE(evaluation.bytes(), 4u * 8 * 64 * 8) << "a stream, a branch, and little else";
}

}  // namespace
}  // namespace lockstep::model
