#include "app/options/moved_path.hpp"

#include <system_error>

namespace lockstep::app {

std::filesystem::path moved_along(const std::filesystem::path& file, const std::filesystem::path& run_before,
                                  const std::filesystem::path& run_now) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (file.empty() || run_before.empty() || fs::exists(file, unknown)) return file;
  const fs::path way = file.lexically_relative(run_before);
  if (way.empty()) return file;
  const fs::path there = (fs::absolute(run_now) / way).lexically_normal();
  return fs::exists(there, unknown) ? there : file;
}

}  // namespace lockstep::app
