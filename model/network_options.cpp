#include "model/network_options.hpp"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

template <class Number>
std::string objection_to_number(const NetworkOption& option, Number number) {
  if (option.at_least && !(static_cast<double>(number) >= *option.at_least)) {
    return fmt::format("must be at least {}", *option.at_least);
  }
  if (option.below && !(static_cast<double>(number) < *option.below)) {
    return fmt::format("must be less than {}", *option.below);
  }
  return "";
}

}  // namespace

std::string objection(const NetworkOption& option, const OptionValue& value) {
  // The text of a token: its vocabulary tells the number before a network is made.
  if (option.name == kDocumentToken && std::holds_alternative<std::string>(value)) return "";
  if (value.index() != option.value.index()) return "is of another type";
  return std::visit(
      [&]<typename T>(const T& typed) -> std::string {
        if constexpr (std::is_same_v<T, std::int64_t>) {
          if (!option.one_of.empty() && std::ranges::find(option.one_of, typed) == option.one_of.end()) {
            return fmt::format("is none of {}", fmt::join(option.one_of, ", "));
          }
          return objection_to_number(option, typed);
        } else if constexpr (std::is_same_v<T, double>) {
          return objection_to_number(option, typed);
        } else if constexpr (std::is_same_v<T, std::string>) {
          const bool allowed = option.words.empty() || std::ranges::find(option.words, typed) != option.words.end();
          return allowed ? "" : fmt::format("is none of {}", fmt::join(option.words, ", "));
        } else if constexpr (std::is_same_v<T, Numbers>) {
          for (const std::int64_t number : typed) {
            if (std::string wrong = objection_to_number(option, number); !wrong.empty()) return wrong;
          }
        }
        return "";
      },
      value);
}

std::string to_text(const OptionValue& value) {
  return std::visit(
      []<typename T>(const T& typed) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return typed ? "yes" : "no";
        } else if constexpr (std::is_same_v<T, Numbers>) {
          return fmt::format("{}", fmt::join(typed, ","));
        } else if constexpr (std::is_same_v<T, Initializers>) {
          return to_string(typed);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return typed;
        } else {
          return fmt::format("{}", typed);
        }
      },
      value);
}

NetworkOption weight_init_option() {
  return {.name = "weight-init",
          .value = Initializers{},
          .value_name = "SCHEME",
          .help =
              "initialisation of the weights: zeros, constant(V), uniform(HALF_WIDTH), normal(DEVIATION), "
              "truncated_normal(DEVIATION), xavier_uniform, xavier_normal, he_uniform, he_normal, lecun_normal, "
              "fan_in_uniform; LAYER=SCHEME for one layer, comma-separated: "
              "dense_1=normal(0.0357),dense_3=constant(1); auto: as the network defines it",
          .automatic = true};
}

NetworkOption bias_init_option() {
  return {.name = "bias-init",
          .value = Initializers{},
          .value_name = "SCHEME",
          .help = "initialisation of the biases, in the same form",
          .automatic = true};
}

NetworkOption document_token_option() {
  return {.name = std::string(kDocumentToken),
          .value = 0,
          .value_name = "TOKEN",
          .help =
              "number or text of the token that starts each document: nothing before it affects what follows, and "
              "positions restart at it; auto: documents are not separated",
          .automatic = true,
          .at_least = 0};
}

}  // namespace lockstep::model
