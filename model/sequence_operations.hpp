/// \file
/// Operations on sequences: tokens, embeddings, layer norm, attention, recurrence, dropout. A tensor of activations has
/// one row per position of a sample; RowOrder (randomness.hpp) defines the order of rows.
///
/// The conventions of backend.hpp hold: operations are enqueued; parameter gradients are written or added, in the
/// master type; activation gradients are written, except where noted; sums have a fixed order. The public functions
/// check all shapes. Every operation accepts an empty batch.
#pragma once

#include <cstdint>

#include "model/operation_types.hpp"
#include "model/randomness.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// Self-attention over samples of `context` positions (sample-major rows): position i attends to 0 ... i, or to all
/// positions if it is not causal. Each head computes softmax(q k' / sqrt(head_size)) v (Vaswani et al. 2017). A row of
/// the joint projection is [query | key | value], each [heads, head_size].
struct Attention {
  std::int64_t context = 0, heads = 0, head_size = 0;
  std::int64_t width() const noexcept { return heads * head_size; }
  /// Dropout of the probabilities after the softmax. The element (head h, query i, key j) is number (h * context + i) *
  /// context + j of its sample.
  Dropout dropout = {};
  /// First query to compute; y has only the rows from it on. > 0 only for one sample, in forward, on a host.
  std::int64_t first = 0;
  bool causal = true;
  /// Number of keys that a query sees without an AttentionMask: the first keys.
  std::int64_t keys_of(std::int64_t query) const noexcept { return causal ? query + 1 : context; }
};

/// Keys that attention ignores, besides those after a causal query.
struct AttentionMask {
  /// int32 [samples * context, 1], for causal attention: each query's position in its document
  /// (SequenceOperations::places_in_documents). A query sees no key before its document. May be absent.
  Tensor places = {};
  /// int32 [samples, 1]: keys from this position on are padding. May be absent.
  Tensor lengths = {};
  bool present() const noexcept { return places.present() || lengths.present(); }
};

/// Consecutive documents in a stream of tokens. Each begins with the token `separator`.
struct Documents {
  std::int64_t separator = 0;
  /// time_major: rows are positions, and the first document continues that of the previous batch.
  RowOrder order = RowOrder::sample_major;
  /// Position of the first token. > 0 only for one sample, on a host.
  std::int64_t first = 0;
};

/// Series of up to `steps` steps. Each has its own length; padding follows.
struct PaddedSeries {
  enum class Pool { mean, max, last };
  std::int64_t steps = 0;
  Pool pool = Pool::mean;
};
/// Rows that padded_rows() marks. inside: rows that are not padding, in sample-major order. behind_the_last: all rows
/// but that of each series' last step, in time-major order from the last step to the first.
enum class PaddedRows { inside, behind_the_last };

/// One layer of long short-term memory (Hochreiter & Schmidhuber 1997, with forget gates) over `steps` steps of
/// `sequences` samples, time-major rows (row = step * sequences + sequence). Gates in the order input, forget, cell,
/// output:
///   i, f, o = sigmoid(z), g = tanh(z), z = x W + h(t-1) R + b;  c(t) = f c(t-1) + i g;  h(t) = o tanh(c(t)).
struct Lstm {
  std::int64_t steps = 0, sequences = 0, hidden = 0;
  Queue queue = Queue::main;  ///< queue of the operations on a device
};

/// One layer of gated recurrent units (Cho et al. 2014; in the form of cuDNN and PyTorch, which reset after the
/// product), over the steps and rows of Lstm. Gates in the order reset, update, new:
///   r, z = sigmoid(a + p), n = tanh(a + r p), a = x W + b, p = h(t-1) R + c;  h(t) = n + z (h(t-1) - n).
struct Gru {
  std::int64_t steps = 0, sequences = 0, hidden = 0;
};

/// Operands of operations with many of them; the operations document them.
struct LayerNormForwardOperands {
  Tensor x;
  Tensor residual = {};  ///< may be absent
  Tensor scale, shift;
  Tensor sum = {};  ///< absent without a residual
  Tensor mean, inverse, y;
};
struct LayerNormBackwardOperands {
  Tensor x, scale, mean, inverse, d_y;
  Tensor d_residual = {};  ///< may be absent
  Tensor d_scale, d_shift, d_x;
};
/// Range of a sample's numbers that are tokens.
struct TokenRange {
  std::int64_t first = 0, count = 0;  ///< indices of the sample's numbers
  std::int64_t vocabulary = 0;        ///< tokens are 0 to vocabulary - 1
  bool are_lengths = false;           ///< the tokens are lengths of series of up to vocabulary - 1 steps
};
/// `count` products of pairs of matrices. Each tensor stores its matrices one below the other.
struct BatchedProduct {
  std::int64_t count = 0;
  std::int64_t rows = 0, inner = 0, columns = 0;    ///< a product is [rows, inner] times [inner, columns]
  bool a_transposed = false, b_transposed = false;  ///< a is stored as [inner, rows], b as [columns, inner]
};
struct AttentionForwardOperands {
  Tensor joint;
  Tensor dropout_keys = {};  ///< uint64 [samples, 1]; may be absent if nothing is dropped
  AttentionMask mask = {};
  Tensor y, log_sums;
};
struct AttentionBackwardOperands {
  Tensor joint;
  Tensor dropout_keys = {};  ///< as in the forward pass
  AttentionMask mask = {};
  Tensor y, log_sums, d_y, d_joint;
};
/// places: int32 [steps * sequences, 1]; 0: the sequence restarts at this row with zero state. May be absent.
struct LstmForwardOperands {
  Tensor gates, recurrent, cells, hidden;
  Tensor places = {};
};
struct LstmBackwardOperands {
  Tensor gates, recurrent, cells, d_hidden, d_cell;
  Tensor gates_after = {};  ///< gates of the step after these, as left by its call; absent: these are the last steps
  Tensor places = {};       ///< as in the forward pass; if present, one call has all steps
};

struct GruForwardOperands {
  Tensor gates, recurrent, bias, products, hidden;
  Tensor places = {};  ///< as in LstmForwardOperands
};
struct GruBackwardOperands {
  Tensor gates, recurrent, products, hidden, d_hidden;
  Tensor places = {};  ///< as in the forward pass
};

/// Virtual functions behind the checked operations of SequenceOperations, in their order. A device with all of them
/// declares them by LOCKSTEP_SEQUENCE_OPERATIONS(void, override). An operation that a device lacks throws
/// std::logic_error.
#define LOCKSTEP_SEQUENCE_OPERATIONS(VOID, BODY)                                                                      \
  VOID do_to_time_major(const Tensor&, const Tensor&) BODY;                                                           \
  VOID do_to_tokens(const Tensor&, const TokenRange&, const Tensor&) BODY;                                            \
  VOID do_places_in_documents(const Tensor&, const Documents&, const Tensor&) BODY;                                   \
  VOID do_padded_rows(const Tensor&, PaddedRows, const Tensor&) BODY;                                                 \
  VOID do_carry_rows(const Tensor&, const Tensor&, Accumulate, const Tensor&) BODY;                                   \
  VOID do_pool_series_forward(const PaddedSeries&, const Tensor&, const Tensor&, const Tensor&) BODY;                 \
  VOID do_pool_series_backward(const PaddedSeries&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) BODY; \
  VOID do_embedding_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) BODY;          \
  VOID do_embedding_backward(const Tensor&, const Tensor&, Accumulate, const Tensor&, const Tensor&) BODY;            \
  VOID do_project_forward(const Tensor&, const Tensor&, const Tensor&) BODY;                                          \
  VOID do_project_backward(const Tensor&, const Tensor&, const Tensor&, Accumulate, const Tensor&, const Tensor&)     \
      BODY;                                                                                                           \
  VOID do_layer_norm_forward(const LayerNormForwardOperands&) BODY;                                                   \
  VOID do_layer_norm_backward(const LayerNormBackwardOperands&, Accumulate) BODY;                                     \
  VOID do_gelu_forward(const Tensor&, const Tensor&, const Tensor&) BODY;                                             \
  VOID do_gelu_backward(const Tensor&, const Tensor&, Accumulate, const Tensor&) BODY;                                \
  VOID do_dropout(const Tensor&, const Tensor&, const Dropout&, const Tensor&) BODY;                                  \
  VOID do_batched_product(const BatchedProduct&, const Tensor&, const Tensor&, const Tensor&) BODY;                   \
  VOID do_attention_forward(const Attention&, const AttentionForwardOperands&) BODY;                                  \
  VOID do_attention_backward(const Attention&, const AttentionBackwardOperands&) BODY;                                \
  VOID do_lstm_forward(const Lstm&, const LstmForwardOperands&) BODY;                                                 \
  VOID do_lstm_backward(const Lstm&, const LstmBackwardOperands&) BODY;                                               \
  VOID do_gru_forward(const Gru&, const GruForwardOperands&) BODY;                                                    \
  VOID do_gru_backward(const Gru&, const GruBackwardOperands&) BODY;

class SequenceOperations {
 public:
  virtual ~SequenceOperations() = default;
  SequenceOperations(const SequenceOperations&) = delete;
  SequenceOperations& operator=(const SequenceOperations&) = delete;

  /// int32 [samples, positions] -> int32 [positions * samples, 1], time-major.
  void to_time_major(const Tensor& tokens, const Tensor& out);
  /// Converts a range of each sample's numbers to tokens. samples: uint8, float32 or float64 [samples, numbers];
  /// tokens: int32 [samples, range.count]. Numbers outside the vocabulary become the nearest token; the reader of the
  /// data has already refused them.
  void to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens);

  /// places = position of each token in its document. The document begins at the last separator up to the token, or
  /// else at the sample's first token. In time-major order, a document that began in an earlier batch counts from that
  /// batch's last token: its places are 1, 2, ..., never 0. tokens and places: int32 [samples, positions], or
  /// [positions, samples]. With Documents::first, places is [1, first + positions], and its first `first` elements are
  /// inputs.
  void places_in_documents(const Tensor& tokens, const Documents& documents, const Tensor& places);
  /// marks: int32 [samples * steps, 1], 1 for the selected rows, else 0. lengths: int32 [samples, 1].
  void padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks);
  /// y = or += the rows of x; rows whose place (int32 [R, 1]) is 0 count as zeros. y may be the same tensor as x unless
  /// it accumulates.
  void carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y);
  /// y [samples, columns] = mean, maximum or last of the rows of x [samples * steps, columns] that are not padding; 0
  /// if all are padding. lengths: int32 [samples, 1].
  void pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths, const Tensor& y);
  /// For `max`, the gradient goes to the first of equal maxima. d_x of padding is 0. x is read only for `max`.
  void pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths, const Tensor& d_y,
                            const Tensor& d_x);

  /// y[r] = table[tokens[r]] (+ positions[r % positions.rows], or positions[places[r]]); tokens: int32 [R, 1] in [0,
  /// vocabulary). table [vocabulary, width], positions [P, width] (may be absent) and y [R, width] are in the compute
  /// type. places: int32 [R, 1] in [0, P), may be absent.
  void embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y,
                         const Tensor& places = {});
  /// d_table and d_positions (master type; may be absent) = or +=. Each of their rows gets the sum of the rows of d_y
  /// that read it, added in ascending order.
  void embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate, const Tensor& d_table,
                          const Tensor& d_positions);

  /// y = x table': the output layer that shares the embedding's table [vocabulary, width]. x [R, width], y [R,
  /// vocabulary].
  void project_forward(const Tensor& x, const Tensor& table, const Tensor& y);
  /// d_table (may be empty) = or += d_y' x; d_x = d_y table.
  void project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                        const Tensor& d_table, const Tensor& d_x);

  /// sum = x + residual; without a residual, `sum` must be absent and x replaces it. y = scale * (sum - mean) * inverse
  /// + shift, per row (Ba, Kiros & Hinton 2016), epsilon 1e-5, biased variance. mean, inverse: master type [R, 1]. sum
  /// may be the same tensor as residual or x. y may be in the narrow type.
  void layer_norm_forward(const LayerNormForwardOperands& operands);
  /// x: the input of the norm. d_x = gradient through the norm + d_residual. d_residual: the gradient of `sum` from its
  /// other readers; may be absent or the same tensor as d_x. d_scale and d_shift (master type [1, width], may be empty
  /// on a host) = or +=. d_y may be in the narrow type.
  void layer_norm_backward(const LayerNormBackwardOperands& operands, Accumulate accumulate);

  /// x becomes x + bias (bias [1, width] may be empty); y = gelu of that, in the form with tanh (Hendrycks & Gimpel
  /// 2016; GPT-2): 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
  void gelu_forward(const Tensor& x, const Tensor& bias, const Tensor& y);
  /// d_y becomes the gradient before the gelu; x as gelu_forward left it. d_bias (master type, may be empty) = or +=
  /// its column sums.
  void gelu_backward(const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_bias);

  /// y = x with elements dropped (Srivastava et al. 2014; randomness.hpp); keys: uint64 [samples, 1], x [samples *
  /// positions, columns]. Its own backward: call it with d_y for x. y may be the same tensor as x. Both may be in the
  /// narrow type.
  void dropout(const Tensor& x, const Tensor& keys, const Dropout& rule, const Tensor& y);

  /// c = a b for each pair of matrices. a [count * rows, inner], b [count * inner, columns], or each of their matrices
  /// transposed; c [count * rows, columns]. Sums in fp32 at least.
  void batched_product(const BatchedProduct& shape, const Tensor& a, const Tensor& b, const Tensor& c);
  /// y [R, width] from joint [R, 3 width]; R = samples * context. log_sums: master type [samples * heads, context]: log
  /// of the sum of exponentials of each row of scores. No matrix of context x context is kept. The result of a query
  /// without visible keys is zero. joint and y, and their gradients, may all be in the narrow type.
  void attention_forward(const Attention& shape, const AttentionForwardOperands& operands);
  void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands);

  /// gates [steps * sequences, 4 hidden]: x W + b when called, the activated gates afterwards. hidden and cells [(steps
  /// + 1) * sequences, hidden]: the first `sequences` rows are the initial state, an input; the others are written.
  /// recurrent: [hidden, 4 hidden]. Each step is one product over the sequences and one fused pass.
  void lstm_forward(const Lstm& shape, const LstmForwardOperands& operands);
  /// d_hidden [steps * sequences, hidden]: gradient of h(1) ... h(steps) from the next layer; overwritten. gates become
  /// the gradients before their activations. The caller uses these for the backward passes of both products: that of
  /// the input, and that of `recurrent`, whose input is the state before each step. No gradient reaches the initial
  /// state. d_cell: compute type [sequences, hidden], workspace. Steps may be split over several calls, the last steps
  /// first. Each call but the first needs gates_after [sequences, 4 hidden] and the d_cell that the previous call left.
  /// The results have the bits of one call.
  void lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands);

  /// gates [steps * sequences, 3 hidden]: a = x W + b when called, the activated gates afterwards. products [steps *
  /// sequences, 3 hidden] is written: the columns of the third gate become h(t-1) R + c, the others are undefined.
  /// bias: c [1, 3 hidden]. recurrent: [hidden, 3 hidden]. hidden [(steps + 1) * sequences, hidden]: the first
  /// `sequences` rows are the initial state, an input; the others are written.
  void gru_forward(const Gru& shape, const GruForwardOperands& operands);
  /// d_hidden [steps * sequences, hidden]: gradient of h(1) ... h(steps) from the next layer; overwritten. gates and
  /// products become the gradients of a and p. The caller uses them for the backward passes of the product with the
  /// input and of the product with `recurrent`, whose input is the state before each step. No gradient reaches the
  /// initial state.
  void gru_backward(const Gru& shape, const GruBackwardOperands& operands);

 protected:
  explicit SequenceOperations(const OperationTypes& types) : types_(types) {}
  const OperationTypes& types() const noexcept { return types_; }

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(virtual void, { missing_operation(__func__); })

  /// True if the tensor has this shape and the compute type or the narrow type.
  bool is_activation(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const;

  OperationTypes types_;
};

}  // namespace lockstep::model
