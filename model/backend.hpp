/// \file
/// The coarse operations that networks are made of. Each kind of device has one implementation: cpu/ and cuda/ (one
/// GPU). Tests compare both with the simple float64 implementation in tests/model/reference/. Network code uses this
/// class, images() (image_operations.hpp) and sequences() (sequence_operations.hpp), and is the same for all devices.
///
/// Conventions: activations are [batch, features] row-major in compute_type(); weights are [inputs, outputs] row-major.
/// Parameters, their gradients and the optimiser's state are kept in master_type(); GEMMs read parameters in
/// compute_type(). Parameter gradients are written with `=` (Accumulate::no) or `+=` (Accumulate::yes); activation
/// gradients always with `=`. Sums over samples are double and have a fixed order, so repeated calls give equal bits.
/// Nothing here allocates after construction and reserve_stages().
///
/// Operations are enqueued and run in the order of the calls, except those that name a side queue (Lstm::queue). On a
/// CPU an operation is complete when the call returns; a GPU may run it later. Results therefore stay in tensors: sums
/// and flags are float64 scalars in the backend's memory. A caller that needs one on the host calls read() and
/// synchronize().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/device.hpp"
#include "model/image_operations.hpp"
#include "model/operation_types.hpp"
#include "model/product_padding.hpp"
#include "model/sequence_operations.hpp"
#include "model/step_status.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// x * scale + shift, applied when raw samples are converted to activations.
struct InputTransform {
  float scale = 1;
  float shift = 0;
  bool operator==(const InputTransform&) const = default;
};

/// Sums over the rows (samples, or positions of samples) of one batch.
struct LossSums {
  double loss = 0;    ///< classes: nats per row; otherwise: mean over the outputs of a row
  double metric = 0;  ///< classes: correct answers; labels: share of correct ones; numbers: mean absolute error
  double found = 0;   ///< classes, without gradient: rows whose label is among the five greatest logits; labels: share
                      ///< of labels in a row that are 1 and predicted
};
inline constexpr std::int64_t kLossSums = 3;  ///< a tensor of sums: float64 [1, kLossSums] in the order above

/// Factors with which one of several losses enters the common sums. `loss` multiplies its loss, `metric` its metric and
/// found. `accuracy` multiplies its metric, which is then added to found: for classes among losses of numbers.
struct LossShare {
  double loss = 1, metric = 0, accuracy = 0;
};

/// Number of partial sums over the positions of a sample, the same on every device.
inline constexpr std::int64_t kDiceParts = 16;
/// Workspace of Backend::soft_dice, in float64 numbers per sample: for each part two numbers per class and one more;
/// the sample's loss and number of correct answers.
constexpr std::int64_t dice_work(std::int64_t classes) noexcept { return kDiceParts * (2 * classes + 1) + 2; }

/// Cost of an error e = prediction - target.
enum class ErrorLoss {
  squared,   ///< e^2
  absolute,  ///< |e|
  huber,     ///< e^2 / 2 up to |e| = 1, |e| - 1/2 beyond (Huber 1964)
};

/// Label of a row that is ignored: it counts in no sum, and its gradient is 0. Allowed only with weights.
inline constexpr std::int32_t kNoClass = -1;

/// Options of a loss.
struct LossOptions {
  double scale = 1;            ///< factor of the gradient
  bool want_gradient = false;  ///< false: logits or predictions do not change
  float smoothing = 0;         ///< target = (1 - s) label + s / classes for every class (labels: s / 2)
  std::int64_t classes = 0;    ///< number of classes; further columns are padding with gradient 0; 0: no padding
  ErrorLoss of_error = ErrorLoss::squared;  ///< cost of an error, for losses of numbers
  /// float32 [batch, 1]: factor of each row's loss and gradient, but not of its metric; absent: 1 each. Rows with label
  /// kNoClass have weight 0.
  Tensor weights = {};

  std::int64_t classes_of(const Tensor& logits) const noexcept { return classes > 0 ? classes : logits.columns; }
};

enum class OptimizerKind { sgd, momentum, nesterov, adam, adamw, lars, lamb };

/// Numbers of one update. They change from step to step, so they are passed in the backend's memory, as a tensor uint8
/// [1, sizeof(UpdateRule)]. Formulas are in update_rule.hpp.
struct UpdateRule {
  float learning_rate = 0;
  float momentum = 0.9f;                                ///< momentum, nesterov
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;  ///< adam, adamw
  float bias_correction1 = 1, bias_correction2 = 1;     ///< 1 - beta^t, computed in double by the caller
  float weight_decay = 0;         ///< decoupled: w -= learning_rate * weight_decay * w, decayed slices only
  float clip_value = 0;           ///< > 0: clamp each element to [-clip_value, clip_value]
  float average_decay = 0;        ///< average = d * average + (1 - d) * new weight, with this step's d
  float trust = 0.001f;           ///< lars: the trust coefficient
  float statistics_decay = 0.9f;  ///< slices of statistics: w = d * w + (1 - d) * g
  double clip_norm = 0;           ///< > 0: scale the gradient to this norm if its norm is larger
};

/// Range of one parameter in the arenas.
struct UpdateSlice {
  std::size_t offset = 0;
  std::size_t count = 0;
  bool decayed = false;    ///< weight decay, L2 and the ratios of lars and lamb apply
  bool statistic = false;  ///< not trained: moves towards the "gradient" (UpdateRule::statistics_decay)
  float rate_scale = 1;    ///< multiplies the rule's learning rate for the slice
};

/// Arenas of one update, of equal length and layout, in master_type(). State and average are absent if not used.
/// `compute_copy`: the parameters in compute_type(), also written; absent if both types are equal.
struct UpdateArenas {
  Tensor parameters, gradients, state1, state2, average, compute_copy;
  Tensor norms;  ///< lars, lamb: float64 [1, 2 * slices], memory for sums of squares; else empty
};

/// Conditions under which an update is made; float64 [1, 1] each.
struct UpdateGate {
  Tensor non_finite;        ///< StepStatus::non_finite; > 0 (or NaN): no update
  Tensor gradient_squares;  ///< sum of squares of the gradients; not finite: no update
};

/// A batch of samples, in host memory or in memory that operations can read.
struct Batch {
  /// [samples, features]: uint8, float32 or float64 (images as stored, before augmentation), or int32 tokens. With 0
  /// rows the rank still takes part, and the other members are ignored.
  Tensor x = {};
  /// int32 [samples, 1] classes, int32 [samples, context] with tokens, or float32 [samples, outputs] for losses of
  /// numbers and labels; absent if not needed.
  Tensor y = {};
  Tensor keys = {};  ///< uint64 [samples, 1], keys of random draws (randomness.hpp); absent: nothing is random
  /// LossOptions::weights: float32 [samples, 1], or [samples, positions] for masks; absent: 1 each.
  Tensor weights = {};
  /// For networks with recurrent state: index of the first sample's sequence among this rank's sequences. `begins`: the
  /// sequences start here, with zero state.
  std::int64_t first_sequence = 0;
  bool begins = true;

  std::int64_t count() const noexcept { return x.rows; }  ///< samples
};
/// Largest size of each part of a batch, in bytes.
struct StageBytes {
  std::size_t x = 0, y = 0, keys = 0, weights = 0;
};

/// Selects whether an update keeps UpdateArenas::average.
enum class Averaging { no, yes };

/// Virtual functions behind the checked operations of Backend, except those that all hosts share. Used as in
/// image_operations.hpp.
#define LOCKSTEP_OPERATIONS(VOID, BODY)                                                                      \
  VOID do_convert_input(const Tensor&, const InputTransform&, const Tensor&) BODY;                           \
  VOID do_linear_forward(const Tensor&, const Tensor&, const Tensor&, Activation, const Tensor&) BODY;       \
  VOID do_linear_backward(const LinearBackwardOperands&, Activation, Accumulate) BODY;                       \
  VOID do_softmax_cross_entropy(const Tensor&, const Tensor&, const LossOptions&, const Tensor&) BODY;       \
  VOID do_mean_error(const Tensor&, const Tensor&, const LossOptions&, const Tensor&) BODY;                  \
  VOID do_binary_cross_entropy(const Tensor&, const Tensor&, const LossOptions&, const Tensor&) BODY;        \
  VOID do_soft_cross_entropy(const Tensor&, const Tensor&, const LossOptions&, const Tensor&) BODY;          \
  VOID do_soft_dice(const Tensor&, const Tensor&, const LossOptions&, const Tensor&, const Tensor&) BODY;    \
  VOID do_elementwise_forward(const Elementwise&, const Tensor&, const Tensor&) BODY;                        \
  VOID do_elementwise_backward(const Elementwise&, const Tensor&, const Tensor&, const Tensor&) BODY;        \
  VOID do_add(const Tensor&, const Tensor&) BODY;                                                            \
  VOID do_sum_of_squares(const Tensor&, const Tensor&, Accumulate) BODY;                                     \
  VOID do_add_l2_gradient(const Tensor&, const Tensor&, float, std::span<const UpdateSlice>) BODY;           \
  VOID do_update(const UpdateArenas&, OptimizerKind, Averaging, const Tensor&, std::span<const UpdateSlice>, \
                 const UpdateGate&) BODY;                                                                    \
  VOID do_upload(std::span<const float>, const Tensor&) BODY;                                                \
  VOID do_download(const Tensor&, std::span<float>) BODY;

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::string_view name() const noexcept = 0;  ///< "cpu", "cuda"
  virtual std::string description() const = 0;         ///< "cpu: OpenBLAS 0.3.21 SkylakeX, loops x86-64-v4, 1 thread"
  /// Identifies everything besides the inputs that determines the bits of results.
  virtual std::string arithmetic() const { return description(); }
  /// Notes for users about slow fallbacks of operations, one sentence each. Complete once each operation has run.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual ElementType compute_type() const noexcept = 0;  ///< float32, bfloat16 or float64
  virtual ElementType master_type() const noexcept = 0;   ///< float32 or float64
  /// OperationTypes::narrow. Elementwise functions, add(), cast() and sum_of_squares() also accept tensors of this
  /// type.
  virtual ElementType narrow_type() const noexcept { return compute_type(); }
  virtual std::pmr::memory_resource* memory() noexcept = 0;  ///< memory of tensors, 256-byte aligned
  /// Host memory with the fastest copies to and from the device (pinned). Other host memory works, too.
  virtual std::pmr::memory_resource* host_memory() noexcept = 0;
  /// True if operations run on host memory and are complete when their call returns: no copies, no waiting.
  virtual bool is_host() const noexcept = 0;
  /// The main queue (a cudaStream_t), used by all operations without a queue argument; nullptr on a host.
  virtual void* stream() noexcept { return nullptr; }
  /// Makes later work of queue `after` wait for all work enqueued so far to queue `before`. A caller that uses a side
  /// queue makes it wait for the main queue first, and makes the main queue wait for it at the end.
  virtual void order(Queue /*before*/, Queue /*after*/) {}
  /// Multiprocessors that later matrix products may use; initially `all`. `unreserved` leaves
  /// BackendOptions::reserved_processors to concurrent communication. No effect on a host.
  enum class Processors { all, unreserved };
  virtual void use_processors(Processors) noexcept {}

  // ---- data in ----

  /// Reserves memory for at least `slots` batches of at least `bytes`. May be called again while no batch is staged:
  /// the memory grows, and staged batches are lost.
  void reserve_stages(int slots, const StageBytes& bytes);
  /// Starts to copy a batch to slot `slot`, and returns the copy, which later operations can read. A host returns the
  /// batch itself. The host memory must stay unchanged until wait_staged(); on a host, until the operations are done.
  Batch stage(int slot, const Batch& batch);
  /// Marks the operations enqueued so far as the last that read `slot`.
  void release_stage(int slot);
  /// Waits until the device no longer reads the host memory passed to stage().
  virtual void wait_staged() = 0;

  // ---- operations ----

  virtual ImageOperations& images() noexcept = 0;
  virtual SequenceOperations& sequences() noexcept = 0;

  /// out[i] = in[i] * scale + shift; in: uint8, float32 or float64, same shape as out (compute type).
  void convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out);
  /// y[b,o] = act(sum_i x[b,i] w[i,o] + bias[o]); bias may be absent. All are in the compute type; x and y may each be
  /// in the narrow type. With compute type bfloat16, rows of y may be longer than those of w: w counts as padded with
  /// zeros, and bias is as long as a row of y.
  void linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, const Tensor& y);
  /// d_y is overwritten with the gradient before the activation (uses y). d_x may be absent (first layer), and so may
  /// d_w and d_bias (frozen weights). d_w and d_bias are in the master type, the others in the compute type. x, d_x,
  /// and y together with d_y may be in the narrow type. y, d_y and d_bias may have padding as in linear_forward; the
  /// padding of d_y must be zero.
  void linear_backward(const LinearBackwardOperands& operands, Activation activation, Accumulate accumulate);
  /// z = x w + bias, y = gelu(z) as in SequenceOperations::gelu_forward. Some devices fuse both into one kernel. Types
  /// as in linear_forward.
  void linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z, const Tensor& y);
  /// y = added + x w + bias; y shares no memory with the inputs. If fuses_sums(), this is one kernel, which rounds
  /// once.
  void linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added, const Tensor& y);
  /// True if linear_add_forward() is faster than a product followed by an addition.
  virtual bool fuses_sums() const noexcept { return false; }
  /// linear_backward of a layer without activation whose x is gelu(z): d_x becomes the gradient of z, and d_z_sums
  /// (master type [1, inputs], may be absent) = or += its column sums. z and d_x have the type of x.
  void linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z, Accumulate accumulate,
                                    const Tensor& d_z_sums);
  /// With want_gradient, logits [B, C] are overwritten with their gradient * scale. labels int32 [B, 1]: class indices,
  /// or kNoClass. sums += loss, metric and (without gradient) found as in LossSums. Needs one pass of exponentials, for
  /// any C.
  void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                             const Tensor& sums);
  /// The mean of LossOptions::of_error over the outputs. With want_gradient, predictions [B, O] are overwritten with
  /// the gradient (for squared errors 2 (p - t) / O * scale). targets float32 [B, O]. sums as above. In bfloat16, rows
  /// of predictions may have padding after O columns; its gradient is 0.
  void mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options, const Tensor& sums);
  /// Loss of independent labels. With want_gradient, logits [B, L] become (sigmoid - target) / L * scale. targets
  /// float32 [B, L], 0 or 1. sums as above. A logit above 0 predicts the label. Padding as above.
  void binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                            const Tensor& sums);
  /// Cross-entropy with probabilities as targets t. With want_gradient, logits [B, C] become (softmax * sum of t - t) *
  /// scale. t float32 [B, C], at least 0. For the metric, the first greatest target is the correct class. sums and
  /// padding as above.
  void soft_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options, const Tensor& sums);
  /// Soft Dice loss of masks (formulas/losses.hpp). With want_gradient, logits [samples * positions, C] become their
  /// gradient * scale. The loss of a sample counts once for each of its positions, in the sums and in the gradient.
  /// labels int32 [samples * positions, 1]; positions with kNoClass are ignored. work: float64 [samples, dice_work(C)],
  /// overwritten. sums as above, without found. options.weights and smoothing are not used.
  void soft_dice(const Tensor& logits, const Tensor& labels, const LossOptions& options, const Tensor& work,
                 const Tensor& sums);
  /// parts: float64 [1, n * kLossSums], the sums of n losses. sums (float64 [1, kLossSums + n]) += their loss, metric
  /// and found times their shares, followed by the loss of each without its share.
  void combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums);
  /// y[i] = f(x[i]); x and y have one shape, and both the compute type or both the narrow type. y may be x.
  void elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y);
  /// d_x[i] = d_y[i] f'(x[i]). `read` is x, y or absent, as slope_reads() says. d_x may be d_y.
  void elementwise_backward(const Elementwise& f, const Tensor& read, const Tensor& d_y, const Tensor& d_x);
  /// to += x; both in the compute type, or both in the narrow type.
  void add(const Tensor& x, const Tensor& to);
  /// out (float64 [1, 1]) = or += sum of squares of the elements, added in double in a fixed order. x: any
  /// floating-point type of the backend.
  void sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate = Accumulate::no);
  /// Copies loss and metric from `sums` (LossSums) to the status, and the losses that follow them, if any. non_finite
  /// += 1 if the loss is not finite. status: float64 [1, kStepStatusSize].
  void report_loss(const Tensor& sums, const Tensor& status);
  /// gradients += l2 * parameters over the decayed slices; both in the master type.
  void add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                       std::span<const UpdateSlice> slices);
  /// One fused pass over the slices: clip, decay, optimiser, average, compute_copy. `slices` must be the same in every
  /// call (a backend may keep a copy). The gradients may be overwritten.
  void update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging, const Tensor& rule,
              std::span<const UpdateSlice> slices, const UpdateGate& gate);
  /// out[i] = in[i], rounded to nearest even: float32 to bfloat16 or back; a copy if the types are equal. On a host the
  /// types must be equal.
  void cast(const Tensor& in, const Tensor& out);
  void fill_zero(const Tensor& x);
  /// to[r, to_column + c] = from[r, from_column + c] for `columns` columns of each row. Both have the same number of
  /// rows and the same type: compute type, narrow type or float32.
  void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                    std::int64_t columns);

  // ---- small transfers to and from the host, enqueued like operations ----

  /// Copies `host` at once, and writes it to `to` (same size) in the order of the operations. At most 256 bytes.
  void write(std::span<const std::byte> host, const Tensor& to);
  /// Copies `from` to `host` (same size, in host_memory()) in the order of the operations. Complete after
  /// synchronize().
  void read(const Tensor& from, std::span<std::byte> host);

  // ---- waiting ----

  /// Waits until all operations are done. Throws DeviceError if the device failed.
  virtual void synchronize() = 0;
  /// Copy between host and backend memory, and convert between float32 and the tensor's type. Both synchronise.
  void upload(std::span<const float> host, const Tensor& to);
  void download(const Tensor& from, std::span<float> host);

  /// Runs `work`, which enqueues operations on this backend's stream (and may fork from it and join it), never waits
  /// and depends only on `key`. A backend that can record work records it at the second call with the same key, and
  /// replays it in later calls (a CUDA graph). Other backends call `work` each time. Different work on one backend
  /// needs different keys.
  virtual void repeat(std::span<const std::int64_t> key, const std::function<void()>& work);
  /// Deletes the recordings of repeat(). Call it before memory that recorded work uses is released.
  virtual void forget_recordings() {}
  /// Measure time on the device. device_seconds() returns the time between the two marks, which the device must have
  /// passed; negative if the host's clock can time the backend's operations.
  virtual void mark_begin() {}
  virtual void mark_end() {}
  virtual double device_seconds() { return -1; }

 protected:
  Backend() = default;

  /// Defaults for devices without a fused kernel: separate calls.
  virtual void do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                                      const Tensor& y);
  virtual void do_linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                                     const Tensor& y);
  virtual void do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z,
                                               Accumulate accumulate, const Tensor& d_z_sums);

 private:
  virtual void do_reserve_stages(int slots, const StageBytes& bytes) = 0;
  virtual Batch do_stage(int slot, const Batch& batch) = 0;
  virtual void do_release_stage(int slot) = 0;
  LOCKSTEP_OPERATIONS(virtual void, { missing_operation(__func__); })
  virtual void do_combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) = 0;
  virtual void do_report_loss(const Tensor& sums, const Tensor& status) = 0;
  virtual void do_cast(const Tensor& in, const Tensor& out) = 0;
  virtual void do_fill_zero(const Tensor& x) = 0;
  virtual void do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                               std::int64_t columns) = 0;
  virtual void do_write(std::span<const std::byte> host, const Tensor& to) = 0;
  virtual void do_read(const Tensor& from, std::span<std::byte> host) = 0;

  /// True for the compute type and the narrow type.
  bool is_activation(const Tensor& x) const noexcept;
  bool is_number(const Tensor& x) const noexcept;

  int stages_ = 0;
  StageBytes stage_bytes_;
};

/// Returns the sum of squares on the host; synchronises. For callers that may wait (messages, evaluations, tests).
double sum_of_squares_now(Backend& backend, const Tensor& x);

struct BackendOptions {
  int threads = 1;                        ///< cpu
  int device = 0;                         ///< cuda: index of the device in CUDA's numbering
  Bf16Unit bf16_unit = Bf16Unit::none;    ///< cpu: unit of bf16 products; must be usable (obstacle_to())
  Precision precision = Precision::fp32;  ///< cuda
  bool graphs = true;                     ///< cuda: record and replay in repeat()
  bool tune = false;  ///< cuda: prefer speed to repeatable bits: time a few algorithms for products, add attention's
                      ///< gradients in any order
  bool side_streams = true;                    ///< cuda: side queues have streams of their own
  bool attention_library = true;               ///< cuda: attention by cuDNN if it has a deterministic plan
  double worth_padding = kFlopsPerCopiedByte;  ///< cuda: FLOPs per byte above which products use padded copies
  int reserved_processors = 0;  ///< cuda: streaming multiprocessors that use_processors() leaves to communication
};
/// Makes a backend. name: "cpu" or "cuda". Throws std::invalid_argument (unknown name), DeviceError (no such device, or
/// built without CUDA).
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options = {});

}  // namespace lockstep::model
