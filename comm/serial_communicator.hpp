/// \file
/// A world of one: every sum is the data itself.
#pragma once

#include "comm/communicator.hpp"

namespace lockstep::comm {

class SerialCommunicator final : public Communicator {
 public:
  SerialCommunicator() : Communicator(0, 1) {}
  std::string_view transport_name() const noexcept override { return "serial"; }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes) override;
  void do_all_reduce_sum(std::span<float>, const Wire&) override {}
  void do_all_reduce_sum(std::span<double>) override {}
  void do_reduce_scatter_sum(std::span<float>, const Wire&) override {}
  void do_all_gather(std::span<float>) override {}
  void do_broadcast(std::span<std::byte>, int) override {}
  void do_barrier() override {}
  void do_note_activity(const char*, std::int64_t) noexcept override {}
  void do_begin_long_operation(const char*) override {}
  void do_end_long_operation() noexcept override {}
};

}  // namespace lockstep::comm
