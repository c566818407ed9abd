#include "app/agree/servers/parameter_server.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/agree/stuck.hpp"
#include "comm/host/summation.hpp"

namespace lockstep::app {

namespace {

std::vector<int> ranks_of_workers(const Servers& servers) {
  std::vector<int> ranks(static_cast<std::size_t>(servers.workers));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

comm::ServerNote note_of(Say say) { return {.kind = static_cast<std::int32_t>(say)}; }

}  // namespace

ParameterServer::ParameterServer(comm::MpiSession& session, const Plan& plan, const Servers& servers, int index,
                                 ServedMemory memory)
    : plan_(plan),
      servers_(servers),
      memory_(std::move(memory)),
      index_(index),
      workers_count_(servers_.workers),
      sums_(plan.settings.agree.sums_on_servers()),
      part_(plan, servers, index, memory_.window, memory_.weights, sums_ ? 1 : workers_count_),
      to_workers_(session, {.send = comm::ServerMessages::Lane::to_workers,
                            .receive = comm::ServerMessages::Lane::to_servers,
                            .peers = ranks_of_workers(servers_),
                            .window = &memory_.window}),
      workers_(static_cast<std::size_t>(workers_count_)),
      session_(session) {
  if (servers_.count > 1) {
    std::vector<int> others;
    for (int other = 0; other < servers_.count; ++other) {
      if (other != index) others.push_back(servers_.rank_of(other));
    }
    squares_.assign(others.size(), 0.0);
    to_servers_.emplace(session, comm::ServerMessages::Options{.send = comm::ServerMessages::Lane::between_servers,
                                                               .receive = comm::ServerMessages::Lane::between_servers,
                                                               .peers = std::move(others),
                                                               .window = &memory_.window});
  }
  figures_.accepted.assign(workers_.size(), 0.0);
  figures_.dropped.assign(workers_.size(), 0.0);
}

void ParameterServer::load(const model::ParameterState& from, const Standing& course) {
  part_.load(from, course);
  spoilt_.clear();
  for (Worker& worker : workers_) {
    worker.has_version = worker.scripted = worker.reads_for = -1;
    worker.has_gradient = false;
  }
  figures_.loss = figures_.metric = figures_.samples = 0;
  script_.reset();
  if (!coordinates() && sums_) return;
  const ArrivalHead head{.first = part_.version(), .workers = workers_count_, .sums = sums_ ? 1 : 0};
  record_.emplace(head);
  if (plan_.replay.empty()) return begin_admission();
  script_ = std::make_shared<ArrivalScript>(read_arrivals(arrivals_of(plan_.replay, index_), head));
}

void ParameterServer::follow_script(std::int64_t end) {
  if (script_) script_->end_at(end);
  begin_admission();
}

void ParameterServer::begin_admission() {
  if (!coordinates()) return;
  const AgreeOptions& agree = plan_.settings.agree;
  Admission::Options options{.workers = workers_count_,
                             .quorum = !sums_             ? 0
                                       : agree.quorum > 0 ? agree.quorum
                                                          : workers_count_,
                             .staleness = {},
                             .updates = part_.version(),
                             .script = script_};
  if (!sums_ && agree.staleness > 0) options.staleness = agree.staleness;
  admission_.emplace(options);
  for (const int worker : lost_) admission_->lost(worker);
}

void ParameterServer::serve(std::int64_t steps, const Look& look, const std::stop_token& stop) {
  comm::MessageWait waiting = message_wait();
  byes_ = static_cast<int>(lost_.size());
  ended_ = false;
  for (Worker& worker : workers_) worker.paused = worker.listens = false;
  for (const int worker : lost_) workers_[static_cast<std::size_t>(worker)].paused = true;
  if (admission_) admission_->begin_round(sums_ ? steps : steps * workers_count_);
  since_heard_.lap();
  StopWatch since_look;
  const auto over_on_all_sides = [&] { return over() && ended_ && all_sent(); };
  if (script_ && part_.version() >= script_->end()) script_.reset();
  while (!stop.stop_requested()) {
    waiting.look();
    const bool heard = progress();
    if (over_on_all_sides()) break;
    if (heard) {
      waiting.reset();
    } else {
      waiting.pause(!all_sent());
    }
    if (since_look.seconds() < kSecondsBetweenGlances) continue;
    since_look.lap();
    if (look) look();
    if (since_heard_.seconds() > stuck_after(plan_.settings.execution, longest_)) give_up();
  }
  if (record_ && over()) record_->end_round();
}

/// Nobody has said anything for too long.
void ParameterServer::give_up() const {
  std::vector<int> silent;
  if (own_squares_) {  // the workers wait for this update
    for (int server = 0; server < servers_.count; ++server) {
      if (server != index_) silent.push_back(servers_.rank_of(server));
    }
    throw comm::PeerError(fmt::format("server {}: the other servers ({}) do not come to update {} for {:.0f} s", index_,
                                      fmt::join(silent, ", "), part_.version() + 1, since_heard_.seconds()));
  }
  if (admission_) silent = admission_->missing();
  for (int worker = 0; silent.empty() && worker < workers_count_; ++worker) {
    if (!workers_[static_cast<std::size_t>(worker)].paused) silent.push_back(worker);
  }
  throw comm::PeerError(fmt::format("server {}: no gradient has come for {:.0f} s from {} {}; look at what they do",
                                    index_, since_heard_.seconds(), silent.size() == 1 ? "rank" : "ranks",
                                    fmt::join(silent, ", ")));
}

comm::MessageWait ParameterServer::message_wait() {
  bool near = true;
  for (int rank = 0; rank < session_.size(); ++rank) {
    if (servers_.trains(rank) || servers_.on(rank) >= 0) near = near && memory_.window.reaches(rank);
  }
  return {memory_.window,
          {.end = comm::HostWindow::End::server, .near = near, .lends = servers_.trains(session_.rank())}};
}

/// One pass: hears as many messages as there are peers, and does what they ask for. False: there was none.
bool ParameterServer::progress() {
  bool heard = false;
  if (admission_) tell_workers();
  for (int worker = 0; worker < workers_count_; ++worker) {
    const auto message = to_workers_.poll();
    if (!message) break;
    hear(*message);
    heard = true;
    if (admission_) tell_workers();
  }
  for (int other = 1; other < servers_.count; ++other) {
    const auto message = to_servers_->poll();
    if (!message) break;
    hear_server(*message);
    heard = true;
  }
  if (decided_ && apply_sum()) heard = true;
  if (!sums_ && script_) apply_scripted();
  if (over() && !ended_ && admission_) say_end();
  if (heard) since_heard_.lap();
  return heard;
}

bool ParameterServer::all_sent() { return to_workers_.all_sent() && (!to_servers_ || to_servers_->all_sent()); }

bool ParameterServer::over() const { return byes_ == workers_count_ && !decided_; }

void ParameterServer::tell_others(const comm::ServerNote& note, std::span<const float> values) {
  for (int other = 0; to_servers_ && other < to_servers_->peers(); ++other) to_servers_->send(other, note, values);
}

void ParameterServer::say_end() {
  for (int worker = 0; worker < workers_count_; ++worker) to_workers_.send(worker, note_of(Say::end));
  tell_others(note_of(Say::end));
  ended_ = true;
}

void ParameterServer::lost(int index) {
  if (std::ranges::find(lost_, index) != lost_.end()) return;
  if (index == 0 || servers_.on(index) >= 0 || static_cast<int>(lost_.size()) + 1 >= workers_count_) {
    throw comm::PeerError(
        fmt::format("{} has died, without which the others cannot go on{}. Ending the job: --resume "
                    "goes on from the last checkpoint.",
                    session_.describe(index), servers_.on(index) >= 0 ? ": it keeps parameters" : ""));
  }
  comm::ServerNote note = note_of(Say::lost);
  note.step = index;
  if (!admission_) return to_servers_->send(0, note);  // the coordinator decides when
  if (ended_) return;                                  // said in the next round
  const bool complete = admission_->lost(index);
  leave_out(index);
  tell_others(note);
  for (int worker = 0; worker < workers_count_; ++worker) to_workers_.send(worker, note);
  if (complete) decide();
}

void ParameterServer::lost_between_rounds(int index) {
  if (std::ranges::find(lost_, index) != lost_.end()) return;
  if (admission_) admission_->lost(index);
  leave_out(index);
}

/// Nothing is expected of a worker any more.
void ParameterServer::leave_out(int index) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  if (decided_ && std::ranges::find(*decided_, index) != decided_->end() && !worker.has_gradient) {
    throw comm::PeerError(fmt::format(
        "{} has died in the middle of a gradient that some servers have taken already. Ending the job: --resume goes "
        "on from the last checkpoint.",
        session_.describe(index)));
  }
  lost_.insert(std::ranges::lower_bound(lost_, index), index);
  worker.wants.reset();
  if (!worker.paused) ++byes_;
  worker.paused = true;
  to_workers_.forget(index);
}

void ParameterServer::drain() {
  if (admission_) return admission_->drain();
  to_servers_->send(0, note_of(Say::drain));  // the coordinator is the first of the others
}

/// The coordinator's word to every worker that waits for it.
void ParameterServer::tell_workers() {
  while (const auto word = admission_->next()) {
    comm::ServerNote note = note_of(word->goes_on ? Say::go : Say::pause);
    note.step = word->step;
    note.version = sums_ ? part_.version() : 0;
    note.done = part_.step();
    note.samples = figures_.samples;
    note.loss = figures_.loss;
    note.metric = figures_.metric;
    note.squares = figures_.gradient_norm * figures_.gradient_norm;
    note.rate = figures_.learning_rate;
    note.longest = longest_;
    Worker& worker = workers_[static_cast<std::size_t>(word->worker)];
    worker.since_go.lap();
    // Until it has been heard in this round its weights are not its own to be written.
    if (word->goes_on && worker.listens && (sums_ || !script_)) {
      note.flags = kBrought;
      send_weights(word->worker, note);
    } else {
      to_workers_.send(word->worker, note);
    }
  }
}

void ParameterServer::hear(const comm::ServerMessages::Received& message) {
  Worker& worker = workers_[static_cast<std::size_t>(message.peer)];
  worker.listens = true;
  longest_ = std::max(longest_, message.note.longest);
  switch (static_cast<Say>(message.note.kind)) {
    case Say::pull:
      worker.wants = message.note.version;
      if (!sums_ && script_) {
        worker.reads_for = next_scripted(worker);
        if (worker.reads_for < 0) {
          throw comm::PeerError(
              fmt::format("--replay: the record of server {} knows no further gradient of rank {}: give "
                          "the options of the run that is repeated, and the records of all servers",
                          index_, message.peer));
        }
        worker.wants = worker.reads_for - script_->at(worker.reads_for).front().late;
        if (*worker.wants < part_.version()) {
          throw comm::PeerError(fmt::format(
              "--replay: rank {} is to read the weights of update {}, and {} are made: give the same --evaluate-every "
              "and --checkpoint-every as in the run that is repeated",
              message.peer, *worker.wants, part_.version()));
        }
      }
      return answer_pulls();
    case Say::push:
      if (coordinates()) longest_ = std::max(longest_, worker.since_go.seconds());
      return take(message.peer, message);
    case Say::bye:
      worker.paused = true;
      ++byes_;
      return;
    case Say::lost:
      return lost(static_cast<int>(message.note.step));
    default:
      throw comm::PeerError(fmt::format("server {}: rank {} says {} to it; this is a bug in lockstep, please report it",
                                        index_, message.peer, message.note.kind));
  }
}

void ParameterServer::hear_server(const comm::ServerMessages::Received& message) {
  switch (static_cast<Say>(message.note.kind)) {
    case Say::decided:
      decided_.emplace();
      for (const float worker : message.values) decided_->push_back(static_cast<int>(worker));
      return;
    case Say::squares:
      squares_[static_cast<std::size_t>(message.peer)] = message.note.squares;
      ++squares_heard_;
      return;
    case Say::drain:
      if (admission_) admission_->drain();
      return;
    case Say::lost:
      return admission_ ? lost(static_cast<int>(message.note.step)) : leave_out(static_cast<int>(message.note.step));
    case Say::end:
      ended_ = true;
      return;
    default:
      throw comm::PeerError(fmt::format("server {} hears {} of another; this is a bug in lockstep, please report it",
                                        index_, message.note.kind));
  }
}

/// A gradient.
void ParameterServer::take(int index, const comm::ServerMessages::Received& message) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.note = message.note;
  if (admission_ && (message.note.flags & kWantsEnd) != 0) admission_->drain();
  const bool at_once = !sums_ && !script_;
  if (at_once) {
    if (admission_) {
      admission_->arrived(index);
      count(index);
    }
    read_gradient(message, part_.gradients());
    return apply_each(worker);
  }
  if ((message.note.flags & kInPlace) != 0) {
    worker.source = memory_.gradients[static_cast<std::size_t>(index)] + part_.place().offset;
  } else {
    worker.gradient.resize(part_.place().count);
    read_gradient(message, worker.gradient);
    worker.source = worker.gradient.data();
  }
  worker.has_gradient = true;
  worker.scripted = worker.reads_for;
  if (!sums_) return;
  if (!admission_) return;  // the coordinator's word decides
  switch (admission_->arrived(index)) {
    case Admission::Verdict::update:
      return decide();
    case Admission::Verdict::waits:
      return;
    case Admission::Verdict::dropped:
      worker.has_gradient = false;
      ++figures_.dropped[static_cast<std::size_t>(index)];
      return;
  }
}

/// Whoever sends blocks has tables of which each batch meets a few rows. Plain SGD leaves the others alone, so the
/// weights may travel in blocks, too; with other optimisers all that was ever met changes in every update.
void ParameterServer::read_gradient(const comm::ServerMessages::Received& message, std::span<float> into) {
  if ((message.note.flags & kInPlace) != 0) {
    std::copy_n(memory_.gradients[static_cast<std::size_t>(message.peer)] + part_.place().offset, into.size(),
                into.begin());
    return;
  }
  const bool packed = (message.note.flags & kPacked) != 0;
  if (packed) std::ranges::fill(into, 0.0f);
  if (packed ? !comm::unpack_blocks(message.values, into) : message.values.size() != into.size()) {
    throw comm::PeerError(
        fmt::format("server {}: rank {} sends {} numbers of {}; this is a bug in lockstep, please "
                    "report it",
                    index_, message.peer, message.values.size(), into.size()));
  }
  if (!packed) std::ranges::copy(message.values, into.begin());
  if (packed && plan_.workload.optimizer.kind == model::OptimizerKind::sgd) part_.watch_changes();
}

/// The update of this worker after the one that it has read for, or brought; -1: there is none.
std::int64_t ParameterServer::next_scripted(const Worker& worker) const {
  const int index = static_cast<int>(&worker - workers_.data());
  for (std::int64_t update = std::max(part_.version(), std::max(worker.scripted, worker.reads_for) + 1);
       update < script_->end(); ++update) {
    if (script_->at(update).front().worker == index) return update;
  }
  return -1;
}

/// Makes the script's next updates, as long as their gradients are here and everybody has read the weights that they
/// change.
void ParameterServer::apply_scripted() {
  while (part_.version() < script_->end()) {
    Worker& next = workers_[static_cast<std::size_t>(script_->at(part_.version()).front().worker)];
    if (!next.has_gradient || next.scripted != part_.version()) return;
    for (const Worker& worker : workers_) {
      const bool reads = worker.reads_for >= part_.version() && worker.reads_for != worker.scripted;
      const std::int64_t update = reads ? worker.reads_for : next_scripted(worker);
      const bool has_read = reads && !worker.wants;
      if (update >= 0 && !has_read && update - script_->at(update).front().late <= part_.version()) return;
    }
    next.has_gradient = false;
    if (admission_) {
      const int worker = static_cast<int>(&next - workers_.data());
      admission_->arrived(worker);
      count(worker);
    }
    std::copy_n(next.source, part_.place().count, part_.gradients().begin());
    apply_each(next);
    if (admission_) tell_workers();
  }
}

/// Its gradient is accepted.
void ParameterServer::count(int worker) {
  const comm::ServerNote& note = workers_[static_cast<std::size_t>(worker)].note;
  figures_.loss += note.loss;
  figures_.metric += note.metric;
  figures_.samples += note.samples;
  figures_.empty += note.samples > 0 ? 0 : 1;
  ++figures_.accepted[static_cast<std::size_t>(worker)];
}

void ParameterServer::decide() {
  decided_ = admission_->decide();
  const std::vector<float> members(decided_->begin(), decided_->end());
  comm::ServerNote note = note_of(Say::decided);
  note.step = part_.version();
  tell_others(note, members);
  apply_sum();
}

/// An update of one gradient, which lies in gradients().
void ParameterServer::apply_each(Worker& from) {
  const AgreeOptions& agree = plan_.settings.agree;
  const std::int64_t staleness = part_.version() - from.read_version;
  if (record_) {
    record_->add(
        {.worker = static_cast<std::int32_t>(&from - workers_.data()), .late = static_cast<std::uint32_t>(staleness)});
  }
  ++figures_.staleness[std::min(static_cast<std::size_t>(staleness), ServerFigures::kHistogram - 1)];
  if (from.note.samples > 0) {
    const double base = part_.learning_rate();
    // Zhang et al., IJCAI 2016, "Staleness-aware async-SGD".
    const double rate =
        agree.stale_rate == StaleRate::scale ? base / static_cast<double>(std::max<std::int64_t>(1, staleness)) : base;
    update(rate, from.note.squares);
  } else {
    part_.pass();
  }
  answer_pulls();
}

/// An update of a sum, once all gradients that were decided on are here, and then what the other servers say of theirs.
/// False: something is missing.
bool ParameterServer::apply_sum() {
  for (const int index : *decided_) {
    const Worker& worker = workers_[static_cast<std::size_t>(index)];
    if (!worker.has_gradient || worker.note.step != part_.version()) return false;
  }
  if (!own_squares_) sum_gradients();
  if (squares_heard_ + 1 < servers_.count) return false;
  double samples = 0;
  for (const int index : *decided_) samples += workers_[static_cast<std::size_t>(index)].note.samples;
  const std::int64_t number = part_.version();
  if (samples > 0) {
    update(part_.learning_rate(), squares_of_all());
  } else {
    part_.pass();
  }
  own_squares_.reset();
  squares_heard_ = 0;
  for (const int index : *decided_) {
    workers_[static_cast<std::size_t>(index)].has_gradient = false;
    count(index);
    if (record_) {
      record_->add({.worker = index, .late = static_cast<std::uint32_t>(number)});
    }
  }
  decided_.reset();
  if (admission_) admission_->updated();
  answer_pulls();
  return true;
}

/// Those that were decided on, in the order of the ranks; and tells the other servers of the squares.
void ParameterServer::sum_gradients() {
  std::vector<float*> terms;
  double samples = 0, divisor = 0;
  for (const int index : *decided_) {
    const Worker& worker = workers_[static_cast<std::size_t>(index)];
    terms.push_back(worker.source);
    samples += worker.note.samples;
    divisor = std::max(divisor, worker.note.divisor);
  }
  const std::span<float> gradients = part_.gradients();
  float* const sum = gradients.data();
  if (terms.size() == 1) {
    std::copy_n(terms.front(), gradients.size(), sum);
  } else {
    comm::sum_into({&sum, 1}, terms, 0, gradients.size());
  }
  if (samples > 0 && samples != divisor) {
    const auto scale = static_cast<float>(divisor / samples);
    for (float& element : gradients) element *= scale;
  }
  own_squares_ = part_.gradient_squares();
  comm::ServerNote note = note_of(Say::squares);
  note.squares = *own_squares_;
  tell_others(note);
}

/// In the order of the servers.
double ParameterServer::squares_of_all() const {
  double sum = 0;
  for (int server = 0, other = 0; server < servers_.count; ++server) {
    sum += server == index_ ? *own_squares_ : squares_[static_cast<std::size_t>(other++)];
  }
  return sum;
}

void ParameterServer::update(double rate, double squares) {
  if (spoilt_.empty() && !std::isfinite(squares)) {
    spoilt_ = fmt::format(
        "step {}: the gradient norm is not finite, though each rank's is: in their sum. The last checkpoint is intact. "
        "A smaller --learning-rate, --warmup-steps or --clip-norm usually helps",
        part_.step() + 1);
    if (admission_) admission_->drain();
  }
  if (!spoilt_.empty()) return part_.pass();
  part_.update(rate, squares);
  figures_.learning_rate = rate;
  figures_.gradient_norm = std::sqrt(squares);
}

/// A worker reads this version: where it is within reach, its own weights are that from here on. False: it is not.
bool ParameterServer::write_weights(int index) {
  float* const theirs = memory_.workers_weights[static_cast<std::size_t>(index)];
  if (theirs == nullptr) return false;
  const std::span<const float> now = part_.weights();
  std::copy(now.begin(), now.end(), theirs + part_.place().offset);
  return true;
}

/// The worker computes with this version from here on.
void ParameterServer::send_weights(int index, comm::ServerNote note) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.read_version = part_.version();
  if (sums_ ? memory_.window.reaches(index) : write_weights(index)) {
    note.flags |= kInPlace;
    return to_workers_.send(index, note);
  }
  const std::span<const float> now = part_.weights();
  if (part_.since(worker.has_version, blocks_) && comm::pack_blocks(now, blocks_, packed_)) {
    note.flags |= kPacked;
    to_workers_.send(index, note, packed_);
  } else {
    to_workers_.send(index, note, now);
  }
  worker.has_version = part_.version();
}

void ParameterServer::answer_pulls() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.wants || part_.version() < *worker.wants) continue;
    worker.wants.reset();
    comm::ServerNote note = note_of(Say::part);
    note.version = part_.version();
    send_weights(static_cast<int>(i), note);
  }
}

const ServerFigures& ParameterServer::figures() {
  figures_.updates = part_.version();
  figures_.bytes = static_cast<double>(to_workers_.bytes() + (to_servers_ ? to_servers_->bytes() : 0));
  return figures_;
}

}  // namespace lockstep::app
