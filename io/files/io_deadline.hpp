/// \file
/// How long one operation on a file may take. A file system may keep whoever asks it for as long as it likes, and a
/// thread inside read(2) or write(2) cannot be called back: it says before what it is about to do, and a thread beside
/// it looks at the time.
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
  enum class Kind { reading, writing, printing };  ///< printing: to a terminal, a pipe, whatever reads the words
  /// An operation that is under way.
  struct Pending {
    Kind kind = Kind::reading;
    std::filesystem::path file;
    double seconds = 0;  ///< since it began
    double late = 0;     ///< seconds of these beyond what was allowed to it
  };
  /// Called from the thread that looks at the time, one at a time.
  struct Handlers {
    /// Every second or so while an operation is late by more than that: the latest.
    std::function<void(const Pending&)> waiting = {};
    std::function<void()> resumed = {};  ///< after waiting(): none is any more
    /// The time is up. Once; most often it ends the process.
    std::function<void(const Pending&)> expired = {};
  };

  /// `seconds` > 0: so late each operation may be.
  IoDeadline(double seconds, Handlers handlers);
  ~IoDeadline();  ///< no operation may be under way
  IoDeadline(const IoDeadline&) = delete;
  IoDeadline& operator=(const IoDeadline&) = delete;

  double seconds() const noexcept { return seconds_; }
  /// Of those under way the one that is late by most; of operations that one thread has put into each other, the
  /// innermost that is late by a second itself: it knows the file.
  std::optional<Pending> latest() const;

  /// What a file system may take at the slowest for many bytes in one operation: 0.1 s for a megabyte.
  static double seconds_for(std::uint64_t bytes) noexcept { return static_cast<double>(bytes) / 10e6; }

  /// Scope of one operation: one call of the system, or a few. From any thread, 50 ns.
  class Operation {
   public:
    /// Nothing where `deadline` is nullptr. `file` outlives the operation. It is late after `allowed` seconds.
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
    Operation* before_ = nullptr;  ///< neighbours in the list of those under way
    Operation* after_ = nullptr;
  };

 private:
  Pending describe(const Operation& operation) const;
  void watch(const std::stop_token& stop);

  double seconds_;
  Handlers handlers_;
  std::atomic<double> clock_{0};  ///< seconds that this process ran; while it was stopped, none go by
  mutable std::mutex mutex_;
  Operation* first_ = nullptr;  ///< of those under way, newest first
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::io
