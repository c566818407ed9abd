/// \file
/// Options whose value is one of a few names. The names of each type stand here once, for the parser, the help, the
/// saved configuration and every message.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

/// A name on the command line and its value.
template <class Value>
struct Choice {
  std::string word;
  Value value;
};

/// All choices of a type, in the order in which the help lists them. Specialised in choices.cpp, and beside the options
/// of a command that alone has the type.
template <class Value>
std::vector<Choice<Value>> choices();

/// The name of `value`; "" if it has none.
template <class Value>
std::string word_of(const Value& value, const std::vector<Choice<Value>>& of = choices<Value>()) {
  for (const Choice<Value>& choice : of) {
    if (choice.value == value) return choice.word;
  }
  return "";
}

}  // namespace lockstep::app
