#include "app/exchange/onnx_network.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "app/exchange/onnx_operations.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/network_losses.hpp"
#include "app/report/program_build.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

namespace {

using Name = OnnxGraph::Name;
using Numbers = OnnxGraph::Numbers;
using model::ImageShape;

/// Converts a network with its inputs, their normalisation, and its outputs.
class Conversion {
 public:
  Conversion(const TrainedNetwork& trained, io::OnnxModel& model)
      : trained_(trained),
        model_(model),
        graph_(model),
        network_(trained.network->plain_graph(table_, state_)),
        operations_(network_, table_, trained.weights, graph_) {
    const std::string& description = trained.source.checkpoint.record.data_description;
    if (!description.empty()) data_scale_ = io::data_description_from_json(description);
  }

  void run() {
    begin();
    operations_.run();
    end();
  }

 private:
  static constexpr std::size_t kInput = 0;  // index of the network's input among the values

  // ---- inputs and outputs ----

  void begin() {
    const model::SampleShape& shape = trained_.shape;
    if (shape.tokens) {
      model_.inputs.push_back({"tokens", io::OnnxType::int64, {"batch", "sequence"}});
      operations_.sizes = graph_.node("Shape", {"tokens"}, {}, "tokens_shape");
      operations_.batch = graph_.slice(operations_.sizes, graph_.numbers({0}), graph_.numbers({1}), {0}, {1});
      operations_.sequence = graph_.slice(operations_.sizes, graph_.numbers({1}), graph_.numbers({2}), {0}, {1});
      operations_.set_rows(kInput, "tokens");
    } else if (!shape.inputs.empty()) {
      begin_inputs();
    } else {
      begin_samples();
    }
    for (const model::ActivationSpec& state : state_.all()) {
      model_.inputs.push_back({state.name, io::OnnxType::float32, {"batch", state.columns}});
      operations_.state_before[state.name] = state.name;
    }
  }

  /// Adds several inputs, each with its own scale, side by side as the network reads them.
  void begin_inputs() {
    const DataOptions& data = trained_.trained.data;
    const bool per_feature = data.normalize.kind == Normalization::Kind::per_feature && !data_scale_.features.empty();
    std::vector<Name> rows;
    std::size_t feature = 0;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < trained_.shape.inputs.size(); ++i) {
      const model::SampleInput& input = trained_.shape.inputs[i];
      std::vector<io::OnnxExtent> extents{"batch"};
      std::int64_t elements = 1;
      for (const std::int64_t extent : input.extents) {
        extents.emplace_back(extent);
        elements *= extent;
      }
      // An input must not have the name of an output.
      const bool is_taken = input.name == "logits" || input.name == "probabilities" || input.name == "predictions";
      Name x = is_taken ? input.name + "_input" : input.name;
      x = graph_.reshape(take_input(x, std::move(extents), first), {-1, elements});
      first += elements;
      if (per_feature) {
        const std::size_t features = data_scale_.features.parts.empty()
                                         ? static_cast<std::size_t>(elements)
                                         : static_cast<std::size_t>(data_scale_.features.parts.at(i).features);
        x = standardized(x, static_cast<std::size_t>(elements), feature, features, input.name + "/");
        feature += features;
      }
      rows.push_back(std::move(x));
    }
    const Name row = graph_.node("Concat", rows, {{"axis", std::int64_t{1}}});
    operations_.set_rows(kInput, per_feature ? row : scaled(row));
  }

  /// Adds an input to the graph. Tokens are int64, all others float32. `first`: index of the input's first number in a
  /// sample.
  Name take_input(const Name& name, std::vector<io::OnnxExtent> extents, std::int64_t first) {
    const std::vector<model::TokenRange> ranges = trained_.network->token_ranges();
    const bool is_tokens = std::ranges::find(ranges, first, &model::TokenRange::first) != ranges.end();
    model_.inputs.push_back({name, is_tokens ? io::OnnxType::int64 : io::OnnxType::float32, std::move(extents)});
    if (!is_tokens) return name;
    operations_.tokens_from[first] = name;
    return graph_.node("Cast", {name}, {{"to", static_cast<std::int64_t>(io::OnnxType::float32)}});
  }

  /// Applies the affine normalisation of all numbers.
  Name scaled(Name x) {
    const Normalization& normalize = trained_.trained.data.normalize;
    if (normalize.kind == Normalization::Kind::affine) {
      const model::InputTransform& affine = normalize.affine;
      if (affine.scale != 1) x = graph_.node("Mul", {x, graph_.scalar(affine.scale)});
      if (affine.shift != 0) x = graph_.node("Add", {x, graph_.scalar(affine.shift)});
    } else if (normalize.kind != Normalization::Kind::none) {
      throw io::FileError(fmt::format(
          "{} does not say how its samples were normalised: it was written by another version; `lockstep train "
          "--resume` writes a new one, and safetensors holds the weights alone",
          trained_.source.file.string()));
    }
    return x;
  }

  /// Repeats BatchStage's processing of stored samples before the network (augmentation.hpp, evaluation).
  void begin_samples() {
    const DataOptions& data = trained_.trained.data;
    const model::SampleShape& shape = trained_.shape;
    const bool per_image = data.normalize.kind == Normalization::Kind::per_image;
    const bool reads_any = model::network_kind(trained_.trained.network).reads == model::Reads::any;
    const model::Shape& read = operations_.type(kInput).shape;
    const bool crops = data.augment.crop && shape.image, windows = data_scale_.window > 0;
    const bool is_volume = shape.image && shape.image->depth > 1;
    const bool has_positions = !windows && shape.image && (crops || read.count() > 1 || (reads_any && !is_volume));
    const bool per_feature = data.normalize.kind == Normalization::Kind::per_feature && !data_scale_.features.empty();
    Numbers extents{shape.features};
    if (windows) {
      extents = {data_scale_.window, shape.features / data_scale_.window};
    } else if (has_positions) {
      const model::Shape samples = read.count() > 1 && !crops ? read : model::Shape(*shape.image);
      extents.assign(samples.extents().begin(), samples.extents().end());
    }
    std::vector<io::OnnxExtent> shown{"batch"};
    shown.insert(shown.end(), extents.begin(), extents.end());
    if (crops) {  // cropping accepts any size
      shown = {"batch", "height", "width", shape.image->channels};
      if (is_volume) shown.insert(shown.begin() + 1, "depth");
    }
    Numbers axes(shown.size() - 1);
    std::iota(axes.begin(), axes.end(), 1);
    const std::int64_t last = extents.back();
    Name x = "input";
    if (axes.size() == 1) {
      x = take_input(x, std::move(shown), 0);
    } else {
      model_.inputs.push_back({x, io::OnnxType::float32, std::move(shown)});
    }
    if (per_feature) x = standardized_by_feature(x, static_cast<std::size_t>(last));
    if (crops) x = central_crop(x, *shape.image);
    if (per_image) {
      x = standardize(x, axes, shape.features);
    } else if (!per_feature) {
      x = scaled(x);
    }
    if (has_positions && read.count() == 3) operations_.set_image(kInput, graph_.transpose(x, {0, 3, 1, 2}));
    operations_.set_rows(kInput, axes.size() > 1 || read.count() > 1 ? graph_.reshape(x, {-1, read.last()}) : x);
  }

  /// Standardises the only input, whose last axis has `last` elements.
  Name standardized_by_feature(const Name& x, std::size_t last) {
    const std::size_t features = data_scale_.features.mean.size();
    if (last % features == 0) return standardized(x, last, 0, features, "");
    // Earlier checkpoints have scales that alternate along more than the channels.
    const Name rows = graph_.reshape(x, {-1, static_cast<std::int64_t>(features)});
    return graph_.node("Reshape", {standardized(rows, features, 0, features, ""), graph_.node("Shape", {x})});
  }

  /// FeatureScale::apply along the last axis, which has `elements` elements. The `features` features from `first` on
  /// repeat along it.
  Name standardized(const Name& x, std::size_t elements, std::size_t first, std::size_t features, const Name& prefix) {
    if (data_scale_.features.needs_double()) {
      throw io::FileError(
          fmt::format("{} was trained on numbers that float32 does not tell apart (mean {:.10g}, deviation {:.4g}), "
                      "and the inputs of "
                      "an ONNX graph are float32: safetensors holds the weights; or subtract such means before packing",
                      trained_.source.file.string(), data_scale_.features.mean[0], data_scale_.features.deviation[0]));
    }
    const auto repeated = [&](const std::vector<double>& of_features) {
      std::vector<float> values(elements);
      for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(of_features[first + i % features]);
      return values;
    };
    const Numbers extent{static_cast<std::int64_t>(elements)};
    const Name mean = graph_.made(prefix + "feature_mean", extent, [&] { return repeated(data_scale_.features.mean); });
    const Name factor = graph_.made(prefix + "feature_factor", extent, [&] {
      std::vector<float> factors = repeated(data_scale_.features.deviation);
      for (float& value : factors) value = 1 / value;
      return factors;
    });
    return graph_.node("Mul", {graph_.node("Sub", {x, mean}), factor});
  }

  /// Crops images of any size, and pads smaller ones with zeros. x: [batch, height, width, channels], or volumes. An
  /// odd plane, row or column is cut off (or added) at the end.
  Name central_crop(const Name& x, const ImageShape& out) {
    Numbers sides{out.height, out.width}, axes{1, 2}, steps{1, 1};
    if (out.depth > 1) {
      sides = {out.depth, out.height, out.width};
      axes = {1, 2, 3};
      steps = {1, 1, 1};
    }
    const Name size =
        graph_.slice(graph_.node("Shape", {x}), graph_.numbers({1}), graph_.numbers({axes.back() + 1}), {0}, {1});
    const Name extents = graph_.numbers(sides), none = graph_.numbers({0});
    const auto more_than = [&](const Name& a, const Name& b) {
      return graph_.node("Max", {graph_.node("Sub", {a, b}), none});
    };
    const auto half = [&](const Name& number) { return graph_.node("Div", {number, graph_.numbers({2})}); };
    const Name missing = more_than(extents, size), before = half(missing), first = half(more_than(size, extents));
    const Name behind = graph_.node("Sub", {missing, before});
    const Name pads = graph_.concatenate({none, before, graph_.numbers({0, 0}), behind, none});
    const Name padded = graph_.node("Pad", {x, pads});
    return graph_.slice(padded, first, graph_.node("Add", {first, extents}), axes, steps);
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
    const std::size_t output = network_.output();
    const std::int64_t outputs = trained_.shape.outputs;
    if (trained_.shape.tokens) {
      const Name columns = graph_.numbers({outputs});
      if (operations_.type(output).order == model::RowOrder::time_major) {
        const Name extents = graph_.concatenate({operations_.sequence, operations_.batch, columns});
        const Name all = graph_.node("Reshape", {operations_.rows(output), extents});
        graph_.node("Transpose", {all}, {{"perm", Numbers{1, 0, 2}}}, "logits");
      } else {
        graph_.node("Reshape", {operations_.rows(output), graph_.concatenate({operations_.sizes, columns})}, {},
                    "logits");
      }
      model_.outputs.push_back({"logits", io::OnnxType::float32, {"batch", "sequence", outputs}});
    } else {
      const std::optional<model::LossKind> loss = trained_.trained.loss.kind;
      const bool numbers = !loss || model::is_of_numbers(*loss);
      const Name name = numbers ? "predictions" : "logits";
      Name predicted = operations_.rows(output);
      const Numbers& grid = trained_.network->sample_shape().grid;
      std::vector<io::OnnxExtent> shape{"batch"};
      for (const std::int64_t extent : grid) shape.emplace_back(extent);
      shape.emplace_back(outputs);
      if (!grid.empty()) {
        Numbers extents{-1};
        extents.insert(extents.end(), grid.begin(), grid.end());
        extents.push_back(outputs);
        predicted = graph_.reshape(predicted, extents);
      }
      if (numbers && !data_scale_.targets.empty()) {
        const auto floats = [](const std::vector<double>& values) {
          return std::vector<float>(values.begin(), values.end());
        };
        predicted = graph_.node("Mul", {predicted, graph_.made("target_deviation", {outputs},
                                                               [&] { return floats(data_scale_.targets.deviation); })});
        predicted = graph_.node("Add", {predicted, graph_.made("target_mean", {outputs},
                                                               [&] { return floats(data_scale_.targets.mean); })});
      }
      if (numbers) predicted = with_probabilities(predicted);
      // The fields of the data had no extent for their only channel.
      if (!data_scale_.field.empty() && data_scale_.field == data_scale_.target_shape) {
        Numbers extents{-1};
        extents.insert(extents.end(), grid.begin(), grid.end());
        predicted = graph_.reshape(predicted, extents);
        shape.pop_back();
      }
      graph_.node("Identity", {predicted}, {}, name);
      model_.outputs.push_back({name, io::OnnxType::float32, shape});
      if (loss == model::LossKind::binary_cross_entropy) graph_.node("Sigmoid", {name}, {}, "probabilities");
      if (loss && model::chooses_class(*loss)) {
        graph_.node("Softmax", {name}, {{"axis", std::int64_t{-1}}}, "probabilities");
      }
      if (!numbers) {
        model_.outputs.push_back({"probabilities", io::OnnxType::float32, shape});
      }
    }
    for (const model::ActivationSpec& state : state_.all()) {
      const Name next = state.name + "/next";
      graph_.node("Identity", {operations_.state_after.at(state.name)}, {}, next);
      model_.outputs.push_back({next, io::OnnxType::float32, {"batch", state.columns}});
    }
  }

  /// Converts columns of labels, and columns of classes beside numbers, to probabilities, as `predict` writes them.
  Name with_probabilities(const Name& predicted) {
    const std::vector<model::DeclaredLoss>& losses = model::network_kind(trained_.trained.network).losses;
    if (std::ranges::all_of(losses, [](const auto& each) { return model::is_of_numbers(each.kind); })) return predicted;
    std::vector<model::LossTerm> terms =
        losses_for(losses, main_loss(losses, {}), with_targets({}, data_scale_.target_names, losses), *trained_.network)
            .terms;
    std::ranges::stable_sort(terms, {}, &model::LossTerm::first);
    std::vector<Name> parts;
    std::int64_t end = 0;
    for (const model::LossTerm& term : terms) {
      if (term.first < end) continue;  // another loss on the same columns
      end = term.first + term.columns;
      const Name part = graph_.slice(predicted, graph_.numbers({term.first}), graph_.numbers({end}), {1}, {1});
      const bool is_class = model::chooses_class(term.kind);
      parts.push_back(model::is_of_numbers(term.kind) ? part
                      : is_class                      ? graph_.node("Softmax", {part}, {{"axis", std::int64_t{-1}}})
                                                      : graph_.node("Sigmoid", {part}));
    }
    return graph_.node("Concat", parts, {{"axis", std::int64_t{1}}});
  }

  const TrainedNetwork& trained_;
  io::OnnxModel& model_;
  OnnxGraph graph_;
  model::ParameterTable table_;
  model::ActivationTable state_;
  model::Graph network_;
  OnnxEmission operations_;
  io::DataDescription data_scale_;  ///< scales of inputs and outputs
};

}  // namespace

io::OnnxModel onnx_model_of(const TrainedNetwork& trained) {
  io::OnnxModel model{
      .graph_name = model::network_kind(trained.trained.network).name,
      .program_version = program_version(),
      .description = fmt::format("{}, {}", trained.network->signature(), trained.source.file.filename().string()),
      .metadata = describe_network(trained)};
  try {
    Conversion(trained, model).run();
  } catch (const std::logic_error& error) {
    throw io::FileError(fmt::format("{}: its network cannot be an ONNX graph: {}; --format safetensors has its weights",
                                    trained.source.file.string(), error.what()));
  }
  return model;
}

}  // namespace lockstep::app
