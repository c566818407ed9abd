#include "model/backend.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

void require(bool condition, const char* operation, const char* rule) {
  if (!condition) throw std::invalid_argument(fmt::format("{}: {}", operation, rule));
}

bool present(const Tensor& tensor) { return tensor.data != nullptr; }

bool is(const Tensor& tensor, ElementType type, std::int64_t rows, std::int64_t columns) {
  return tensor.type == type && tensor.rows == rows && tensor.columns == columns &&
         (present(tensor) || tensor.count() == 0);
}

void require_slices(std::span<const UpdateSlice> slices, const Tensor& arena, const char* operation) {
  for (const UpdateSlice& slice : slices) {
    const auto elements = static_cast<std::size_t>(arena.count());
    require(slice.offset <= elements && slice.count <= elements - slice.offset, operation,
            "a slice reaches beyond the arena");
  }
}

}  // namespace

void Backend::reserve_stages(int slots, std::size_t x_bytes, std::size_t y_bytes) {
  require(slots > 0, "reserve_stages", "at least one slot");
  if (slots <= stages_ && x_bytes <= stage_x_bytes_ && y_bytes <= stage_y_bytes_) return;
  stages_ = std::max(slots, stages_);
  stage_x_bytes_ = std::max(x_bytes, stage_x_bytes_);
  stage_y_bytes_ = std::max(y_bytes, stage_y_bytes_);
  do_reserve_stages(stages_, stage_x_bytes_, stage_y_bytes_);
}

StagedBatch Backend::stage(int slot, const Tensor& x, const Tensor& y) {
  const auto bytes = [](const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.count()) * size_of(tensor.type);
  };
  require(slot >= 0 && slot < stages_, "stage", "no such slot: reserve_stages comes first");
  require(is(x, x.type, x.rows, x.columns) && is(y, y.type, x.rows, y.columns), "stage",
          "x and y must have one number of rows and be there");
  require(bytes(x) <= stage_x_bytes_ && bytes(y) <= stage_y_bytes_, "stage", "the batch is larger than the slot");
  return do_stage(slot, x, y);
}

void Backend::release_stage(int slot) {
  require(slot >= 0 && slot < stages_, "release_stage", "no such slot");
  do_release_stage(slot);
}

void Backend::convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  require(in.type != ElementType::int32, "convert_input", "samples must be uint8, float32 or float64");
  require(is(in, in.type, in.rows, in.columns) && is(out, compute_type(), in.rows, in.columns), "convert_input",
          "out must have the shape of in and the compute type");
  do_convert_input(in, transform, out);
}

void Backend::linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                             const Tensor& y) {
  const ElementType type = compute_type();
  require(is(x, type, x.rows, w.rows), "linear_forward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_forward",
          "w must be [inputs, outputs] in the compute type");
  require(!present(bias) || is(bias, type, 1, w.columns), "linear_forward", "bias must be [1, outputs]");
  require(is(y, type, x.rows, w.columns), "linear_forward", "y must be [batch, outputs] in the compute type");
  do_linear_forward(x, w, bias, activation, y);
}

void Backend::linear_backward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& d_y,
                              Activation activation, Accumulate accumulate, const Tensor& d_w, const Tensor& d_bias,
                              const Tensor& d_x) {
  const ElementType type = compute_type();
  require(is(x, type, x.rows, w.rows), "linear_backward", "x must be [batch, inputs] in the compute type");
  require(is(w, type, w.rows, w.columns) && w.rows > 0 && w.columns > 0, "linear_backward",
          "w must be [inputs, outputs] in the compute type");
  require(is(d_y, type, x.rows, w.columns), "linear_backward", "d_y must be [batch, outputs] in the compute type");
  require(activation == Activation::none || is(y, type, x.rows, w.columns), "linear_backward",
          "y must be [batch, outputs] where there is an activation");
  require(is(d_w, master_type(), w.rows, w.columns), "linear_backward", "d_w must have the shape of w");
  require(!present(d_bias) || is(d_bias, master_type(), 1, w.columns), "linear_backward",
          "d_bias must be [1, outputs]");
  require(!present(d_x) || is(d_x, type, x.rows, x.columns), "linear_backward", "d_x must have the shape of x");
  require(d_x.count() == 0 || d_x.data != x.data, "linear_backward", "d_x must have memory of its own");
  do_linear_backward(x, w, y, d_y, activation, accumulate, d_w, d_bias, d_x);
}

void Backend::softmax_cross_entropy(const Tensor& logits, const Tensor& labels, double scale, bool want_gradient,
                                    const Tensor& sums) {
  require(is(logits, compute_type(), logits.rows, logits.columns) && logits.columns > 0, "softmax_cross_entropy",
          "logits must be [batch, classes] in the compute type");
  require(is(labels, ElementType::int32, logits.rows, 1), "softmax_cross_entropy", "labels must be int32 [batch, 1]");
  require(is(sums, ElementType::float64, 1, 2), "softmax_cross_entropy", "sums must be float64 [1, 2]");
  do_softmax_cross_entropy(logits, labels, scale, want_gradient, sums);
}

void Backend::mean_squared_error(const Tensor& predictions, const Tensor& targets, double scale, bool want_gradient,
                                 const Tensor& sums) {
  require(is(predictions, compute_type(), predictions.rows, predictions.columns) && predictions.columns > 0,
          "mean_squared_error", "predictions must be [batch, outputs] in the compute type");
  require(is(targets, ElementType::float32, predictions.rows, predictions.columns), "mean_squared_error",
          "targets must be float32 with the shape of the predictions");
  require(is(sums, ElementType::float64, 1, 2), "mean_squared_error", "sums must be float64 [1, 2]");
  do_mean_squared_error(predictions, targets, scale, want_gradient, sums);
}

void Backend::sum_of_squares(const Tensor& x, const Tensor& out) {
  require(is_number(x), "sum_of_squares", "x must have the compute or the master type");
  require(is(out, ElementType::float64, 1, 1), "sum_of_squares", "out must be float64 [1, 1]");
  do_sum_of_squares(x, out);
}

void Backend::tally(const Tensor& sums, const Tensor& ballot) {
  require(is(sums, ElementType::float64, 1, 2), "tally", "sums must be float64 [1, 2]");
  require(is(ballot, ElementType::float64, 1, ballot.columns) && ballot.columns >= 3, "tally",
          "ballot must be float64 [1, 3 or more]");
  do_tally(sums, ballot);
}

void Backend::add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                              std::span<const UpdateSlice> slices) {
  require(is(parameters, master_type(), parameters.rows, parameters.columns) &&
              is(gradients, master_type(), parameters.rows, parameters.columns),
          "add_l2_gradient", "gradients must have the shape of the parameters and the master type");
  require_slices(slices, parameters, "add_l2_gradient");
  do_add_l2_gradient(parameters, gradients, l2, slices);
}

void Backend::update(const UpdateArenas& arenas, OptimizerKind kind, bool averaging, const Tensor& rule,
                     std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const Tensor& w = arenas.parameters;
  const auto arena = [&](const Tensor& tensor, bool needed) {
    return !needed || is(tensor, master_type(), w.rows, w.columns);
  };
  const bool moments = kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
  require(arena(w, true) && arena(arenas.gradients, true), "update",
          "parameters and gradients must have one shape and the master type");
  require(arena(arenas.state1, kind != OptimizerKind::sgd) && arena(arenas.state2, moments), "update",
          "the optimiser's state arenas must have the shape of the parameters");
  require(arena(arenas.average, averaging), "update", "the average arena must have the shape of the parameters");
  const bool shadowed = compute_type() != master_type();
  require(shadowed ? is(arenas.shadow, compute_type(), w.rows, w.columns) : !present(arenas.shadow), "update",
          "the shadow holds the parameters in the compute type where that is another one");
  require(is(rule, ElementType::uint8, 1, sizeof(UpdateRule)), "update", "rule must be uint8 [1, sizeof(UpdateRule)]");
  require(is(gate.obstacles, ElementType::float64, 1, 1) && is(gate.gradient_squares, ElementType::float64, 1, 1),
          "update", "the gate is made of float64 [1, 1]");
  require_slices(slices, w, "update");
  do_update(arenas, kind, averaging, rule, slices, gate);
}

void Backend::cast(const Tensor& in, const Tensor& out) {
  require(is_number(in) && is_number(out) && in.rows == out.rows && in.columns == out.columns, "cast",
          "in and out must have one shape and the compute or the master type");
  do_cast(in, out);
}

void Backend::fill_zero(const Tensor& x) {
  require(is(x, x.type, x.rows, x.columns), "fill_zero", "x must be there");
  do_fill_zero(x);
}

void Backend::write(std::span<const std::byte> host, const Tensor& to) {
  require(host.size() <= 256, "write", "at most 256 bytes");
  require(host.size() == static_cast<std::size_t>(to.count()) * size_of(to.type) && (present(to) || host.empty()),
          "write", "as many bytes as the tensor has");
  do_write(host, to);
}

void Backend::read(const Tensor& from, std::span<std::byte> host) {
  require(host.size() == static_cast<std::size_t>(from.count()) * size_of(from.type) && (present(from) || host.empty()),
          "read", "as many bytes as the tensor has");
  do_read(from, host);
}

void Backend::repeat(std::span<const std::int64_t>, const std::function<void()>& work) { work(); }

bool Backend::is_number(const Tensor& x) const noexcept {
  const bool of_gpus = x.type == ElementType::bfloat16 && !is_host();
  return is(x, x.type, x.rows, x.columns) && (x.type == compute_type() || x.type == master_type() || of_gpus);
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
