/// \file
/// Runs disk work in the background, one piece at a time, on its own thread.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

namespace lockstep::io {

/// Not thread-safe: one thread starts pieces and collects them.
class BackgroundWork {
 public:
  /// `patience`: seconds that the destructor waits for a piece. After that it abandons the thread until the end of the
  /// process, which must be near: the piece's objects stay until then.
  explicit BackgroundWork(double patience);
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Requires that no piece is under way. `work` owns what it uses; it is destroyed before it counts as done.
  void start(std::function<void()> work);
  /// True if a piece was started and not yet collected.
  bool under_way() const noexcept { return thread_.joinable(); }
  /// Waits at most `seconds`. Returns false if the piece is still under way; true if it is done, or if there is none.
  bool wait(double seconds);
  /// Declares the piece under way lost: the destructor will not wait for it.
  void give_up() noexcept { patience_ = 0; }
  /// Collects a finished piece and rethrows its exception. Returns true if it collected one; never waits.
  bool collect();

 private:
  struct State;

  double patience_;
  std::shared_ptr<State> state_;  ///< state of the piece under way, shared with its thread
  std::thread thread_;
};

}  // namespace lockstep::io
