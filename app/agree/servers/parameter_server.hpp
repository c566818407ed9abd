/// \file
/// A parameter server (--agree async, --agree quorum). It owns a part of the parameters and of the optimiser's state.
/// It receives the workers' gradients for this part, updates the part, and sends it to the workers.
///
/// Messages. The first server is the coordinator: it decides when each worker may begin a step and which gradients
/// count (Admission). A worker that receives `go` from the coordinator makes a step. `go` usually brings the
/// coordinator's weights. The worker requests the parts of the other servers (`pull`); each answers with its part and
/// that part's version (`part`). The worker computes a gradient and sends every server its part of it (`push`). A
/// worker that receives `pause` sends `bye` to all servers. With sums, the coordinator tells the other servers which
/// gradients make each update (`decided`), so all parts accept and drop the same gradients. The servers then exchange
/// the sums of squares of their parts for the gradient norm (`squares`).
///
/// Results. A server adds the gradients of a sum in rank order and updates as --agree all does. If all ranks
/// contribute, and there is one server or no gradient clipping, the weights are bit-identical to those of a sum in
/// shared memory. If gradients are missing, the sum is scaled to the mean over the samples present.
///
/// Shared memory. On one host, a server reads gradients from the worker's memory; the worker writes its next gradient
/// only after its next `go`. With sums, workers read the weights from the server's memory. Each update waits for
/// gradients of workers that have read the previous weights. A worker that reads late and meets a change reads again.
/// If each gradient makes an update, the server copies the weights into the worker's memory while the worker waits.
///
/// Blocks. Messages leave out blocks of a gradient that are zero (rows of a word embedding whose words are not in the
/// batch). With plain SGD they also leave out blocks of weights that the worker already has.
///
/// Divergence. A worker whose loss or gradient is not finite sends zeros and requests the end of the round. A sum that
/// is not finite changes no weights and ends the round, too. All ranks learn of the divergence at the end of the round.
///
/// Deaths. A rank that detects the death of a worker tells the coordinator (`lost`). The coordinator continues without
/// the worker and tells all others. It sends `end` after the last `bye`; by then all ranks know the same deaths.
///
/// Time limits. The coordinator measures the longest step and sends it with `go`. Workers pass it on in their messages,
/// so all servers and workers use the same limit (stuck_after).
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

/// Memory that all ranks of a host map.
struct ServedMemory {
  comm::HostWindow& window;
  std::pmr::memory_resource* weights = nullptr;  ///< memory for the server's weights, with sums; otherwise nullptr
  std::vector<float*> gradients;                 ///< gradients of each rank; nullptr: on another host
  std::vector<float*> workers_weights;           ///< weights of each rank, likewise; empty with sums
};

/// Statistics about the gradients; complete on the coordinator.
struct ServerFigures {
  static constexpr std::size_t kHistogram = 17;  ///< number of bins; the last one also counts greater staleness
  std::int64_t updates = 0;                      ///< updates made, including those of earlier processes
  StepFigures steps = {};  ///< sums over the gradients accepted since load(); rate and norm of the last update
  // Totals of this process; a roll-back does not reset them:
  double bytes = 0;  ///< bytes sent and received by this server
  double empty = 0;  ///< accepted gradients of no samples
  /// Number of gradients by staleness: updates since the weights were read.
  std::array<double, kHistogram> staleness{};
  std::vector<double> accepted, dropped;  ///< number of gradients, per worker
};

class ParameterServer {
 public:
  /// Called regularly while the server waits: comm::MessageWait::Options::watch_peers.
  using WatchPeers = std::function<bool()>;

  /// Creates server number `index`, which is on this rank. `session`, `plan` and the objects that `memory` refers to
  /// must outlive it.
  ParameterServer(comm::MpiSession& session, const Plan& plan, const Servers& servers, int index, ServedMemory memory);

  bool coordinates() const noexcept { return index_ == 0; }
  /// Copies this server's part of the state. Call it between rounds.
  void load(const model::ParameterState& from, const Standing& course);
  /// After load(): number of updates at the end of this server's record; 0 if no record is repeated.
  std::int64_t replay_end() const noexcept { return replay_ ? replay_->end() : 0; }
  /// Ends the repeated record after `end` updates, so that all servers repeat the same number.
  void end_replay_at(std::int64_t end);
  /// Returns the arrivals since the last call, in the format of a file of arrivals. With sums only the coordinator
  /// records arrivals, otherwise every server does.
  std::string take_record() { return record_ ? record_->take() : std::string(); }
  /// Message about the first gradient norm since load() that was not finite; empty: all were finite.
  const std::string& divergence() const noexcept { return divergence_; }
  /// Serves a round. Returns when all workers pause: after `steps` steps in total, or earlier on request, or when
  /// `stop` is requested. Throws comm::PeerError if no message arrives for too long.
  void serve(std::int64_t steps, const WatchPeers& watch_peers, const std::stop_token& stop);
  /// Requests the end of the round. Call it from the thread that serves.
  void drain();
  /// Handles a worker's death. Call it from the thread that serves. Throws comm::PeerError if the others cannot
  /// continue.
  void lost(int worker);
  /// Handles a worker's death that all ranks know. Call it between rounds.
  void lost_between_rounds(int worker);
  /// Dead workers, ascending; the same on all ranks after a round.
  std::vector<int> lost_workers() const { return {lost_.begin(), lost_.end()}; }
  /// All weights that training updates; only this server's part is valid.
  std::span<float> all_weights() { return part_.all_weights(); }
  /// Copies this server's part of a state group into the same part of `out`, a whole arena.
  void download(std::string_view group, std::span<float> out) const { part_.download(group, out); }
  /// Returns statistics; they are complete on the coordinator.
  const ServerFigures& figures();

 private:
  /// State of a worker, as this server knows it.
  struct Worker {
    comm::ServerHeader header;
    std::vector<float> gradient;  ///< a gradient received in messages
    float* source = nullptr;      ///< this server's part of the gradient that is not used yet
    std::int64_t read_version = 0;
    std::int64_t has_version = -1;      ///< version of the weights that it received in messages; -1: unknown
    std::optional<std::int64_t> wants;  ///< version that its unanswered `pull` requests, at least
    bool has_gradient = false;
    bool paused = false;   ///< it has sent `bye` or died
    bool listens = false;  ///< it has sent a message in this round, so it now waits for weights while it waits for `go`
    StopWatch since_go;
  };

  void receive(const comm::ServerMessages::Received& message);
  void receive_from_server(const comm::ServerMessages::Received& message);
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
  void send_to_other_servers(const comm::ServerHeader& header, std::span<const float> values = {});
  void send_to_all(const comm::ServerHeader& header);
  [[noreturn]] void give_up(double seconds) const;
  void remove(int worker);
  void answer_workers();
  bool over() const;
  bool progress();
  /// True if a record decides the order in which single gradients make updates.
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
  std::optional<comm::ServerMessages> to_servers_;  ///< messages to and from the other servers
  std::optional<Admission> admission_;              ///< on the coordinator only
  std::vector<Worker> workers_;
  std::optional<std::vector<int>> decided_;  ///< workers whose gradients make the next update
  /// Sum of squares of this part, while the server waits for those of the other servers.
  std::optional<double> own_squares_;
  std::vector<double> squares_;  ///< sums of squares from the other servers
  int squares_received_ = 0;
  std::optional<Replay> replay_;  ///< record that is repeated; nullopt after its end
  std::optional<ArrivalRecord> record_;
  std::vector<std::uint32_t> blocks_;
  std::string divergence_;
  int byes_ = 0;  ///< number of workers that have sent `bye` or died
  std::set<int> lost_;
  bool ended_ = false;  ///< the coordinator has sent `end`
  comm::MpiSession& session_;
  double longest_ = 0;  ///< seconds of the longest step of a worker
  ServerFigures figures_;
};

}  // namespace lockstep::app
