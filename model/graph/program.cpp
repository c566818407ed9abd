#include "model/graph/program.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "model/graph/lifetimes.hpp"

namespace lockstep::model {

namespace {

bool has(std::uint32_t bits, std::size_t i) { return (bits >> i & 1) != 0; }

}  // namespace

/// Finds the lifetimes and the shared memory of all tensors, then writes the program.
class Program::Planning {
 public:
  Planning(Program& program, Purpose purpose)
      : program_(program),
        graph_(program.graph_),
        nodes_(graph_.nodes()),
        loss_tick_(static_cast<std::int32_t>(nodes_.size())),
        trains_(purpose == Purpose::training),
        wants_(graph_.values_that_want_gradients(program.parameters_)),
        goes_backward_(nodes_.size()) {
    for (const Node& node : nodes_) needs_.push_back(node.operation->needs());
    for (std::size_t i = 0; i < nodes_.size(); ++i) goes_backward_[i] = trains_ && wants_[i + 1];
    is_made_behind_.resize(nodes_.size());
    for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) {
      is_made_behind_[i] = needs_[i].is_sum && needs_[i + 1].makes_sum && nodes_[i + 1].inputs[0] == i + 1;
    }
  }

  void run() {
    find_narrow_values();
    find_lifetimes_of_values();
    share_memory_of_values();
    for (std::size_t i = 0; i < nodes_.size(); ++i) place_forward(i);
    place_targets();
    if (trains_) {
      place_output_gradient();
      for (std::size_t i = nodes_.size(); i-- > 0;) {
        if (goes_backward_[i]) place_backward(i);
      }
      find_final_gradients();
    }
    add_activations();
  }

 private:
  static constexpr std::int32_t kNever = -1, kForever = Lifetime{}.last;

  /// A planned tensor. `memory_of`: index of an earlier tensor whose memory it shares, or its own index.
  struct Entry {
    ActivationSpec spec;
    Lifetime lifetime;
    std::size_t memory_of;
  };
  std::size_t add(ActivationSpec spec, const Lifetime& lifetime) {
    entries_.push_back({std::move(spec), lifetime, entries_.size()});
    return entries_.size() - 1;
  }
  std::size_t add_shared(std::size_t with, ActivationSpec spec, const Lifetime& lifetime) {
    entries_.push_back({std::move(spec), lifetime, entries_[with].memory_of});
    return entries_.size() - 1;
  }
  ActivationSpec spec_of(std::size_t value) const {
    const ValueType& type = graph_.values()[value].type;
    return {.name = "",
            .rows = type.shape.places(),
            .columns = type.shape.last(),
            .holds = is_narrow_[value] ? Holds::narrow : type.holds,
            .padded_columns = type.padded_columns,
            .margin = graph_.values()[value].margin};
  }
  /// A gradient has no margin.
  ActivationSpec spec_of_gradient(std::size_t value) const {
    ActivationSpec spec = spec_of(value);
    spec.margin = 0;
    return spec;
  }
  /// A sum that the next node computes runs at that node's tick.
  std::int32_t tick_of_forward(std::size_t node) const {
    return static_cast<std::int32_t>(node) + (is_made_behind_[node] ? 1 : 0);
  }
  std::int32_t tick_of_backward(std::size_t node) const { return 2 * loss_tick_ - static_cast<std::int32_t>(node); }

  // ---- values ----

  /// A value is Holds::narrow if each operation that writes or reads it allows that. The network's input and output are
  /// never narrow, since code outside the graph writes and reads them.
  void find_narrow_values() {
    is_narrow_.resize(graph_.values().size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool is_activation = graph_.values()[i + 1].type.holds == Holds::activations;
      is_narrow_[i + 1] = (needs_[i].narrow_output || is_view(i)) && is_activation && margin_of(i + 1) == 0;
    }
    is_narrow_[graph_.output()] = false;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
        const bool allows = is_view(i) || has(needs_[i].narrow_inputs, k);
        if (!allows) is_narrow_[nodes_[i].inputs[k]] = false;
      }
    }
    for (bool changes = true; std::exchange(changes, false);) {
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!is_view(i) && !needs_[i].narrow_alike) continue;
        std::vector<std::size_t> values{i + 1};
        for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
          if (is_view(i) || has(needs_[i].narrow_inputs, k)) values.push_back(nodes_[i].inputs[k]);
        }
        const auto is_narrow = [&](std::size_t value) -> bool { return is_narrow_[value]; };
        if (std::ranges::all_of(values, is_narrow)) continue;
        changes |= std::ranges::any_of(values, is_narrow);
        for (const std::size_t value : values) is_narrow_[value] = false;
      }
    }
  }

  /// Last ticks at which a value is read, forward and backward; kNever if it is not.
  struct Reads {
    std::int32_t forward = kNever, backward = kNever;
    bool once = true;  ///< only one operand reads it at tick `forward`
    std::int32_t last() const { return std::max(forward, backward); }
    void join(const Reads& other) {
      once = forward == other.forward ? false : forward > other.forward ? once : other.once;
      forward = std::max(forward, other.forward);
      backward = std::max(backward, other.backward);
    }
  };

  void find_lifetimes_of_values() {
    reads_.resize(graph_.values().size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
        Reads& reads = reads_[nodes_[i].inputs[k]];
        const bool stays = !trains_ && has(needs_[i].keeps_inputs, k);
        reads.join({.forward = stays ? kForever : tick_of_forward(i)});
        if (goes_backward_[i] && has(needs_[i].reads_inputs, k)) {
          reads.backward = std::max(reads.backward, tick_of_backward(i));
        }
      }
      if (goes_backward_[i] && needs_[i].reads_output) reads_[i + 1].backward = tick_of_backward(i);
    }
    reads_[graph_.output()].join({.forward = loss_tick_});
  }

  std::int64_t margin_of(std::size_t value) const { return graph_.values()[value].margin; }
  bool is_view(std::size_t node) const { return needs_[node].is_view || (needs_[node].training_only && !trains_); }

  /// Assigns values that share memory: `memory_of_[v]` is the first value in the memory of v, whose group_reads_ cover
  /// all of them.
  void share_memory_of_values() {
    memory_of_.resize(reads_.size());
    std::vector<Reads> reads = reads_;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      memory_of_[i + 1] = i + 1;
      const auto take = [&](std::size_t input) {
        const std::size_t first = memory_of_[input];
        memory_of_[i + 1] = first;
        reads[first].join(reads[i + 1]);
      };
      if (is_view(i)) {
        take(nodes_[i].inputs[0]);
        continue;
      }
      for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
        const std::size_t first = memory_of_[nodes_[i].inputs[k]];
        const Reads& all = reads[first];
        if (!has(needs_[i].in_place, k) || first == 0 || all.backward != kNever || !all.once ||
            all.forward != tick_of_forward(i) || margin_of(nodes_[i].inputs[k]) != margin_of(i + 1)) {
          continue;
        }
        take(nodes_[i].inputs[k]);
        break;
      }
    }
    group_reads_ = std::move(reads);
  }

  void place_forward(std::size_t i) {
    const Node& node = nodes_[i];
    NodePlaces& places = program_.places_.emplace_back();
    const std::int32_t tick = tick_of_forward(i);
    for (const std::size_t value : node.inputs) {
      places.inputs.push_back(value == 0 ? kNetworkInput : program_.places_[value - 1].output);
      places.shapes.push_back(&graph_.values()[value].type.shape);
    }
    places.shapes.push_back(&graph_.values()[i + 1].type.shape);
    if (i > 0 && is_made_behind_[i - 1]) {
      places.addends = program_.places_[i - 1].inputs;
      if (const std::optional<std::size_t> product = product_of_sum(i - 1)) {
        const std::vector<std::size_t>& operands = nodes_[i - 1].inputs;
        const std::size_t other = operands[0] == *product + 1 ? operands[1] : operands[0];
        program_.places_[*product].added = other == 0 ? kNetworkInput : program_.places_[other - 1].output;
        places.product_makes_sum = true;
      }
    }
    const std::int32_t last = std::max(tick, reads_[i + 1].last());
    const Lifetime lifetime = last == kForever ? Lifetime{} : Lifetime{tick, last};
    const std::size_t first = memory_of_[i + 1];
    if (first == 0) {
      places.output = kNetworkInput;
    } else if (first == i + 1) {
      places.output = add(spec_of(i + 1), lifetime);
    } else {
      places.output = add_shared(program_.places_[first - 1].output, spec_of(i + 1), lifetime);
    }
    for (const ActivationSpec& saved : node.saved) {
      places.saved.push_back(add(saved, {tick, goes_backward_[i] ? tick_of_backward(i) : tick}));
    }
    if (!is_view(i) && !is_made_behind_[i]) program_.forward_.push_back(i);
  }

  /// Returns the node directly before a sum if its product can compute the sum: its output and the sum share memory.
  std::optional<std::size_t> product_of_sum(std::size_t sum) const {
    if (sum == 0 || !needs_[sum - 1].adds_in_product) return std::nullopt;
    const std::vector<std::size_t>& operands = nodes_[sum].inputs;
    const bool reads_one = operands.size() == 2 && operands[0] != operands[1] &&
                           std::ranges::find(operands, sum) != operands.end();  // value `sum` comes from node sum - 1
    const bool is_alone = graph_.values()[sum].readers.size() == 1 && margin_of(sum) == 0;
    if (!reads_one || !is_alone || memory_of_[sum + 1] != memory_of_[sum]) return std::nullopt;
    return sum - 1;
  }

  /// Reserves memory for reordered targets if the output's rows are time-major.
  void place_targets() {
    const ValueType& output = graph_.values()[graph_.output()].type;
    if (output.order != RowOrder::time_major) return;
    program_.targets_ = add({.name = "", .rows = output.shape.places(), .columns = 1, .holds = Holds::tokens},
                            {loss_tick_, loss_tick_});
  }

  // ---- gradients ----

  /// Gradient of a value: its entry, the last tick that reads it, and the ticks after its first contribution that write
  /// it.
  struct Gradient {
    std::size_t entry = kAbsent;
    std::int32_t last_read = 0;
    std::vector<std::int32_t> writes = {};
  };

  /// The loss overwrites the output with its gradient, unless backward reads the output.
  void place_output_gradient() {
    gradients_.resize(graph_.values().size());
    const std::size_t value = graph_.output();
    if (!wants_[value]) return;
    const std::size_t first = memory_of_[value];
    const Lifetime lifetime{loss_tick_, tick_of_backward(value - 1)};
    if (first != 0 && group_reads_[first].backward == kNever && margin_of(value) == 0) {
      start_gradient(value, add_shared(program_.places_.back().output, spec_of(value), lifetime));
    } else {
      start_gradient(value, add(spec_of_gradient(value), lifetime));
      program_.copied_output_ = gradients_[value].entry;
    }
  }

  /// Makes `entry` the gradient of the value.
  void start_gradient(std::size_t value, std::size_t entry) {
    gradients_[value].entry = entry;
    gradients_[value].last_read = tick_of_backward(value - 1);
    gradients_[value].writes = later_writes(value);
    sharers_[entries_[entry].memory_of].push_back(value);
  }

  /// Ticks of the contributions after the first one, and of an operation that overwrites the gradient.
  std::vector<std::int32_t> later_writes(std::size_t value) const {
    std::vector<std::int32_t> ticks;
    bool first = value != graph_.output();
    const auto& readers = graph_.values()[value].readers;
    for (auto reader = readers.rbegin(); reader != readers.rend(); ++reader) {
      if (!goes_backward_[*reader]) continue;
      if (!first) ticks.push_back(tick_of_backward(*reader));
      first = false;
    }
    if (needs_[value - 1].overwrites_gradient) ticks.push_back(tick_of_backward(value - 1));
    return ticks;
  }

  /// True if the gradient of `value` can use the memory of the gradient of `output`, which backward reads for the last
  /// time at `tick`. is_changed: backward writes to the memory at that tick.
  bool may_share(std::size_t value, std::size_t output, std::int32_t tick, bool is_changed) {
    std::vector<std::size_t>& sharers = sharers_[entries_[gradients_[output].entry].memory_of];
    std::erase_if(sharers, [&](std::size_t other) { return gradients_[other].last_read < tick; });
    const std::vector<std::int32_t> writes = later_writes(value);
    if (std::ranges::find(writes, tick) != writes.end()) return false;  // the node reads the value twice
    // Contributions are added after the call that makes them. At that time, a node that passes its output's gradient on
    // still reads it; a node that adds contributions itself reads it during the call.
    const auto disturb = [&](const std::vector<std::int32_t>& ticks, std::size_t other) {
      const std::int32_t last_read = tick_of_backward(other - 1);
      const bool reads_behind_call = needs_[other - 1].passes_on != 0 || needs_[other - 1].adds != 0;
      return std::ranges::any_of(ticks, [&](std::int32_t at) {
        return at >= tick && (at < last_read || (at == last_read && reads_behind_call));
      });
    };
    return std::ranges::all_of(sharers, [&](std::size_t other) {
      if (other == output) return true;
      return !(is_changed && gradients_[other].last_read > tick) && !disturb(writes, other) &&
             !disturb(gradients_[other].writes, value);
    });
  }

  void place_backward(std::size_t i) {
    const Node& node = nodes_[i];
    const OperationNeeds& needs = needs_[i];
    NodePlaces& places = program_.places_[i];
    const std::int32_t tick = tick_of_backward(i);
    Step step{.node = i};
    places.d_output = gradients_[i + 1].entry;
    for (const ActivationSpec& scratch : node.scratch) places.scratch.push_back(add(scratch, {tick, tick}));
    bool in_place = needs.passes_on == 0;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t value = node.inputs[k];
      places.d_inputs.push_back(kAbsent);
      places.sums.push_back(kAbsent);
      if (!wants_[value]) {
        if (has(needs.always_writes, k)) places.d_inputs.back() = add(spec_of_gradient(value), {tick, tick});
        continue;
      }
      const bool passes_on = has(needs.passes_on, k), is_first = gradients_[value].entry == kAbsent;
      const Lifetime lifetime{tick, tick_of_backward(value - 1)};
      if (is_first && passes_on && may_share(value, i + 1, tick, false)) {
        start_gradient(value, add_shared(places.d_output, spec_of_gradient(value), lifetime));
      } else if (is_first && passes_on) {
        start_gradient(value, add(spec_of_gradient(value), lifetime));
        step.contributions.push_back({places.d_output, gradients_[value].entry, false});
        ++program_.copied_gradients_;
      } else if (is_first && in_place && has(needs.gradient_in_place, k) && may_share(value, i + 1, tick, true)) {
        start_gradient(value, add_shared(places.d_output, spec_of_gradient(value), lifetime));
        places.d_inputs.back() = gradients_[value].entry;
        in_place = false;
      } else if (is_first) {
        start_gradient(value, add(spec_of_gradient(value), lifetime));
        places.d_inputs.back() = gradients_[value].entry;
      } else if (passes_on) {
        step.contributions.push_back({places.d_output, gradients_[value].entry, true});
      } else {
        const bool adds = has(needs.adds, k);
        if (!adds || !needs.adds_in_place) places.d_inputs.back() = add(spec_of_gradient(value), {tick, tick});
        if (adds) {
          places.sums.back() = gradients_[value].entry;
        } else {
          step.contributions.push_back({places.d_inputs.back(), gradients_[value].entry, true});
        }
      }
    }
    program_.backward_.push_back(std::move(step));
  }

  /// Finds for each step the prefix of the gradients that is final after it, and limits what a node may report earlier.
  void find_final_gradients() {
    std::map<std::size_t, std::size_t> steps;  // by trained weight: last step that writes its gradient
    for (std::size_t step = 0; step < program_.backward_.size(); ++step) {
      const std::size_t i = program_.backward_[step].node;
      for (std::size_t k = 0; k < nodes_[i].parameters.size(); ++k) {
        const Parameter& parameter = program_.parameters_[nodes_[i].parameters[k]];
        if (parameter.role != Role::weight || parameter.frozen) continue;
        const bool is_first = steps.insert_or_assign(nodes_[i].parameters[k], step).second;
        if (!is_first) program_.places_[i].written |= std::uint64_t{1} << k;
      }
    }
    std::vector<std::pair<std::size_t, std::size_t>> ends;
    for (const auto& [index, step] : steps) ends.emplace_back(program_.parameters_[index].end(), step);
    std::ranges::sort(ends);
    std::size_t last = 0;
    for (const auto& [end, step] : ends) {
      last = std::max(last, step);
      program_.backward_[last].final_end = end;
    }
    // A step may report no gradient beyond the first one that a later step finishes.
    std::vector<std::size_t> bounds(program_.backward_.size() + 1, kAbsent);
    for (const auto& [end, step] : ends) bounds[step] = std::min(bounds[step], end);
    std::size_t bound = kAbsent;
    for (std::size_t step = program_.backward_.size(); step-- > 0;) {
      program_.places_[program_.backward_[step].node].others_begin = bound;
      bound = std::min(bound, bounds[step]);
    }
  }

  void add_activations() {
    for (const Entry& entry : entries_) {
      ActivationSpec spec = entry.spec;
      spec.lifetime = entry.lifetime;
      if (entry.memory_of == program_.activations_.all().size()) {
        program_.activations_.add(std::move(spec));
      } else {
        program_.activations_.overlay(entry.memory_of, std::move(spec));
      }
    }
  }

  Program& program_;
  const Graph& graph_;
  const std::vector<Node>& nodes_;
  const std::int32_t loss_tick_;
  const bool trains_;
  const std::vector<bool> wants_;     ///< by value
  std::vector<bool> goes_backward_;   ///< by node
  std::vector<bool> is_narrow_;       ///< by value: Holds::narrow
  std::vector<bool> is_made_behind_;  ///< by node: a sum that the next node computes
  std::vector<OperationNeeds> needs_;
  std::vector<Reads> reads_, group_reads_;
  std::vector<std::size_t> memory_of_;
  std::vector<Entry> entries_;
  std::vector<Gradient> gradients_;                          ///< by value
  std::map<std::size_t, std::vector<std::size_t>> sharers_;  ///< by entry that owns memory: values
};

Program::Program(const Graph& graph, const ParameterTable& parameters, Purpose purpose)
    : graph_(graph), parameters_(parameters) {
  Planning(*this, purpose).run();
}

void Program::report_call(const Pass& pass, std::size_t tick, std::size_t node, bool forward) const {
  if (pass.after_call == nullptr) return;
  const auto report = [&](std::string_view name, const Tensor& output) {
    (*pass.after_call)({.tick = static_cast<std::int32_t>(tick), .name = name, .output = output});
  };
  const auto report_results = [&](std::size_t i) {
    const Node& each = graph_.nodes()[i];
    each.operation->results(each.name, NodePass(pass, each, places_[i]), report);
  };
  if (!forward) return report(graph_.nodes()[node].name, {});
  if (!places_[node].addends.empty()) report_results(node - 1);
  report_results(node);
}

Tensor Program::forward(const Pass& pass) const {
  for (const std::size_t i : forward_) {
    graph_.nodes()[i].operation->forward(NodePass(pass, graph_.nodes()[i], places_[i]));
    report_call(pass, i, i, true);
  }
  const Tensor output = NodePass(pass, graph_.nodes().back(), places_.back()).out();
  if (copied_output_ == kAbsent) return output;
  const Tensor copy = pass.at(copied_output_);
  pass.backend.cast(output, copy);
  return copy;
}

void Program::backward(const Pass& pass, Accumulate accumulate, const GradientReady& ready) const {
  std::size_t told = 0;
  const GradientReady report_ready = [&](std::size_t end) {
    if (end > told && ready) ready(end);
    told = std::max(told, end);
  };
  for (const Step& step : backward_) {
    const Node& node = graph_.nodes()[step.node];
    node.operation->backward(NodePass(pass, node, places_[step.node], accumulate, report_ready));
    for (const Contribution& contribution : step.contributions) {
      const Tensor to = pass.at(contribution.to), from = pass.at(contribution.from).reshaped(to.rows, to.columns);
      contribution.is_added ? pass.backend.add(from, to) : pass.backend.cast(from, to);
    }
    report_ready(step.final_end);
    report_call(pass, 2 * graph_.nodes().size() - step.node, step.node, false);
  }
  if (parameters_.updated_elements() > parameters_.trained_elements()) report_ready(parameters_.updated_elements());
}

Tensor Program::targets(const Pass& pass, const Tensor& y) const {
  if (targets_ == kAbsent) return y;
  const Tensor targets = pass.at(targets_);
  pass.sequences().to_time_major(y, targets);
  return targets;
}

// ---- NodePass ----

namespace {

Tensor tensor_at(const Pass& pass, std::size_t place, const Shape& shape) {
  if (place == kAbsent) return {};
  if (place != kNetworkInput) return pass.at(place);
  return pass.positions.count > 0 ? pass.input : pass.input.reshaped(pass.batch * shape.places(), shape.last());
}

}  // namespace

Tensor NodePass::in(std::size_t i) const { return tensor_at(pass, places_.inputs[i], *places_.shapes[i]); }
Tensor NodePass::out() const { return tensor_at(pass, places_.output, *places_.shapes.back()); }
Tensor NodePass::in_of_all_positions(std::size_t i) const { return pass.whole(places_.inputs[i]); }
Tensor NodePass::out_of_all_positions() const { return pass.whole(places_.output); }
Tensor NodePass::addend(std::size_t i) const {
  if (places_.addends.empty() || (places_.product_makes_sum && pass.backend.fuses_sums())) return {};
  return tensor_at(pass, places_.addends[i], *places_.shapes[0]);
}
Tensor NodePass::added() const {
  return pass.backend.fuses_sums() ? tensor_at(pass, places_.added, *places_.shapes.back()) : Tensor{};
}
Tensor NodePass::out_with_margin() const {
  return pass.memory.layout->with_margin(places_.output, pass.memory.activations, pass.batch);
}
Tensor NodePass::saved(std::size_t k) const { return pass.at(places_.saved[k]); }
Tensor NodePass::saved_of_all_positions(std::size_t k) const { return pass.whole(places_.saved[k]); }
Tensor NodePass::state(std::size_t k) const { return pass.recurrent_state(node_.first_state + k); }
Tensor NodePass::scratch(std::size_t k) const { return pass.at(places_.scratch[k]); }
Tensor NodePass::weight(std::size_t k) const { return pass.weight(node_.parameters[k]); }
Tensor NodePass::gradient(std::size_t k) const { return pass.gradient(node_.parameters[k]); }
Tensor NodePass::weight(std::size_t k, std::int64_t rows) const { return pass.weight(node_.parameters[k], rows); }
Tensor NodePass::gradient(std::size_t k, std::int64_t rows) const { return pass.gradient(node_.parameters[k], rows); }
Tensor NodePass::vector(std::size_t k, std::int64_t columns) const { return pass.vector(node_.parameters[k], columns); }
Tensor NodePass::vector_gradient(std::size_t k, std::int64_t columns) const {
  return pass.vector_gradient(node_.parameters[k], columns);
}
Accumulate NodePass::accumulate(std::size_t k) const noexcept {
  return (places_.written >> k & 1) != 0 ? Accumulate::yes : accumulate_;
}
void NodePass::is_final(std::size_t k) const {
  for (std::size_t i = k; i < node_.declared.size(); ++i) {
    const Parameter& parameter = pass.table[node_.parameters[i]];
    if (parameter.frozen || parameter.role != Role::weight) continue;
    if (parameter.end() <= places_.others_begin) (*gradient_ready_)(parameter.end());
    return;
  }
}
bool NodePass::is_frozen(std::size_t k) const { return pass.table[node_.parameters[k]].frozen; }
Tensor NodePass::sum_of(std::size_t i) const { return tensor_at(pass, places_.sums[i], *places_.shapes[i]); }
Tensor NodePass::d_out() const { return tensor_at(pass, places_.d_output, *places_.shapes.back()); }
Tensor NodePass::d_in(std::size_t i) const { return tensor_at(pass, places_.d_inputs[i], *places_.shapes[i]); }

}  // namespace lockstep::model
