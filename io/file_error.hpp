/// \file
/// The world's failure on the file side.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::io {

/// The text names the file, what happened and what to do.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::io
