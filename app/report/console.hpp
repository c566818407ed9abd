/// \file
/// The voice of the program: what rank 0 prints, and the copy of it in the run's log file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/line_fields.hpp"
#include "app/report/progress_bar.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Every message leaves in one write of whole lines, so nothing waits in a buffer when a process is killed and lines of
/// several processes do not mix. Not thread-safe: the main thread speaks.
class Console {
 public:
  /// A silent console (speaks = false: ranks other than 0) accepts every call and does nothing.
  explicit Console(bool speaks);
  /// Writes to these descriptors instead of stdout and stderr; they stay the caller's.
  Console(int output, int error);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Scope in which writes of the console have a deadline.
  class Watch {
   public:
    Watch(Console& console, io::IoDeadline& deadline)
        : console_(console), before_(std::exchange(console.deadline_, &deadline)) {}
    ~Watch() { console_.deadline_ = before_; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Console& console_;
    io::IoDeadline* before_;
  };

  /// A copy of every line goes to `path`, those said before included; append = false truncates it. From here on a
  /// reader of stdout or stderr that has stopped (a pager, a terminal after Ctrl-S) does not stop the program: lines
  /// that find no room for a second are left out there, and how many they were is said when there is room again. Once.
  /// Throws io::FileError.
  void attach_log(const std::filesystem::path& path, bool append);
  /// One or more lines to stdout, where a terminal gets them in its width, and the log; the final newline is added.
  /// Throws io::FileError when the log cannot be written (disk full), once: the log is given up then. A stdout that
  /// fails is not thrown: it must not end a long run. Where there is a log, a warning says once that only the log has
  /// all lines.
  void info(std::string_view text);
  /// A line of figures: as much of it as fits on a terminal, all of it elsewhere and in the log.
  void info(const std::vector<LineField>& fields);
  /// A part of a text that is the result, to stdout alone and as it is.
  void text(std::string_view part);
  /// "warning: TEXT" to stderr, where a terminal shows the first word in colour, and the log. Throws like info().
  void warn(std::string_view text);

  /// Whether the progress bar is drawn; nullopt, as at first: where stdout is a terminal.
  void set_progress(std::optional<bool> shown) noexcept { progress_ = shown; }
  /// Draws the progress bar on the bottom line, at most ten times a second; `fraction` in [0, 1]. Goes to the terminal
  /// only, never to the log.
  void progress(double fraction, std::string_view text);
  /// Removes the bar, if there is one; the next one starts its clock anew. info() and warn() hide the bar by
  /// themselves.
  void clear_progress();

  /// progress() draws something. Asks the system: not for every step.
  bool shows_progress() const;
  bool speaks() const noexcept { return speaks_; }
  /// For a command whose result is what it prints: throws io::FileError where stdout did not take it. A reader that has
  /// closed its pipe (`| head -1`) has had what it wanted: no error.
  void require_output() const;
  /// For a command whose result lies elsewhere, at its end: warns of lines that stdout did not take.
  void mention_lost_output();

 private:
  /// Standard output or error.
  struct Stream {
    int descriptor;
    std::filesystem::path name;
    bool full = false;               ///< the last write has found no room
    std::int64_t lines_skipped = 0;  ///< since it was full
  };

  void say(std::string_view shown, std::string_view logged);
  void hide_bar();
  /// 0 or errno.
  int write(Stream& stream, std::string_view bytes);
  void print(std::string_view bytes);
  void log(std::string_view lines);

  bool speaks_;
  Stream output_;
  Stream error_;
  io::Descriptor log_;
  std::string unlogged_;  ///< what was said before there was a log
  std::filesystem::path log_path_;
  io::IoDeadline* deadline_ = nullptr;
  std::optional<bool> progress_;
  ProgressBar bar_;
  bool bar_visible_ = false;
  int output_error_ = 0;  ///< errno of the first write to stdout that failed; 0: none did
  bool loss_mentioned_ = false;
};

}  // namespace lockstep::app
