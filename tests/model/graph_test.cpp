// Invalid descriptions are refused with the name of the call. Graphs have the expected memory and plan.
#include "model/graph/graph.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/graph/rewrites.hpp"
#include "model/network.hpp"
#include "network_harness.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string graph_refusal(const Description& description, std::int64_t outputs = 2) {
  return lockstep::test::message_of<std::invalid_argument>(
      [&] { Network(description, {.features = description.input_shape.elements(), .outputs = outputs}, "test"); });
}

Call dense(std::string name, std::int64_t units, std::vector<std::string> from = {}) {
  return {.kind = "dense", .name = std::move(name), .from = std::move(from), .arguments = {{"units", units}}};
}

TEST(Graph, RefusesWhatIsNoNetwork) {
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2)}}), "");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {}}), "a network needs at least one operation");
  EXPECT_THAT(graph_refusal({.input_shape = {4}, .calls = {{.kind = "densee", .name = "a"}}}),
              HasSubstr("a is a densee, which is no operation; there are add, "));
  EXPECT_EQ(graph_refusal({.input_shape = {4},
                           .calls = {{.kind = "dense", .name = "a", .arguments = {{"units", 2}}, .place = "net.yaml:3"},
                                     dense("b", 2, {"c"})}}),
            "b reads c, and no operation before it has that name; there are a, input");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {{.kind = "dense", .name = "a", .place = "net.yaml:3"}}}),
            "net.yaml:3: a needs a value of units");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 0)}}), "a has units 0, which must be at least 1");
  EXPECT_THAT(
      graph_refusal({.input_shape = {4}, .calls = {{.kind = "dense", .name = "a", .arguments = {{"unit", 2}}}}}),
      HasSubstr("a has an argument unit, which dense does not take; it takes: units, activation"));
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2), dense("b", 2, {"input"})}}),
            "a is read by no operation");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 2), dense("a", 2)}}),
            "a has the name of an earlier operation");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("", 2)}}), " an operation needs a name");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {{.kind = "add", .name = "a"}, dense("b", 2)}}),
            "a reads 1 values; add reads 2 to 16");
  EXPECT_EQ(graph_refusal(
                {.input_shape = {4}, .calls = {dense("a", 3), {.kind = "add", .name = "b", .from = {"a", "input"}}}}),
            "b adds 3 and 4: they must have one shape");
  EXPECT_EQ(
      graph_refusal(
          {.input_shape = {4}, .calls = {{.kind = "max-pool", .name = "a", .arguments = {{"window", Numbers{2}}}}}}),
      "a reads 4, and a pool reads length x channels, height x width x channels or depth x height x width x channels");
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {dense("a", 3)}}),
            "the network's output is 3 of each sample, and the data ask for 2: end with `dense: $outputs`");
  EXPECT_EQ(
      graph_refusal({.input_shape = {2}, .calls = {{.kind = "dropout", .name = "a", .arguments = {{"rate", 0.5}}}}}),
      "the network has no parameters: nothing can be trained");
}

TEST(Shape, RefusesNonsense) {
  EXPECT_THROW((Shape{3, 0}), std::invalid_argument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), std::invalid_argument);
  EXPECT_THROW((Shape{std::int64_t{1} << 30, std::int64_t{1} << 30, 16}), std::invalid_argument);
  EXPECT_EQ((Shape{4, 5, 6}).places(), 20);
  EXPECT_EQ(to_string(Shape{4, 5, 6}), "4x5x6");
}

TEST(Graph, GradientsOfFrozenBranchesAreLeftOut) {
  // Two branches from the input are added. Freezing one removes its nodes from backward.
  Description description{.input_shape = {4},
                          .calls = {dense("left", 3, {"input"}),
                                    dense("right", 3, {"input"}),
                                    {.kind = "add", .name = "sum", .from = {"left", "right"}},
                                    dense("top", 2)}};
  Network network(description, {.features = 4, .outputs = 2}, "branches");
  const auto flops = [&] {
    std::vector<double> each;
    for (const LayerPlan& line : network.plan()) each.push_back(line.backward_flops);
    return each;
  };
  EXPECT_THAT(flops(), ElementsAre(24, 24, 0, 24)) << "the gradient of the input is not needed";
  network.freeze(std::vector<std::size_t>{0, 1});
  EXPECT_THAT(flops(), ElementsAre(0, 24, 0, 24));
  network.freeze(std::vector<std::size_t>{2, 3});
  EXPECT_THAT(flops(), ElementsAre(0, 0, 0, 12)) << "nobody trains below";
}

TEST(Graph, EvaluationTakesLessMemoryThanTraining) {
  const auto network = make_network({.name = "mlp", .values = {{"hidden", Numbers(20, 64)}, {"dropout", 0.1}}},
                                    {.features = 64, .outputs = 10});
  const auto bytes = [&](Purpose purpose) {
    return ActivationLayout(network->activations(purpose), 16, test::kDoubles).bytes();
  };
  EXPECT_EQ(bytes(Purpose::evaluation), 2u * 16 * 64 * 8) << "one layer's input and output";
  EXPECT_GT(bytes(Purpose::training), 20u * 16 * 64 * 8);
}

Call elementwise(std::string name, const char* function, std::vector<std::string> from = {}) {
  return {
      .kind = "elementwise", .name = std::move(name), .from = std::move(from), .arguments = {{"function", function}}};
}

std::vector<std::string> kinds_of(const Description& description) {
  std::vector<std::string> kinds;
  for (const Call& call : description.calls) kinds.push_back(call.kind);
  return kinds;
}

TEST(Rewrites, PutTogetherWhatOneKindComputes) {
  const Description network =
      rewritten({.input_shape = {4, 4, 2},
                 .calls = {{.kind = "conv", .name = "conv", .arguments = {{"channels", 2}, {"kernel", 3}}},
                           elementwise("act", "relu"),
                           {.kind = "batch-norm", .name = "norm"},
                           {.kind = "add", .name = "sum", .from = {"act", "norm"}},
                           elementwise("sum/relu", "relu"),
                           {.kind = "flatten", .name = "flat"},
                           dense("wide", 8),
                           elementwise("gelu", "gelu"),
                           dense("narrow", 3),
                           dense("out", 2)}});
  EXPECT_THAT(kinds_of(network), ElementsAre("conv", "batch-norm", "flatten", "dense, gelu, dense", "dense"));
  EXPECT_EQ(network.calls[0].get<std::string>("activation"), "relu");
  EXPECT_THAT(network.calls[1].from, ElementsAre("conv", "conv")) << "the norm's input, and the other addend";
  EXPECT_TRUE(network.calls[1].get<bool>("relu"));
  EXPECT_THAT(network.calls[2].from, ElementsAre("norm"));
  EXPECT_EQ(network.calls[3].name, "narrow");
  EXPECT_EQ(network.calls[3].parts[0].name, "wide") << "parameters keep their names";
}

TEST(Rewrites, LeaveWhatOthersRead) {
  const Description network =
      rewritten({.input_shape = {4},
                 .calls = {dense("a", 4),
                           elementwise("b", "relu"),
                           {.kind = "add", .name = "c", .from = {"a", "b"}},
                           dense("d", 4),
                           elementwise("e", "silu"),
                           {.kind = "dense", .name = "f", .arguments = {{"units", 4}, {"activation", "gelu"}}},
                           dense("last", 2)}});
  EXPECT_THAT(kinds_of(network), ElementsAre("dense", "elementwise", "add", "dense", "elementwise", "dense", "dense"))
      << "a is read twice, silu is no activation of dense, and the last result may be padded";
}

TEST(Rewrites, MakeStacksOfRecurrentLayersInTimeMajorOrder) {
  const auto lstm = [](std::string name, std::int64_t units) {
    return Call{.kind = "lstm", .name = std::move(name), .arguments = {{"units", units}}};
  };
  const Description description{
      .input = "tokens",
      .input_shape = {5},
      .input_holds = Holds::tokens,
      .calls = {{.kind = "embedding", .name = "e", .arguments = {{"vocabulary", 7}, {"width", 3}}},
                lstm("one", 4),
                {.kind = "dropout", .name = "drop", .arguments = {{"rate", 0.1}}},
                lstm("two", 4),
                lstm("three", 4),
                lstm("wider", 6),
                dense("out", 7)}};
  const Description network = rewritten(description);
  EXPECT_THAT(kinds_of(network), ElementsAre("time-major", "embedding", "lstm", "lstm", "dense"));
  EXPECT_EQ(network.calls[2].name, "three");
  EXPECT_EQ(network.calls[2].parts.size(), 4u);
  EXPECT_THAT(network.calls[3].from, ElementsAre("three"));
  const Network made(description, test::tokens(5, 7), "layers of two widths");
  EXPECT_EQ(made.parameters()[1].name, "one/input");
  EXPECT_EQ(made.recurrent_state().all().size(), 8u);
}

// A value is narrow if all operations that write and read it allow that. The values of a norm or a sum are all narrow
// or none.
TEST(Graph, HoldsNarrowValuesBetweenOperationsThatTakeThem) {
  const auto conv = [](std::string name, const char* activation = "relu") {
    return Call{.kind = "conv",
                .name = std::move(name),
                .arguments = {{"channels", 2}, {"kernel", Numbers{3}}, {"activation", std::string(activation)}}};
  };
  const auto norm = [](std::string name, std::vector<std::string> from = {}) {
    return Call{.kind = "batch-norm", .name = std::move(name), .from = std::move(from)};
  };
  const Call fp32{.kind = "softmax", .name = "fp32"};
  const auto images = [&](std::vector<Call> calls, Purpose purpose) {
    calls.push_back({.kind = "flatten", .name = "flat"});
    calls.push_back(dense("out", 3));
    const Network network({.input_shape = {4, 4, 2}, .calls = std::move(calls)}, test::images(4, 4, 2, 3), "images");
    return std::ranges::count(network.activations(purpose).all(), Holds::narrow, &ActivationTable::Entry::holds);
  };
  const auto of_training = [&](std::vector<Call> calls) { return images(std::move(calls), Purpose::training); };
  const Call pool{.kind = "max-pool", .name = "pool", .arguments = {{"window", Numbers{2}}}};
  EXPECT_EQ(of_training({conv("a"), fp32}), 0) << "a softmax reads it";
  EXPECT_EQ(of_training({conv("a")}), 4) << "a, what the dense layer sees of it, and their gradients";
  EXPECT_EQ(of_training({conv("a"), conv("b"), fp32}), 2) << "a and its gradient";
  EXPECT_EQ(images({conv("a"), conv("b"), fp32}, Purpose::evaluation), 1);
  EXPECT_EQ(of_training({conv("a"), pool, fp32}), 2) << "the pool's result is read by a softmax";
  EXPECT_EQ(of_training({conv("a", "gelu"), conv("b"), fp32}), 0) << "another operation makes the activation";
  EXPECT_EQ(of_training({conv("a"), norm("b"), fp32}), 0) << "the norm's result is none";
  EXPECT_EQ(of_training({conv("a"), norm("b"), conv("c"), fp32}), 4);
  EXPECT_EQ(of_training({conv("a"), norm("b"), elementwise("c", "silu"), conv("d"), fp32}), 6);
  const Call groups{.kind = "group-norm", .name = "groups", .arguments = {{"groups", 1}}};
  EXPECT_EQ(of_training({conv("a"), norm("b"), groups, conv("d"), fp32}), 6) << "a, b, groups, and their gradients";
  EXPECT_EQ(of_training({conv("a"), norm("b"), {.kind = "softmax", .name = "c"}, conv("d"), fp32}), 0)
      << "a softmax reads fp32";
  EXPECT_EQ(of_training({conv("a"), conv("b"), norm("c", {"b", "a"}), conv("d"), fp32}), 7)
      << "the values, their gradients, and what b adds to that of a";
  EXPECT_EQ(of_training({conv("a"), conv("b"), norm("c", {"b", "a"}), groups, fp32}), 0);
  EXPECT_EQ(of_training({norm("a"), conv("b"), conv("c"), fp32}), 2) << "the network's input is none, so a is none";
  EXPECT_EQ(of_training({conv("a"), pool, fp32, {.kind = "flatten", .name = "rows"}, dense("b", 5), dense("c", 4)}), 8)
      << "a, b, c, what the last layer sees of c, and their gradients";
}

TEST(Graph, HoldsValuesBetweenDenseLayersAndAttentionAsImages) {
  const Call embedding{.kind = "embedding", .name = "e", .arguments = {{"vocabulary", 7}, {"width", 6}}},
      norm{.kind = "layer-norm", .name = "norm"},
      attention{.kind = "attention", .name = "attention", .arguments = {{"heads", 2}}},
      dropout{.kind = "dropout", .name = "drop", .arguments = {{"rate", 0.1}}};
  const auto images = [&](std::vector<Call> calls) {
    const Network network(
        {.input = "tokens", .input_shape = {5}, .input_holds = Holds::tokens, .calls = std::move(calls)},
        test::tokens(5, 7), "images");
    return std::ranges::count(network.activations(Purpose::training).all(), Holds::narrow,
                              &ActivationTable::Entry::holds);
  };
  EXPECT_EQ(images({embedding, norm, dense("joint", 18), attention, dense("out", 7)}), 6)
      << "norm, joint, attention and their gradients";
  EXPECT_EQ(images({embedding, norm, dense("joint", 18), attention, dropout, dense("out", 7)}), 8);
  EXPECT_EQ(images({embedding, dropout, norm, dense("out", 7)}), 2) << "a layer norm reads fp32";
}

TEST(Graph, RefusesTokensWhereNumbersAreRead) {
  const auto refusal = [](std::vector<Call> calls) -> std::string {
    return lockstep::test::message_of<std::invalid_argument>([&] {
      Network({.input = "tokens", .input_shape = {5}, .input_holds = Holds::tokens, .calls = std::move(calls)},
              test::tokens(5, 7), "test");
    });
  };
  const Call embedding{.kind = "embedding", .name = "e", .arguments = {{"vocabulary", 7}, {"width", 6}}},
      lstm{.kind = "lstm", .name = "l", .arguments = {{"units", 6}}};
  EXPECT_EQ(refusal({dense("a", 7)}), "a reads tokens, and dense reads numbers: an embedding makes numbers of tokens");
  EXPECT_EQ(refusal({embedding, {.kind = "embedding", .name = "f", .arguments = {{"vocabulary", 7}, {"width", 3}}}}),
            "f reads numbers, and embedding reads tokens: from: names an input of whole numbers");
  EXPECT_EQ(refusal({embedding, {.kind = "head", .name = "h", .arguments = {{"table", "other"}}}}),
            "h shares other/tokens, and no operation before it has such a parameter");
  EXPECT_EQ(
      refusal({embedding, {.kind = "attention", .name = "a", .arguments = {{"heads", 4}}}}),
      "a reads 5x6, and attention of 4 heads reads positions x 3 times a multiple of the heads: queries, keys and "
      "values");
  EXPECT_THAT(refusal({embedding, lstm, {.kind = "attention", .name = "a", .arguments = {{"heads", 2}}}}),
              HasSubstr("row by row"));
  Call with_positions = embedding;
  with_positions.arguments["positions"] = true;
  EXPECT_THAT(refusal({with_positions, lstm}), HasSubstr("has positions, and a recurrent operation reads its steps"));
  EXPECT_EQ(graph_refusal({.input_shape = {4}, .calls = {lstm}}), "l reads 4, and an lstm reads steps x numbers");
  for (const char* kind : {"lstm", "gru"}) {
    Call turned{.kind = kind, .name = "l", .arguments = {{"units", 6}, {"direction", "both"}}};
    EXPECT_EQ(refusal({embedding, turned}),
              "l has direction both, and a language model predicts later tokens: only `forward` reads tokens");
    turned.arguments = {{"units", 6}, {"steps", "last"}};
    EXPECT_EQ(refusal({embedding, turned}),
              "l has the last of its steps alone, and a language model predicts a token behind each");
  }
  EXPECT_EQ(refusal({embedding, {.kind = "attention", .name = "a", .arguments = {{"heads", 2}, {"causal", false}}}}),
            "a lets a position see later ones, which a language model predicts: leave `causal` as it is");
  EXPECT_EQ(refusal({embedding, {.kind = "conv", .name = "a", .arguments = {{"channels", 4}, {"kernel", Numbers{3}}}}}),
            "a lets a position see later ones, which a language model predicts: attention, lstm and gru look at "
            "earlier positions alone");
}

TEST(Graph, PositionsOfALanguageModelSeeEarlierOnesAlone) {
  const auto is_refused = [](const char* kind, decltype(Call::arguments) arguments,
                             std::vector<std::string> from = {}) {
    const std::string text = graph_refusal(
        {.input_shape = {6},
         .input_holds = Holds::tokens,
         .calls = {{.kind = "embedding", .name = "e", .arguments = {{"vocabulary", 9}, {"width", 4}}},
                   {.kind = "dense", .name = "d", .arguments = {{"units", 4}}},
                   {.kind = kind, .name = "a", .from = std::move(from), .arguments = std::move(arguments)}}});
    return text.find("lets a position see later ones, which a language model predicts") != std::string::npos;
  };
  EXPECT_TRUE(is_refused("conv", {{"channels", 4}, {"kernel", Numbers{3}}}));
  EXPECT_TRUE(is_refused("transpose", {{"order", Numbers{1, 0}}}));
  EXPECT_TRUE(is_refused("mean", {{"axis", 0}}));
  EXPECT_TRUE(is_refused("slice", {{"axis", 0}, {"begin", 1}}));
  EXPECT_TRUE(is_refused("reshape", {{"shape", Numbers{4, 6}}}));
  EXPECT_TRUE(is_refused("max-pool", {{"window", Numbers{3}}, {"stride", Numbers{1}}}));
  EXPECT_TRUE(is_refused("group-norm", {}));
  EXPECT_TRUE(is_refused("batch-norm", {}));
  EXPECT_TRUE(is_refused("concatenate", {{"axis", 0}}, {"d", "d"}));
  EXPECT_TRUE(is_refused("matmul", {{"transpose", true}}, {"d", "d"}));
  EXPECT_FALSE(is_refused("conv", {{"channels", 4}, {"kernel", Numbers{1}}}));
  EXPECT_FALSE(is_refused("concatenate", {}, {"d", "d"}));
  EXPECT_FALSE(is_refused("slice", {{"begin", 1}}));
  EXPECT_FALSE(is_refused("reshape", {{"shape", Numbers{6, 2, 2}}}));
  EXPECT_FALSE(is_refused("mean", {{"axis", 1}}));
  EXPECT_FALSE(is_refused("softmax", {}));
  EXPECT_FALSE(is_refused("multiply", {}, {"d", "d"}));
  EXPECT_FALSE(is_refused("layer-norm", {}));
  EXPECT_FALSE(is_refused("lstm", {{"units", 3}}));
}

}  // namespace
}  // namespace lockstep::model
