/// \file
/// Builds an ONNX graph: names the nodes and stores each constant once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/exchange/onnx_model.hpp"

namespace lockstep::app {

class OnnxGraph {
 public:
  using Name = std::string;
  using Names = std::vector<std::string>;
  using Attributes = std::vector<io::OnnxAttribute>;
  using Numbers = std::vector<std::int64_t>;

  explicit OnnxGraph(io::OnnxModel& model) : model_(model) {}

  /// Adds a node with one output. Without a given name, the name is the operator and a number.
  Name node(const std::string& op_type, Names inputs, Attributes attributes = {}, Name output = {}) {
    if (output.empty()) output = fmt::format("{}_{}", op_type, ++nodes_);
    model_.nodes.push_back({op_type, std::move(inputs), {output}, std::move(attributes)});
    return output;
  }
  Names node_with(const std::string& op_type, Names inputs, Names outputs, Attributes attributes) {
    model_.nodes.push_back({op_type, std::move(inputs), outputs, std::move(attributes)});
    return outputs;
  }

  Name numbers(const Numbers& values) {
    const Name name = fmt::format("numbers_{}", fmt::join(values, "_"));
    if (constants_.insert(name).second) {
      model_.tensors.push_back({.name = name,
                                .type = io::OnnxType::int64,
                                .shape = {static_cast<std::int64_t>(values.size())},
                                .own = bytes_of(std::span(values))});
    }
    return name;
  }
  Name scalar(float value) {
    const Name name = fmt::format("scalar_{:08x}", std::bit_cast<std::uint32_t>(value));
    if (constants_.insert(name).second) {
      model_.tensors.push_back({.name = name, .shape = {}, .own = bytes_of(std::span(&value, 1))});
    }
    return name;
  }
  /// Adds a tensor that the caller owns, once for each name. Its values must outlive the model.
  Name borrowed(const io::NamedTensor& tensor) {
    if (constants_.insert(tensor.name).second) {
      model_.tensors.push_back({.name = tensor.name, .shape = tensor.shape, .borrowed = std::as_bytes(tensor.values)});
    }
    return tensor.name;
  }
  template <class Make>
  Name made(const Name& name, Numbers shape, const Make& make) {
    if (constants_.insert(name).second) {
      const std::vector<float> values = make();
      model_.tensors.push_back({.name = name, .shape = std::move(shape), .own = bytes_of(std::span(values))});
    }
    return name;
  }

  Name reshape(const Name& x, const Numbers& shape) { return node("Reshape", {x, numbers(shape)}); }
  Name transpose(const Name& x, const Numbers& order) { return node("Transpose", {x}, {{"perm", order}}); }
  Name concatenate(Names parts) { return node("Concat", std::move(parts), {{"axis", std::int64_t{0}}}); }
  /// y[i] = x[begin[i] : end[i] : step[i]] along the axes.
  Name slice(const Name& x, const Name& begin, const Name& end, const Numbers& axes, const Numbers& steps) {
    return node("Slice", {x, begin, end, numbers(axes), numbers(steps)});
  }

 private:
  template <class T>
  static std::vector<std::byte> bytes_of(std::span<T> values) {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    return {bytes.begin(), bytes.end()};
  }

  io::OnnxModel& model_;
  std::set<std::string> constants_;
  int nodes_ = 0;
};

}  // namespace lockstep::app
