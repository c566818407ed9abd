#include "io/files/background_work.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace lockstep::io {

struct BackgroundWork::State {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::exception_ptr error;
};

BackgroundWork::BackgroundWork(double patience) : patience_(patience) {}

BackgroundWork::~BackgroundWork() {
  if (!under_way()) return;
  if (wait(patience_)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void BackgroundWork::start(std::function<void()> work) {
  if (under_way()) throw std::logic_error("a piece of work is under way already");
  state_ = std::make_shared<State>();
  thread_ = std::thread([state = state_, work = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;
    const std::lock_guard lock(state->mutex);
    state->error = std::move(error);
    state->done = true;
    state->ended.notify_all();
  });
}

bool BackgroundWork::wait(double seconds) {
  if (!under_way()) return true;
  std::unique_lock lock(state_->mutex);
  return state_->ended.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return state_->done; });
}

bool BackgroundWork::collect() {
  if (!wait(0) || !under_way()) return false;
  thread_.join();
  const std::shared_ptr<State> state = std::move(state_);
  if (state->error) std::rethrow_exception(state->error);
  return true;
}

}  // namespace lockstep::io
