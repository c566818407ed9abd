#include "app/data/verify_data.hpp"

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kAlwaysVerifiedBytes = std::uint64_t{4} << 30;
  return wanted == VerifyData::all || (wanted == VerifyData::automatic && bytes <= kAlwaysVerifiedBytes);
}

std::uint64_t verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted,
                          std::span<const io::Dataset* const> data) {
  if (wanted == VerifyData::none) return 0;
  std::uint64_t bytes = 0;
  for (const io::Dataset* dataset : data) {
    if (dataset == nullptr) continue;
    for (const io::ShardInfo& shard : dataset->shards()) {
      if (!shard.checksum_x.empty() || !shard.checksum_y.empty()) bytes += shard.bytes;
    }
  }
  if (!is_verified(wanted, bytes)) {
    console.info(
        fmt::format("checksums of {} are not verified at the start of a job this large (--verify all does; so does "
                    "`lockstep info`)",
                    format_bytes(bytes)));
    return 0;
  }
  communicator.note_activity("verifying the data", 0);
  comm::all_succeed(communicator, [&] {
    for (const io::Dataset* dataset : data) {
      if (dataset != nullptr) dataset->verify(communicator.rank(), communicator.size());
    }
  });
  return bytes;  // counts no files of other programs: they have no checksums
}

}  // namespace lockstep::app
