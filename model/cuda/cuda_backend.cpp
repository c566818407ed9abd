#include "model/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/device_workspaces.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/make_cuda_backend.hpp"

namespace lockstep::model {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(options);
}

namespace cuda {

namespace {

/// Kernels for Hopper split sums over more blocks.
std::size_t workspace_for(const Device& device) {
  return device.major >= 9 ? kProductWorkspace : kProductWorkspace / 2;
}

/// Returns the number of multiprocessors that products may use beside communication; 0: all.
int unreserved_processors(const BackendOptions& options, const Device& device) {
  const int reserved = options.reserved_processors;
  if (reserved < 0 || reserved >= device.processors) {
    throw std::invalid_argument(fmt::format("{} streaming multiprocessors cannot be left to communication: {} has {}",
                                            reserved, device.name, device.processors));
  }
  return reserved == 0 ? 0 : device.processors - reserved;
}

/// True only on Hopper. On earlier GPUs our own kernels are as fast. On Blackwell, cuDNN's backward pass is not
/// deterministic with the rule used here to choose an engine.
bool takes_attention_library(const BackendOptions& options, const Device& device) {
  return options.attention_library && options.precision == Precision::bf16 && device.major == 9;
}

}  // namespace

Device CudaBackend::choose(const BackendOptions& options) {
  const DeviceSurvey survey = survey_devices();
  if (survey.devices.empty()) throw DeviceError("no GPU can be used: " + survey.obstacle);
  const auto device = std::ranges::find(survey.devices, options.device, &Device::index);
  if (device == survey.devices.end()) {
    std::string there;
    for (const Device& each : survey.devices) {
      there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", each.index, each.name);
    }
    throw DeviceError(
        fmt::format("there is no GPU {} here that this program can use; there are: {}", options.device, there));
  }
  if (options.precision != Precision::fp32 && device->major < 8) {
    throw std::invalid_argument(fmt::format("{} (compute capability {}.{}) has no units for {}: take fp32",
                                            device->name, device->major, device->minor, name_of(options.precision)));
  }
  check(cudaSetDevice(device->index), "opening it");
  check(cudaFree(nullptr), "opening it");  // creates the context
  return *device;
}

CudaBackend::CudaBackend(const BackendOptions& options) : CudaBackend(options, choose(options)) {}

CudaBackend::CudaBackend(const BackendOptions& options, Device device)
    : device_(std::move(device)),
      precision_(options.precision),
      memory_(device_.index),
      pinned_(device_.index),
      stream_(make_stream()),
      queues_(stream_.get(), options.side_streams),
      began_(make_timing_event()),
      ended_(make_timing_event()),
      matmul_(memory_,
              {.precision = precision_,
               .workspace = workspace_for(device_),
               .tuning = options.tune ? Tuning::timed : Tuning::first,
               .padding = {.worth = options.worth_padding, .forget_recordings = [this] { forget_recordings(); }}}),
      unreserved_processors_(unreserved_processors(options, device_)),
      scratch_(memory_, scratch_bytes(std::numeric_limits<std::int64_t>::max())),
      slices_(memory_, stream_.get()),
      writes_(pinned_),
      recorder_(stream_.get(), options.graphs),
      images_({.stream = stream_.get(),
               .matmul = matmul_,
               .memory = memory_,
               .scratch = scratch(),
               .types = {.compute = compute_type(), .master = master_type()},
               .tuning = options.tune ? Tuning::timed : Tuning::first,
               .forget_recordings = [this] { forget_recordings(); }}),
      sequences_({.stream = stream_.get(),
                  .side_streams = queues_.side_streams(),
                  .matmul = matmul_,
                  .memory = memory_,
                  .scratch = scratch()},
                 {.compute = compute_type(), .master = master_type()},
                 takes_attention_library(options, device_)
                     ? make_attention_library(memory_, [this] { forget_recordings(); }, {.in_any_order = options.tune})
                     : nullptr) {}

CudaBackend::~CudaBackend() {
  // Work in the memory that is about to be released must be complete. After a device failure, both calls return it at
  // once.
  static_cast<void>(cudaSetDevice(device_.index));
  static_cast<void>(cudaDeviceSynchronize());
}

std::string CudaBackend::description() const {
  const int unplanned = matmul_.unplanned();
  return fmt::format("cuda: {} ({}, {}), {}, cuBLASLt {}, {}, {}, {}{}", device_.name, device_.pci, device_.uuid,
                     name_of(precision_), Matmul::version(), images_.description(), sequences_.description(),
                     recorder_.enabled() ? "graphs" : "no graphs",
                     unplanned == 0 ? "" : fmt::format(", {} matrix shapes that cuBLASLt has nothing for", unplanned));
}

std::string CudaBackend::arithmetic() const {
  return fmt::format("cuda: {} ({}.{}, {} processors), {}, cuBLASLt {}, {}, {}", device_.name, device_.major,
                     device_.minor, device_.processors, name_of(precision_), Matmul::version(), images_.description(),
                     sequences_.description());
}

ElementType CudaBackend::compute_type() const noexcept {
  return precision_ == Precision::bf16 ? ElementType::bfloat16 : ElementType::float32;
}

void CudaBackend::use_processors(Processors processors) noexcept {
  matmul_.use_processors(processors == Processors::unreserved ? unreserved_processors_ : 0);
}

// ---- data in ----

void CudaBackend::do_reserve_stages(int slots, const StageBytes& bytes) {
  forget_recordings();  // recordings use the slots that are released here
  staging_.emplace(memory_, slots, bytes);
}

Batch CudaBackend::do_stage(int slot, const Batch& batch) {
  assert(!recorder_.recording());
  return staging_->stage(slot, batch, stream_.get());
}

void CudaBackend::do_release_stage(int slot) {
  assert(!recorder_.recording());
  staging_->release(slot, stream_.get());
}

void CudaBackend::wait_staged() {
  if (staging_) staging_->wait();
}

// ---- operations; an empty tensor launches nothing ----

void CudaBackend::do_convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) {
  if (out.count() > 0) cuda::convert_input(stream_.get(), in, transform, out);
}

void CudaBackend::do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                    const Tensor& y) {
  if (y.count() == 0) return;
  const bool biased = matmul_.multiply_with_bias(stream_.get(), {x}, {w}, bias, y);
  if (!biased) matmul_.multiply(stream_.get(), {x}, {w}, Accumulate::no, y);
  const Tensor missing = biased ? Tensor{} : bias;
  if (missing.present() || activation != Activation::none) {
    cuda::add_bias_and_activate(stream_.get(), y, missing, activation);
  }
}

void CudaBackend::do_linear_backward(const LinearBackwardOperands& operands, Activation activation,
                                     Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  if (d_y.count() == 0) {  // no samples: sums are zero
    if (accumulate == Accumulate::yes) return;
    do_fill_zero(d_w);
    return do_fill_zero(d_bias);
  }
  if (activation != Activation::none || d_bias.present()) {
    cuda::activation_gradient(stream_.get(), activation, y, d_y, accumulate, d_bias, scratch());
  }
  if (d_w.present()) matmul_.multiply(stream_.get(), {x, Matmul::Transposed::yes}, {d_y}, accumulate, d_w);
  if (d_x.present()) {
    matmul_.multiply(stream_.get(), {d_y}, {w, Matmul::Transposed::yes}, Accumulate::no, d_x);
  }
}

void CudaBackend::do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                                         const Tensor& y) {
  if (fuses_epilogues() && matmul_.multiply_with_gelu(stream_.get(), {x}, {w}, bias, z, y)) return;
  Backend::do_linear_gelu_forward(x, w, bias, z, y);
}

void CudaBackend::do_linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                                        const Tensor& y) {
  if (fuses_sums() && matmul_.multiply_with_sum(stream_.get(), {x}, {w}, bias, added, y)) return;
  Backend::do_linear_add_forward(x, w, bias, added, y);
}

void CudaBackend::do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z,
                                                  Accumulate accumulate, const Tensor& d_z_sums) {
  const Tensor& d_z = operands.d_x;
  const bool fused = fuses_epilogues() && matmul_.multiply_through_gelu(stream_.get(), {operands.d_y},
                                                                        {operands.w, Matmul::Transposed::yes}, z, d_z);
  if (!fused || d_z.count() == 0) return Backend::do_linear_backward_through_gelu(operands, z, accumulate, d_z_sums);
  LinearBackwardOperands others = operands;
  others.d_x = {};
  do_linear_backward(others, Activation::none, accumulate);
  if (!d_z_sums.present()) return;
  cuda::activation_gradient(stream_.get(), Activation::none, {}, d_z, accumulate, d_z_sums, scratch());
}

void CudaBackend::do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                           const Tensor& sums) {
  if (logits.count() == 0) return;
  cuda::softmax_cross_entropy(stream_.get(), logits, labels, options, sums, scratch(), device_.shared_bytes);
}

void CudaBackend::do_mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                                const Tensor& sums) {
  if (predictions.count() == 0) return;
  cuda::mean_error(stream_.get(), predictions, targets, options, sums, scratch());
}

void CudaBackend::do_binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                          const Tensor& sums) {
  if (logits.count() == 0) return;
  cuda::binary_cross_entropy(stream_.get(), logits, targets, options, sums, scratch());
}

void CudaBackend::do_soft_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                                        const Tensor& sums) {
  cuda::soft_cross_entropy(stream_.get(), logits, targets, options, sums, scratch());
}

void CudaBackend::do_soft_dice(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                               const Tensor& work, const Tensor& sums) {
  cuda::soft_dice(stream_.get(), logits, labels, options, work, sums);
}

void CudaBackend::do_elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) {
  cuda::apply(stream_.get(), f, x, y);
}

void CudaBackend::do_elementwise_backward(const Elementwise& f, const Tensor& read, const Tensor& d_y,
                                          const Tensor& d_x) {
  cuda::apply_slope(stream_.get(), f, read, d_y, d_x);
}

void CudaBackend::do_add(const Tensor& x, const Tensor& to) {
  if (to.count() > 0) cuda::add(stream_.get(), x, to);
}

void CudaBackend::do_sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate) {
  if (x.count() > 0) return cuda::sum_of_squares(stream_.get(), x, out, accumulate, scratch());
  if (accumulate == Accumulate::no) do_fill_zero(out);
}

void CudaBackend::do_combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) {
  cuda::combine_losses(stream_.get(), parts, shares, sums);
}

void CudaBackend::do_report_loss(const Tensor& sums, const Tensor& status) {
  cuda::report_loss(stream_.get(), sums, status);
}

void CudaBackend::do_add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                                     std::span<const UpdateSlice> slices) {
  const UpdateChunks chunks = slices_.chunks(slices, recorder_.recording());
  if (chunks.count > 0) cuda::add_l2_gradient(stream_.get(), parameters, gradients, l2, chunks);
}

void CudaBackend::do_update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging, const Tensor& rule,
                            std::span<const UpdateSlice> slices, const UpdateGate& gate) {
  const UpdateChunks chunks = slices_.chunks(slices, recorder_.recording());
  if (chunks.count > 0) cuda::update(stream_.get(), arenas, kind, averaging, rule, chunks, gate);
}

void CudaBackend::do_cast(const Tensor& in, const Tensor& out) {
  if (out.count() > 0) cuda::cast(stream_.get(), in, out);
}

void CudaBackend::do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to,
                                  std::int64_t to_column, std::int64_t columns) {
  if (from.rows == 0) return;
  const std::size_t size = size_of(from.type);
  const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * size; };
  check(cudaMemcpy2DAsync(static_cast<std::byte*>(to.data) + bytes(to_column), bytes(to.columns),
                          static_cast<const std::byte*>(from.data) + bytes(from_column), bytes(from.columns),
                          bytes(columns), static_cast<std::size_t>(from.rows), cudaMemcpyDeviceToDevice, stream_.get()),
        "copying columns");
}

void CudaBackend::do_fill_zero(const Tensor& x) {
  if (x.count() > 0) check(cudaMemsetAsync(x.data, 0, x.bytes(), stream_.get()), "clearing memory");
}

// ---- small transfers to and from the host ----

void CudaBackend::do_write(std::span<const std::byte> host, const Tensor& to) {
  assert(!recorder_.recording());
  writes_.write(host, to.data, stream_.get());
}

void CudaBackend::do_read(const Tensor& from, std::span<std::byte> host) {
  if (host.empty()) return;
  check(cudaMemcpyAsync(host.data(), from.data, host.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "reading a result");
}

// ---- waiting ----

void CudaBackend::synchronize() {
  assert(!recorder_.recording());
  check(cudaStreamSynchronize(stream_.get()), "waiting for its work");
}

void CudaBackend::do_upload(std::span<const float> host, const Tensor& to) {
  std::vector<std::uint16_t> rounded;
  const void* from = host.data();
  if (to.type == ElementType::bfloat16) {
    rounded.resize(host.size());
    std::ranges::transform(host, rounded.begin(), [](float v) { return formulas::bfloat16_bits(v); });
    from = rounded.data();
  }
  if (!host.empty()) {
    check(cudaMemcpyAsync(to.data, from, to.bytes(), cudaMemcpyHostToDevice, stream_.get()), "uploading");
  }
  synchronize();
}

void CudaBackend::do_download(const Tensor& from, std::span<float> host) {
  std::vector<std::uint16_t> bits(from.type == ElementType::bfloat16 ? host.size() : 0);
  void* to = bits.empty() ? static_cast<void*>(host.data()) : bits.data();
  if (!host.empty()) {
    check(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, stream_.get()), "downloading");
  }
  synchronize();
  std::ranges::transform(bits, host.begin(), [](std::uint16_t v) { return formulas::from_bfloat16_bits(v); });
}

void CudaBackend::repeat(std::span<const std::int64_t> key, const std::function<void()>& work) {
  recorder_.repeat(key, work);
}

void CudaBackend::forget_recordings() {
  queues_.drain();
  recorder_.forget();
}

void CudaBackend::mark_begin() {
  assert(!recorder_.recording());
  check(cudaEventRecord(began_.get(), stream_.get()), "taking the time");
  has_begun_ = true;
  has_ended_ = false;
}

void CudaBackend::mark_end() {
  assert(!recorder_.recording());
  check(cudaEventRecord(ended_.get(), stream_.get()), "taking the time");
  has_ended_ = true;
}

double CudaBackend::device_seconds() {
  if (!has_begun_ || !has_ended_) return -1;
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, began_.get(), ended_.get()), "taking the time");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace cuda

}  // namespace lockstep::model
