/// \file
/// Options of networks as data. A kind of network declares its options. A user's setting is a typed value under the
/// option's name, which is checked against the declaration before a network is made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/initialize.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model {

using Numbers = std::vector<std::int64_t>;
using OptionValue = std::variant<bool, std::int64_t, double, Numbers, Initializers, std::string>;

/// One option, as a kind of network declares it. Kinds that share a name share its type.
struct NetworkOption {
  std::string name;        ///< "hidden": --hidden on the command line, `hidden = ` in a configuration
  OptionValue value;       ///< default value; also fixes the option's type
  std::string value_name;  ///< for help, "WIDTHS"
  std::string help;
  bool automatic = false;  ///< the network chooses the value of an unset option; `value` only fixes the type
  std::optional<double> at_least = {}, below = {};  ///< limits of numbers, and of each number of a list
  Numbers one_of = {};                              ///< allowed whole numbers; empty: any within the limits
  std::vector<std::string> words = {};              ///< allowed texts; empty: any
};

// Options of every network.
NetworkOption weight_init_option();
NetworkOption bias_init_option();
/// Option of every language model: the number of a token, or its text until the vocabulary of the data is known.
inline constexpr std::string_view kDocumentToken = "document-token";
NetworkOption document_token_option();

struct NetworkKind;

/// The name of a kind and the options that the user set.
struct NetworkOptions {
  std::string name = "mlp";  ///< a shipped network, or the file that `source` was read from
  std::map<std::string, OptionValue, std::less<>> values = {};
  /// Network of a user's file; ignored unless `name` is that file.
  std::shared_ptr<const NetworkKind> source = {};

  /// Returns the value of an option, or nullopt if it is not set. Throws std::bad_variant_access if T is not its type.
  template <class T>
  std::optional<T> find(std::string_view option) const {
    const auto found = values.find(option);
    return found == values.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }
  /// Returns the value of an option. Throws std::bad_optional_access if it is not set.
  template <class T>
  T get(std::string_view option) const {
    return find<T>(option).value();
  }
  /// Returns the initialiser for all layers from an option that holds initialisers. make_network handles initialisers
  /// of single layers.
  std::optional<Initializer> initializer(std::string_view option) const {
    const auto all = find<Initializers>(option);
    return all ? all->all : std::nullopt;
  }
  bool operator==(const NetworkOptions& other) const;
};

/// Returns the value as a user writes it: "yes", "4", "0.1", "512,512", "relu", "normal(0.02)".
std::string to_text(const OptionValue& value);

/// Returns why the option does not allow the value, as the end of a sentence ("must be at least 1"); "" if it does.
std::string objection(const NetworkOption& option, const OptionValue& value);

}  // namespace lockstep::model
