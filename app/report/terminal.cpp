#include "app/report/terminal.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::app {
namespace {

Terminal ask(int descriptor) {
  Terminal terminal;
  terminal.interactive = isatty(descriptor) == 1;
  winsize size{};
  if (terminal.interactive && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  }
  const char *const refused = std::getenv("NO_COLOR"), *const name = std::getenv("TERM");
  terminal.coloured = terminal.interactive && (refused == nullptr || *refused == '\0') && name != nullptr &&
                      *name != '\0' && std::string_view(name) != "dumb";
  return terminal;
}

std::string output_of(pid_t process) { return "/proc/" + std::to_string(process) + "/fd/1"; }

/// Returns the parent process; 0: unknown.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // a name may contain blanks and parentheses
  return name_end == std::string::npos ? 0 : std::atoi(line.c_str() + std::min(name_end + 3, line.size()));
}

/// Returns the nearest ancestor with another standard output: mpirun, above shells that it may have started.
pid_t reader_of_output() {
  struct stat own {
  }, its{};
  if (fstat(STDOUT_FILENO, &own) != 0) return 0;
  pid_t process = getppid();
  while (process > 1 && stat(output_of(process).c_str(), &its) == 0 && its.st_rdev == own.st_rdev &&
         its.st_ino == own.st_ino) {
    process = parent_of(process);
  }
  return process;
}

}  // namespace

Terminal terminal_at(int descriptor) {
  const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  if (!under_mpirun || descriptor != STDOUT_FILENO || isatty(descriptor) == 0) return ask(descriptor);
  const int parent = open(output_of(reader_of_output()).c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (parent < 0) return Terminal{};
  const Terminal terminal = ask(parent);
  close(parent);
  return terminal;
}

}  // namespace lockstep::app
