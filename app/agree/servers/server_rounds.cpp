#include "app/agree/servers/server_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/agree/round_sums.hpp"
#include "app/agree/servers/arrivals.hpp"
#include "app/agree/stuck.hpp"
#include "app/engine/divergence.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/consensus.hpp"
#include "comm/servers/changed_blocks.hpp"

namespace lockstep::app {

using comm::MessageKind;

namespace {

comm::ServerMessages::Options worker_options(const Servers& servers, comm::HostWindow& window) {
  comm::ServerMessages::Options options{.send = comm::ServerMessages::Lane::to_servers,
                                        .receive = comm::ServerMessages::Lane::to_workers,
                                        .peers = {},
                                        .window = &window};
  for (int server = 0; server < servers.count; ++server) options.peers.push_back(servers.rank_of(server));
  return options;
}

/// Addresses, in this process, of each rank's copy of `values`.
std::vector<float*> mapped(const comm::Communicator& communicator, std::span<float> values) {
  std::vector<float*> everywhere;
  for (std::byte* const at : communicator.mapped(std::as_writable_bytes(values))) {
    everywhere.push_back(reinterpret_cast<float*>(at));
  }
  return everywhere;
}

}  // namespace

ServerRounds::ServerRounds(const RoundsContext& context, const Servers& servers)
    : window_(context.session, context.communicator, *context.gradient_memory),
      context_{.session = context.session,
               .communicator = dynamic_cast<comm::SurvivorCommunicator&>(context.communicator),
               .training = context.training,
               .window = window_,
               .weight_memory = context.weight_memory},
      plan_(context.plan),
      servers_(servers),
      rank_(context.communicator.rank()),
      sums_(plan_.settings.agree.sums_on_servers()),
      arena_(context.training.parameters.elements()) {
  model::ParameterState& own = context.training.parameters;
  std::span<float> weights = own.weight_elements(model::Weights::current);
  if (const int server = servers_.on(rank_); server >= 0) {
    ServedMemory memory{.window = window_,
                        .weights = sums_ ? context.weight_memory : nullptr,
                        .gradients = mapped(context.communicator, own.gradient_elements()),
                        .workers_weights = {}};
    if (!sums_) memory.workers_weights = mapped(context.communicator, weights);
    server_.emplace(context.session, plan_, servers_, server, std::move(memory));
    weights = server_->all_weights();
  }
  if (sums_) servers_weights_ = mapped(context.communicator, weights);
  if (servers_.trains(rank_)) {
    to_servers_.emplace(context.session, worker_options(servers_, window_));
    comm::MessageWait::Options options{
        .end = comm::HostWindow::End::worker,
        .lends = server_.has_value(),
        .messages = {&*to_servers_},
        .limit_seconds = [this] { return servers_stuck_after(plan_.settings.execution, longest_); },
        .watch_peers = [this] { return watch_peers(); }};
    waiting_.emplace(window_, std::move(options));
  }
  comm::SurvivorWork::Options options{
      .limit_seconds = [this] { return stuck_after(plan_.settings.execution, longest_); },
      .dispensable = [this](int rank) { return is_dispensable(rank); }};
  work_.emplace(context_.session, context_.communicator, window_, std::move(options));
}

void ServerRounds::take_over(const Standing& start) {
  first_step_ = own_steps_ = start.step;
  reported_ = {.step = start.step};
  divergence_.clear();
  records_.assign(static_cast<std::size_t>(servers_.count), false);
  comm::all_succeed(context_.communicator, [&] {
    if (server_) server_->load(context_.training.parameters, start);
  });
  if (!plan_.replay.empty()) follow_scripts();
}

/// Makes all servers repeat their records (--replay) up to the same update.
void ServerRounds::follow_scripts() {
  // With sums, the coordinator's record holds for all servers.
  std::vector<double> ends(sums_ ? 1 : static_cast<std::size_t>(servers_.count), 0.0);
  if (server_ && (!sums_ || server_->coordinates())) {
    ends[static_cast<std::size_t>(servers_.on(rank_))] = static_cast<double>(server_->replay_end());
  }
  context_.communicator.all_reduce(std::span(ends));
  context_.communicator.wait();
  const auto end = static_cast<std::int64_t>(*std::ranges::min_element(ends));
  if (!sums_ && end % servers_.workers != 0) {
    throw comm::ConsensusError(
        fmt::format("--replay {}: it ends after {}, in the middle of a step of {}: take the record of a whole run",
                    plan_.replay.string(), counted(end, "gradient"), counted(servers_.workers, "worker")));
  }
  if (server_) server_->end_replay_at(end);
  const std::int64_t last = end / (sums_ ? 1 : servers_.workers), total = plan_.workload.work.total_steps;
  if (last >= total) return;
  warn(
      fmt::format("--replay {}: its record ends at step {}, and this run at step {}: in the steps after it "
                  "gradients count as they come",
                  plan_.replay.string(), with_commas(last), with_commas(total)));
}

/// Returns false for rank 0, for servers, for every rank in a replay, and for all ranks if the launcher ends a job
/// whose rank dies.
bool ServerRounds::is_dispensable(int rank) const {
  return spares_survivors_ && rank != 0 && servers_.on(rank) < 0 && plan_.replay.empty();
}

void ServerRounds::together(const std::function<void()>& work) {
  for (const int dead : work_->run(work, dead_)) {
    if (server_) server_->lost_between_rounds(dead);
    note_deaths({dead});
  }
}

/// Looks for dead peers. Tells the coordinator of dead workers; throws if the job cannot go on without a rank. Returns
/// false: this rank does not excuse silence.
bool ServerRounds::watch_peers() {
  if (server_failed_) std::rethrow_exception(server_error_);
  for (const int dead : context_.communicator.dead_peers()) {
    if (!seen_dead_.insert(dead).second) continue;
    if (!is_dispensable(dead)) context_.communicator.check_peers();  // throws an error that describes the death
    if (to_servers_) {
      to_servers_->send(0, {.kind = MessageKind::lost, .lost_worker = dead});
    } else {
      server_->lost(dead);
    }
  }
  return false;
}

/// Notes the deaths that the coordinator announced; rank 0 warns of them.
void ServerRounds::note_deaths(const std::vector<int>& dead) {
  for (const int rank : dead) {
    seen_dead_.insert(rank);
    if (rank_ != 0 || !warned_.insert(rank).second) continue;
    const int left = servers_.workers - static_cast<int>(warned_.size()), quorum = plan_.settings.agree.quorum;
    warn(fmt::format("{} has died; {} on without it{}. Its share of the samples is left out from here on",
                     context_.session.describe(rank), left == 1 ? "1 rank goes" : fmt::format("{} ranks go", left),
                     quorum > left ? fmt::format(", and the gradients of {} make an update", left) : ""));
  }
}

void ServerRounds::wait(const char* what, const std::function<bool()>& done) {
  using Poll = comm::MessageWait::Poll;
  const StopWatch watch;
  if (!waiting_->until([&] { return done() ? Poll::over : Poll::nothing; })) {
    throw comm::PeerError(
        fmt::format("rank {} waits for {} of the servers for {:.0f} s: they are stuck, or wait for a rank that is",
                    rank_, what, waiting_->waited()));
  }
  waited_ += watch.seconds();
}

/// Returns the next message of a server. Handles messages about deaths itself.
std::optional<comm::ServerMessages::Received> ServerRounds::next_message() {
  while (const auto message = to_servers_->poll()) {
    if (message->header.kind != MessageKind::lost) return message;
    dead_.push_back(message->header.lost_worker);
  }
  return std::nullopt;
}

/// Waits for the coordinator's next message. If it brings weights, copies them.
comm::ServerHeader ServerRounds::wait_for_coordinator() {
  comm::ServerHeader command;
  wait("an answer", [&] {
    const auto message = next_message();
    if (!message) return false;
    command = message->header;
    longest_ = std::max(longest_, command.longest_step);
    brought_ = command.brings_weights && take_weights(*message, command.version);
    return true;
  });
  return command;
}

/// Copies a server's weights of at least this version from shared memory. Returns false if that is not possible: no
/// sums, another host, or the server is changing them.
bool ServerRounds::read_in_place(int server, std::int64_t version) {
  const int rank = servers_.rank_of(server);
  if (!sums_ || !context_.window.reaches(rank)) return false;
  const std::span<float> weights = context_.training.parameters.weight_elements(model::Weights::current);
  const comm::Slice part = served_part(servers_, weights.size(), server);
  const std::span<const float> theirs(servers_weights_[static_cast<std::size_t>(rank)] + part.offset, part.count);
  return context_.window.read(rank, version, theirs, weights.subspan(part.offset, part.count));
}

/// Copies a server's part from its message. Returns false if the server is changing the part in shared memory: it must
/// be requested again.
bool ServerRounds::take_weights(const comm::ServerMessages::Received& message, std::int64_t least) {
  if (message.header.kind != MessageKind::part && !message.header.brings_weights) {
    throw comm::PeerError(fmt::format("server {} answers with {}; this is a bug in lockstep, please report it",
                                      message.peer, static_cast<int>(message.header.kind)));
  }
  if (message.header.in_place) return !sums_ || read_in_place(message.peer, least);
  const std::span<float> weights = context_.training.parameters.weight_elements(model::Weights::current);
  const comm::Slice part = served_part(servers_, weights.size(), message.peer);
  message.copy_to(weights.subspan(part.offset, part.count));
  return true;
}

/// Copies the weights of all servers, of the version in `command` or later.
void ServerRounds::pull(const comm::ServerHeader& command) {
  const comm::ServerHeader header{.kind = MessageKind::pull, .version = command.version, .longest_step = longest_};
  int missing = 0;
  for (int server = brought_ ? 1 : 0; server < servers_.count; ++server) {
    if (read_in_place(server, command.version)) continue;
    to_servers_->send(server, header);
    ++missing;
  }
  wait("the parameters", [&] {
    while (const auto message = next_message()) {
      if (take_weights(*message, command.version)) {
        --missing;
      } else {
        to_servers_->send(message->peer, header);
      }
    }
    return missing == 0;
  });
  context_.training.parameters.refresh_compute_copy(model::Weights::current);
}

void ServerRounds::push(const Trainer::Result& result, std::int64_t step, bool wants_end) {
  comm::ServerHeader header{.kind = MessageKind::push,
                            .wants_end = wants_end,
                            .step = step,
                            .samples = result.figures.samples,
                            .step_samples = result.step_samples,
                            .loss = result.figures.loss_sum,
                            .metric = result.figures.metric_sum,
                            .squares = divergence_.empty() ? context_.training.status.posted().gradient_squares : 0,
                            .longest_step = longest_};
  const std::span<const float> gradients = context_.training.parameters.gradient_elements();
  for (int server = 0; server < servers_.count; ++server) {
    const comm::Slice part = served_part(servers_, gradients.size(), server);
    const std::span<const float> own = gradients.subspan(part.offset, part.count);
    header.in_place = context_.window.reaches(servers_.rank_of(server));
    if (header.in_place) {
      to_servers_->send(server, header);
    } else {
      comm::find_blocks_not_zero(own, blocks_);
      to_servers_->send_blocks(server, header, own, blocks_);
    }
  }
}

/// Rank 0 reports the figures in the coordinator's message.
void ServerRounds::report_figures(const comm::ServerHeader& command, const Calls& calls) {
  const std::int64_t done = command.steps_done;
  if (rank_ != 0 || done <= reported_.step || done >= plan_.workload.work.total_steps) return;
  calls.report(unreported({.step = done,
                           .loss_sum = command.loss,
                           .metric_sum = command.metric,
                           .samples = command.samples,
                           .learning_rate = command.learning_rate,
                           .gradient_norm = command.gradient_norm}));
}

/// Returns the figures since the last call. `all`: the sums since begin().
StepFigures ServerRounds::unreported(const StepFigures& all) {
  StepFigures since = all;
  since.loss_sum -= reported_.loss_sum;
  since.metric_sum -= reported_.metric_sum;
  since.samples -= reported_.samples;
  reported_ = all;
  return since;
}

/// Moves this worker to `step`, because the others made steps without it. It leaves out its samples of those steps.
void ServerRounds::jump_to(std::int64_t step, const Calls& calls) {
  calls.go_on_at(cursor_after(plan_.workload.work, {epoch_, position_}, step - first_step_));
  own_steps_ = step;
  model::RecurrentState& carried = context_.training.model.recurrent_state();
  if (carried.elements() > 0) carried.reset(model::Purpose::training, 0, plan_.workload.model.sequences);
}

/// Makes a step of this worker only. A worker that has diverged delivers zeros until the round ends.
Trainer::Result ServerRounds::make_step(Trainer& trainer) {
  try {
    if (divergence_.empty()) return trainer.step({});
  } catch (const Divergence& divergence) {
    divergence_ = divergence.what();
  } catch (const comm::ConsensusError& error) {
    throw comm::PeerError(error.what());  // the others are in the middle of their steps
  }
  std::ranges::fill(context_.training.parameters.gradient_elements(), 0.0f);
  return {};
}

/// Makes a worker's steps of a round.
void ServerRounds::work(Trainer& trainer, const Calls& calls) {
  for (;;) {
    context_.communicator.note_activity("waiting for the servers", trainer.steps_done() + 1);
    const double waited = waited_;
    const comm::ServerHeader command = wait_for_coordinator();
    note_deaths(dead_);
    report_figures(command, calls);
    if (command.kind == MessageKind::pause) {
      for (int server = 0; server < servers_.count; ++server) to_servers_->send(server, {.kind = MessageKind::bye});
      wait_for_coordinator();  // the end of the round
      note_deaths(dead_);
      wait("the end of a round", [&] { return to_servers_->all_sent(); });
      return;
    }
    pull(command);
    if (sums_ && own_steps_ < command.step) jump_to(command.step, calls);
    trainer.add_communication(waited_ - waited);
    context_.communicator.note_activity("forward and backward", command.step + 1);
    const StopWatch watch;
    trainer.start_at(command.step, trainer.epoch(), trainer.next_position());
    const Trainer::Result result = make_step(trainer);
    ++own_steps_;
    longest_ = std::max(longest_, watch.seconds());
    const Trainer::Request wanted = calls.ask();
    push(result, command.step, !divergence_.empty() || wanted.any());
  }
}

StepResult ServerRounds::advance(Trainer& trainer, std::int64_t steps, const LoopCalls& calls) {
  const std::int64_t before = trainer.steps_done();
  if (before == first_step_) epoch_ = trainer.epoch(), position_ = trainer.next_position();
  {
    server_failed_ = false;
    std::atomic<bool> served = false;
    std::jthread beside;  // its destructor stops and joins the thread if this one fails
    if (server_ && servers_.trains(rank_)) {
      beside = std::jthread([&, steps](const std::stop_token& stop) {
        try {
          server_->serve(steps, {}, stop);
        } catch (...) {
          server_error_ = std::current_exception();
          server_failed_ = true;
        }
        served = true;
        context_.window.ring(rank_, comm::HostWindow::End::worker);
      });
      work(trainer, calls);
      // This rank's server may still wait for the last gradients of other workers.
      wait("the others' gradients", [&] { return served.load(); });
      beside.join();
      if (server_failed_) std::rethrow_exception(server_error_);
    } else if (server_) {
      context_.communicator.note_activity("serving parameters", before);
      bool asked = false;
      server_->serve(steps,
                     [&] {
                       if (calls.ask().any() && !std::exchange(asked, true)) server_->drain();
                       return watch_peers();
                     },
                     {});
    } else {
      work(trainer, calls);
    }
  }
  // All ranks run the rest together.
  if (!servers_.trains(rank_)) dead_ = server_->lost_workers();
  const Trainer::Request wanted = calls.ask();
  const StopWatch agreeing;
  const double usual = plan_.settings.execution.deadline;
  const double patience = stuck_after(plan_.settings.execution, longest_);
  context_.communicator.note_activity("waiting for the other ranks", before);
  const bool speaks = server_ && server_->coordinates();
  const std::string& reason = divergence_.empty() && server_ ? server_->divergence() : divergence_;
  const std::string record = server_ ? server_->take_record() : "";
  RoundSums own{.diverged = reason.empty() ? 0.0 : 1.0};
  own.add(wanted);
  if (speaks) {
    const ServerFigures& figures = server_->figures();
    own.add(figures.steps);
    own.updates = static_cast<double>(figures.updates);
  }
  RoundSums sums;
  std::vector<std::string> recorded;
  std::string apart;
  const auto agree = [&] {
    context_.communicator.set_deadline(patience);
    sums = sum_over_ranks(context_.communicator, own, "agreeing on a round", before);
    if (sums.failed > 0) throw comm::ConsensusError(comm::gather_distinct(context_.communicator, wanted.error));
    collect();
    recorded = share_records(record);
    if (sums.diverged > 0) {
      apart = comm::with_ranks_unless_all(comm::gather_distinct(context_.communicator, reason).front());
    }
    context_.communicator.set_deadline(usual);
  };
  together(agree);
  for (std::size_t server = 0; rank_ == 0 && server < recorded.size(); ++server) {
    if (recorded[server].empty()) continue;
    const std::filesystem::path file = arrivals_of(fmt::format("arrivals-{}", first_step_), static_cast<int>(server));
    calls.record(file.string(), recorded[server], !records_[server]);
    records_[server] = true;
  }
  trainer.add_communication(agreeing.seconds());
  const std::int64_t done = static_cast<std::int64_t>(sums.updates) / (sums_ ? 1 : servers_.workers);
  const DataCursor cursor = cursor_after(plan_.workload.work, {epoch_, position_}, done - first_step_);
  trainer.start_at(done, cursor.epoch, cursor.position);
  if (sums.diverged > 0) throw Divergence(done, before, apart);
  return sums.result(unreported(sums.figures(done)));
}

/// Collective. Copies the servers' weights and state to every rank.
void ServerRounds::collect() {
  model::ParameterState& parameters = context_.training.parameters;
  for (const std::string& group : parameters.state_groups()) {
    const std::span<float> values = std::span(arena_).first(parameters.group_elements(group));
    if (server_) {
      server_->download(group, values);
    } else if (values.size() > parameters.updated_elements()) {
      parameters.download_group(group, values);  // servers send no frozen parameters
    }
    for (int server = 0; server < servers_.count; ++server) {
      const comm::Slice part = served_part(servers_, parameters.updated_elements(), server);
      context_.communicator.broadcast(std::as_writable_bytes(values.subspan(part.offset, part.count)),
                                      context_.communicator.rank_of(servers_.rank_of(server)));
      context_.communicator.wait("the servers' parameters");
    }
    parameters.upload_group(group, values);
  }
}

/// Collective. Returns every server's record on all ranks.
std::vector<std::string> ServerRounds::share_records(const std::string& own) {
  std::vector<std::string> records(static_cast<std::size_t>(sums_ ? 1 : servers_.count));
  for (int server = 0; server < static_cast<int>(records.size()); ++server) {
    const int root = context_.communicator.rank_of(servers_.rank_of(server));
    std::string& bytes = records[static_cast<std::size_t>(server)];
    if (server_ && servers_.on(rank_) == server) bytes = own;
    std::uint64_t size = bytes.size();
    context_.communicator.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
    context_.communicator.wait("the order of the gradients");
    bytes.resize(size);
    context_.communicator.broadcast(std::as_writable_bytes(std::span(bytes.data(), bytes.size())), root);
    context_.communicator.wait("the order of the gradients");
  }
  return records;
}

std::string ServerRounds::report() {
  // Sums over ranks, with zeros on the others, collect the coordinator's figures, each server's bytes and each worker's
  // waiting time.
  const auto workers = static_cast<std::size_t>(servers_.workers);
  ServerFigures own{.accepted = std::vector<double>(workers), .dropped = std::vector<double>(workers)};
  if (server_ && server_->coordinates()) own = server_->figures();
  if (server_) own.bytes = server_->figures().bytes;
  std::vector<double> own_wait(workers, 0.0), waited;
  if (servers_.trains(rank_)) own_wait[static_cast<std::size_t>(rank_)] = waited_;
  ServerFigures sums;
  together([&] {
    sums = own;
    waited = own_wait;
    for (const std::span<double> numbers :
         {std::span<double>(sums.staleness), std::span(sums.accepted), std::span(sums.dropped), std::span(waited),
          std::span(&sums.bytes, 1), std::span(&sums.empty, 1)}) {
      context_.communicator.all_reduce(numbers);
    }
    context_.communicator.wait("the servers' figures");
  });
  double gradients = 0;
  for (std::size_t worker = 0; worker < workers; ++worker) gradients += sums.accepted[worker] + sums.dropped[worker];
  std::string text = fmt::format("gradients accepted, rank by rank: {:.0f}", fmt::join(sums.accepted, " "));
  if (sums_) text += fmt::format("; dropped: {:.0f}", fmt::join(sums.dropped, " "));
  if (sums.empty > 0) {
    text += fmt::format("; {:.0f} of them of no sample: in a step of few samples some ranks have none", sums.empty);
  }
  if (!sums_) {
    std::vector<std::string> bars;
    for (std::size_t late = 0; late < sums.staleness.size(); ++late) {
      if (sums.staleness[late] == 0) continue;
      bars.push_back(
          fmt::format("{}{}: {:.0f}", late, late + 1 == sums.staleness.size() ? " or more" : "", sums.staleness[late]));
    }
    text += fmt::format("\nstaleness (updates in between: gradients): {}", fmt::join(bars, ", "));
  }
  text += fmt::format("\nseconds waited for the servers, rank by rank: {:.2f}; {} per gradient to and from the servers",
                      fmt::join(waited, " "),
                      format_bytes(static_cast<std::size_t>(sums.bytes / std::max(1.0, gradients))));
  return text;
}

}  // namespace lockstep::app
