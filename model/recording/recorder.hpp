/// \file
/// The backend that computes nothing and records its operations; internal to recording.
///
/// A value is the content of some memory at the time an operation read it, so operands are found by their addresses.
/// Each write ends the values that it overlaps: an operation that works in place gives its memory a new value.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "model/host_backend.hpp"
#include "model/recording/recording.hpp"

namespace lockstep::model {

class OperationRecorder final : public HostBackend {
 public:
  OperationRecorder();

  Recording recording;

  /// The value in the tensor's memory. Throws std::logic_error if nothing has been written there.
  ValueNumber read(const Tensor& tensor) const;
  ValueNumber read_if_present(const Tensor& tensor) const { return tensor.present() ? read(tensor) : kNoValue; }
  /// Defines a new value in the tensor's memory.
  ValueNumber define(const Tensor& tensor, RecordedValue value);
  /// Records an operation whose results lie in `outputs`, which may overlap each other.
  void record(const RecordedKind& kind, std::vector<ValueNumber> inputs, std::span<const Tensor> outputs);
  void record(const RecordedKind& kind, std::vector<ValueNumber> inputs, const Tensor& output) {
    record(kind, std::move(inputs), std::span(&output, 1));
  }

  std::string_view name() const noexcept override { return "recorder"; }
  std::string description() const override { return "recorder: computes nothing"; }
  ElementType compute_type() const noexcept override { return ElementType::float32; }
  ElementType master_type() const noexcept override { return ElementType::float32; }
  std::pmr::memory_resource* memory() noexcept override { return std::pmr::new_delete_resource(); }
  ImageOperations& images() noexcept override { return images_; }
  SequenceOperations& sequences() noexcept override { return sequences_; }

 private:
  class Images final : public ImageOperations {
   public:
    explicit Images(OperationRecorder& recorder)
        : ImageOperations({ElementType::float32, ElementType::float32}), recorder_(recorder) {}

   private:
    void do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                                Activation activation, const Tensor& y) override;
    void do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) override;
    void do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) override;
    void do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                           const Tensor& y) override;
    void do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                              const Tensor& y) override;
    void do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) override;

    OperationRecorder& recorder_;
  };

  class Sequences final : public SequenceOperations {
   public:
    explicit Sequences(OperationRecorder& recorder)
        : SequenceOperations({ElementType::float32, ElementType::float32}), recorder_(recorder) {}

   private:
    void do_to_time_major(const Tensor& tokens, const Tensor& out) override;
    void do_embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                              const Tensor& y) override;
    void do_project_forward(const Tensor& x, const Tensor& table, const Tensor& y) override;
    void do_layer_norm_forward(const LayerNormForwardOperands& operands) override;
    void do_gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y) override;
    void do_attention_forward(const Attention& shape, const AttentionForwardOperands& operands) override;
    void do_lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) override;

    OperationRecorder& recorder_;
  };

  void do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                         const Tensor& y) override;
  void do_elementwise_forward(const Elementwise& f, const Tensor& x, const Tensor& y) override;
  void do_add(const Tensor& x, const Tensor& to) override;
  void do_cast(const Tensor& in, const Tensor& out) override;
  void do_fill_zero(const Tensor&) override { missing_operation(__func__); }
  void do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                       std::int64_t columns) override;

  /// A range of memory and its value.
  struct Held {
    const std::byte* begin;
    std::size_t bytes;
    ValueNumber value;
  };
  void end_overlapped(const Tensor& tensor);
  void hold(const Tensor& tensor, ValueNumber value);

  std::vector<Held> held_;
  std::vector<ValueNumber> joined_;  ///< operands so far of a concatenation
  recorded::Concatenate joining_;
  std::map<ValueNumber, ValueNumber> last_rows_;  ///< LSTM of one step: from all its rows to the last ones
  Images images_;
  Sequences sequences_;
};

}  // namespace lockstep::model
