/// \file
/// Rank 0's output to the user, and its copy in the run's log file.
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

/// Writes every message as whole lines in one write, so nothing stays in a buffer when a process is killed, and lines
/// of several processes do not mix. Not thread-safe: call it only from the main thread.
class Console {
 public:
  /// A silent console (speaks = false, on ranks other than 0) accepts every call and does nothing.
  explicit Console(bool speaks);
  /// Writes to these descriptors instead of stdout and stderr. The caller keeps ownership.
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

  /// Copies every line to `path`, including earlier ones; append = false truncates the file first. From now on a reader
  /// of stdout or stderr that stops reading (a pager, a terminal after Ctrl-S) does not stop the program: lines that
  /// cannot be written for a second are dropped on that stream, and their number is reported when the stream accepts
  /// output again. Call once. Throws io::FileError.
  void attach_log(const std::filesystem::path& path, bool append);
  /// Writes one or more lines to stdout, wrapped to the width of a terminal, and to the log; adds the final newline.
  /// Throws io::FileError once if the log cannot be written (disk full), and then stops logging. A failing stdout
  /// throws nothing, because it must not end a long run. If there is a log, one warning says that only the log has all
  /// lines.
  void info(std::string_view text);
  /// Writes a line of figures: on a terminal as many as fit; elsewhere, and in the log, all.
  void info(const std::vector<LineField>& fields);
  /// Writes a part of a command's result, unchanged, only to stdout.
  void text(std::string_view part);
  /// Writes "warning: TEXT" to stderr and to the log; on a terminal the first word is coloured. Throws like info().
  void warn(std::string_view text);

  /// Selects if the progress bar is drawn. nullopt, the initial value: if stdout is a terminal.
  void set_progress(std::optional<bool> shown) noexcept { progress_ = shown; }
  /// Draws the progress bar on the bottom line, at most ten times a second; `fraction` in [0, 1]. Writes only to the
  /// terminal, never to the log.
  void progress(double fraction, std::string_view text);
  /// Removes the bar, if there is one; the next bar measures time anew. info() and warn() hide the bar themselves.
  void clear_progress();

  /// True if progress() draws something. Makes a system call: too slow for every step.
  bool shows_progress() const;
  bool speaks() const noexcept { return speaks_; }
  /// For a command whose output is its result: throws io::FileError if stdout did not accept all output. A reader that
  /// has closed its pipe (`| head -1`) is no error.
  void require_output() const;
  /// Call at the end of a command whose result is elsewhere: warns of lines that stdout did not accept.
  void mention_lost_output();

 private:
  /// Standard output or standard error.
  struct Stream {
    int descriptor;
    std::filesystem::path name;
    bool full = false;               ///< true if the last write found no space
    std::int64_t lines_skipped = 0;  ///< number of lines skipped since it was full
  };

  void say(std::string_view shown, std::string_view logged);
  void hide_bar();
  /// Returns 0 or errno.
  int write(Stream& stream, std::string_view bytes);
  void print(std::string_view bytes);
  void log(std::string_view lines);

  bool speaks_;
  Stream output_;
  Stream error_;
  io::Descriptor log_;
  std::string unlogged_;  ///< lines written before there was a log
  std::filesystem::path log_path_;
  io::IoDeadline* deadline_ = nullptr;
  std::optional<bool> progress_;
  ProgressBar bar_;
  bool bar_visible_ = false;
  int output_error_ = 0;  ///< errno of the first failed write to stdout; 0: none
  bool loss_mentioned_ = false;
};

}  // namespace lockstep::app
