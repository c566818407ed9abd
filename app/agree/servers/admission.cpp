#include "app/agree/servers/admission.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::app {

Admission::Admission(const Options& options)
    : options_(options),
      workers_(static_cast<std::size_t>(options.workers)),
      updates_(options.updates),
      target_(options.updates) {}

int Admission::count(State state) const noexcept {
  return static_cast<int>(std::ranges::count_if(workers_, [&](const Worker& worker) { return worker.state == state; }));
}

int Admission::living() const noexcept { return options_.workers - count(State::lost); }

int Admission::quorum() const noexcept {
  if (options_.script && updates_ < options_.script->end())
    return static_cast<int>(options_.script->at(updates_).size());
  return std::min(options_.quorum, living());
}

bool Admission::over() const noexcept { return count(State::pauses) == living(); }

void Admission::begin_round(std::int64_t target) {
  target_ = target;
  if (options_.script && updates_ >= options_.script->end()) options_.script.reset();
  if (options_.script) {
    target_ = std::min(target_, options_.script->end());
    for (const std::int64_t end : options_.script->round_ends) {
      if (end > updates_) target_ = std::min(target_, end);
    }
  }
  for (Worker& worker : workers_) {
    if (worker.state != State::lost) worker.state = State::waits;
  }
}

void Admission::drain() {
  if (options_.script) return;  // its rounds end where they did
  if (sums()) {
    // The round completes a step that some have begun, and leaves out one that nobody has.
    const bool begun = std::ranges::any_of(workers_, [&](const Worker& worker) {
      return worker.state == State::contributed || (worker.state == State::works && worker.step == updates_);
    });
    target_ = std::min(target_, updates_ + (begun ? 1 : 0));
    return;
  }
  const std::int64_t begun = updates_ + count(State::works), step = options_.workers;
  target_ = std::min(target_, (begun + step - 1) / step * step);
}

bool Admission::may_begin(const Worker& worker) const {
  if (!options_.staleness) return true;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Worker& other : workers_) {
    if (other.state != State::lost) least = std::min(least, other.clock);
  }
  return worker.clock - least <= *options_.staleness;
}

/// In a script: the next update of this worker from now on; -1: none.
std::int64_t Admission::scripted(int worker) const {
  for (std::int64_t update = std::max(updates_, at(worker).step); update < target_; ++update) {
    for (const Arrival& arrival : options_.script->at(update)) {
      if (arrival.worker == worker) return update;
    }
  }
  return -1;
}

/// As next(), where a script decides.
std::optional<Admission::Word> Admission::next_of_script() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.state != State::waits) continue;
    const int index = static_cast<int>(i);
    const std::int64_t update = scripted(index);
    if (update < 0) {
      worker.state = State::pauses;
      return Word{.worker = index, .goes_on = false, .step = 0};
    }
    if (sums() && update != updates_) continue;
    worker.state = State::works;
    worker.step = update;
    return Word{.worker = index, .goes_on = true, .step = sums() ? update : update / options_.workers};
  }
  return std::nullopt;
}

std::optional<Admission::Word> Admission::next() {
  if (decided_) return std::nullopt;
  if (options_.script) return next_of_script();
  const std::int64_t begun = updates_ + (sums() ? 0 : count(State::works));
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.state != State::waits) continue;
    const int index = static_cast<int>(i);
    if (begun >= target_) {
      worker.state = State::pauses;
      return Word{.worker = index, .goes_on = false, .step = 0};
    }
    if (!sums() && !may_begin(worker)) continue;
    worker.state = State::works;
    worker.step = updates_;
    return Word{.worker = index, .goes_on = true, .step = sums() ? updates_ : begun / options_.workers};
  }
  return std::nullopt;
}

Admission::Verdict Admission::arrived(int index) {
  Worker& worker = at(index);
  if (worker.state == State::lost) return Verdict::dropped;
  ++worker.clock;
  if (!sums()) {
    worker.state = State::waits;
    ++updates_;
    return Verdict::update;
  }
  if (worker.step < updates_ + (decided_ ? 1 : 0)) {
    worker.state = State::waits;
    return Verdict::dropped;
  }
  worker.state = State::contributed;
  return count(State::contributed) >= quorum() ? Verdict::update : Verdict::waits;
}

std::vector<int> Admission::decide() {
  decided_ = true;
  std::vector<int> found;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].state == State::contributed) found.push_back(static_cast<int>(i));
  }
  return found;
}

void Admission::updated() {
  ++updates_;
  decided_ = false;
  for (Worker& worker : workers_) {
    if (worker.state == State::contributed) worker.state = State::waits;
  }
}

bool Admission::lost(int index) {
  at(index).state = State::lost;
  const int ready = count(State::contributed);
  return sums() && !decided_ && ready > 0 && ready >= quorum();
}

std::vector<int> Admission::missing() const {
  std::vector<int> found;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].state == State::works) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace lockstep::app
