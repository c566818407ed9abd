#include "model/layers/transformer_branch.hpp"

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::int64_t kExpansion = 4;

/// d_y as the branch's last dense layer sees it: behind the dropout.
Tensor behind(const DropoutLayer& dropout, const Pass& pass, const TransformerWorkspace& workspace, const Tensor& d_y) {
  if (!dropout.acts(pass)) return d_y;
  const Tensor dropped = pass.at(workspace.dropped);
  dropout.apply(pass, d_y, dropped);
  return dropped;
}

}  // namespace

TransformerWorkspace::TransformerWorkspace(ActivationTable& activations, const TransformerOptions& options)
    : branch(activations.add({.name = "", .rows = options.context, .columns = options.width})),
      joint(activations.add({.name = "", .rows = options.context, .columns = 3 * options.width})),
      hidden(activations.overlay(joint, {.name = "", .rows = options.context, .columns = kExpansion * options.width})),
      dropped(options.dropout > 0 ? activations.add({.name = "", .rows = options.context, .columns = options.width})
                                  : branch) {}

AttentionBranch::AttentionBranch(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                                 const TransformerOptions& options, std::uint32_t stream)
    : name_(name),
      shape_{.context = options.context,
             .heads = options.heads,
             .head_size = options.width / options.heads,
             .dropout = {}},
      joint_(parameters, activations, name + "/joint",
             {.rows = options.context,
              .inputs = options.width,
              .outputs = 3 * options.width,
              .weight_initializer = options.initializer}),
      attended_(activations.add({.name = name, .rows = options.context, .columns = options.width})),
      log_sums_(
          activations.add({.name = "", .rows = options.heads, .columns = options.context, .holds = Holds::statistics})),
      output_(parameters, activations, name + "/output",
              {.rows = options.context,
               .inputs = options.width,
               .outputs = options.width,
               .weight_initializer = options.residual_initializer}),
      probabilities_({.rate = options.dropout, .stream = stream}),
      dropout_({.rate = options.dropout, .stream = stream + 1}) {}

LayerPlan AttentionBranch::plan(const ParameterTable& table) const {
  const LayerPlan joint = joint_.plan(table), output = output_.plan(table);
  // Scores and their product with the values; the causal mask halves both.
  const double pairs = 0.5 * static_cast<double>(shape_.context) * static_cast<double>(shape_.context + 1);
  const double attention = 2 * 2.0 * pairs * static_cast<double>(shape_.width());
  return {
      .name = name_,
      .description = fmt::format("{} heads of {}, context {}", shape_.heads, shape_.head_size, shape_.context),
      .parameters = joint.parameters + output.parameters,
      .activation_elements = joint.activation_elements + output.activation_elements + shape_.context * shape_.width(),
      .forward_flops = joint.forward_flops + attention + output.forward_flops,
      .backward_flops =
          joint.backward_flops + output.backward_flops + (output_.trains_below(table) ? 2 * attention : 0),
      .score_elements = probabilities_.is_used() ? 0 : shape_.heads * shape_.context * shape_.context,
      .products = {joint.products.front(), output.products.front()}};
}

Tensor AttentionBranch::forward(const Pass& pass, const Tensor& x) const {
  const Tensor joint = joint_.forward(pass, x), attended = pass.at(attended_);
  Attention shape = shape_;
  shape.dropout = probabilities_.rule(pass);
  AttentionForwardOperands operands{
      .joint = joint, .dropout_keys = pass.keys, .y = attended, .log_sums = pass.whole(log_sums_)};
  if (const Pass::Positions& own = pass.positions;
      own.count > 0) {  // earlier positions have their keys and values already
    shape.first = own.first;
    shape.context = own.first + own.count;
    operands.joint = joint_.whole_output(pass).row_range(0, shape.context);
    operands.log_sums = operands.log_sums.slice({0, static_cast<std::size_t>(shape.heads * shape.context)})
                            .reshaped(shape.heads, shape.context);
  }
  pass.sequences().attention_forward(shape, operands);
  const Tensor y = output_.forward(pass, attended);
  if (dropout_.acts(pass)) dropout_.apply(pass, y, y);
  return y;
}

void AttentionBranch::backward(const Pass& pass, const TransformerWorkspace& workspace, const Tensor& x,
                               const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const {
  const Tensor attended = pass.at(attended_), d_attended = pass.at(workspace.branch),
               d_joint = pass.at(workspace.joint);
  output_.backward(pass, attended, behind(dropout_, pass, workspace, d_y), accumulate, d_attended);
  Attention shape = shape_;
  shape.dropout = probabilities_.rule(pass);
  pass.sequences().attention_backward(shape, {.joint = joint_.output(pass),
                                              .dropout_keys = pass.keys,
                                              .y = attended,
                                              .log_sums = pass.at(log_sums_),
                                              .d_y = d_attended,
                                              .d_joint = d_joint});
  joint_.backward(pass, x, d_joint, accumulate, d_x);
}

FeedForwardBranch::FeedForwardBranch(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
                                     const TransformerOptions& options, std::uint32_t stream)
    : name_(name),
      context_(options.context),
      width_(options.width),
      weight_(parameters.add({.name = name + "/expand/weight",
                              .shape = {options.width, kExpansion * options.width},
                              .initializer = options.initializer,
                              .fan_in = options.width,
                              .fan_out = kExpansion * options.width})),
      bias_(parameters.add({.name = name + "/expand/bias",
                            .shape = {kExpansion * options.width},
                            .initializer = {},
                            .fan_in = options.width,
                            .fan_out = kExpansion * options.width,
                            .decay = Decay::no})),
      expanded_(activations.add({.name = "", .rows = options.context, .columns = kExpansion * options.width})),
      active_(
          activations.add({.name = name + "/expand", .rows = options.context, .columns = kExpansion * options.width})),
      contract_(parameters, activations, name + "/contract",
                {.rows = options.context,
                 .inputs = kExpansion * options.width,
                 .outputs = options.width,
                 .weight_initializer = options.residual_initializer}),
      dropout_({.rate = options.dropout, .stream = stream}) {}

LayerPlan FeedForwardBranch::plan(const ParameterTable& table) const {
  const LayerPlan contract = contract_.plan(table);
  const std::int64_t wide = kExpansion * width_;
  return {.name = name_,
          .description = fmt::format("{} -> {}, gelu -> {}", width_, wide, width_),
          .parameters = width_ * wide + wide + contract.parameters,
          .activation_elements = 2 * context_ * wide + contract.activation_elements,
          .forward_flops = 2 * contract.forward_flops,
          .backward_flops = contract.backward_flops + backward_flops(table, contract.forward_flops, weight_),
          .products = {contract.products.front(), {.rows = context_, .inputs = width_, .outputs = wide}}};
}

Tensor FeedForwardBranch::forward(const Pass& pass, const Tensor& x) const {
  const Tensor expanded = pass.at(expanded_), active = pass.at(active_);
  pass.backend.linear_gelu_forward(x, pass.weight(weight_), pass.weight(bias_), expanded, active);
  const Tensor y = contract_.forward(pass, active);
  if (dropout_.acts(pass)) dropout_.apply(pass, y, y);
  return y;
}

void FeedForwardBranch::backward(const Pass& pass, const TransformerWorkspace& workspace, const Tensor& x,
                                 const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const {
  const Tensor expanded = pass.at(expanded_), d_hidden = pass.at(workspace.hidden);
  contract_.backward_through_gelu(pass, {.x = pass.at(active_), .z = expanded}, behind(dropout_, pass, workspace, d_y),
                                  accumulate, d_hidden, pass.gradient(bias_));
  pass.backend.linear_backward(
      {.x = x, .w = pass.weight(weight_), .y = expanded, .d_y = d_hidden, .d_w = pass.gradient(weight_), .d_x = d_x},
      Activation::none, accumulate);
}

}  // namespace lockstep::model
