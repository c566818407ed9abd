/// \file
/// Exceptions that end parsing without options.
#pragma once

#include <stdexcept>
#include <utility>

#include "app/options/help_page.hpp"

namespace lockstep::app {

/// The user's mistake: exit code 2. The text names the option and, for an unknown one, the nearest valid name.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown for --help: `what()` is the text to print on stdout; exit code 0.
class HelpRequested : public std::runtime_error {
 public:
  explicit HelpRequested(HelpPage page) : std::runtime_error(to_text(page)), page_(std::move(page)) {}
  const HelpPage& page() const noexcept { return page_; }

 private:
  HelpPage page_;
};

}  // namespace lockstep::app
