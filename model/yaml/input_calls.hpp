/// \file
/// The inputs of a network. Each input is a range of the sample's row, in the shape that the file declares. Some are
/// read as tokens or as lengths.
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

/// All errors are std::invalid_argument, "FILE:LINE: ...". The arguments of the constructor must outlive it.
class InputCalls : private LineErrors {
 public:
  InputCalls(const NetworkKind& kind, const SampleShape& shape, CallList& calls);

  /// Returns the network's input. If the file has several inputs, adds a call for each of them.
  Description declare();
  /// Directions of a convolution over the input with the most extents: its extents without the channels.
  std::size_t directions() const noexcept { return directions_; }

  /// Makes an embedding read an input's numbers as tokens: replaces `from` if it is an input. `name`: name of the
  /// embedding.
  void read_as_tokens(std::vector<std::string>& from, const std::string& name, const Call& embedding, int line);
  /// Returns the value of an input that holds lengths, for layers that ignore padding.
  std::string lengths_of(const YamlNode& node, const Scope& scope);
  /// Removes the calls of inputs that are only read as tokens.
  void drop_numbers_of_tokens();
  /// For --document-token: makes operations that mix positions stay within the documents of the value `tokens`.
  void separate_documents(const std::string& tokens, const NetworkOptions& options);

 private:
  /// Range of a sample's numbers that is an input.
  struct InputNumbers {
    std::string row;  ///< name of the value that contains them
    std::int64_t first = 0, count = 0;
    bool is_row = false;  ///< the input has one extent
    bool are_tokens = false;
  };

  Description with_one(const DeclaredInput& input);
  bool has_several(const std::vector<DeclaredInput>& declared) const;
  Description with_several(const std::vector<DeclaredInput>& declared);
  bool names_match(const std::vector<DeclaredInput>& declared) const;
  Shape input_shape(const DeclaredInput& declared) const;

  const NetworkKind& kind_;
  const SampleShape& shape_;
  CallList& calls_;
  std::map<std::string, InputNumbers> numbers_of_;  ///< by the value
  std::set<std::int64_t> series_steps_;             ///< first extents of the inputs with two or more extents
  std::set<std::int64_t> token_steps_;              ///< extents of the inputs with one extent that are tokens
  std::size_t directions_ = 1;
};

}  // namespace lockstep::model
