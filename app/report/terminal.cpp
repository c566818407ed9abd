#include "app/report/terminal.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/ioctl.h>
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

}  // namespace

Terminal terminal_at(int descriptor) {
  const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  if (!under_mpirun || descriptor != STDOUT_FILENO || isatty(descriptor) == 0) return ask(descriptor);
  const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/1";
  const int parent = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (parent < 0) return Terminal{};
  const Terminal terminal = ask(parent);
  close(parent);
  return terminal;
}

}  // namespace lockstep::app
