#include "model/state/parameter_state.hpp"

#include <optional>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

bool is_optimizer_state(std::string_view group) { return group != "parameters" && group != "average"; }

}  // namespace

ParameterState::ParameterState(Backend& backend, const ParameterTable& table, const ParameterStateOptions& options)
    : backend_(backend), table_(table), optimizer_(options.optimizer), owned_(table, options.owned) {
  const ElementType master = backend.master_type(), compute = backend.compute_type();
  const bool training = options.purpose == Purpose::training;
  const int states = training ? state_count(optimizer_.kind) : 0;
  const auto arena = [&](bool needed, ElementType type, std::size_t count,
                         std::pmr::memory_resource* memory = nullptr) {
    return Arena::of_zeros(backend, type, needed ? count : 0, memory);
  };
  parameters_ = arena(true, master, elements(), options.parameter_memory);
  compute_copy_ = arena(compute != master, compute, elements());
  gradients_ = arena(training, master, updated_elements(), options.gradient_memory);
  state1_ = arena(states > 0, master, owned_.state_elements());
  state2_ = arena(states > 1, master, owned_.state_elements());
  average_ = arena(optimizer_.average_decay > 0, master, elements());
}

void ParameterState::initialize(std::uint64_t seed) {
  std::vector<float> values;
  for (const Parameter& parameter : table_.all()) {
    values.resize(parameter.count);
    model::initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, seed, parameter.name);
    backend_.upload(values, parameters_.tensor().slice(parameter.slice()));
    if (!average_.empty()) backend_.upload(values, average_.tensor().slice(parameter.slice()));
  }
  refresh_compute_copy(Weights::current);
  reset_optimizer_state();
}

void ParameterState::reset_optimizer_state() {
  for (const Arena* state : {&state1_, &state2_}) {
    if (!state->empty()) backend_.fill_zero(state->tensor());
  }
}

const Tensor& ParameterState::gradients() const {
  if (!has_gradients()) throw std::invalid_argument("this state is for evaluation: it holds no gradients");
  return gradients_.tensor();
}

const Tensor& ParameterState::in_compute_type(Weights weights) const {
  if (weights == Weights::average && average_.empty()) {
    throw std::invalid_argument("this model keeps no average of its weights (average_decay is 0)");
  }
  if (!compute_copy_.empty()) return compute_copy_.tensor();
  return weights == Weights::average ? average_.tensor() : parameters_.tensor();
}

void ParameterState::refresh_compute_copy(Weights weights) {
  if (compute_copy_.empty()) return;
  backend_.cast((weights == Weights::average ? average_ : parameters_).tensor(), compute_copy_.tensor());
}

UpdateArenas ParameterState::part_of_arenas(const OwnedParts::Part& part) const {
  const Slice state{part.state_offset, part.range.count};
  return {.parameters = parameters_.tensor().slice(part.range),
          .gradients = gradients().slice(part.range),
          .state1 = state1_.tensor().slice(state),
          .state2 = state2_.tensor().slice(state),
          .average = average_.tensor().slice(part.range),
          .compute_copy = compute_copy_.tensor().slice(part.range),
          .norms = {}};
}

std::span<float> ParameterState::float_elements(const Arena& arena, const char* what) const {
  if (backend_.master_type() != ElementType::float32 || arena.empty()) {
    throw std::invalid_argument(fmt::format("backend {} keeps no {} as float32", backend_.name(), what));
  }
  return arena.tensor().elements<float>().first(updated_elements());
}

std::span<float> ParameterState::gradient_elements() { return float_elements(gradients_, "gradients"); }

std::span<float> ParameterState::weight_elements(Weights weights) {
  return float_elements(weights == Weights::average ? average_ : parameters_, "such weights");
}

std::vector<std::string> ParameterState::state_groups() const {
  std::vector<std::string> groups{"parameters"};
  if (has_gradients()) {
    for (int i = 0; i < state_count(optimizer_.kind); ++i) groups.emplace_back(state_name(optimizer_.kind, i));
  }
  if (!average_.empty()) groups.emplace_back("average");
  return groups;
}

std::vector<StateTensor> ParameterState::state_tensors() const {
  std::vector<StateTensor> tensors;
  for (const std::string& group : state_groups()) {
    for (const Parameter& parameter : table_.all()) {
      if (parameter.frozen && is_optimizer_state(group)) continue;
      tensors.push_back({group, parameter.name, parameter.shape, parameter.offset, parameter.count});
    }
  }
  return tensors;
}

const Arena& ParameterState::group(std::string_view name) const {
  if (name == "parameters") return parameters_;
  if (name == "average" && !average_.empty()) return average_;
  for (int i = 0; has_gradients() && i < state_count(optimizer_.kind); ++i) {
    if (name == state_name(optimizer_.kind, i)) return i == 0 ? state1_ : state2_;
  }
  throw std::invalid_argument(fmt::format("this model has no state group '{}'", name));
}

std::size_t ParameterState::group_elements(std::string_view name) const noexcept {
  return is_optimizer_state(name) ? updated_elements() : elements();
}

void ParameterState::require_arena(std::string_view name, std::size_t count) const {
  if (count == group_elements(name)) return;
  throw std::invalid_argument(fmt::format("{} elements for a group of {}", count, group_elements(name)));
}

void ParameterState::download_group(std::string_view name, std::span<float> out) const {
  if (owned_.whole() || !is_optimizer_state(name)) return backend_.download(group(name).tensor(), out);
  require_arena(name, out.size());
  for (const OwnedParts::Part& part : owned_.parts()) {
    download_range(name, part.range, out.subspan(part.range.offset, part.range.count));
  }
}

void ParameterState::download_range(std::string_view name, const Slice& range, std::span<float> out) const {
  if (range.count == 0) return;
  std::size_t offset = range.offset;
  if (is_optimizer_state(name)) {
    const std::optional<std::size_t> packed = owned_.state_offset(range);
    if (!packed) {
      throw std::invalid_argument(fmt::format("{} of {}+{} is not here", name, range.offset, range.count));
    }
    offset = *packed;
  }
  backend_.download(group(name).tensor().slice({offset, range.count}), out);
}

void ParameterState::upload_group(std::string_view name, std::span<const float> in) {
  const Tensor& to = group(name).tensor();
  if (!owned_.whole() && is_optimizer_state(name)) {
    require_arena(name, in.size());
    for (const OwnedParts::Part& part : owned_.parts()) {
      const Slice& range = part.range;
      if (range.count == 0) continue;
      backend_.upload(in.subspan(range.offset, range.count), to.slice({part.state_offset, range.count}));
    }
    return;
  }
  backend_.upload(in, to);
  if (name != "parameters") return;
  if (!average_.empty()) backend_.upload(in, average_.tensor());
  refresh_compute_copy(Weights::current);
}

}  // namespace lockstep::model
