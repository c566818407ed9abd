#include "app/all_reduce_ways.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory_resource>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "app/nearest_name.hpp"
#include "comm/agreement.hpp"
#include "comm/mpi_all_reduce.hpp"
#include "comm/reduction.hpp"
#include "comm/reduction_memory.hpp"
#include "model/backend.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kAlignment = 256;

struct KindName {
  WayKind kind;
  const char* name;
};
constexpr std::array<KindName, 5> kKinds{{{WayKind::ring, "ring"},
                                          {WayKind::two_level, "two-level"},
                                          {WayKind::shared_memory, "shared-memory"},
                                          {WayKind::mpi, "mpi"},
                                          {WayKind::nccl, "nccl"}}};

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const KindName& known : kKinds) names.emplace_back(known.name);
  return names;
}

/// Of the kinds that are transports of ours.
struct OwnTransport {
  comm::Transport transport;
  std::string_view name;  ///< Communicator::transport_name
};
OwnTransport own_transport(WayKind kind) {
  switch (kind) {
    case WayKind::shared_memory:
      return {comm::Transport::shared_memory, "shared memory"};
    case WayKind::two_level:
      return {comm::Transport::two_level, "two-level"};
    default:
      return {comm::Transport::ring, "ring"};
  }
}

/// Floats of a communicator's reduction memory, or plain ones.
class HostMemory {
 public:
  HostMemory(std::unique_ptr<std::pmr::memory_resource> resource, std::size_t count)
      : resource_(std::move(resource)), count_(count) {
    values_ = static_cast<float*>(resource_->allocate(count * sizeof(float), kAlignment));
    std::fill_n(values_, count_, 0.0f);  // pages are not to appear while the clock runs
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

class HostWay : public Way {
 public:
  void load(std::size_t first, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), memory_->values().begin() + static_cast<std::ptrdiff_t>(first));
  }
  void fetch(std::size_t first, std::span<float> values) override {
    std::copy_n(memory_->values().begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
  }

 protected:
  explicit HostWay(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
  std::span<float> values(std::size_t count) { return memory_->values().first(count); }
  void release_memory() { memory_.reset(); }

 private:
  std::shared_ptr<HostMemory> memory_;
};

/// Over one of our transports.
class CommunicatorWay final : public HostWay {
 public:
  /// `owned`: the communicator, if it is this way's alone.
  CommunicatorWay(std::string name, comm::Communicator& communicator, std::unique_ptr<comm::Communicator> owned,
                  std::shared_ptr<HostMemory> memory, const std::string& wire)
      : HostWay(std::move(memory)), name_(std::move(name)), owned_(std::move(owned)), communicator_(communicator) {
    wire_.bf16 = wire == "bf16" && communicator_.uses_network();
    communicator_.note_activity("timing sums", -1);  // no steps here
  }
  ~CommunicatorWay() override { release_memory(); }  // before the communicator goes

  std::string name() const override { return name_; }
  std::string transport() const override { return std::string(communicator_.transport_name()); }
  std::string wire() const override { return wire_.bf16 ? "bf16" : "fp32"; }
  void sum(std::size_t count, std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) communicator_.all_reduce_sum(values(count), wire_);
  }

 private:
  std::string name_;
  std::unique_ptr<comm::Communicator> owned_;
  comm::Communicator& communicator_;
  comm::Wire wire_;
};

class MpiWay final : public HostWay {
 public:
  MpiWay(comm::MpiSession& session, double deadline, std::shared_ptr<HostMemory> memory)
      : HostWay(std::move(memory)), all_reduce_(session, deadline) {}

  std::string name() const override { return way_name(WayKind::mpi); }
  std::string description() const override { return "mpi: MPI_Allreduce of " + comm::mpi_library_version(); }
  void sum(std::size_t count, std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) all_reduce_.sum(values(count));
  }

 private:
  comm::MpiAllReduce all_reduce_;
};

/// Between GPUs, with what training uses there.
class DeviceWay final : public Way {
 public:
  DeviceWay(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
            const ExecutionOptions& options, std::size_t count)
      : count_(count),
        type_(options.wire == "bf16" ? model::ElementType::bfloat16 : model::ElementType::float32),
        graphs_(options.graphs) {
    comm::all_succeed(communicator, [&] { backend_ = make_backend(place, options); });
    reduction_ = make_reduction(session, communicator, place, *backend_, options);
    comm::all_succeed(communicator, [&] {
      values_ = static_cast<std::byte*>(backend_->memory()->allocate(count_ * element_bytes(), kAlignment));
    });
  }
  ~DeviceWay() override {
    // In order, the recorded sums go before what they were recorded from. After an error the sums go first: whatever
    // frees memory would wait for those that are still waiting for a peer.
    if (std::uncaught_exceptions() > 0) reduction_.reset();
    if (values_ != nullptr) backend_->memory()->deallocate(values_, count_ * element_bytes(), kAlignment);
    backend_.reset();
  }

  std::string name() const override { return std::string(reduction_->transport_name()); }
  std::string wire() const override { return type_ == model::ElementType::bfloat16 ? "bf16" : "fp32"; }
  std::string description() const override {
    const std::string of_sums = reduction_->description();
    return backend_->description() + (of_sums.empty() ? "" : "\n") + of_sums;
  }
  void sum(std::size_t count, std::int64_t times) override {
    const std::array<std::int64_t, 2> key{static_cast<std::int64_t>(count), times};
    backend_->repeat(key, [&] {
      for (std::int64_t i = 0; i < times; ++i) {
        if (type_ == model::ElementType::bfloat16) {
          reduction_->sum_bf16({reinterpret_cast<std::uint16_t*>(values_), count});
        } else {
          reduction_->sum(std::span(reinterpret_cast<float*>(values_), count));
        }
      }
      reduction_->join();
    });
    reduction_->wait("a sum", -1);
  }
  int slow_batches() const override { return graphs_ ? 2 : 0; }  // one to come to know it, one to record it
  void begin_size() override { backend_->forget_recordings(); }  // a backend keeps so many and no more
  void load(std::size_t first, std::span<const float> values) override {
    backend_->upload(values, tensor(first, values.size()));
  }
  void fetch(std::size_t first, std::span<float> values) override {
    backend_->download(tensor(first, values.size()), values);
  }

 private:
  model::Tensor tensor(std::size_t first, std::size_t count) {
    return {values_ + first * element_bytes(), type_, 1, static_cast<std::int64_t>(count)};
  }
  std::size_t element_bytes() const { return type_ == model::ElementType::bfloat16 ? 2 : sizeof(float); }

  std::size_t count_;
  model::ElementType type_;
  bool graphs_;
  std::unique_ptr<model::Backend> backend_;
  std::unique_ptr<comm::Reduction> reduction_;
  std::byte* values_ = nullptr;
};

}  // namespace

std::string way_name(WayKind kind) {
  return std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& known) { return known.kind == kind; })->name;
}

std::vector<WayKind> parse_ways(const std::string& text) {
  std::vector<WayKind> kinds;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string word = text.substr(start, end - start);
    const auto known = std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& k) { return word == k.name; });
    if (known == kKinds.end()) {
      throw std::invalid_argument(fmt::format("names no way to sum with '{}'; the ways are {}{}", word,
                                              list_names(all_names(), "and"), did_you_mean(word, all_names())));
    }
    if (std::find(kinds.begin(), kinds.end(), known->kind) == kinds.end()) kinds.push_back(known->kind);
    start = end + 1;
  }
  return kinds;
}

std::vector<WayKind> usual_ways(std::string_view transport, bool gpus, const std::string& device) {
  std::vector<WayKind> kinds;
  if (device != "gpu") {
    kinds.push_back(WayKind::ring);
    if (transport == "two-level") kinds.push_back(WayKind::two_level);
    if (transport == "shared memory") kinds.push_back(WayKind::shared_memory);
    if (transport != "serial") kinds.push_back(WayKind::mpi);
  }
  if (gpus) kinds.push_back(WayKind::nccl);
  return kinds;
}

std::vector<std::unique_ptr<Way>> make_ways(comm::MpiSession& session, comm::Communicator& control,
                                            std::span<const WayKind> kinds, const Place& place,
                                            const ExecutionOptions& options, std::size_t count) {
  std::vector<std::unique_ptr<Way>> ways;
  // What needs no special memory shares one.
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
  for (const WayKind kind : kinds) {
    if (kind == WayKind::nccl) {
      ways.push_back(std::make_unique<DeviceWay>(session, control, place, options, count));
    } else if (kind == WayKind::mpi) {
      ways.push_back(std::make_unique<MpiWay>(session, options.deadline, plain_memory()));
    } else if (control.size() == 1) {
      if (!std::exchange(serial, true)) {
        ways.push_back(std::make_unique<CommunicatorWay>("serial", control, nullptr, plain_memory(), "fp32"));
      }
    } else {
      const OwnTransport wanted = own_transport(kind);
      std::unique_ptr<comm::Communicator> owned;
      if (control.transport_name() != wanted.name) {
        owned = comm::make_communicator(session, {.transport = wanted.transport, .deadline_seconds = options.deadline});
      }
      comm::Communicator& communicator = owned ? *owned : control;
      std::shared_ptr<HostMemory> memory;
      if (kind == WayKind::ring) {
        memory = plain_memory();
      } else {
        std::unique_ptr<std::pmr::memory_resource> window = communicator.reduction_memory(count * sizeof(float));
        comm::all_succeed(control, [&] { memory = std::make_shared<HostMemory>(std::move(window), count); });
      }
      ways.push_back(
          std::make_unique<CommunicatorWay>(way_name(kind), communicator, std::move(owned), memory, options.wire));
    }
  }
  return ways;
}

std::size_t host_copies(std::span<const WayKind> kinds) {
  const auto has = [&](WayKind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  return (has(WayKind::ring) || has(WayKind::mpi) ? 1u : 0u) + (has(WayKind::shared_memory) ? 1u : 0u) +
         (has(WayKind::two_level) ? 1u : 0u);
}

}  // namespace lockstep::app
