/// \file
/// Chooses the device of each rank, and what depends on it: backend, precision, communicator, memory.
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

/// The devices that one rank sees, before the ranks decide together.
struct RankView {
  int local_rank = 0;  ///< index among the ranks of its host
  std::string host;
  std::string visible_devices;  ///< CUDA_VISIBLE_DEVICES of this process; empty: not set
  model::DeviceSurvey survey;
  model::Bf16Choice bf16 = {};  ///< bf16 unit of its CPU; chosen if the options ask for bf16 and it has no GPU
};
/// Returns the text form for the other ranks, without local rank and host. Newlines in fields become spaces.
std::string to_text(const RankView& view);
/// Inverse of to_text(). Throws std::invalid_argument if to_text() cannot have written the text.
RankView view_from(std::string_view text);

/// Maximum number of streaming multiprocessors that are reserved for NCCL's sums beside matrix products: the lower end
/// of the usual 8 to 16 (pytorch issue 143988). We have not measured it.
inline constexpr int kMaxCommunicationProcessors = 8;

/// Device of a rank.
struct Place {
  std::optional<model::Device> gpu;  ///< nullopt: the rank computes on its CPU
  model::Precision precision = model::Precision::fp32;
  model::Bf16Unit bf16_unit = model::Bf16Unit::none;  ///< CPU with precision bf16: unit that multiplies
  std::string host;                                   ///< host of this rank; "" on a CPU
  /// Line for the log, the same on every rank: "device: cpu (no NVIDIA driver is installed here)". "" with --device cpu
  /// in fp32, which leaves nothing to report.
  std::string note;
  int sharers = 1;               ///< number of ranks that use this GPU, including this one
  bool gpus_are_shared = false;  ///< true if any ranks in the world share a GPU
  /// Number of streaming multiprocessors that matrix products leave to sums over ranks while a sum runs: 8, but at most
  /// an eighth of the smallest GPU; 1 if ranks share a GPU. The same on every rank; 0 in a world of one and on CPUs.
  int communication_processors = 0;
};

/// Decides the places of all ranks from their views. Every rank gets the same result; no communication.
///
/// Local rank i takes visible device i modulo the number of visible devices (device 0 if Slurm shows each task one
/// GPU). If a lower rank has taken that device, it takes the next free one. Device `auto` takes GPUs if every rank has
/// one, and CPUs if no rank has one. Precision `auto` takes the best that all GPUs support, and fp32 on CPUs.
///
/// Throws UsageError if options exclude each other (--device cpu with tf32, GPUs with a wire format for CPUs), and for
/// bf16 on CPUs that do not multiply faster in it or use different instructions. Throws comm::ConsensusError, with
/// ranks, hosts and remedy, if the options do not fit the machines: a rank has no GPU although --device gpu is given or
/// other ranks have one, two ranks use one GPU without --share-gpu, or a device does not support the precision.
std::vector<Place> decide_places(const std::vector<RankView>& ranks, const ExecutionOptions& options);

/// Collective. Surveys the devices (not with --device cpu), exchanges the views, and returns the place of this rank.
/// Throws the exceptions of decide_places(), the same on every rank. With several ranks on GPUs, also throws
/// comm::ConsensusError for NCCL_* variables that cannot work, before NCCL reads them.
Place find_place(comm::Communicator& communicator, const ExecutionOptions& options);
/// Collective. Like find_place(), for a plan that is not executed: with --device gpu it accesses no device and returns
/// an imaginary GPU.
Place plan_place(comm::Communicator& communicator, const ExecutionOptions& options);

/// Returns "NVIDIA H200" or "cpu (2 threads)". Several ranks may have the same text.
std::string device_kind(const Place& place, const ExecutionOptions& options);
/// Returns "0000:1b:00.0 GPU-8f3c1a2b", which identifies the GPU; "" for a CPU.
std::string device_identity(const Place& place);
/// Returns "NVIDIA H200 (0000:1b:00.0)", for messages.
std::string name_with_pci(const model::Device& device);

/// Free memory of one rank's GPU.
struct GpuMemory {
  std::string host;
  std::string gpu;             ///< "NVIDIA H200 (0000:1b:00.0)"
  std::size_t free_bytes = 0;  ///< free after the context of this process is created
  std::size_t bytes = 0;       ///< total
  int sharers = 1;
};
/// Returns the memory that one rank needs on a GPU, in bytes: the plan plus 5 % for small allocations and
/// fragmentation.
std::size_t bytes_on_gpu(const model::MemoryPlan& plan);
/// Returns " + products 64 MiB + kernels 512 MiB + NCCL 147 MiB": GPU memory outside of the arenas; "" on a CPU.
std::string beside_arenas(const model::MemoryPlan& plan);
/// Returns "" if `plan` fits on the GPU of every rank. Otherwise names the ranks with too little memory, the needed
/// memory, and the largest --batch that fits everywhere, found by bisection with `plan_for`.
std::string memory_complaint(std::span<const GpuMemory> ranks, const model::MemoryPlan& plan, std::int64_t batch,
                             const std::function<model::MemoryPlan(std::int64_t)>& plan_for);
/// Collective. Throws comm::ConsensusError with the text of memory_complaint() unless it is "". `plan` and `plan_for`
/// are the same on every rank. Does nothing on CPUs: see require_host_memory() (host_memory.hpp).
void require_gpu_memory(comm::Communicator& communicator, const Place& place, const model::MemoryPlan& plan,
                        std::int64_t batch, const std::function<model::MemoryPlan(std::int64_t)>& plan_for);

/// Collective. Makes a communicator over host memory, for a command that sums no gradients.
std::unique_ptr<comm::Communicator> communicator_of(comm::MpiSession& session, const ExecutionOptions& execution);
/// Returns the options of a communicator for training.
comm::CommunicatorOptions communicator_options(const ExecutionOptions& options);
/// Makes the backend of this place.
std::unique_ptr<model::Backend> make_backend(const Place& place, const ExecutionOptions& options);
/// Collective. Makes a communicator between the GPUs of all ranks; `place` must have a GPU. `communicator` and
/// `backend` must outlive it.
std::unique_ptr<comm::Communicator> make_device_communicator(comm::MpiSession& session,
                                                             comm::Communicator& communicator, const Place& place,
                                                             model::Backend& backend, const ExecutionOptions& options,
                                                             const comm::SummationTree* tree = nullptr);
/// Returns the options of such a communicator. `stream`: stream of the backend; nullptr for a plan.
comm::DeviceCommunicatorOptions device_communicator_options(const Place& place, const ExecutionOptions& options,
                                                            void* stream, const comm::SummationTree* tree = nullptr);
/// Returns the transport of gradients. Plans need it before a device communicator exists.
comm::Transport transport_of(const Place& place, const comm::Communicator& communicator);
/// Returns the rule that cuts gradients into buckets of `elements` elements; 0: sizes that suit the ranks.
comm::BucketRule bucket_rule(std::int64_t elements, const Place& place, const comm::Communicator& communicator);
/// Returns the element types of the arenas on this place.
model::MemoryTypes memory_types(const Place& place);

}  // namespace lockstep::app
