/// \file
/// Records the inference of a network as a list of operations on values: for exports. The network needs no second
/// description: its own forward pass runs on a backend that records the operations.
///
/// Rows of values belong to samples, or to positions of samples. The recording is made with one sample and holds for
/// any number of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "model/network.hpp"

namespace lockstep::model {

/// The operations, with all their arguments besides their operands. Operands in the order of RecordedOperation.
namespace recorded {
struct Linear {
  Activation activation;
};  ///< x, w, bias (may be absent) -> y; Backend::linear_forward
struct Convolve {
  Convolution shape;
  Activation activation;
};  ///< x, w, bias (may be absent) -> y
struct MaxPool {
  Pool shape;
};  ///< x -> y
struct GlobalAverage {
  ImageShape in;
};  ///< x -> y
struct NormalizeResponse {
  ImageShape in;
  ResponseNormalization norm;
};  ///< x -> y; only the channels of `in` are known: height is the number of pixels, width 1
struct Subsample {
  ImageShape in, out;
  std::int64_t stride;
};  ///< x -> y
struct NormalizeBatch {
  BatchNorm norm;
};              ///< x, mean, variance, scale, shift, residual (may be absent) -> y
struct Add {};  ///< a, b of one shape -> y
struct Concatenate {
  std::vector<std::int64_t> columns;  ///< columns of each operand
};                                    ///< a, b ... -> y, side by side
struct Apply {
  Elementwise elementwise;
};                         ///< x -> y
struct AddRow {};          ///< x, row -> y
struct ToTimeMajor {};     ///< tokens [samples, positions] -> [positions * samples, 1]
struct Embed {};           ///< tokens, table, positions (may be absent) -> y
struct Project {};         ///< x, table -> y = x table'
struct NormalizeLayer {};  ///< x, scale, shift -> y; epsilon formulas::kLayerNormEpsilon
struct Gelu {};            ///< x -> y, the form with tanh
struct Attend {
  Attention shape;
};  ///< joint -> y
struct RunLstm {
  Lstm shape;
};  ///< gates, recurrent, hidden before, cell before -> hidden of all steps, hidden after, cell after
}  // namespace recorded

using RecordedKind =
    std::variant<recorded::Linear, recorded::Convolve, recorded::MaxPool, recorded::GlobalAverage,
                 recorded::NormalizeResponse, recorded::Subsample, recorded::NormalizeBatch, recorded::Add,
                 recorded::Concatenate, recorded::Apply, recorded::AddRow, recorded::ToTimeMajor, recorded::Embed,
                 recorded::Project, recorded::NormalizeLayer, recorded::Gelu, recorded::Attend, recorded::RunLstm>;

using ValueNumber = std::size_t;
inline constexpr ValueNumber kNoValue = std::numeric_limits<ValueNumber>::max();

struct RecordedOperation {
  RecordedKind kind;
  std::vector<ValueNumber> inputs;  ///< kNoValue: absent
  std::vector<ValueNumber> outputs;
};

struct RecordedValue {
  enum class Origin { input, state, parameter, result };
  Origin origin = Origin::result;
  std::string name = {};  ///< name of a parameter or a state
  std::int64_t rows = 0;  ///< rows per sample
  std::int64_t columns = 0;
};

/// State that passes from one batch to the next.
struct RecordedState {
  std::string name;  ///< "lstm_1/hidden"
  ValueNumber before = kNoValue, after = kNoValue;
};

struct Recording {
  std::vector<RecordedValue> values;
  std::vector<RecordedOperation> operations;  ///< each behind those whose results it reads
  ValueNumber input = kNoValue, output = kNoValue;
  std::vector<RecordedState> states;
};

/// Throws std::logic_error if the network's forward pass uses something that is no operation of inference.
Recording record_inference(const Network& network);

}  // namespace lockstep::model
