/// \file
/// Which device each rank computes on, and everything that follows from it: backend, precision, how gradients are
/// summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"
#include "comm/device_communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "model/backend.hpp"
#include "model/device.hpp"
#include "model/state/memory_plan.hpp"

namespace lockstep::app {

/// What one rank knows of itself before anybody decides.
struct RankView {
  int local_rank = 0;  ///< index among the ranks of its host
  std::string host;
  std::string visible_devices;  ///< CUDA_VISIBLE_DEVICES as it is set here; empty: not set
  model::DeviceSurvey survey;
};
/// A view as it travels to the other ranks: all but local rank and host. Without newlines inside its fields.
std::string to_text(const RankView& view);
/// Throws std::invalid_argument on anything that to_text does not write.
RankView view_from(std::string_view text);

/// Blocks of NCCL's sums: the fewest of the 8 to 16 that others leave them beside products (pytorch issue 143988). Not
/// measured here.
inline constexpr int kMostCommunicationProcessors = 8;

/// Where a rank computes.
struct Place {
  std::optional<model::Device> gpu;  ///< empty: the CPU
  model::Precision precision = model::Precision::fp32;
  std::string host;  ///< where this rank runs; empty on a CPU
  /// A line for the log, the same on every rank: "device: cpu (no NVIDIA driver is installed here)". Empty when there
  /// is nothing to say that the user has not said.
  std::string note;
  int sharers = 1;               ///< ranks that use this GPU, this one included
  bool gpus_are_shared = false;  ///< somewhere in the world ranks share a GPU
  /// Streaming multiprocessors that sums over ranks take, and that products leave alone while a sum runs: 8, and at
  /// most an eighth of the smallest GPU. The same on every rank; 0 in a world of one and on CPUs.
  int communication_processors = 0;
};

/// The rule, the same for all ranks: local rank i takes visible device i modulo their number (with Slurm's one visible
/// GPU per task that is device 0), or where a rank before it has that one, the next that nobody has. `auto` takes GPUs
/// where every rank has one and the CPU where none has; precision `auto` takes the best that all GPUs have. Throws
/// UsageError where the options contradict each other (a precision or wire that means nothing on a CPU),
/// comm::AgreedError where they do not fit the machines, naming ranks, hosts and what to do: --device gpu where a rank
/// has no GPU (with its obstacle), some ranks with and some without, two ranks on one GPU without --share-gpu, a
/// precision that a GPU does not have.
std::vector<Place> decide_places(const std::vector<RankView>& ranks, const ExecutionOptions& options);

/// Collective: looks (not with --device cpu), tells the others, decides. The same exception on every rank. Also refuses
/// NCCL_* variables that cannot work, before NCCL meets them.
Place find_place(comm::Communicator& communicator, const ExecutionOptions& options);
/// Collective. For a plan that nobody carries out: as find_place, but with --device gpu no device is looked at and the
/// place is an imagined GPU.
Place plan_place(comm::Communicator& communicator, const ExecutionOptions& options);

/// "NVIDIA H200" or "cpu (2 threads)": what several ranks may have in common.
std::string device_kind(const Place& place, const ExecutionOptions& options);
/// "0000:1b:00.0 GPU-8f3c1a2b", which this rank alone has; empty for the CPU.
std::string device_identity(const Place& place);
/// "NVIDIA H200 (0000:1b:00.0)", for messages.
std::string name_with_pci(const model::Device& device);

/// What is free on one rank's GPU.
struct GpuMemory {
  std::string host;
  std::string gpu;             ///< "NVIDIA H200 (0000:1b:00.0)"
  std::size_t free_bytes = 0;  ///< with the context of this process there
  std::size_t bytes = 0;       ///< in all
  int sharers = 1;
};
/// Bytes of one rank on a GPU: the plan, and 5 % for what is small, and lost between blocks.
std::size_t bytes_on_gpu(const model::MemoryPlan& plan);
/// " + products 64 MiB + kernels 512 MiB + NCCL 147 MiB": what a GPU holds beside the arenas; empty on a CPU.
std::string beside_arenas(const model::MemoryPlan& plan);
/// Empty where `plan` fits on every rank's GPU; else who has too little, what is needed and the largest --batch that
/// fits everywhere, found by bisection over `plan_for`.
std::string memory_complaint(std::span<const GpuMemory> ranks, const model::MemoryPlan& plan, std::int64_t batch,
                             const std::function<model::MemoryPlan(std::int64_t)>& plan_for);
/// Collective. Throws comm::AgreedError with the complaint, if there is one. `plan` and `plan_for` are the same on
/// every rank. On CPUs nothing is asked: see require_host_memory (host_memory.hpp).
void require_gpu_memory(comm::Communicator& communicator, const Place& place, const model::MemoryPlan& plan,
                        std::int64_t batch, const std::function<model::MemoryPlan(std::int64_t)>& plan_for);

/// Collective: between the hosts' memories, for a command that sums no gradients.
std::unique_ptr<comm::Communicator> communicator_of(comm::MpiSession& session, const ExecutionOptions& execution);
/// What one for training is made with.
comm::CommunicatorOptions communicator_options(const ExecutionOptions& options);
/// The backend of this place.
std::unique_ptr<model::Backend> make_backend(const Place& place, const ExecutionOptions& options);
/// Collective: between the GPUs of such a place. `communicator` and `backend` must outlive it.
std::unique_ptr<comm::Communicator> make_device_communicator(comm::MpiSession& session,
                                                             comm::Communicator& communicator, const Place& place,
                                                             model::Backend& backend, const ExecutionOptions& options,
                                                             const comm::SummationTree* tree = nullptr);
/// What such a communicator is made with. `stream`: of the backend; none for a plan.
comm::DeviceCommunicatorOptions device_communicator_options(const Place& place, const ExecutionOptions& options,
                                                            void* stream, const comm::SummationTree* tree = nullptr);
/// The transport of gradients, for plans that are made before there is a device communicator.
comm::Transport transport_of(const Place& place, const comm::Communicator& communicator);
/// How gradients are cut into buckets of `elements`; 0: of sizes that suit the ranks.
comm::BucketRule bucket_rule(std::int64_t elements, const Place& place, const comm::Communicator& communicator);
/// Element types of the arenas on this place.
model::MemoryTypes memory_types(const Place& place);

}  // namespace lockstep::app
