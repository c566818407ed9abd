#include "app/agree/servers/parameter_server.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/agree/stuck.hpp"
#include "comm/host/summation.hpp"

namespace lockstep::app {

using comm::MessageKind;

namespace {

std::vector<int> ranks_of_workers(const Servers& servers) {
  std::vector<int> ranks(static_cast<std::size_t>(servers.workers));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ParameterServer::ParameterServer(comm::MpiSession& session, const Plan& plan, const Servers& servers, int index,
                                 ServedMemory memory)
    : plan_(plan),
      servers_(servers),
      memory_(std::move(memory)),
      index_(index),
      workers_count_(servers_.workers),
      sums_(plan.settings.agree.sums_on_servers()),
      part_(plan, servers, index, memory_.window, memory_.weights, plan.agreement->roles().updates_per_step),
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
  divergence_.clear();
  for (Worker& worker : workers_) {
    worker.has_version = -1;
    worker.has_gradient = false;
  }
  figures_.steps = {};
  replay_.reset();
  if (!coordinates() && sums_) return;
  const ArrivalHead head{.first = part_.version(), .workers = workers_count_, .sums = sums_ ? 1 : 0};
  record_.emplace(head);
  if (!plan_.replay.empty()) replay_.emplace(read_arrivals(arrivals_of(plan_.replay, index_), head), index_);
  if (!coordinates()) return;
  const AgreeOptions& agree = plan_.settings.agree;
  Admission::Options options{.workers = workers_count_, .updates = part_.version()};
  if (sums_) options.quorum = agree.quorum > 0 ? agree.quorum : workers_count_;
  if (!sums_ && agree.staleness > 0) options.staleness = agree.staleness;
  admission_.emplace(options);
  for (const int worker : lost_) admission_->lost(worker);
}

void ParameterServer::end_replay_at(std::int64_t end) {
  if (replay_) replay_->end_at(end);
}

void ParameterServer::serve(std::int64_t steps, const WatchPeers& watch_peers, const std::stop_token& stop) {
  byes_ = static_cast<int>(lost_.size());
  ended_ = false;
  for (Worker& worker : workers_) worker.paused = worker.listens = false;
  for (const int worker : lost_) at(worker).paused = true;
  if (replay_ && part_.version() >= replay_->end()) replay_.reset();
  if (admission_) admission_->begin_round(sums_ ? steps : steps * workers_count_, replay_ ? &*replay_ : nullptr);
  comm::MessageWait::Options options{
      .end = comm::HostWindow::End::server,
      .lends = servers_.trains(session_.rank()),
      .messages = {&to_workers_},
      .limit_seconds = [this] { return stuck_after(plan_.settings.execution, longest_); },
      .watch_peers = watch_peers};
  if (to_servers_) options.messages.push_back(&*to_servers_);
  comm::MessageWait waiting(memory_.window, std::move(options));
  const auto poll = [&] {
    using Poll = comm::MessageWait::Poll;
    if (stop.stop_requested()) return Poll::over;
    const bool heard = progress();
    if (over() && ended_ && waiting.all_sent()) return Poll::over;
    return heard ? Poll::something : Poll::nothing;
  };
  if (!waiting.until(poll)) give_up(waiting.waited());
  if (record_ && over()) record_->end_round();
}

/// Throws because no message has arrived for too long.
void ParameterServer::give_up(double seconds) const {
  std::vector<int> silent;
  if (own_squares_) {  // the workers wait for the update of this sum
    for (int server = 0; server < servers_.count; ++server) {
      if (server != index_) silent.push_back(servers_.rank_of(server));
    }
    throw comm::PeerError(fmt::format("server {}: the other servers ({}) do not come to update {} for {:.0f} s", index_,
                                      fmt::join(silent, ", "), part_.version() + 1, seconds));
  }
  if (admission_) silent = admission_->missing();
  for (int worker = 0; silent.empty() && worker < workers_count_; ++worker) {
    if (!at(worker).paused) silent.push_back(worker);
  }
  throw comm::PeerError(fmt::format("server {}: no gradient has come for {:.0f} s from {} {}; look at what they do",
                                    index_, seconds, silent.size() == 1 ? "rank" : "ranks", fmt::join(silent, ", ")));
}

/// Receives at most one message per peer and handles it. Returns false if there was none and nothing to do.
bool ParameterServer::progress() {
  bool heard = false;
  if (admission_) answer_workers();
  for (int worker = 0; worker < workers_count_; ++worker) {
    const auto message = to_workers_.poll();
    if (!message) break;
    receive(*message);
    heard = true;
    if (admission_) answer_workers();
  }
  for (int other = 1; other < servers_.count; ++other) {
    const auto message = to_servers_->poll();
    if (!message) break;
    receive_from_server(*message);
    heard = true;
  }
  if (decided_ && apply_sum()) heard = true;
  while (const auto next = replays_each() ? replay_->next(part_.version()) : std::nullopt) {
    apply_each(*next);
    if (admission_) answer_workers();
  }
  if (over() && !ended_ && admission_) {
    send_to_all({.kind = MessageKind::end});
    ended_ = true;
  }
  return heard;
}

bool ParameterServer::over() const { return byes_ == workers_count_ && !decided_; }

void ParameterServer::send_to_other_servers(const comm::ServerHeader& header, std::span<const float> values) {
  for (int other = 0; to_servers_ && other < to_servers_->peers(); ++other) to_servers_->send(other, header, values);
}

void ParameterServer::send_to_all(const comm::ServerHeader& header) {
  for (int worker = 0; worker < workers_count_; ++worker) to_workers_.send(worker, header);
  send_to_other_servers(header);
}

void ParameterServer::lost(int index) {
  if (lost_.contains(index)) return;
  if (index == 0 || servers_.on(index) >= 0 || static_cast<int>(lost_.size()) + 1 >= workers_count_) {
    throw comm::PeerError(
        fmt::format("{} has died, without which the others cannot go on{}. Ending the job: --resume "
                    "goes on from the last checkpoint.",
                    session_.describe(index), servers_.on(index) >= 0 ? ": it keeps parameters" : ""));
  }
  const comm::ServerHeader header{.kind = MessageKind::lost, .lost_worker = index};
  if (!admission_) return to_servers_->send(0, header);  // the coordinator handles it
  if (ended_) return;                                    // handled between rounds or in the next round
  const bool complete = admission_->lost(index);
  remove(index);
  send_to_all(header);
  if (complete) decide();
}

void ParameterServer::lost_between_rounds(int index) {
  if (lost_.contains(index)) return;
  if (admission_) admission_->lost(index);
  remove(index);
}

/// Stops waiting for messages of a dead worker.
void ParameterServer::remove(int index) {
  Worker& worker = at(index);
  if (decided_ && std::ranges::find(*decided_, index) != decided_->end() && !worker.has_gradient) {
    throw comm::PeerError(fmt::format(
        "{} has died in the middle of a gradient that some servers have taken already. Ending the job: --resume goes "
        "on from the last checkpoint.",
        session_.describe(index)));
  }
  lost_.insert(index);
  worker.wants.reset();
  if (!worker.paused) ++byes_;
  worker.paused = true;
  to_workers_.forget(index);
}

void ParameterServer::drain() {
  if (admission_) return admission_->drain();
  to_servers_->send(0, {.kind = MessageKind::drain});  // the coordinator is the first peer
}

/// Sends `go` or `pause` to every worker that waits for it.
void ParameterServer::answer_workers() {
  while (const auto word = admission_->next()) {
    comm::ServerHeader header{.kind = word->goes_on ? MessageKind::go : MessageKind::pause,
                              .step = word->step,
                              .version = sums_ ? part_.version() : 0,
                              .steps_done = part_.step(),
                              .samples = figures_.steps.samples,
                              .loss = figures_.steps.loss_sum,
                              .metric = figures_.steps.metric_sum,
                              .gradient_norm = figures_.steps.gradient_norm,
                              .learning_rate = figures_.steps.learning_rate,
                              .longest_step = longest_};
    Worker& worker = at(word->worker);
    worker.since_go.lap();
    // Before the worker's first message of the round, its weights may not be written.
    header.brings_weights = word->goes_on && worker.listens && !replays_each();
    if (header.brings_weights) {
      send_weights(word->worker, header);
    } else {
      to_workers_.send(word->worker, header);
    }
  }
}

void ParameterServer::receive(const comm::ServerMessages::Received& message) {
  const comm::ServerHeader& header = message.header;
  Worker& worker = at(message.peer);
  worker.listens = true;
  longest_ = std::max(longest_, header.longest_step);
  switch (header.kind) {
    case MessageKind::pull:
      worker.wants = replays_each() ? replay_->wants(message.peer, part_.version()) : header.version;
      return answer_pulls();
    case MessageKind::push:
      if (coordinates()) longest_ = std::max(longest_, worker.since_go.seconds());
      return take(message);
    case MessageKind::bye:
      worker.paused = true;
      ++byes_;
      return;
    case MessageKind::lost:
      return lost(header.lost_worker);
    default:
      throw comm::PeerError(fmt::format("server {}: rank {} says {} to it; this is a bug in lockstep, please report it",
                                        index_, message.peer, static_cast<int>(header.kind)));
  }
}

void ParameterServer::receive_from_server(const comm::ServerMessages::Received& message) {
  const comm::ServerHeader& header = message.header;
  switch (header.kind) {
    case MessageKind::decided:
      decided_.emplace(message.values.begin(), message.values.end());
      return;
    case MessageKind::squares:
      squares_[static_cast<std::size_t>(message.peer)] = header.squares;
      ++squares_received_;
      return;
    case MessageKind::drain:
      if (admission_) admission_->drain();
      return;
    case MessageKind::lost:
      return admission_ ? lost(header.lost_worker) : remove(header.lost_worker);
    case MessageKind::end:
      ended_ = true;
      return;
    default:
      throw comm::PeerError(fmt::format("server {} hears {} of another; this is a bug in lockstep, please report it",
                                        index_, static_cast<int>(header.kind)));
  }
}

/// Handles a gradient. Workers that send blocks have tables, and each batch uses only a few rows of a table. Plain SGD
/// leaves the other rows unchanged, so weights may also travel in blocks. Other optimisers change every row that was
/// ever used in every update.
void ParameterServer::take(const comm::ServerMessages::Received& message) {
  const int index = message.peer;
  Worker& worker = at(index);
  worker.header = message.header;
  if (admission_ && worker.header.wants_end) admission_->drain();
  if (worker.header.in_place) {
    worker.source = memory_.gradients[static_cast<std::size_t>(index)] + part_.slice().offset;
  } else {
    worker.gradient.resize(part_.slice().count);
    if (worker.header.has_blocks) std::ranges::fill(worker.gradient, 0.0f);
    message.copy_to(worker.gradient);
    worker.source = worker.gradient.data();
    if (worker.header.has_blocks && plan_.workload.optimizer.kind == model::OptimizerKind::sgd) part_.watch_changes();
  }
  if (replays_each()) return replay_->brought(index);
  if (!sums_) return apply_each(index);
  worker.has_gradient = true;
  if (!admission_) return;  // the coordinator decides
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

/// Counts an accepted gradient of this worker.
void ParameterServer::count(int worker) {
  const comm::ServerHeader& header = at(worker).header;
  figures_.steps.loss_sum += header.loss;
  figures_.steps.metric_sum += header.metric;
  figures_.steps.samples += header.samples;
  figures_.empty += header.samples > 0 ? 0 : 1;
  ++figures_.accepted[static_cast<std::size_t>(worker)];
}

void ParameterServer::decide() {
  decided_ = admission_->decide();
  const std::vector<float> members(decided_->begin(), decided_->end());
  send_to_other_servers({.kind = MessageKind::decided, .step = part_.version()}, members);
  apply_sum();
}

/// Makes an update from the gradient of this worker.
void ParameterServer::apply_each(int index) {
  if (admission_) {
    admission_->arrived(index);
    count(index);
  }
  const Worker& from = at(index);
  std::copy_n(from.source, part_.slice().count, part_.gradients().begin());
  const AgreeOptions& agree = plan_.settings.agree;
  const std::int64_t staleness = part_.version() - from.read_version;
  if (record_) record_->add({.worker = index, .late = static_cast<std::uint32_t>(staleness)});
  ++figures_.staleness[std::min(static_cast<std::size_t>(staleness), ServerFigures::kHistogram - 1)];
  if (from.header.samples > 0) {
    const double base = part_.learning_rate();
    // Zhang et al., IJCAI 2016, "Staleness-aware async-SGD".
    const double rate =
        agree.stale_rate == StaleRate::scale ? base / static_cast<double>(std::max<std::int64_t>(1, staleness)) : base;
    update(rate, from.header.squares);
  } else {
    part_.pass();
  }
  answer_pulls();
}

/// Makes the update of a sum, once the decided gradients and the sums of squares of the other servers have arrived.
/// Returns false if some are missing.
bool ParameterServer::apply_sum() {
  for (const int index : *decided_) {
    const Worker& worker = at(index);
    if (!worker.has_gradient || worker.header.step != part_.version()) return false;
  }
  if (!own_squares_) sum_gradients();
  if (squares_received_ + 1 < servers_.count) return false;
  double samples = 0;
  for (const int index : *decided_) samples += at(index).header.samples;
  const std::int64_t number = part_.version();
  if (samples > 0) {
    update(part_.learning_rate(), squares_of_all());
  } else {
    part_.pass();
  }
  own_squares_.reset();
  squares_received_ = 0;
  for (const int index : *decided_) {
    at(index).has_gradient = false;
    count(index);
    if (record_) record_->add({.worker = index, .late = static_cast<std::uint32_t>(number)});
  }
  decided_.reset();
  if (admission_) admission_->updated();
  answer_pulls();
  return true;
}

/// Adds the decided gradients in rank order and sends the sum of squares to the other servers.
void ParameterServer::sum_gradients() {
  std::vector<float*> terms;
  double samples = 0, of_step = 0;
  for (const int index : *decided_) {
    const Worker& worker = at(index);
    terms.push_back(worker.source);
    samples += worker.header.samples;
    of_step = std::max(of_step, worker.header.step_samples);
  }
  const std::span<float> gradients = part_.gradients();
  float* const sum = gradients.data();
  if (terms.size() == 1) {
    std::copy_n(terms.front(), gradients.size(), sum);
  } else {
    comm::sum_into({&sum, 1}, terms, 0, gradients.size());
  }
  if (samples > 0 && samples != of_step) {
    const auto scale = static_cast<float>(of_step / samples);
    for (float& element : gradients) element *= scale;
  }
  own_squares_ = part_.gradient_squares();
  send_to_other_servers({.kind = MessageKind::squares, .squares = *own_squares_});
}

/// Adds the sums of squares in the order of the servers, so that all servers get the same bits.
double ParameterServer::squares_of_all() const {
  double sum = 0;
  for (int server = 0, other = 0; server < servers_.count; ++server) {
    sum += server == index_ ? *own_squares_ : squares_[static_cast<std::size_t>(other++)];
  }
  return sum;
}

void ParameterServer::update(double rate, double squares) {
  if (divergence_.empty() && !std::isfinite(squares)) {
    divergence_ = fmt::format(
        "step {}: the gradient norm is not finite, though each rank's is: in their sum. The last checkpoint is intact. "
        "A smaller --learning-rate, --warmup-steps or --clip-norm usually helps",
        part_.step() + 1);
    if (admission_) admission_->drain();
  }
  if (!divergence_.empty()) return part_.pass();
  part_.update(rate, squares);
  figures_.steps.learning_rate = rate;
  figures_.steps.gradient_norm = std::sqrt(squares);
}

/// Copies this part's weights into a worker's memory. Returns false if that is on another host.
bool ParameterServer::write_weights(int index) {
  float* const theirs = memory_.workers_weights[static_cast<std::size_t>(index)];
  if (theirs == nullptr) return false;
  const std::span<const float> now = part_.weights();
  std::copy(now.begin(), now.end(), theirs + part_.slice().offset);
  return true;
}

/// Gives the worker the present weights for its next gradient.
void ParameterServer::send_weights(int index, comm::ServerHeader header) {
  Worker& worker = at(index);
  worker.read_version = part_.version();
  header.in_place = sums_ ? memory_.window.reaches(index) : write_weights(index);
  if (header.in_place) return to_workers_.send(index, header);
  if (part_.since(worker.has_version, blocks_)) {
    to_workers_.send_blocks(index, header, part_.weights(), blocks_);
  } else {
    to_workers_.send(index, header, part_.weights());
  }
  worker.has_version = part_.version();
}

void ParameterServer::answer_pulls() {
  for (int index = 0; index < workers_count_; ++index) {
    Worker& worker = at(index);
    if (!worker.wants || part_.version() < *worker.wants) continue;
    worker.wants.reset();
    if (replays_each()) replay_->has_read(index);
    send_weights(index, {.kind = MessageKind::part, .version = part_.version()});
  }
}

const ServerFigures& ParameterServer::figures() {
  figures_.updates = part_.version();
  figures_.bytes = static_cast<double>(to_workers_.bytes() + (to_servers_ ? to_servers_->bytes() : 0));
  return figures_;
}

}  // namespace lockstep::app
