#include "app/exchange/onnx_operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "model/formulas/elementwise.hpp"
#include "model/formulas/gelu.hpp"
#include "model/formulas/normalization.hpp"
#include "model/graph/windows.hpp"
#include "model/image_operations.hpp"

namespace lockstep::app {

namespace {

using Name = OnnxGraph::Name;
using Numbers = OnnxGraph::Numbers;
using model::Node;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
Name gelu(OnnxGraph& onnx, const Name& x) {
  const auto number = [&](double value) { return onnx.scalar(static_cast<float>(value)); };
  const Name square = onnx.node("Mul", {x, x});
  const Name cubic = onnx.node("Add", {onnx.node("Mul", {square, number(model::formulas::kGeluCubic)}), number(1)});
  const Name inner = onnx.node("Mul", {onnx.node("Mul", {x, cubic}), number(model::formulas::kTwoRootsTwoOverPi / 2)});
  const Name share = onnx.node("Add", {onnx.node("Tanh", {inner}), number(1)});
  return onnx.node("Mul", {onnx.node("Mul", {x, number(0.5)}), share});
}

/// Applies an elementwise function, by its name in dense, conv and elementwise. `parameter` nullopt: its default.
Name applied(OnnxGraph& onnx, const Name& x, std::string_view function, std::optional<double> parameter = {}) {
  const auto number = [&](double otherwise) { return static_cast<float>(parameter.value_or(otherwise)); };
  if (function == "none") return x;
  if (function == "relu") return onnx.node("Relu", {x});
  if (function == "leaky-relu") return onnx.node("LeakyRelu", {x}, {{"alpha", number(0.01)}});
  if (function == "elu") return onnx.node("Elu", {x}, {{"alpha", number(1)}});
  if (function == "tanh") return onnx.node("Tanh", {x});
  if (function == "sigmoid") return onnx.node("Sigmoid", {x});
  if (function == "silu") return onnx.node("Mul", {x, onnx.node("Sigmoid", {x})});
  if (function == "gelu") return gelu(onnx, x);
  if (function == "scale") return onnx.node("Mul", {x, onnx.scalar(number(1))});
  if (function == "softplus") return onnx.node("Softplus", {x});
  if (function == "log1p") return onnx.node("Log", {onnx.node("Add", {x, onnx.scalar(1)})});
  if (function == "hard-sigmoid") return onnx.node("HardSigmoid", {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
  if (function == "hard-swish") return onnx.node("HardSwish", {x});
  if (function == "gelu-exact") {  // x / 2 (1 + erf(x / sqrt(2)))
    const Name root = onnx.scalar(static_cast<float>(model::formulas::kRootOfHalf));
    const Name share = onnx.node("Add", {onnx.node("Erf", {onnx.node("Mul", {x, root})}), onnx.scalar(1)});
    return onnx.node("Mul", {onnx.node("Mul", {x, onnx.scalar(0.5f)}), share});
  }
  throw std::logic_error(fmt::format("there is no ONNX operator for {}", function));
}

void emit_dense(OnnxEmission& to, const Node& node) {
  const Name product = to.onnx.node("Gemm", {to.rows(node.inputs[0]), to.weight(node, 0), to.weight(node, 1)});
  to.set_rows(to.output_of(node), applied(to.onnx, product, node.call.get<std::string>("activation")));
}

/// The number of directions of a value in which the window of a conv or a pool moves.
std::size_t directions_of(const OnnxEmission& to, std::size_t value) { return to.type(value).shape.count() - 1; }

/// The attributes of the window of a conv or a pool over `in`. `size`: the argument that holds its extents.
OnnxGraph::Attributes sliding(const Node& node, std::string_view size, const model::Shape& in) {
  const std::size_t directions = in.count() - 1;
  const auto sweeps = model::window_of(node.call, size, model::image_of_places(in, node.name), directions).sweeps();
  Numbers sizes, strides, dilations, before, after;
  for (const model::Sweep& sweep : std::span(sweeps).last(directions)) {
    sizes.push_back(sweep.size);
    strides.push_back(sweep.stride);
    dilations.push_back(sweep.dilation);
    before.push_back(sweep.before);
    after.push_back(sweep.after);
  }
  before.insert(before.end(), after.begin(), after.end());
  OnnxGraph::Attributes attributes{
      {"kernel_shape", std::move(sizes)}, {"strides", std::move(strides)}, {"pads", std::move(before)}};
  if (std::ranges::count(dilations, 1) < std::ssize(dilations)) {
    attributes.emplace_back("dilations", std::move(dilations));
  }
  return attributes;
}

OnnxGraph::Attributes sliding(const OnnxEmission& to, const Node& node, std::string_view size) {
  return sliding(node, size, to.type(node.inputs[0]).shape);
}

/// [(depth,) (height,) width, in, out] -> [out, in, (depth,) (height,) width]
Name filters_of(OnnxEmission& to, const Node& node) {
  const io::NamedTensor& filters = to.tensor(node, 0);
  const std::size_t directions = directions_of(to, node.inputs[0]);
  const std::int64_t in = filters.shape[directions], out = filters.shape[directions + 1];
  const std::int64_t area = std::ssize(filters.values) / (in * out);
  Numbers shape{out, in};
  shape.insert(shape.end(), filters.shape.begin(), filters.shape.begin() + static_cast<std::ptrdiff_t>(directions));
  return to.onnx.made(filters.name, shape, [&] {
    std::vector<float> values;
    values.reserve(filters.values.size());
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) {
        for (std::int64_t at = 0; at < area; ++at) {
          values.push_back(filters.values[static_cast<std::size_t>((at * in + i) * out + o)]);
        }
      }
    }
    return values;
  });
}

/// Emits Conv or ConvTranspose; both have the same layout of weights.
void emit_filters(OnnxEmission& to, const Node& node, const char* op_type, OnnxGraph::Attributes attributes) {
  OnnxGraph::Names inputs{to.image(node.inputs[0]), filters_of(to, node)};
  if (node.call.get<bool>("bias")) inputs.push_back(to.weight(node, 1));
  if (const auto groups = node.call.get<std::int64_t>("groups"); groups > 1) attributes.emplace_back("group", groups);
  const Name y = to.onnx.node(op_type, std::move(inputs), std::move(attributes));
  to.set_image(to.output_of(node), applied(to.onnx, y, node.call.get<std::string>("activation")));
}
void emit_conv(OnnxEmission& to, const Node& node) { emit_filters(to, node, "Conv", sliding(to, node, "kernel")); }

/// The window moves over the output. Positions of the output that it does not reach are at the end (output_padding).
void emit_conv_transpose(OnnxEmission& to, const Node& node) {
  const model::Shape &small = to.type(node.inputs[0]).shape, &large = to.type(to.output_of(node)).shape;
  const std::size_t directions = large.count() - 1;
  const auto sweeps =
      model::window_of(node.call, "kernel", model::image_of_places(large, node.name), directions).sweeps();
  Numbers surplus;
  for (std::size_t i = 0; i < directions; ++i) {
    const model::Sweep& sweep = sweeps[sweeps.size() - directions + i];
    surplus.push_back(large.extents()[i] - (small.extents()[i] - 1) * sweep.stride - sweep.reach() + sweep.before +
                      sweep.after);
  }
  OnnxGraph::Attributes attributes = sliding(node, "kernel", large);
  attributes.emplace_back("output_padding", std::move(surplus));
  emit_filters(to, node, "ConvTranspose", std::move(attributes));
}

void emit_upsample(OnnxEmission& to, const Node& node) {
  const model::Shape &small = to.type(node.inputs[0]).shape, &large = to.type(to.output_of(node)).shape;
  std::vector<float> scales{1, 1};
  for (std::size_t i = 0; i + 1 < small.count(); ++i) {
    scales.push_back(static_cast<float>(large.extents()[i] / small.extents()[i]));
  }
  const Name factors = to.onnx.made(node.name + "/factors", {std::ssize(scales)}, [&] { return scales; });
  OnnxGraph::Attributes attributes{{"mode", std::string("nearest")},
                                   {"coordinate_transformation_mode", std::string("asymmetric")},
                                   {"nearest_mode", std::string("floor")}};
  if (node.call.get<std::string>("mode") == "linear") {
    attributes = {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("half_pixel")}};
  }
  to.set_image(to.output_of(node),
               to.onnx.node("Resize", {to.image(node.inputs[0]), "", factors}, std::move(attributes)));
}

/// The opset has no operator for groups, so each group becomes one channel of a series.
void emit_group_norm(OnnxEmission& to, const Node& node) {
  OnnxGraph& onnx = to.onnx;
  const model::Shape& shape = to.type(node.inputs[0]).shape;
  const std::int64_t channels = shape.last();
  const std::int64_t groups = node.call.find<std::int64_t>("groups").value_or(channels);
  const auto all = [&](float value) {
    return onnx.made(fmt::format("groups_{}_of_{}", groups, value), {groups},
                     [&] { return std::vector<float>(static_cast<std::size_t>(groups), value); });
  };
  Numbers extents{-1, channels}, of_channels{channels};
  for (std::size_t i = 0; i + 1 < shape.count(); ++i) {
    extents.push_back(shape.extents()[i]);
    of_channels.push_back(1);
  }
  const Name x = onnx.reshape(to.image(node.inputs[0]), {0, groups, -1});
  const Name normal = onnx.node("InstanceNormalization", {x, all(1), all(0)},
                                {{"epsilon", static_cast<float>(node.call.get<double>("epsilon"))}});
  const Name scaled = onnx.node("Mul", {onnx.reshape(normal, extents), onnx.reshape(to.weight(node, 0), of_channels)});
  to.set_image(to.output_of(node), onnx.node("Add", {scaled, onnx.reshape(to.weight(node, 1), of_channels)}));
}

void emit_max_pool(OnnxEmission& to, const Node& node) {
  to.set_image(to.output_of(node), to.onnx.node("MaxPool", {to.image(node.inputs[0])}, sliding(to, node, "window")));
}

/// The value with all its extents after the batch, channels last.
Name whole(OnnxEmission& to, std::size_t value) {
  Numbers extents{-1};
  for (const std::int64_t extent : to.type(value).shape.extents()) extents.push_back(extent);
  return to.onnx.reshape(to.rows(value), extents);
}
/// Sets the node's output. `y` may have any extents; its elements must be in the order of the output.
void set_whole(OnnxEmission& to, const Node& node, const Name& y) {
  const std::size_t output = to.output_of(node);
  to.set_rows(output, to.onnx.reshape(y, {-1, to.type(output).shape.last()}));
}
/// Pools the steps of a series up to its length; gives 0 for a length of 0.
enum class PoolOf { mean, greatest };
void emit_pool_of_lengths(OnnxEmission& to, const Node& node, PoolOf of) {
  OnnxGraph& onnx = to.onnx;
  const Name inside = onnx.node(
      "Unsqueeze", {to.inside(to.rows(node.inputs[1]), to.type(node.inputs[0]).shape.places()), onnx.numbers({2})});
  const Name x = whole(to, node.inputs[0]);
  const Name count = onnx.node("ReduceSum", {inside, onnx.numbers({1})}, {{"keepdims", std::int64_t{0}}});
  if (of == PoolOf::mean) {
    const Name sum =
        onnx.node("ReduceSum", {onnx.node("Mul", {x, inside}), onnx.numbers({1})}, {{"keepdims", std::int64_t{0}}});
    return set_whole(to, node, onnx.node("Div", {sum, onnx.node("Max", {count, onnx.scalar(1)})}));
  }
  const Name outside = onnx.node("Mul", {onnx.node("Sub", {onnx.scalar(1), inside}), onnx.scalar(-1e30f)});
  const Name most = onnx.node("ReduceMax", {onnx.node("Add", {onnx.node("Mul", {x, inside}), outside})},
                              {{"axes", Numbers{1}}, {"keepdims", std::int64_t{0}}});
  set_whole(to, node, onnx.node("Mul", {most, onnx.node("Min", {count, onnx.scalar(1)})}));
}

/// The argument "axis", counted with the batch.
std::int64_t axis_of(const OnnxEmission& to, const Node& node) {
  const auto axis = node.call.get<std::int64_t>("axis");
  return axis < 0 ? axis + static_cast<std::int64_t>(to.type(node.inputs[0]).shape.count()) + 1 : axis + 1;
}

/// The channels are the second extent of an image, and the columns of rows.
void emit_concatenate(OnnxEmission& to, const Node& node) {
  const std::int64_t axis = axis_of(to, node);
  if (axis < static_cast<std::int64_t>(to.type(node.inputs[0]).shape.count())) {
    OnnxGraph::Names wholes;
    for (const std::size_t input : node.inputs) wholes.push_back(whole(to, input));
    return set_whole(to, node, to.onnx.node("Concat", wholes, {{"axis", axis}}));
  }
  const bool as_image = to.is_image_alone(node.inputs[0]);
  OnnxGraph::Names parts;
  for (const std::size_t input : node.inputs) parts.push_back(as_image ? to.image(input) : to.rows(input));
  const Name y = to.onnx.node("Concat", parts, {{"axis", std::int64_t{1}}});
  as_image ? to.set_image(to.output_of(node), y) : to.set_rows(to.output_of(node), y);
}

/// Repeats the constant for each sample of the input.
void emit_constant(OnnxEmission& to, const Node& node) {
  const model::Shape& shape = to.type(to.output_of(node)).shape;
  const Name value = to.onnx.reshape(to.weight(node, 0), {1, shape.places(), shape.last()});
  const Name samples = to.onnx.slice(to.onnx.node("Shape", {whole(to, node.inputs[0])}), to.onnx.numbers({0}),
                                     to.onnx.numbers({1}), {0}, {1});
  set_whole(to, node, to.onnx.node("Expand", {value, to.onnx.concatenate({samples, to.onnx.numbers({1, 1})})}));
}

void emit_average_pool(OnnxEmission& to, const Node& node) {
  OnnxGraph::Attributes attributes = sliding(to, node, "window");
  attributes.emplace_back("count_include_pad", std::int64_t{node.call.get<bool>("count-padding")});
  to.set_image(to.output_of(node), to.onnx.node("AveragePool", {to.image(node.inputs[0])}, std::move(attributes)));
}

void emit_mean(OnnxEmission& to, const Node& node) {
  if (node.inputs.size() > 1) return emit_pool_of_lengths(to, node, PoolOf::mean);
  set_whole(to, node,
            to.onnx.node("ReduceMean", {whole(to, node.inputs[0])},
                         {{"axes", Numbers{axis_of(to, node)}}, {"keepdims", std::int64_t{0}}}));
}

/// The second factor may be one number for each channel of a sample.
void emit_multiply(OnnxEmission& to, const Node& node) {
  const model::Shape &first = to.type(node.inputs[0]).shape, &second = to.type(node.inputs[1]).shape;
  Name factor = to.rows(node.inputs[1]);
  if (first == second) {
    to.set_rows(to.output_of(node), to.onnx.node("Mul", {to.rows(node.inputs[0]), factor}));
    return;
  }
  Numbers extents(first.count() + 1, 1);
  extents.front() = -1;
  extents.back() = second.last();
  set_whole(to, node, to.onnx.node("Mul", {whole(to, node.inputs[0]), to.onnx.reshape(factor, extents)}));
}

void emit_matmul(OnnxEmission& to, const Node& node) {
  Name second = whole(to, node.inputs[1]);
  if (node.call.get<bool>("transpose")) {
    Numbers order{0};
    const auto count = static_cast<std::int64_t>(to.type(node.inputs[1]).shape.count());
    for (std::int64_t axis = 1; axis + 1 < count; ++axis) order.push_back(axis);
    order.insert(order.end(), {count, count - 1});
    second = to.onnx.transpose(second, order);
  }
  set_whole(to, node, to.onnx.node("MatMul", {whole(to, node.inputs[0]), second}));
}

void emit_reshape(OnnxEmission& to, const Node& node) { set_whole(to, node, to.rows(node.inputs[0])); }

void emit_slice(OnnxEmission& to, const Node& node) {
  const auto begin = node.call.get<std::int64_t>("begin"), end = node.call.find<std::int64_t>("end").value_or(kAll);
  set_whole(to, node,
            to.onnx.slice(whole(to, node.inputs[0]), to.onnx.numbers({begin}), to.onnx.numbers({end}),
                          {axis_of(to, node)}, {node.call.get<std::int64_t>("step")}));
}

void emit_softmax(OnnxEmission& to, const Node& node) {
  to.set_rows(to.output_of(node), to.onnx.node("Softmax", {to.rows(node.inputs[0])}, {{"axis", std::int64_t{-1}}}));
}

void emit_transpose(OnnxEmission& to, const Node& node) {
  Numbers order{0};
  for (const std::int64_t axis : node.call.get<model::Numbers>("order")) order.push_back(axis + 1);
  set_whole(to, node, to.onnx.transpose(whole(to, node.inputs[0]), order));
}

void emit_global_max(OnnxEmission& to, const Node& node) {
  if (node.inputs.size() > 1) return emit_pool_of_lengths(to, node, PoolOf::greatest);
  const Name most = to.onnx.node("GlobalMaxPool", {to.image(node.inputs[0])});
  to.set_rows(to.output_of(node), to.onnx.node("Flatten", {most}));
}

void emit_global_average(OnnxEmission& to, const Node& node) {
  if (node.inputs.size() > 1) return emit_pool_of_lengths(to, node, PoolOf::mean);
  const Name mean = to.onnx.node("GlobalAveragePool", {to.image(node.inputs[0])});
  to.set_rows(to.output_of(node), to.onnx.node("Flatten", {mean}));
}

/// ONNX divides alpha by the number of channels in the window.
void emit_response_norm(OnnxEmission& to, const Node& node) {
  const model::ResponseNormalization norm;
  const std::int64_t size = 2 * norm.radius + 1;
  to.set_image(to.output_of(node), to.onnx.node("LRN", {to.image(node.inputs[0])},
                                                {{"size", size},
                                                 {"alpha", norm.alpha * static_cast<float>(size)},
                                                 {"beta", norm.beta},
                                                 {"bias", norm.bias}}));
}

void emit_subsample(OnnxEmission& to, const Node& node) {
  const auto stride = node.call.get<std::int64_t>("stride");
  const Name some = to.onnx.slice(to.image(node.inputs[0]), to.onnx.numbers({0, 0}), to.onnx.numbers({kAll, kAll}),
                                  {2, 3}, {stride, stride});
  const std::int64_t more = (node.call.get<std::int64_t>("channels") - to.type(node.inputs[0]).shape.last()) / 2;
  to.set_image(to.output_of(node),
               more == 0 ? some : to.onnx.node("Pad", {some, to.onnx.numbers({0, more, 0, 0, 0, more, 0, 0})}));
}

/// Parameters: scale, shift, mean, variance, in the order of the ONNX operator.
void emit_batch_norm(OnnxEmission& to, const Node& node) {
  const bool is_image = directions_of(to, node.inputs[0]) > 0;
  const auto operand = [&](std::size_t i) { return is_image ? to.image(node.inputs[i]) : to.rows(node.inputs[i]); };
  Name y = to.onnx.node("BatchNormalization",
                        {operand(0), to.weight(node, 0), to.weight(node, 1), to.weight(node, 2), to.weight(node, 3)},
                        {{"epsilon", model::BatchNorm{}.epsilon}});
  if (node.inputs.size() == 2) y = to.onnx.node("Add", {y, operand(1)});
  if (node.call.get<bool>("relu")) y = to.onnx.node("Relu", {y});
  is_image ? to.set_image(to.output_of(node), y) : to.set_rows(to.output_of(node), y);
}

void emit_add(OnnxEmission& to, const Node& node) {
  const bool as_image = to.is_image_alone(node.inputs[0]);
  const auto operand = [&](std::size_t i) { return as_image ? to.image(node.inputs[i]) : to.rows(node.inputs[i]); };
  Name sum = operand(0);
  for (std::size_t i = 1; i < node.inputs.size(); ++i) sum = to.onnx.node("Add", {sum, operand(i)});
  as_image ? to.set_image(to.output_of(node), sum) : to.set_rows(to.output_of(node), sum);
}

void emit_elementwise(OnnxEmission& to, const Node& node) {
  const auto of = [&](const Name& x) {
    return applied(to.onnx, x, node.call.get<std::string>("function"), node.call.find<double>("parameter"));
  };
  const std::size_t input = node.inputs[0], output = to.output_of(node);
  to.is_image_alone(input) ? to.set_image(output, of(to.image(input))) : to.set_rows(output, of(to.rows(input)));
}

/// The identity; also dropout, which does nothing in inference.
void emit_same(OnnxEmission& to, const Node& node) { to.set_same(to.output_of(node), node.inputs[0]); }

void emit_flatten(OnnxEmission& to, const Node& node) {
  const std::int64_t elements = to.type(node.inputs[0]).shape.elements();
  const Name x = to.rows(node.inputs[0]);
  const bool is_flat = to.type(node.inputs[0]).shape.last() == elements;
  to.set_rows(to.output_of(node), is_flat ? x : to.onnx.reshape(x, {-1, elements}));
}

void emit_time_major(OnnxEmission& to, const Node& node) {
  to.set_rows(to.output_of(node), to.onnx.reshape(to.onnx.transpose(to.rows(node.inputs[0]), {1, 0}), {-1}));
}

void emit_tokens(OnnxEmission& to, const Node& node) {
  to.set_rows(to.output_of(node), to.onnx.reshape(to.tokens_from.at(node.call.get<std::int64_t>("first")), {-1}));
}

/// The value is [batch, sequence]. Two tokens are in the same document if the number of separators up to and including
/// each is equal.
void emit_documents(OnnxEmission& to, const Node& node) {
  OnnxGraph& onnx = to.onnx;
  if (to.type(node.inputs[0]).order == model::RowOrder::time_major) {
    throw io::FileError(
        "ONNX's recurrent operators cannot begin anew within a sequence, as --document-token asks for: --format "
        "safetensors holds the weights");
  }
  const auto axis = [&](std::int64_t number) {
    return onnx.node("Squeeze", {onnx.numbers({number}), onnx.numbers({0})});
  };
  const Name separator = onnx.numbers({node.call.get<std::int64_t>("separator")});
  const Name begins = onnx.node("Cast", {onnx.node("Equal", {to.rows(node.inputs[0]), separator})},
                                {{"to", static_cast<std::int64_t>(io::OnnxType::int64)}});
  const Name document = onnx.node("CumSum", {begins, axis(1)});
  const Name same = onnx.node("Cast",
                              {onnx.node("Equal", {onnx.node("Unsqueeze", {document, onnx.numbers({2})}),
                                                   onnx.node("Unsqueeze", {document, onnx.numbers({1})})})},
                              {{"to", static_cast<std::int64_t>(io::OnnxType::float32)}});
  const Name apart = onnx.node("Mul", {onnx.node("Sub", {onnx.scalar(1), same}), onnx.scalar(-1e30f)});
  to.document_mask = onnx.node("Unsqueeze", {apart, onnx.numbers({1})});
  const Name first = onnx.node("ArgMax", {same}, {{"axis", std::int64_t{2}}, {"keepdims", std::int64_t{0}}});
  const Name positions = onnx.node("CumSum", {onnx.node("Expand", {onnx.numbers({1}), to.sequence}), axis(0)},
                                   {{"exclusive", std::int64_t{1}}});
  to.set_rows(to.output_of(node), onnx.node("Sub", {positions, first}));
}

void emit_embedding(OnnxEmission& to, const Node& node) {
  Name y = to.onnx.node("Gather", {to.weight(node, 0), to.rows(node.inputs[0])});
  if (node.inputs.size() > 1) {
    const Name positions = to.onnx.node("Gather", {to.weight(node, 1), to.rows(node.inputs[1])});
    to.set_rows(to.output_of(node),
                to.onnx.reshape(to.onnx.node("Add", {y, positions}), {-1, node.call.get<std::int64_t>("width")}));
    return;
  }
  if (node.call.get<bool>("positions") && to.sequence.empty()) {
    const model::Shape& shape = to.type(to.output_of(node)).shape;
    y = to.onnx.node("Add", {to.onnx.reshape(y, {-1, shape.places(), shape.last()}), to.weight(node, 1)});
  } else if (node.call.get<bool>("positions")) {  // [batch, sequence, width]
    y = to.onnx.node("Add", {y, to.onnx.slice(to.weight(node, 1), to.onnx.numbers({0}), to.sequence, {0}, {1})});
  }
  to.set_rows(to.output_of(node), to.onnx.reshape(y, {-1, node.call.get<std::int64_t>("width")}));
}

void emit_head(OnnxEmission& to, const Node& node) {
  to.set_rows(to.output_of(node),
              to.onnx.node("Gemm", {to.rows(node.inputs[0]), to.weight(node, 0)}, {{"transB", std::int64_t{1}}}));
}

void emit_layer_norm(OnnxEmission& to, const Node& node) {
  to.set_rows(
      to.output_of(node),
      to.onnx.node("LayerNormalization", {to.rows(node.inputs[0]), to.weight(node, 0), to.weight(node, 1)},
                   {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(model::formulas::kLayerNormEpsilon)}}));
}

void emit_attention(OnnxEmission& to, const Node& node) {
  OnnxGraph& onnx = to.onnx;
  const auto heads = node.call.get<std::int64_t>("heads");
  const std::int64_t width = to.type(node.inputs[0]).shape.last() / 3, head_size = width / heads;
  const bool is_causal = node.call.get<bool>("causal");
  // There may be fewer tokens than the context; a series has all its positions.
  const std::int64_t context = to.type(node.inputs[0]).shape.places();
  const Name sizes = to.sizes.empty() ? onnx.numbers({-1, context}) : to.sizes;
  const Name split =
      onnx.node("Reshape", {to.rows(node.inputs[0]), onnx.concatenate({sizes, onnx.numbers({3, heads, head_size})})});
  const Name joint = onnx.transpose(split, {2, 0, 3, 1, 4});  // [3, batch, heads, sequence, head size]
  const auto part = [&](std::int64_t which) {
    return onnx.node(
        "Squeeze", {onnx.slice(joint, onnx.numbers({which}), onnx.numbers({which + 1}), {0}, {1}), onnx.numbers({0})});
  };
  const Name products = onnx.node("MatMul", {part(0), onnx.transpose(part(1), {0, 1, 3, 2})});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_size)));
  Name scores = onnx.node("Mul", {products, onnx.scalar(scale)});
  if (is_causal) scores = onnx.node("Add", {scores, to.causal_mask(context)});
  const bool has_lengths = node.inputs.size() > 1 && to.type(node.inputs[1]).shape.count() == 1;
  if (node.inputs.size() > 1 && !has_lengths) scores = onnx.node("Add", {scores, to.document_mask});
  Name inside;
  if (has_lengths) {  // [batch, 1, 1, steps]
    inside = onnx.node("Unsqueeze", {to.inside(to.rows(node.inputs[1]), context), onnx.numbers({1, 2})});
    const Name outside = onnx.node("Sub", {onnx.scalar(1), inside});
    scores = onnx.node("Add", {scores, onnx.node("Mul", {outside, onnx.scalar(-1e30f)})});
  }
  Name shares = onnx.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  if (has_lengths) shares = onnx.node("Mul", {shares, inside});  // a series without steps attends to nothing
  const Name attended = onnx.transpose(onnx.node("MatMul", {shares, part(2)}), {0, 2, 1, 3});
  to.set_rows(to.output_of(node), onnx.reshape(attended, {-1, width}));
}

/// Returns the columns of the gates, of a matrix or a vector, as rows in the order of the operator.
std::vector<float> gate_rows(const io::NamedTensor& tensor, std::int64_t hidden, std::span<const std::int64_t> order) {
  const std::int64_t columns = std::ssize(order) * hidden;
  const auto inputs = static_cast<std::int64_t>(tensor.values.size()) / columns;
  std::vector<float> values;
  values.reserve(tensor.values.size());
  for (const std::int64_t gate : order) {
    for (std::int64_t unit = 0; unit < hidden; ++unit) {
      for (std::int64_t i = 0; i < inputs; ++i) {
        values.push_back(tensor.values[static_cast<std::size_t>(i * columns + gate * hidden + unit)]);
      }
    }
  }
  return values;
}

/// A recurrent operator of ONNX, with the parameters of a node: input, recurrent, bias and, for a GRU, recurrent bias.
struct Recurrent {
  const char* op_type;
  std::span<const std::int64_t> order;  ///< the operator's order of the gates, as indices of our order
  std::size_t parameters;               ///< number of parameters for each direction
};
constexpr std::array<std::int64_t, 4> kLstmOrder{0, 3, 1, 2};  // input, output, forget, cell
constexpr std::array<std::int64_t, 3> kGruOrder{1, 0, 2};      // update, reset, new
constexpr Recurrent kLstm{"LSTM", kLstmOrder, 3}, kGru{"GRU", kGruOrder, 4};

/// Returns the weights of all directions, one after the other: input matrices, state matrices, biases.
std::array<Name, 3> weights_of(OnnxEmission& to, const Node& node, const Recurrent& kind, std::int64_t hidden) {
  const auto directions = static_cast<std::int64_t>(node.parameters.size() / kind.parameters);
  const std::int64_t sums = std::ssize(kind.order) * hidden;
  const auto of_all = [&](std::size_t k, Numbers shape, std::size_t parts) {
    return to.onnx.made(to.tensor(node, k).name, std::move(shape), [&] {
      std::vector<float> all;
      for (std::size_t first = 0; first < node.parameters.size(); first += kind.parameters) {
        for (std::size_t part = 0; part < parts; ++part) {
          if (k + part >= kind.parameters) {  // no recurrent bias: zeros
            all.resize(all.size() + static_cast<std::size_t>(sums));
            continue;
          }
          const std::vector<float> own = gate_rows(to.tensor(node, first + k + part), hidden, kind.order);
          all.insert(all.end(), own.begin(), own.end());
        }
      }
      return all;
    });
  };
  const std::int64_t inputs = to.tensor(node, 0).shape[0];
  return {of_all(0, {directions, sums, inputs}, 1), of_all(1, {directions, sums, hidden}, 1),
          of_all(2, {directions, 2 * sums}, 2)};
}

/// Over tokens: rows are time-major, and the state comes from the previous batch.
void emit_recurrent_tokens(OnnxEmission& to, const Node& node, const Recurrent& kind,
                           OnnxGraph::Attributes attributes) {
  OnnxGraph& onnx = to.onnx;
  const auto hidden = node.call.get<std::int64_t>("units");
  const auto [w, r, b] = weights_of(to, node, kind, hidden);
  const Name& base = to.tensor(node, 1).name;
  const std::int64_t inputs = to.tensor(node, 0).shape[0];
  OnnxGraph::Names operands{onnx.node("Reshape", {to.rows(node.inputs[0]),
                                                  onnx.concatenate({to.sequence, to.batch, onnx.numbers({inputs})})}),
                            w, r, b, ""};
  OnnxGraph::Names results{base + "/all"};
  for (const char* const after : {"/hidden_after", "/cell_after"}) {
    if (results.size() > node.states.size()) break;
    const std::string& state = node.states[results.size() - 1].name;
    operands.push_back(onnx.node("Unsqueeze", {to.state_before.at(state), onnx.numbers({0})}));
    results.push_back(base + after);
  }
  const OnnxGraph::Names y =
      onnx.node_with(kind.op_type, std::move(operands), std::move(results), std::move(attributes));
  to.set_rows(to.output_of(node), onnx.reshape(y[0], {-1, hidden}));
  for (std::size_t state = 0; state < node.states.size(); ++state) {
    to.state_after[node.states[state].name] = onnx.reshape(y[1 + state], {-1, hidden});
  }
}

/// Over a series: rows are sample-major, and the results of the directions stand side by side.
void emit_recurrent(OnnxEmission& to, const Node& node, const Recurrent& kind, OnnxGraph::Attributes attributes) {
  OnnxGraph& onnx = to.onnx;
  const auto hidden = node.call.get<std::int64_t>("units");
  attributes.emplace_back("hidden_size", hidden);
  if (!node.states.empty()) return emit_recurrent_tokens(to, node, kind, std::move(attributes));
  const auto direction = node.call.get<std::string>("direction");
  attributes.emplace_back("direction", direction == "both"       ? std::string("bidirectional")
                                       : direction == "backward" ? std::string("reverse")
                                                                 : direction);
  const auto [w, r, b] = weights_of(to, node, kind, hidden);
  const Name& base = to.tensor(node, 1).name;
  OnnxGraph::Names operands{onnx.transpose(whole(to, node.inputs[0]), {1, 0, 2}), w, r, b};
  if (node.inputs.size() > 1) {
    constexpr std::int64_t kInt32 = 6;
    operands.push_back(onnx.node("Cast", {to.rows(node.inputs[1])}, {{"to", kInt32}}));
  }
  const OnnxGraph::Names y =
      onnx.node_with(kind.op_type, std::move(operands), {base + "/all", base + "/last"}, std::move(attributes));
  const std::int64_t columns = to.type(to.output_of(node)).shape.last();
  const Name ordered = node.call.get<std::string>("steps") == "last" ? onnx.transpose(y[1], {1, 0, 2})
                                                                     : onnx.transpose(y[0], {2, 0, 1, 3});
  to.set_rows(to.output_of(node), onnx.reshape(ordered, {-1, columns}));
}
void emit_lstm(OnnxEmission& to, const Node& node) { emit_recurrent(to, node, kLstm, {}); }
void emit_gru(OnnxEmission& to, const Node& node) {
  emit_recurrent(to, node, kGru, {{"linear_before_reset", std::int64_t{1}}});
}

void emit_positions(OnnxEmission& to, const Node& node) {
  const std::int64_t places = to.type(node.inputs[0]).shape.places(), last = to.type(node.inputs[0]).shape.last();
  const Name x = to.onnx.reshape(to.rows(node.inputs[0]), {-1, places, last});
  to.set_rows(to.output_of(node), to.onnx.reshape(to.onnx.node("Add", {x, to.weight(node, 0)}), {-1, last}));
}

constexpr std::array kEmitters{
    OnnxEmitter{"add", emit_add},
    OnnxEmitter{"attention", emit_attention},
    OnnxEmitter{"average-pool", emit_average_pool},
    OnnxEmitter{"batch-norm", emit_batch_norm},
    OnnxEmitter{"concatenate", emit_concatenate},
    OnnxEmitter{"constant", emit_constant},
    OnnxEmitter{"conv", emit_conv},
    OnnxEmitter{"conv-transpose", emit_conv_transpose},
    OnnxEmitter{"dense", emit_dense},
    OnnxEmitter{"documents", emit_documents},
    OnnxEmitter{"dropout", emit_same},
    OnnxEmitter{"elementwise", emit_elementwise},
    OnnxEmitter{"embedding", emit_embedding},
    OnnxEmitter{"flatten", emit_flatten},
    OnnxEmitter{"global-average", emit_global_average},
    OnnxEmitter{"global-max", emit_global_max},
    OnnxEmitter{"group-norm", emit_group_norm},
    OnnxEmitter{"gru", emit_gru},
    OnnxEmitter{"head", emit_head},
    OnnxEmitter{"instance-norm", emit_group_norm},
    OnnxEmitter{"layer-norm", emit_layer_norm},
    OnnxEmitter{"lstm", emit_lstm},
    OnnxEmitter{"max-pool", emit_max_pool},
    OnnxEmitter{"mean", emit_mean},
    OnnxEmitter{"matmul", emit_matmul},
    OnnxEmitter{"multiply", emit_multiply},
    OnnxEmitter{"positions", emit_positions},
    OnnxEmitter{"reshape", emit_reshape},
    OnnxEmitter{"slice", emit_slice},
    OnnxEmitter{"softmax", emit_softmax},
    OnnxEmitter{"transpose", emit_transpose},
    OnnxEmitter{"response-norm", emit_response_norm},
    OnnxEmitter{"subsample", emit_subsample},
    OnnxEmitter{"time-major", emit_time_major},
    OnnxEmitter{"tokens", emit_tokens},
    OnnxEmitter{"upsample", emit_upsample},
};

}  // namespace

std::span<const OnnxEmitter> onnx_emitters() { return kEmitters; }

OnnxEmission::OnnxEmission(const model::Graph& graph, const model::ParameterTable& table,
                           std::span<const io::NamedTensor> weights, OnnxGraph& to)
    : onnx(to), graph_(graph), table_(table), weights_(weights), forms_(graph.values().size()) {}

void OnnxEmission::run() {
  for (const Node& node : graph_.nodes()) {
    const auto emitter = std::ranges::find(kEmitters, node.call.kind, &OnnxEmitter::kind);
    if (emitter == kEmitters.end()) {
      throw std::invalid_argument(
          fmt::format("{} is of the kind {}, for which exports to ONNX have no operators", node.name, node.call.kind));
    }
    emitter->emit(*this, node);
  }
}

Name OnnxEmission::rows(std::size_t value) {
  Form& form = forms_.at(value);
  if (form.rows.empty()) {
    Numbers order(type(value).shape.count() + 1);  // channels last
    std::iota(order.begin() + 1, order.end() - 1, 2);
    order.back() = 1;
    form.rows = onnx.reshape(onnx.transpose(form.image, order), {-1, type(value).shape.last()});
  }
  return form.rows;
}

Name OnnxEmission::image(std::size_t value) {
  Form& form = forms_.at(value);
  if (form.image.empty()) {
    const auto extents = type(value).shape.extents();
    Numbers shape{-1}, order(extents.size() + 1);  // channels first
    shape.insert(shape.end(), extents.begin(), extents.end());
    std::iota(order.begin() + 2, order.end(), 1);
    order[1] = std::ssize(extents);
    form.image = onnx.transpose(onnx.reshape(form.rows, shape), order);
  }
  return form.image;
}

const io::NamedTensor& OnnxEmission::tensor(const Node& node, std::size_t k) const {
  const std::string& name = table_[node.parameters.at(k)].name;
  const auto found = std::ranges::find(weights_, name, &io::NamedTensor::name);
  if (found == weights_.end()) throw std::logic_error(fmt::format("a graph needs the parameter {}", name));
  return *found;
}

Name OnnxEmission::inside(const Name& lengths, std::int64_t steps) {
  const Name axis = onnx.node("Squeeze", {onnx.numbers({0}), onnx.numbers({0})});
  const Name positions = onnx.node("CumSum", {onnx.node("Expand", {onnx.numbers({1}), onnx.numbers({steps})}), axis},
                                   {{"exclusive", std::int64_t{1}}});
  const Name is_inside = onnx.node("Less", {positions, onnx.node("Unsqueeze", {lengths, onnx.numbers({1})})});
  return onnx.node("Cast", {is_inside}, {{"to", static_cast<std::int64_t>(io::OnnxType::float32)}});
}

Name OnnxEmission::causal_mask(std::int64_t context) {
  if (mask_.empty()) {
    const Name length = sequence.empty() ? onnx.numbers({context}) : sequence;
    const Name none = onnx.node("Expand", {onnx.scalar(-1e30f), onnx.concatenate({length, length})});
    mask_ = onnx.node("Trilu", {none, onnx.node("Squeeze", {onnx.numbers({1}), onnx.numbers({0})})},
                      {{"upper", std::int64_t{1}}});
  }
  return mask_;
}

}  // namespace lockstep::app
