#include "app/exchange/onnx_network.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include <fmt/format.h>

#include "app/exchange/onnx_graph.hpp"
#include "app/options/options.hpp"
#include "app/report/program_build.hpp"
#include "io/shards/data_description.hpp"
#include "model/formulas/gelu.hpp"
#include "model/formulas/normalization.hpp"
#include "model/recording/recording.hpp"

namespace lockstep::app {

namespace {

namespace recorded = model::recorded;
using Name = OnnxGraph::Name;
using Numbers = OnnxGraph::Numbers;
using model::ImageShape;
using model::kNoValue;
using model::RecordedOperation;
using model::RecordedValue;
using model::ValueNumber;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

/// A value of the recording in the graph, in one form or both: rows [rows, columns] as in the network, and images
/// [batch, channels, (depth,) height, width] as in ONNX.
struct Form {
  Name rows, image;
  ImageShape shape = {};    ///< shape of `image`
  bool time_major = false;  ///< the rows are positions, position after position of all samples
};

/// The graph of a recording, operation by operation.
class Conversion {
 public:
  Conversion(const TrainedNetwork& trained, const model::Recording& recording, io::OnnxModel& model)
      : trained_(trained), recording_(recording), model_(model), graph_(model), forms_(recording.values.size()) {
    const std::string& description = trained.source.checkpoint.record.data_description;
    if (!description.empty()) data_scale_ = io::data_description_from_json(description);
  }

  void run() {
    begin();
    find_absorbed();
    for (std::size_t i = 0; i < recording_.operations.size(); ++i) {
      const RecordedOperation& operation = recording_.operations[i];
      if (absorbed_.contains(i)) continue;
      std::visit([&](const auto& kind) { convert(kind, operation); }, operation.kind);
    }
    end();
  }

 private:
  // ---- inputs and outputs ----

  void begin() {
    const model::SampleShape& shape = trained_.shape;
    Form& input = forms_[recording_.input];
    if (shape.tokens) {
      model_.inputs.push_back({"tokens", io::OnnxType::int64, {"batch", "sequence"}});
      sizes_ = graph_.node("Shape", {"tokens"}, {}, "tokens_shape");
      batch_ = graph_.slice(sizes_, graph_.numbers({0}), graph_.numbers({1}), {0}, {1});
      sequence_ = graph_.slice(sizes_, graph_.numbers({1}), graph_.numbers({2}), {0}, {1});
      input.rows = "tokens";
    } else {
      begin_samples(input);
    }
    for (const model::RecordedState& state : recording_.states) {
      model_.inputs.push_back({state.name, io::OnnxType::float32, {"batch", recording_.values[state.before].columns}});
      forms_[state.before].rows = state.name;
    }
  }

  /// Repeats BatchStage's processing of stored samples before the network (augmentation.hpp, evaluation).
  void begin_samples(Form& input) {
    const DataOptions& data = trained_.trained.data;
    const model::SampleShape& shape = trained_.shape;
    const bool per_image = data.normalize.kind == Normalization::Kind::per_image;
    const model::Reads reads = model::network_kind(trained_.trained.network).reads;
    const bool reads_images = reads == model::Reads::images || (reads == model::Reads::any && trained_.shape.image);
    const bool as_image = shape.image && shape.image->depth == 1 && (reads_images || data.augment.crop);
    const bool per_feature = data.normalize.kind == Normalization::Kind::per_feature && !data_scale_.features.empty();
    Name x = "input";
    if (as_image) {
      const bool crops = data.augment.crop.has_value();
      const io::OnnxExtent height = crops ? io::OnnxExtent("height") : io::OnnxExtent(shape.image->height),
                           width = crops ? io::OnnxExtent("width") : io::OnnxExtent(shape.image->width);
      model_.inputs.push_back({x, io::OnnxType::float32, {"batch", height, width, shape.image->channels}});
      if (per_feature) x = standardized(x, data_scale_.features.mean.size());
      if (crops) x = central_crop(x, *shape.image);
    } else {
      model_.inputs.push_back({x, io::OnnxType::float32, {"batch", shape.features}});
      if (per_feature) x = standardized(x, static_cast<std::size_t>(shape.features));
    }
    if (per_image) {
      x = standardize(x, as_image ? Numbers{1, 2, 3} : Numbers{1}, shape.features);
    } else if (data.normalize.kind == Normalization::Kind::affine) {
      const model::InputTransform& affine = data.normalize.affine;
      if (affine.scale != 1) x = graph_.node("Mul", {x, graph_.scalar(affine.scale)});
      if (affine.shift != 0) x = graph_.node("Add", {x, graph_.scalar(affine.shift)});
    } else if (data.normalize.kind != Normalization::Kind::none && !per_feature) {
      throw io::FileError(fmt::format(
          "{} does not say how its samples were normalised: it was written by another version; `lockstep train "
          "--resume` writes a new one, and safetensors holds the weights alone",
          trained_.source.file.string()));
    }
    if (as_image) {
      input.image = graph_.transpose(x, {0, 3, 1, 2});
      input.shape = *shape.image;
      input.rows = graph_.reshape(x, {-1, shape.features});
    } else {
      input.rows = x;
    }
  }

  /// FeatureScale::apply along the last axis, which has `elements` elements; the features repeat along it.
  Name standardized(const Name& x, std::size_t elements) {
    if (data_scale_.features.needs_double()) {
      throw io::FileError(
          fmt::format("{} was trained on numbers that float32 does not tell apart (mean {:.10g}, deviation {:.4g}), "
                      "and the inputs of "
                      "an ONNX graph are float32: safetensors holds the weights; or subtract such means before packing",
                      trained_.source.file.string(), data_scale_.features.mean[0], data_scale_.features.deviation[0]));
    }
    const auto repeated = [&](const std::vector<double>& of_features) {
      std::vector<float> values(elements);
      for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(of_features[i % of_features.size()]);
      return values;
    };
    const Numbers extent{static_cast<std::int64_t>(elements)};
    const Name mean = graph_.made("feature_mean", extent, [&] { return repeated(data_scale_.features.mean); });
    const Name factor = graph_.made("feature_factor", extent, [&] {
      std::vector<float> factors = repeated(data_scale_.features.deviation);
      for (float& value : factors) value = 1 / value;
      return factors;
    });
    return graph_.node("Mul", {graph_.node("Sub", {x, mean}), factor});
  }

  /// Crops images of any size, with zeros around smaller ones: x [batch, height, width, channels]. The odd row or
  /// column is cut off (or added) below and to the right.
  Name central_crop(const Name& x, const ImageShape& out) {
    const Name size = graph_.slice(graph_.node("Shape", {x}), graph_.numbers({1}), graph_.numbers({3}), {0}, {1});
    const Name extents = graph_.numbers({out.height, out.width}), none = graph_.numbers({0});
    const auto more_than = [&](const Name& a, const Name& b) {
      return graph_.node("Max", {graph_.node("Sub", {a, b}), none});
    };
    const auto half = [&](const Name& number) { return graph_.node("Div", {number, graph_.numbers({2})}); };
    const Name missing = more_than(extents, size), before = half(missing), first = half(more_than(size, extents));
    const Name behind = graph_.node("Sub", {missing, before});
    const Name pads = graph_.concatenate({none, before, graph_.numbers({0, 0}), behind, none});
    const Name padded = graph_.node("Pad", {x, pads});
    return graph_.slice(padded, first, graph_.node("Add", {first, extents}), {1, 2}, {1, 1});
  }

  /// (x - mean) / max(deviation, 1 / sqrt(elements)) over the axes.
  Name standardize(const Name& x, const Numbers& axes, std::int64_t elements) {
    const auto mean_of = [&](const Name& values) {
      return graph_.node("ReduceMean", {values}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
    };
    const Name centred = graph_.node("Sub", {x, mean_of(x)});
    const Name deviation = graph_.node("Sqrt", {mean_of(graph_.node("Mul", {centred, centred}))});
    const Name least = graph_.scalar(static_cast<float>(1 / std::sqrt(static_cast<double>(elements))));
    return graph_.node("Div", {centred, graph_.node("Max", {deviation, least})});
  }

  void end() {
    const Form& output = forms_[recording_.output];
    const std::int64_t outputs = trained_.shape.outputs;
    if (trained_.shape.tokens) {
      const Name columns = graph_.numbers({outputs});
      if (output.time_major) {
        const Name all =
            graph_.node("Reshape", {rows(recording_.output), graph_.concatenate({sequence_, batch_, columns})});
        graph_.node("Transpose", {all}, {{"perm", Numbers{1, 0, 2}}}, "logits");
      } else {
        graph_.node("Reshape", {rows(recording_.output), graph_.concatenate({sizes_, columns})}, {}, "logits");
      }
      model_.outputs.push_back({"logits", io::OnnxType::float32, {"batch", "sequence", outputs}});
    } else {
      const std::optional<model::LossKind> loss = trained_.trained.loss.kind;
      const bool numbers =
          loss != model::LossKind::softmax_cross_entropy && loss != model::LossKind::binary_cross_entropy;
      const Name name = numbers ? "predictions" : "logits";
      Name predicted = rows(recording_.output);
      if (numbers && !data_scale_.targets.empty()) {
        const auto floats = [](const std::vector<double>& values) {
          return std::vector<float>(values.begin(), values.end());
        };
        predicted = graph_.node("Mul", {predicted, graph_.made("target_deviation", {outputs},
                                                               [&] { return floats(data_scale_.targets.deviation); })});
        predicted = graph_.node("Add", {predicted, graph_.made("target_mean", {outputs},
                                                               [&] { return floats(data_scale_.targets.mean); })});
      }
      graph_.node("Identity", {predicted}, {}, name);
      model_.outputs.push_back({name, io::OnnxType::float32, {"batch", outputs}});
      if (loss == model::LossKind::binary_cross_entropy) graph_.node("Sigmoid", {name}, {}, "probabilities");
      if (loss == model::LossKind::softmax_cross_entropy) {
        graph_.node("Softmax", {name}, {{"axis", std::int64_t{-1}}}, "probabilities");
      }
      if (!numbers) {
        model_.outputs.push_back({"probabilities", io::OnnxType::float32, {"batch", outputs}});
      }
    }
    for (const model::RecordedState& state : recording_.states) {
      const Name next = state.name + "/next";
      graph_.node("Identity", {rows(state.after)}, {}, next);
      model_.outputs.push_back({next, io::OnnxType::float32, {"batch", recording_.values[state.after].columns}});
    }
  }

  // ---- values ----

  Name weight(ValueNumber value) {
    const RecordedValue& known = recording_.values[value];
    return known.origin == RecordedValue::Origin::parameter ? graph_.borrowed(tensor(value)) : rows(value);
  }
  const io::NamedTensor& tensor(ValueNumber value) const {
    const std::string& name = recording_.values[value].name;
    for (const io::NamedTensor& one : trained_.weights) {
      if (one.name == name) return one;
    }
    throw std::logic_error(fmt::format("a graph needs the parameter {}", name));
  }
  Name rows(ValueNumber value) {
    Form& form = forms_.at(value);
    if (form.rows.empty()) {
      const Numbers order = form.shape.depth > 1 ? Numbers{0, 2, 3, 4, 1} : Numbers{0, 2, 3, 1};
      form.rows = graph_.reshape(graph_.transpose(form.image, order), {-1, form.shape.elements()});
    }
    return form.rows;
  }
  Name image(ValueNumber value, const ImageShape& shape) {
    Form& form = forms_.at(value);
    if (form.image.empty() || form.shape != shape) {
      Numbers extents{-1, shape.height, shape.width, shape.channels}, order{0, 3, 1, 2};
      if (shape.depth > 1) {
        extents.insert(extents.begin() + 1, shape.depth);
        order = {0, 4, 1, 2, 3};
      }
      form.image = graph_.transpose(graph_.reshape(rows(value), extents), order);
      form.shape = shape;
    }
    return form.image;
  }
  void give_rows(const RecordedOperation& operation, Name name) {
    Form& form = forms_[operation.outputs.front()];
    form.rows = std::move(name);
    form.time_major = forms_[operation.inputs.front()].time_major;
  }
  void give_image(const RecordedOperation& operation, Name name, const ImageShape& shape) {
    forms_[operation.outputs.front()] = {.rows = {}, .image = std::move(name), .shape = shape};
  }
  Name activated(const Name& x, model::Activation activation) {
    switch (activation) {
      case model::Activation::relu:
        return graph_.node("Relu", {x});
      case model::Activation::tanh:
        return graph_.node("Tanh", {x});
      case model::Activation::sigmoid:
        return graph_.node("Sigmoid", {x});
      case model::Activation::none:
        break;
    }
    return x;
  }

  // ---- operations ----

  /// ONNX's LSTM computes its gates itself: the products for our gates become part of it.
  void find_absorbed() {
    for (const RecordedOperation& operation : recording_.operations) {
      if (!std::holds_alternative<recorded::RunLstm>(operation.kind)) continue;
      for (std::size_t i = 0; i < recording_.operations.size(); ++i) {
        if (recording_.operations[i].outputs.front() == operation.inputs.front()) absorbed_.emplace(i);
      }
    }
  }

  void convert(const recorded::Linear& linear, const RecordedOperation& operation) {
    const auto& [x, w, bias] = std::tuple(operation.inputs[0], operation.inputs[1], operation.inputs[2]);
    const Name sum = bias == kNoValue ? graph_.node("MatMul", {rows(x), weight(w)})
                                      : graph_.node("Gemm", {rows(x), weight(w), weight(bias)});
    give_rows(operation, activated(sum, linear.activation));
  }
  void convert(const recorded::Convolve& convolve, const RecordedOperation& operation) {
    const model::Convolution& shape = convolve.shape;
    const model::Sliding& window = shape.window;
    const io::NamedTensor& filters = tensor(operation.inputs[1]);
    const std::int64_t in = shape.channels_read(), out = shape.out.channels, area = window.positions();
    // [(depth,) height, width, in, out] -> [out, in, (depth,) height, width]
    Numbers filter_shape = {out, in};
    for (const model::Sweep& sweep : sweeps_of(window, shape.in)) filter_shape.push_back(sweep.size);
    const Name w = graph_.made(filters.name, filter_shape, [&] {
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
    OnnxGraph::Names inputs{image(operation.inputs[0], shape.in), w};
    if (operation.inputs[2] != kNoValue) inputs.push_back(weight(operation.inputs[2]));
    OnnxGraph::Attributes attributes = sliding(window, shape.in);
    if (shape.groups > 1) attributes.emplace_back("group", shape.groups);
    const Name y = graph_.node("Conv", std::move(inputs), std::move(attributes));
    give_image(operation, activated(y, convolve.activation), shape.out);
  }
  /// Those of the directions that the graph has: volumes have three, images and series two.
  static std::vector<model::Sweep> sweeps_of(const model::Sliding& window, const ImageShape& in) {
    const auto sweeps = window.sweeps();
    return {sweeps.begin() + (in.depth > 1 ? 0 : 1), sweeps.end()};
  }
  static OnnxGraph::Attributes sliding(const model::Sliding& window, const ImageShape& in) {
    Numbers sizes, strides, dilations, before, after;
    for (const model::Sweep& sweep : sweeps_of(window, in)) {
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

  void convert(const recorded::MaxPool& pool, const RecordedOperation& operation) {
    const Name x = image(operation.inputs[0], pool.shape.in);
    give_image(operation, graph_.node("MaxPool", {x}, sliding(pool.shape.window, pool.shape.in)), pool.shape.out);
  }

  void convert(const recorded::GlobalAverage& average, const RecordedOperation& operation) {
    const Name mean = graph_.node("GlobalAveragePool", {image(operation.inputs[0], average.in)});
    give_rows(operation, graph_.node("Flatten", {mean}));
  }

  /// ONNX divides alpha by the number of channels in the window.
  void convert(const recorded::NormalizeResponse& normalize, const RecordedOperation& operation) {
    const model::ResponseNormalization& norm = normalize.norm;
    const ImageShape shape = known_shape(operation.inputs[0], normalize.in);
    const std::int64_t size = 2 * norm.radius + 1;
    const Name y = graph_.node(
        "LRN", {image(operation.inputs[0], shape)},
        {{"size", size}, {"alpha", norm.alpha * static_cast<float>(size)}, {"beta", norm.beta}, {"bias", norm.bias}});
    give_image(operation, y, shape);
  }
  /// Shape of a value that is an image already, or `otherwise` for one with the same number of pixels and channels.
  ImageShape known_shape(ValueNumber value, const ImageShape& otherwise) const {
    return forms_[value].image.empty() ? otherwise : forms_[value].shape;
  }

  void convert(const recorded::Subsample& subsample, const RecordedOperation& operation) {
    const Name x = image(operation.inputs[0], subsample.in);
    const Name some = graph_.slice(x, graph_.numbers({0, 0}), graph_.numbers({kAll, kAll}), {2, 3},
                                   {subsample.stride, subsample.stride});
    const std::int64_t more = (subsample.out.channels - subsample.in.channels) / 2;
    const Name y = more == 0 ? some : graph_.node("Pad", {some, graph_.numbers({0, more, 0, 0, 0, more, 0, 0})});
    give_image(operation, y, subsample.out);
  }

  void convert(const recorded::NormalizeBatch& normalize, const RecordedOperation& operation) {
    const auto& in = operation.inputs;  // x, mean, variance, scale, shift, residual
    const model::BatchNorm& norm = normalize.norm;
    const std::int64_t pixels = recording_.values[in[0]].columns / norm.channels;
    const ImageShape shape = known_shape(in[0], {.height = pixels, .width = 1, .channels = norm.channels});
    Name y = graph_.node("BatchNormalization",
                         {image(in[0], shape), weight(in[3]), weight(in[4]), weight(in[1]), weight(in[2])},
                         {{"epsilon", norm.epsilon}});
    if (in[5] != kNoValue) y = graph_.node("Add", {y, image(in[5], shape)});
    if (norm.relu) y = graph_.node("Relu", {y});
    give_image(operation, y, shape);
  }

  void convert(const recorded::Add& /*add*/, const RecordedOperation& operation) {
    const Form& first = forms_[operation.inputs[0]];
    if (!first.image.empty() && first.rows.empty()) {
      const ImageShape shape = first.shape;
      const Name a = first.image;
      return give_image(operation, graph_.node("Add", {a, image(operation.inputs[1], shape)}), shape);
    }
    give_rows(operation, graph_.node("Add", {rows(operation.inputs[0]), rows(operation.inputs[1])}));
  }

  void convert(const recorded::Concatenate& join, const RecordedOperation& operation) {
    const Form& first = forms_[operation.inputs[0]];
    const bool is_image = !first.image.empty() && first.rows.empty();
    ImageShape shape = first.shape;
    OnnxGraph::Names parts;
    std::int64_t columns = 0;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      shape.channels = join.columns[i];
      columns += join.columns[i];
      parts.push_back(is_image ? image(operation.inputs[i], shape) : rows(operation.inputs[i]));
    }
    const Name y = graph_.node("Concat", parts, {{"axis", std::int64_t{1}}});
    shape.channels = columns;
    is_image ? give_image(operation, y, shape) : give_rows(operation, y);
  }

  void convert(const recorded::AddRow& /*add*/, const RecordedOperation& operation) {
    give_rows(operation, graph_.node("Add", {rows(operation.inputs[0]), weight(operation.inputs[1])}));
  }

  void convert(const recorded::ToTimeMajor& /*order*/, const RecordedOperation& operation) {
    give_rows(operation, graph_.reshape(graph_.transpose(rows(operation.inputs[0]), {1, 0}), {-1}));
    forms_[operation.outputs.front()].time_major = true;
  }

  void convert(const recorded::Embed& /*embed*/, const RecordedOperation& operation) {
    const auto& in = operation.inputs;  // tokens, table, positions
    Name y = graph_.node("Gather", {weight(in[1]), rows(in[0])});
    if (in[2] != kNoValue) {  // the rows of a sample are its positions: [batch, sequence, width] here
      y = graph_.node("Add", {y, graph_.slice(weight(in[2]), graph_.numbers({0}), sequence_, {0}, {1})});
    }
    give_rows(operation, graph_.reshape(y, {-1, recording_.values[operation.outputs[0]].columns}));
  }

  void convert(const recorded::Project& /*project*/, const RecordedOperation& operation) {
    give_rows(operation, graph_.node("Gemm", {rows(operation.inputs[0]), weight(operation.inputs[1])},
                                     {{"transB", std::int64_t{1}}}));
  }

  void convert(const recorded::NormalizeLayer& /*normalize*/, const RecordedOperation& operation) {
    const auto& in = operation.inputs;  // x, scale, shift
    give_rows(operation, graph_.node("LayerNormalization", {rows(in[0]), weight(in[1]), weight(in[2])},
                                     {{"axis", std::int64_t{-1}},
                                      {"epsilon", static_cast<float>(model::formulas::kLayerNormEpsilon)}}));
  }

  void convert(const recorded::Apply& apply, const RecordedOperation& operation) {
    const Form first = forms_[operation.inputs[0]];
    if (!first.image.empty() && first.rows.empty()) {
      return give_image(operation, applied(first.image, apply.elementwise), first.shape);
    }
    give_rows(operation, applied(rows(operation.inputs[0]), apply.elementwise));
  }
  Name applied(const Name& x, const model::Elementwise& f) {
    switch (f.function) {
      case model::Function::relu:
        return graph_.node("Relu", {x});
      case model::Function::leaky_relu:
        return graph_.node("LeakyRelu", {x}, {{"alpha", f.parameter}});
      case model::Function::elu:
        return graph_.node("Elu", {x}, {{"alpha", f.parameter}});
      case model::Function::tanh:
        return graph_.node("Tanh", {x});
      case model::Function::sigmoid:
        return graph_.node("Sigmoid", {x});
      case model::Function::silu:
        return graph_.node("Mul", {x, graph_.node("Sigmoid", {x})});
      case model::Function::gelu:
        return gelu(x);
      case model::Function::scale:
        return graph_.node("Mul", {x, graph_.scalar(f.parameter)});
    }
    throw std::logic_error("no ONNX node for this function of an element");
  }

  void convert(const recorded::Gelu& /*gelu*/, const RecordedOperation& operation) {
    give_rows(operation, gelu(rows(operation.inputs[0])));
  }
  /// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  Name gelu(const Name& x) {
    const auto number = [&](double value) { return graph_.scalar(static_cast<float>(value)); };
    const Name square = graph_.node("Mul", {x, x});
    const Name cubic =
        graph_.node("Add", {graph_.node("Mul", {square, number(model::formulas::kGeluCubic)}), number(1)});
    const Name inner =
        graph_.node("Mul", {graph_.node("Mul", {x, cubic}), number(model::formulas::kTwoRootsTwoOverPi / 2)});
    const Name share = graph_.node("Add", {graph_.node("Tanh", {inner}), number(1)});
    return graph_.node("Mul", {graph_.node("Mul", {x, number(0.5)}), share});
  }

  void convert(const recorded::Attend& attend, const RecordedOperation& operation) {
    const model::Attention& shape = attend.shape;
    const Name split = graph_.node(
        "Reshape",
        {rows(operation.inputs[0]), graph_.concatenate({sizes_, graph_.numbers({3, shape.heads, shape.head_size})})});
    const Name joint = graph_.transpose(split, {2, 0, 3, 1, 4});  // [3, batch, heads, sequence, head size]
    const auto part = [&](std::int64_t which) {
      return graph_.node(
          "Squeeze",
          {graph_.slice(joint, graph_.numbers({which}), graph_.numbers({which + 1}), {0}, {1}), graph_.numbers({0})});
    };
    const Name products = graph_.node("MatMul", {part(0), graph_.transpose(part(1), {0, 1, 3, 2})});
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)));
    const Name scores = graph_.node("Add", {graph_.node("Mul", {products, graph_.scalar(scale)}), causal_mask()});
    const Name shares = graph_.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    const Name attended = graph_.transpose(graph_.node("MatMul", {shares, part(2)}), {0, 2, 1, 3});
    give_rows(operation, graph_.reshape(attended, {-1, shape.width()}));
  }
  /// [sequence, sequence]: 0 for visible positions, far below all scores for masked ones.
  Name causal_mask() {
    if (mask_.empty()) {
      const Name none = graph_.node("Expand", {graph_.scalar(-1e30f), graph_.concatenate({sequence_, sequence_})});
      mask_ = graph_.node("Trilu", {none, graph_.node("Squeeze", {graph_.numbers({1}), graph_.numbers({0})})},
                          {{"upper", std::int64_t{1}}});
    }
    return mask_;
  }

  void convert(const recorded::RunLstm& lstm, const RecordedOperation& operation) {
    const std::int64_t hidden = lstm.shape.hidden;
    const RecordedOperation& gates = producer_of_gates(operation);
    const io::NamedTensor &input = tensor(gates.inputs[1]), &recurrent = tensor(operation.inputs[1]),
                          &bias = tensor(gates.inputs[2]);
    const Name w = graph_.made(input.name, {1, 4 * hidden, input.shape[0]}, [&] { return gate_rows(input, hidden); });
    const Name r = graph_.made(recurrent.name, {1, 4 * hidden, hidden}, [&] { return gate_rows(recurrent, hidden); });
    const Name b = graph_.made(bias.name, {1, 8 * hidden}, [&] {  // one bias of the input and one, zero, of the state
      std::vector<float> values = gate_rows(bias, hidden);
      values.resize(static_cast<std::size_t>(8 * hidden));
      return values;
    });
    const Name x = graph_.node(
        "Reshape", {rows(gates.inputs[0]), graph_.concatenate({sequence_, batch_, graph_.numbers({input.shape[0]})})});
    const auto before = [&](ValueNumber state) { return graph_.node("Unsqueeze", {rows(state), graph_.numbers({0})}); };
    const Name base = recurrent.name;
    const OnnxGraph::Names y =
        graph_.node_with("LSTM", {x, w, r, b, "", before(operation.inputs[2]), before(operation.inputs[3])},
                         {base + "/all", base + "/hidden_after", base + "/cell_after"}, {{"hidden_size", hidden}});
    for (std::size_t i = 0; i < y.size(); ++i) {
      forms_[operation.outputs[i]] = {.rows = graph_.reshape(y[i], {-1, hidden}), .image = {}, .time_major = true};
    }
  }
  const RecordedOperation& producer_of_gates(const RecordedOperation& operation) const {
    for (const std::size_t i : absorbed_) {
      const RecordedOperation& product = recording_.operations[i];
      const auto* const linear = std::get_if<recorded::Linear>(&product.kind);
      if (product.outputs.front() == operation.inputs.front() && linear != nullptr &&
          linear->activation == model::Activation::none && product.inputs[2] != kNoValue) {
        return product;
      }
    }
    throw std::logic_error("the gates of an LSTM are not a linear map with a bias");
  }
  /// Columns [input, forget, cell, output] of a matrix (or a vector) -> rows [input, output, forget, cell].
  static std::vector<float> gate_rows(const io::NamedTensor& tensor, std::int64_t hidden) {
    const std::int64_t columns = 4 * hidden;
    const auto inputs = static_cast<std::int64_t>(tensor.values.size()) / columns;
    std::vector<float> values;
    values.reserve(tensor.values.size());
    for (const std::int64_t gate : {0, 3, 1, 2}) {
      for (std::int64_t unit = 0; unit < hidden; ++unit) {
        for (std::int64_t i = 0; i < inputs; ++i) {
          values.push_back(tensor.values[static_cast<std::size_t>(i * columns + gate * hidden + unit)]);
        }
      }
    }
    return values;
  }

  const TrainedNetwork& trained_;
  const model::Recording& recording_;
  io::OnnxModel& model_;
  OnnxGraph graph_;
  io::DataDescription data_scale_;  ///< scale of inputs and outputs
  std::vector<Form> forms_;         ///< one per value
  std::set<std::size_t> absorbed_;  ///< operations that are part of others
  Name sizes_, batch_, sequence_;   ///< sizes of tokens, int64: [batch, sequence] and each alone
  Name mask_;
};

}  // namespace

io::OnnxModel onnx_model_of(const TrainedNetwork& trained) {
  io::OnnxModel model{
      .graph_name = model::network_kind(trained.trained.network).name,
      .program_version = program_version(),
      .description = fmt::format("{}, {}", trained.network->signature(), trained.source.file.filename().string()),
      .metadata = describe_network(trained)};
  try {
    const model::Recording recording = model::record_inference(*trained.network);
    Conversion(trained, recording, model).run();
  } catch (const std::logic_error& error) {
    throw io::FileError(fmt::format("{}: its network cannot be an ONNX graph: {}; --format safetensors has its weights",
                                    trained.source.file.string(), error.what()));
  }
  return model;
}

}  // namespace lockstep::app
