/// \file
/// A communicator that can go on with fewer ranks when some have died: for jobs in which collectives are seldom, and
/// whose ranks know between them who is left (--agree async, --agree quorum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// Everything is done by another communicator, at first one of all ranks. rank() and size() are among those left.
class SurvivorCommunicator final : public Communicator {
 public:
  /// Collective. As make_communicator. `session` outlives this.
  SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options);

  /// Collective over `ranks` (of the session, ascending, this one among them), when nothing is under way: all others
  /// have died. Throws PeerError.
  void go_on_with(const std::vector<int>& ranks);
  /// The session's rank of one of those left, and the reverse (-1: it has died).
  int job_rank(int rank) const { return living_[static_cast<std::size_t>(rank)]; }
  int rank_of(int job_rank) const;

  Transport transport() const noexcept override { return inner_->transport(); }
  std::string description() const override { return inner_->description(); }
  WireFormat wire_format() const noexcept override { return inner_->wire_format(); }
  bool uses_network() const noexcept override { return inner_->uses_network(); }
  int ring_length() const noexcept override { return inner_->ring_length(); }
  void forget_rounding_errors() noexcept override { inner_->forget_rounding_errors(); }
  double exposed_seconds() const noexcept override { return inner_->exposed_seconds(); }
  double busy_seconds() const noexcept override { return inner_->busy_seconds(); }
  /// As the session counts them.
  std::vector<int> dead_peers() const override;

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override {
    return inner_->reduction_memory(bytes, use);
  }
  void do_all_reduce(std::span<float> data) override { inner_->all_reduce(data); }
  void do_all_reduce(std::span<double> data) override { inner_->all_reduce(data); }
  void do_all_reduce(const TreeTerms& terms) override { inner_->all_reduce(terms); }
  void do_reduce_scatter(std::span<float> data) override { inner_->reduce_scatter(data); }
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void do_broadcast(std::span<std::byte> data, int root) override { inner_->broadcast(data, root); }
  void do_barrier() override { inner_->barrier(); }
  void do_join() override { inner_->join(); }
  void do_wait(const char* what, std::int64_t step) override { inner_->wait(what, step); }
  void do_note_activity(const char* what, std::int64_t step) noexcept override { inner_->note_activity(what, step); }
  void do_begin_long_operation(const char* what) override { inner_->begin_long_operation(what); }
  void do_end_long_operation() noexcept override { inner_->end_long_operation(); }
  void do_note_wait(std::string_view text) override { inner_->note_wait(text); }
  double do_set_deadline(double seconds) override { return inner_->set_deadline(seconds); }
  bool do_look_at_peers() override { return inner_->look_at_peers(); }

  MpiSession& session_;
  CommunicatorOptions options_;
  std::vector<int> living_;
  std::vector<std::unique_ptr<MpiSession>> sessions_;  ///< of those left, each time
  std::vector<std::unique_ptr<Communicator>>
      communicators_;  ///< those before stay: their ranks are not all here to end them
  Communicator* inner_;
};

}  // namespace lockstep::comm
