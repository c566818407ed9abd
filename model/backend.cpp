#include "model/backend.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "model/operation_checks.hpp"

namespace lockstep::model {

namespace {

void require_slices(std::span<const UpdateSlice> slices, const Tensor& arena, const char* operation) {
  for (const UpdateSlice& slice : slices) {
    const auto elements = static_cast<std::size_t>(arena.count());
    require(slice.offset <= elements && slice.count <= elements - slice.offset, operation,
            "a slice reaches beyond the arena");
  }
}

/// Rows of y are as long as those of w, or longer if y is padded.
bool has_outputs(const Tensor& y, ElementType type, std::int64_t rows, const Tensor& w) {
  const bool padded = type == ElementType::bfloat16 && y.columns > w.columns;
  return is(y, type, rows, padded ? y.columns : w.columns);
}

/// Types of a backend's activations: the compute type and the narrow type.
struct ActivationTypes {
  ElementType compute, images;
  bool is(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const {
    return model::is(tensor, compute, rows, columns) || model::is(tensor, images, rows, columns);
  }
  bool has_outputs(const Tensor& y, std::int64_t rows, const Tensor& w) const {
    return model::has_outputs(y, compute, rows, w) || model::is(y, images, rows, w.columns);
  }
};

void require_linear_backward(const LinearBackwardOperands& operands, Activation activation,
                             const ActivationTypes& types, ElementType master) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  require(types.is(x, x.rows, w.rows), "linear_backward", "x must be [batch, inputs] in the compute type");
  require(is(w, types.compute, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_backward",
          "w must be [inputs, outputs] in the compute type");
  require(types.has_outputs(d_y, x.rows, w), "linear_backward", "d_y must be [batch, outputs] in the compute type");
  require(activation == Activation::none || is(y, d_y.type, x.rows, d_y.columns), "linear_backward",
          "y must be [batch, outputs] where there is an activation");
  require(absent_or(d_w, master, w.rows, w.columns), "linear_backward", "d_w must have the shape of w");
  require(!d_bias.present() || is(d_bias, master, 1, d_y.columns), "linear_backward", "d_bias must be [1, outputs]");
  require(!d_x.present() || types.is(d_x, x.rows, x.columns), "linear_backward", "d_x must have the shape of x");
  require(d_x.count() == 0 || d_x.data != x.data, "linear_backward", "d_x must have memory of its own");
}

}  // namespace

void Backend::reserve_stages(int slots, const StageBytes& bytes) {
  require(slots > 0, "reserve_stages", "at least one slot");
  if (slots <= stages_ && bytes.x <= stage_bytes_.x && bytes.y <= stage_bytes_.y && bytes.keys <= stage_bytes_.keys &&
      bytes.weights <= stage_bytes_.weights) {
    return;
  }
  stages_ = std::max(slots, stages_);
  stage_bytes_ = {.x = std::max(bytes.x, stage_bytes_.x),
                  .y = std::max(bytes.y, stage_bytes_.y),
                  .keys = std::max(bytes.keys, stage_bytes_.keys),
                  .weights = std::max(bytes.weights, stage_bytes_.weights)};
  do_reserve_stages(stages_, stage_bytes_);
}

Batch Backend::stage(int slot, const Batch& batch) {
  const auto& [x, y, keys, weights, first_sequence, begins] = batch;
  require(slot >= 0 && slot < stages_, "stage", "no such slot: reserve_stages comes first");
  require(is(x, x.type, x.rows, x.columns), "stage", "x must be there");
  require(absent_or(y, y.type, x.rows, y.columns), "stage", "x and y must have one number of rows");
  require(absent_or(keys, ElementType::uint64, x.rows, 1), "stage", "keys must be uint64 [batch, 1]");
  require(absent_or(weights, ElementType::float32, x.rows, weights.columns), "stage",
          "weights must be float32 [batch, weights of a sample]");
  require(x.bytes() <= stage_bytes_.x && y.bytes() <= stage_bytes_.y && keys.bytes() <= stage_bytes_.keys &&
              weights.bytes() <= stage_bytes_.weights,
          "stage", "the batch is larger than the slot");
  return do_stage(slot, batch);
}

void Backend::release_stage(int slot) {
  require(slot >= 0 && slot < stages_, "release_stage", "no such slot");
  do_release_stage(slot);
}

void Backend::convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  require(in.type != ElementType::int32 && in.type != ElementType::uint64, "convert_input",
          "samples must be uint8, float32 or float64");
  require(is(in, in.type, in.rows, in.columns) && is(out, compute_type(), in.rows, in.columns), "convert_input",
          "out must have the shape of in and the compute type");
  do_convert_input(in, transform, out);
}

void Backend::linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                             const Tensor& y) {
  const ElementType type = compute_type();
  const ActivationTypes types{type, narrow_type()};
  require(types.is(x, x.rows, w.rows), "linear_forward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_forward",
          "w must be [inputs, outputs] in the compute type");
  require(types.has_outputs(y, x.rows, w), "linear_forward", "y must be [batch, outputs] in the compute type");
  require(!bias.present() || is(bias, type, 1, y.columns), "linear_forward", "bias must be [1, outputs]");
  do_linear_forward(x, w, bias, activation, y);
}

void Backend::linear_backward(const LinearBackwardOperands& operands, Activation activation, Accumulate accumulate) {
  require_linear_backward(operands, activation, {compute_type(), narrow_type()}, master_type());
  do_linear_backward(operands, activation, accumulate);
}

void Backend::linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                                  const Tensor& y) {
  const ElementType type = compute_type();
  const ActivationTypes types{type, narrow_type()};
  require(types.is(x, x.rows, w.rows), "linear_gelu_forward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_gelu_forward",
          "w must be [inputs, outputs] in the compute type");
  require(is(bias, type, 1, w.columns), "linear_gelu_forward", "bias must be [1, outputs]");
  require(types.is(z, x.rows, w.columns) && types.is(y, x.rows, w.columns), "linear_gelu_forward",
          "z and y must be [batch, outputs] in the compute type");
  do_linear_gelu_forward(x, w, bias, z, y);
}

void Backend::do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                                     const Tensor& y) {
  // gelu_forward adds the bias, since it passes over every element anyway.
  linear_forward(x, w, {}, Activation::none, z);
  sequences().gelu_forward(z, bias, y);
}

void Backend::linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                                 const Tensor& y) {
  const ElementType type = compute_type();
  const char* const operation = "linear_add_forward";
  require(is(x, type, x.rows, w.rows), operation, "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, operation,
          "w must be [inputs, outputs] in the compute type");
  require(is(bias, type, 1, w.columns), operation, "bias must be [1, outputs]");
  require(is(added, type, x.rows, w.columns) && is(y, type, x.rows, w.columns), operation,
          "added and y must be [batch, outputs] in the compute type");
  require(apart(y, added) && apart(y, x), operation, "y must have memory of its own");
  do_linear_add_forward(x, w, bias, added, y);
}

void Backend::do_linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                                    const Tensor& y) {
  linear_forward(x, w, bias, Activation::none, y);
  add(added, y);
}

void Backend::linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z,
                                           Accumulate accumulate, const Tensor& d_z_sums) {
  require_linear_backward(operands, Activation::none, {compute_type(), narrow_type()}, master_type());
  require(is(z, operands.x.type, operands.x.rows, operands.x.columns), "linear_backward_through_gelu",
          "z must have the shape of x");
  require(is(operands.d_x, z.type, z.rows, z.columns), "linear_backward_through_gelu", "d_x must have the shape of x");
  require(absent_or(d_z_sums, master_type(), 1, z.columns), "linear_backward_through_gelu",
          "d_z_sums must be [1, inputs]");
  do_linear_backward_through_gelu(operands, z, accumulate, d_z_sums);
}

void Backend::do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z,
                                              Accumulate accumulate, const Tensor& d_z_sums) {
  linear_backward(operands, Activation::none, accumulate);
  sequences().gelu_backward(z, operands.d_x, accumulate, d_z_sums);
}

void Backend::softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                    const Tensor& sums) {
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, "softmax_cross_entropy",
          "logits must be [batch, classes] in the compute type");
  require(is(labels, ElementType::int32, logits.rows, 1), "softmax_cross_entropy", "labels must be int32 [batch, 1]");
  require(is(sums, ElementType::float64, 1, kLossSums), "softmax_cross_entropy", "sums must be float64 [1, 3]");
  require(absent_or(options.weights, ElementType::float32, logits.rows, 1), "softmax_cross_entropy",
          "weights must be float32 [batch, 1]");
  require(options.smoothing >= 0 && options.smoothing < 1, "softmax_cross_entropy", "smoothing must be in [0, 1)");
  require(options.classes >= 0 && options.classes <= logits.columns, "softmax_cross_entropy",
          "logits must have a column for each class");
  do_softmax_cross_entropy(logits, labels, options, sums);
}

void Backend::mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                         const Tensor& sums) {
  require(is(predictions, compute_type(), predictions.rows, predictions.columns) && predictions.columns > 0,
          "mean_error", "predictions must be [batch, outputs] in the compute type");
  require(is(targets, ElementType::float32, predictions.rows, targets.columns) &&
              has_outputs(predictions, compute_type(), predictions.rows, targets),
          "mean_error", "targets must be float32 with the shape of the predictions");
  require(is(sums, ElementType::float64, 1, kLossSums), "mean_error", "sums must be float64 [1, 3]");
  require(absent_or(options.weights, ElementType::float32, predictions.rows, 1), "mean_error",
          "weights must be float32 [batch, 1]");
  do_mean_error(predictions, targets, options, sums);
}

void Backend::binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                   const Tensor& sums) {
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, "binary_cross_entropy",
          "logits must be [batch, labels] in the compute type");
  require(is(targets, ElementType::float32, logits.rows, targets.columns) &&
              has_outputs(logits, compute_type(), logits.rows, targets),
          "binary_cross_entropy", "targets must be float32 with the shape of the logits");
  require(is(sums, ElementType::float64, 1, kLossSums), "binary_cross_entropy", "sums must be float64 [1, 3]");
  require(absent_or(options.weights, ElementType::float32, logits.rows, 1), "binary_cross_entropy",
          "weights must be float32 [batch, 1]");
  require(options.smoothing >= 0 && options.smoothing < 1, "binary_cross_entropy", "smoothing must be in [0, 1)");
  do_binary_cross_entropy(logits, targets, options, sums);
}

void Backend::soft_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                 const Tensor& sums) {
  const char* const operation = "soft_cross_entropy";
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, operation,
          "logits must be [batch, classes] in the compute type");
  require(is(targets, ElementType::float32, logits.rows, targets.columns) &&
              has_outputs(logits, compute_type(), logits.rows, targets),
          operation, "targets must be float32 with the shape of the logits");
  require(is(sums, ElementType::float64, 1, kLossSums), operation, "sums must be float64 [1, 3]");
  require(absent_or(options.weights, ElementType::float32, logits.rows, 1), operation,
          "weights must be float32 [batch, 1]");
  require(options.smoothing >= 0 && options.smoothing < 1, operation, "smoothing must be in [0, 1)");
  if (logits.count() > 0) do_soft_cross_entropy(logits, targets, options, sums);
}

void Backend::soft_dice(const Tensor& logits, const Tensor& labels, const LossOptions& options, const Tensor& work,
                        const Tensor& sums) {
  const char* const operation = "soft_dice";
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, operation,
          "logits must be [samples * positions, classes] in the compute type");
  require(options.classes >= 0 && options.classes <= logits.columns, operation,
          "logits must have a column for each class");
  require(is(labels, ElementType::int32, logits.rows, 1), operation, "labels must be int32 [samples * positions, 1]");
  require(is(work, ElementType::float64, work.rows, dice_work(options.classes_of(logits))) &&
              (work.rows > 0 ? logits.rows % work.rows == 0 : logits.rows == 0),
          operation, "work must be float64 [samples, dice_work(classes)]");
  require(is(sums, ElementType::float64, 1, kLossSums), operation, "sums must be float64 [1, 3]");
  if (logits.count() > 0) do_soft_dice(logits, labels, options, work, sums);
}

void Backend::combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) {
  const auto count = static_cast<std::int64_t>(shares.size());
  require(shares.size() <= kMaxLosses && is(parts, ElementType::float64, 1, count * kLossSums), "combine_losses",
          "parts must be float64 [1, losses * 3], of at most 8 losses");
  require(is(sums, ElementType::float64, 1, kLossSums + count), "combine_losses",
          "sums must be float64 [1, 3 + losses]");
  do_combine_losses(parts, shares, sums);
}

void Backend::elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) {
  const char* const operation = "elementwise_forward";
  require(is_activation(x) && is(y, x.type, x.rows, x.columns), operation,
          "x and y must have one shape and one type, the compute type or the narrow type");
  require(same_or_apart(x, y), operation, "y must have memory of its own, or all of that of x");
  if (x.count() > 0) do_elementwise_forward(f, x, y);
}

void Backend::elementwise_backward(const Elementwise& f, const Tensor& read, const Tensor& d_y, const Tensor& d_x) {
  const char* const operation = "elementwise_backward";
  require(is_activation(d_y) && is(d_x, d_y.type, d_y.rows, d_y.columns), operation,
          "d_y and d_x must have one shape and one type, the compute type or the narrow type");
  require(slope_reads(f.function) == SlopeReads::nothing ? !read.present() : is(read, d_y.type, d_y.rows, d_y.columns),
          operation,
          "x or y must have the shape and the type of d_y, and be absent for a function whose slope is constant");
  require(same_or_apart(d_y, d_x), operation, "d_x must have memory of its own, or all of that of d_y");
  require(!read.present() || apart(read, d_x), operation, "d_x must not overlap x or y");
  if (d_y.count() > 0) do_elementwise_backward(f, read, d_y, d_x);
}

void Backend::add(const Tensor& x, const Tensor& to) {
  require(is_activation(x) && is(to, x.type, x.rows, x.columns), "add",
          "x and to must have one shape and one type, the compute type or the narrow type");
  require(x.count() == 0 || x.data != to.data, "add", "to must have memory of its own");
  do_add(x, to);
}

void Backend::sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate) {
  require(is_number(x), "sum_of_squares", "x must have the compute or the master type");
  require(is(out, ElementType::float64, 1, 1), "sum_of_squares", "out must be float64 [1, 1]");
  do_sum_of_squares(x, out, accumulate);
}

void Backend::report_loss(const Tensor& sums, const Tensor& status) {
  require(is(sums, ElementType::float64, 1, sums.columns) && sums.columns >= kLossSums &&
              sums.columns <= kLossSums + static_cast<std::int64_t>(kMaxLosses),
          "report_loss", "sums must be float64 [1, 3 + losses]");
  require(is(status, ElementType::float64, 1, kStepStatusSize), "report_loss",
          "status must be float64 [1, kStepStatusSize]");
  do_report_loss(sums, status);
}

void Backend::add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                              std::span<const UpdateSlice> slices) {
  require(is(parameters, master_type(), parameters.rows, parameters.columns) &&
              is(gradients, master_type(), parameters.rows, parameters.columns),
          "add_l2_gradient", "gradients must have the shape of the parameters and the master type");
  require_slices(slices, parameters, "add_l2_gradient");
  do_add_l2_gradient(parameters, gradients, l2, slices);
}

void Backend::update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging, const Tensor& rule,
                     std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const Tensor& w = arenas.parameters;
  const auto arena = [&](const Tensor& tensor, bool needed) {
    return !needed || is(tensor, master_type(), w.rows, w.columns);
  };
  const bool moments = kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lamb;
  const bool norms = kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
  require(arena(w, true) && arena(arenas.gradients, true), "update",
          "parameters and gradients must have one shape and the master type");
  require(arena(arenas.state1, kind != OptimizerKind::sgd) && arena(arenas.state2, moments), "update",
          "the optimiser's state arenas must have the shape of the parameters");
  require(!norms || is(arenas.norms, ElementType::float64, 1, 2 * static_cast<std::int64_t>(slices.size())), "update",
          "lars and lamb need norms, float64 [1, 2 * slices]");
  require(arena(arenas.average, averaging == Averaging::yes), "update",
          "the average arena must have the shape of the parameters");
  const bool copied = compute_type() != master_type();
  require(copied ? is(arenas.compute_copy, compute_type(), w.rows, w.columns) : !arenas.compute_copy.present(),
          "update", "the compute copy holds the parameters in the compute type where that is another one");
  require(is(rule, ElementType::uint8, 1, sizeof(UpdateRule)), "update", "rule must be uint8 [1, sizeof(UpdateRule)]");
  require(is(gate.non_finite, ElementType::float64, 1, 1) && is(gate.gradient_squares, ElementType::float64, 1, 1),
          "update", "the gate is made of float64 [1, 1]");
  require_slices(slices, w, "update");
  do_update(arenas, kind, averaging, rule, slices, gate);
}

void Backend::cast(const Tensor& in, const Tensor& out) {
  require(is_number(in) && is_number(out) && in.rows == out.rows && in.columns == out.columns, "cast",
          "in and out must have one shape and the compute or the master type");
  require(!is_host() || in.type == out.type, "cast", "a host has one type of numbers on both sides");
  do_cast(in, out);
}

void Backend::copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                           std::int64_t columns) {
  require((is_activation(from) || is(from, ElementType::float32, from.rows, from.columns)) &&
              is(to, from.type, from.rows, to.columns),
          "copy_columns",
          "from and to must have equally many rows and one type: the compute type, the narrow type, or float32");
  const auto has = [&](const Tensor& tensor, std::int64_t first) {
    return first >= 0 && columns > 0 && columns <= tensor.columns - first;
  };
  require(has(from, from_column) && has(to, to_column), "copy_columns", "from and to must have these columns");
  do_copy_columns(from, from_column, to, to_column, columns);
}

void Backend::fill_zero(const Tensor& x) {
  require(is(x, x.type, x.rows, x.columns), "fill_zero", "x must be there");
  do_fill_zero(x);
}

void Backend::write(std::span<const std::byte> host, const Tensor& to) {
  require(host.size() <= 256, "write", "at most 256 bytes");
  require(host.size() == to.bytes() && (to.present() || host.empty()), "write", "as many bytes as the tensor has");
  do_write(host, to);
}

void Backend::read(const Tensor& from, std::span<std::byte> host) {
  require(host.size() == from.bytes() && (from.present() || host.empty()), "read", "as many bytes as the tensor has");
  do_read(from, host);
}

void Backend::repeat(std::span<const std::int64_t>, const std::function<void()>& work) { work(); }

bool Backend::is_activation(const Tensor& x) const noexcept {
  return is(x, compute_type(), x.rows, x.columns) || is(x, narrow_type(), x.rows, x.columns);
}

bool Backend::is_number(const Tensor& x) const noexcept {
  const bool of_gpus = x.type == ElementType::bfloat16 && !is_host();
  return is(x, x.type, x.rows, x.columns) &&
         (x.type == compute_type() || x.type == master_type() || x.type == narrow_type() || of_gpus);
}

void Backend::upload(std::span<const float> host, const Tensor& to) {
  require(is_number(to) && host.size() == static_cast<std::size_t>(to.count()), "upload",
          "the host array must have as many elements as the tensor");
  do_upload(host, to);
}

void Backend::download(const Tensor& from, std::span<float> host) {
  require(is_number(from) && host.size() == static_cast<std::size_t>(from.count()), "download",
          "the host array must have as many elements as the tensor");
  do_download(from, host);
}

double sum_of_squares_now(Backend& backend, const Tensor& x) {
  std::pmr::vector<std::byte> memory(sizeof(double), backend.host_memory());
  const auto give_back = [&](void* data) { backend.memory()->deallocate(data, sizeof(double), 256); };
  const std::unique_ptr<void, decltype(give_back)> sum(backend.memory()->allocate(sizeof(double), 256), give_back);
  const Tensor out{sum.get(), ElementType::float64, 1, 1};
  backend.sum_of_squares(x, out);
  backend.read(out, memory);
  backend.synchronize();
  double result = 0;
  std::memcpy(&result, memory.data(), sizeof result);
  return result;
}

}  // namespace lockstep::model
