#include "io/files/io_deadline.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace lockstep::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};
/// File systems often take up to this long; longer waits are reported at this interval.
constexpr double kWaitSeconds = 1;

}  // namespace

IoDeadline::Operation::Operation(IoDeadline* deadline, Kind kind, const std::filesystem::path& file,
                                 double allowed) noexcept
    : deadline_(deadline), kind_(kind), file_(&file), allowed_(allowed) {
  if (deadline_ == nullptr) return;
  began_ = deadline_->clock_.load(std::memory_order_relaxed);
  const std::lock_guard lock(deadline_->mutex_);
  after_ = std::exchange(deadline_->first_, this);
  if (after_ != nullptr) after_->before_ = this;
}

IoDeadline::Operation::~Operation() {
  if (deadline_ == nullptr) return;
  const std::lock_guard lock(deadline_->mutex_);
  (before_ != nullptr ? before_->after_ : deadline_->first_) = after_;
  if (after_ != nullptr) after_->before_ = before_;
}

IoDeadline::IoDeadline(double seconds, Handlers handlers) : seconds_(seconds), handlers_(std::move(handlers)) {
  if (!(seconds > 0)) throw std::invalid_argument(fmt::format("an I/O deadline of {} s: it must be positive", seconds));
  // Only the main thread handles signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

IoDeadline::~IoDeadline() {
  thread_.request_stop();
  thread_.join();
}

IoDeadline::Pending IoDeadline::describe(const Operation& operation) const {
  const double seconds = clock_.load(std::memory_order_relaxed) - operation.began_;
  return {.kind = operation.kind_, .file = *operation.file_, .seconds = seconds, .late = seconds - operation.allowed_};
}

std::optional<IoDeadline::Pending> IoDeadline::latest() const {
  const std::lock_guard lock(mutex_);
  const Operation* latest = first_;
  for (const Operation* each = first_; each != nullptr; each = each->after_) {
    if (each->began_ + each->allowed_ <= latest->began_ + latest->allowed_) latest = each;
  }
  for (const Operation* each = first_; each != nullptr && each != latest; each = each->after_) {
    if (each->thread_ == latest->thread_ && describe(*each).late >= kWaitSeconds) {
      latest = each;
      break;
    }
  }
  return latest == nullptr ? std::nullopt : std::optional(describe(*latest));
}

void IoDeadline::watch(const std::stop_token& stop) {
  double said_at = 0;
  bool waiting = false, expired = false;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  for (auto last = Clock::now(); !wake_.wait_for(lock, stop, kTick, [&] { return stop.stop_requested(); });) {
    // The clock rests while the process is stopped: it does not resume past its limit.
    const auto now = Clock::now();
    const double clock = clock_.load(std::memory_order_relaxed) +
                         std::min(1.0, std::chrono::duration<double>(now - std::exchange(last, now)).count());
    clock_.store(clock, std::memory_order_relaxed);
    const std::optional<Pending> pending = latest();
    if (!pending || pending->late < kWaitSeconds) {
      if (std::exchange(waiting, false) && handlers_.resumed) handlers_.resumed();
      continue;
    }
    if (!std::exchange(waiting, true) || clock - said_at >= kWaitSeconds) {
      said_at = clock;
      if (handlers_.waiting) handlers_.waiting(*pending);
    }
    if (pending->late >= seconds_ && !std::exchange(expired, true) && handlers_.expired) handlers_.expired(*pending);
  }
  // Reports the end of a wait that ended since the last look.
  if (waiting && handlers_.resumed) handlers_.resumed();
}

}  // namespace lockstep::io
