/// \file
/// The operations of networks in ONNX: an emitter for each kind, from a node of the graph to operators of ONNX.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/exchange/onnx_graph.hpp"
#include "io/exchange/safetensors.hpp"
#include "model/graph/graph.hpp"

namespace lockstep::app {

/// The graph that comes into being, with the values and weights of the network's one.
class OnnxEmission {
 public:
  using Name = OnnxGraph::Name;

  /// graph: of plain operations. All operands must outlive the emission.
  OnnxEmission(const model::Graph& graph, const model::ParameterTable& table, std::span<const io::NamedTensor> weights,
               OnnxGraph& onnx);

  /// Emits the operators of all nodes. Throws io::FileError for one whose kind has no emitter.
  void run();

  OnnxGraph& onnx;
  /// Sizes of tokens, int64: [batch, sequence] and each alone.
  Name sizes, batch, sequence;
  /// Inputs of tokens among numbers, int64, by the first of them in a sample.
  std::map<std::int64_t, Name> tokens_from;
  /// Lengths of series, int64 [batch], by their rows as a value: 1 for steps up to the length and 0 for padding,
  /// float32 [batch, steps].
  Name inside(const Name& lengths, std::int64_t steps);
  /// [batch, 1, sequence, sequence]: 0 within documents, far below all scores between them; empty without documents.
  Name document_mask;
  /// Names of recurrent states, by the name in the network: before and after the batch.
  std::map<std::string, Name, std::less<>> state_before, state_after;

  // ---- values ----

  const model::ValueType& type(std::size_t value) const { return graph_.values()[value].type; }
  /// A value in one form or both: rows of its last extent [batch * places, last] as in the network, and series, images
  /// or volumes [batch, channels, (depth,) (height,) width] as in ONNX.
  Name rows(std::size_t value);
  Name image(std::size_t value);
  bool is_image_alone(std::size_t value) const { return !forms_[value].image.empty() && forms_[value].rows.empty(); }
  void set_rows(std::size_t value, Name name) { forms_[value].rows = std::move(name); }
  void set_image(std::size_t value, Name name) { forms_[value].image = std::move(name); }
  /// The values are the same.
  void set_same(std::size_t value, std::size_t as) { forms_[value] = forms_[as]; }
  std::size_t output_of(const model::Node& node) const {
    return static_cast<std::size_t>(&node - graph_.nodes().data()) + 1;
  }

  // ---- weights ----

  /// Parameter k of a node.
  const io::NamedTensor& tensor(const model::Node& node, std::size_t k) const;
  Name weight(const model::Node& node, std::size_t k) { return onnx.borrowed(tensor(node, k)); }

  /// [sequence, sequence]: 0 for visible positions, far below all scores for masked ones. Without tokens the sequence
  /// is `context` long.
  Name causal_mask(std::int64_t context);

 private:
  struct Form {
    Name rows, image;
  };
  const model::Graph& graph_;
  const model::ParameterTable& table_;
  std::span<const io::NamedTensor> weights_;
  std::vector<Form> forms_;  ///< one per value
  Name mask_;
};

struct OnnxEmitter {
  std::string_view kind;
  void (*emit)(OnnxEmission& to, const model::Node& node);
};
/// One for each kind of operation that descriptions can have and that can be exported.
std::span<const OnnxEmitter> onnx_emitters();

}  // namespace lockstep::app
