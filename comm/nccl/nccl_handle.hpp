/// \file
/// A NCCL communicator's handle as an owner: starts without blocking, is polled, ends by itself. Nothing here waits for
/// long, but nothing here knows the other ranks either: deadlines and the agreement on failures are its user's.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "comm/communicator.hpp"

struct ncclComm;

namespace lockstep::comm {

/// NCCL failed; the text is in NCCL's words, with what it warned of last.
class NcclError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the ranks of one NCCL communicator share to find each other.
struct NcclId {
  std::array<std::byte, 128> bytes{};
};
/// Collective: made on rank 0, told to all. Needs no device. Throws AgreedError.
NcclId make_nccl_id(Communicator& host);

/// Where an environment variable says something already, that stands. Must come before the first other call to NCCL.
struct NcclSettings {
  bool ring = false;  ///< NCCL_ALGO=Ring
  bool nvls = false;  ///< without it NCCL_NVLS_ENABLE=0
  bool shared_device =
      false;  ///< several ranks on one device: each pretends to be a host of its own, talking by sockets
  int rank = 0;
};
void apply_nccl_settings(const NcclSettings& settings);

class NcclHandle {
 public:
  enum class Element { float32, float64, bfloat16 };

  /// Starts to connect; ready() tells when that is done. `processors`: exactly so many blocks of a sum run at a time (a
  /// range would let NCCL choose, and the order of the additions with it). The calling thread's CUDA device becomes the
  /// rank's. Throws NcclError.
  NcclHandle(const NcclId& id, int rank, int size, int processors);
  /// Ends in order, which waits for the peers to do the same, 10 s at most; aborts when it runs because of an
  /// exception.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// False while the last call is in progress: the next must wait. True also says that no error has shown since. Never
  /// blocks, touches no CUDA state. Throws NcclError.
  bool ready();
  /// data[i] = sum over ranks of data[i], on `stream` (a cudaStream_t). Only when ready(); done, as far as the host
  /// goes, when ready() again. Throws NcclError.
  void start_sum(void* data, std::size_t count, Element element, void* stream);
  /// The halves of such a sum, of float32. Every rank owns `share` elements, in the order of the ranks; the last one
  /// also owns the `rest` behind them. Scattering leaves what a rank does not own as it is.
  void start_scatter_sum(float* data, std::size_t share, std::size_t rest, void* stream);
  /// In bytes.
  void start_gather(std::byte* data, std::size_t share, std::size_t rest, void* stream);
  void start_broadcast(std::byte* data, std::size_t count, int root, void* stream);
  /// Messages between two ranks; `peer` sends and receives as many, of the same sizes and in the same order. All travel
  /// at once.
  struct Message {
    enum class Way { send, receive };
    Way way;
    float* data;
    std::size_t count;
    int peer;
  };
  void start_messages(std::span<const Message> messages, void* stream);
  /// Ends what runs on the device and gives everything up; 2 s at most. Nothing may be called any more.
  void abort() noexcept;

 private:
  /// Lets what runs finish and leaves; false: something went wrong.
  bool end_in_order() noexcept;
  /// Both calls as one, so that one kernel does both.
  template <class Shares, class Rest>
  void start_together(const char* what, const Shares& shares, const Rest& rest);

  int rank_, last_rank_;
  ::ncclComm* communicator_ = nullptr;
};

}  // namespace lockstep::comm
