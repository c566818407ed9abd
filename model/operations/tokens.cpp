/// \file
/// "tokens": reads whole numbers of a sample as tokens. The reader of network files adds it between an input of numbers
/// and an embedding, and between lengths of series and layers that ignore padding.
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

/// Largest vocabulary: numbers reach a network as float32, which is exact for whole numbers up to 2^24.
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;

class TokensOperation final : public Operation {
 public:
  explicit TokensOperation(const Call& call)
      : range_{.first = call.get<std::int64_t>("first"),
               .count = call.get<std::int64_t>("count"),
               .vocabulary = call.get<std::int64_t>("vocabulary")} {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    if (range_.first + range_.count > inputs[0].shape.elements()) {
      throw std::invalid_argument("reads numbers that a sample does not have");
    }
    if (range_.vocabulary > kMaxVocabulary) {
      throw std::invalid_argument(fmt::format("has a vocabulary of {}; tokens among numbers have at most {}",
                                              range_.vocabulary, kMaxVocabulary));
    }
    return {.shape = {range_.count}, .holds = Holds::tokens, .vocabulary = range_.vocabulary};
  }
  bool is_causal() const override { return true; }
  OperationNeeds needs() const override { return {}; }
  LayerPlan plan(const NodeView& /*node*/) const override { return {}; }
  std::vector<LayerPlan> lines(const NodeView& /*node*/) const override { return {}; }
  /// Reads Pass::samples, since the network's input may be scaled or rounded to bfloat16.
  void forward(const NodePass& node) const override {
    node.pass.sequences().to_tokens(node.pass.samples, range_, node.by_sample(node.out(), range_.count));
  }
  void backward(const NodePass& /*node*/) const override {}
  void results(const std::string& /*name*/, const NodePass& /*node*/, const TakeResult& /*take*/) const override {}

 private:
  TokenRange range_;
};

}  // namespace

extern const OperationKind tokens_operation;
const OperationKind tokens_operation{
    .name = "tokens",
    .summary = "whole numbers of a sample, for an embedding",
    .arguments = {{.name = "first", .value = 0, .value_name = "N", .help = "number of the sample", .at_least = 0},
                  {.name = "count", .value = 0, .value_name = "N", .help = "numbers", .at_least = 1},
                  {.name = "vocabulary", .value = 0, .value_name = "N", .help = "different tokens", .at_least = 1},
                  {.name = "are-lengths", .value = false, .value_name = "", .help = "of series"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<TokensOperation>(call); }};

}  // namespace lockstep::model
