#include "model/graph/graph.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

/// Runs work(), and adds the call's place and name to its exceptions.
template <class Work>
auto for_call(const Call& call, const Work& work) {
  try {
    return work();
  } catch (const std::invalid_argument& error) {
    const std::string place = call.place.empty() ? "" : call.place + ": ";
    throw std::invalid_argument(fmt::format("{}{} {}", place, call.name, error.what()));
  }
}

const OperationKind& kind_of(const Call& call, OperationKinds kinds) {
  const auto found = std::ranges::find(kinds, call.kind, &OperationKind::name);
  if (found != kinds.end() && !((*found)->is_fused && call.parts.empty())) return **found;
  std::vector<std::string_view> names;
  for (const OperationKind* kind : kinds) {
    if (!kind->is_fused) names.push_back(kind->name);
  }
  std::ranges::sort(names);
  throw std::invalid_argument(
      fmt::format("is a {}, which is no operation; there are {}", call.kind, fmt::join(names, ", ")));
}

/// Returns the call and its parts with the kind's defaults for arguments that are not given.
Call with_defaults(const OperationKind& kind, Call call, OperationKinds kinds) {
  for (Call& part : call.parts) {
    const OperationKind& kind_of_part = kind_of(part, kinds);
    part = with_defaults(kind_of_part, std::move(part), kinds);
  }
  for (const auto& [name, value] : call.arguments) {
    const auto known = std::ranges::find(kind.arguments, name, &NetworkOption::name);
    if (known == kind.arguments.end()) {
      std::vector<std::string_view> names;
      for (const NetworkOption& each : kind.arguments) names.push_back(each.name);
      throw std::invalid_argument(fmt::format("has an argument {}, which {} does not take; it takes: {}", name,
                                              kind.name, fmt::join(names, ", ")));
    }
    if (const std::string wrong = objection(*known, value); !wrong.empty()) {
      throw std::invalid_argument(fmt::format("has {} {}, which {}", name, to_text(value), wrong));
    }
  }
  for (const NetworkOption& each : kind.arguments) {
    if (each.automatic || call.arguments.contains(each.name)) continue;
    if (!objection(each, each.value).empty())
      throw std::invalid_argument(fmt::format("needs a value of {}", each.name));
    call.arguments.emplace(each.name, each.value);
  }
  return call;
}

}  // namespace

std::size_t Declarations::parameter(ParameterSpec spec) { return parameter(node_.name, std::move(spec)); }

std::size_t Declarations::parameter(const std::string& call, ParameterSpec spec) {
  assert(node_.shared.empty());
  spec.name = fmt::format("{}/{}", call, spec.name);
  node_.declared.push_back(std::move(spec));
  return node_.declared.size() - 1;
}

Declarations::Shared Declarations::share(const std::string& call, const std::string& part) {
  const std::string name = fmt::format("{}/{}", call, part);
  for (Node& node : earlier_) {
    const auto found = std::ranges::find(node.declared, name, &ParameterSpec::name);
    if (found == node.declared.end()) continue;
    node_.shared.push_back({&node, static_cast<std::size_t>(found - node.declared.begin())});
    return {.number = node_.declared.size() + node_.shared.size() - 1, .shape = found->shape};
  }
  throw std::invalid_argument(fmt::format("shares {}, and no operation before it has such a parameter", name));
}

void Declarations::pad_shared(std::size_t number, std::int64_t padding) {
  const Node::Shared& shared = node_.shared.at(number - node_.declared.size());
  std::int64_t& least = shared.owner->declared[shared.number].padding;
  least = std::max(least, padding);
}

void Declarations::synchronizes() noexcept { node_.synchronizes = true; }

std::size_t Declarations::saved(ActivationSpec spec) {
  node_.saved.push_back(std::move(spec));
  return node_.saved.size() - 1;
}

std::size_t Declarations::scratch(ActivationSpec spec) {
  node_.scratch.push_back(std::move(spec));
  return node_.scratch.size() - 1;
}

std::size_t Declarations::state(ActivationSpec spec) {
  node_.states.push_back(std::move(spec));
  return node_.states.size() - 1;
}

void Declarations::margin(std::int64_t rows) noexcept { node_.margin = rows; }

namespace {

/// Throws std::invalid_argument for a value that operations of the kind cannot read.
void require_readable(const OperationKind& kind, const ValueType& input, std::size_t number) {
  const bool reads_tokens = kind.reads == Holds::tokens || (kind.token_inputs >> number & 1) != 0;
  if ((input.holds == Holds::tokens) != reads_tokens) {
    throw std::invalid_argument(
        input.holds == Holds::tokens
            ? fmt::format("reads tokens, and {} reads numbers: an embedding makes numbers of tokens", kind.name)
            : fmt::format("reads numbers, and {} reads tokens: from: names an input of whole numbers", kind.name));
  }
  if (kind.rows == ReadsRows::either || kind.rows == ReadsRows::steps) return;
  const bool is_time_major = input.order == RowOrder::time_major;
  if (is_time_major != (kind.rows == ReadsRows::time_major)) {
    throw std::invalid_argument(
        is_time_major
            ? fmt::format(
                  "reads values in the order of steps, as recurrent operations of the network do, and {} cannot: only "
                  "operations that work row by row can",
                  kind.name)
            : fmt::format("reads a value that does not come from tokens; {} reads sequences of embedded tokens",
                          kind.name));
  }
}

}  // namespace

Graph::Graph(const Description& description, ParameterTable& parameters, ActivationTable& state, OperationKinds kinds) {
  if (description.calls.empty()) throw std::invalid_argument("a network needs at least one operation");
  values_.push_back({.type = {.shape = description.input_shape, .holds = description.input_holds}});
  std::map<std::string_view, std::size_t> named{{description.input, 0}};
  std::vector<bool> is_read(description.calls.size() + 1);

  const auto inputs_of = [&](const Call& call, std::size_t before) {
    if (call.from.empty()) return std::vector<std::size_t>{before};
    std::vector<std::size_t> inputs;
    for (const std::string& name : call.from) {
      const auto found = named.find(name);
      if (found == named.end()) {
        std::vector<std::string_view> names;
        for (const auto& [known, value] : named) names.push_back(known);
        throw std::invalid_argument(fmt::format("reads {}, and no operation before it has that name; there are {}",
                                                name, fmt::join(names, ", ")));
      }
      inputs.push_back(found->second);
    }
    return inputs;
  };
  for (std::size_t i = 0; i < description.calls.size(); ++i) {
    const Call& call = description.calls[i];
    Node& node = nodes_.emplace_back(Node{.name = call.name});
    for_call(call, [&] {
      if (call.name.empty()) throw std::invalid_argument("an operation needs a name");
      const OperationKind& kind = kind_of(call, kinds);
      node.call = with_defaults(kind, call, kinds);
      node.operation = kind.make(node.call);
      node.inputs = inputs_of(call, i);
      if (node.inputs.size() < kind.least_inputs || node.inputs.size() > kind.most_inputs) {
        throw std::invalid_argument(
            kind.least_inputs == kind.most_inputs
                ? fmt::format("reads {} values; {} reads {}", node.inputs.size(), kind.name, kind.least_inputs)
                : fmt::format("reads {} values; {} reads {} to {}", node.inputs.size(), kind.name, kind.least_inputs,
                              kind.most_inputs));
      }
      if (!named.emplace(call.name, i + 1).second) throw std::invalid_argument("has the name of an earlier operation");
    });
    for (const std::size_t value : node.inputs) is_read[value] = true;
  }
  for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) {
    for_call(description.calls[i], [&] {
      if (!is_read[i + 1]) throw std::invalid_argument("is read by no operation");
    });
  }

  const bool has_documents = std::ranges::find(description.calls, "documents", &Call::kind) != description.calls.end();
  std::uint32_t next_stream = kFirstDropoutStream;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    std::vector<ValueType> inputs;
    for (const std::size_t value : node.inputs) {
      values_[value].readers.push_back(i);
      inputs.push_back(values_[value].type);
    }
    Declarations declarations(node, std::span(nodes_).first(i), next_stream, i + 1 == nodes_.size());
    const ValueType type = for_call(description.calls[i], [&] {
      const OperationKind& kind = kind_of(description.calls[i], kinds);
      for (std::size_t k = 0; k < inputs.size(); ++k) require_readable(kind, inputs[k], k);
      const ValueType output = node.operation->declare(declarations, inputs);
      if (description.input_holds == Holds::tokens && !node.operation->is_causal()) {
        throw std::invalid_argument(fmt::format("lets a position see later ones, which a language model predicts: {}",
                                                kind.name == "attention"
                                                    ? "leave `causal` as it is"
                                                    : "attention, lstm and gru look at earlier positions alone"));
      }
      const bool keeps_apart =
          node.operation->takes_positions() || kind.rows == ReadsRows::steps || output.holds == Holds::tokens;
      if (has_documents && !keeps_apart) {
        throw std::invalid_argument(fmt::format(
            "is a {}, which mixes the documents that --document-token keeps apart: leave one of the two out",
            kind.name));
      }
      return output;
    });
    const OperationNeeds needs = node.operation->needs();
    const bool may_be_input = needs.is_view || needs.training_only;
    values_.push_back({.type = type, .margin = may_be_input ? values_[node.inputs[0]].margin : node.margin});
    node.first_state = state.all().size();
    for (const ActivationSpec& spec : node.states) state.add(spec);
  }

  std::vector<std::size_t> order;  // nodes in the order of declaration
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::string& before = description.calls[i].declared_before;
    const auto place = before.empty() ? order.end() : std::ranges::find(order, named.at(before) - 1);
    order.insert(place, i);
  }
  for (const std::size_t i : order) {
    Node& node = nodes_[i];
    for_call(description.calls[i], [&] {
      for (ParameterSpec spec : node.declared) {
        if (spec.frozen_with) spec.frozen_with = node.parameters.at(*spec.frozen_with);
        node.parameters.push_back(parameters.add(std::move(spec)));
      }
    });
  }
  for (Node& node : nodes_) {
    for (const Node::Shared& shared : node.shared) {
      node.parameters.push_back(shared.owner->parameters.at(shared.number));
    }
  }
}

bool Graph::trains(const Node& node, const ParameterTable& parameters) {
  return std::ranges::any_of(node.parameters, [&](std::size_t index) {
    return parameters[index].role == Role::weight && !parameters[index].frozen;
  });
}

std::vector<bool> Graph::values_that_want_gradients(const ParameterTable& parameters) const {
  std::vector<bool> wants(values_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    wants[i + 1] = trains(nodes_[i], parameters) ||
                   std::ranges::any_of(nodes_[i].inputs, [&](std::size_t value) { return wants[value]; });
  }
  return wants;
}

}  // namespace lockstep::model
