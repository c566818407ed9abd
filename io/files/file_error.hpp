/// \file
/// Errors of files and file systems.
#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::io {

/// The text names the file, the failure and the remedy. Parts, if given, let callers compose their own message.
class FileError : public std::runtime_error {
 public:
  struct Parts {
    std::filesystem::path file;
    std::string what;      ///< "cannot open it: No such file or directory"
    int error_number = 0;  ///< errno; 0: not an error of the operating system
  };

  using std::runtime_error::runtime_error;
  /// "FILE: WHAT"
  explicit FileError(Parts parts) : FileError(parts.file.string() + ": " + parts.what, parts) {}
  FileError(const std::string& text, Parts parts)
      : std::runtime_error(text), parts_(std::make_shared<const Parts>(std::move(parts))) {}

  const Parts& parts() const noexcept { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_ = std::make_shared<const Parts>();
};

}  // namespace lockstep::io
