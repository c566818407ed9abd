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

std::int64_t stored_features(const Network& network, const ModelOptions& options) {
  return options.augmentation ? options.augmentation->in.elements() : network.sample_shape().features;
}

/// Converted samples take memory unless the backend can read every batch in place; which batches it can is known only
/// when they come, so the room is always planned (and, on a host, becomes resident only when it is used).
std::size_t input_bytes(const Network& network, const ModelOptions& options, ElementType compute) {
  if (network.sample_shape().tokens) return 0;
  return static_cast<std::size_t>(options.max_batch * network.sample_shape().features) * size_of(compute);
}

std::int64_t lanes_of(const ModelOptions& options) { return std::max(options.lanes, options.max_batch); }

Tensor piece(const Tensor& arena, std::size_t offset, std::int64_t rows, std::int64_t columns) {
  return {static_cast<std::byte*>(arena.data) + offset * size_of(arena.type), arena.type, rows, columns};
}

Tensor slice(const Tensor& arena, const Parameter& parameter) {
  return piece(arena, parameter.offset, 1, static_cast<std::int64_t>(parameter.count));
}

/// A part of an arena, or nothing of none.
Tensor part_of(const Tensor& arena, std::size_t offset, std::size_t count) {
  return arena.data == nullptr ? Tensor{} : piece(arena, offset, 1, static_cast<std::int64_t>(count));
}

bool looks_at_whole_parameters(OptimizerKind kind) {
  return kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
}

// Batches in flight to a device: one that is worked on, one on its way, one of an evaluation in between.
constexpr int kTrainingSlots = 2;
constexpr int slots(bool training) { return training ? kTrainingSlots + 1 : 1; }
constexpr int evaluation_slot(bool training) { return slots(training) - 1; }

StageBytes stage_bytes(const Network& network, const ModelOptions& options) {
  const SampleShape& shape = network.sample_shape();
  const std::int64_t targets = shape.tokens                                      ? shape.features
                               : options.loss == LossKind::softmax_cross_entropy ? 1
                                                                                 : shape.outputs;
  const auto bytes = [&](std::int64_t per_sample, std::size_t size) {
    return static_cast<std::size_t>(options.max_batch * per_sample) * size;
  };
  return {.x = bytes(stored_features(network, options), size_of(options.sample_type)),
          .y = bytes(targets, 4),  // int32 or float32
          .keys = bytes(1, sizeof(std::uint64_t))};
}

// The scalars of a step, float64: where each lies. Ballot and squares go to the host in one copy.
constexpr std::size_t kSums = 0, kEvaluationSums = 3, kScratch = 6, kBallot = 8, kSquares = kBallot + kBallotSize;
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
  const OperationTypes operation_types{.compute = types.compute, .master = types.master};
  plan.activations =
      input_bytes(network, options, types.compute) +
      ActivationLayout(network.activations(), options.max_batch, operation_types).bytes() +
      (options.training ? 2 : 1) * ActivationLayout(network.carried(), lanes_of(options), operation_types).bytes();
  if (options.optimizer.average_decay > 0) plan.average = arena;
  if (options.training) {
    plan.gradients = arena;
    plan.optimizer = OwnedParts::state_elements(network.parameters(), options.owned) * size_of(types.master) *
                     static_cast<std::size_t>(state_count(options.optimizer.kind));
  }
  if (!types.is_host) {
    const StageBytes batch = stage_bytes(network, options);
    plan.input = static_cast<std::size_t>(slots(options.training)) * (batch.x + batch.y + batch.keys);
  }
  return plan;
}

struct Model::Staged {
  StagedBatch data;
  std::int64_t first_lane = 0;
};

struct Model::Arenas {
  Arenas(std::pmr::memory_resource* host, const Network& network, const ModelOptions& options,
         const OperationTypes& types)
      : owned(network.parameters(), options.owned),
        layout(network.activations(), options.max_batch, types),
        carried_layout(network.carried(), lanes_of(options), types),
        posted(kPosted, 0.0, host) {}

  Arena parameters, gradients, state1, state2, average, shadow, norms;
  Arena input, activations, carried, evaluation_carried;
  Arena scalars, rule;
  OwnedParts owned;
  ActivationLayout layout, carried_layout;
  std::array<Staged, kTrainingSlots + 1> batches;
  std::pmr::vector<double> posted;  ///< on the host

  Tensor scalar(std::size_t offset, std::size_t count) const {
    return piece(scalars.tensor(), offset, 1, static_cast<std::int64_t>(count));
  }
};

Model::Model(Backend& backend, const Network& network, const ModelOptions& options)
    : backend_(backend),
      network_(network),
      options_(options),
      arenas_(std::make_unique<Arenas>(
          backend.host_memory(), network, options,
          OperationTypes{.compute = backend.compute_type(), .master = backend.master_type()})) {
  if (options.max_batch < 1) {
    throw std::invalid_argument(fmt::format("max_batch is {}: need room for at least one sample", options.max_batch));
  }
  const bool whole = looks_at_whole_parameters(options.optimizer.kind);
  if (whole && !arenas_->owned.whole()) {
    throw std::invalid_argument(
        fmt::format("{} looks at whole parameters: their update cannot be shared", name_of(options.optimizer.kind)));
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
  arenas_->parameters = arena(true, master, elements, options.parameter_memory ? options.parameter_memory : own);
  arenas_->shadow = arena(compute != master, compute, elements, own);
  arenas_->gradients =
      arena(options.training, master, elements, options.gradient_memory ? options.gradient_memory : own);
  const std::size_t state_elements = arenas_->owned.state_elements();
  arenas_->state1 = arena(states > 0 && state_elements > 0, master, state_elements, own);
  arenas_->state2 = arena(states > 1 && state_elements > 0, master, state_elements, own);
  arenas_->average = arena(options.optimizer.average_decay > 0, master, elements, own);
  arenas_->scalars = arena(true, ElementType::float64, kScalars, own);
  arenas_->rule = arena(options.training, ElementType::uint8, sizeof(UpdateRule), own);
  arenas_->norms = arena(options.training && whole, ElementType::float64, 2 * network.parameters().all().size(), own);
  // Not zeroed: every element is written before it is read, and pages that no batch reaches stay untouched.
  arenas_->input = Arena(own, ElementType::uint8, input_bytes(network, options, compute));
  arenas_->activations = Arena(own, ElementType::uint8, arenas_->layout.bytes());
  const std::size_t carried = arenas_->carried_layout.bytes();
  arenas_->carried = arena(options.training && carried > 0, ElementType::uint8, carried, own);
  arenas_->evaluation_carried = arena(carried > 0, ElementType::uint8, carried, own);
  backend.reserve_stages(slots(options.training), stage_bytes(network, options));
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

Model::Staged Model::bring(int slot, const Batch& batch, bool training) {
  if (batch.count < 0 || batch.count > options_.max_batch) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples: this model takes 0 to {}", batch.count, options_.max_batch));
  }
  if (batch.count > 0 && (batch.x == nullptr || batch.y == nullptr)) {
    throw std::invalid_argument("a batch without samples or targets");
  }
  if (batch.first_lane < 0 || batch.first_lane + batch.count > lanes_of(options_)) {
    throw std::invalid_argument(fmt::format("a batch of lanes {} to {}: this model has {}", batch.first_lane,
                                            batch.first_lane + batch.count, lanes_of(options_)));
  }
  // Tensors know no const; the samples are only read.
  const SampleShape& shape = network_.sample_shape();
  const bool classifies = options_.loss == LossKind::softmax_cross_entropy;
  const Tensor x{const_cast<void*>(batch.x), batch.x_type, batch.count, stored_features(network_, options_)};
  const Tensor y{const_cast<void*>(batch.y), classifies ? ElementType::int32 : ElementType::float32, batch.count,
                 shape.tokens ? shape.features
                 : classifies ? 1
                              : shape.outputs};
  Tensor keys;
  if (batch.keys != nullptr && training) {
    keys = {const_cast<std::uint64_t*>(batch.keys), ElementType::uint64, batch.count, 1};
  }
  begin_lanes(batch, training);
  return {backend_.stage(slot, {.x = x, .y = y, .keys = keys}), batch.first_lane};
}

/// The state before the first batch of a lane is zero. In the order of the operations: batches before this one are not
/// touched by it.
void Model::begin_lanes(const Batch& batch, bool training) {
  const Arena& carried = training ? arenas_->carried : arenas_->evaluation_carried;
  if (carried.empty() || !batch.begins) return;
  for (std::size_t i = 0; i < network_.carried().all().size(); ++i) {
    backend_.fill_zero(arenas_->carried_layout.at(i, carried.tensor().data, batch.count, batch.first_lane));
  }
}

void Model::stage(const Batch& batch) {
  require_training("stage");
  const int slot = (staged_ + 1) % kTrainingSlots;
  arenas_->batches[static_cast<std::size_t>(slot)] = bring(slot, batch, true);
  staged_ = slot;
}

void Model::wait_staged() { backend_.wait_staged(); }

const Model::Staged& Model::batch(int slot) const { return arenas_->batches[static_cast<std::size_t>(slot)]; }

Tensor Model::input(const StagedBatch& batch) {
  if (network_.sample_shape().tokens) return batch.x;
  const InputTransform& transform = options_.input_transform;
  const bool augmented = options_.augmentation.has_value();
  if (!augmented && transform.scale == 1 && transform.shift == 0 && batch.x.type == backend_.compute_type()) {
    return batch.x;
  }
  const Tensor converted{arenas_->input.tensor().data, backend_.compute_type(), batch.x.rows,
                         network_.sample_shape().features};
  if (augmented) {
    backend_.images().augment(batch.x, batch.keys, *options_.augmentation, converted);
  } else {
    backend_.convert_input(batch.x, transform, converted);
  }
  return converted;
}

Pass Model::pass(const Staged& batch, Weights weights, bool training) {
  if (weights == Weights::average && arenas_->average.empty()) {
    throw std::invalid_argument("this model keeps no average of its weights (average_decay is 0)");
  }
  const Arena& read = !arenas_->shadow.empty()      ? arenas_->shadow
                      : weights == Weights::average ? arenas_->average
                                                    : arenas_->parameters;
  return {.backend = backend_,
          .table = network_.parameters(),
          .memory = {.parameters = read.tensor(),
                     .gradients = arenas_->gradients.tensor(),
                     .layout = &arenas_->layout,
                     .activations = arenas_->activations.tensor().data,
                     .carried_layout = &arenas_->carried_layout,
                     .carried = (training ? arenas_->carried : arenas_->evaluation_carried).tensor().data,
                     .first_lane = batch.first_lane},
          .batch = batch.data.x.rows,
          .input = input(batch.data),
          .keys = batch.data.keys,
          .training = training};
}

Pass Model::training_pass(const Staged& batch, double scale) {
  Pass made = pass(batch, Weights::current, true);
  made.share = static_cast<double>(made.batch) * scale;
  if (options_.sum_over_ranks) made.sum_over_ranks = &options_.sum_over_ranks;
  return made;
}

void Model::loss(const Pass& pass, const Tensor& output, const Tensor& y, const LossOptions& options,
                 const Tensor& sums) {
  const Tensor targets = network_.targets(pass, y);
  if (options_.loss == LossKind::softmax_cross_entropy) {
    backend_.softmax_cross_entropy(output, targets, options, sums);
  } else {
    backend_.mean_squared_error(output, targets, options, sums);
  }
}

void Model::require_training(const char* operation) const {
  if (!options_.training) {
    throw std::invalid_argument(fmt::format("{}: this model was made for evaluation only", operation));
  }
}

void Model::forward_backward(double scale, Accumulate accumulate, const GradientReady& ready) {
  require_training("forward_backward");
  const Tensor sums = arenas_->scalar(kSums, kLossSums);
  if (accumulate == Accumulate::no) backend_.fill_zero(sums);
  const Staged& staged = batch(staged_);
  const Pass here = training_pass(staged, scale);
  const Tensor output = network_.forward(here);
  loss(here, output, staged.data.y, loss_options(scale), sums);
  network_.backward(here, output, accumulate, ready);
}

LossOptions Model::loss_options(double scale) const {
  return {.scale = scale / static_cast<double>(network_.positions()),
          .want_gradient = true,
          .smoothing = options_.label_smoothing};
}

void Model::release_batch() {
  worked_ = staged_;
  backend_.release_stage(worked_);
}

void Model::take_part_with_nothing(const GradientReady& ready) {
  require_training("take_part_with_nothing");
  backend_.fill_zero(arenas_->scalar(kSums, kLossSums));
  if (network_.synchronizes()) {
    // An empty batch asks for the same sums in the same order as any other, and its gradients are zero.
    const ElementType type = network_.sample_shape().tokens ? ElementType::int32 : ElementType::uint8;
    const Staged nothing{.data = {.x = {nullptr, type, 0, stored_features(network_, options_)},
                                  .y = {nullptr, ElementType::int32, 0, 1},
                                  .keys = {}}};
    const Pass here = training_pass(nothing, 0);
    const Tensor output = network_.forward(here);
    network_.backward(here, output, Accumulate::no, ready);
    return;
  }
  backend_.fill_zero(arenas_->gradients.tensor());
  if (ready) ready(arena_elements());
}

bool Model::sums_are_finite() { return std::isfinite(scalar_now(kSums)); }

double Model::scalar_now(std::size_t offset) {
  backend_.read(arenas_->scalar(offset, 1), std::as_writable_bytes(std::span(arenas_->posted).first(1)));
  backend_.synchronize();
  return arenas_->posted[0];
}

Tensor Model::evaluation_output(const Pass& pass, Weights weights) {
  if (weights == Weights::average) refresh_shadow(weights);
  return network_.forward(pass);
}

LossSums Model::evaluate(const Batch& given, Weights weights) {
  const int slot = evaluation_slot(options_.training);
  const Staged here = bring(slot, given, false);
  const Pass evaluation = pass(here, weights, false);
  const Tensor sums = arenas_->scalar(kEvaluationSums, kLossSums);
  backend_.fill_zero(sums);
  const Tensor output = evaluation_output(evaluation, weights);
  loss(evaluation, output, here.data.y, {}, sums);
  if (weights == Weights::average) refresh_shadow(Weights::current);
  backend_.release_stage(slot);
  backend_.read(sums, std::as_writable_bytes(std::span(arenas_->posted).first(static_cast<std::size_t>(kLossSums))));
  backend_.synchronize();
  return {.loss = arenas_->posted[0], .metric = arenas_->posted[1], .top5 = arenas_->posted[2]};
}

void Model::predict(const Batch& given, Weights weights, std::int64_t row, std::span<float> out) {
  const int slot = evaluation_slot(options_.training);
  Batch batch = given;
  if (batch.y == nullptr) batch.y = batch.x;  // of tokens both are alike; nothing reads it
  const Staged here = bring(slot, batch, false);
  const Tensor output = evaluation_output(pass(here, weights, false), weights);
  if (weights == Weights::average) refresh_shadow(Weights::current);
  backend_.release_stage(slot);
  backend_.download(rows_of(output, row, 1), out);
}

void Model::write_ballot(std::span<const double, kBallotSize> ballot) {
  backend_.write(std::as_bytes(ballot), arenas_->scalar(kBallot, kBallotSize));
}

void Model::tally() { backend_.tally(arenas_->scalar(kSums, kLossSums), arenas_->scalar(kBallot, kBallotSize)); }

std::span<double> Model::ballot() {
  static_assert(kSquares == kBallot + kBallotSize);
  return arenas_->scalar(kBallot, arenas_->owned.whole() ? kBallotSize : kBallotSize + 1).elements<double>();
}

void Model::write_rule(const UpdateRule& rule) {
  require_training("write_rule");
  backend_.write(std::as_bytes(std::span(&rule, 1)), arenas_->rule.tensor());
}

void Model::finish_gradients() {
  require_training("finish_gradients");
  const Tensor squares = arenas_->scalar(kSquares, 1);
  Accumulate accumulate = Accumulate::no;
  for (const OwnedParts::Part& part : arenas_->owned.parts()) {
    const ArenaRange& range = part.range;
    if (range.count == 0) continue;
    if (options_.optimizer.l2 > 0) {
      backend_.add_l2_gradient(part_of(arenas_->parameters.tensor(), range.offset, range.count),
                               part_of(arenas_->gradients.tensor(), range.offset, range.count),
                               static_cast<float>(options_.optimizer.l2), part.slices);
    }
    backend_.sum_of_squares(part_of(arenas_->gradients.tensor(), range.offset, part.trained), squares, accumulate);
    accumulate = Accumulate::yes;
  }
  if (accumulate == Accumulate::no) backend_.fill_zero(squares);
}

void Model::update(const PartUpdated& updated) {
  require_training("update");
  for (std::size_t i = 0; i < arenas_->owned.parts().size(); ++i) {
    const OwnedParts::Part& part = arenas_->owned.parts()[i];
    if (part.range.count > 0) update_part(part);
    if (updated && !updates_all()) updated(i);
  }
}

void Model::update_part(const OwnedParts::Part& part) {
  const auto weights = [&](const Arena& arena) { return part_of(arena.tensor(), part.range.offset, part.range.count); };
  const auto state = [&](const Arena& arena) { return part_of(arena.tensor(), part.state_offset, part.range.count); };
  backend_.update({.parameters = weights(arenas_->parameters),
                   .gradients = weights(arenas_->gradients),
                   .state1 = state(arenas_->state1),
                   .state2 = state(arenas_->state2),
                   .average = weights(arenas_->average),
                   .shadow = weights(arenas_->shadow),
                   .norms = arenas_->norms.tensor()},
                  options_.optimizer.kind, options_.optimizer.average_decay > 0, arenas_->rule.tensor(), part.slices,
                  {.obstacles = arenas_->scalar(kBallot + 2, 1), .gradient_squares = arenas_->scalar(kSquares, 1)});
}

bool Model::updates_all() const noexcept { return arenas_->owned.whole(); }

std::span<float> Model::weights(Weights weights) {
  const Arena& arena = weights == Weights::average ? arenas_->average : arenas_->parameters;
  if (backend_.master_type() != ElementType::float32 || arena.empty()) {
    throw std::invalid_argument(fmt::format("backend {} keeps no such weights as float32", backend_.name()));
  }
  return arena.tensor().elements<float>();
}

void Model::parameters_were_brought() { refresh_shadow(Weights::current); }

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
  const Staged& worked = batch(worked_);
  const Pass again = pass(worked, Weights::current, true);
  if (!network_.sample_shape().tokens && !finite(again.input)) return "input";
  for (const Parameter& parameter : network_.parameters().all()) {
    if (!finite(slice(arenas_->parameters.tensor(), parameter))) return fmt::format("parameter {}", parameter.name);
  }
  const Tensor output = network_.forward(again);
  const std::string layer = network_.first_not_finite(again);
  if (!layer.empty()) return fmt::format("layer {} (forward)", layer);
  const Tensor sums = arenas_->scalar(kEvaluationSums, kLossSums);
  backend_.fill_zero(sums);
  LossOptions options = loss_options(1);
  options.want_gradient = options_.training;
  loss(again, output, worked.data.y, options, sums);
  if (!std::isfinite(scalar_now(kEvaluationSums))) return "loss";
  if (!options_.training) return "";
  network_.backward(again, output, Accumulate::no, {});
  const auto& parameters = network_.parameters().all();
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (!finite(slice(again.memory.gradients, *parameter))) return fmt::format("gradient of {}", parameter->name);
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

bool Model::is_optimizer_state(std::string_view name) const { return name != "parameters" && name != "average"; }

void Model::require_arena(std::size_t elements) const {
  if (elements == arena_elements()) return;
  throw std::invalid_argument(fmt::format("{} elements for a group of {}", elements, arena_elements()));
}

void Model::download_group(std::string_view name, std::span<float> out) {
  if (arenas_->owned.whole() || !is_optimizer_state(name)) return backend_.download(group(name), out);
  require_arena(out.size());
  for (const OwnedParts::Part& part : arenas_->owned.parts()) {
    download_range(name, part.range, out.subspan(part.range.offset, part.range.count));
  }
}

void Model::download_range(std::string_view name, const ArenaRange& range, std::span<float> out) {
  if (range.count == 0) return;
  std::size_t offset = range.offset;
  if (is_optimizer_state(name)) {
    const std::optional<std::size_t> packed = arenas_->owned.state_offset(range);
    if (!packed) {
      throw std::invalid_argument(fmt::format("{} of {}+{} is not here", name, range.offset, range.count));
    }
    offset = *packed;
  }
  backend_.download(part_of(group(name), offset, range.count), out);
}

void Model::upload_group(std::string_view name, std::span<const float> in) {
  if (!arenas_->owned.whole() && is_optimizer_state(name)) {
    const Tensor& state = group(name);
    require_arena(in.size());
    for (const OwnedParts::Part& part : arenas_->owned.parts()) {
      if (part.range.count > 0)
        backend_.upload(in.subspan(part.range.offset, part.range.count),
                        part_of(state, part.state_offset, part.range.count));
    }
    return;
  }
  backend_.upload(in, group(name));
  if (name != "parameters") return;
  if (!arenas_->average.empty()) backend_.upload(in, arenas_->average.tensor());
  refresh_shadow(Weights::current);
}

std::int64_t Model::carried_elements() const noexcept { return network_.carried().elements_per_sample(); }

void Model::download_carried(std::int64_t lanes, std::span<float> out) {
  for_each_carried(lanes, [&](const Tensor& tensor, std::int64_t first) {
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    backend_.download(tensor, values);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      std::copy_n(values.begin() + lane * tensor.columns, tensor.columns,
                  out.begin() + lane * carried_elements() + first);
    }
  });
}

void Model::upload_carried(std::int64_t lanes, std::span<const float> in) {
  for_each_carried(lanes, [&](const Tensor& tensor, std::int64_t first) {
    std::vector<float> values;
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto from = in.begin() + lane * carried_elements() + first;
      values.insert(values.end(), from, from + tensor.columns);
    }
    backend_.upload(values, tensor);
  });
}

/// work(tensor [lanes, columns], number of the first of its elements within a lane)
template <class Work>
void Model::for_each_carried(std::int64_t lanes, const Work& work) {
  require_training("the state carried between batches");
  std::int64_t first = 0;
  for (std::size_t i = 0; i < network_.carried().all().size(); ++i) {
    const Tensor tensor = arenas_->carried_layout.at(i, arenas_->carried.tensor().data, lanes);
    work(tensor, first);
    first += tensor.columns;
  }
}

std::size_t Model::arena_elements() const noexcept { return network_.parameters().arena_elements(); }

}  // namespace lockstep::model
