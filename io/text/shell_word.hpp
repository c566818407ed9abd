/// \file
/// Quotes names and paths in commands that messages propose.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::io {

/// Returns `text` as one word of a POSIX shell: as it is, or in single quotes if the shell might change it.
std::string shell_word(std::string_view text);

/// Likewise for a path. A path that begins with a dash, and would be taken for an option, gets ./ in front.
std::string shell_path(const std::filesystem::path& path);

}  // namespace lockstep::io
