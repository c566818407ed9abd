/// \file
/// The inputs of a network in the terms of its data: each is a range of the sample's row, in the shape that the file
/// declares; some are read as tokens or as lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/graph/description.hpp"
#include "model/network.hpp"
#include "model/yaml/call_list.hpp"
#include "model/yaml/line_errors.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

/// All errors are std::invalid_argument, "FILE:LINE: ...". The arguments of the constructor outlive it.
class InputCalls : private LineErrors {
 public:
  InputCalls(const NetworkKind& kind, const SampleShape& shape, CallList& calls);

  /// The network's input, and a call for each part of it that is an input of the file.
  Description declare();
  /// The extents of the largest input but its last one: directions of a convolution.
  std::size_t directions() const noexcept { return directions_; }

  /// An embedding of an input reads its numbers as tokens: replaces `from` if it is an input. `name`: of the embedding.
  void read_as_tokens(std::vector<std::string>& from, const std::string& name, const Call& embedding, int line);
  /// The value of the lengths that an input holds, for layers that leave out padding.
  std::string lengths_of(const YamlNode& node, const Scope& scope);
  /// Takes out the calls of inputs that are read as tokens alone: they need no numbers.
  void drop_numbers_of_tokens();
  /// --document-token: what mixes positions stays within documents of the value `tokens`.
  void separate_documents(const std::string& tokens, const NetworkOptions& options);

 private:
  /// Numbers of a sample that are an input.
  struct InputNumbers {
    std::string row;  ///< the value that they are part of
    std::int64_t first = 0, count = 0;
    bool are_tokens = false;
  };

  Description with_one(const DeclaredInput& input);
  bool has_several(const std::vector<DeclaredInput>& declared) const;
  Description with_several(const std::vector<DeclaredInput>& declared);
  bool names_match(const std::vector<DeclaredInput>& declared) const;
  Shape stored_shape(std::size_t count) const;
  Shape input_shape(const DeclaredInput& declared) const;

  const NetworkKind& kind_;
  const SampleShape& shape_;
  CallList& calls_;
  std::map<std::string, InputNumbers> numbers_of_;  ///< by the value
  std::set<std::int64_t> series_steps_;             ///< first extents of the inputs that are no rows
  std::size_t directions_ = 1;
};

}  // namespace lockstep::model
