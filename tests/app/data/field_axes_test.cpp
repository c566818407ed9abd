/// Meaning of the extents of inputs.
#include "app/data/field_axes.hpp"

#include <memory>

#include <gtest/gtest.h>

#include "model/network.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::app {
namespace {

using Extents = std::vector<std::int64_t>;

io::Field field(Extents extents, std::string name = "x") {
  return {.name = std::move(name), .type = io::FileType::float32, .sample_shape = std::move(extents)};
}
model::NetworkOptions network_with(const std::string& inputs) {
  const std::string text = "name: n\n" + inputs + "\nnetwork: [flatten, dense: $outputs]\n";
  return {.name = "net.yaml",
          .source = std::make_shared<const model::NetworkKind>(model::read_network(text, "net.yaml"))};
}
FieldAxes axes(const Extents& stored, const model::NetworkOptions& network) {
  io::DatasetInfo info;
  info.x = field(stored);
  return axes_of_inputs(info, network).at(0);
}
FieldAxes declared(const Extents& stored, const std::string& extents) {
  return axes(stored, network_with("inputs: {x: " + extents + "}"));
}

TEST(FieldAxesTest, NetworkSaysWhatTheExtentsMean) {
  EXPECT_EQ(declared({20, 2}, "[any, any]"), (FieldAxes{{20}, 2})) << "a series";
  EXPECT_EQ(declared({20, 2}, "[any, any, any]"), (FieldAxes{{20, 2}, 1})) << "an image of one channel";
  EXPECT_EQ(declared({20, 2}, "[any]"), (FieldAxes{{20, 2}, 1})) << "the pixels of an image";
  EXPECT_EQ(declared({16, 16, 8}, "[any, any, any]"), (FieldAxes{{16, 16}, 8}));
  EXPECT_EQ(declared({16, 16, 4}, "[any, any, any, any]"), (FieldAxes{{16, 16, 4}, 1})) << "a volume of one channel";
  EXPECT_EQ(declared({6, 6, 5, 2}, "[any, any, any, any]"), (FieldAxes{{6, 6, 5}, 2}));
  EXPECT_EQ(declared({12}, "[any]"), (FieldAxes{{}, 12}));
}

TEST(FieldAxesTest, SingleChannelMayBeMissing) {
  EXPECT_EQ(declared({40}, "[any, any]"), (FieldAxes{{40}, 1}));
  EXPECT_EQ(declared({40, 1}, "[any, any]"), (FieldAxes{{40}, 1}));
  EXPECT_EQ(declared({40, 1}, "[any]"), (FieldAxes{{}, 40}));
}

TEST(FieldAxesTest, WithoutDeclarationSamplesAreImages) {
  for (const char* name : {"mlp", "cnn", "resnet"}) {
    EXPECT_EQ(axes({28, 28}, {.name = name}), (FieldAxes{{28, 28}, 1})) << name;
    EXPECT_EQ(axes({16, 16, 8}, {.name = name}), (FieldAxes{{16, 16}, 8})) << name;
  }
  EXPECT_EQ(axes({40}, {.name = "mlp"}), (FieldAxes{{}, 40}));
  EXPECT_EQ(axes({40, 1}, {.name = "mlp"}), (FieldAxes{{}, 40}));
  EXPECT_EQ(axes({6, 6, 5, 2}, {.name = "mlp"}), (FieldAxes{{6, 6, 5}, 2}));
  EXPECT_EQ(axes({48, 64, 16}, network_with("")), (FieldAxes{{48, 64}, 16}));
}

TEST(FieldAxesTest, EachInputHasItsOwn) {
  io::DatasetInfo info;
  info.x = field({20 * 2 + 3 + 1});
  info.inputs = {{.field = field({20, 2}, "series")}, {.field = field({3}, "table")}, {.field = field({}, "age")}};
  const auto inputs = axes_of_inputs(info, network_with("inputs: {series: [any, any], table: [any], age: [1]}"));
  EXPECT_EQ(inputs, (std::vector<FieldAxes>{{{20}, 2}, {{}, 3}, {{}, 1}}));
  EXPECT_EQ(features_of(inputs), 6);
  const std::vector<io::FeaturePart> parts = feature_parts(inputs);
  EXPECT_EQ(parts, (std::vector<io::FeaturePart>{{40, 2}, {3, 3}, {1, 1}}));
}

TEST(FieldAxesTest, WindowsAreSeriesAndTokensHaveNone) {
  io::DatasetInfo windows;
  windows.x = field({5, 3});
  windows.windows = io::WindowInfo{.window = 5};
  EXPECT_EQ(axes_of_inputs(windows, {.name = "mlp"}), (std::vector<FieldAxes>{{{5}, 3}}));
  io::DatasetInfo tokens;
  tokens.tokens = io::TokenInfo{};
  EXPECT_TRUE(axes_of_inputs(tokens, {.name = "gpt"}).empty());
}

}  // namespace
}  // namespace lockstep::app
