/// \file
/// The YAML of network files as a tree. Each node knows its place in the text. Allowed: one document of mappings, lists
/// and words. Anchors, aliases, tags, merge keys and further documents are refused.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

struct YamlEntry;

struct YamlNode {
  enum class Kind { nothing, word, list, mapping };

  Kind kind = Kind::nothing;
  std::string text = {};                ///< word: its text
  bool quoted = false;                  ///< a word in quotation marks is a text, not a number
  std::vector<YamlNode> items = {};     ///< list: its items
  std::vector<YamlEntry> entries = {};  ///< mapping: its entries, in the order of the text; keys are unique
  int line = 1, column = 1;

  bool is_word() const noexcept { return kind == Kind::word; }
  bool is_list() const noexcept { return kind == Kind::list; }
  bool is_mapping() const noexcept { return kind == Kind::mapping; }
  /// Returns the value of a key of a mapping; nullptr if there is none.
  const YamlNode* find(std::string_view key) const noexcept;
};

struct YamlEntry {
  std::string key;
  int line = 1;  ///< line of the key
  YamlNode value = {};
};

inline constexpr std::size_t kMaxYamlBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxYamlDepth = 64;

/// Parses a text. Throws std::invalid_argument, "FILE:LINE: ...", for a text that is too large or nested too deeply,
/// for refused parts of YAML, and for a repeated key. `file`: name of the text in messages.
YamlNode read_yaml(const std::string& text, const std::string& file);

/// "net.yaml:14"
std::string place_of(const std::string& file, int line);

}  // namespace lockstep::model
