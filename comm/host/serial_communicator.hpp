/// \file
/// A world of one: every sum is the data itself.
#pragma once

#include "comm/communicator.hpp"

namespace lockstep::comm {

class SerialCommunicator : public Communicator {
 public:
  SerialCommunicator() : Communicator(0, 1) {}
  Transport transport() const noexcept override { return Transport::serial; }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override;
  void do_all_reduce(std::span<float>) override {}
  void do_all_reduce(std::span<double>) override {}
  void do_reduce_scatter(std::span<float>) override {}
  void do_all_gather(std::span<std::byte>, std::size_t) override {}
  void do_broadcast(std::span<std::byte>, int) override {}
  void do_barrier() override {}
  void do_note_activity(const char*, std::int64_t) noexcept override {}
  void do_begin_long_operation(const char*) override {}
  void do_end_long_operation() noexcept override {}
};

}  // namespace lockstep::comm
