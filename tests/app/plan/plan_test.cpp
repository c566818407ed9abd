#include "app/plan/plan.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"
#include "model/backend.hpp"
#include "model/model.hpp"

namespace lockstep::app {
namespace {

/// The smallest network of each kind.
std::vector<std::unique_ptr<model::Network>> networks() {
  const auto image = [](std::int64_t side) {
    const model::ImageShape shape{.height = side, .width = side, .channels = 3};
    return model::SampleShape{.features = shape.elements(), .outputs = 10, .image = shape};
  };
  const model::SampleShape text{.features = 8, .outputs = 11, .image = {}, .tokens = true};
  std::vector<std::unique_ptr<model::Network>> made;
  made.push_back(model::make_network({.name = "mlp", .values = {{"hidden", model::Numbers{5, 7}}}},
                                     {.features = 20, .outputs = 3, .image = {}}));
  made.push_back(model::make_network({.name = "linear"}, {.features = 20, .outputs = 1, .image = {}}));
  made.push_back(model::make_network({.name = "cnn"}, image(32)));
  made.push_back(model::make_network({.name = "resnet", .values = {{"depth", 20}}}, image(32)));
  made.push_back(model::make_network({.name = "resnet", .values = {{"depth", 50}}}, image(64)));
  made.push_back(model::make_network({.name = "lstm", .values = {{"hidden", model::Numbers{6}}, {"layers", 2}}}, text));
  made.push_back(model::make_network({.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}}}, text));
  made.push_back(model::make_network(
      {.name = "gpt", .values = {{"layers", 2}, {"width", 8}, {"heads", 2}, {"tied", false}}}, text));
  return made;
}

TEST(BackwardPlan, SaysWhenGradientsAreFinalAsTheBackwardPassDoes) {
  for (const auto& network : networks()) {
    const auto backend = model::make_backend("cpu");
    const bool tokens = network->sample_shape().tokens;
    model::ParameterState parameters(*backend, network->parameters(), {});
    model::Model model(
        *backend, *network, parameters,
        {.max_batch = 2, .sample_type = tokens ? model::ElementType::int32 : model::ElementType::float32});
    parameters.initialize(1);
    const std::vector<float> x(static_cast<std::size_t>(2 * network->sample_shape().features));
    const std::vector<std::int32_t> y(static_cast<std::size_t>(2 * network->positions()));
    model.stage({.x = {const_cast<float*>(x.data()), tokens ? model::ElementType::int32 : model::ElementType::float32,
                       2, network->sample_shape().features},
                 .y = model::host_tensor(y.data(), 2, network->positions())});
    std::set<std::size_t> said, planned;
    model.backward(model.forward(1, model::Accumulate::no), [&](std::size_t end) { said.insert(end); });
    std::vector<std::size_t> ends;
    for (const BackwardLayer& entry : backward_plan(*network)) {
      ends.insert(ends.end(), entry.slice_ends.begin(), entry.slice_ends.end());
      if (!entry.slice_ends.empty()) planned.insert(entry.slice_ends.back());
    }
    said.insert(network->parameters().arena_elements());  // at the latest at the end
    // Statistics lie behind the first layer's weights: a pass may report these first.
    said.erase(network->parameters().trained_elements() == network->parameters().arena_elements()
                   ? 0
                   : network->parameters().trained_elements());
    EXPECT_EQ(ends, network->parameters().slice_ends()) << network->signature();
    EXPECT_EQ(planned, said) << network->signature();
  }
}

TEST(BackwardPlan, HoldsAllThatTheNetworkComputes) {
  for (const auto& network : networks()) {
    double planned = 0, whole = 0;
    for (const BackwardLayer& entry : backward_plan(*network)) planned += entry.layer.backward_flops;
    for (const model::LayerPlan& layer : network->plan()) whole += layer.backward_flops;
    EXPECT_DOUBLE_EQ(planned, whole) << network->signature();
  }
}

TEST(BackwardPlan, IsWrittenALayerALine) {
  const auto network = model::make_network({.name = "mlp", .values = {{"hidden", model::Numbers{5}}}},
                                           {.features = 20, .outputs = 3, .image = {}});
  comm::SerialCommunicator alone;
  const std::string file = testing::TempDir() + "/backward_plan_test.jsonl";
  write_backward_plan(alone, file, *network);
  std::ifstream stream(file);
  std::string line;
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_THAT(line, testing::StartsWith("{\"layer\":\"dense_2\""));
  EXPECT_THAT(line, testing::EndsWith(",\"slice_ends\":[64,128]}"));
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_THAT(line, testing::EndsWith(",\"slice_ends\":[192,320]}"));
  EXPECT_FALSE(std::getline(stream, line));
  EXPECT_TRUE(std::filesystem::remove(file));
  EXPECT_THROW(write_backward_plan(alone, testing::TempDir() + "/none/plan.jsonl", *network), comm::ConsensusError);
}

}  // namespace
}  // namespace lockstep::app
