/// \file
/// Options whose value is one of a few names. One list per type defines the names for the parser, the help, the saved
/// configuration and all messages.
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

/// Returns all choices of a type, in the order of the help. Specialised in choices.cpp; for a type that only one
/// command has, in the file of that command's options.
template <class Value>
std::vector<Choice<Value>> choices();

/// Returns the name of `value`; "" if it has none.
template <class Value>
std::string word_of(const Value& value, const std::vector<Choice<Value>>& of = choices<Value>()) {
  for (const Choice<Value>& choice : of) {
    if (choice.value == value) return choice.word;
  }
  return "";
}

}  // namespace lockstep::app
