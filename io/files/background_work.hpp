/// \file
/// Work with a disk beside everything else: one piece at a time, on a thread of its own.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

namespace lockstep::io {

/// Not thread-safe: one thread starts pieces and asks for them.
class BackgroundWork {
 public:
  /// `patience`: seconds that the destructor waits for a piece. Past them its thread is left to the end of the process,
  /// which must be near: what the piece owns stays until then.
  explicit BackgroundWork(double patience);
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Nothing may be under way. `work` owns what it touches; it is destroyed before it counts as done.
  void start(std::function<void()> work);
  /// A piece was started and not yet collected.
  bool under_way() const noexcept { return thread_.joinable(); }
  /// Waits `seconds` at most; false: the piece still goes on. True where there is none.
  bool wait(double seconds);
  /// Nobody expects the piece under way to end any more: the destructor will not wait for it.
  void give_up() noexcept { patience_ = 0; }
  /// Where the piece is done: rethrows what it threw. Returns whether one was collected; never waits.
  bool collect();

 private:
  struct State;

  double patience_;
  std::shared_ptr<State> state_;  ///< of the piece under way, shared with its thread
  std::thread thread_;
};

}  // namespace lockstep::io
