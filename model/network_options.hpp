/// \file
/// Options of networks as data. A kind of network declares those that it takes; what a user sets is a typed value under
/// the option's name, checked against the declaration before a network is made of it.
#pragma once

#include <cstdint>
#include <map>
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
  std::string_view name;        ///< "hidden": --hidden on the command line, `hidden = ` in a configuration
  OptionValue value;            ///< where the user sets none; its type is the option's
  std::string_view value_name;  ///< for help, "WIDTHS"
  std::string_view help;
  bool automatic = false;  ///< the network decides where the user sets nothing: `value` only tells the type
  std::optional<double> at_least = {}, below = {};  ///< of numbers, and of each number of a list
  Numbers one_of = {};                              ///< of whole numbers; empty: any in the range
  std::vector<std::string_view> words = {};         ///< of texts: what they may be; empty: anything
};

// Options that several kinds take alike.
NetworkOption weight_init_option();
NetworkOption bias_init_option();
/// layer_activation() reads it.
NetworkOption activation_option();
NetworkOption dropout_option();
/// The output layer shares the embedding's table.
NetworkOption tied_option(bool value);

/// A kind by its name, and what the user sets of its options.
struct NetworkOptions {
  std::string name = "mlp";
  std::map<std::string, OptionValue, std::less<>> values = {};

  /// The value of an option; nothing where it is not set. Throws std::bad_variant_access for another type.
  template <class T>
  std::optional<T> find(std::string_view option) const {
    const auto found = values.find(option);
    return found == values.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }
  /// The value of an option that is set. Throws std::bad_optional_access where it is not.
  template <class T>
  T get(std::string_view option) const {
    return find<T>(option).value();
  }
  /// That of all layers, of an option that holds initialisers; those of single layers are make_network's concern.
  std::optional<Initializer> initializer(std::string_view option) const {
    const auto all = find<Initializers>(option);
    return all ? all->all : std::nullopt;
  }
  bool operator==(const NetworkOptions&) const = default;
};

/// As users write it: "yes", "4", "0.1", "512,512", "relu", "normal(0.02)".
std::string to_text(const OptionValue& value);

/// What is wrong with a value of the option, as the end of a sentence ("must be at least 1"); "" where it is allowed.
std::string objection(const NetworkOption& option, const OptionValue& value);

}  // namespace lockstep::model
