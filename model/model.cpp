#include "model/model.hpp"

#include <algorithm>
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
  Arena(std::pmr::memory_resource* memory, ElementType type, std::size_t elements)
      : memory_(memory), bytes_(elements * size_of(type)) {
    if (elements == 0) return;
    tensor_ = {memory_->allocate(bytes_, kArenaAlignment), type, 1, static_cast<std::int64_t>(elements)};
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

// Batches in flight to a device: one that is worked on, one on its way, one of an evaluation in between.
constexpr int kTrainingSlots = 2;
constexpr int slots(bool training) { return training ? kTrainingSlots + 1 : 1; }
constexpr int evaluation_slot(bool training) { return slots(training) - 1; }

std::size_t y_bytes(const Network& network, const ModelOptions& options) {
  const std::int64_t per_sample =
      options.loss == LossKind::softmax_cross_entropy ? 1 : network.sample_shape().outputs;  // int32 or float32
  return static_cast<std::size_t>(options.max_batch * per_sample) * 4;
}

std::size_t x_bytes(const Network& network, const ModelOptions& options) {
  return static_cast<std::size_t>(options.max_batch * network.sample_shape().features) * size_of(options.sample_type);
}

// The scalars of a step, float64: where each lies. Ballot and squares go to the host in one copy.
constexpr std::size_t kSums = 0, kEvaluationSums = 2, kScratch = 4, kBallot = 8, kSquares = kBallot + kBallotSize;
constexpr std::size_t kScalars = kSquares + 1;
constexpr std::size_t kPosted = kBallotSize + 1;

}  // namespace

MemoryTypes memory_types(const Backend& backend) {
  return {.compute = backend.compute_type(), .master = backend.master_type(), .is_host = backend.is_host()};
}

MemoryTypes memory_types_on_gpu(Precision precision) noexcept {
  return {.compute = precision == Precision::bf16 ? ElementType::bfloat16 : ElementType::float32,
          .master = ElementType::float32,
          .is_host = false};
}

MemoryPlan plan_memory(const Network& network, const ModelOptions& options, const MemoryTypes& types) {
  const std::size_t elements = network.parameters().arena_elements();
  const std::size_t arena = elements * size_of(types.master);
  MemoryPlan plan;
  plan.parameters = arena + (types.compute != types.master ? elements * size_of(types.compute) : 0);
  plan.activations = activation_elements(network, options) * size_of(types.compute);
  if (options.optimizer.average_decay > 0) plan.average = arena;
  if (options.training) {
    plan.gradients = arena;
    plan.optimizer = arena * static_cast<std::size_t>(state_count(options.optimizer.kind));
  }
  if (!types.is_host) {
    plan.input =
        static_cast<std::size_t>(slots(options.training)) * (x_bytes(network, options) + y_bytes(network, options));
  }
  return plan;
}

struct Model::Arenas {
  explicit Arenas(std::pmr::memory_resource* host) : posted(kPosted, 0.0, host) {}

  Arena parameters, gradients, state1, state2, average, shadow, activations;
  Arena scalars, rule;
  std::vector<UpdateSlice> slices;
  std::array<StagedBatch, kTrainingSlots + 1> batches;
  std::pmr::vector<double> posted;  ///< on the host

  Tensor scalar(std::size_t offset, std::size_t count) const {
    return piece(scalars.tensor(), offset, 1, static_cast<std::int64_t>(count));
  }
};

Model::Model(Backend& backend, const Network& network, const ModelOptions& options)
    : backend_(backend),
      network_(network),
      options_(options),
      arenas_(std::make_unique<Arenas>(backend.host_memory())) {
  if (options.max_batch < 1) {
    throw std::invalid_argument(fmt::format("max_batch is {}: need room for at least one sample", options.max_batch));
  }
  const std::size_t elements = network.parameters().arena_elements();
  const ElementType master = backend.master_type(), compute = backend.compute_type();
  std::pmr::memory_resource* own = backend.memory();
  const auto arena = [&](bool needed, ElementType type, std::size_t count, std::pmr::memory_resource* memory) {
    Arena made(memory, type, needed ? count : 0);
    if (needed) backend.fill_zero(made.tensor());
    return made;
  };
  const int states = options.training ? state_count(options.optimizer.kind) : 0;
  arenas_->parameters = arena(true, master, elements, own);
  arenas_->shadow = arena(compute != master, compute, elements, own);
  arenas_->gradients =
      arena(options.training, master, elements, options.gradient_memory ? options.gradient_memory : own);
  arenas_->state1 = arena(states > 0, master, elements, own);
  arenas_->state2 = arena(states > 1, master, elements, own);
  arenas_->average = arena(options.optimizer.average_decay > 0, master, elements, own);
  arenas_->scalars = arena(true, ElementType::float64, kScalars, own);
  arenas_->rule = arena(options.training, ElementType::uint8, sizeof(UpdateRule), own);
  // Not zeroed: every element is written before it is read, and pages that no batch reaches stay untouched.
  arenas_->activations = Arena(own, compute, activation_elements(network, options));
  for (const Parameter& parameter : network.parameters().all()) {
    arenas_->slices.push_back({parameter.offset, parameter.count, parameter.decay == Decay::yes});
  }
  backend.reserve_stages(slots(options.training), x_bytes(network, options), y_bytes(network, options));
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
  refresh_shadow(Weights::current);
}

void Model::refresh_shadow(Weights weights) {
  if (arenas_->shadow.empty()) return;
  backend_.cast((weights == Weights::average ? arenas_->average : arenas_->parameters).tensor(),
                arenas_->shadow.tensor());
}

StagedBatch Model::bring(int slot, const Batch& batch) {
  if (batch.count < 0 || batch.count > options_.max_batch) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples: this model takes 0 to {}", batch.count, options_.max_batch));
  }
  if (batch.count > 0 && (batch.x == nullptr || batch.y == nullptr)) {
    throw std::invalid_argument("a batch without samples or targets");
  }
  // Tensors know no const; the samples are only read.
  const bool classifies = options_.loss == LossKind::softmax_cross_entropy;
  const Tensor x{const_cast<void*>(batch.x), batch.x_type, batch.count, network_.sample_shape().features};
  const Tensor y{const_cast<void*>(batch.y), classifies ? ElementType::int32 : ElementType::float32, batch.count,
                 classifies ? 1 : network_.sample_shape().outputs};
  return backend_.stage(slot, x, y);
}

void Model::stage(const Batch& batch) {
  require_training("stage");
  const int slot = (staged_ + 1) % kTrainingSlots;
  arenas_->batches[static_cast<std::size_t>(slot)] = bring(slot, batch);
  staged_ = slot;
}

void Model::wait_staged() { backend_.wait_staged(); }

const StagedBatch& Model::batch(int slot) const { return arenas_->batches[static_cast<std::size_t>(slot)]; }

Tensor Model::input(const StagedBatch& batch) {
  const InputTransform& transform = options_.input_transform;
  if (transform.scale == 1 && transform.shift == 0 && batch.x.type == backend_.compute_type()) return batch.x;
  const Tensor converted = piece(arenas_->activations.tensor(), 0, batch.x.rows, batch.x.columns);
  backend_.convert_input(batch.x, transform, converted);
  return converted;
}

NetworkMemory Model::memory(Weights weights) const {
  if (weights == Weights::average && arenas_->average.empty()) {
    throw std::invalid_argument("this model keeps no average of its weights (average_decay is 0)");
  }
  const Tensor& all = arenas_->activations.tensor();
  const std::int64_t rest = network_.activation_elements(options_.max_batch);
  const Arena& read = !arenas_->shadow.empty()      ? arenas_->shadow
                      : weights == Weights::average ? arenas_->average
                                                    : arenas_->parameters;
  return {.parameters = read.tensor(),
          .gradients = arenas_->gradients.tensor(),
          .activations = piece(all, static_cast<std::size_t>(all.columns - rest), 1, rest)};
}

void Model::loss(const Tensor& output, const Tensor& targets, double scale, bool want_gradient, const Tensor& sums) {
  if (options_.loss == LossKind::softmax_cross_entropy) {
    backend_.softmax_cross_entropy(output, targets, scale, want_gradient, sums);
  } else {
    backend_.mean_squared_error(output, targets, scale, want_gradient, sums);
  }
}

void Model::require_training(const char* operation) const {
  if (!options_.training) {
    throw std::invalid_argument(fmt::format("{}: this model was made for evaluation only", operation));
  }
}

void Model::forward_backward(double scale, Accumulate accumulate, const GradientReady& ready) {
  require_training("forward_backward");
  const NetworkMemory pass = memory(Weights::current);
  const Tensor sums = arenas_->scalar(kSums, 2);
  if (accumulate == Accumulate::no) backend_.fill_zero(sums);
  const Tensor x = input(batch(staged_));
  const Tensor output = network_.forward(backend_, pass, x);
  loss(output, batch(staged_).y, scale, true, sums);
  network_.backward(backend_, pass, x, output, accumulate, ready);
}

void Model::release_batch() {
  worked_ = staged_;
  backend_.release_stage(worked_);
}

void Model::zero_gradients(const GradientReady& ready) {
  require_training("zero_gradients");
  backend_.fill_zero(arenas_->gradients.tensor());
  backend_.fill_zero(arenas_->scalar(kSums, 2));
  if (ready) ready(arena_elements());
}

bool Model::sums_are_finite() { return std::isfinite(scalar_now(kSums)); }

double Model::scalar_now(std::size_t offset) {
  backend_.read(arenas_->scalar(offset, 1), std::as_writable_bytes(std::span(arenas_->posted).first(1)));
  backend_.synchronize();
  return arenas_->posted[0];
}

LossSums Model::evaluate(const Batch& given, Weights weights) {
  const int slot = evaluation_slot(options_.training);
  const StagedBatch here = bring(slot, given);
  const NetworkMemory pass = memory(weights);
  if (weights == Weights::average) refresh_shadow(weights);
  const Tensor sums = arenas_->scalar(kEvaluationSums, 2);
  backend_.fill_zero(sums);
  const Tensor output = network_.forward(backend_, pass, input(here));
  loss(output, here.y, 1, false, sums);
  if (weights == Weights::average) refresh_shadow(Weights::current);
  backend_.release_stage(slot);
  backend_.read(arenas_->scalar(kEvaluationSums, 2), std::as_writable_bytes(std::span(arenas_->posted).first(2)));
  backend_.synchronize();
  return {.loss = arenas_->posted[0], .metric = arenas_->posted[1]};
}

void Model::write_ballot(std::span<const double, kBallotSize> ballot) {
  backend_.write(std::as_bytes(ballot), arenas_->scalar(kBallot, kBallotSize));
}

void Model::tally() { backend_.tally(arenas_->scalar(kSums, 2), arenas_->scalar(kBallot, kBallotSize)); }

std::span<double> Model::ballot() { return arenas_->scalar(kBallot, kBallotSize).elements<double>(); }

void Model::write_rule(const UpdateRule& rule) {
  require_training("write_rule");
  backend_.write(std::as_bytes(std::span(&rule, 1)), arenas_->rule.tensor());
}

void Model::finish_gradients() {
  require_training("finish_gradients");
  if (options_.optimizer.l2 > 0) {
    backend_.add_l2_gradient(arenas_->parameters.tensor(), arenas_->gradients.tensor(),
                             static_cast<float>(options_.optimizer.l2), arenas_->slices);
  }
  backend_.sum_of_squares(arenas_->gradients.tensor(), arenas_->scalar(kSquares, 1));
}

void Model::update() {
  require_training("update");
  backend_.update({.parameters = arenas_->parameters.tensor(),
                   .gradients = arenas_->gradients.tensor(),
                   .state1 = arenas_->state1.tensor(),
                   .state2 = arenas_->state2.tensor(),
                   .average = arenas_->average.tensor(),
                   .shadow = arenas_->shadow.tensor()},
                  options_.optimizer.kind, options_.optimizer.average_decay > 0, arenas_->rule.tensor(),
                  arenas_->slices,
                  {.obstacles = arenas_->scalar(kBallot + 2, 1), .gradient_squares = arenas_->scalar(kSquares, 1)});
}

void Model::post_results() {
  backend_.read(arenas_->scalar(kBallot, kPosted), std::as_writable_bytes(std::span(arenas_->posted)));
}

Model::Results Model::results() const {
  Results results;
  std::copy_n(arenas_->posted.begin(), kBallotSize, results.ballot.begin());
  results.gradient_norm = std::sqrt(arenas_->posted[kBallotSize]);
  return results;
}

double Model::squares_now(const Tensor& x) {
  backend_.sum_of_squares(x, arenas_->scalar(kScratch, 1));
  return scalar_now(kScratch);
}

double Model::l2_loss() {
  double squares = 0;
  if (options_.optimizer.l2 <= 0) return 0;
  for (const Parameter& parameter : network_.parameters().all()) {
    if (parameter.decay == Decay::yes) squares += squares_now(slice(arenas_->parameters.tensor(), parameter));
  }
  return options_.optimizer.l2 / 2 * squares;
}

std::string Model::locate_not_finite() {
  const auto finite = [&](const Tensor& tensor) { return std::isfinite(squares_now(tensor)); };
  const StagedBatch& worked = batch(worked_);
  const NetworkMemory pass = memory(Weights::current);
  const Tensor x = input(worked);
  if (!finite(x)) return "input";
  for (const Parameter& parameter : network_.parameters().all()) {
    if (!finite(slice(arenas_->parameters.tensor(), parameter))) return fmt::format("parameter {}", parameter.name);
  }
  const Tensor output = network_.forward(backend_, pass, x);
  const std::string layer = network_.first_not_finite(backend_, pass, worked.x.rows);
  if (!layer.empty()) return fmt::format("layer {} (forward)", layer);
  const Tensor sums = arenas_->scalar(kEvaluationSums, 2);
  backend_.fill_zero(sums);
  loss(output, worked.y, 1, options_.training, sums);
  if (!std::isfinite(scalar_now(kEvaluationSums))) return "loss";
  if (!options_.training) return "";
  network_.backward(backend_, pass, x, output, Accumulate::no, {});
  const auto& parameters = network_.parameters().all();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (!finite(slice(pass.gradients, *parameter))) return fmt::format("gradient of {}", parameter->name);
  }
  return "";
}

std::span<float> Model::gradients() {
  require_training("gradients");
  if (backend_.master_type() != ElementType::float32) {
    throw std::invalid_argument(fmt::format("backend {} does not keep gradients as float32", backend_.name()));
  }
  return arenas_->gradients.tensor().elements<float>();
}

void Model::download_gradients(std::span<float> out) {
  require_training("download_gradients");
  backend_.download(arenas_->gradients.tensor(), out);
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
  if (name != "parameters") return;
  if (!arenas_->average.empty()) backend_.upload(in, arenas_->average.tensor());
  refresh_shadow(Weights::current);
}

std::size_t Model::arena_elements() const noexcept { return network_.parameters().arena_elements(); }

}  // namespace lockstep::model
