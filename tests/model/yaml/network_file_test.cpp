// Networks from text: tests the result of each part of a file, and the messages for invalid files.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/graph/rewrites.hpp"
#include "model/yaml/expansion.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/network_template.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const SampleShape kNumbers{.features = 6, .outputs = 3};
const SampleShape kImages{.features = 8 * 8 * 2, .outputs = 3, .image = ImageShape{8, 8, 2}};

NetworkOptions options_of(const std::string& text, std::map<std::string, OptionValue, std::less<>> values = {}) {
  const auto kind = std::make_shared<const NetworkKind>(read_network(text, "net.yaml"));
  return with_defaults({.name = "net.yaml", .values = std::move(values), .source = kind});
}

Description description_of(const std::string& text, const SampleShape& shape = kNumbers,
                           std::map<std::string, OptionValue, std::less<>> values = {}) {
  const NetworkOptions options = options_of(text, std::move(values));
  return expand(*options.source, options, shape);
}

/// Returns each call as "dense head(block_1/relu_1)".
std::vector<std::string> calls_of(const Description& description) {
  std::vector<std::string> lines;
  for (const Call& call : description.calls) {
    std::string from;
    for (const std::string& value : call.from) from += (from.empty() ? "" : ",") + value;
    const std::string kind = call.kind == "elementwise" ? call.get<std::string>("function") : call.kind;
    lines.push_back(kind + " " + call.name + "(" + from + ")");
  }
  return lines;
}

std::vector<std::string> calls(const std::string& layers, const SampleShape& shape = kNumbers) {
  return calls_of(description_of("name: n\nnetwork:\n" + layers, shape));
}

std::string refusal(const std::string& text, const SampleShape& shape = kNumbers) {
  return lockstep::test::message_of<std::invalid_argument>([&] { make_network(options_of(text), shape); });
}

/// The same for a network with these layers, which start in line 3.
std::string refusal_of_layers(const std::string& layers, const SampleShape& shape = kNumbers) {
  return refusal("name: n\nnetwork:\n" + layers, shape);
}

NetworkValue value(const std::string& text) {
  Scope scope;
  scope.set("a", {std::int64_t{6}});
  scope.set("b", {0.5});
  scope.set("word", {std::string("relu")});
  scope.set("yes-or-no", {true});
  return evaluate(text, false, scope);
}

TEST(Expression, HasTheTypeOfItsValues) {
  EXPECT_EQ(std::get<std::int64_t>(value("12").data), 12);
  EXPECT_EQ(std::get<std::int64_t>(value("-3").data), -3);
  EXPECT_EQ(std::get<double>(value("1e-3").data), 0.001);
  EXPECT_EQ(std::get<double>(value("2.0").data), 2);
  EXPECT_TRUE(std::get<bool>(value("yes").data));
  EXPECT_EQ(std::get<std::string>(value("he_normal").data), "he_normal");
  EXPECT_EQ(std::get<std::int64_t>(value("$a").data), 6);
  EXPECT_TRUE(std::get<bool>(value("$yes-or-no").data));
  EXPECT_EQ(std::get<std::int64_t>(value("$(2*a + 1)").data), 13);
  EXPECT_EQ(std::get<std::int64_t>(value("$(a/2 - -1)").data), 4);
  EXPECT_EQ(std::get<double>(value("$(a/4)").data), 1.5);
  EXPECT_EQ(std::get<double>(value("$(0.02/sqrt(2*a))").data), 0.02 / std::sqrt(12.0));
  EXPECT_EQ(std::get<std::int64_t>(value("$(power(2, a))").data), 64);
  EXPECT_EQ(std::get<std::int64_t>(value("$(max(a, 7) + min(a, 7))").data), 13);
  EXPECT_TRUE(std::get<bool>(value("$(word == 'relu')").data));
  EXPECT_FALSE(std::get<bool>(value("$(a <= 5)").data));
  EXPECT_EQ(std::get<std::string>(value("$(if(a > 5, 'large', 'small'))").data), "large");
  EXPECT_EQ(std::get<std::string>(value("block_$a").data), "block_6");
  EXPECT_EQ(std::get<std::string>(value("normal($(b/2))").data), "normal(0.25)");
}

TEST(Expression, RefusesWhatIsNone) {
  const auto wrong = [](const std::string& text) -> std::string {
    return lockstep::test::message_of<std::invalid_argument>([&] { value(text); });
  };
  EXPECT_THAT(wrong("$c"), HasSubstr("$c: nothing has that name"));
  EXPECT_THAT(wrong("$wrod"), HasSubstr("did you mean word?"));
  EXPECT_THAT(wrong("$(a +)"), HasSubstr("$(a +) is no expression"));
  EXPECT_THAT(wrong("$(a"), HasSubstr("has no )"));
  EXPECT_THAT(wrong("$(a b)"), HasSubstr("is no expression"));
  EXPECT_THAT(wrong("$($a * 2)"), HasSubstr("is no expression: names in it have no $ of their own"));
  EXPECT_THAT(wrong("$()"), HasSubstr("is no expression"));
  EXPECT_THAT(wrong("$"), HasSubstr("$ stands before a name"));
  EXPECT_THAT(wrong("$(word + 1)"), HasSubstr("relu is a word, and no number"));
  EXPECT_THAT(wrong("$(a/0)"), HasSubstr("no finite number"));
  EXPECT_THAT(wrong("$(sqrt(0-1))"), HasSubstr("no finite number"));
  EXPECT_THAT(wrong("$(log(a))"), HasSubstr("log is no function of one value; there are sqrt(a)"));
  EXPECT_THAT(wrong("$(if(a, 1, 2))"), HasSubstr("6 is a whole number, and must be yes or no"));
  EXPECT_THAT(wrong("1099511627777"), HasSubstr("up to 2^40"));
  EXPECT_THAT(wrong("99999999999999999999"), HasSubstr("up to 2^40"));
  EXPECT_THAT(wrong("$(power(a, 39))"), HasSubstr("up to 2^40"));
  EXPECT_THAT(wrong("$(1099511627776 * 1099511627776)"), HasSubstr("up to 2^40"));
  EXPECT_THAT(wrong("1e999"), HasSubstr("cannot be represented"));
  EXPECT_THAT(wrong("$(" + std::string(1000, '(') + "a" + std::string(1000, ')') + ")"), HasSubstr("is no expression"));
}

TEST(NetworkFile, LayersReadEachOther) {
  EXPECT_THAT(calls("- dense: 4\n- relu\n- dense: {units: $outputs, name: head}\n"),
              ElementsAre("dense dense_1(input)", "relu relu_1(dense_1)", "dense head(relu_1)"));
  EXPECT_THAT(
      calls("- dense: {units: 4, activation: tanh}\n- dense: {units: 3, activation: silu}\n- dense: 3\n"),
      ElementsAre("dense dense_1(input)", "dense dense_2(dense_1)", "silu silu_1(dense_2)", "dense dense_3(silu_1)"));
}

TEST(NetworkFile, StructuresJoinBranches) {
  EXPECT_THAT(
      calls("- residual: [dense: 6, relu]\n- dense: 3\n"),
      ElementsAre("dense dense_1(input)", "relu relu_1(dense_1)", "add add_1(relu_1,input)", "dense dense_2(add_1)"));
  EXPECT_THAT(calls("- residual: {shortcut: [dense: 4], layers: [dense: 5, dense: 4], activation: relu}\n- dense: 3\n"),
              ElementsAre("dense dense_1(input)", "dense dense_2(input)", "dense dense_3(dense_2)",
                          "add add_1(dense_3,dense_1)", "relu relu_1(add_1)", "dense dense_4(relu_1)"));
  EXPECT_THAT(calls("- parallel: {join: add, branches: [[dense: 4], [dense: 5, dense: 4], [dense: 4]]}\n- dense: 3\n"),
              ElementsAre("dense dense_1(input)", "dense dense_2(input)", "dense dense_3(dense_2)",
                          "dense dense_4(input)", "add add_1(dense_1,dense_3,dense_4)", "dense dense_5(add_1)"));
  EXPECT_THAT(calls("- parallel: [[dense: 4], [dense: 5]]\n- concatenate: [input]\n- dense: 3\n"),
              ElementsAre("dense dense_1(input)", "dense dense_2(input)", "concatenate concatenate_1(dense_1,dense_2)",
                          "concatenate concatenate_2(concatenate_1,input)", "dense dense_3(concatenate_2)"));
  EXPECT_THAT(
      calls("- dense: {units: 4, name: a}\n- dense: {units: 4, name: b, from: input}\n- add: [a]\n- dense: 3\n"),
      ElementsAre("dense a(input)", "dense b(input)", "add add_1(b,a)", "dense dense_1(add_1)"));
}

TEST(NetworkFile, ParametersOfAShortcutComeFirstWhereverItIsComputed) {
  const std::string text =
      "name: n\nnetwork:\n- residual: {layers: [dense: {units: 4, name: a}], shortcut: [dense: {units: 4, name: s}]}\n"
      "- dense: {units: 3, name: head}\n";
  EXPECT_THAT(calls_of(description_of(text)),
              ElementsAre("dense a(input)", "dense s(input)", "add add_1(a,s)", "dense head(add_1)"));
  const auto network = make_network(options_of(text), kNumbers);
  std::vector<std::string> names;
  for (const Parameter& parameter : network->parameters().all()) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("s/weight", "s/bias", "a/weight", "a/bias", "head/weight", "head/bias"));
}

TEST(NetworkFile, RepeatsAndBlocksNameTheirGroups) {
  EXPECT_THAT(
      calls("- repeat: {times: 2, as: i, name: block_$i, layers: [dense: {units: $(2*i), name: wide}]}\n"
            "- dense: 3\n"),
      ElementsAre("dense block_1/wide(input)", "dense block_2/wide(block_1/wide)", "dense dense_1(block_2/wide)"));
  EXPECT_THAT(calls("- repeat: {over: [{n: 4, f: relu}, {n: 5, f: none}], index: k, layers: [dense: {units: $n, name: "
                    "d_$k}, $f]}\n- dense: 3\n"),
              ElementsAre("dense d_1(input)", "relu relu_1(d_1)", "dense d_2(relu_1)", "dense dense_1(d_2)"));
  const std::string text =
      "name: n\nblocks:\n  pair: {parameters: [n, with], layers: [dense: $n, add: [$with]]}\n"
      "  one: {parameters: [n], layers: [dense: $n]}\n"
      "network:\n- dense: {units: 4, name: level}\n- pair: {n: 4, with: level}\n- pair: {n: 4, with: pair_1, name: "
      "top}\n- one: 3\n";
  EXPECT_THAT(calls_of(description_of(text)),
              ElementsAre("dense level(input)", "dense pair_1/dense_1(level)", "add pair_1/add_1(pair_1/dense_1,level)",
                          "dense top/dense_1(pair_1/add_1)", "add top/add_1(top/dense_1,pair_1/add_1)",
                          "dense one_1/dense_1(top/add_1)"));
}

TEST(NetworkFile, WhatIsOffIsLeftOut) {
  const std::string text =
      "name: n\noptions: {dropout: 0.0, deep: no}\nnetwork:\n- dense: {units: 4, when: $deep}\n- dropout: $dropout\n"
      "- dense: 3\n";
  EXPECT_THAT(calls_of(description_of(text)), ElementsAre("dense dense_1(input)"));
  EXPECT_THAT(calls_of(description_of(text, kNumbers, {{"dropout", 0.5}, {"deep", true}})),
              ElementsAre("dense dense_1(input)", "dropout dropout_1(dense_1)", "dense dense_2(dropout_1)"));
}

TEST(NetworkFile, ANormReplacesTheBias) {
  const Description description = description_of(
      "name: n\nnetwork:\n- conv: {channels: 4, kernel: 3, norm: batch, activation: relu, name: c}\n- flatten\n- "
      "dense: "
      "3\n",
      kImages);
  EXPECT_THAT(calls_of(description), ElementsAre("conv c(input)", "batch-norm c/norm(c)", "relu relu_1(c/norm)",
                                                 "flatten flatten_1(relu_1)", "dense dense_1(flatten_1)"));
  EXPECT_FALSE(description.calls[0].get<bool>("bias"));
  EXPECT_FALSE(description.calls[0].initializer("init")) << "the convolution knows what is usual before a norm";
  EXPECT_EQ(description.input_shape, Shape({8, 8, 2})) << "images are read as images";
}

TEST(NetworkFile, FusionsKeepNamesAndOrder) {
  const Description fusion =
      rewritten(description_of("name: n\nnetwork:\n"
                               "- dense: 4\n- relu\n- dense: {units: 4, name: two}\n- gelu\n- dense: 3\n"));
  EXPECT_THAT(calls_of(fusion), ElementsAre("dense dense_1(input)", "dense two(dense_1)", "dense dense_2(two)"));
  EXPECT_EQ(fusion.calls[0].get<std::string>("activation"), "relu");
  EXPECT_EQ(fusion.calls[1].get<std::string>("activation"), "gelu");
  const Description residual = rewritten(description_of(
      "name: n\nnetwork:\n"
      "- residual: {layers: [conv: {channels: 2, kernel: 3, norm: batch, name: c}], shortcut: [conv: {channels: 2, "
      "kernel: 1, name: s}], activation: relu}\n- flatten\n- dense: 3\n",
      kImages));
  EXPECT_THAT(calls_of(residual), ElementsAre("conv c(input)", "conv s(input)", "batch-norm c/norm(c,s)",
                                              "flatten flatten_1(c/norm)", "dense dense_1(flatten_1)"));
  EXPECT_TRUE(residual.calls[2].get<bool>("relu"));
  const Description shared =
      rewritten(description_of("name: n\nnetwork:\n- dense: {units: 4, name: a}\n- relu\n- add: [a]\n- dense: 3\n"));
  EXPECT_EQ(shared.calls.size(), 4u) << "a value that others read stays as it is";
  const Description last =
      rewritten(description_of("name: n\nnetwork:\n- dense: {units: 3, name: a}\n- dense: {units: 3, name: b, from: "
                               "input}\n- relu: {from: a}\n"));
  EXPECT_THAT(calls_of(last), ElementsAre("dense a(input)", "dense b(input)", "relu relu_1(a)"))
      << "the last call's result stays the network's";
}

TEST(NetworkFile, OptionsHaveTypesBoundsAndWhatTheyBring) {
  const NetworkKind kind = read_network(
      "name: n\nsummary: s\noptions:\n  depth: {default: 2, one-of: {1: {w: 4}, 2: {w: 5}}, help: h}\n"
      "  rate: {default: 0.5, at-least: 0, below: 1}\n  widths: [3, 4]\n  f: {default: relu, one-of: [relu, tanh]}\n"
      "training: {batch: 4}\nsmall-data: {widths: [2]}\n"
      "network:\n- dense: $w\n- $f\n- repeat: {over: $widths, as: n, layers: [dense: $n]}\n- dense: 3\n",
      "net.yaml");
  ASSERT_EQ(kind.options.size(), 6u);
  EXPECT_EQ(kind.options[0].one_of, (Numbers{1, 2}));
  EXPECT_EQ(kind.options[1].below, 1);
  EXPECT_EQ(kind.options[2].value, OptionValue(Numbers{3, 4}));
  EXPECT_THAT(kind.options[3].words, ElementsAre("relu", "tanh"));
  EXPECT_EQ(kind.small_data[0].second, OptionValue(Numbers{2}));
  EXPECT_EQ(kind.training_defaults[0], (std::pair<std::string, std::string>("batch", "4")));
  const NetworkOptions options = with_defaults({.name = "net.yaml",
                                                .values = {{"depth", std::int64_t{1}}},
                                                .source = std::make_shared<const NetworkKind>(kind)});
  EXPECT_EQ(expand(kind, options, kNumbers).calls[0].get<std::int64_t>("units"), 4);
}

TEST(NetworkFile, SignatureKnowsAllButInitialValuesDropoutAndDecay) {
  const auto signature = [](const std::string& layers) {
    return make_network(options_of("name: n\nnetwork:\n" + layers), kNumbers)->signature();
  };
  const std::string usual = signature("- dense: 4\n- relu\n- dense: 3\n");
  EXPECT_THAT(usual, HasSubstr("n 6-3 "));
  EXPECT_EQ(signature("- dense: {units: 4, init: zeros, decay: no}\n- relu\n- dropout: 0.5\n- dense: 3\n"), usual);
  EXPECT_NE(signature("- dense: 5\n- relu\n- dense: 3\n"), usual);
  EXPECT_NE(signature("- dense: 4\n- tanh\n- dense: 3\n"), usual);
  EXPECT_NE(signature("- dense: {units: 4, name: other}\n- relu\n- dense: 3\n"), usual);
  const std::string enlarged = signature("- reshape: [3, 2]\n- upsample: 2\n- flatten\n- dense: 3\n");
  EXPECT_EQ(enlarged, "n 6-3 24e1475ec671e596") << "checkpoints that are older than its modes";
  EXPECT_NE(signature("- reshape: [3, 2]\n- upsample: {factor: 2, mode: linear}\n- flatten\n- dense: 3\n"), enlarged);
}

TEST(NetworkFile, InitialValuesOfTheUserReplaceThoseOfTheFile) {
  const Description description = description_of(
      "name: n\nnetwork:\n- dense: {units: 3, init: normal(0.1)}\n", kNumbers,
      {{"weight-init", Initializers{.all = Initializer{.scheme = Initializer::Scheme::zeros}, .layers = {}}}});
  EXPECT_EQ(description.calls[0].initializer("init")->scheme, Initializer::Scheme::zeros);
}

struct Wrong {
  std::string text, message;
};

TEST(NetworkFile, SamplesHaveTheExtentsOfTheDataOrOfTheInputs) {
  const SampleShape grey{.features = 20 * 4, .outputs = 3, .image = ImageShape{20, 4, 1}},
      volumes{.features = 5 * 6 * 7 * 2, .outputs = 3, .image = ImageShape{6, 7, 2, 5}},
      color{.features = 8 * 8 * 2, .outputs = 3, .image = ImageShape{8, 8, 2}};
  const auto shape = [](const std::string& inputs, const SampleShape& sample) {
    return to_string(
        description_of("name: n\n" + inputs + "network: [flatten, dense: $outputs]\n", sample).input_shape);
  };
  EXPECT_EQ(shape("", kNumbers), "6");
  EXPECT_EQ(shape("inputs: {x: [any, any]}\n", kNumbers), "6x1");
  EXPECT_EQ(shape("", grey), "20x4x1");
  EXPECT_EQ(shape("inputs: {x: [any, 4]}\n", grey), "20x4");
  EXPECT_EQ(shape("inputs: {x: [any]}\n", grey), "80");
  EXPECT_EQ(shape("", volumes), "5x6x7x2");
  EXPECT_EQ(shape("inputs: {x: [any, any, any, 2]}\n", volumes), "5x6x7x2");
  EXPECT_EQ(shape("inputs: {x: [any, any, any, any]}\n", color), "8x8x2x1");
  EXPECT_THAT(refusal("name: n\ninputs: {x: [any, any]}\nnetwork: [flatten, dense: 3]\n", color),
              HasSubstr("net.yaml:2: inputs: x: the data have samples of 8x8x2, and the file asks for anyxany"));
  EXPECT_THAT(refusal("name: n\ninputs: {x: [any, any, any]}\nnetwork: [flatten, dense: 3]\n", volumes),
              HasSubstr("takes images"));
}

TEST(NetworkFile, FusionsAreCounted) {
  using Counts = std::map<std::string, int>;
  const auto fusions = [](const std::string& layers, const SampleShape& shape) {
    return make_network(options_of("name: n\nnetwork:\n" + layers), shape)->fusions();
  };
  EXPECT_EQ(fusions("- dense: 4\n- relu\n- dense: 4\n- relu\n- dense: 3\n", kNumbers), (Counts{{"dense + relu", 2}}));
  EXPECT_EQ(fusions("- dense: {units: 4, activation: relu}\n- dense: 3\n", kNumbers), Counts{});
  EXPECT_EQ(fusions("- conv: {channels: 2, kernel: 3}\n- residual: {layers: [conv: {channels: 2, kernel: 3, norm: "
                    "batch}], activation: relu}\n- flatten\n- dense: 3\n",
                    kImages),
            (Counts{{"batch-norm + add + relu", 1}}));
  EXPECT_EQ(fusions("- dense: 4\n- residual: [dense: 8, gelu, dense: 4]\n- layer-norm\n- dense: 3\n", kNumbers),
            (Counts{{"dense + gelu + dense", 1}, {"add + layer-norm", 1}}));
}

TEST(NetworkFile, SeveralInputsAreRangesOfTheRow) {
  const SampleShape mixed{.features = 12 + 5,
                          .outputs = 3,
                          .inputs = {{.name = "image", .extents = {2, 3, 2}}, {.name = "table", .extents = {5}}}};
  const std::string inputs = "name: n\ninputs: {image: [2, any, any], table: [any]}\nnetwork:\n";
  const std::string layers = "- flatten: {from: image}\n- concatenate: [table]\n- dense: 3\n";
  const Description description = description_of(inputs + layers, mixed);
  EXPECT_THAT(calls_of(description),
              ElementsAre("slice image/part(all inputs)", "reshape image(image/part)", "slice table(all inputs)",
                          "flatten flatten_1(image)", "concatenate concatenate_1(flatten_1,table)",
                          "dense dense_1(concatenate_1)"));
  EXPECT_EQ(description.calls[2].get<std::int64_t>("begin"), 12);
  EXPECT_EQ(description.calls[2].get<std::int64_t>("end"), 17);
  EXPECT_EQ(refusal(inputs + layers, mixed), "");
  EXPECT_THAT(refusal(inputs + "- dense: 3\n", mixed), HasSubstr("net.yaml:4: dense_1: says by from: which of the"));
  EXPECT_THAT(refusal(inputs + "- dense: {units: 3, from: table}\n", mixed),
              HasSubstr("net.yaml:2: image is read by no operation"));
  EXPECT_THAT(refusal(inputs + "- flatten: {from: image, name: table}\n", mixed),
              HasSubstr("name of an earlier layer"));

  SampleShape other = mixed;  // matched by order; the data have no channel
  other.inputs = {{.name = "a", .extents = {2, 6}}, {.name = "b", .extents = {5, 1}}};
  EXPECT_EQ(refusal(inputs + layers, other), "");
  other.inputs[1].extents = {5, 2};
  EXPECT_THAT(refusal(inputs + layers, other),
              HasSubstr("the data have the inputs a [2, 6] and b [5, 2], and the file asks for image [2, any, any] and "
                        "table [any]"));
  other.inputs = {{.name = "table", .extents = {5}}, {.name = "image", .extents = {2, 3, 2}}};
  EXPECT_THAT(refusal(inputs + layers, other), HasSubstr("the data have the inputs table [5] and image [2, 3, 2]"));
  other.inputs = {{.name = "image", .extents = {2, 3, 2}}, {.name = "more", .extents = {5}}};
  EXPECT_THAT(refusal(inputs + layers, other), HasSubstr("and the file asks for image"));
  other.inputs.push_back({.name = "third", .extents = {}});
  EXPECT_THAT(refusal(inputs + layers, other), HasSubstr("and the network reads image [2, any, any] and table [any]"));
  EXPECT_THAT(refusal("name: n\nnetwork: [dense: 3]\n", mixed), HasSubstr("and the network reads one without a name"));
}

TEST(NetworkFile, IsRecurrentIfALayerIs) {
  const auto is_recurrent = [](const std::string& layers) {
    return read_network(
               "name: n\nreads: tokens\nwindow: w\noptions: {w: 4}\nnetwork:\n"
               "- embedding: {vocabulary: $vocabulary, width: 8, name: e}\n" +
                   layers + "- head: {table: e}\n",
               "net.yaml")
        .recurrent;
  };
  EXPECT_TRUE(is_recurrent("- lstm: 8\n"));
  EXPECT_TRUE(is_recurrent("- repeat: {times: 2, layers: [lstm: 8]}\n"));
  EXPECT_FALSE(is_recurrent("- dense: 8\n"));
  const SampleShape text{.features = 4, .outputs = 7, .tokens = true};
  const std::string end = "- head: {table: e}\n", begin =
                                                      "name: n\nreads: tokens\nwindow: w\noptions: {w: 4}\nnetwork:\n- "
                                                      "embedding: {vocabulary: 7, width: 8, name: e}\n";
  EXPECT_EQ(refusal(begin + "- lstm: 8\n" + end, text), "");
  EXPECT_THAT(refusal(begin + "- lstm: {units: 8, when: no}\n" + end, text), HasSubstr("describe it without them"));
  EXPECT_THAT(refusal(begin + "- head: {table: f}\n", text),
              HasSubstr("net.yaml:7: table: f: no layer before this one"));
  EXPECT_THAT(refusal_of_layers("- lstm: 8\n- dense: 3\n"), HasSubstr("reads 6, and an lstm reads steps x numbers"));
}

TEST(NetworkFile, RefusesWhatIsNoFile) {
  const std::string end = "\nnetwork: [dense: 3]\n";
  const std::vector<Wrong> table{
      {"", "net.yaml:1: a network file begins with `name: NAME`"},
      {"- a\n", "net.yaml:1: a network file begins with"},
      {"name: n\n", "net.yaml:1: network: is missing"},
      {"network: [dense: 3]\n", "net.yaml:1: name: is missing"},
      {"name: a b" + end, "net.yaml:1: name: a b: a name has letters"},
      {"name: n\nnetwork: []\n", "net.yaml:2: network: a list of layers belongs here"},
      {"name: n\nnetwork: 3\n", "net.yaml:2: network: a list of layers belongs here"},
      {"name: n\nnetwrok: [dense: 3]\n", "net.yaml:2: netwrok is not known here; did you mean network?"},
      {"name: n\nname: m" + end, "net.yaml:2: name is there twice, first in line 1"},
      {"name: n\nlosses: []" + end, "net.yaml:2: losses: a list of 1 to 8 losses belongs here"},
      {"name: n\nlosses: [a]" + end,
       "net.yaml:2: losses: {loss: NAME, of: OUTPUT, with: TARGET, weight: X} belongs here"},
      {"name: n\nlosses: [{weight: 1}]" + end, "net.yaml:2: loss: is missing"},
      {"name: n\nlosses:\n- {loss: dise}" + end, "net.yaml:3: losses: dise is no loss; did you mean dice?"},
      {"name: n\nlosses: [{loss: dice, wait: 1}]" + end, "net.yaml:2: wait is not known here"},
      {"name: n\nlosses: [{loss: dice, weight: -0.5}]" + end,
       "net.yaml:2: losses: weight: -0.5 is no number from 1e-06 to 1e+06"},
      {"name: n\nlosses: [{loss: dice, weight: much}]" + end,
       "net.yaml:2: losses: weight: much is no number from 1e-06 to 1e+06"},
      {"name: n\nlosses: [{loss: huber, ignore: 3}]" + end, "net.yaml:2: losses: ignore: a label, a whole number"},
      {"name: n\nlosses: [{loss: dice, ignore: 0.5}]" + end, "net.yaml:2: losses: ignore: a label, a whole number"},
      {"name: n\noutputs: [a]" + end, "net.yaml:2: outputs: not in a file: the last layer is the output"},
      {"name: n\nreads: pictures" + end, "net.yaml:2: reads: pictures is not known"},
      {"name: n\nreads: tokens" + end, "needs `window: NAME`"},
      {"name: n\nwindow: w" + end, "net.yaml:2: window: w is no option that is a whole number"},
      {"name: n\ninputs: {a: [any], b: [any]}" + end,
       "net.yaml:2: inputs: the network reads a [any] and b [any], and the data have one input"},
      {"name: n\nreads: images\ninputs: {a: [any], b: [any]}" + end, "several inputs contradict `reads:`"},
      {"name: n\ninputs: {}" + end, "net.yaml:2: inputs: NAME: [EXTENTS] belongs here"},
      {"name: n\ninputs: {a: [any, any, any, any, any]}" + end,
       "net.yaml:2: inputs: a: [any] (numbers), [any, any] (len"},
      {"name: n\ninputs: {a: [any, any, any]}" + end, "takes images"},
      {"name: n\ninputs: {a: [0]}" + end, "net.yaml:2: inputs: a: an extent is a positive whole number or `any`"},
      {"name: n\ninputs: {a: [5]}" + end, "net.yaml:2: inputs: a: the data have samples of 6, and the file asks for 5"},
      {"name: n\nreads: images\ninputs: {a: [6]}" + end, "net.yaml:3: inputs: a has 1 extents, which contradicts"},
      {"name: n\noptions: [a]" + end, "net.yaml:2: options: NAME: {default: VALUE} belongs here"},
      {"name: n\noptions: {Big: 1}" + end, "net.yaml:2: options: Big: a name begins with a small letter"},
      {"name: n\noptions: {outputs: 1}" + end, "net.yaml:2: options: outputs has a meaning of its own"},
      {"name: n\noptions: {a: {help: x}}" + end, "net.yaml:2: default: is missing"},
      {"name: n\noptions: {a: {default: 1, atleast: 0}}" + end,
       "net.yaml:2: atleast is not known here; did you mean at-least?"},
      {"name: n\noptions: {a: {default: 1, at-least: 2}}" + end, "options: a: its default, 1, must be at least 2"},
      {"name: n\noptions: {a: {default: x, below: 2}}" + end, "options: a: below is a number, for options that are"},
      {"name: n\noptions: {a: {default: 1, one-of: [x]}}" + end, "one-of has x, a word, and the default is of another"},
      {"name: n\noptions: {a: {default: 1, one-of: {1: x}}}" + end, "options: a: 1: {NAME: VALUE} belongs here"},
      {"name: n\noptions: {a: [x]}" + end, "net.yaml:2: a: a list holds whole numbers"},
      {"name: n\noptions: {a: }" + end, "net.yaml:2: a value is missing"},
      {"name: n\ntraining: [a]" + end, "net.yaml:2: training: OPTION: VALUE belongs here"},
      {"name: n\ntraining: {batch: [1]}" + end, "net.yaml:2: batch: a word belongs here"},
      {"name: n\nsmall-data: {a: 1}" + end, "net.yaml:2: small-data: a is no option"},
      {"name: n\noptions: {a: 1}\nsmall-data: {a: x}" + end, "net.yaml:3: small-data: a is x, and must be a whole"},
      {"name: n\nblocks: {b: [x]}" + end, "net.yaml:2: blocks: b: {parameters: [..], layers: [..]} belongs here"},
      {"name: n\nblocks: {b: {layers: x}}" + end, "net.yaml:2: blocks: b: layers: a list belongs here"},
      {"name: n\nblocks: {b: {parameters: [from], layers: []}}" + end, "parameters: a list of names, without"},
      {"name: n\nblocks: {dense: {layers: []}}" + end, "net.yaml:2: blocks: dense is a layer already"},
      {"name: &a n" + end, "net.yaml:1: an anchor (&NAME)"},
      {"name: n\nsummary: *a" + end, "net.yaml:2: no YAML: the referenced anchor is not defined"},
      {"name: !!str n" + end, "net.yaml:1: a tag (tag:yaml.org,2002:str)"},
      {"name: n\noptions: !x {a: 1}" + end, "net.yaml:2: a tag (!x)"},
      {"name: n\noptions: {<<: {a: 1}}" + end, "net.yaml:2: a merge key (<<)"},
      {"name: n" + end + "---\nname: m" + end, "a second document begins here"},
      {"name: n\n? [a]\n: b" + end, "net.yaml:2: a key is a word"},
      {"name: n\nnetwork: [", "no YAML: "},
      {"name: n\nsummary: \"x" + end, "net.yaml:1: network: is missing"},
      {std::string("name: n\0", 8) + end, "net.yaml is no text"},
      {"name: n\nnetwork: " + std::string(100, '[') + std::string(100, ']'), "net.yaml:2: more than 64 levels"},
      {"name: n\nnetwork: " + std::string(100'000, '['), "net.yaml:2: more than 64 levels"},
      {"#" + std::string(kMaxYamlBytes, 'x'), "net.yaml has 1048577 bytes: the text of a network has at most 1048576"}};
  for (const Wrong& wrong : table) {
    EXPECT_THAT(refusal(wrong.text), HasSubstr(wrong.message)) << wrong.text.substr(0, 200);
  }
}

TEST(NetworkFile, RefusesWhatIsNoLayer) {
  const std::vector<Wrong> table{
      {"- convolution: 3\n", "net.yaml:3: convolution is no layer; did you mean conv? Layers: add, "},
      {"- denes: 3\n", "net.yaml:3: denes is no layer; did you mean dense?"},
      {"- elementwise: relu\n", "net.yaml:3: elementwise is no layer"},
      {"- dense: 3\n  activation: relu\n", "net.yaml:3: a layer is KIND: VALUE, and here stand dense and activation"},
      {"- [dense: 3]\n", "net.yaml:3: a layer is a word, or KIND: VALUE"},
      {"- dense: {unit: 3}\n", "net.yaml:3: dense does not take unit; did you mean units? It takes: activation, "},
      {"- dense: {activation: relu}\n", "net.yaml:3: dense needs a value of units"},
      {"- dense\n", "net.yaml:3: dense needs a value of units"},
      {"- dense: x\n", "net.yaml:3: dense: units is x, and must be a whole number"},
      {"- dense: 2.5\n", "net.yaml:3: dense: units is 2.5, and must be a whole number"},
      {"- dense: 0\n", "net.yaml:3: dense: units is 0, and must be at least 1"},
      {"- dense: $($outputs)\n", "is no expression"},
      {"- dense: $ouputs\n", "net.yaml:3: $ouputs: nothing has that name; did you mean outputs?"},
      {"- dense: {units: 3, init: norml}\n", "net.yaml:3: dense: init is no initialisation"},
      {"- dense: {units: 3, bias-init: 0}\n", "net.yaml:3: dense: bias-init is 0, and must be an initialisation"},
      {"- dense: {units: 3, decay: 1}\n", "net.yaml:3: dense: decay is 1, and must be yes or no"},
      {"- dense: {units: 3, activation: rleu}\n", "net.yaml:3: rleu is no activation; did you mean relu?"},
      {"- dense: {units: 3, norm: bach}\n", "net.yaml:3: norm: bach-norm is no norm; did you mean batch-norm?"},
      {"- dense: {units: 3, norm: {batch: {sacle: 1}}}\n", "net.yaml:3: batch-norm does not take sacle; did you mean"},
      {"- dense: {units: 3, name: a/b}\n", "net.yaml:3: name: a/b: a name has letters"},
      {"- dense: {units: 3, name: [a]}\n", "net.yaml:3: name: a word belongs here"},
      {"- dense: {units: 3, when: 1}\n", "net.yaml:3: when: 1 is a whole number, and must be yes or no"},
      {"- dense: {units: 3, from: nowhere}\n",
       "net.yaml:3: from: nowhere: no layer before this one has that name; there are input"},
      {"- dense: {units: 3, name: level}\n- dense: {units: 3, from: levle}\n",
       "net.yaml:4: from: levle: no layer before this one has that name; did you mean level?"},
      {"- dense: {units: 3, from: 3}\n", "net.yaml:3: from: 3 is a whole number, and must be the name of a layer"},
      {"- dense: {units: 3, from: [input, input]}\n", "net.yaml:3: dense_1 reads 2 values; dense reads 1"},
      {"- dense: {units: 3, name: a}\n- dense: {units: 3, name: a}\n", "net.yaml:4: a is the name of an earlier layer"},
      {"- flatten: 3\n", "net.yaml:3: flatten takes no value: write flatten alone"},
      {"- add: [input]\n", "net.yaml: the network's output is 6 of each sample, and the data ask for 3"},
      {"- dense: 3\n- add: [input]\n", "net.yaml:4: add_1 adds 3 and 6: they must have one shape"},
      {"- dropout: 1\n- dense: 3\n", "net.yaml:3: dropout: rate is 1, and must be less than 1"},
      {"- leaky-relu: x\n- dense: 3\n", "net.yaml:3: leaky-relu: the value is x, and must be a number"},
      {"- relu: 3\n- dense: 3\n", "net.yaml:3: relu_1 has a parameter, which relu does not take"},
      {"- relu: {slope: 3}\n- dense: 3\n", "net.yaml:3: relu does not take slope"},
      {"- sequence: dense\n", "net.yaml:3: sequence: a list of layers belongs here"},
      {"- sequence: {name: a}\n", "net.yaml:3: sequence: a list of layers belongs here, under layers:"},
      {"- sequence: {layer: []}\n", "net.yaml:3: sequence does not take layer; did you mean layers?"},
      {"- sequence: {from: [input, input], layers: [dense: 3]}\n", "net.yaml:3: from: sequence reads one value"},
      {"- residual: []\n- dense: 3\n", "net.yaml:3: residual: no layer is left: it would add a value to itself"},
      {"- residual: [dense: 5]\n- dense: 3\n", "net.yaml:3: add_1 adds 5 and 6: they must have one shape"},
      {"- parallel: {branches: []}\n", "net.yaml:3: parallel: branches: a list of lists of layers belongs here"},
      {"- parallel: {branches: [dense: 3]}\n", "net.yaml:3: a list of layers belongs here"},
      {"- parallel: {branches: [[dense: 3]], join: sum}\n",
       "net.yaml:3: join: sum is not known. Known: add, concatenate and none"},
      {"- parallel: {branches: [[dense: 3], [dense: 3]], join: none}\n", "net.yaml:3: dense_1 is read by no operation"},
      {"- repeat: {layers: [dense: 3]}\n", "net.yaml:3: repeat: needs either times: or over:"},
      {"- repeat: {times: 2, over: [1], layers: [dense: 3]}\n", "net.yaml:3: repeat: needs either times: or over:"},
      {"- repeat: {times: x, layers: [dense: 3]}\n", "net.yaml:3: times: x must be a whole number from 0 to 20000"},
      {"- repeat: {times: 99999, layers: []}\n", "net.yaml:3: times: 99999 must be a whole number from 0 to 20000"},
      {"- repeat: {over: 3, layers: [dense: 3]}\n", "net.yaml:3: over: 3 is a whole number, and must be a list"},
      {"- repeat: {times: 2, name: same, layers: [dense: 3]}\n", "net.yaml:3: same is the name of an earlier layer"},
      {"- repeat: {times: 20000, layers: [repeat: {times: 20000, layers: []}]}\n", "the network has too many layers"},
      {"- repeat: {times: 20000, layers: [dense: 3, dense: 3]}\n", "the network has more than 20000 operations"},
      {"- repeat: {times: 0, layers: [dense: 3]}\n", "net.yaml:3: network: no layer is left"},
      {"- dense: {units: 3, name: a}\n- sequence: {from: a, layers: []}\n- dense: {units: 4}\n- sequence: {from: a, "
       "layers: []}\n",
       "the network ends with a, which is not its last operation (dense_1)"},
      {"- dense: 4\n",
       "net.yaml: the network's output is 4 of each sample, and the data ask for 3: end with `dense: $outputs`"},
      {"- conv: {channels: 3, kernel: 3}\n",
       "net.yaml:3: conv_1 reads 6, and a convolution reads length x channels, height x "},
      {"- dense: 1099511627776\n- dense: 3\n- dense: 1099511627777\n", "up to 2^40"},
      {"- dense: 1099511627776\n- dense: 1099511627776\n- dense: 3\n",
       "net.yaml:3: dense_1 parameter dense_1/weight has shape [6, 1099511627776]: more than 2^40 elements"}};
  for (const Wrong& wrong : table) {
    EXPECT_THAT(refusal_of_layers(wrong.text), HasSubstr(wrong.message)) << wrong.text;
  }
  EXPECT_THAT(refusal_of_layers("- conv: {channels: 4, kernel: 3, padding: some}\n", kImages),
              HasSubstr("net.yaml:3: conv_1 has padding some: give same, valid, one number, or one for each"));
  EXPECT_THAT(refusal_of_layers("- max-pool: 2\n- concatenate: [input]\n", kImages),
              HasSubstr("net.yaml:4: concatenate_1 joins 4x4x2 and 8x8x2: they may differ in the last extent alone"));
  EXPECT_THAT(refusal_of_layers("- dense: 3\n", kImages), HasSubstr("end with `flatten` (or `global-average`)"));
}

TEST(NetworkFile, RefusesBlocksThatDoNotFitTheirCalls) {
  const auto wrong = [](const std::string& layers) {
    return refusal(
        "name: n\nblocks:\n  b: {parameters: [n, m], layers: [dense: $n]}\n  self: {layers: [self]}\nnetwork:\n" +
        layers);
  };
  EXPECT_THAT(wrong("- b: {n: 3}\n"), HasSubstr("net.yaml:6: b needs a value of m"));
  EXPECT_THAT(wrong("- b: 3\n"), HasSubstr("net.yaml:6: b has 2 parameters"));
  EXPECT_THAT(wrong("- b: {n: 3, m: 3, k: 3}\n"), HasSubstr("net.yaml:6: b does not take k"));
  EXPECT_THAT(wrong("- self\n"),
              HasSubstr("more than 64 structures inside each other: a block may not contain itself"));
}

}  // namespace
}  // namespace lockstep::model
