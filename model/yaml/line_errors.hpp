/// \file
/// Errors in a network's file, with the line.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "model/yaml/yaml_document.hpp"

namespace lockstep::model {

/// Base of the readers of a file.
class LineErrors {
 protected:
  explicit LineErrors(std::string file) : file_(std::move(file)) {}

  const std::string& file() const noexcept { return file_; }
  /// Throws std::invalid_argument, "FILE:LINE: ...".
  [[noreturn]] void refuse(int line, std::string_view what) const {
    throw std::invalid_argument(fmt::format("{}: {}", place_of(file_, line), what));
  }
  /// Runs work(), and adds the line and `subject` in front of its std::invalid_argument.
  template <class Work>
  auto in_line(int line, std::string_view subject, const Work& work) const {
    try {
      return work();
    } catch (const std::invalid_argument& error) {
      refuse(line, fmt::format("{}{}{}", subject, subject.empty() ? "" : " ", error.what()));
    }
  }

 private:
  std::string file_;
};

}  // namespace lockstep::model
