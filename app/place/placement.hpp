/// \file
/// The device of each rank, and everything that follows from it: backend, precision, summation of gradients.
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
#include "model/bf16_unit.hpp"
#include "model/device.hpp"
#include "model/state/memory_plan.hpp"

namespace lockstep::app {

/// One rank's own knowledge before the decision.
struct RankView {
  int local_rank = 0;  ///< index among the ranks of its host
  std::string host;
  std::string visible_devices;  ///< CUDA_VISIBLE_DEVICES of this process; empty: not set
  model::DeviceSurvey survey;
  model::Bf16Choice bf16 = {};  ///< its CPU's unit; measured if bf16 is asked for and it has no GPU
};
/// Text form for the other ranks: everything except local rank and host. Fields contain no newlines.
std::string to_text(const RankView& view);
/// Throws std::invalid_argument on any text that to_text() does not write.
RankView view_from(std::string_view text);

/// Thread blocks of NCCL's sums: the lower end of the 8 to 16 that others leave them beside matrix products (pytorch
/// issue 143988). Not measured here.
inline constexpr int kMaxCommunicationProcessors = 8;

/// The device of a rank.
struct Place {
  std::optional<model::Device> gpu;  ///< empty: the CPU
  model::Precision precision = model::Precision::fp32;
  model::Bf16Unit bf16_unit = model::Bf16Unit::none;  ///< a CPU with precision bf16 multiplies by it
  std::string host;                                   ///< host of this rank; empty on a CPU
  /// A line for the log, the same on every rank: "device: cpu (no NVIDIA driver is installed here)". Empty if the user
  /// has chosen everything himself.
  std::string note;
  int sharers = 1;               ///< ranks that use this GPU, this one included
  bool gpus_are_shared = false;  ///< true if any ranks in the world share a GPU
  /// Streaming multiprocessors for sums over ranks, which matrix products do not use while a sum runs: 8, and at most
  /// an eighth of the smallest GPU. The same on every rank; 0 in a world of one and on CPUs.
  int communication_processors = 0;
};

/// The rule, the same for all ranks: local rank i takes visible device i modulo their number (with Slurm's one visible
/// GPU per task that is device 0), or, if a lower rank has that one, the next free device. `auto` takes GPUs if every
/// rank has one and the CPU if none has; precision `auto` takes the best that all GPUs support, and fp32 on CPUs.
/// Throws UsageError if the options contradict each other (a precision or wire format without effect on a CPU), and if
/// CPUs do not multiply faster in bf16, or not by the same instructions. Throws comm::ConsensusError if they do not fit
/// the machines, with ranks, hosts and what to do: --device gpu and a rank without a GPU (with its obstacle), some
/// ranks with and some without a GPU, two ranks on one GPU without --share-gpu, a precision that a GPU does not
/// support.
std::vector<Place> decide_places(const std::vector<RankView>& ranks, const ExecutionOptions& options);

/// Collective: looks for devices (not with --device cpu), exchanges the views, decides. The same exception on every
/// rank. Also refuses NCCL_* variables that cannot work, before NCCL reads them.
Place find_place(comm::Communicator& communicator, const ExecutionOptions& options);
/// Collective. For a plan that is not executed: like find_place(), but with --device gpu no device is accessed and the
/// place is an imagined GPU.
Place plan_place(comm::Communicator& communicator, const ExecutionOptions& options);

/// "NVIDIA H200" or "cpu (2 threads)": may be the same for several ranks.
std::string device_kind(const Place& place, const ExecutionOptions& options);
/// "0000:1b:00.0 GPU-8f3c1a2b", unique to this rank; empty for the CPU.
std::string device_identity(const Place& place);
/// "NVIDIA H200 (0000:1b:00.0)", for messages.
std::string name_with_pci(const model::Device& device);

/// Free memory of one rank's GPU.
struct GpuMemory {
  std::string host;
  std::string gpu;             ///< "NVIDIA H200 (0000:1b:00.0)"
  std::size_t free_bytes = 0;  ///< includes the effect of this process's context
  std::size_t bytes = 0;       ///< total
  int sharers = 1;
};
/// Memory of one rank on a GPU, in bytes: the plan plus 5 % for small allocations and fragmentation.
std::size_t bytes_on_gpu(const model::MemoryPlan& plan);
/// " + products 64 MiB + kernels 512 MiB + NCCL 147 MiB": memory of a GPU besides the arenas; empty on a CPU.
std::string beside_arenas(const model::MemoryPlan& plan);
/// Empty if `plan` fits on every rank's GPU. Otherwise names the ranks with too little memory, the needed memory and
/// the largest --batch that fits everywhere, found by bisection over `plan_for`.
std::string memory_complaint(std::span<const GpuMemory> ranks, const model::MemoryPlan& plan, std::int64_t batch,
                             const std::function<model::MemoryPlan(std::int64_t)>& plan_for);
/// Collective. Throws comm::ConsensusError with the complaint, if there is one. `plan` and `plan_for` are the same on
/// every rank. Does nothing on CPUs: see require_host_memory() (host_memory.hpp).
void require_gpu_memory(comm::Communicator& communicator, const Place& place, const model::MemoryPlan& plan,
                        std::int64_t batch, const std::function<model::MemoryPlan(std::int64_t)>& plan_for);

/// Collective: a communicator between host memories, for a command that sums no gradients.
std::unique_ptr<comm::Communicator> communicator_of(comm::MpiSession& session, const ExecutionOptions& execution);
/// Options of a communicator for training.
comm::CommunicatorOptions communicator_options(const ExecutionOptions& options);
/// The backend of this place.
std::unique_ptr<model::Backend> make_backend(const Place& place, const ExecutionOptions& options);
/// Collective: a communicator between the GPUs of such a place. `communicator` and `backend` must outlive it.
std::unique_ptr<comm::Communicator> make_device_communicator(comm::MpiSession& session,
                                                             comm::Communicator& communicator, const Place& place,
                                                             model::Backend& backend, const ExecutionOptions& options,
                                                             const comm::SummationTree* tree = nullptr);
/// Options of such a communicator. `stream`: the backend's; nullptr for a plan.
comm::DeviceCommunicatorOptions device_communicator_options(const Place& place, const ExecutionOptions& options,
                                                            void* stream, const comm::SummationTree* tree = nullptr);
/// The transport of gradients, for plans made before there is a device communicator.
comm::Transport transport_of(const Place& place, const comm::Communicator& communicator);
/// Cuts gradients into buckets of `elements`; 0: of sizes that suit the ranks.
comm::BucketRule bucket_rule(std::int64_t elements, const Place& place, const comm::Communicator& communicator);
/// Element types of the arenas on this place.
model::MemoryTypes memory_types(const Place& place);

}  // namespace lockstep::app
