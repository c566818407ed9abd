/// \file
/// Operations on sequences: tokens, embeddings, layer norm, attention, recurrence, dropout. A tensor of activations has
/// one row per position of a sample; RowOrder (randomness.hpp) says which row is which.
///
/// The conventions of backend.hpp hold: operations are enqueued, parameter gradients are written or added in the master
/// type, activation gradients always written (except where noted), every sum has a fixed order, all shapes are checked
/// here, and an empty batch is welcome everywhere.
#pragma once

#include <cstdint>

#include "model/operation_types.hpp"
#include "model/randomness.hpp"
#include "model/tensor.hpp"

namespace lockstep::model {

/// Self-attention over samples of `context` positions (sample-major rows): position i attends to 0 ... i, or to all if
/// it is not causal, with softmax(q k' / sqrt(head_size)) v in each head (Vaswani et al. 2017). A row of the joint
/// projection is [query | key | value], each [heads, head_size].
struct Attention {
  std::int64_t context = 0, heads = 0, head_size = 0;
  std::int64_t width() const noexcept { return heads * head_size; }
  /// Dropout of the probabilities after the softmax. The element (head h, query i, key j) is number (h * context + i) *
  /// context + j of its sample.
  Dropout dropout = {};
  /// > 0, only for one sample, forward and on a host: first of the queries to compute. y has only their rows.
  std::int64_t first = 0;
  bool causal = true;
  /// The first of the keys, so many, that a query sees without an AttentionMask.
  std::int64_t keys_of(std::int64_t query) const noexcept { return causal ? query + 1 : context; }
};

/// Positions that attention leaves out beside those that `causal` does.
struct AttentionMask {
  /// int32 [samples * context, 1], causal attention: a query sees the keys from so many positions before it on, the
  /// first of its document (SequenceOperations::places_in_documents). May be absent.
  Tensor places = {};
  /// int32 [samples, 1]: the keys from this position on are padding. May be absent.
  Tensor lengths = {};
  bool present() const noexcept { return places.present() || lengths.present(); }
};

/// Documents that follow each other in a stream of tokens. Each begins with the token `separator`.
struct Documents {
  std::int64_t separator = 0;
  /// time_major: rows are positions, and the document before the first one goes on from the batch before.
  RowOrder order = RowOrder::sample_major;
  /// > 0, only for one sample and on a host: the tokens are those from this position on.
  std::int64_t first = 0;
};

/// Series of up to `steps` steps, each with a length of its own; padding follows.
struct PaddedSeries {
  enum class Pool { mean, max, last };
  std::int64_t steps = 0;
  Pool pool = Pool::mean;
};
/// Rows that padded_rows() marks: those without padding, sample-major; or, time-major and from the last step to the
/// first one, all but that of a series' last step.
enum class PaddedRows { inside, behind_the_last };

/// One layer of long short-term memory (Hochreiter & Schmidhuber 1997, with forget gates) over `steps` steps of
/// `sequences` samples, time-major rows (row = step * sequences + sequence). Gates in the order input, forget, cell,
/// output:
///   i, f, o = sigmoid(z), g = tanh(z), z = x W + h(t-1) R + b;  c(t) = f c(t-1) + i g;  h(t) = o tanh(c(t)).
struct Lstm {
  std::int64_t steps = 0, sequences = 0, hidden = 0;
  Queue queue = Queue::main;  ///< queue of the steps on a device
};

/// One layer of gated recurrent units (Cho et al. 2014; in the form of cuDNN and PyTorch, with the reset behind the
/// product) over steps as those of Lstm. Gates in the order reset, update, new:
///   r, z = sigmoid(a + p), n = tanh(a + r p), a = x W + b, p = h(t-1) R + c;  h(t) = n + z (h(t-1) - n).
struct Gru {
  std::int64_t steps = 0, sequences = 0, hidden = 0;
};

/// Operands of the operations with the most of them; the operations document them.
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
/// Tokens among the numbers of a sample.
struct TokenRange {
  std::int64_t first = 0, count = 0;  ///< numbers of the sample
  std::int64_t vocabulary = 0;        ///< tokens are 0 to vocabulary - 1
  bool are_lengths = false;           ///< they are lengths of series of up to vocabulary - 1 steps
};
/// Products of pairs of matrices: `count` of them, one below the other in each tensor.
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
/// places: int32 [steps * sequences, 1], 0 where a sequence begins anew, with a state of zeros. May be absent.
struct LstmForwardOperands {
  Tensor gates, recurrent, cells, hidden;
  Tensor places = {};
};
struct LstmBackwardOperands {
  Tensor gates, recurrent, cells, d_hidden, d_cell;
  Tensor gates_after =
      {};              ///< gates of the step behind these, as its own call left them; absent: these steps are the last
  Tensor places = {};  ///< as in the forward pass, and then all steps come in one call
};

struct GruForwardOperands {
  Tensor gates, recurrent, bias, products, hidden;
  Tensor places = {};  ///< as LstmForwardOperands have them
};
struct GruBackwardOperands {
  Tensor gates, recurrent, products, hidden, d_hidden;
  Tensor places = {};  ///< as in the forward pass
};

/// The operations of a device behind the checked ones of SequenceOperations, in their order. A device that has all of
/// them declares them by (void, override). One that a device lacks throws std::logic_error.
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
  /// tokens = the whole numbers of a range of each sample's row. samples: uint8, float32 or float64 [samples, numbers];
  /// tokens int32 [samples, range.count]. Numbers outside the vocabulary become its nearest token: data are checked as
  /// they are read.
  void to_tokens(const Tensor& samples, const TokenRange& range, const Tensor& tokens);

  /// places = the number of positions between each token and the first one of its document, which is the last separator
  /// up to it, or the sample's first token; time-major, the last token of the batch before. tokens and places: int32
  /// [samples, positions], or [positions, samples]. With Documents::first, places are [1, first + positions], whose
  /// first ones are there.
  void places_in_documents(const Tensor& tokens, const Documents& documents, const Tensor& places);
  /// marks: int32 [samples * steps, 1], 1 for the rows and 0 for others. lengths: int32 [samples, 1].
  void padded_rows(const Tensor& lengths, PaddedRows rows, const Tensor& marks);
  /// y = or += the rows of x whose place, int32 [R, 1], is not 0; others are 0. y may be the same tensor as x unless it
  /// accumulates.
  void carry_rows(const Tensor& x, const Tensor& places, Accumulate accumulate, const Tensor& y);
  /// y [samples, columns] = the mean, the greatest or the last of the rows of x [samples * steps, columns] that are no
  /// padding, 0 where all are. lengths: int32 [samples, 1].
  void pool_series_forward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths, const Tensor& y);
  /// The gradient of the greatest goes to the first of them. d_x of padding is 0. x is only read for `max`.
  void pool_series_backward(const PaddedSeries& series, const Tensor& x, const Tensor& lengths, const Tensor& d_y,
                            const Tensor& d_x);

  /// y[r] = table[tokens[r]] (+ positions[r % positions.rows], or positions[places[r]]); tokens int32 [R, 1] in [0,
  /// table rows), table [vocabulary, width], positions [P, width] may be empty, y [R, width]; compute type. places:
  /// int32 [R, 1] in [0, P), may be empty.
  void embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y,
                         const Tensor& places = {});
  /// d_table and d_positions (master type; may be empty) = or += the sums of the rows of d_y that belong to each of
  /// their rows, added in ascending order of the row.
  void embedding_backward(const Tensor& tokens, const Tensor& d_y, Accumulate accumulate, const Tensor& d_table,
                          const Tensor& d_positions);

  /// y = x table' : the output layer that shares the embedding's table [vocabulary, width]. x [R, width],
  /// y [R, vocabulary].
  void project_forward(const Tensor& x, const Tensor& table, const Tensor& y);
  /// d_table (may be empty) = or += d_y' x; d_x = d_y table.
  void project_backward(const Tensor& x, const Tensor& table, const Tensor& d_y, Accumulate accumulate,
                        const Tensor& d_table, const Tensor& d_x);

  /// sum = x + residual (without a residual sum must be empty and x takes its place); y = scale * (sum - mean) *
  /// inverse + shift, per row (Ba, Kiros & Hinton 2016), epsilon 1e-5, biased variance. mean, inverse: master type [R,
  /// 1]. sum may be the same tensor as residual or x. y may be in the narrow type.
  void layer_norm_forward(const LayerNormForwardOperands& operands);
  /// x: the input of the norm. d_x = gradient through the norm + d_residual (the gradient that reached `sum` past the
  /// norm; may be empty or the same tensor as d_x). d_scale and d_shift (master type [1, width], may be empty on a
  /// host) = or +=. d_y may be in the narrow type.
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
  /// of the sum of exponentials of each row of scores. No matrix of context x context is kept. keys: for the dropout;
  /// may be empty if its rate is 0. A query that the mask leaves no key has a row of zeros. joint and y, and their
  /// gradients, may all be in the narrow type.
  void attention_forward(const Attention& shape, const AttentionForwardOperands& operands);
  void attention_backward(const Attention& shape, const AttentionBackwardOperands& operands);

  /// gates [steps * sequences, 4 hidden]: x W + b when called, the activated gates afterwards. hidden and cells [(steps
  /// + 1) * sequences, hidden]: the first `sequences` rows are the state before the first step, the others are written.
  /// recurrent: [hidden, 4 hidden]. Each step is one product over the sequences and one fused pass.
  void lstm_forward(const Lstm& shape, const LstmForwardOperands& operands);
  /// d_hidden [steps * sequences, hidden]: gradient of h(1) ... h(steps) from above; overwritten. gates become the
  /// gradients before their activations: the inputs of the backward passes of both products, the one with the input and
  /// the one with `recurrent`, whose input is the states before the steps. No gradient goes beyond the first step.
  /// d_cell: compute type [sequences, hidden], workspace. Steps may come in several calls, the last ones first: each
  /// but the first takes gates_after [sequences, 4 hidden] and the d_cell that the preceding call left. Together they
  /// give the bits of one call.
  void lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands);

  /// gates [steps * sequences, 3 hidden]: a = x W + b when called, the activated gates afterwards. products [steps *
  /// sequences, 3 hidden] is written: the columns of the third gate are h(t-1) R + c, the others mean nothing. bias: c
  /// [1, 3 hidden]. recurrent: [hidden, 3 hidden]. hidden [(steps + 1) * sequences, hidden]: the first `sequences` rows
  /// are the state before the first step, the others are written.
  void gru_forward(const Gru& shape, const GruForwardOperands& operands);
  /// d_hidden [steps * sequences, hidden]: gradient of h(1) ... h(steps) from above; overwritten. gates and products
  /// become the gradients of a and p: inputs of the backward passes of the products with the input and with
  /// `recurrent`, whose input is the states before the steps. No gradient goes beyond the first step.
  void gru_backward(const Gru& shape, const GruBackwardOperands& operands);

 protected:
  explicit SequenceOperations(const OperationTypes& types) : types_(types) {}
  const OperationTypes& types() const noexcept { return types_; }

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(virtual void, { missing_operation(__func__); })

  /// In the compute type or the narrow type.
  bool is_activation(const Tensor& tensor, std::int64_t rows, std::int64_t columns) const;

  OperationTypes types_;
};

}  // namespace lockstep::model
