#include "model/model.hpp"

#include <cassert>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::size_t kArenaAlignment = 256;

/// One arena: memory from a resource, zero at first, given back in the destructor.
class Arena {
 public:
  Arena() = default;
  Arena(Backend& backend, std::pmr::memory_resource* memory, std::size_t elements)
      : memory_(memory), bytes_(elements * size_of(backend.compute_type())) {
    if (elements == 0) return;
    tensor_ = {memory_->allocate(bytes_, kArenaAlignment), backend.compute_type(), 1,
               static_cast<std::int64_t>(elements)};
  }
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena() {
    if (tensor_.data != nullptr) memory_->deallocate(tensor_.data, bytes_, kArenaAlignment);
  }

  const Tensor& tensor() const noexcept { return tensor_; }
  bool empty() const noexcept { return tensor_.data == nullptr; }

 private:
  void swap(Arena& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(tensor_, other.tensor_);
    std::swap(bytes_, other.bytes_);
  }

  std::pmr::memory_resource* memory_ = nullptr;
  Tensor tensor_;
  std::size_t bytes_ = 0;
};

/// Converted samples take memory unless the backend can read every batch in place; which batches it can is known only
/// when they come, so the room is always planned (and, on a host, becomes resident only when it is used).
std::size_t activation_elements(const Network& network, const ModelOptions& options) {
  const std::size_t input = static_cast<std::size_t>(options.max_batch * network.sample_shape().features);
  return (input + 63) / 64 * 64 + static_cast<std::size_t>(network.activation_elements(options.max_batch));
}

Tensor piece(const Tensor& arena, std::size_t offset, std::int64_t rows, std::int64_t columns) {
  return {static_cast<std::byte*>(arena.data) + offset * size_of(arena.type), arena.type, rows, columns};
}

Tensor slice(const Tensor& arena, const Parameter& parameter) {
  return piece(arena, parameter.offset, 1, static_cast<std::int64_t>(parameter.count));
}

}  // namespace

MemoryPlan plan_memory(const Network& network, const ModelOptions& options, ElementType compute_type) {
  const std::size_t arena = network.parameters().arena_elements() * size_of(compute_type);
  MemoryPlan plan;
  plan.parameters = arena;
  plan.activations = activation_elements(network, options) * size_of(compute_type);
  if (options.optimizer.average_decay > 0) plan.average = arena;
  if (options.training) {
    plan.gradients = arena;
    plan.optimizer = arena * static_cast<std::size_t>(state_count(options.optimizer.kind));
  }
  return plan;
}

struct Model::Arenas {
  Arena parameters, gradients, state1, state2, average, activations;
  std::vector<UpdateSlice> slices;
};

Model::Model(Backend& backend, const Network& network, const ModelOptions& options)
    : backend_(backend), network_(network), options_(options), arenas_(std::make_unique<Arenas>()) {
  if (options.max_batch < 1) {
    throw std::invalid_argument(fmt::format("max_batch is {}: need room for at least one sample", options.max_batch));
  }
  const std::size_t elements = network.parameters().arena_elements();
  const auto arena = [&](std::size_t count, bool needed, std::pmr::memory_resource* memory) {
    Arena made(backend, memory, needed ? count : 0);
    if (needed) backend.fill_zero(made.tensor());
    return made;
  };
  std::pmr::memory_resource* own = backend.memory();
  const int states = options.training ? state_count(options.optimizer.kind) : 0;
  arenas_->parameters = arena(elements, true, own);
  arenas_->gradients = arena(elements, options.training, options.gradient_memory ? options.gradient_memory : own);
  arenas_->state1 = arena(elements, states > 0, own);
  arenas_->state2 = arena(elements, states > 1, own);
  arenas_->average = arena(elements, options.optimizer.average_decay > 0, own);
  // Not zeroed: every element is written before it is read, and pages that no batch reaches stay untouched.
  arenas_->activations = Arena(backend, own, activation_elements(network, options));
  for (const Parameter& parameter : network.parameters().all()) {
    arenas_->slices.push_back({parameter.offset, parameter.count, parameter.decay == Decay::yes});
  }
}

Model::~Model() = default;
Model::Model(Model&& other) noexcept = default;

const Network& Model::network() const noexcept { return network_; }

void Model::initialize(std::uint64_t seed) {
  std::vector<float> values;
  for (const Parameter& parameter : network_.parameters().all()) {
    values.resize(parameter.count);
    model::initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, seed, parameter.name);
    backend_.upload(values, slice(arenas_->parameters.tensor(), parameter));
    if (!arenas_->average.empty()) backend_.upload(values, slice(arenas_->average.tensor(), parameter));
  }
}

Tensor Model::input_of(const Batch& batch) {
  if (batch.count < 0 || batch.count > options_.max_batch) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples: this model takes 0 to {}", batch.count, options_.max_batch));
  }
  if (batch.count > 0 && (batch.x == nullptr || batch.y == nullptr)) {
    throw std::invalid_argument("a batch without samples or targets");
  }
  // Tensors know no const; the samples are only read.
  const Tensor raw{const_cast<void*>(batch.x), batch.x_type, batch.count, network_.sample_shape().features};
  const InputTransform& transform = options_.input_transform;
  const bool identity = transform.scale == 1 && transform.shift == 0 && raw.type == backend_.compute_type();
  if (identity && backend_.reads_host_memory()) return raw;
  const Tensor input = piece(arenas_->activations.tensor(), 0, raw.rows, raw.columns);
  backend_.convert_input(raw, transform, input);
  return input;
}

NetworkMemory Model::memory(Weights weights) const {
  if (weights == Weights::average && arenas_->average.empty()) {
    throw std::invalid_argument("this model keeps no average of its weights (average_decay is 0)");
  }
  const Tensor& all = arenas_->activations.tensor();
  const std::int64_t rest = network_.activation_elements(options_.max_batch);
  return {.parameters = (weights == Weights::average ? arenas_->average : arenas_->parameters).tensor(),
          .gradients = arenas_->gradients.tensor(),
          .activations = piece(all, static_cast<std::size_t>(all.columns - rest), 1, rest)};
}

LossSums Model::loss(const Tensor& output, const Batch& batch, double scale, bool want_gradient) {
  void* targets = const_cast<void*>(batch.y);
  if (options_.loss == LossKind::softmax_cross_entropy) {
    return backend_.softmax_cross_entropy(output, {targets, ElementType::int32, batch.count, 1}, scale, want_gradient);
  }
  return backend_.mean_squared_error(output, {targets, ElementType::float32, batch.count, output.columns}, scale,
                                     want_gradient);
}

void Model::require_training(const char* operation) const {
  if (!options_.training) {
    throw std::invalid_argument(fmt::format("{}: this model was made for evaluation only", operation));
  }
}

LossSums Model::forward_backward(const Batch& batch, double scale, Accumulate accumulate, const GradientReady& ready) {
  require_training("forward_backward");
  const NetworkMemory pass = memory(Weights::current);
  const Tensor input = input_of(batch);
  const Tensor output = network_.forward(backend_, pass, input);
  const LossSums sums = loss(output, batch, scale, true);
  network_.backward(backend_, pass, input, output, accumulate, ready);
  return sums;
}

void Model::zero_gradients(const GradientReady& ready) {
  require_training("zero_gradients");
  backend_.fill_zero(arenas_->gradients.tensor());
  if (ready) ready(arena_elements());
}

LossSums Model::evaluate(const Batch& batch, Weights weights) {
  const NetworkMemory pass = memory(weights);
  const Tensor output = network_.forward(backend_, pass, input_of(batch));
  return loss(output, batch, 1, false);
}

double Model::finish_gradients() {
  require_training("finish_gradients");
  if (options_.optimizer.l2 > 0) {
    backend_.add_l2_gradient(arenas_->parameters.tensor(), arenas_->gradients.tensor(),
                             static_cast<float>(options_.optimizer.l2), arenas_->slices);
  }
  return std::sqrt(backend_.sum_of_squares(arenas_->gradients.tensor()));
}

double Model::l2_loss() {
  double squares = 0;
  if (options_.optimizer.l2 <= 0) return 0;
  for (const Parameter& parameter : network_.parameters().all()) {
    if (parameter.decay == Decay::yes) {
      squares += backend_.sum_of_squares(slice(arenas_->parameters.tensor(), parameter));
    }
  }
  return options_.optimizer.l2 / 2 * squares;
}

void Model::update(const UpdateRule& rule) {
  require_training("update");
  backend_.update({.parameters = arenas_->parameters.tensor(),
                   .gradients = arenas_->gradients.tensor(),
                   .state1 = arenas_->state1.tensor(),
                   .state2 = arenas_->state2.tensor(),
                   .average = arenas_->average.tensor()},
                  rule, arenas_->slices);
}

std::string Model::locate_not_finite(const Batch& batch) {
  const auto finite = [&](const Tensor& tensor) { return std::isfinite(backend_.sum_of_squares(tensor)); };
  const NetworkMemory pass = memory(Weights::current);
  const Tensor input = input_of(batch);
  if (!finite(input)) return "input";
  for (const Parameter& parameter : network_.parameters().all()) {
    if (!finite(slice(pass.parameters, parameter))) return fmt::format("parameter {}", parameter.name);
  }
  const Tensor output = network_.forward(backend_, pass, input);
  const std::string layer = network_.first_not_finite(backend_, pass, batch.count);
  if (!layer.empty()) return fmt::format("layer {} (forward)", layer);
  if (!std::isfinite(loss(output, batch, 1, options_.training).loss)) return "loss";
  if (!options_.training) return "";
  network_.backward(backend_, pass, input, output, Accumulate::no, {});
  const auto& parameters = network_.parameters().all();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (!finite(slice(pass.gradients, *parameter))) return fmt::format("gradient of {}", parameter->name);
  }
  return "";
}

std::span<float> Model::gradients() {
  require_training("gradients");
  if (backend_.compute_type() != ElementType::float32 || !backend_.reads_host_memory()) {
    throw std::invalid_argument(
        fmt::format("backend {} does not keep gradients as float32 in host memory", backend_.name()));
  }
  return arenas_->gradients.tensor().elements<float>();
}

std::vector<std::string> Model::state_groups() const {
  std::vector<std::string> groups{"parameters"};
  if (options_.training) {
    for (int i = 0; i < state_count(options_.optimizer.kind); ++i) {
      groups.emplace_back(state_name(options_.optimizer.kind, i));
    }
  }
  if (!arenas_->average.empty()) groups.emplace_back("average");
  return groups;
}

std::vector<StateTensor> Model::state_tensors() const {
  std::vector<StateTensor> tensors;
  for (const std::string& group : state_groups()) {
    for (const Parameter& parameter : network_.parameters().all()) {
      tensors.push_back({group, parameter.name, parameter.shape, parameter.offset, parameter.count});
    }
  }
  return tensors;
}

const Tensor& Model::group(std::string_view name) const {
  if (name == "parameters") return arenas_->parameters.tensor();
  if (name == "average" && !arenas_->average.empty()) return arenas_->average.tensor();
  for (int i = 0; options_.training && i < state_count(options_.optimizer.kind); ++i) {
    if (name == state_name(options_.optimizer.kind, i)) {
      return (i == 0 ? arenas_->state1 : arenas_->state2).tensor();
    }
  }
  throw std::invalid_argument(fmt::format("this model has no state group '{}'", name));
}

void Model::download_group(std::string_view name, std::span<float> out) { backend_.download(group(name), out); }

void Model::upload_group(std::string_view name, std::span<const float> in) {
  backend_.upload(in, group(name));
  if (name == "parameters" && !arenas_->average.empty()) backend_.upload(in, arenas_->average.tensor());
}

std::size_t Model::arena_elements() const noexcept { return network_.parameters().arena_elements(); }

}  // namespace lockstep::model
