#include "app/bench/all_reduce_algorithms.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "app/options/choices.hpp"
#include "comm/consensus.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/session/launcher.hpp"
#include "comm/survey/mpi_all_reduce.hpp"
#include "model/backend.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kAlignment = 256;

/// The schedule of a kind that is a schedule of the ring; nullopt for other kinds.
std::optional<comm::AllReduceSchedule> own_schedule(AllReduceAlgorithm kind) {
  switch (kind) {
    case AllReduceAlgorithm::doubling:
      return comm::AllReduceSchedule::doubling;
    case AllReduceAlgorithm::halving:
      return comm::AllReduceSchedule::halving;
    case AllReduceAlgorithm::ring_only:
      return comm::AllReduceSchedule::ring;
    default:
      return std::nullopt;
  }
}

/// The transport of a kind that is one of Lockstep's own transports.
comm::Transport own_transport(AllReduceAlgorithm kind) {
  switch (kind) {
    case AllReduceAlgorithm::shared_memory:
      return comm::Transport::shared_memory;
    case AllReduceAlgorithm::two_level:
      return comm::Transport::two_level;
    case AllReduceAlgorithm::iallreduce:
      return comm::Transport::mpi;
    default:
      return comm::Transport::ring;
  }
}

/// Floats in a communicator's reduction memory, or in ordinary memory.
class HostMemory {
 public:
  HostMemory(std::unique_ptr<std::pmr::memory_resource> resource, std::size_t count)
      : resource_(std::move(resource)), count_(count) {
    values_ = static_cast<float*>(resource_->allocate(count * sizeof(float), kAlignment));
    std::fill_n(values_, count_, 0.0f);  // touches the pages before time is measured
  }
  ~HostMemory() { resource_->deallocate(values_, count_ * sizeof(float), kAlignment); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::span<float> values() noexcept { return {values_, count_}; }

 private:
  std::unique_ptr<std::pmr::memory_resource> resource_;
  std::size_t count_;
  float* values_ = nullptr;
};

class HostAllReduce : public AllReduce {
 public:
  void load(std::size_t first, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), memory_->values().begin() + static_cast<std::ptrdiff_t>(first));
  }
  void fetch(std::size_t first, std::span<float> values) override {
    std::copy_n(memory_->values().begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
  }

 protected:
  explicit HostAllReduce(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
  std::span<float> values(std::size_t count) { return memory_->values().first(count); }
  void release_memory() { memory_.reset(); }

 private:
  std::shared_ptr<HostMemory> memory_;
};

std::string wire_name(const comm::Communicator& communicator) {
  return communicator.wire_format() == comm::WireFormat::fp32 ? "fp32" : "bf16";
}

/// An all-reduce over one of Lockstep's own transports.
class CommunicatorAllReduce final : public HostAllReduce {
 public:
  /// `owned`: the communicator, if only this algorithm uses it.
  CommunicatorAllReduce(std::string name, comm::Communicator& communicator, std::unique_ptr<comm::Communicator> owned,
                        std::shared_ptr<HostMemory> memory)
      : HostAllReduce(std::move(memory)),
        name_(std::move(name)),
        owned_(std::move(owned)),
        communicator_(communicator) {
    communicator_.note_activity("timing all-reduces", -1);  // -1: there are no steps
  }
  ~CommunicatorAllReduce() override { release_memory(); }  // before the communicator is destroyed

  std::string name() const override { return name_; }
  std::string transport() const override { return std::string(comm::name_of(communicator_.transport())); }
  std::string wire() const override { return wire_name(communicator_); }
  std::string schedule(std::size_t count) const override {
    const auto limits = communicator_.all_reduce_limits();
    return limits ? std::string(name_of(limits->schedule(count * sizeof(float)))) : "";
  }
  std::string description() const override {
    const auto limits = communicator_.all_reduce_limits();
    if (limits) return fmt::format("{}: {}", name_, to_text(*limits));
    const std::string what = communicator_.description();
    return what.empty() ? "" : name_ + ": " + what;
  }
  void sum(std::size_t count, std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) communicator_.all_reduce(values(count));
    communicator_.wait();
  }

 private:
  std::string name_;
  std::unique_ptr<comm::Communicator> owned_;
  comm::Communicator& communicator_;
};

class MpiLibraryAllReduce final : public HostAllReduce {
 public:
  MpiLibraryAllReduce(comm::MpiSession& session, double deadline, std::shared_ptr<HostMemory> memory)
      : HostAllReduce(std::move(memory)), all_reduce_(session, deadline) {}

  std::string name() const override { return word_of(AllReduceAlgorithm::mpi); }
  std::string description() const override { return "mpi: MPI_Allreduce of " + comm::mpi_library_version(); }
  void sum(std::size_t count, std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) all_reduce_.sum(values(count));
  }

 private:
  comm::MpiAllReduce all_reduce_;
};

/// An all-reduce between GPUs, with training's communicator.
class DeviceAllReduce final : public AllReduce {
 public:
  DeviceAllReduce(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
                  const ExecutionOptions& options, std::size_t count)
      : count_(count), graphs_(options.graphs) {
    comm::all_succeed(communicator, [&] { backend_ = make_backend(place, options); });
    on_device_ = make_device_communicator(session, communicator, place, *backend_, options);
    comm::all_succeed(communicator, [&] {
      values_ = static_cast<std::byte*>(backend_->memory()->allocate(count_ * sizeof(float), kAlignment));
    });
  }
  ~DeviceAllReduce() override {
    // Normally the recordings are destroyed before the sums that they refer to. After an error the sums are destroyed
    // first: freeing memory would wait for sums whose peers may never answer.
    if (std::uncaught_exceptions() > 0) on_device_.reset();
    if (values_ != nullptr) backend_->memory()->deallocate(values_, count_ * sizeof(float), kAlignment);
    backend_.reset();
  }

  std::string name() const override { return std::string(comm::name_of(on_device_->transport())); }
  std::string wire() const override { return wire_name(*on_device_); }
  std::string description() const override {
    const std::string of_sums = on_device_->description();
    return backend_->description() + (of_sums.empty() ? "" : "\n") + of_sums;
  }
  void sum(std::size_t count, std::int64_t times) override {
    const std::array<std::int64_t, 2> key{static_cast<std::int64_t>(count), times};
    backend_->repeat(key, [&] {
      for (std::int64_t i = 0; i < times; ++i) {
        on_device_->all_reduce(std::span(reinterpret_cast<float*>(values_), count));
      }
      on_device_->join();
    });
    on_device_->wait("an all-reduce", -1);
  }
  int slow_batches() const override { return graphs_ ? 2 : 0; }  // the first runs before recording, the second records
  void begin_size() override { backend_->forget_recordings(); }  // a backend keeps a limited number of recordings
  void load(std::size_t first, std::span<const float> values) override {
    backend_->upload(values, tensor(first, values.size()));
  }
  void fetch(std::size_t first, std::span<float> values) override {
    backend_->download(tensor(first, values.size()), values);
  }

 private:
  model::Tensor tensor(std::size_t first, std::size_t count) {
    return {values_ + first * sizeof(float), model::ElementType::float32, 1, static_cast<std::int64_t>(count)};
  }

  std::size_t count_;
  bool graphs_;
  std::unique_ptr<model::Backend> backend_;
  std::unique_ptr<comm::Communicator> on_device_;
  std::byte* values_ = nullptr;
};

}  // namespace

std::vector<AllReduceAlgorithm> usual_algorithms(comm::Transport transport, bool gpus, DeviceChoice device) {
  std::vector<AllReduceAlgorithm> kinds;
  if (device != DeviceChoice::gpu) {
    kinds.push_back(AllReduceAlgorithm::ring);
    if (transport == comm::Transport::two_level) kinds.push_back(AllReduceAlgorithm::two_level);
    if (transport == comm::Transport::shared_memory) kinds.push_back(AllReduceAlgorithm::shared_memory);
    if (transport != comm::Transport::serial) kinds.push_back(AllReduceAlgorithm::mpi);
    const bool network = transport != comm::Transport::serial && transport != comm::Transport::shared_memory;
    if (network) kinds.push_back(AllReduceAlgorithm::iallreduce);
  }
  if (gpus) kinds.push_back(AllReduceAlgorithm::nccl);
  return kinds;
}

std::vector<std::unique_ptr<AllReduce>> make_all_reduces(comm::MpiSession& session, comm::Communicator& control,
                                                         std::span<const AllReduceAlgorithm> kinds, const Place& place,
                                                         const ExecutionOptions& options, std::size_t count) {
  std::vector<std::unique_ptr<AllReduce>> algorithms;
  // Algorithms that need no special memory share one.
  std::shared_ptr<HostMemory> plain;
  const auto plain_memory = [&] {
    if (!plain) {
      comm::all_succeed(control, [&] {
        plain = std::make_shared<HostMemory>(comm::plain_reduction_memory(count * sizeof(float)), count);
      });
    }
    return plain;
  };
  bool serial = false;
  for (const AllReduceAlgorithm kind : kinds) {
    if (kind == AllReduceAlgorithm::nccl) {
      algorithms.push_back(std::make_unique<DeviceAllReduce>(session, control, place, options, count));
    } else if (kind == AllReduceAlgorithm::mpi) {
      algorithms.push_back(std::make_unique<MpiLibraryAllReduce>(session, options.deadline, plain_memory()));
    } else if (control.size() == 1) {
      if (!std::exchange(serial, true)) {
        algorithms.push_back(std::make_unique<CommunicatorAllReduce>("serial", control, nullptr, plain_memory()));
      }
    } else {
      const comm::Transport wanted = own_transport(kind);
      const std::optional<comm::AllReduceSchedule> schedule = own_schedule(kind);
      std::unique_ptr<comm::Communicator> owned;
      if (control.transport() != wanted || schedule) {
        owned = comm::make_communicator(
            session, {.transport = wanted,
                      .wire = options.wire,
                      .all_reduce = schedule ? comm::AllReduceChoice{.limits = comm::AllReduceLimits::all_by(*schedule)}
                                             : options.all_reduce,
                      .deadline_seconds = options.deadline});
      }
      comm::Communicator& communicator = owned ? *owned : control;
      std::shared_ptr<HostMemory> memory;
      if (wanted == comm::Transport::ring) {
        memory = plain_memory();
      } else {
        std::unique_ptr<std::pmr::memory_resource> window = communicator.reduction_memory(count * sizeof(float));
        comm::all_succeed(control, [&] { memory = std::make_shared<HostMemory>(std::move(window), count); });
      }
      algorithms.push_back(
          std::make_unique<CommunicatorAllReduce>(word_of(kind), communicator, std::move(owned), memory));
    }
  }
  return algorithms;
}

std::size_t host_copies(std::span<const AllReduceAlgorithm> kinds) {
  const auto has = [&](AllReduceAlgorithm kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  const bool plain = has(AllReduceAlgorithm::mpi) || std::ranges::any_of(kinds, [](AllReduceAlgorithm kind) {
                       return kind != AllReduceAlgorithm::nccl && own_transport(kind) == comm::Transport::ring;
                     });
  return (plain ? 1u : 0u) + (has(AllReduceAlgorithm::shared_memory) ? 1u : 0u) +
         (has(AllReduceAlgorithm::two_level) ? 1u : 0u);
}

}  // namespace lockstep::app
