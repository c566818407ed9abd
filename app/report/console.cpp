#include "app/report/console.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "app/report/terminal.hpp"
#include "app/report/wrapped_text.hpp"
#include "io/files/file_error.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

/// ECMA-48: carriage return, erase to the end of the line.
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// Writes all of `bytes`, through interruptions and short writes; returns 0 or errno. Another user of the pipe may have
/// made it non-blocking.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EAGAIN) {
        pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
        poll(&room, 1, -1);
        continue;
      }
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

constexpr int kPatienceMilliseconds = 1000;

/// True if something can be written without blocking, now or within `milliseconds`.
bool has_room(int descriptor, int milliseconds) {
  pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do ready = poll(&room, 1, milliseconds);
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

/// Escapes text from outside (io::visible_text). All messages of the program pass through here, or are fields of a
/// line.
/// Each line of the text, with the prefix before it.
std::string as_lines(std::string_view prefix, std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::string visible = io::visible_text(text);
  std::string lines(prefix);
  for (const char letter : visible) {
    lines += letter;
    if (letter == '\n') lines += prefix;
  }
  return lines + "\n";
}

}  // namespace

Console::Console(bool speaks) : Console(STDOUT_FILENO, STDERR_FILENO) { speaks_ = speaks; }

Console::Console(int output, int error)
    : speaks_(true),
      output_{.descriptor = output, .name = "standard output"},
      error_{.descriptor = error, .name = "standard error"} {}

Console::~Console() { hide_bar(); }

void Console::attach_log(const std::filesystem::path& path, bool append) {
  if (!speaks_) return;
  const io::IoDeadline::Operation opening(deadline_, io::IoDeadline::Kind::writing, path);
  log_ = io::open_own_file(path, O_WRONLY | O_CREAT | O_APPEND | (append ? 0 : O_TRUNC), "open the log file");
  log_path_ = path;
  log(std::exchange(unlogged_, {}));
  if (output_error_ != 0) mention_lost_output();
}

void Console::info(std::string_view text) {
  const std::string lines = as_lines("", text);
  const Terminal where = terminal_at(output_.descriptor);
  say(where.interactive ? wrapped_text(lines, where.columns) : lines, lines);
}

void Console::info(const std::vector<LineField>& fields) {
  if (!speaks_) return;
  std::vector<LineField> shown = fields;
  for (LineField& field : shown) field.text = io::visible_line(field.text);
  const std::string whole = full_line(shown) + "\n";
  const Terminal where = terminal_at(output_.descriptor);
  say(where.interactive ? fitted_line(shown, where.columns, where.coloured) + "\n" : whole, whole);
}

void Console::say(std::string_view shown, std::string_view logged) {
  if (!speaks_) return;
  hide_bar();
  print(shown);
  log(logged);
  if (output_error_ != 0 && log_.get() >= 0) mention_lost_output();
}

void Console::text(std::string_view part) {
  if (speaks_) print(terminal_at(output_.descriptor).interactive ? io::visible_text(part) : std::string(part));
}

void Console::warn(std::string_view text) {
  if (!speaks_) return;
  hide_bar();
  const bool coloured = terminal_at(error_.descriptor).coloured;
  write(error_, as_lines(coloured ? "\x1b[1;33mwarning:\x1b[0m " : "warning: ", text));
  log(as_lines("warning: ", text));
}

int Console::write(Stream& stream, std::string_view bytes) {
  const io::IoDeadline::Operation printing(deadline_, io::IoDeadline::Kind::printing, stream.name);
  if (log_.get() < 0) return write_all(stream.descriptor, bytes);
  if (!has_room(stream.descriptor, stream.full ? 0 : kPatienceMilliseconds)) {
    stream.full = true;
    stream.lines_skipped += std::count(bytes.begin(), bytes.end(), '\n');
    return 0;
  }
  std::string said;
  if (stream.lines_skipped > 0) {
    said = fmt::format("[{} lines found no room here: {} has them]\n{}", std::exchange(stream.lines_skipped, 0),
                       log_path_.string(), bytes);
    bytes = said;
  }
  stream.full = false;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, PIPE_BUF);  // a ready pipe accepts this much without blocking
    if (const int problem = write_all(stream.descriptor, piece); problem != 0) return problem;
    bytes.remove_prefix(piece.size());
    if (bytes.empty() || has_room(stream.descriptor, kPatienceMilliseconds)) continue;
    stream.full = true;
    stream.lines_skipped += std::count(bytes.begin(), bytes.end(), '\n');
    return 0;
  }
  return 0;
}

void Console::print(std::string_view bytes) {
  if (output_error_ == EPIPE) return;  // a pipe without a reader stays so; a full disk may have space again
  if (const int problem = write(output_, bytes); problem != 0 && output_error_ == 0) output_error_ = problem;
}

void Console::require_output() const {
  if (output_error_ == 0 || output_error_ == EPIPE) return;
  throw io::FileError(
      fmt::format("standard output cannot be written ({}): part of the result is lost", std::strerror(output_error_)));
}

void Console::mention_lost_output() {
  if (output_error_ == 0 || std::exchange(loss_mentioned_, true)) return;
  warn(fmt::format(
      "{}{}",
      output_error_ == EPIPE
          ? std::string("nobody reads standard output any more")
          : fmt::format("standard output cannot be written ({}), lines are lost there", std::strerror(output_error_)),
      log_path_.empty() ? "" : fmt::format("; the run goes on, and {} has all lines", log_path_.string())));
}

void Console::log(std::string_view lines) {
  if (log_.get() < 0) {
    if (log_path_.empty()) unlogged_ += lines;
    return;
  }
  const int problem = [&] {
    const io::IoDeadline::Operation writing(deadline_, io::IoDeadline::Kind::writing, log_path_);
    return write_all(log_.get(), lines);
  }();
  if (problem == 0) return;
  log_ = io::Descriptor();
  throw io::FileError(fmt::format("{}: cannot write the log: {}", log_path_.string(), std::strerror(problem)));
}

void Console::progress(double fraction, std::string_view text) {
  if (!shows_progress()) return;
  const Terminal where = terminal_at(output_.descriptor);
  // Leaves one column free, because some terminals wrap when the last column is used.
  const auto line = bar_.update(fraction, io::visible_line(text), where.columns - 1, ProgressBar::Clock::now());
  if (!line) return;
  print(fmt::format("\r{}\x1b[K", *line));
  bar_visible_ = true;
}

void Console::clear_progress() {
  hide_bar();
  bar_.reset();
}

void Console::hide_bar() {
  if (!bar_visible_) return;
  print(kEraseLine);
  bar_visible_ = false;
}

bool Console::shows_progress() const {
  return speaks_ && progress_.value_or(terminal_at(output_.descriptor).interactive);
}

}  // namespace lockstep::app
