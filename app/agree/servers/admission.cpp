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

std::vector<int> Admission::in(State state) const {
  std::vector<int> found;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (at(worker).state == state) found.push_back(worker);
  }
  return found;
}

int Admission::living() const noexcept { return options_.workers - count(State::lost); }

int Admission::quorum() const noexcept {
  if (replay_ != nullptr && updates_ < replay_->end()) return replay_->gradients_of(updates_);
  return std::min(options_.quorum, living());
}

bool Admission::over() const noexcept { return count(State::pauses) == living(); }

void Admission::begin_round(std::int64_t target, const Replay* replay) {
  replay_ = replay;
  target_ = replay_ == nullptr ? target : std::min(target, replay_->round_end(updates_));
  for (Worker& worker : workers_) {
    if (worker.state != State::lost) worker.state = State::waits;
  }
}

void Admission::drain() {
  if (replay_ != nullptr) return;  // rounds end as recorded
  if (sums()) {
    // The round completes a step that a worker has begun. If no worker has begun it, the round ends before it.
    const bool begun = std::ranges::any_of(workers_, [&](const Worker& worker) {
      return worker.state == State::contributed || (worker.state == State::works && worker.step == updates_);
    });
    target_ = std::min(target_, updates_ + (begun ? 1 : 0));
    return;
  }
  const std::int64_t begun = updates_ + count(State::works), step = options_.workers;
  target_ = std::min(target_, (begun + step - 1) / step * step);
}

bool Admission::may_begin(const Worker& worker, std::int64_t update) const {
  if (sums()) return update == updates_;
  if (replay_ != nullptr || !options_.staleness) return true;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Worker& other : workers_) {
    if (other.state != State::lost) least = std::min(least, other.clock);
  }
  return worker.clock - least <= *options_.staleness;
}

std::optional<Admission::Turn> Admission::next() {
  if (decided_) return std::nullopt;
  const std::int64_t begun = updates_ + (sums() ? 0 : count(State::works));
  for (int index = 0; index < options_.workers; ++index) {
    Worker& worker = at(index);
    if (worker.state != State::waits) continue;
    const std::int64_t update = replay_ != nullptr ? replay_->next_of(index, std::max(updates_, worker.step), target_)
                                                   : (begun < target_ ? begun : -1);
    if (update < 0) {
      worker.state = State::pauses;
      return Turn{.worker = index, .goes_on = false, .step = 0};
    }
    if (!may_begin(worker, update)) continue;
    worker.state = State::works;
    worker.step = update;
    return Turn{.worker = index, .goes_on = true, .step = sums() ? update : update / options_.workers};
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
  return in(State::contributed);
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

}  // namespace lockstep::app
