/// \file
/// A server of parameters (--agree async, --agree quorum): it keeps a part of them with the optimiser's state, takes
/// the workers' gradients of that part, updates it, and hands it out.
///
/// MESSAGES. A worker hears `go` from the first server, the coordinator, which decides when each worker may begin
/// and which gradients count (Admission); with it come the coordinator's weights. It asks every other server for its
/// part (`pull`), gets it with its version (`part`), computes, and sends every server that part of the gradient
/// (`push`). When it hears `pause` it says `bye` to all. Where updates are sums the coordinator tells the other servers
/// whose gradients make each update (`decided`), so all parts take and drop the same ones, and the servers sum the
/// squares of their parts for the norm (`squares`).
///
/// RESULTS. A sum is made in the order of the ranks and updated as --agree all does: with all ranks in it,
/// and one server or no clipping, the weights have the bits of a sum in shared memory. Where some are missing the sum
/// is scaled to the mean over the samples that are there.
///
/// IN PLACE. On one host gradients are read where the worker has them: it writes the next one only when it
/// has been told to. Weights of sums are read where the server has them; each update waits for gradients of who has
/// read the ones before, and a late reader that meets a change reads again. Where each gradient is an update the server
/// writes the weights to where the worker has its own, which waits meanwhile. Then `go` of the coordinator brings the
/// weights, too.
///
/// SENT BLOCKS. Blocks of a gradient that are zero (rows of a word embedding that no batch has met) do not travel,
/// nor do, with plain SGD, those of the weights that a worker has already.
///
/// DIVERGENCE. A worker whose loss or gradient is not finite sends zeros and asks for the end of the round; a sum that
/// is not finite changes nothing, and ends the round, too. All ranks are told there.
///
/// DEATHS. A rank that sees that a worker has died tells the coordinator (`lost`), which goes on without it and tells
/// all others; they have all heard the same when the coordinator says `end` after the last `bye`.
///
/// PATIENCE. The coordinator measures the longest step and says it with `go`; workers pass it on with what they send,
/// so that all servers and workers wait equally long (stuck_after).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "app/agree/servers/admission.hpp"
#include "app/agree/servers/replay.hpp"
#include "app/agree/servers/served_part.hpp"
#include "app/plan/plan.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/servers/host_window.hpp"
#include "comm/servers/server_messages.hpp"
#include "model/state/parameter_state.hpp"

namespace lockstep::app {

/// Data of a host's ranks in memory that all of them map.
struct ServedMemory {
  comm::HostWindow& window;
  std::pmr::memory_resource* weights = nullptr;  ///< memory for the weights of a server of sums
  std::vector<float*> gradients;                 ///< gradients on each rank; nullptr: out of reach
  std::vector<float*> workers_weights;           ///< likewise; where each gradient is an update
};

/// The coordinator's figures of the gradients.
struct ServerFigures {
  static constexpr std::size_t kHistogram = 17;  ///< the last counts what is staler
  std::int64_t updates = 0;                      ///< updates of this process and those before
  StepFigures steps = {};  ///< sums over the accepted since load(), rate and norm of the last update
  // Totals of this process, including those before a roll-back:
  double bytes = 0;                            ///< to and from this server
  double empty = 0;                            ///< accepted gradients of no sample
  std::array<double, kHistogram> staleness{};  ///< gradients by updates between reading the weights and arriving
  std::vector<double> accepted, dropped;       ///< gradients, per worker
};

class ParameterServer {
 public:
  /// Other work of a rank while it serves: comm::MessageWait::Options::look_around.
  using Look = std::function<bool()>;

  /// The server of this rank, number `index`. `session`, `plan` and what `memory` refers to outlive it.
  ParameterServer(comm::MpiSession& session, const Plan& plan, const Servers& servers, int index, ServedMemory memory);

  bool coordinates() const noexcept { return index_ == 0; }
  /// Takes its part of all state. Between rounds.
  void load(const model::ParameterState& from, const Standing& course);
  /// After load(): updates made at the end of this server's record, if one is repeated; else 0.
  std::int64_t replay_end() const noexcept { return replay_ ? replay_->end() : 0; }
  /// Sets the end of a repeated record: those of all servers go as far as this, and no further.
  void end_replay_at(std::int64_t end);
  /// The arrivals since the last call, as a file of arrivals has them: the coordinator's, and every server's if each
  /// gradient is an update.
  std::string take_record() { return record_ ? record_->take() : std::string(); }
  /// A message about a sum of the last round that is not finite; empty: all are finite.
  const std::string& divergence() const noexcept { return divergence_; }
  /// Until all workers pause: when so many steps are done, or earlier when somebody asks for it. Throws
  /// comm::PeerError where a worker does not come; returns early where `stop` is requested.
  void serve(std::int64_t steps, const Look& look, const std::stop_token& stop);
  /// The round is to end. From the thread that serves.
  void drain();
  /// A worker has died. From the thread that serves. Throws comm::PeerError where the others cannot go on.
  void lost(int worker);
  /// All know it, and no round is under way.
  void lost_between_rounds(int worker);
  /// Dead workers, ascending: the same on all ranks after a round.
  std::vector<int> lost_workers() const { return {lost_.begin(), lost_.end()}; }
  /// All updated ones, of which its part is its own.
  std::span<float> all_weights() { return part_.all_weights(); }
  /// out = this server's part of a group; `out` is an arena.
  void download(std::string_view group, std::span<float> out) const { part_.download(group, out); }
  /// The coordinator's are whole.
  const ServerFigures& figures();

 private:
  /// A worker's messages that are not used yet, or its reads meanwhile.
  struct Worker {
    comm::ServerHeader header;
    std::vector<float> gradient;  ///< waits, having come in messages
    float* source = nullptr;      ///< this server's part of the gradient that waits
    std::int64_t read_version = 0;
    std::int64_t has_version = -1;      ///< version of its weights; -1: unknown
    std::optional<std::int64_t> wants;  ///< this version or a later one, and is not answered yet
    bool has_gradient = false;
    bool paused = false;   ///< or dead
    bool listens = false;  ///< has been heard in this round: it waits for weights when it is told so
    StopWatch since_go;
  };

  void hear(const comm::ServerMessages::Received& message);
  void hear_server(const comm::ServerMessages::Received& message);
  void take(const comm::ServerMessages::Received& message);
  bool write_weights(int worker);
  void count(int worker);
  void apply_each(int worker);
  void decide();
  bool apply_sum();
  void sum_gradients();
  double squares_of_all() const;
  void update(double rate, double squares);
  void answer_pulls();
  void send_weights(int worker, comm::ServerHeader header);
  void tell_others(const comm::ServerHeader& header, std::span<const float> values = {});
  void tell_everybody(const comm::ServerHeader& header);
  [[noreturn]] void give_up(double seconds) const;
  void leave_out(int worker);
  void tell_workers();
  bool over() const;
  bool progress();
  /// The order in which gradients make updates is that of a record.
  bool replays_each() const noexcept { return replay_ && !sums_; }
  Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  const Worker& at(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }

  const Plan& plan_;
  const Servers servers_;
  const ServedMemory memory_;
  int index_, workers_count_;
  bool sums_;
  ServedPart part_;
  comm::ServerMessages to_workers_;
  std::optional<comm::ServerMessages> to_servers_;  ///< the others
  std::optional<Admission> admission_;              ///< the coordinator's
  std::vector<Worker> workers_;
  std::optional<std::vector<int>> decided_;  ///< whose gradients make the next update
  std::optional<double> own_squares_;        ///< squares of the sum that waits for those of the other servers
  std::vector<double> squares_;              ///< theirs
  int squares_heard_ = 0;
  std::optional<Replay> replay_;  ///< the record that is repeated, until its end
  std::optional<ArrivalRecord> record_;
  std::vector<std::uint32_t> blocks_;
  std::string divergence_;
  int byes_ = 0;  ///< and deaths
  std::set<int> lost_;
  bool ended_ = false;  ///< the coordinator has said so
  comm::MpiSession& session_;
  double longest_ = 0;  ///< seconds of a worker's step
  ServerFigures figures_;
};

}  // namespace lockstep::app
