// Products in bfloat16 of odd extents use padded copies, on the stand-in for cuBLASLt, which counts unaligned products:
// the same bits as without copies, in products and in training.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/matmul.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/training/training.hpp"
#include "support/cublaslt_on_cpu.hpp"

namespace lockstep::model::test {
namespace {

using lockstep::test::take_refusals;
using lockstep::test::take_unaligned_products;
using lockstep::test::UnalignedProduct;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kAlways = 0, kNever = std::numeric_limits<double>::infinity();

std::vector<std::string> from(double flops, const std::vector<UnalignedProduct>& products) {
  std::vector<std::string> found;
  for (const UnalignedProduct& each : products) {
    if (each.flops >= flops) found.push_back(each.what);
  }
  return found;
}

TEST(PaddedProducts, HaveTheBitsOfTheProductItself) {
  struct Case {
    std::int64_t rows, terms, columns;
    bool aligned;  ///< as stored, and no factor transposed
  };
  const Case cases[] = {{5, 16, 24, true}, {5, 9, 24, false}, {7, 16, 11, false}, {3, 7, 5, false}, {8, 1, 1, false}};
  const auto backend = make_backend("cuda", {.precision = Precision::bf16});
  cuda::DeviceMemory memory(0);
  const cuda::Stream stream = cuda::make_stream();
  const auto products = [&](double worth) {
    return std::make_unique<cuda::Matmul>(
        memory, cuda::Matmul::Options{.precision = Precision::bf16, .workspace = 4096, .padding = {.worth = worth}});
  };
  const std::unique_ptr<cuda::Matmul> plain = products(kNever), padding = products(kAlways);
  for (const Case& each : cases) {
    for (int variant = 0; variant < 32; ++variant) {
      const bool a_turned = (variant & 1) != 0, b_turned = (variant & 2) != 0, biased = (variant & 16) != 0;
      const Accumulate accumulate = (variant & 4) != 0 ? Accumulate::yes : Accumulate::no;
      const ElementType result = (variant & 8) != 0 ? ElementType::float32 : ElementType::bfloat16;
      if (biased && (accumulate == Accumulate::yes || result == ElementType::float32)) continue;
      SCOPED_TRACE(fmt::format("{} x {} x {}, variant {}", each.rows, each.terms, each.columns, variant));
      std::vector<std::vector<std::byte>> results;
      for (cuda::Matmul* const matmul : {plain.get(), padding.get()}) {
        Random same;
        const auto matrix = [&](ElementType type, std::int64_t rows, std::int64_t columns) {
          return Array(*backend, type, rows, columns, same.numbers(rows * columns));
        };
        const ElementType in = ElementType::bfloat16;
        const Array a = a_turned ? matrix(in, each.terms, each.rows) : matrix(in, each.rows, each.terms);
        const Array b = b_turned ? matrix(in, each.columns, each.terms) : matrix(in, each.terms, each.columns);
        const Array out = matrix(result, each.rows, each.columns), bias = matrix(result, 1, each.columns);
        const auto turned = [](bool yes) { return yes ? cuda::Matmul::Transposed::yes : cuda::Matmul::Transposed::no; };
        const cuda::Matmul::Operand left{a.tensor(), turned(a_turned)}, right{b.tensor(), turned(b_turned)};
        static_cast<void>(take_unaligned_products());
        const bool fused = biased && matmul->multiply_with_bias(stream.get(), left, right, bias.tensor(), out.tensor());
        if (!fused) matmul->multiply(stream.get(), left, right, accumulate, out.tensor());
        if (biased && !fused) cuda::add_bias_and_activate(stream.get(), out.tensor(), bias.tensor(), Activation::none);
        cuda::check(cudaStreamSynchronize(stream.get()), "waiting");
        const auto unaligned = take_unaligned_products();
        if (matmul == padding.get()) {
          EXPECT_THAT(from(0, unaligned), IsEmpty());
        } else if (!a_turned && !b_turned) {
          EXPECT_THAT(unaligned, SizeIs(each.aligned ? 0 : 1)) << "the count counts";
        }
        std::vector<std::byte>& bytes = results.emplace_back(out.tensor().bytes());
        std::memcpy(bytes.data(), out.tensor().data, bytes.size());
      }
      EXPECT_EQ(results[0], results[1]);
    }
  }
  EXPECT_THAT(take_refusals(), IsEmpty());
}

struct Workload {
  std::string what;
  NetworkOptions network;
  SampleShape shape;
  std::int64_t batch;
};

std::vector<Workload> odd_networks() {
  return {{"mlp", {.values = {{"hidden", Numbers{33, 17}}}}, {.features = 31, .outputs = 7}, 9},
          {"mlp of 1,001 classes", {.values = {{"hidden", Numbers{21}}}}, {.features = 13, .outputs = 1001}, 5},
          {"cnn", {.name = "cnn"}, {.features = 12 * 12 * 3, .outputs = 7, .image = ImageShape{12, 12, 3}}, 3},
          {"resnet",
           {.name = "resnet", .values = {{"depth", 20}}},
           {.features = 8 * 8 * 3, .outputs = 7, .image = ImageShape{8, 8, 3}},
           3},
          {"lstm",
           {.name = "lstm", .values = {{"hidden", Numbers{9}}, {"layers", 2}, {"dropout", 0.2}}},
           {.features = 4, .outputs = 301, .tokens = true},
           3},
          {"tied lstm",
           {.name = "lstm", .values = {{"hidden", Numbers{13}}, {"layers", 1}, {"tied", true}}},
           {.features = 4, .outputs = 37, .tokens = true},
           3},
          {"gpt",
           {.name = "gpt", .values = {{"layers", 1}, {"width", 18}, {"heads", 2}, {"tied", false}}},
           {.features = 7, .outputs = 301, .tokens = true},
           2}};
}

/// Weights and losses of steps on one batch: plain, recorded, replayed.
struct Trained {
  std::vector<float> weights;
  std::vector<double> losses;
};
Trained trained(std::unique_ptr<Backend> backend, const Workload& workload, int steps = 3) {
  const auto network = make_network(workload.network, workload.shape);
  Random same;
  const std::int64_t features = workload.shape.features, rows = workload.shape.tokens ? features : 1;
  const std::vector<float> x = same.numbers(workload.batch * features);
  const std::vector<std::int32_t> tokens = same.labels(workload.batch * features, workload.shape.outputs);
  const std::vector<std::int32_t> labels = same.labels(workload.batch * rows, workload.shape.outputs);
  std::vector<std::uint64_t> keys;
  for (std::int64_t i = 0; i < workload.batch; ++i) keys.push_back(same.generator()());
  const OptimizerOptions optimizer{.kind = OptimizerKind::momentum};
  model::Training training(
      *backend, *network,
      {.max_batch = workload.batch, .sample_type = workload.shape.tokens ? ElementType::int32 : ElementType::float32},
      {.optimizer = optimizer});
  training.parameters.initialize(5);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    training.model.stage({.x = workload.shape.tokens ? host_tensor(tokens.data(), workload.batch, features)
                                                     : host_tensor(x.data(), workload.batch, features),
                          .y = host_tensor(labels.data(), workload.batch, rows),
                          .keys = host_tensor(keys.data(), workload.batch, 1),
                          .begins = step == 0});
    training.status.write({});
    training.optimizer.prepare(update_rule(optimizer, 0.05, step));
    const std::array<std::int64_t, 1> key{training.model.slot()};
    backend->repeat(key, [&] {
      Model& model = training.model;
      model.backward(model.forward(1.0 / static_cast<double>(workload.batch), Accumulate::no), {});
      training.status.report_loss(model.loss_sums());
      training.optimizer.finish_gradients();
      training.optimizer.update();
    });
    training.status.post();
    training.model.release_batch();
    backend->synchronize();
    training.model.wait_staged();
    result.losses.push_back(training.status.posted().loss);
  }
  result.weights.resize(training.parameters.elements());
  training.parameters.download_group("parameters", result.weights);
  return result;
}

std::unique_ptr<Backend> gpu(double worth) {
  return make_backend("cuda", {.precision = Precision::bf16, .worth_padding = worth});
}

TEST(PaddedProducts, TrainEveryNetworkOfOddExtents) {
  for (const Workload& workload : odd_networks()) {
    SCOPED_TRACE(workload.what);
    static_cast<void>(take_unaligned_products());
    const Trained plain = trained(gpu(kNever), workload);
    EXPECT_GT(take_unaligned_products().size(), 0u) << "or nothing is compared here";
    const Trained padded = trained(gpu(kAlways), workload);
    EXPECT_THAT(from(0, take_unaligned_products()), IsEmpty());
    EXPECT_EQ(plain.losses, padded.losses);
    EXPECT_EQ(plain.weights, padded.weights);
    const Trained cpu = trained(make_backend("cpu"), workload);
    ASSERT_EQ(cpu.weights.size(), padded.weights.size());
    for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
      EXPECT_NEAR(padded.losses[step], cpu.losses[step], 3e-2 * cpu.losses[0]) << "step " << step;
    }
  }
  EXPECT_THAT(take_refusals(), IsEmpty());
}

/// Pads as programs do: if it pays.
TEST(PaddedProducts, LeaveNoLargeProductUnaligned) {
  const Workload head{"gpt with a layer of its own for 50,257 tokens",
                      {.name = "gpt", .values = {{"layers", 1}, {"width", 32}, {"heads", 2}, {"tied", false}}},
                      {.features = 32, .outputs = 50257, .tokens = true},
                      2};
  const Workload wide{
      "mlp of odd widths", {.values = {{"hidden", Numbers{513}}}}, {.features = 785, .outputs = 1001}, 1001};
  for (const Workload* const workload : {&head, &wide}) {
    SCOPED_TRACE(workload->what);
    static_cast<void>(take_unaligned_products());
    const Trained padded = trained(gpu(kFlopsPerCopiedByte), *workload, 1);
    EXPECT_THAT(from(1e7, take_unaligned_products()), IsEmpty());
    EXPECT_TRUE(std::isfinite(padded.losses.back()));
  }
}

}  // namespace
}  // namespace lockstep::model::test
