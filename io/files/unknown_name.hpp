/// \file
/// The error of a name that a file does not hold.
#pragma once

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// A user named a dataset, an array or a column that the file does not hold: a mistake in the command, not in the file.
class UnknownName : public FileError {
 public:
  using FileError::FileError;
};

}  // namespace lockstep::io
