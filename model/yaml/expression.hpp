/// \file
/// Values in network files: words, numbers and lists, with $NAME and $(EXPRESSION) inside.
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

/// Values under names, as of a mapping.
struct NetworkFields {
  std::vector<std::string> names;
  std::vector<NetworkValue> values;
};

struct NetworkValue {
  std::variant<bool, std::int64_t, double, std::string, std::vector<NetworkValue>, NetworkFields> data;
};

/// For messages, and for texts that values are put into: "yes", "4", "0.5", "relu", "3,3,3".
std::string to_text(const NetworkValue& value);
/// "a whole number", "a list" ...
std::string_view type_name(const NetworkValue& value);
NetworkValue network_value(const OptionValue& value);

/// The names that a text may use.
class Scope {
 public:
  /// `outer`: names that are visible, too; outlives the scope.
  explicit Scope(const Scope* outer = nullptr) : outer_(outer) {}
  /// Replaces an earlier value of this scope.
  void set(std::string name, NetworkValue value);
  const NetworkValue* find(std::string_view name) const noexcept;
  std::vector<std::string> names() const;

 private:
  const Scope* outer_;
  std::vector<std::pair<std::string, NetworkValue>> values_;
};

inline constexpr std::int64_t kMaxNetworkInteger = std::int64_t{1} << 40;

/// The value of a text of a file: a number, yes or no, or a word; `$name` and `$(a + b*c / d, sqrt)` alone have the
/// value's type, inside a text they are put in. Throws std::invalid_argument (without the place) for unknown names, for
/// what is no expression, and for whole numbers beyond kMaxNetworkInteger.
NetworkValue evaluate(std::string_view text, bool quoted, const Scope& scope);
/// The same for lists and mappings of such texts.
NetworkValue evaluate(const YamlNode& node, const Scope& scope);

}  // namespace lockstep::model
