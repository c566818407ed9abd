/// \file
/// Options of networks as data. A kind of network declares those that it takes; what a user sets is a typed value under
/// the option's name, checked against the declaration before a network is made of it.
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
  OptionValue value;       ///< default value; its type is the option's
  std::string value_name;  ///< for help, "WIDTHS"
  std::string help;
  bool automatic = false;  ///< the network decides an unset option: `value` only gives the type
  std::optional<double> at_least = {}, below = {};  ///< limits of numbers, and of each number of a list
  Numbers one_of = {};                              ///< allowed whole numbers; empty: any in the range
  std::vector<std::string> words = {};              ///< allowed texts; empty: any
};

// Options of every network.
NetworkOption weight_init_option();
NetworkOption bias_init_option();
/// Option of every language model.
inline constexpr std::string_view kDocumentToken = "document-token";
NetworkOption document_token_option();

struct NetworkKind;

/// The name of a kind and the options that the user set.
struct NetworkOptions {
  std::string name = "mlp";  ///< a shipped network, or the file that `source` was read from
  std::map<std::string, OptionValue, std::less<>> values = {};
  /// The network of a user's file. Counts if `name` is its file.
  std::shared_ptr<const NetworkKind> source = {};

  /// The value of an option; nothing if it is not set. Throws std::bad_variant_access for another type.
  template <class T>
  std::optional<T> find(std::string_view option) const {
    const auto found = values.find(option);
    return found == values.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }
  /// The value of an option that is set. Throws std::bad_optional_access if it is not.
  template <class T>
  T get(std::string_view option) const {
    return find<T>(option).value();
  }
  /// The initialiser for all layers, from an option that holds initialisers; make_network handles those of single
  /// layers.
  std::optional<Initializer> initializer(std::string_view option) const {
    const auto all = find<Initializers>(option);
    return all ? all->all : std::nullopt;
  }
  bool operator==(const NetworkOptions& other) const;
};

/// The value in users' notation: "yes", "4", "0.1", "512,512", "relu", "normal(0.02)".
std::string to_text(const OptionValue& value);

/// The fault of a value of the option, as the end of a sentence ("must be at least 1"); "" if it is allowed.
std::string objection(const NetworkOption& option, const OptionValue& value);

}  // namespace lockstep::model
