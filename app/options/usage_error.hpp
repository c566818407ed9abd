/// \file
/// How parsing ends that does not end in options.
#pragma once

#include <stdexcept>

namespace lockstep::app {

/// The user's mistake: exit code 2. The text names the option and, for an unknown one, the nearest valid name.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown for --help: `what()` is the text to print on stdout; exit code 0.
class HelpRequested : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::app
