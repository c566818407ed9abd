/// \file
/// The communicator of GPUs: NCCL, or no communication in a world of one. All spans are memory of the rank's GPU. The
/// owner of the producer's stream may record collectives (CUDA stream capture).
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
  int device = 0;                      ///< CUDA's index of the stream's device in this process
  std::string device_name;             ///< for messages: "NVIDIA H200 (0000:1b:00.0)"
  WireFormat wire = WireFormat::fp32;  ///< format of all_reduce: fp32 or bf16. The halves of a sum are always float32
  double deadline_seconds = 60;        ///< longest wait for one step; > 0
  double excuse_seconds = 0;           ///< see CommunicatorOptions
  bool ring = false;                   ///< force NCCL's ring algorithm
  bool nvls = false;                   ///< NCCL may sum in the switches, which does not repeat bit for bit
  bool shared_device = false;  ///< ranks of one host may share a device: NCCL then assumes separate hosts (tests)
  int processors = 8;          ///< limit of multiprocessors for a sum (NCCL's CTAs); > 0
  /// Tree of future TreeTerms, for as many ranks; outlives the communicator. nullptr: none.
  const SummationTree* tree = nullptr;
};

/// Bytes on the GPU that a communicator of several ranks uses for sums in bfloat16.
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{32} << 20;

/// Bytes for sums in the order of a tree: a piece of each subtree, at least 16 elements per rank.
inline std::size_t ordered_staging_bytes(const SummationTree& tree) {
  const std::size_t least = tree.steps_over_subtrees().size() * static_cast<std::size_t>(32 * tree.ranks());
  return std::max(kDeviceStagingBytes, least * sizeof(float));
}

/// Buffers of one connection of one of NCCL's blocks: 512 KiB for its protocol LL, 4,800 KiB for LL128, 4 MiB for
/// Simple (NCCL's src/init.cc and src/include/device.h: DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE, DEFAULT_BUFFSIZE).
inline constexpr std::size_t kNcclConnectionBytes = std::size_t{512 + 4800 + 4096} << 10;

/// Upper bound of the bytes on the GPU that a communicator of `ranks` ranks uses. Each block of a sum has a connection
/// from the previous rank in the ring and one to the next. If trees are allowed, it also has connections both ways with
/// a parent and three children; for sums in the order of a tree, both ways with every rank.
inline std::size_t device_communicator_bytes(int ranks, const DeviceCommunicatorOptions& options) {
  if (ranks == 1) return 0;
  const int connections = 2 + (options.ring || options.shared_device ? 0 : 2 * std::min(ranks - 1, 4)) +
                          (options.tree == nullptr ? 0 : 2 * (ranks - 1));
  return static_cast<std::size_t>(options.processors * connections) * kNcclConnectionBytes +
         (options.wire == WireFormat::fp32 ? 0 : kDeviceStagingBytes) +
         (options.tree == nullptr ? 0 : ordered_staging_bytes(*options.tree));
}

/// Collective. Starts NCCL over all ranks of the session. `host` carries the start-up (rank 0 makes the id and
/// broadcasts it), watches over the peers, and must outlive the result. A world of one needs no NCCL. Throws
/// ConsensusError on every rank if any rank cannot start it (names rank, host, device and NCCL's message), also if
/// lockstep was built without CUDA.
std::unique_ptr<Communicator> make_device_communicator(MpiSession& session, Communicator& host,
                                                       const DeviceCommunicatorOptions& options);

/// "NCCL 2.28.9" or "": for --version.
std::string nccl_build();

}  // namespace lockstep::comm
