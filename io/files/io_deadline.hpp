/// \file
/// Limits the time of a file operation. A file system may block a caller for any time, and a thread inside read(2) or
/// write(2) cannot be called back. The thread therefore announces its operation, and a second thread watches the clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace lockstep::io {

class IoDeadline {
 public:
  enum class Kind { reading, writing, printing };  ///< printing: to a terminal, a pipe or another reader
  /// An operation under way.
  struct Pending {
    Kind kind = Kind::reading;
    std::filesystem::path file;
    double seconds = 0;  ///< time since its start
    double late = 0;     ///< time beyond its allowance
  };
  /// Called by the watching thread, one at a time.
  struct Handlers {
    /// Every second or so while an operation is late by more than a second; gets the latest one.
    std::function<void(const Pending&)> waiting = {};
    std::function<void()> resumed = {};  ///< called after waiting() when no operation is late any more
    /// The limit has passed. Called once; usually ends the process.
    std::function<void(const Pending&)> expired = {};
  };

  /// `seconds` > 0: the limit for each operation's lateness.
  IoDeadline(double seconds, Handlers handlers);
  ~IoDeadline();  ///< requires that no operation is under way
  IoDeadline(const IoDeadline&) = delete;
  IoDeadline& operator=(const IoDeadline&) = delete;

  double seconds() const noexcept { return seconds_; }
  /// The operation that is latest. If its thread has nested operations, the innermost one that is itself a second late,
  /// because it knows the file.
  std::optional<Pending> latest() const;

  /// Allowance for one operation on many bytes, on the slowest file system: 0.1 s per megabyte.
  static double seconds_for(std::uint64_t bytes) noexcept { return static_cast<double>(bytes) / 10e6; }

  /// Scope of one operation: one system call, or a few. Any thread may use it; it costs 50 ns.
  class Operation {
   public:
    /// Does nothing if `deadline` is nullptr. `file` outlives the operation. The operation is late after `allowed`
    /// seconds.
    Operation(IoDeadline* deadline, Kind kind, const std::filesystem::path& file, double allowed = 0) noexcept;
    Operation(IoDeadline* deadline, Kind kind, std::filesystem::path&& file, double allowed = 0) = delete;
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    friend class IoDeadline;
    IoDeadline* deadline_;
    Kind kind_;
    const std::filesystem::path* file_;
    std::thread::id thread_ = std::this_thread::get_id();
    double began_ = 0;
    double allowed_;
    Operation* before_ = nullptr;  ///< neighbours in the list of operations
    Operation* after_ = nullptr;
  };

 private:
  Pending describe(const Operation& operation) const;
  void watch(const std::stop_token& stop);

  double seconds_;
  Handlers handlers_;
  std::atomic<double> clock_{0};  ///< seconds that this process has run; the clock rests while the process is stopped
  mutable std::mutex mutex_;
  Operation* first_ = nullptr;  ///< list of operations under way, newest first
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::io
