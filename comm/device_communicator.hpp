/// \file
/// The communicator of GPUs: NCCL, or nothing to exchange in a world of one. All spans are memory of the rank's GPU;
/// its collectives may be recorded (CUDA stream capture) by whoever owns the producer's stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/summation_tree.hpp"

namespace lockstep::comm {

struct DeviceCommunicatorOptions {
  void* stream = nullptr;              ///< the producer's cudaStream_t
  int device = 0;                      ///< its device, as CUDA counts in this process
  std::string device_name;             ///< for messages: "NVIDIA H200 (0000:1b:00.0)"
  WireFormat wire = WireFormat::fp32;  ///< of all_reduce; fp32 or bf16. The halves of a sum travel as float32
  double deadline_seconds = 60;        ///< longest wait for one step; > 0
  double excuse_seconds = 0;           ///< as in CommunicatorOptions
  bool ring = false;                   ///< force NCCL's ring algorithm
  bool nvls = false;                   ///< NCCL may sum in the switches, which does not repeat bit for bit
  bool shared_device = false;  ///< ranks of one host may share a device: NCCL believes in separate hosts (tests)
  int processors = 8;          ///< most streaming multiprocessors that a sum may take (NCCL's CTAs); > 0
  /// Of TreeTerms that are going to be summed, with as many ranks; outlives the communicator. nullptr: there are none.
  const SummationTree* tree = nullptr;
};

/// Bytes on the GPU that a communicator of several ranks takes for sums that travel as bfloat16.
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{32} << 20;

/// For sums in the order of a tree: room for a piece of each subtree, of 16 elements per rank at least.
inline std::size_t ordered_staging_bytes(const SummationTree& tree) {
  const std::size_t least = tree.steps_over_subtrees().size() * static_cast<std::size_t>(32 * tree.ranks());
  return std::max(kDeviceStagingBytes, least * sizeof(float));
}

/// Buffers of one connection of one of NCCL's blocks: 512 KiB for its protocol LL, 4,800 KiB for LL128, 4 MiB for
/// Simple (NCCL's src/init.cc and src/include/device.h: DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE, DEFAULT_BUFFSIZE).
inline constexpr std::size_t kNcclConnectionBytes = std::size_t{512 + 4800 + 4096} << 10;

/// Most bytes on the GPU that a communicator of `ranks` ranks takes. Each block of a sum has a connection from the rank
/// before it in the ring and one to the next; and, where trees are allowed, both ways with a parent and three children;
/// for sums in the order of a tree both ways with every rank.
inline std::size_t device_communicator_bytes(int ranks, const DeviceCommunicatorOptions& options) {
  if (ranks == 1) return 0;
  const int connections = 2 + (options.ring || options.shared_device ? 0 : 2 * std::min(ranks - 1, 4)) +
                          (options.tree == nullptr ? 0 : 2 * (ranks - 1));
  return static_cast<std::size_t>(options.processors * connections) * kNcclConnectionBytes +
         (options.wire == WireFormat::fp32 ? 0 : kDeviceStagingBytes) +
         (options.tree == nullptr ? 0 : ordered_staging_bytes(*options.tree));
}

/// Collective. NCCL over all ranks of the session, bootstrapped through `host`, which also watches over the peers: the
/// id is made on rank 0 and broadcast. `host` must outlive the result. A world of one needs no NCCL. Throws AgreedError
/// on every rank when any rank cannot start it (names rank, host, device and NCCL's words), also when lockstep was
/// built without CUDA.
std::unique_ptr<Communicator> make_device_communicator(MpiSession& session, Communicator& host,
                                                       const DeviceCommunicatorOptions& options);

/// "NCCL 2.28.9" or "": for --version.
std::string nccl_build();

}  // namespace lockstep::comm
