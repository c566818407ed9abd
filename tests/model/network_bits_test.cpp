// Bits of the networks: a hash of the parameters after 20 steps of each network on the reference backend, in float64. A
// change of the code that does not change the computation must not change the hashes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/reference/reference_backend.hpp"
#include "network_harness.hpp"
#include "now.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t kLargestMicroBatch = 5, kStepsOfEach = 20;

/// FNV-1a.
class Hash {
 public:
  void add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) value_ = (value_ ^ (word >> (8 * byte) & 0xFF)) * 0x100000001B3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

/// Returns a hash of results of the C library's mathematical functions, whose last bits differ between libraries and
/// processors.
std::uint64_t functions_of_this_machine() {
  Hash hash;
  for (int i = 1; i < 2000; ++i) {
    const double x = 0.0037 * i - 3.1;
    for (const double y : {std::exp(x), std::tanh(x), std::log(x + 3.2), std::pow(x + 3.2, 0.75), x * x + 0.1 * x}) {
      hash.add(std::bit_cast<std::uint64_t>(y));
    }
  }
  return hash.value();
}
constexpr std::uint64_t kKnownFunctions = 0xB32B3C848028BDBF;

struct BitsCase {
  std::string label;
  NetworkOptions options;
  SampleShape shape;
  std::uint64_t all, frozen;  ///< hashes: everything trained, and with frozen lower parts
  std::int64_t steps = kStepsOfEach;
  LossKind loss = LossKind::softmax_cross_entropy;
};
void PrintTo(const BitsCase& network, std::ostream* out) { *out << network.label; }

class NetworkBits : public ::testing::TestWithParam<BitsCase> {
 protected:
  /// Returns the hash after steps with two micro-batches each, with dropout.
  static std::uint64_t trained(bool freezes) {
    const BitsCase& network_case = GetParam();
    const SampleShape& shape = network_case.shape;
    const auto network = make_network(network_case.options, shape);
    if (freezes) {
      // Freezes the lower half except one layer, and the last parameter.
      std::vector<std::size_t> indices;
      const auto& all = network->parameters().all();
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool normalizes = all[i].role == Role::statistic || all[i].name.find("/norm/") != std::string::npos;
        if (!normalizes && i != 2 && (i < all.size() / 2 || (all.size() > 2 && i + 1 == all.size())))
          indices.push_back(i);
      }
      network->freeze(indices);
    }
    const auto backend = std::make_unique<ReferenceBackend>();
    const OptimizerOptions optimizer{.kind = OptimizerKind::momentum, .l2 = 0.001};
    test::SeededTraining training(*backend, *network,
                                  {.loss = network_case.loss,
                                   .max_batch = kLargestMicroBatch,
                                   .sample_type = shape.tokens ? ElementType::int32 : ElementType::float32,
                                   .sequences = 2 * kLargestMicroBatch},
                                  {.optimizer = optimizer});
    const std::int64_t positions = shape.tokens ? shape.features : 1;
    for (std::int64_t step = 0; step < network_case.steps; ++step) {
      for (const std::int64_t micro : {0, 1}) {
        const std::int64_t count = kLargestMicroBatch - micro;
        const auto first = (2 * step + micro) * kLargestMicroBatch;
        const auto x = test::samples<float>(fmt::format("x {} {}", step, micro), count * shape.features);
        auto tokens = test::labels(count * shape.features + first, shape.outputs);
        tokens.erase(tokens.begin(), tokens.begin() + first);
        auto y = test::labels(count * positions + first + 3, shape.outputs);
        y.erase(y.begin(), y.begin() + first + 3);
        const auto targets = test::samples<float>(fmt::format("y {}", step), count * shape.outputs);
        const auto keys = test::sample_keys(count, first);
        test::forward_backward(
            training,
            {.x = shape.tokens ? host_tensor(tokens.data(), count, shape.features)
                               : host_tensor(x.data(), count, shape.features),
             .y = is_of_numbers(network_case.loss) ? host_tensor(targets.data(), count, shape.outputs)
                                                   : host_tensor(y.data(), count, positions),
             .keys = host_tensor(keys.data(), count, 1),
             .first_sequence = micro * kLargestMicroBatch,
             .begins = step % 7 == 0},
            1.0 / (2 * kLargestMicroBatch - 1), micro == 0 ? Accumulate::no : Accumulate::yes);
      }
      test::finish_step(training, update_rule(optimizer, 0.02, step));
    }
    Hash hash;
    for (const double value : training.parameters.parameters().elements<double>()) {
      EXPECT_TRUE(std::isfinite(value));
      hash.add(std::bit_cast<std::uint64_t>(value));
    }
    return hash.value();
  }
};

TEST_P(NetworkBits, AreThoseOfBefore) {
  if (functions_of_this_machine() != kKnownFunctions) {
    GTEST_SKIP() << fmt::format("another C library or processor: {:#x}", functions_of_this_machine());
  }
  EXPECT_EQ(fmt::format("{:#018x}", trained(false)), fmt::format("{:#018x}", GetParam().all));
  EXPECT_EQ(fmt::format("{:#018x}", trained(true)), fmt::format("{:#018x}", GetParam().frozen)) << "frozen";
}

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkBits,
    ::testing::Values(
        BitsCase{.label = "linear",
                 .options = {.name = "linear"},
                 .shape = {.features = 7, .outputs = 3},
                 .all = 0xD7ACE31D895723FD,
                 .frozen = 0x3EB9188C262A6AEA,
                 .loss = LossKind::huber},
        BitsCase{.label = "mlp",
                 .options = {.name = "mlp",
                             .values = {{"hidden", Numbers{9, 6, 8}}, {"activation", "gelu"}, {"dropout", 0.25}}},
                 .shape = {.features = 11, .outputs = 3},
                 .all = 0xDA029126B4FFCEEA,
                 .frozen = 0x53F13C15C7C82052},
        BitsCase{.label = "mlp_relu",
                 .options = {.name = "mlp", .values = {{"hidden", Numbers{9, 6}}, {"dropout", 0.5}}},
                 .shape = {.features = 11, .outputs = 3},
                 .all = 0x65C3595535952990,
                 .frozen = 0x3B2CC6CE0123DAA3},
        BitsCase{.label = "cnn",
                 .options = {.name = "cnn", .values = {{"dropout", 0.25}}},
                 .shape = test::images(6, 5, 2, 3),
                 .all = 0x5B36782CA71EC19C,
                 .frozen = 0x9D9B23A2E4E0F65E},
        BitsCase{.label = "cnn_gelu",
                 .options = {.name = "cnn", .values = {{"activation", "gelu"}}},
                 .shape = test::images(5, 6, 1, 3),
                 .all = 0x7A655DA8CBA1F7D4,
                 .frozen = 0x2DB71EECF8BD58C5,
                 .steps = 5},
        BitsCase{.label = "resnet_20",
                 .options = {.name = "resnet", .values = {{"sync-batch-norm", true}}},
                 .shape = test::images(7, 8, 2, 3),
                 .all = 0xA7FE0BE11B0C7118,
                 .frozen = 0x1ED5B5DC5FC88A49},
        BitsCase{.label = "resnet_18",
                 .options = {.name = "resnet", .values = {{"depth", 18}}},
                 .shape = test::images(8, 8, 2, 3),
                 .all = 0xE5A052AE851571DB,
                 .frozen = 0x9380BA54C1455F8F,
                 .steps = 2},
        BitsCase{.label = "lstm",
                 .options = {.name = "lstm", .values = {{"hidden", Numbers{6}}, {"dropout", 0.25}, {"tied", true}}},
                 .shape = test::tokens(4, 9),
                 .all = 0x7E711BF8ABD7F454,
                 .frozen = 0x1AE79F321FD43940},
        BitsCase{.label = "gpt",
                 .options = {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}, {"dropout", 0.25}}},
                 .shape = test::tokens(5, 9),
                 .all = 0xE5E4F73AF8D6A7CC,
                 .frozen = 0x36CC9FA8298C0396},
        BitsCase{.label = "gpt_untied",
                 .options = {.name = "gpt", .values = {{"layers", 1}, {"width", 6}, {"heads", 3}, {"tied", false}}},
                 .shape = test::tokens(4, 7),
                 .all = 0x422B22CA5452244A,
                 .frozen = 0xCBD73BFAD12B21C0}),
    [](const auto& network) { return network.param.label; });

}  // namespace
}  // namespace lockstep::model
