#include "model/network.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/network_kinds.hpp"
#include "model/yaml/expansion.hpp"
#include "model/yaml/network_signature.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

Network::Network(const Description& description, const SampleShape& shape, std::string signature, OperationKinds kinds)
    : shape_(shape),
      signature_(std::move(signature)),
      kinds_(kinds.begin(), kinds.end()),
      description_(description),
      graph_(rewritten(description, kinds), parameters_, recurrent_state_, kinds) {
  const Shape& output = graph_.values()[graph_.output()].type.shape;
  if (shape.takes_grid_of_output && shape.grid.empty() && !shape.tokens && output.last() == shape.outputs &&
      output.places() > 1) {
    shape_.grid.assign(output.extents().begin(), output.extents().end() - 1);
  }
  if (!shape_.grid.empty()) require_output_of_grid(output);
  if (output.elements() != shape.outputs * positions()) {
    const bool is_flat = output.places() == positions();
    throw std::invalid_argument(fmt::format(
        "the network's output is {} of each sample, and the data ask for {}: end with {}", to_string(output),
        shape.outputs, is_flat ? "`dense: $outputs`" : "`flatten` (or `global-average`) and `dense: $outputs`"));
  }
  if (parameters_.all().empty()) throw std::invalid_argument("the network has no parameters: nothing can be trained");
  synchronizes_ = std::ranges::any_of(graph_.nodes(), &Node::synchronizes);
  // One row per position, from the tokens to the output.
  reuses_positions_ =
      shape.tokens &&
      std::ranges::all_of(graph_.nodes(), [](const Node& node) { return node.operation->takes_positions(); }) &&
      std::ranges::all_of(graph_.values(), [&](const Value& value) {
        return value.type.holds == Holds::tokens || value.type.shape.places() == positions();
      });
  parameters_.lay_out();
  compile();
}

/// A position of the output is the same position of the mask or the field.
void Network::require_output_of_grid(const Shape& output) const {
  std::vector<std::int64_t> wanted = shape_.grid;
  wanted.push_back(shape_.outputs);
  if (std::ranges::equal(output.extents(), wanted)) return;
  const auto text = [](const auto& extents) { return fmt::format("{}", fmt::join(extents, " x ")); };
  const bool has_positions = std::ranges::equal(output.extents().first(output.count() - 1), shape_.grid);
  const std::string data = shape_.is_field ? "fields" : "masks";
  const std::string remedy =
      has_positions ? "end with `conv: {channels: $outputs, kernel: 1}` or `dense: $outputs`"
      : output.elements() == shape_.outputs * positions()
          ? fmt::format("end with `reshape: [{}]`", fmt::join(wanted, ", "))
          : fmt::format("give it as many positions as the {} have, or {} of its size", data, data);
  throw std::invalid_argument(
      fmt::format("the network's output is {} of each sample, and {} of {} with {} {} ask for {}: {}",
                  text(output.extents()), data, text(shape_.grid), shape_.outputs,
                  !shape_.is_field      ? "classes"
                  : shape_.outputs == 1 ? "channel"
                                        : "channels",
                  text(wanted), remedy));
}

Tensor Network::forward(const Pass& pass) const {
  const Tensor output = program(purpose_of(pass)).forward(pass);
  const bool is_row = !shape_.grid.empty() && output.columns == shape_.outputs * positions();
  return is_row ? output.reshaped(pass.batch * positions(), shape_.outputs) : output;
}

std::optional<Network::Columns> Network::columns_of(std::string_view name) const {
  const Call& last = description_.calls.back();
  if (name == last.name) return Columns{.first = 0, .count = shape_.outputs};
  const Node& node = graph_.nodes().back();
  if (last.kind != "concatenate" || node.inputs.size() != last.from.size()) return std::nullopt;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < last.from.size(); ++i) {
    const std::int64_t count = graph_.values()[node.inputs[i]].type.shape.last();
    if (last.from[i] == name) return Columns{.first = first, .count = count};
    first += count;
  }
  return std::nullopt;
}

std::vector<TokenRange> Network::token_ranges() const {
  std::vector<TokenRange> ranges;
  for (const Call& call : description_.calls) {
    if (call.kind != "tokens") continue;
    ranges.push_back({.first = call.get<std::int64_t>("first"),
                      .count = call.get<std::int64_t>("count"),
                      .vocabulary = call.get<std::int64_t>("vocabulary"),
                      .are_lengths = call.find<bool>("are-lengths").value_or(false)});
  }
  return ranges;
}

void Network::compile() {
  training_.emplace(graph_, parameters_, Purpose::training);
  evaluation_.emplace(graph_, parameters_, Purpose::evaluation);
}

void Network::freeze(std::span<const std::size_t> parameters) {
  parameters_.freeze(parameters);
  compile();
}

namespace {

void add_costs(const LayerPlan& part, LayerPlan& sum) {
  sum.parameters += part.parameters;
  sum.activation_elements += part.activation_elements;
  sum.forward_flops += part.forward_flops;
  sum.backward_flops += part.backward_flops;
  sum.patch_elements = std::max(sum.patch_elements, part.patch_elements);
  sum.score_elements = std::max(sum.score_elements, part.score_elements);
  sum.products.insert(sum.products.end(), part.products.begin(), part.products.end());
  sum.declares.insert(sum.declares.end(), part.declares.begin(), part.declares.end());
}

}  // namespace

std::vector<LayerPlan> Network::plan(std::span<const CallGroup> groups) const {
  std::map<std::string_view, const CallGroup*> named;
  for (const CallGroup& group : groups) named.emplace(group.name, &group);
  const auto group_of = [&](std::string_view name) -> const CallGroup* {
    for (std::size_t end = name.find('/');; end = name.find('/', end + 1)) {
      const auto found = named.find(name.substr(0, end));
      if (found != named.end()) return found->second;
      if (end == std::string_view::npos) return nullptr;
    }
  };
  const CallGroup* last_group = nullptr;
  std::string input;  // input shape of the last group
  const std::vector<bool> wants = graph_.values_that_want_gradients(parameters_);
  std::vector<LayerPlan> lines;
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.operation->needs().is_view || training_->is_made_behind(i)) continue;
    NodeView view{.name = node.name,
                  .inputs = {},
                  .output = graph_.values()[i + 1].type,
                  .table = parameters_,
                  .parameters = node.parameters,
                  .goes_on = std::ranges::any_of(node.inputs, [&](std::size_t value) { return wants[value]; })};
    for (const std::size_t value : node.inputs) view.inputs.push_back(graph_.values()[value].type);
    const std::vector<std::size_t> declared(node.parameters.begin(),
                                            node.parameters.end() - static_cast<std::ptrdiff_t>(node.shared.size()));
    const CallGroup* const group = group_of(node.name);
    if (group == nullptr) {
      // A dropout or a sum whose name extends that of the previous line has no line of its own.
      const bool belongs = node.parameters.empty() && !lines.empty() && node.name.starts_with(lines.back().name + "/");
      if (belongs) continue;
      std::vector<LayerPlan> own = node.operation->lines(view);
      if (own.size() == 1) own[0].declares = declared;
      std::ranges::move(own, std::back_inserter(lines));
      continue;
    }
    if (group != last_group) {
      lines.push_back({.name = group->name, .description = ""});
      last_group = group;
      input = to_string(view.inputs[0].shape);
    }
    const OperationNeeds needs = node.operation->needs();
    LayerPlan part = node.operation->plan(view);
    if (!group->has_shapes && node.parameters.empty() && needs.in_place != 0) part.activation_elements = 0;
    part.declares = declared;
    add_costs(part, lines.back());
    lines.back().description =
        group->has_shapes ? fmt::format("{} -> {}, {}", input, to_string(view.output.shape), group->description)
                          : group->description;
  }
  return lines;
}

std::map<std::string, int> Network::fusions() const {
  std::map<std::string_view, const Call*> plain;
  for (const Call& call : description_.calls) plain.emplace(call.name, &call);
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Call& call = graph_.nodes()[i].call;
    const auto before = plain.find(call.name);
    std::string text;
    if (!call.parts.empty()) {
      for (const Call& part : call.parts) {
        const auto activation = part.find<std::string>("activation").value_or("none");
        text += (text.empty() ? "" : " + ") + part.kind + (activation == "none" ? "" : " + " + activation);
      }
    } else if (before != plain.end()) {
      const auto word = [](const Call& of) { return of.find<std::string>("activation").value_or("none"); };
      const auto relu = [](const Call& of) { return of.kind == "batch-norm" && of.find<bool>("relu").value_or(false); };
      if (call.from.size() > std::max<std::size_t>(before->second->from.size(), 1)) text += " + add";
      if (word(call) != word(*before->second)) text += " + " + word(call);
      if (relu(call) && !relu(*before->second)) text += " + relu";
      if (!text.empty()) text = call.kind + text;
      if (i > 0 && training_->is_made_behind(i - 1)) text = "add + " + call.kind;
    }
    if (!text.empty()) ++counts[text];
  }
  return counts;
}

Tensor Network::targets(const Pass& pass, const Tensor& y) const {
  const Tensor targets = program(purpose_of(pass)).targets(pass, y);
  return shape_.tokens || !shape_.grid.empty() ? targets.reshaped(pass.batch * positions(), y.columns / positions())
                                               : targets;
}

namespace {

std::vector<NetworkKind> read_shipped() {
  std::vector<NetworkKind> kinds;
  for (const std::string_view text : shipped_networks()) {
    kinds.push_back(read_network(std::string(text), ""));
  }
  return kinds;
}

}  // namespace

std::span<const NetworkKind> network_kinds() {
  static const std::vector<NetworkKind> kinds = read_shipped();
  return kinds;
}

std::span<const std::pair<std::string_view, LossKind>> loss_words() {
  static constexpr std::pair<std::string_view, LossKind> kWords[] = {
      {"softmax-cross-entropy", LossKind::softmax_cross_entropy},
      {"mean-squared-error", LossKind::mean_squared_error},
      {"mean-absolute-error", LossKind::mean_absolute_error},
      {"huber", LossKind::huber},
      {"binary-cross-entropy", LossKind::binary_cross_entropy},
      {"soft-cross-entropy", LossKind::soft_cross_entropy},
      {"dice", LossKind::soft_dice}};
  return kWords;
}

const NetworkKind& network_kind(const NetworkOptions& options) {
  const bool is_source = options.source != nullptr && options.source->file == options.name;
  return is_source ? *options.source : network_kind(std::string_view(options.name));
}

bool is_network_file(std::string_view model) {
  return model.ends_with(".yaml") || model.ends_with(".yml") || model.find('/') != std::string_view::npos;
}

bool NetworkOptions::operator==(const NetworkOptions& other) const {
  const auto text = [](const NetworkOptions& options) {
    const bool is_source = options.source != nullptr && options.source->file == options.name;
    return is_source ? std::string_view(options.source->text) : std::string_view();
  };
  return name == other.name && values == other.values && text(*this) == text(other);
}

const NetworkKind& network_kind(std::string_view name) {
  for (const NetworkKind& kind : network_kinds()) {
    if (kind.name == name) return kind;
  }
  throw std::invalid_argument(fmt::format("unknown network '{}'; valid: {}", name, fmt::join(network_names(), ", ")));
}

const NetworkOption* NetworkKind::find(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &NetworkOption::name);
  return found == options.end() ? nullptr : &*found;
}

NetworkOptions with_defaults(const NetworkOptions& given) {
  const NetworkKind& kind = network_kind(given);
  for (const auto& [name, value] : given.values) {
    const NetworkOption* const option = kind.find(name);
    if (option == nullptr) {
      std::vector<std::string_view> known;
      for (const NetworkOption& each : kind.options) known.push_back(each.name);
      throw std::invalid_argument(
          fmt::format("network {} has no option {}; it knows: {}", kind.name, name, fmt::join(known, ", ")));
    }
    if (const std::string wrong = objection(*option, value); !wrong.empty()) {
      throw std::invalid_argument(fmt::format("network {}: {} {}", kind.name, name, wrong));
    }
  }
  NetworkOptions options = given;
  for (const NetworkOption& option : kind.options) {
    if (!option.automatic) options.values.try_emplace(option.name, option.value);
  }
  return options;
}

std::vector<SampleInput> inputs_of(const NetworkOptions& options) {
  std::vector<SampleInput> inputs;
  for (const DeclaredInput& declared : declared_inputs(network_kind(options))) {
    inputs.push_back({.name = declared.name, .extents = declared.extents});
  }
  return inputs;
}

std::int64_t tokens_per_sample(const NetworkOptions& options) {
  const NetworkKind& kind = network_kind(options);
  return kind.reads == Reads::tokens ? with_defaults(options).get<std::int64_t>(kind.window) : 0;
}

namespace {

/// Makes a field of an output that is one row of all its numbers.
void arrange_row(const SampleShape& shape, Description& description) {
  if (!shape.is_field || shape.grid.empty()) return;
  Numbers field = shape.grid;
  field.push_back(shape.outputs);
  ParameterTable table;
  ActivationTable state;
  const Graph graph(description, table, state, operation_kinds());
  const Shape& output = graph.values()[graph.output()].type.shape;
  if (output.count() > 1 || output.elements() != Shape(field).elements()) return;
  description.calls.push_back(
      {.kind = "reshape", .name = "output as a field", .from = {}, .arguments = {{"shape", std::move(field)}}});
}

std::unique_ptr<Network> make_from_text(const NetworkKind& kind, const NetworkOptions& options,
                                        const SampleShape& shape) {
  Description description = expand(kind, options, shape);
  try {
    arrange_row(shape, description);
    return std::make_unique<Network>(description, shape, signature_of(kind, options, shape, description));
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    if (kind.file.empty() || what.starts_with(kind.file)) throw;
    throw std::invalid_argument(fmt::format("{}: {}", kind.file, what));
  }
}

}  // namespace

std::unique_ptr<Network> make_network(const NetworkOptions& given, const SampleShape& shape) {
  const NetworkOptions options = with_defaults(given);
  const NetworkKind& kind = network_kind(options);
  if (kind.reads == Reads::tokens && !shape.tokens) {
    throw std::invalid_argument(fmt::format("network {} takes tokens", kind.name));
  }
  if (kind.reads != Reads::tokens && shape.tokens) {
    throw std::invalid_argument(fmt::format("network {} takes no tokens", kind.name));
  }
  if (kind.reads == Reads::images && (!shape.image || shape.image->depth > 1)) {
    throw std::invalid_argument(fmt::format(
        "network {} takes images: samples of shape height x width x channels, or height x width", kind.name));
  }
  if (shape.features <= 0 || shape.outputs <= 0) {
    throw std::invalid_argument(fmt::format("network {}: {} {} and {} {} must be positive", kind.name,
                                            shape.tokens ? "context" : "features", shape.features,
                                            shape.tokens ? "vocabulary" : "outputs", shape.outputs));
  }
  auto network = make_from_text(kind, options, shape);
  if (kind.recurrent == network->recurrent_state().all().empty()) {
    throw std::invalid_argument(
        fmt::format("network {} has recurrent layers in its file and none with these options: describe it without them",
                    kind.name));
  }
  for (const std::string_view option : {"weight-init", "bias-init"}) {
    if (const auto initializers = options.find<Initializers>(option)) network->set_initializers(option, *initializers);
  }
  return network;
}

void Network::set_initializers(std::string_view option, const Initializers& initializers) {
  const auto takes = [&](const Parameter& parameter) {
    return option == "bias-init" ? parameter.name.ends_with("/bias") : parameter.decay == Decay::yes;
  };
  for (const auto& [layer, initializer] : initializers.layers) {
    bool found = false;
    std::vector<std::string> layers;
    for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
      const Parameter& parameter = parameters_[i];
      if (!takes(parameter)) continue;
      layers.push_back(parameter.name.substr(0, parameter.name.rfind('/')));
      if (!parameter.name.starts_with(layer + "/")) continue;
      parameters_.set_initializer(i, initializer);
      found = true;
    }
    if (found) continue;
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
    throw std::invalid_argument(
        fmt::format("--{}: this network has no layer {}; there are {}", option, layer, fmt::join(layers, ", ")));
  }
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const NetworkKind& kind : network_kinds()) names.push_back(kind.name);
  return names;
}

std::vector<std::string> language_models() {
  std::vector<std::string> names;
  for (const NetworkKind& kind : network_kinds()) {
    if (kind.reads == Reads::tokens) names.push_back(kind.name);
  }
  return names;
}

}  // namespace lockstep::model
