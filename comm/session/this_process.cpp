#include "comm/session/this_process.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <random>

#include <poll.h>
#include <unistd.h>

namespace lockstep::comm {

std::string host_name() {
  char buffer[256] = {};
  if (gethostname(buffer, sizeof(buffer) - 1) != 0 || buffer[0] == '\0') return "unknown host";
  std::string name = buffer;
  std::ranges::replace_if(
      name, [](unsigned char c) { return c <= ' ' || c > '~'; }, '?');
  return name;
}

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

void write_stderr(std::string_view text) noexcept {
  constexpr int kMaxMilliseconds = 1000;
  while (!text.empty()) {
    pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const int ready = poll(&room, 1, kMaxMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return;
    // A pipe with space accepts this amount at once, without blocking the writer.
    const ssize_t written = write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace lockstep::comm
