/// \file
/// Values in network files: words, numbers and lists, which may contain $NAME and $(EXPRESSION).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/network_options.hpp"
#include "model/yaml/yaml_document.hpp"

namespace lockstep::model {

struct NetworkValue;

/// A mapping from names to values.
struct NetworkFields {
  std::vector<std::string> names;
  std::vector<NetworkValue> values;
};

struct NetworkValue {
  std::variant<bool, std::int64_t, double, std::string, std::vector<NetworkValue>, NetworkFields> data;
};

/// Returns the value as text, for messages and for substitution: "yes", "4", "0.5", "relu", "3,3,3".
std::string to_text(const NetworkValue& value);
/// "a whole number", "a list" ...
std::string_view type_name(const NetworkValue& value);
NetworkValue network_value(const OptionValue& value);

/// The names that a text may use, with their values.
class Scope {
 public:
  /// `outer`: names that are also visible; must outlive the scope.
  explicit Scope(const Scope* outer = nullptr) : outer_(outer) {}
  /// Sets or replaces a value of this scope.
  void set(std::string name, NetworkValue value);
  const NetworkValue* find(std::string_view name) const noexcept;
  std::vector<std::string> names() const;

 private:
  const Scope* outer_;
  std::vector<std::pair<std::string, NetworkValue>> values_;
};

inline constexpr std::int64_t kMaxNetworkInteger = std::int64_t{1} << 40;

/// Evaluates a text of a file: a number, yes or no, or a word. If `$name` or `$(EXPRESSION)` is the whole text, the
/// result keeps its type; else its text is substituted. Throws std::invalid_argument (without the line) for unknown
/// names, invalid expressions and whole numbers beyond kMaxNetworkInteger.
NetworkValue evaluate(std::string_view text, bool quoted, const Scope& scope);
/// Evaluates a node, which may be a list or mapping of such texts.
NetworkValue evaluate(const YamlNode& node, const Scope& scope);

}  // namespace lockstep::model
