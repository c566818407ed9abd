/// \file
/// A communicator that forwards all calls to another one, which may change between collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// rank(), size() and first_rank() are those of the other communicator.
class ForwardingCommunicator : public Communicator {
 public:
  /// `inner` outlives this, or its last use.
  explicit ForwardingCommunicator(Communicator& inner);
  /// Switches to `inner`. Collective over the ranks of `inner`, with nothing under way here.
  void go_on_with(Communicator& inner);

  Transport transport() const noexcept override { return inner_->transport(); }
  std::string description() const override { return inner_->description(); }
  WireFormat wire_format() const noexcept override { return inner_->wire_format(); }
  bool uses_network() const noexcept override { return inner_->uses_network(); }
  int ring_length() const noexcept override { return inner_->ring_length(); }
  int ranks_sharing_memory() const noexcept override { return inner_->ranks_sharing_memory(); }
  std::optional<AllReduceLimits> all_reduce_limits() const noexcept override { return inner_->all_reduce_limits(); }
  void forget_rounding_errors() noexcept override { inner_->forget_rounding_errors(); }
  double exposed_seconds() const noexcept override { return before_ + inner_->exposed_seconds(); }
  double busy_seconds() const noexcept override { return inner_->busy_seconds(); }
  std::vector<int> dead_peers() const override { return inner_->dead_peers(); }

 protected:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override {
    return inner_->reduction_memory(bytes, use);
  }
  void do_map(std::span<std::byte> data, std::vector<std::byte*>& everywhere) const override {
    everywhere = inner_->mapped(data);
  }
  void do_all_reduce(std::span<float> data) override { inner_->all_reduce(data); }
  void do_all_reduce(std::span<double> data) override { inner_->all_reduce(data); }
  void do_urgent_all_reduce(std::span<double> data) override { inner_->urgent_all_reduce(data); }
  void do_all_reduce(const TreeTerms& terms) override { inner_->all_reduce(terms); }
  void do_copy_here(std::span<const float> from, std::span<float> to) override { inner_->copy_here(from, to); }
  void do_add_here(std::span<const float> from, std::span<float> to) override { inner_->add_here(from, to); }
  void do_reduce_scatter(std::span<float> data) override { inner_->reduce_scatter(data); }
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void do_broadcast(std::span<std::byte> data, int root) override { inner_->broadcast(data, root); }
  void do_barrier() override { inner_->barrier(); }
  void do_join() override { inner_->join(); }
  void do_wait(const char* what, std::int64_t step) override { inner_->wait(what, step); }
  void do_note_activity(const char* what, std::int64_t step) noexcept override { inner_->note_activity(what, step); }
  void do_begin_long_operation(const char* what) override { inner_->begin_long_operation(what); }
  void do_end_long_operation() noexcept override { inner_->end_long_operation(); }
  void do_note_wait(std::string_view text) override;
  double do_set_deadline(double seconds) override { return inner_->set_deadline(seconds); }
  bool do_check_peers() override { return inner_->check_peers(); }

 private:
  Communicator* inner_;
  std::mutex switching_;  ///< guards inner_ between a switch and note_wait(), which comes from any thread
  double before_ = 0;     ///< exposed seconds of earlier communicators, less those of the present one at the switch
};

}  // namespace lockstep::comm
