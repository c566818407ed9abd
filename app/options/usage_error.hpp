/// \file
/// Exceptions that end the parsing of options.
#pragma once

#include <stdexcept>
#include <utility>

#include "app/options/help_page.hpp"

namespace lockstep::app {

/// A mistake of the user; exit code 2. The text names the option and, if it is unknown, the nearest valid name.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown for --help; exit code 0. what() is the text to print on stdout.
class HelpRequested : public std::runtime_error {
 public:
  explicit HelpRequested(HelpPage page) : std::runtime_error(to_text(page)), page_(std::move(page)) {}
  const HelpPage& page() const noexcept { return page_; }

 private:
  HelpPage page_;
};

}  // namespace lockstep::app
