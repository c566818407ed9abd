#include "app/pack/pack_ranks.hpp"

#include <cstdint>
#include <span>

#include "app/plan/common_result.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kPacking = "packing";

}  // namespace

void PackRanks::all_succeed(const std::function<void()>& work) {
  all_succeed_or_usage(communicator_, [&] {
    const comm::LongOperation packing(communicator_, kPacking);
    work();
  });
}

std::vector<std::string> PackRanks::gather(std::string own) {
  std::vector<std::string> all;
  for (int rank = 0; rank < size(); ++rank) {
    std::string text = rank == communicator_.rank() ? own : std::string();
    std::uint64_t bytes = text.size();
    communicator_.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), rank);
    communicator_.wait(kPacking);
    text.resize(bytes);
    communicator_.broadcast(std::as_writable_bytes(std::span(text)), rank);
    communicator_.wait(kPacking);
    all.push_back(std::move(text));
  }
  return all;
}

void PackRanks::note_progress() {
  communicator_.end_long_operation();
  communicator_.begin_long_operation(kPacking);
}

}  // namespace lockstep::app
