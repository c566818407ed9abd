/// \file
/// Emits the operations of networks in ONNX: one emitter for each kind of operation translates a node of our graph to
/// ONNX operators.
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

/// The ONNX graph under construction, with the values and weights of our network's graph.
class OnnxEmission {
 public:
  using Name = OnnxGraph::Name;

  /// `graph` must consist of plain operations. All operands must outlive the emission.
  OnnxEmission(const model::Graph& graph, const model::ParameterTable& table, std::span<const io::NamedTensor> weights,
               OnnxGraph& onnx);

  /// Emits the operators of all nodes. Throws io::FileError for a node whose kind has no emitter.
  void run();

  OnnxGraph& onnx;
  /// Sizes of the input of tokens, int64: [batch, sequence], and each alone.
  Name sizes, batch, sequence;
  /// Inputs of tokens beside numbers, int64. The key is the index of the input's first number in a sample.
  std::map<std::int64_t, Name> tokens_from;
  /// Returns a mask, float32 [batch, steps]: 1 for steps within the length of a series, 0 for padding. `lengths`: the
  /// value with the lengths, as rows.
  Name inside(const Name& lengths, std::int64_t steps);
  /// [batch, 1, sequence, sequence]: 0 within a document, far below all scores between documents; empty without
  /// documents.
  Name document_mask;
  /// Names of recurrent states before and after the batch, by their names in the network.
  std::map<std::string, Name, std::less<>> state_before, state_after;

  // ---- values ----

  const model::ValueType& type(std::size_t value) const { return graph_.values()[value].type; }
  /// A value has one or both of two forms. As rows, it is [batch * places, last extent], as in our network. As an image
  /// (or series or volume), it is [batch, channels, (depth,) (height,) width], as in ONNX. These return a form, and
  /// convert the other one if necessary.
  Name rows(std::size_t value);
  Name image(std::size_t value);
  bool is_image_alone(std::size_t value) const { return !forms_[value].image.empty() && forms_[value].rows.empty(); }
  void set_rows(std::size_t value, Name name) { forms_[value].rows = std::move(name); }
  void set_image(std::size_t value, Name name) { forms_[value].image = std::move(name); }
  /// Makes `value` the same as value `as`.
  void set_same(std::size_t value, std::size_t as) { forms_[value] = forms_[as]; }
  std::size_t output_of(const model::Node& node) const {
    return static_cast<std::size_t>(&node - graph_.nodes().data()) + 1;
  }

  // ---- weights ----

  /// Parameter k of a node.
  const io::NamedTensor& tensor(const model::Node& node, std::size_t k) const;
  Name weight(const model::Node& node, std::size_t k) { return onnx.borrowed(tensor(node, k)); }

  /// Returns [sequence, sequence]: 0 for visible positions, far below all scores for masked ones. Without tokens the
  /// sequence has length `context`.
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
/// One emitter for each kind of operation that a description can have and that can be exported.
std::span<const OnnxEmitter> onnx_emitters();

}  // namespace lockstep::app
