/// \file
/// Owner of an NCCL communicator's handle. It starts without blocking, is polled, and no call waits for long. It does
/// not know the other ranks: the caller handles deadlines and consensus on failures.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "comm/communicator.hpp"

struct ncclComm;

namespace lockstep::comm {

/// A failure of NCCL; the text has NCCL's message and its last warnings.
class NcclError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Identifier by which the ranks of one NCCL communicator find each other.
struct NcclId {
  std::array<std::byte, 128> bytes{};
};
/// Collective: rank 0 makes it and sends it to all. Needs no device. Throws ConsensusError.
NcclId make_nccl_id(Communicator& host);

/// Settings that take effect unless an environment variable has set them. Must come before any other call of NCCL.
struct NcclSettings {
  bool ring = false;  ///< NCCL_ALGO=Ring
  bool nvls = false;  ///< false: NCCL_NVLS_ENABLE=0
  bool shared_device =
      false;  ///< several ranks on one device: each acts as a separate host, with communication by sockets
  int rank = 0;
};
void apply_nccl_settings(const NcclSettings& settings);

class NcclHandle {
 public:
  enum class Element { float32, float64, bfloat16 };

  /// Starts to connect; ready() returns true when this is done. `processors`: number of blocks per sum, fixed because
  /// NCCL would choose from a range, and the number determines the order of the additions. The calling thread's CUDA
  /// device becomes the rank's. Throws NcclError.
  NcclHandle(const NcclId& id, int rank, int size, int processors);
  /// Ends in order, which waits up to 10 s for the peers to do the same; aborts if an exception is the cause.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// False while the last call is in progress: the next must wait. True also means that no error has occurred since.
  /// Never blocks, touches no CUDA state. Throws NcclError.
  bool ready();
  /// data[i] = sum over ranks of data[i], on `stream` (a cudaStream_t). Requires ready(); the host's work is complete
  /// when ready() again. Throws NcclError.
  void start_sum(void* data, std::size_t count, Element element, void* stream);
  /// The halves of such a sum, for float32. Every rank owns `share` elements, in the order of the ranks; the last one
  /// also owns the `rest` after them. Scattering does not change elements that a rank does not own.
  void start_scatter_sum(float* data, std::size_t share, std::size_t rest, void* stream);
  /// `share` and `rest` in bytes.
  void start_gather(std::byte* data, std::size_t share, std::size_t rest, void* stream);
  void start_broadcast(std::byte* data, std::size_t count, int root, void* stream);
  /// Messages between two ranks; `peer` must send and receive as many, of the same sizes and in the same order. All
  /// travel concurrently.
  struct Message {
    enum class Direction { send, receive };
    Direction direction;
    float* data;
    std::size_t count;
    int peer;
  };
  void start_messages(std::span<const Message> messages, void* stream);
  /// Ends all work on the device and releases everything, within 2 s. No call is allowed afterwards.
  void abort() noexcept;

 private:
  /// Completes running work and leaves; false: an error occurred.
  bool end_in_order() noexcept;
  /// Runs both calls as one group, so that one kernel does both.
  template <class Shares, class Rest>
  void start_together(const char* what, const Shares& shares, const Rest& rest);

  int rank_, last_rank_;
  ::ncclComm* communicator_ = nullptr;
};

}  // namespace lockstep::comm
