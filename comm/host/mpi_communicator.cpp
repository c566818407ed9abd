#include "comm/host/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "comm/host/pieces.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

CommunicatorOptions in_full(CommunicatorOptions options) {
  options.wire = WireFormat::fp32;
  return options;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options)
    : RingCommunicator(state, std::move(peers), in_full(options)),
      buffer_(plain_reduction_memory(kBufferBytes)),
      urgent_buffer_(plain_reduction_memory(kMaxUrgentBytes)) {}

std::string MpiCommunicator::description() const { return "MPI_Iallreduce of " + mpi_library_version(); }

std::unique_ptr<ReductionMemory> MpiCommunicator::take_memory(std::size_t bytes) {
  const Block block = plain_reduction_memory(bytes);
  blocks_.push_back(block);
  const std::span<std::byte> all = block->writable_block();
  return std::make_unique<ReductionMemory>(all.data(), all.size(), [this, block] { std::erase(blocks_, block); });
}

bool MpiCommunicator::is_own(std::span<const std::byte> data) const noexcept {
  return std::ranges::any_of(blocks_, [&](const Block& block) {
    const std::span<const std::byte> own = block->block();
    return data.data() >= own.data() && data.data() + data.size() <= own.data() + own.size();
  });
}

template <class T>
void MpiCommunicator::sum(std::span<T> data, MPI_Datatype type, Collective operation) {
  detector().enter();
  const std::span<std::byte> bytes = std::as_writable_bytes(data);
  if (is_own(bytes)) {
    return for_each_piece(bytes.size(), kPieceBytes, [&](std::size_t offset, std::size_t length) {
      sum_bytes(bytes.subspan(offset, length), sizeof(T), type, operation);
    });
  }
  for_each_piece(bytes.size(), kBufferBytes, [&](std::size_t offset, std::size_t length) {
    const std::span<std::byte> piece = bytes.subspan(offset, length);
    const std::span<std::byte> copy = buffer_->writable_block().first(length);
    std::ranges::copy(piece, copy.begin());
    sum_bytes(copy, sizeof(T), type, operation);
    std::ranges::copy(copy, piece.begin());
  });
}

void MpiCommunicator::sum_bytes(std::span<std::byte> data, std::size_t element_bytes, MPI_Datatype type,
                                Collective operation) {
  MpiSession::State& state = detector().state();
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  try {
    {
      const std::lock_guard lock(*state.mpi);
      check(MPI_Iallreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size() / element_bytes), type, MPI_SUM,
                           state.data, request.data()),
            "MPI_Iallreduce", state);
    }
    detector().wait_for(request, operation);
  } catch (...) {
    for (const Block& block : blocks_) state.kept->add(block);
    state.kept->add(buffer_);
    throw;
  }
}

// The session's second communicator carries only messages, which do not interfere with a collective.
void MpiCommunicator::begin_urgent(std::span<double> data) {
  MpiSession::State& state = detector().state();
  urgent_ = data;
  auto* const copy = reinterpret_cast<double*>(urgent_buffer_->writable_block().data());
  std::ranges::copy(data, copy);
  const std::lock_guard lock(*state.mpi);
  check(MPI_Iallreduce(MPI_IN_PLACE, copy, static_cast<int>(data.size()), MPI_DOUBLE, MPI_SUM, state.status,
                       &urgent_request_),
        "MPI_Iallreduce", state);
}

Progress MpiCommunicator::advance_urgent() {
  int complete = 0;
  const std::lock_guard lock(*detector().state().mpi);
  check(MPI_Test(&urgent_request_, &complete, MPI_STATUS_IGNORE), "MPI_Test", detector().state());
  if (!complete) return Progress::none;
  std::ranges::copy_n(reinterpret_cast<const double*>(urgent_buffer_->block().data()),
                      static_cast<std::ptrdiff_t>(urgent_.size()), urgent_.begin());
  return Progress::done;
}

void MpiCommunicator::abandon_urgent() noexcept {
  if (urgent_request_ != MPI_REQUEST_NULL) detector().state().kept->add(urgent_buffer_);
}

void MpiCommunicator::run_all_reduce(std::span<float> data) { sum(data, MPI_FLOAT, Collective::all_reduce); }
void MpiCommunicator::run_all_reduce(std::span<double> data) { sum(data, MPI_DOUBLE, Collective::all_reduce); }
void MpiCommunicator::run_reduce_scatter(std::span<float> data) { sum(data, MPI_FLOAT, Collective::reduce_scatter); }

}  // namespace lockstep::comm
